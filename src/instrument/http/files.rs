//! Many files over a few HTTP/1.1 connections: the time to each one's first byte and to its completion.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::connection::{Afterwards, Connection, Head, Read};
use super::sizes::Sizes;
use super::{HttpTarget, LIVE_INTERVAL};
use crate::analysis::order;
use crate::endpoint::Local;
use crate::instrument::{Figure, Measurement, Metric, Sample, Session, Spread, Statistic, Stop};

/// Connections in parallel unless said, as browsers open them to one server.
pub(crate) const DEFAULT_CONNECTIONS: u32 = 6;
/// Connections that one client may use in parallel.
pub(crate) const MOST_CONNECTIONS: u32 = 256;

/// Which files to fetch, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FilesPlan {
    /// How many.
    pub(crate) count: u32,
    /// Their sizes; what the URLs give when absent.
    pub(crate) sizes: Option<Sizes>,
    /// Of the sizes drawn.
    pub(crate) seed: u64,
    /// In parallel, 1 to [`MOST_CONNECTIONS`].
    pub(crate) connections: u32,
    /// Whether a connection is used again for the next file; else each has its own.
    pub(crate) keep_alive: bool,
}

/// One file of many.
#[derive(Clone, Debug)]
struct File {
    target: HttpTarget,
    /// What its body must have, where that is known.
    size: Option<u64>,
}

/// What one file took.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    /// From 1.
    index: u64,
    /// From 1.
    connection: u32,
    /// When its turn came, since the start.
    at_s: f64,
    /// Absent on a connection that was there already.
    connect_ms: Option<f64>,
    first_byte_ms: f64,
    completion_ms: f64,
    bytes: u64,
}

/// Fetches `count` files of `targets` in turn, from the calling thread's namespace, and from `local` if that is said.
///
/// The first failure ends all; what came until then is kept.
pub(crate) fn measure(
    targets: &[HttpTarget],
    plan: &FilesPlan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let fetch = Fetch {
        files: files(targets, plan),
        plan,
        local,
        stop: &session.stop,
        start: Instant::now(),
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    let (fetched, failure) = thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for connection in 1..=plan.connections.clamp(1, MOST_CONNECTIONS) {
            let (fetch, sender) = (&fetch, sender.clone());
            scope.spawn(move || fetch.work(connection, &sender));
        }
        drop(sender);
        fetch.collect(&receiver, session)
    });
    let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let measurement = Measurement {
        samples: samples(&fetched, plan.connections),
        figures: figures(&fetched, plan),
        failure,
        ..Measurement::default()
    };
    describe(measurement, plan).with_fact("url", names.join(" "))
}

/// The files in their order: the targets in turn, each with its drawn size.
fn files(targets: &[HttpTarget], plan: &FilesPlan) -> Vec<File> {
    let turns = targets.iter().cycle();
    match &plan.sizes {
        Some(sizes) => {
            let sizes = sizes.draw(plan.count, plan.seed);
            let file = |(target, size): (&HttpTarget, u64)| File {
                target: target.of_size(size),
                size: Some(size),
            };
            turns.zip(sizes).map(file).collect()
        }
        None => {
            let file = |(target, _): (&HttpTarget, u32)| File {
                target: target.clone(),
                size: None,
            };
            turns.zip(0..plan.count).map(file).collect()
        }
    }
}

/// What the connections share.
struct Fetch<'a> {
    files: Vec<File>,
    plan: &'a FilesPlan,
    local: Option<&'a Local>,
    stop: &'a Stop,
    start: Instant,
    next: AtomicUsize,
    failed: AtomicBool,
}

/// A connection on which a file was asked for and the answer has begun.
struct Asked {
    connection: Connection,
    /// When it came about, if it did for this file.
    connected: Option<Instant>,
    sent: Instant,
    head: Head,
}

/// A connection that is kept for its server's next file.
struct Kept {
    connection: Connection,
    authority: String,
}

impl Fetch<'_> {
    /// What all connections fetched, and the first failure.
    fn collect(
        &self,
        results: &Receiver<Result<Fetched>>,
        session: &Session,
    ) -> (Vec<Fetched>, Option<String>) {
        let mut fetched = Vec::new();
        let mut failure = None;
        let mut live_at = LIVE_INTERVAL;
        for result in results {
            match result {
                Ok(file) => fetched.push(file),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    failure.get_or_insert_with(|| format!("{error:#}"));
                }
            }
            let now = self.start.elapsed();
            if now >= live_at {
                live_at = now + LIVE_INTERVAL;
                session.live.line(format_args!(
                    "{:.1} s: {} of {} files",
                    now.as_secs_f64(),
                    fetched.len(),
                    self.plan.count
                ));
            }
        }
        fetched.sort_by_key(|file| file.index);
        (fetched, failure)
    }

    /// Takes one file after the other until there is none left or one failed.
    fn work(&self, connection: u32, results: &Sender<Result<Fetched>>) {
        let mut kept = None;
        while !self.failed.load(Ordering::Relaxed) {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.files.get(at) else {
                return;
            };
            let fetched = self
                .fetch(file, &mut kept)
                .map(|fetched| Fetched {
                    index: at as u64 + 1,
                    connection,
                    ..fetched
                })
                .with_context(|| format!("file {} ({})", at + 1, file.target));
            let failed = fetched.is_err();
            if results.send(fetched).is_err() || failed {
                return;
            }
        }
    }

    fn fetch(&self, file: &File, kept: &mut Option<Kept>) -> Result<Fetched> {
        let turn = Instant::now();
        let Asked {
            mut connection,
            connected,
            sent,
            head,
        } = match self.ask_again(file, kept.take())? {
            Some(asked) => asked,
            None => self.ask_anew(file)?,
        };
        let (first_byte, persistent) = (head.first_byte, head.persistent);
        let bytes = self.receive(&mut connection, head)?;
        let completed = Instant::now();
        if let Some(size) = file.size {
            ensure!(
                bytes == size,
                "the server gave {bytes} bytes where {size} were asked for"
            );
        }
        if persistent && self.plan.keep_alive {
            *kept = Some(Kept {
                connection,
                authority: file.target.authority.clone(),
            });
        }
        Ok(Fetched {
            index: 0,
            connection: 0,
            at_s: (turn - self.start).as_secs_f64(),
            connect_ms: connected.map(|connected| millis(connected - turn)),
            first_byte_ms: millis(first_byte - sent),
            completion_ms: millis(completed - turn),
            bytes,
        })
    }

    /// Asks on the connection that was kept, if it goes to the file's server; nothing if that has closed it
    /// meanwhile, as it may (RFC 9112 §9.3.1).
    fn ask_again(&self, file: &File, kept: Option<Kept>) -> Result<Option<Asked>> {
        let kept = kept.filter(|kept| kept.authority == file.target.authority);
        let Some(mut connection) = kept.map(|kept| kept.connection) else {
            return Ok(None);
        };
        let Ok(sent) = connection.request(&file.target, Afterwards::Keep) else {
            return Ok(None);
        };
        let head = connection.head(self.stop)?;
        Ok(head.map(|head| Asked {
            connection,
            connected: None,
            sent,
            head,
        }))
    }

    /// Asks on a connection of its own.
    fn ask_anew(&self, file: &File) -> Result<Asked> {
        let afterwards = match self.plan.keep_alive {
            true => Afterwards::Keep,
            false => Afterwards::Close,
        };
        let mut connection = Connection::open(&file.target, self.local, self.stop)?;
        let connected = Some(Instant::now());
        let sent = connection.request(&file.target, afterwards)?;
        let head = connection.head(self.stop)?;
        Ok(Asked {
            head: head.context("the server closed the connection and gave no answer")?,
            connection,
            connected,
            sent,
        })
    }

    /// Reads a whole body; how many bytes of payload it has.
    fn receive(&self, connection: &mut Connection, head: Head) -> Result<u64> {
        let mut body = head.body;
        let mut total = 0;
        while !body.complete() {
            let read = connection.read(self.stop, None);
            match read.with_context(|| format!("after {total} bytes"))? {
                Read::Bytes(data) => total += body.feed(data)?,
                Read::Closed | Read::TimeUp => {
                    body.closed(total)?;
                    break;
                }
            }
            if self.failed.load(Ordering::Relaxed) {
                bail!("another file failed");
            }
        }
        Ok(total)
    }
}

fn samples(fetched: &[Fetched], connections: u32) -> Vec<Sample> {
    let of = |file: &Fetched| {
        let sample = |metric, value| {
            let sample = Sample::new(file.at_s, metric, file.index, value).size(file.bytes);
            match connections {
                1 => sample,
                _ => sample.stream(file.connection),
            }
        };
        let connect = file.connect_ms.map(|ms| sample(Metric::ConnectMs, ms));
        connect.into_iter().chain([
            sample(Metric::FirstByteMs, file.first_byte_ms),
            sample(Metric::CompletionMs, file.completion_ms),
        ])
    };
    let mut samples: Vec<Sample> = fetched.iter().flat_map(of).collect();
    samples.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    samples
}

fn figures(fetched: &[Fetched], plan: &FilesPlan) -> Vec<Figure> {
    if fetched.is_empty() {
        return Vec::new();
    }
    let bytes: u64 = fetched.iter().map(|file| file.bytes).sum();
    let ends = fetched.iter().map(|f| f.at_s + f.completion_ms / 1e3);
    let elapsed_s = ends.fold(0.0, f64::max);
    let total = |metric, value| Figure::new(metric, Statistic::Total, value);
    let mean = |metric, value| Figure::new(metric, Statistic::Mean, value);
    let mut figures = vec![
        total(Metric::Files, fetched.len() as f64),
        total(Metric::ReceivedBytes, bytes as f64),
        total(Metric::ElapsedS, elapsed_s),
        mean(Metric::FilesPerS, fetched.len() as f64 / elapsed_s),
        mean(Metric::GoodputBitPerS, bytes as f64 * 8.0 / elapsed_s),
    ];
    let of = |values: &dyn Fn(&Fetched) -> Option<f64>| fetched.iter().filter_map(values).collect();
    figures.extend(distribution(Metric::ConnectMs, of(&|f| f.connect_ms)));
    figures.extend(distribution(
        Metric::FirstByteMs,
        of(&|f| Some(f.first_byte_ms)),
    ));
    figures.extend(distribution(
        Metric::CompletionMs,
        of(&|f| Some(f.completion_ms)),
    ));
    // Where sizes come in turn, what a file takes can be told by its size.
    for size in plan.sizes.as_ref().map(Sizes::distinct).unwrap_or_default() {
        let of_size = of(&|f| (f.bytes == size).then_some(f.completion_ms));
        let all = distribution(Metric::CompletionMs, of_size);
        let median = all.into_iter().find(|f| f.statistic == Statistic::Median);
        figures.extend(median.map(|figure| figure.size(size)));
    }
    figures
}

/// Mean, median with its interval, and the upper percentiles.
fn distribution(metric: Metric, mut values: Vec<f64>) -> Vec<Figure> {
    values.sort_by(f64::total_cmp);
    let Some(spread) = Spread::of(&values) else {
        return Vec::new();
    };
    let median = Figure::new(metric, Statistic::Median, spread.median);
    let median = match order::median_interval(&values) {
        Some([low, high]) => median.within(low, high),
        None => median,
    };
    let percentile = |statistic, share| {
        let value = order::percentile(&values, share)?;
        Some(Figure::new(metric, statistic, value))
    };
    [
        Some(Figure::new(metric, Statistic::Mean, spread.mean)),
        Some(median),
        percentile(Statistic::P90, 0.90),
        percentile(Statistic::P99, 0.99),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn describe(measurement: Measurement, plan: &FilesPlan) -> Measurement {
    let connections = match plan.keep_alive {
        true => format!("{} in parallel, each used again", plan.connections),
        false => format!("{} in parallel, a new one for each file", plan.connections),
    };
    let measurement = measurement
        .with_fact("connections", connections)
        .with_fact(
            "first byte",
            "from sending a file's request to the first byte of its answer",
        )
        .with_fact(
            "completion",
            "from a file's turn on its connection, connecting included, to its last byte",
        )
        .with_fact(
            "elapsed",
            "all files: from the first one's turn to the last byte of the last",
        )
        .with_fact("goodput", "HTTP body bytes (L7) of all files over elapsed")
        .with_fact(
            "intervals",
            "of the median, by the ranks of the values: sampling only",
        );
    match &plan.sizes {
        Some(sizes) => measurement.with_fact("sizes", format!("{sizes}; seed {}", plan.seed)),
        None => measurement.with_fact("sizes", "what the URLs give"),
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{self, ServeConfig, Server};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn plan(count: u32, sizes: &str) -> FilesPlan {
        FilesPlan {
            count,
            sizes: Some(sizes.parse().unwrap()),
            seed: 1,
            connections: 3,
            keep_alive: true,
        }
    }

    fn far_end() -> (Server, HttpTarget) {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let target = HttpTarget::of(server.address("http").unwrap(), "/").sized();
        (server, target)
    }

    fn fetch(target: &HttpTarget, plan: &FilesPlan) -> Measurement {
        measure(
            std::slice::from_ref(target),
            plan,
            None,
            &Session::default(),
        )
    }

    fn values(measurement: &Measurement, metric: Metric) -> Vec<(u64, Option<u64>)> {
        let all = measurement.samples.iter().filter(|s| s.metric == metric);
        let mut all: Vec<_> = all.map(|s| (s.index, s.size)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn every_file_is_fetched_once_with_its_own_size() {
        let (_server, target) = far_end();
        let plan = plan(40, "1kb..50kb");
        let measurement = fetch(&target, &plan);
        assert_eq!(measurement.failure, None);
        let sizes = plan.sizes.as_ref().unwrap().draw(40, 1);
        let wanted: Vec<_> = (1..).zip(sizes.iter().copied().map(Some)).collect();
        assert_eq!(values(&measurement, Metric::CompletionMs), wanted);
        assert_eq!(values(&measurement, Metric::FirstByteMs), wanted);
        let total = measurement.figure(Metric::ReceivedBytes, Statistic::Total);
        assert_eq!(total, Some(sizes.iter().sum::<u64>() as f64));
        assert_eq!(
            measurement.figure(Metric::Files, Statistic::Total),
            Some(40.0)
        );
    }

    #[test]
    fn a_kept_connection_connects_once_and_a_new_one_for_each_file() {
        let (_server, target) = far_end();
        let kept = fetch(&target, &plan(30, "2kb"));
        assert!(values(&kept, Metric::ConnectMs).len() <= 3);
        let new = FilesPlan {
            keep_alive: false,
            ..plan(30, "2kb")
        };
        assert_eq!(values(&fetch(&target, &new), Metric::ConnectMs).len(), 30);
    }

    #[test]
    fn listed_sizes_have_a_completion_time_each() {
        let (_server, target) = far_end();
        let measurement = fetch(&target, &plan(20, "1kb,100kb"));
        let of_size = |size| {
            let mut figures = measurement.figures.iter();
            figures.any(|figure| figure.size == Some(size) && figure.interval.is_some())
        };
        assert!(of_size(1_000) && of_size(100_000));
    }

    #[test]
    fn urls_are_fetched_in_turn() {
        let (_server, target) = far_end();
        let targets = [target.of_size(100), target.of_size(200)];
        let plan = FilesPlan {
            sizes: None,
            ..plan(3, "1b")
        };
        let measurement = measure(&targets, &plan, None, &Session::default());
        let sizes = values(&measurement, Metric::CompletionMs);
        assert_eq!(sizes, [(1, Some(100)), (2, Some(200)), (3, Some(100))]);
    }

    #[test]
    fn a_file_that_is_not_there_ends_all_and_is_named() {
        let (_server, target) = far_end();
        let nothing = HttpTarget::of(target.address, "/nothing");
        let plan = FilesPlan {
            sizes: None,
            connections: 1,
            ..plan(9, "1b")
        };
        let targets = [target.of_size(10), nothing];
        let measurement = measure(&targets, &plan, None, &Session::default());
        let cause = measurement.failure.unwrap();
        assert!(
            cause.contains("file 2 (http://") && cause.contains("404"),
            "{cause}"
        );
        assert_eq!(measurement.samples.len(), 3);
    }

    #[test]
    fn a_stop_ends_all_with_its_cause() {
        let (_server, target) = far_end();
        let session = Session::quiet(Stop::default().within(Duration::ZERO));
        let plan = plan(9, "1kb");
        let measurement = measure(&[target], &plan, None, &session);
        let cause = measurement.failure.unwrap();
        assert!(cause.contains("not done within 0 s"), "{cause}");
    }

    /// Serves connections one after the other, each with so many answers, and gives how many there were.
    fn serve_a_few(answers: usize, connections: usize, answer: &'static str) -> HttpTarget {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for client in listener.incoming().take(connections) {
                answer_some(&mut client.unwrap(), answers, answer);
            }
        });
        HttpTarget::of(address, "/")
    }

    fn answer_some(client: &mut TcpStream, answers: usize, answer: &str) {
        for _ in 0..answers {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if client.read(&mut byte).unwrap_or(0) == 0 {
                    return;
                }
                request.push(byte[0]);
            }
            client.write_all(answer.as_bytes()).unwrap();
        }
    }

    fn one_by_one(count: u32, sizes: Option<&str>) -> FilesPlan {
        FilesPlan {
            sizes: sizes.map(|text| text.parse().unwrap()),
            connections: 1,
            ..plan(count, "1b")
        }
    }

    #[test]
    fn a_connection_that_the_server_ends_between_two_files_is_opened_anew() {
        let target = serve_a_few(2, 2, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
        let measurement = fetch(&target, &one_by_one(4, None));
        assert_eq!(measurement.failure, None);
        assert_eq!(values(&measurement, Metric::ConnectMs).len(), 2);
    }

    #[test]
    fn a_file_of_another_size_than_asked_for_is_a_failure() {
        let target = serve_a_few(1, 1, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
        let measurement = fetch(&target, &one_by_one(1, Some("4b")));
        let cause = measurement.failure.unwrap();
        assert!(
            cause.contains("gave 3 bytes where 4 were asked for"),
            "{cause}"
        );
    }

    #[test]
    fn a_failure_elsewhere_ends_a_body_that_flows() {
        let (_server, endless) = far_end();
        let endless = HttpTarget::of(endless.address, "/seconds/3600");
        let nothing = HttpTarget::of(endless.address, "/nothing");
        let plan = FilesPlan {
            sizes: None,
            connections: 2,
            ..plan(2, "1b")
        };
        let measurement = measure(&[endless, nothing], &plan, None, &Session::default());
        assert!(measurement.failure.unwrap().contains("404"));
    }
}
