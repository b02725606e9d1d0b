//! The duration of TLS handshakes (RFC 8446, RFC 5246), after the TCP connection that carries each.
//!
//! Connections are made one at a time, as by [`connect`](crate::connect). The handshake ends when this end may send
//! data. The certificate is received but not verified: this instrument measures a server and does not trust it with
//! anything.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
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
use crate::connect::{ConnectPlan, ConnectProbes, ConnectionTimes, metrics, profile};
use crate::echo_stats::lines;
use crate::endpoint;
use crate::error::{Context, Error, Result};
use crate::failure::{Blame, Failure, check_stop};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, estimated};
use crate::measured::{LOSS_INTERVAL, QUANTILE_INTERVAL};
use crate::round_trip::LossTimeout;
use netio::stop::{STOP_INTERVAL, Stop};
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::InstrumentProfile;
use record::{Measurement, Metric};

/// The longest wait for the server's session tickets after a handshake.
const TICKET_TIMEOUT: Duration = Duration::from_millis(500);

/// Measure the time of TLS handshakes, and show the negotiated parameters
///
/// Each connection completes the handshake and is closed. The server's certificate is not verified.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct TlsArgs {
    /// Name or address, and the TCP port if it differs from --port
    #[arg(value_name = "HOST[:PORT]")]
    #[serde(skip)]
    host: String,
    /// TCP port of the server
    #[arg(short, long, default_value_t = 443)]
    port: u16,
    #[command(flatten)]
    #[serde(flatten)]
    plan: ConnectPlan,
    /// Server name to request (SNI) [default: HOST]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Application protocols to offer (ALPN), the preferred one first: h2,http/1.1
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alpn: Vec<String>,
    /// Resume the session of an earlier connection if the server allows it
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

impl Instrument for TlsArgs {
    fn profile(&self) -> InstrumentProfile {
        profile(&TIMED)
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(metrics(&TIMED))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(Some(self.port))]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan.longest())
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        // TLS 1.3 takes one round trip after the one of TCP.
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
        };
        Ok(handshaker.measure(session).into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        lines(measurement)
    }
}

/// The times that are measured for each connection.
const TIMED: [Metric; 2] = [Metric::TlsHandshakeMs, Metric::ConnectMs];

impl TlsArgs {
    fn config(&self) -> ClientConfig {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the cipher suites of both versions");
        let any = CertificateVerifier {
            provider,
            check: |_: &CertificateDer<'_>| Ok(()),
        };
        let mut config = config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(any))
            .with_no_client_auth();
        config.alpn_protocols = self.alpn.iter().map(|name| name.clone().into()).collect();
        if !self.resume {
            config.resumption = Resumption::disabled();
        }
        config
    }

    /// Returns the name to request from the server, or the address if there is no name.
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

struct Handshaker<'a> {
    target: SocketAddr,
    args: &'a TlsArgs,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The parameters that client and server agreed on.
#[derive(Debug)]
struct NegotiatedParameters {
    version: String,
    cipher: String,
    alpn: String,
    is_resumed: bool,
}

impl Handshaker<'_> {
    fn measure(&self, session: &Session) -> Measurement {
        let plan = &self.args.plan;
        let mut probes = ConnectProbes::new(self.target, plan, &TIMED);
        let mut agreed = Vec::new();
        let ended = probes.run(session, |timeout| {
            let (times, now_agreed) = self.probe(timeout, &session.stop)?;
            agreed.extend(now_agreed);
            Ok((times, Ok(())))
        });
        let (timeout, received) = (probes.timeout(), probes.answered());
        let resumed = agreed.iter().filter(|agreed| agreed.is_resumed).count();
        let all = |what: fn(&NegotiatedParameters) -> &str| {
            let all: BTreeSet<&str> = agreed.iter().map(what).collect();
            all.into_iter().collect::<Vec<_>>().join(", ")
        };
        probes
            .measurement(ended, "handshake")
            .with_fact("version", all(|agreed| &agreed.version))
            .with_fact("cipher", all(|agreed| &agreed.cipher))
            .with_fact("alpn", all(|agreed| &agreed.alpn))
            .with_fact("resumed", format!("{resumed} of {received}"))
            .with_fact("certificate", "received and not verified")
            .with_fact(
                "handshake",
                "from the TCP connection until this end may send data; the server's time for its signature is included",
            )
            .with_fact(
                "interval",
                format!("{QUANTILE_INTERVAL}; the hosts' own time is included; of loss, {LOSS_INTERVAL}"),
            )
            .with_fact("loss", format!("no handshake within {timeout:?} of the connection request"))
    }

    /// Makes one connection. The measurement ends if the server refuses or breaks it.
    fn probe(
        &self,
        mut timeout: LossTimeout,
        stop: &Stop,
    ) -> Result<(ConnectionTimes, Option<NegotiatedParameters>)> {
        let target = self.target;
        let socket = endpoint::tcp(target, self.args.common.bind.as_ref())?;
        let start = Instant::now();
        match endpoint::attempt(&socket, target, timeout.time(), stop)? {
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                return Ok((ConnectionTimes::new(), None));
            }
            outcome => outcome.with_context(|| format!("no connection to {target}"))?,
        }
        let connected = Instant::now();
        timeout.add(connected - start);
        socket.set_nonblocking(false)?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone())
            .map_err(|error| Error::Library(error.into()))?;
        while tls.is_handshaking() {
            check_stop(stop)?;
            if start.elapsed() >= timeout.time() {
                return Ok((ConnectionTimes::new(), None));
            }
            advance(&mut tls, &mut stream)
                .with_context(|| format!("no TLS handshake with {target}"))?;
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let times = vec![
            (Metric::ConnectMs, ms(connected - start)),
            (Metric::TlsHandshakeMs, ms(connected.elapsed())),
        ];
        let agreed = NegotiatedParameters::of(&tls);
        if self.args.resume {
            let until = Instant::now() + TICKET_TIMEOUT;
            while tls.tls13_tickets_received() == 0 && Instant::now() < until {
                check_stop(stop)?;
                // A server that closes the connection sends no ticket.
                if advance(&mut tls, &mut stream).is_err() {
                    break;
                }
            }
        }
        tls.send_close_notify();
        // It no longer matters whether the server learns of the end.
        let _ = tls.write_tls(&mut stream);
        Ok((times, agreed))
    }
}

/// Sends pending data and receives at most once, within the read time-out of `stream`.
fn advance(tls: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(stream)?;
    }
    match tls.read_tls(stream) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {
            let processed = tls.process_new_packets();
            // An alert tells the server the cause.
            let _ = tls.write_tls(stream);
            processed.map(drop).map_err(io::Error::other)
        }
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        },
    }
}

impl NegotiatedParameters {
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

/// A verifier that accepts every certificate that passes a check, whoever signed it, if the server proves that it has
/// the key.
pub struct CertificateVerifier<C> {
    /// The provider of the signature algorithms for that proof.
    pub provider: Arc<CryptoProvider>,
    /// The check, which returns an error to reject a certificate.
    pub check: C,
}

impl<C> fmt::Debug for CertificateVerifier<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateVerifier")
    }
}

impl<C> ServerCertVerifier for CertificateVerifier<C>
where
    C: Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        (self.check)(certificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Nanos;
    use record::Statistic;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    /// Starts a server that ends each connection when its client does.
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
                timeout: Some(Nanos::from_secs(60)),
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
    fn every_handshake_is_timed_and_its_parameters_are_stated() {
        let args = TlsArgs {
            alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
            ..args(server())
        };
        let measurement = measured(&args);
        assert_eq!(measurement.failure, None);
        let facts = &measurement.facts;
        assert_eq!(facts["version"], "TLSv1_3");
        assert!(facts["cipher"].starts_with("TLS13_"), "{facts:?}");
        assert_eq!(&*facts["alpn"], "http/1.1");
        assert_eq!(&*facts["resumed"], "0 of 3");
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
    fn later_connections_resume_the_session_on_request() {
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
                timeout: Some(Nanos::from_millis(50)),
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
    fn the_host_s_name_is_requested_from_the_server() {
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
