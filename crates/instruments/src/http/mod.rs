//! HTTP/1.1 download (RFC 9112): bytes over time, time to the first byte, goodput.

pub mod args;
mod connection;
pub(crate) mod curl;
pub(crate) mod files;
mod history;
pub(crate) mod server;
pub(crate) mod sizes;
pub(crate) mod tool;
pub(crate) mod wget;

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::{Context, Result, bail, ensure};

use self::connection::{HttpConnection, ResponseHead, WaitOutcome};
use self::history::DownloadHistory;
use super::Session;
use super::meter::IntervalMeter;
use crate::endpoint::{self, Family, Local};
use crate::measured::{failed, failure, figures, goodput};
use netio::stop::Stop;
use record::Statistic::{Mean, Total};
use record::metric_table::{MetricRow, MetricTable};
use record::{Figure, Measurement, Metric};

/// The default length of the intervals in which bytes are counted.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);

/// The amount to download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// The whole body of the response.
    Whole,
    /// This number of payload bytes.
    Bytes(u64),
    /// The data that arrives within this time after the request.
    For(Duration),
}

/// The placeholder in a URL for a file's size in bytes.
const SIZE: &str = "{size}";

/// A resource to download.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpTarget {
    address: SocketAddr,
    /// Host and port, as in the Host header.
    authority: String,
    path: String,
}

impl HttpTarget {
    /// Returns the resource `path` of the server at `address`.
    pub(crate) fn of(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            authority: address.to_string(),
            path: path.to_owned(),
        }
    }

    /// Returns the target with `size` in place of every [`SIZE`] in its path.
    pub(crate) fn of_size(&self, size: u64) -> Self {
        self.clone().at(&self.path.replace(SIZE, &size.to_string()))
    }

    /// Returns whether the path contains a [`SIZE`].
    pub(crate) fn has_size(&self) -> bool {
        self.path.contains(SIZE)
    }

    /// Returns the same server with another path.
    pub(crate) fn at(self, path: &str) -> Self {
        let path = path.to_owned();
        Self { path, ..self }
    }

    /// Returns the files of `farwire serve` by their size, on the same server.
    pub(crate) fn sized(&self) -> Self {
        self.clone().at(&format!("/bytes/{SIZE}"))
    }

    /// Returns whether it names only a server, without a path.
    pub(crate) fn is_bare(&self) -> bool {
        self.path == "/"
    }

    /// Resolves `url`.
    ///
    /// # Errors
    /// Returns an error if it is not an `http://` URL, or its host does not resolve to `family`.
    pub(crate) fn resolve(url: &str, family: Family) -> Result<Self> {
        let uri = url
            .parse::<http::Uri>()
            .with_context(|| format!("`{url}` is not a URL"))?;
        ensure!(
            Input,
            uri.scheme_str() == Some("http"),
            "`{url}`: write http://HOST[:PORT]/PATH (farwire measures HTTP without TLS)"
        );
        let authority = uri.authority().context("a URL needs a host")?;
        let port = authority.port_u16().unwrap_or(80);
        let address = endpoint::resolve(authority.host(), port, family)?;
        Ok(Self {
            address,
            authority: authority.to_string(),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// The times of one request on its own connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneRequest {
    /// The time from the request for the connection until it is established.
    pub(crate) connect: Duration,
    /// The time from sending the request to the last byte of the answer.
    pub(crate) exchange: Duration,
}

/// Fetches `target` over a new connection, from `local` if there is one, and discards its body.
///
/// # Errors
/// Returns an error if there is no connection or no success, or if the connection breaks or is stopped.
pub(crate) fn request_once(
    target: &HttpTarget,
    local: Option<&Local>,
    stop: &Stop,
) -> Result<OneRequest> {
    let begun = Instant::now();
    let mut connection = HttpConnection::open(target, local, stop)?;
    let connect = begun.elapsed();
    let sent = connection.request(target, false)?;
    let head = connection.head(stop)?;
    let mut body = head
        .context("the server closed the connection before it answered")?
        .body;
    let mut total = 0;
    while !body.complete() {
        match connection.wait(stop, None)? {
            WaitOutcome::Bytes => total += body.feed(connection.take())?,
            WaitOutcome::Closed | WaitOutcome::TimeUp => {
                body.closed(total)?;
                break;
            }
        }
    }
    Ok(OneRequest {
        connect,
        exchange: sent.elapsed(),
    })
}

/// Returns the metrics of one download.
pub(crate) fn metrics() -> MetricTable {
    MetricTable::new([
        goodput("TCP"),
        MetricRow::mean(Metric::FirstByteMs),
        MetricRow::total(Metric::ReceivedBytes),
        MetricRow::total(Metric::ElapsedS),
    ])
}

/// Downloads `target` from the calling thread's network namespace, and from `local` if there is one.
pub(crate) fn measure(
    target: &HttpTarget,
    amount: Amount,
    interval: Duration,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let measurement = match Download::request(target, amount, interval, local, session) {
        Ok(mut download) => {
            let failure = failure(download.receive(session));
            Measurement {
                failure,
                ..download.finish()
            }
        }
        Err(error) => failed(error),
    };
    let end = match amount {
        Amount::Whole | Amount::Bytes(_) => "the last byte received",
        Amount::For(_) => "the end of the stated time",
    };
    measurement.with_fact("url", target).with_fact(
        "goodput",
        format!("HTTP body bytes (L7) from sending the request to {end}"),
    )
}

struct Download {
    amount: Amount,
    connection: HttpConnection,
    start: Instant,
    head: ResponseHead,
    last_byte_s: f64,
    meter: IntervalMeter,
    history: DownloadHistory,
}

impl Download {
    fn request(
        target: &HttpTarget,
        amount: Amount,
        interval: Duration,
        local: Option<&Local>,
        session: &Session,
    ) -> Result<Self> {
        let mut connection = HttpConnection::open(target, local, &session.stop)?;
        let start = connection.request(target, false)?;
        let head = connection.head(&session.stop)?;
        let head = head.context("the server closed the connection before it answered")?;
        Ok(Self {
            amount,
            connection,
            start,
            head,
            last_byte_s: 0.0,
            meter: IntervalMeter::new(interval),
            history: DownloadHistory::default(),
        })
    }

    /// Reads the body until the amount is complete.
    fn receive(&mut self, session: &Session) -> Result<()> {
        let (most, time) = match self.amount {
            Amount::Whole => (None, None),
            Amount::Bytes(bytes) => (Some(bytes), None),
            Amount::For(time) => (None, Some(time)),
        };
        let until = time.map(|time| self.start + time);
        let body = &mut self.head.body;
        let mut progress = session.live.since(self.start);
        loop {
            let total = self.meter.total();
            if most.is_some_and(|most| total >= most) {
                return Ok(());
            }
            if body.complete() {
                return whole(total, most);
            }
            let waited = self.connection.wait(&session.stop, until);
            match waited.with_context(|| format!("after {total} bytes"))? {
                WaitOutcome::Bytes => {
                    let payload = body.feed(self.connection.take())?;
                    self.last_byte_s = self.start.elapsed().as_secs_f64();
                    self.meter.add(self.last_byte_s, payload);
                    self.history.add(self.last_byte_s, payload);
                }
                WaitOutcome::Closed => {
                    body.closed(total)?;
                    return whole(total, most);
                }
                WaitOutcome::TimeUp => {
                    self.last_byte_s = time.unwrap_or_default().as_secs_f64();
                    return Ok(());
                }
            }
            progress.print(|| format!("{} bytes", self.meter.total()));
        }
    }

    fn finish(self) -> Measurement {
        let duration_s = self.last_byte_s;
        let first_byte_s = (self.head.first_byte - self.start).as_secs_f64();
        let bytes = self.meter.total();
        let arrived = self.connection.arrived();
        let mut figures = download_figures(bytes, duration_s, Some(first_byte_s));
        figures.extend(self.history.figures(duration_s));
        let mut goodputs = figures
            .iter_mut()
            .filter(|f| f.metric == Metric::GoodputBitPerS);
        if let (Some(goodput), Some(arrived)) = (goodputs.next(), arrived) {
            // Until the first byte arrived, the time beyond a round trip passed in the hosts, not on the path. The
            // hosts may add the same time after the last byte.
            let on_the_way = self.connection.round_trip().unwrap_or_default();
            let in_hosts = (first_byte_s - on_the_way.as_secs_f64()).max(0.0);
            let busy = duration_s - 2.0 * in_hosts;
            let most = if busy > 0.0 {
                bytes.max(arrived) as f64 * 8.0 / busy
            } else {
                // The whole duration may have been the hosts'.
                f64::INFINITY
            };
            goodput.interval = Some([goodput.value, most.max(goodput.value)]);
        }
        let measurement = Measurement {
            figures,
            samples: self.meter.finish(duration_s),
            ..Measurement::default()
        }
        .with_fact(
            "interval",
            "of the network's throughput in this time, without sampling error: at least all of the body that was read, at most \
             what arrived (TCP_INFO), including retransmissions and the answer's head, over a time without twice the delay of \
             the first byte beyond a round trip",
        );
        match self.head.congestion {
            Some(name) => measurement.with_fact("sender's congestion control", name),
            None => measurement,
        }
    }
}

/// Checks that a body of `total` bytes has the `most` bytes that were asked for, if a number was given.
fn whole(total: u64, most: Option<u64>) -> Result<()> {
    match most {
        Some(most) if total < most => {
            bail!(
                Peer,
                "the server sent {total} of the requested {most} bytes"
            )
        }
        _ => Ok(()),
    }
}

/// Returns the figures of a download of `bytes` of payload in `duration_s`; the first byte arrived after
/// `first_byte_s`, if that is known.
pub(crate) fn download_figures(
    bytes: u64,
    duration_s: f64,
    first_byte_s: Option<f64>,
) -> Vec<Figure> {
    let rate = (duration_s > 0.0).then(|| bytes as f64 * 8.0 / duration_s);
    let found = [
        (Metric::ReceivedBytes, Total, Some(bytes as f64)),
        (Metric::ElapsedS, Total, Some(duration_s)),
        (Metric::GoodputBitPerS, Mean, rate),
        (
            Metric::FirstByteMs,
            Mean,
            first_byte_s.map(|time| time * 1e3),
        ),
    ];
    figures(None, found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{self, ServeConfig};
    use record::Statistic::Max;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    fn download(target: &HttpTarget, amount: Amount) -> Measurement {
        measure(target, amount, DEFAULT_INTERVAL, None, &Session::default())
    }

    /// Measures a download from a server that sends `answer` to any request and closes the connection.
    fn answer_of(answer: &'static [u8]) -> Measurement {
        download_of(answer, Amount::Whole)
    }

    fn download_of(answer: &'static [u8], amount: Amount) -> Measurement {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = client.read(&mut request).unwrap();
            let _ = client.write_all(answer);
        });
        let measurement = download(&HttpTarget::of(address, "/"), amount);
        server.join().unwrap();
        measurement
    }

    fn bytes(measurement: &Measurement) -> f64 {
        let bytes = measurement.figure(Metric::ReceivedBytes, Total);
        bytes.unwrap_or_else(|| panic!("{:?}", measurement.failure))
    }

    #[test]
    fn a_download_of_n_bytes_counts_n_bytes_in_its_samples() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let amount = Amount::Bytes(3_000_000);
        let measurement = download(
            &HttpTarget::of(server.address("http").unwrap(), "/bytes/3000000"),
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
            &HttpTarget::of(server.address("http").unwrap(), "/seconds/10"),
            amount,
        );
        assert_eq!(measurement.failure, None);
        let elapsed = measurement.figure(Metric::ElapsedS, Total);
        assert!((elapsed.unwrap() - 0.3).abs() < 1e-9);
        assert!(bytes(&measurement) > 0.0);
        // The course of the download is known, but the time is too short for its variation.
        assert!(measurement.figure(Metric::LongestStallS, Max) > Some(0.0));
        let variation = measurement.figure(Metric::GoodputVariationPercent, Mean);
        assert_eq!(variation, None);
    }

    #[test]
    fn the_interval_of_a_goodput_includes_read_and_arrived_bytes() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let target = HttpTarget::of(server.address("http").unwrap(), "/bytes/1000000");
        let measurement = measure(
            &target,
            Amount::Whole,
            DEFAULT_INTERVAL,
            None,
            &Session::default(),
        );
        let mut figures = measurement.figures.iter();
        let goodput = figures
            .find(|f| f.metric == Metric::GoodputBitPerS)
            .unwrap();
        let [low, high] = goodput.interval.unwrap();
        assert!(low == goodput.value && high >= low, "{low} to {high}");
    }

    #[test]
    fn a_running_download_can_be_stopped() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let target = HttpTarget::of(server.address("http").unwrap(), "/seconds/3600");
        let stop = Stop::default().within(Duration::from_millis(100));
        let cause = measure(
            &target,
            Amount::Whole,
            DEFAULT_INTERVAL,
            None,
            &Session::quiet(stop),
        )
        .failure
        .unwrap();
        assert!(cause.contains("not done within"), "{cause}");
    }

    #[test]
    fn a_truncated_body_is_a_failure_that_keeps_its_bytes() {
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
    fn a_body_that_ends_with_the_connection_is_complete() {
        let measurement = answer_of(b"HTTP/1.0 200 OK\r\n\r\nabcdef");
        assert_eq!((bytes(&measurement), measurement.failure), (6.0, None));
    }

    #[test]
    fn a_body_shorter_than_requested_is_a_failure_that_keeps_its_bytes() {
        for answer in [
            &b"HTTP/1.0 200 OK\r\n\r\nabcdef"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef",
        ] {
            let measurement = download_of(answer, Amount::Bytes(9));
            assert_eq!(bytes(&measurement), 6.0);
            let cause = measurement.failure.unwrap();
            assert!(cause.contains("6 of the requested 9 bytes"), "{cause}");
        }
    }

    #[test]
    fn invalid_responses_are_refused_with_their_cause() {
        for (answer, cause) in [
            (&b"SSH-2.0-OpenSSH\r\n"[..], "not HTTP/1.1"),
            (b"", "the server closed the connection before it answered"),
            (
                b"HTTP/1.1 200",
                "the server closed the connection within the answer's head, after 12 bytes",
            ),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found"),
            (
                b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2/x\r\n\r\n",
                "302 Found: the file is at http://127.0.0.2/x: measure that URL",
            ),
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

    #[test]
    fn urls_are_checked() {
        assert_eq!(
            HttpTarget::resolve("http://127.0.0.1:81/a?b", Family::Any)
                .unwrap()
                .to_string(),
            "http://127.0.0.1:81/a?b"
        );
        assert_eq!(
            HttpTarget::resolve("http://[::1]", Family::V6)
                .unwrap()
                .address
                .to_string(),
            "[::1]:80"
        );
        for (url, family) in [
            ("https://127.0.0.1/", Family::Any),
            ("127.0.0.1", Family::Any),
            ("http://127.0.0.1/", Family::V6),
        ] {
            assert!(HttpTarget::resolve(url, family).is_err());
        }
    }

    #[test]
    fn the_size_replaces_its_placeholder_in_the_path() {
        let url = "http://127.0.0.1:81/f/{size}?n={size}";
        let target = HttpTarget::resolve(url, Family::Any).unwrap();
        assert!(target.has_size() && !target.is_bare());
        assert_eq!(target.of_size(512).path, "/f/512?n=512");
    }
}
