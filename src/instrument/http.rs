//! An HTTP/1.1 download (RFC 9112): bytes over time, time to the first byte, goodput.

mod body;
mod target;

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read as _, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use self::body::Body;
pub(crate) use self::target::HttpTarget;
use super::meter::Meter;
use super::stop::STOP_INTERVAL;
use super::{Figure, Measurement, Metric, Session, Statistic, Stop, seconds};
use crate::serve::CONGESTION_HEADER;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// A transfer that brings nothing for so long has died; TCP retries well within it.
const SILENCE: Duration = Duration::from_secs(60);
const RECEIVE_BUFFER: usize = 256 * 1024;
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// How to download.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HttpPlan {
    /// When to end.
    pub(crate) amount: Amount,
    /// Length of the intervals in which bytes are counted.
    #[serde(rename = "interval_s", with = "seconds")]
    pub(crate) interval: Duration,
}

/// How much to download.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Amount {
    /// Everything that the URL gives.
    Whole,
    /// So many payload bytes.
    Bytes(u64),
    /// What comes within this time of the request.
    #[serde(rename = "for_s", with = "seconds")]
    For(Duration),
}

/// Downloads `target` from the calling thread's namespace.
pub(crate) fn measure(target: &HttpTarget, plan: &HttpPlan, session: &Session) -> Measurement {
    let stop = &session.stop;
    let mut measurement = match Download::request(target, plan, stop) {
        Ok(mut download) => {
            let cause = download.receive(stop).err();
            let mut measurement = download.finish();
            measurement.failure = cause.map(|error| format!("{error:#}"));
            measurement
        }
        Err(error) => Measurement::failed(format!("{error:#}")),
    };
    measurement
        .facts
        .insert("url".to_owned(), target.to_string());
    let end = match plan.amount {
        Amount::Whole | Amount::Bytes(_) => "the last byte received",
        Amount::For(_) => "the end of the stated time",
    };
    measurement.with_fact(
        "goodput",
        format!("HTTP body bytes (L7) from sending the request to {end}"),
    )
}

/// How one read ended.
enum Read {
    Bytes(usize),
    Closed,
    TimeUp,
}

struct Download<'a> {
    plan: &'a HttpPlan,
    stream: TcpStream,
    start: Instant,
    first_byte_s: Option<f64>,
    last_byte_s: f64,
    congestion: Option<String>,
    body: Body,
    meter: Meter,
    buffer: Vec<u8>,
    /// How much of the buffer's start came with the head and is body already.
    filled: usize,
}

impl<'a> Download<'a> {
    fn request(target: &HttpTarget, plan: &'a HttpPlan, stop: &Stop) -> Result<Self> {
        let mut stream = TcpStream::connect_timeout(&target.address, CONNECT_TIMEOUT)
            .with_context(|| format!("no connection to {}", target.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: farwire/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            target.path,
            target.authority,
            env!("CARGO_PKG_VERSION")
        );
        let start = Instant::now();
        stream
            .write_all(request.as_bytes())
            .context("sending the request")?;
        let mut download = Self {
            plan,
            stream,
            start,
            first_byte_s: None,
            last_byte_s: 0.0,
            congestion: None,
            body: Body::UntilClose,
            meter: Meter::new(plan.interval),
            buffer: vec![0; RECEIVE_BUFFER],
            filled: 0,
        };
        download.receive_head(stop)?;
        Ok(download)
    }

    fn receive_head(&mut self, stop: &Stop) -> Result<()> {
        loop {
            match self.read(stop, None)? {
                Read::Bytes(count) => self.filled += count,
                Read::Closed | Read::TimeUp => bail!(
                    "the server closed the connection within the answer's head, after {} bytes",
                    self.filled
                ),
            }
            self.first_byte_s
                .get_or_insert(self.start.elapsed().as_secs_f64());
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut response = httparse::Response::new(&mut headers);
            let parsed = response
                .parse(&self.buffer[..self.filled])
                .context("the server's answer is not HTTP/1.1")?;
            if let httparse::Status::Complete(head) = parsed {
                if response.code != Some(200) {
                    let (code, reason) =
                        (response.code.unwrap_or(0), response.reason.unwrap_or(""));
                    bail!("HTTP status {code} {reason}");
                }
                self.body = Body::of(response.headers)?;
                self.congestion = body::header(response.headers, CONGESTION_HEADER)?;
                self.buffer.copy_within(head..self.filled, 0);
                self.filled -= head;
                return Ok(());
            }
            if self.filled >= LONGEST_HEAD {
                bail!("the answer's head is longer than {LONGEST_HEAD} bytes");
            }
        }
    }

    /// Reads the body until the plan is met.
    fn receive(&mut self, stop: &Stop) -> Result<()> {
        let (most, time) = match self.plan.amount {
            Amount::Whole => (None, None),
            Amount::Bytes(bytes) => (Some(bytes), None),
            Amount::For(time) => (None, Some(time)),
        };
        loop {
            self.count()?;
            if most.is_some_and(|most| self.meter.total() >= most) {
                return Ok(());
            }
            if self.body.complete() {
                let total = self.meter.total();
                return match most {
                    Some(most) => Err(anyhow!(
                        "the server gave {total} of the {most} bytes asked for"
                    )),
                    None => Ok(()),
                };
            }
            match self.read(stop, time)? {
                Read::Bytes(count) => self.filled = count,
                Read::Closed => return self.body.closed(self.meter.total()),
                Read::TimeUp => {
                    self.last_byte_s = time.unwrap_or_default().as_secs_f64();
                    return Ok(());
                }
            }
        }
    }

    /// Counts what was read as body.
    fn count(&mut self) -> Result<()> {
        if self.filled > 0 {
            let payload = self.body.feed(&self.buffer[..self.filled])?;
            self.last_byte_s = self.start.elapsed().as_secs_f64();
            self.meter.add(self.last_byte_s, payload);
            self.filled = 0;
        }
        Ok(())
    }

    /// Reads behind what is filled; what comes after `until` is not read.
    fn read(&mut self, stop: &Stop, until: Option<Duration>) -> Result<Read> {
        let silent_since = Instant::now();
        loop {
            if until.is_some_and(|until| self.start.elapsed() >= until) {
                return Ok(Read::TimeUp);
            }
            if let Some(cause) = stop.cause() {
                bail!("{cause}; {} bytes came", self.meter.total());
            }
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(Read::Closed),
                Ok(count) => return Ok(Read::Bytes(count)),
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("the connection broke after {} bytes", self.meter.total())
                    });
                }
            }
            if silent_since.elapsed() >= SILENCE {
                bail!(
                    "nothing came for {} s after {} bytes",
                    SILENCE.as_secs(),
                    self.meter.total()
                );
            }
        }
    }

    fn finish(self) -> Measurement {
        let duration_s = self.last_byte_s;
        let bytes = self.meter.total();
        let measurement = Measurement {
            figures: download_figures(bytes, duration_s, self.first_byte_s),
            samples: self.meter.finish(duration_s),
            ..Measurement::default()
        };
        match self.congestion {
            Some(name) => measurement.with_fact("sender's congestion control", name),
            None => measurement,
        }
    }
}

/// What a download adds up to: `bytes` of payload in `duration_s`, the first of them after `first_byte_s` if that is known.
pub(super) fn download_figures(
    bytes: u64,
    duration_s: f64,
    first_byte_s: Option<f64>,
) -> Vec<Figure> {
    let rate = (duration_s > 0.0).then(|| bytes as f64 * 8.0 / duration_s);
    let figures = [
        (Metric::ReceivedBytes, Statistic::Total, Some(bytes as f64)),
        (Metric::ElapsedS, Statistic::Total, Some(duration_s)),
        (Metric::GoodputBitPerS, Statistic::Mean, rate),
        (
            Metric::FirstByteMs,
            Statistic::Mean,
            first_byte_s.map(|time| time * 1e3),
        ),
    ];
    figures
        .into_iter()
        .filter_map(|(metric, statistic, value)| Some(Figure::new(metric, statistic, value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{self, ServeConfig};
    use std::net::TcpListener;
    use std::thread;

    const PLAN: HttpPlan = HttpPlan {
        amount: Amount::Whole,
        interval: Duration::from_millis(100),
    };

    fn download(target: &HttpTarget, amount: Amount) -> Measurement {
        measure(target, &HttpPlan { amount, ..PLAN }, &Session::default())
    }

    /// A server that says `answer` to whatever it is asked and closes.
    fn answer_of(answer: &'static [u8]) -> Measurement {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = client.read(&mut request).unwrap();
            let _ = client.write_all(answer);
        });
        let measurement = download(&HttpTarget::of(address, "/"), Amount::Whole);
        server.join().unwrap();
        measurement
    }

    fn bytes(measurement: &Measurement) -> f64 {
        let bytes = measurement.figure(Metric::ReceivedBytes, Statistic::Total);
        bytes.unwrap_or_else(|| panic!("{:?}", measurement.failure))
    }

    #[test]
    fn a_download_of_n_bytes_counts_n_bytes_in_its_samples() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let amount = Amount::Bytes(3_000_000);
        let measurement = download(
            &HttpTarget::outlasting(server.address("http").unwrap(), amount),
            amount,
        );
        assert_eq!(measurement.failure, None);
        assert_eq!(bytes(&measurement), 3e6);
        let sampled: f64 = measurement.samples.iter().map(|s| s.value).sum();
        assert!((sampled - 3e6).abs() < 0.5);
        assert_eq!(
            measurement.facts["sender's congestion control"],
            server.congestion()
        );
    }

    #[test]
    fn a_download_for_a_time_lasts_that_time() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let amount = Amount::For(Duration::from_millis(300));
        let measurement = download(
            &HttpTarget::outlasting(server.address("http").unwrap(), amount),
            amount,
        );
        assert_eq!(measurement.failure, None);
        let elapsed = measurement.figure(Metric::ElapsedS, Statistic::Total);
        assert!((elapsed.unwrap() - 0.3).abs() < 1e-9);
        assert!(bytes(&measurement) > 0.0);
    }

    #[test]
    fn a_download_that_flows_can_be_stopped() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let target = HttpTarget::of(server.address("http").unwrap(), "/seconds/3600");
        let stop = Stop::default().within(Duration::from_millis(100));
        let cause = measure(&target, &PLAN, &Session::quiet(stop))
            .failure
            .unwrap();
        assert!(cause.contains("not done within"), "{cause}");
    }

    #[test]
    fn a_truncated_body_is_a_failure_that_keeps_what_came() {
        let measurement = answer_of(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        assert_eq!(bytes(&measurement), 3.0);
        let cause = measurement.failure.unwrap();
        assert!(cause.contains("closed after 3 of 10 bytes"), "{cause}");
    }

    #[test]
    fn a_body_longer_than_announced_is_a_failure() {
        let cause = answer_of(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc")
            .failure
            .unwrap();
        assert!(cause.contains("more than"), "{cause}");
    }

    #[test]
    fn a_chunked_body_is_counted_without_its_framing() {
        let measurement = answer_of(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n",
        );
        assert_eq!(measurement.failure, None);
        assert_eq!(bytes(&measurement), 5.0);
    }

    #[test]
    fn a_body_that_ends_with_the_connection_is_whole() {
        let measurement = answer_of(b"HTTP/1.0 200 OK\r\n\r\nabcdef");
        assert_eq!((bytes(&measurement), measurement.failure), (6.0, None));
    }

    #[test]
    fn answers_that_are_no_good_are_refused_with_their_cause() {
        for (answer, cause) in [
            (&b"SSH-2.0-OpenSSH\r\n"[..], "not HTTP/1.1"),
            (b"", "closed the connection within the answer's head"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                "Content-Length",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                "gzip",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                "chunk",
            ),
        ] {
            let failure = answer_of(answer).failure.unwrap();
            assert!(failure.contains(cause), "{failure}");
        }
    }

    #[test]
    fn a_closed_port_is_a_failure_that_names_the_address() {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let cause = download(&HttpTarget::of(address, "/"), Amount::Whole)
            .failure
            .unwrap();
        assert!(cause.contains(&address.to_string()), "{cause}");
    }
}
