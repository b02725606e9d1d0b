//! Downloads of many files over a few HTTP/1.1 connections: the time to the first byte and to the completion of each
//! file.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::HttpTarget;
use super::connection::{HttpConnection, ResponseHead, WaitOutcome};
use super::sizes::FileSizes;
use crate::Session;
use crate::endpoint::Local;
use crate::measured::{QUANTILE_INTERVAL, distribution, goodput};
use netio::stop::Stop;
use record::Statistic::{self, Mean, Median, P90, P99, Total};
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::{Direction, Figure, Measurement, Metric, Sample};

/// The default number of parallel connections, which is the number that browsers open to one server.
pub(crate) const DEFAULT_CONNECTIONS: u32 = 6;
/// The most parallel connections of one client.
pub(crate) const MOST_CONNECTIONS: u32 = 256;

/// Options for many files. Each of them, and a second URL, selects that mode.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
#[command(next_help_heading = "Many files")]
pub(crate) struct FilesArgs {
    /// Number of files [default: 100 with --sizes, else each URL once]
    #[arg(long, value_name = "N", conflicts_with_all = ["bytes", "duration"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: Option<u32>,
    /// Sizes of the files: 10kb, a list 1kb,10kb, a range 1kb..100kb, lognormal:MEDIAN,SIGMA or pareto:LEAST,ALPHA
    #[arg(long, visible_alias = "size", value_name = "SIZES", conflicts_with_all = ["bytes", "duration"])]
    pub(crate) sizes: Option<FileSizes>,
    /// Seed of random sizes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Parallel connections [default: 6]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CONNECTIONS)))]
    pub(crate) connections: Option<u32>,
    /// Fetch several files over the same connection
    #[arg(long)]
    pub(crate) keep_alive: bool,
}

/// The approximate payload of a request in bytes.
const REQUEST: u64 = 120;
/// The approximate time in seconds that both ends need to handle a connection and a request.
const HANDLING_S: f64 = 200e-6;

impl FilesArgs {
    /// Returns whether one of the options is given.
    pub(super) fn is_requested(&self) -> bool {
        self.count.is_some()
            || self.sizes.is_some()
            || self.connections.is_some()
            || self.keep_alive
    }

    /// Returns the URLs to fetch. If sizes are given, a URL without a path becomes that of `farwire serve`'s files of
    /// given size.
    pub(super) fn targets(&self, targets: Vec<HttpTarget>) -> Result<Vec<HttpTarget>> {
        let sized = |target: HttpTarget| match (&self.sizes, target.is_bare()) {
            (Some(_), true) => Ok(target.sized()),
            (Some(_), false) => {
                ensure!(
                    Input,
                    target.has_size(),
                    "{target}: write {{size}} in the place of the file's size"
                );
                Ok(target)
            }
            (None, _) => {
                ensure!(
                    Input,
                    !target.has_size(),
                    "{target}: add --sizes for the values of {{size}}"
                );
                Ok(target)
            }
        };
        targets.into_iter().map(sized).collect()
    }

    /// Returns the number of files to fetch from this number of URLs.
    fn count(&self, urls: usize) -> u32 {
        const DEFAULT: u32 = 100;
        let each_once = u32::try_from(urls).unwrap_or(u32::MAX);
        self.count.unwrap_or(match self.sizes {
            Some(_) => DEFAULT,
            None => each_once,
        })
    }

    /// Returns the most connections that are open simultaneously.
    pub(super) fn connections(&self) -> u32 {
        self.connections.unwrap_or(DEFAULT_CONNECTIONS)
    }

    /// Returns an estimate of the time for all files in seconds, or `None` if only the URLs determine the sizes.
    pub(crate) fn estimate_s(&self, pace: &PathPace) -> Option<f64> {
        let sizes = self.sizes.as_ref()?.draw(self.count(1), self.seed);
        let of_file = |size: u64| {
            let connect_s = if self.keep_alive {
                0.0
            } else {
                pace.round_trip_s(0, 0)
            };
            // The response arrives one way after the request.
            let asked_s = pace.round_trip_s(REQUEST, 0);
            HANDLING_S + connect_s + asked_s + pace.stream_s(Direction::Down, size)
        };
        let one_by_one: f64 = sizes.iter().copied().map(of_file).sum();
        let path_s = pace.carrying_s(Direction::Down, sizes.iter().sum());
        Some(path_s.max(one_by_one / f64::from(self.connections())))
    }
}

/// Fetches `count` files of `targets` in turn, from the calling thread's network namespace, and from `local` if there
/// is one.
///
/// The first failure ends the measurement, which keeps the files fetched until then.
pub(crate) fn measure(
    targets: &[HttpTarget],
    plan: &FilesArgs,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let fetch = FetchState {
        files: files(targets, plan),
        plan,
        local,
        stop: &session.stop,
        start: Instant::now(),
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    let (fetched, failure) = fetch.all(session);
    let names: Vec<String> = targets.iter().map(ToString::to_string).collect();
    let measurement = Measurement {
        samples: samples(&fetched, plan.connections()),
        figures: figures(&fetched, plan),
        failure,
        ..Measurement::default()
    };
    describe(measurement, plan).with_fact("url", names.join(" "))
}

/// Returns the files in order: the targets in turn, each with its drawn size.
fn files(targets: &[HttpTarget], plan: &FilesArgs) -> Vec<RequestedFile> {
    let draw = |sizes: &FileSizes| sizes.draw(plan.count(targets.len()), plan.seed).into_iter();
    let mut sizes = plan.sizes.as_ref().map(draw);
    let file = |(target, _): (&HttpTarget, u32)| {
        let size = sizes.as_mut().and_then(Iterator::next);
        let target = size.map_or_else(|| target.clone(), |size| target.of_size(size));
        RequestedFile { target, size }
    };
    targets
        .iter()
        .cycle()
        .zip(0..plan.count(targets.len()))
        .map(file)
        .collect()
}

fn describe(measurement: Measurement, plan: &FilesArgs) -> Measurement {
    let connections = if plan.keep_alive {
        format!("{} in parallel, each reused", plan.connections())
    } else {
        format!(
            "{} in parallel, a new one for each file",
            plan.connections()
        )
    };
    let measurement = measurement
        .with_fact("connections", connections)
        .with_fact(
            "first byte",
            "from sending a file's request to the first byte of its answer",
        )
        .with_fact(
            "completion",
            "from the start of a file on its connection, including connecting, to its last byte",
        )
        .with_fact(
            "elapsed",
            "all files: from the start of the first to the last byte of the last",
        )
        .with_fact("goodput", "HTTP body bytes (L7) of all files over elapsed")
        .with_fact("intervals", format!("{QUANTILE_INTERVAL}: sampling only"));
    match &plan.sizes {
        Some(sizes) => {
            measurement.with_fact("sizes", format!("{}; seed {}", sizes.in_words(), plan.seed))
        }
        None => measurement.with_fact("sizes", "as the URLs return them"),
    }
}

/// A file to fetch.
#[derive(Clone, Debug)]
struct RequestedFile {
    target: HttpTarget,
    /// The required size of its body in bytes, if it is known.
    size: Option<u64>,
}

/// The result of fetching one file.
#[derive(Clone, Copy, Debug)]
struct FetchedFile {
    /// Number of the file, from 1.
    index: u64,
    /// Number of the connection, from 1.
    connection: u32,
    /// Time when the file's turn came, in seconds since the start.
    at_s: f64,
    /// Time to connect. `None` means that the connection was already open.
    connect_ms: Option<f64>,
    first_byte_ms: f64,
    completion_ms: f64,
    bytes: u64,
}

/// The state that the connections share.
struct FetchState<'a> {
    files: Vec<RequestedFile>,
    plan: &'a FilesArgs,
    local: Option<&'a Local>,
    stop: &'a Stop,
    start: Instant,
    next: AtomicUsize,
    failed: AtomicBool,
}

impl FetchState<'_> {
    /// Returns the fetched files, and the first failure, which ends the measurement.
    fn all(&self, session: &Session) -> (Vec<FetchedFile>, Option<String>) {
        let (mut fetched, mut failure) = (Vec::new(), None);
        let mut progress = session.live.since(self.start);
        let mut take = |result| {
            match result {
                Ok(file) => fetched.push(file),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    failure.get_or_insert_with(|| format!("{error:#}"));
                }
            }
            progress.print(|| format!("{} of {} files", fetched.len(), self.files.len()));
        };
        thread::scope(|scope| {
            let (sender, results) = mpsc::channel::<Result<FetchedFile>>();
            for connection in 1..=self.plan.connections().clamp(1, MOST_CONNECTIONS) {
                let sender = sender.clone();
                scope.spawn(move || self.work(connection, &sender));
            }
            drop(sender);
            results.iter().for_each(&mut take);
        });
        fetched.sort_by_key(|file| file.index);
        (fetched, failure)
    }

    /// Fetches one file after another until none is left or one failed.
    fn work(&self, connection: u32, results: &Sender<Result<FetchedFile>>) {
        let mut kept = None;
        while !self.failed.load(Ordering::Relaxed) {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.files.get(at) else {
                return;
            };
            let number = at + 1;
            let fetched = self
                .fetch(file, &mut kept)
                .map(|times| FetchedFile {
                    index: number as u64,
                    connection,
                    ..times
                })
                .with_context(|| format!("file {number} ({})", file.target));
            let failed = fetched.is_err();
            if results.send(fetched).is_err() || failed {
                return;
            }
        }
    }

    /// Fetches `file` over the `kept` connection, or over a new one. The connection used is kept for the next file if
    /// possible.
    fn fetch(
        &self,
        file: &RequestedFile,
        kept: &mut Option<HttpConnection>,
    ) -> Result<FetchedFile> {
        let turn = Instant::now();
        let mut connected = None;
        let (mut connection, sent, head) = match self.request_on_kept(file, kept.take())? {
            Some(answered) => answered,
            None => {
                let mut connection = HttpConnection::open(&file.target, self.local, self.stop)?;
                connected = Some(Instant::now());
                let sent = connection.request(&file.target, self.plan.keep_alive)?;
                let head = connection
                    .head(self.stop)?
                    .context("the server closed the connection without an answer")?;
                (connection, sent, head)
            }
        };
        let (first_byte, persistent) = (head.first_byte, head.persistent);
        let bytes = self.receive(&mut connection, head)?;
        let completed = Instant::now();
        let wanted = file.size.unwrap_or(bytes);
        if bytes != wanted {
            bail!(
                Peer,
                "the server sent {bytes} bytes instead of the requested {wanted}"
            );
        }
        *kept = Some(connection).filter(|_| persistent && self.plan.keep_alive);
        Ok(FetchedFile {
            index: 0,
            connection: 0,
            at_s: (turn - self.start).as_secs_f64(),
            connect_ms: connected.map(|connected| millis(connected - turn)),
            first_byte_ms: millis(first_byte - sent),
            completion_ms: millis(completed - turn),
            bytes,
        })
    }

    /// Sends a request on the kept connection if it leads to the file's server. Returns `None` if the server has closed
    /// the connection in the meantime, as it may (RFC 9112 §9.3.1).
    fn request_on_kept(
        &self,
        file: &RequestedFile,
        kept: Option<HttpConnection>,
    ) -> Result<Option<(HttpConnection, Instant, ResponseHead)>> {
        let same_server = |kept: &HttpConnection| kept.authority == file.target.authority;
        let Some(mut kept) = kept.filter(same_server) else {
            return Ok(None);
        };
        let Ok(sent) = kept.request(&file.target, true) else {
            return Ok(None);
        };
        let head = kept.head(self.stop)?;
        Ok(head.map(|head| (kept, sent, head)))
    }

    /// Reads a complete body and returns the number of its payload bytes.
    fn receive(&self, connection: &mut HttpConnection, head: ResponseHead) -> Result<u64> {
        let mut body = head.body;
        let mut total = 0;
        while !body.complete() {
            let waited = connection.wait(self.stop, None);
            match waited.with_context(|| format!("after {total} bytes"))? {
                WaitOutcome::Bytes => total += body.feed(connection.take())?,
                WaitOutcome::Closed | WaitOutcome::TimeUp => {
                    body.closed(total)?;
                    break;
                }
            }
            if self.failed.load(Ordering::Relaxed) {
                bail!(Peer, "another file failed");
            }
        }
        Ok(total)
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the times of each file as samples; with several connections, each sample names its own.
fn samples(fetched: &[FetchedFile], connections: u32) -> Vec<Sample> {
    let of = |file: &FetchedFile| {
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

/// Returns the metrics of a download of many files.
pub(crate) fn metrics(plan: &FilesArgs) -> MetricTable {
    const TIMES: &[Statistic] = &[Mean, Median, P90, P99];
    let sizes = plan
        .sizes
        .as_ref()
        .map(FileSizes::distinct)
        .filter(|sizes| !sizes.is_empty());
    let of_sizes =
        |sizes: Vec<u64>| MetricRow::new(Metric::CompletionMs, &[Median]).of_sizes(&sizes);
    MetricTable::new([
        goodput("TCP"),
        MetricRow::new(Metric::FirstByteMs, TIMES).headlines(&[Median]),
        MetricRow::new(Metric::CompletionMs, TIMES).headlines(&[Median]),
        MetricRow::new(Metric::ConnectMs, TIMES),
        MetricRow::total(Metric::Files),
        MetricRow::total(Metric::ReceivedBytes),
        MetricRow::total(Metric::ElapsedS),
        MetricRow::mean(Metric::FilesPerS),
    ])
    .and(sizes.map(of_sizes))
}

fn figures(fetched: &[FetchedFile], plan: &FilesArgs) -> Vec<Figure> {
    if fetched.is_empty() {
        return Vec::new();
    }
    let bytes: u64 = fetched.iter().map(|file| file.bytes).sum();
    let ends = fetched.iter().map(|f| f.at_s + f.completion_ms / 1e3);
    let elapsed_s = ends.fold(0.0, f64::max);
    let (count, bits) = (fetched.len() as f64, bytes as f64 * 8.0);
    let table = metrics(plan);
    let mut figures = vec![
        Figure::new(Metric::Files, Total, count),
        Figure::new(Metric::ReceivedBytes, Total, bytes as f64),
        Figure::new(Metric::ElapsedS, Total, elapsed_s),
        Figure::new(Metric::FilesPerS, Mean, count / elapsed_s),
        Figure::new(Metric::GoodputBitPerS, Mean, bits / elapsed_s),
    ];
    let of = |values: &dyn Fn(&FetchedFile) -> Option<f64>| -> Vec<f64> {
        fetched.iter().filter_map(values).collect()
    };
    for (metric, values) in [
        (Metric::ConnectMs, of(&|file| file.connect_ms)),
        (Metric::FirstByteMs, of(&|file| Some(file.first_byte_ms))),
        (Metric::CompletionMs, of(&|file| Some(file.completion_ms))),
    ] {
        figures.extend(distribution(metric, &values, table.statistics(metric)));
    }
    // Sizes that are taken in turn have a completion time each.
    let sizes = plan.sizes.as_ref().map(FileSizes::distinct);
    for size in sizes.unwrap_or_default() {
        let of_size = of(&|file| (file.bytes == size).then_some(file.completion_ms));
        let median = distribution(Metric::CompletionMs, &of_size, &[Median]);
        figures.extend(median.into_iter().map(|figure| figure.size(size)));
    }
    figures
}
