//! How long a TLS handshake takes (RFC 8446, RFC 5246), after the TCP connection that carries it.
//!
//! One connection at a time, as [`connect`](crate::connect) makes them. The handshake is over when this end may send data; the
//! certificate is received but not verified: this instrument measures a server and trusts it with nothing.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, SignatureScheme,
};
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::connect::ConnectPlan;
use crate::echo_stats::lines;
use crate::endpoint;
use crate::error::{Context, Error, Result};
use crate::failure::{Blame, Failure, go_on};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, estimated};
use crate::measured::{MEDIAN_INTERVAL, distribution, failure, lost_percent, total};
use netio::stop::{STOP_INTERVAL, Stop};
use record::lateness::Traffic;
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::profile::{Calibration, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::quantity::counted;
use record::{Measurement, Metric, Sample, Statistic};

/// How long the server's session tickets are awaited after a handshake.
const TICKETS: Duration = Duration::from_millis(500);

/// How long a TLS handshake takes, and what was agreed
///
/// Each connection is made, greeted and closed. The server's certificate is not verified.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct TlsArgs {
    /// Name or address, and the TCP port if it is not that of --port
    #[arg(value_name = "HOST[:PORT]")]
    #[serde(skip)]
    host: String,
    /// TCP port of the server
    #[arg(short, long, default_value_t = 443)]
    port: u16,
    #[command(flatten)]
    #[serde(flatten)]
    plan: ConnectPlan,
    /// Name that the server is asked for (SNI) [default: HOST]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Application protocols to offer (ALPN), the preferred one first
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alpn: Vec<String>,
    /// Resume the session of an earlier connection where the server allows it
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    #[serde(skip)]
    common: CommonArgs,
}

impl Instrument for TlsArgs {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn profile(&self) -> InstrumentProfile {
        let connect = Headline::new(Metric::ConnectMs, Statistic::Median);
        let profile = metrics().profile(connect, HostLimit::RoundTrip);
        InstrumentProfile {
            samples: Some(SampleKind::Probes),
            calibration: Calibration {
                sends_again: true,
                ..profile.calibration
            },
            ..profile
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(metrics())
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(Some(self.port))]
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan.longest())
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        // TCP's round trip and that of TLS 1.3.
        let round_trips = pace.map_or(0.0, |pace| 2.0 * pace.round_trip_s(0, 0));
        Some(self.plan.sending() + estimated(round_trips))
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, self.port, family).or_bad_input()?;
        let handshaker = Handshaker {
            target,
            args: self,
            config: Arc::new(self.config()),
            name: self.name(target).or_bad_input()?,
            start: Instant::now(),
            probes: Vec::new(),
        };
        Ok(handshaker.measure(session).into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        lines(measurement)
    }
}

fn metrics() -> MetricTable {
    const TIME: &[Statistic] = &[
        Statistic::Min,
        Statistic::Mean,
        Statistic::Median,
        Statistic::Max,
    ];
    MetricTable::new([
        MetricRow::new(Metric::TlsHandshakeMs, TIME).headlines(&[Statistic::Median]),
        MetricRow::new(Metric::ConnectMs, TIME).headlines(&[Statistic::Median]),
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::total(Metric::SentPackets),
        MetricRow::total(Metric::ReceivedPackets),
    ])
}

impl TlsArgs {
    fn config(&self) -> ClientConfig {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the cipher suites of both versions");
        let mut config = config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        config.alpn_protocols = self.alpn.iter().map(|name| name.clone().into()).collect();
        if !self.resume {
            config.resumption = Resumption::disabled();
        }
        config
    }

    /// What the server is asked for: a name, or the address where there is none.
    fn name(&self, target: SocketAddr) -> Result<ServerName<'static>> {
        let host = self
            .host
            .rsplit_once(':')
            .map_or(&*self.host, |(host, port)| {
                let is_port = port.parse::<u16>().is_ok() && !host.contains(':');
                if is_port { host } else { &self.host }
            });
        match &self.server_name {
            Some(name) => ServerName::try_from(name.clone())
                .map_err(|error| Error::Input(format!("--server-name {name}: {error}"))),
            None => Ok(ServerName::try_from(host.to_owned())
                .unwrap_or_else(|_| ServerName::from(target.ip()))),
        }
    }
}

/// What became of a connection that was asked for.
#[derive(Debug)]
enum Probe {
    /// It is there, after so many milliseconds of TCP and of TLS.
    Done { connect_ms: f64, handshake_ms: f64 },
    /// Not within the time-out.
    Lost,
}

struct Handshaker<'a> {
    target: SocketAddr,
    args: &'a TlsArgs,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    start: Instant,
    /// When each connection was asked for, in seconds, what became of it, and what was agreed.
    probes: Vec<(f64, Probe, Option<Agreed>)>,
}

/// What client and server agreed on.
#[derive(Debug)]
struct Agreed {
    version: String,
    cipher: String,
    alpn: String,
    is_resumed: bool,
}

impl Handshaker<'_> {
    fn measure(mut self, session: &Session) -> Measurement {
        let ended = failure(self.run(session));
        let mut measurement = self.finish();
        measurement.failure = ended.or(measurement.failure);
        measurement
    }

    fn run(&mut self, session: &Session) -> Result<()> {
        let mut progress = session.live.since(self.start);
        let mut due = Duration::ZERO;
        for _ in 0..self.args.plan.count {
            while self.start.elapsed() < due {
                go_on(&session.stop)?;
                thread::sleep(STOP_INTERVAL.min(due.saturating_sub(self.start.elapsed())));
            }
            let begun = self.start.elapsed();
            due = begun + Duration::from(self.args.plan.interval);
            let (probe, agreed) = self.probe(&session.stop)?;
            self.probes.push((begun.as_secs_f64(), probe, agreed));
            progress.tell(|| format!("{} handshakes", self.probes.len()));
        }
        Ok(())
    }

    /// One connection. A refused one, or one that the server breaks, ends the measurement.
    fn probe(&self, stop: &Stop) -> Result<(Probe, Option<Agreed>)> {
        let target = self.target;
        let socket = endpoint::tcp(target, self.args.common.bind.as_ref())?;
        let asked = Instant::now();
        let timeout = Duration::from(self.args.plan.timeout);
        match endpoint::attempt(&socket, target, timeout, stop)? {
            Err(error) if error.kind() == ErrorKind::TimedOut => return Ok((Probe::Lost, None)),
            went => went.with_context(|| format!("no connection to {target}"))?,
        }
        let connected = Instant::now();
        socket.set_nonblocking(false)?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|error| Error::Library(error.into()))?;
        while tls.is_handshaking() {
            go_on(stop)?;
            if asked.elapsed() >= timeout {
                return Ok((Probe::Lost, None));
            }
            advance(&mut tls, &mut stream)
                .with_context(|| format!("no TLS handshake with {target}"))?;
        }
        let probe = Probe::Done {
            connect_ms: (connected - asked).as_secs_f64() * 1e3,
            handshake_ms: connected.elapsed().as_secs_f64() * 1e3,
        };
        let agreed = Agreed::of(&tls);
        if self.args.resume {
            let until = Instant::now() + TICKETS;
            while tls.tls13_tickets_received() == 0 && Instant::now() < until {
                go_on(stop)?;
                // A server that closes sends no ticket.
                if advance(&mut tls, &mut stream).is_err() {
                    break;
                }
            }
        }
        tls.send_close_notify();
        // Whether the server learns of the end does not matter any more.
        let _ = tls.write_tls(&mut stream);
        Ok((probe, agreed))
    }

    fn finish(&self) -> Measurement {
        let done = |time: fn(f64, f64) -> f64| -> Vec<f64> {
            let probes = self.probes.iter();
            let times = probes.filter_map(|(_, probe, _)| match probe {
                Probe::Done {
                    connect_ms,
                    handshake_ms,
                } => Some(time(*connect_ms, *handshake_ms)),
                Probe::Lost => None,
            });
            times.collect()
        };
        let (connects, handshakes) = (done(|connect, _| connect), done(|_, tls| tls));
        let (sent, received) = (self.probes.len() as u64, handshakes.len() as u64);
        let table = metrics();
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, received),
        ];
        figures.extend((sent > 0).then(|| lost_percent(sent - received, sent)));
        for (metric, times) in [
            (Metric::TlsHandshakeMs, &handshakes),
            (Metric::ConnectMs, &connects),
        ] {
            figures.extend(distribution(metric, times, table.statistics(metric)));
        }
        let (target, timeout) = (self.target, Duration::from(self.args.plan.timeout));
        let failure = (received == 0)
            .then(|| counted(sent, "handshake"))
            .map(|sent| format!("no answer from {target} to {sent} within {timeout:?}"));
        let agreed = || {
            self.probes
                .iter()
                .filter_map(|(.., agreed)| agreed.as_ref())
        };
        let resumed = agreed().filter(|agreed| agreed.is_resumed).count();
        let all = |what: fn(&Agreed) -> &str| {
            let all: BTreeSet<&str> = agreed().map(what).collect();
            all.into_iter().collect::<Vec<_>>().join(", ")
        };
        Measurement {
            samples: self.samples(),
            figures,
            failure,
            ..Measurement::default()
        }
        .with_fact("version", all(|agreed| &agreed.version))
        .with_fact("cipher", all(|agreed| &agreed.cipher))
        .with_fact("alpn", all(|agreed| &agreed.alpn))
        .with_fact("resumed", format!("{resumed} of {received}"))
        .with_fact("certificate", "received and not verified")
        .with_fact(
            "handshake",
            "from the TCP connection until this end may send data; the server's time for its signature is in it",
        )
        .with_fact(
            "interval",
            format!("{MEDIAN_INTERVAL}; the hosts' own time is in it; of loss Wilson's"),
        )
        .with_fact("loss", format!("no handshake within {timeout:?} of asking for the connection"))
    }

    fn samples(&self) -> Vec<Sample> {
        let of_probe = |((at_s, probe, _), index): (&(f64, Probe, _), u64)| match probe {
            Probe::Done {
                connect_ms,
                handshake_ms,
            } => vec![
                Sample::new(*at_s, Metric::ConnectMs, index, *connect_ms),
                Sample::new(*at_s, Metric::TlsHandshakeMs, index, *handshake_ms),
            ],
            Probe::Lost => vec![Sample::new(*at_s, Metric::LostPackets, index, 1.0)],
        };
        self.probes.iter().zip(1..).flat_map(of_probe).collect()
    }
}

/// Sends and receives what there is, for at most the stream's read time-out.
fn advance(tls: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    match tls.read_tls(stream) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {
            let processed = tls.process_new_packets();
            // An alert tells the server why.
            let _ = tls.write_tls(stream);
            processed.map(drop).map_err(io::Error::other)
        }
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        },
    }
}

impl Agreed {
    fn of(tls: &ClientConnection) -> Option<Self> {
        let name = |of: Option<&[u8]>| {
            of.map_or_else(
                || "none".to_owned(),
                |name| String::from_utf8_lossy(name).into_owned(),
            )
        };
        Some(Self {
            version: format!("{:?}", tls.protocol_version()?),
            cipher: format!("{:?}", tls.negotiated_cipher_suite()?.suite()),
            alpn: name(tls.alpn_protocol()),
            is_resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }
}

/// Takes every certificate whose owner proves that it has the key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.0.signature_verification_algorithms;
        known.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Nanos;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// A server that ends each connection when its client does.
    fn server() -> SocketAddr {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = own.signing_key.serialize_der().try_into().unwrap();
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.into()], key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming() {
                let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(tls, client.unwrap());
                let _ = stream.read(&mut [0; 16]);
            }
        });
        address
    }

    fn args(target: SocketAddr) -> TlsArgs {
        TlsArgs {
            host: target.to_string(),
            port: 443,
            plan: ConnectPlan {
                count: 3,
                interval: Nanos::from_micros(1),
                timeout: Nanos::from_secs(60),
            },
            server_name: Some("localhost".to_owned()),
            alpn: Vec::new(),
            resume: false,
            common: CommonArgs::default(),
        }
    }

    fn measured(args: &TlsArgs) -> Measurement {
        let output = args.measure(&Session::quiet(Stop::default()));
        output.unwrap().measurement
    }

    #[test]
    fn every_handshake_is_timed_and_what_was_agreed_is_stated() {
        let args = TlsArgs {
            alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
            ..args(server())
        };
        let measurement = measured(&args);
        assert_eq!(measurement.failure, None);
        let facts = &measurement.facts;
        assert_eq!(facts["version"], "TLSv1_3");
        assert!(facts["cipher"].starts_with("TLS13_"), "{facts:?}");
        assert_eq!(
            (&*facts["alpn"], &*facts["resumed"]),
            ("http/1.1", "0 of 3")
        );
        for metric in [Metric::TlsHandshakeMs, Metric::ConnectMs] {
            assert!(measurement.figure(metric, Statistic::Min).unwrap() > 0.0);
            let samples = measurement.samples.iter();
            assert_eq!(samples.filter(|sample| sample.metric == metric).count(), 3);
        }
        assert_eq!(
            measurement.figure(Metric::LostPercent, Statistic::Mean),
            Some(0.0)
        );
    }

    #[test]
    fn later_connections_resume_the_session_where_that_is_asked_for() {
        let args = TlsArgs {
            resume: true,
            ..args(server())
        };
        let measurement = measured(&args);
        assert_eq!(measurement.failure, None);
        assert_eq!(measurement.facts["resumed"], "2 of 3");
    }

    #[test]
    fn a_server_without_tls_is_a_failure_and_a_silent_one_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let talking = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .unwrap();
            listener
        });
        let cause = measured(&args(target)).failure.unwrap();
        assert!(cause.contains("no TLS handshake with 127.0.0.1"), "{cause}");
        let _silent = talking.join().unwrap();
        let args = TlsArgs {
            plan: ConnectPlan {
                count: 1,
                interval: Nanos::from_micros(1),
                timeout: Nanos::from_millis(50),
            },
            ..args(target)
        };
        let measurement = measured(&args);
        assert!(
            measurement
                .failure
                .unwrap()
                .contains("to 1 handshake within")
        );
        assert_eq!(measurement.samples[0].metric, Metric::LostPackets);
    }

    #[test]
    fn the_server_is_asked_for_by_the_host_s_name() {
        let of = |host: &str| {
            let args = TlsArgs {
                host: host.to_owned(),
                server_name: None,
                ..args("127.0.0.1:1".parse().unwrap())
            };
            args.name("192.0.2.1:443".parse().unwrap()).unwrap()
        };
        assert_eq!(of("example.org:8443").to_str(), "example.org");
        assert_eq!(of("example.org").to_str(), "example.org");
        assert_eq!(of("[::1]:443").to_str(), "192.0.2.1");
    }
}
