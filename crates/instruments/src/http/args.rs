//! `farwire measure http`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use model::{Bytes, Nanos};
use record::lateness::Traffic;
use record::pace::PathPace;
use record::profile::{
    Calibration, Carrier, FlentSeries, Headline, HostLimit, Profile, SampleKind,
};
use record::stated::Stated;
use record::{Direction, Metric, Statistic};
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::external::Tool;
use crate::failure::{Blame, Failure};
use crate::http::files::{self, DEFAULT_CONNECTIONS, FilesPlan, MOST_CONNECTIONS};
use crate::http::sizes::FileSizes;
use crate::http::tool::DownloadTool;
use crate::http::{self, Amount, DEFAULT_INTERVAL, HttpPlan, HttpTarget, history};
use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput, above_zero, estimated};

/// An HTTP/1.1 download, or many small files
#[derive(Args, Debug, Serialize, Deserialize)]
pub struct HttpArgs {
    /// `http://HOST[:PORT]/PATH`; `farwire serve` has /bytes/N and /seconds/T; {size} stands for a file's size
    #[arg(required = true)]
    #[serde(skip)]
    url: Vec<String>,
    /// In place of the URL's own path
    #[arg(long, value_name = "PATH", value_parser = path)]
    path: Option<String>,
    /// End after so many bytes
    #[arg(long, value_name = "SIZE", conflicts_with = "duration")]
    bytes: Option<Bytes>,
    /// End after so long
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    duration: Option<Nanos>,
    /// Length of the intervals in which bytes are counted [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    interval: Option<Nanos>,
    /// Measure with another program
    #[arg(long, value_name = "TOOL", conflicts_with_all = ["bytes", "duration", "FilesArgs"])]
    tool: Option<DownloadTool>,
    #[command(flatten)]
    #[serde(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    #[serde(skip)]
    common: Common,
}

/// Any of these, or a second URL, asks for many files.
#[derive(Args, Debug, Serialize, Deserialize)]
#[command(next_help_heading = "Many files")]
struct FilesArgs {
    /// Files to fetch, of the URLs in turn [default: 100 with a size, else each URL once]
    #[arg(long, value_name = "N", conflicts_with_all = ["bytes", "duration"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: Option<u32>,
    /// Their sizes: 10kb, `1kb,10kb` in turn, 1kb..100kb, lognormal:MEDIAN,SIGMA, pareto:LEAST,ALPHA
    #[arg(long, visible_alias = "size", value_name = "SIZES", conflicts_with_all = ["bytes", "duration"])]
    sizes: Option<FileSizes>,
    /// Of the sizes drawn: the same seed fetches the same sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections in parallel [default: 6]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CONNECTIONS)))]
    connections: Option<u32>,
    /// Fetch the next file on the same connection instead of a new one
    #[arg(long)]
    keep_alive: bool,
}

impl Instrument for HttpArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn profile(&self) -> Profile {
        let goodput = Headline::new(Metric::GoodputBitPerS, Statistic::Mean);
        let times = [Metric::FirstByteMs, Metric::CompletionMs];
        let times = times.map(|metric| Headline::new(metric, Statistic::Median));
        let streams = if self.files.asked_for() {
            self.files.plan(self.url.len()).connections
        } else {
            1
        };
        let usual = Profile::new(goodput, HostLimit::TcpRate);
        Profile {
            direction: Some(Direction::Down),
            carrier: Some(Carrier::Tcp {
                streams,
                congestion: None,
            }),
            headlines: [goodput].into_iter().chain(times).collect(),
            samples: Some(SampleKind::Intervals),
            flent: FlentSeries::of_streams("TCP"),
            calibration: Calibration {
                answers: true,
                ..usual.calibration
            },
            ..usual
        }
    }

    fn figures(&self) -> Result<Stated> {
        if !self.files.asked_for() {
            let usual =
                Stated::totals(&[Metric::ReceivedBytes, Metric::ElapsedS]).and(Stated::means(&[
                    Metric::GoodputBitPerS,
                    Metric::FirstByteMs,
                ]));
            return Ok(usual.and(match self.tool {
                Some(DownloadTool::Curl) => Stated::means(&[Metric::ConnectMs]),
                Some(DownloadTool::Wget) => Stated::default(),
                None => history::stated(),
            }));
        }
        Ok(files::stated(&self.files.plan(self.url.len())))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(None)]
    }

    fn aim(&mut self, far_end: &FarEnd) {
        let address = SocketAddr::new(far_end.address, far_end.http);
        self.url = vec![format!("http://{address}/")];
    }

    fn expected(&self) -> Option<Duration> {
        self.duration.map(Duration::from)
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        if self.files.asked_for() {
            let plan = self.files.plan(self.url.len());
            return plan.estimate_s(pace?).map(estimated);
        }
        let served = self.path.as_deref().and_then(Served::by);
        let asked = match (self.amount(), served) {
            (Amount::For(time), Some(Served::For(served))) => return Some(time.min(served)),
            (Amount::For(time), _) => return Some(time),
            (_, Some(Served::For(time))) => return Some(time),
            (Amount::Bytes(bytes), Some(Served::Bytes(served))) => bytes.min(served),
            (Amount::Bytes(bytes), None) | (Amount::Whole, Some(Served::Bytes(bytes))) => bytes,
            (Amount::Whole, None) => return None,
        };
        let pace = pace?;
        let connected_s = 2.0 * pace.round_trip_s(0, 0);
        Some(estimated(
            connected_s + pace.stream_s(Direction::Down, asked),
        ))
    }

    fn tool(&self) -> Result<Option<Tool>> {
        self.tool.map(DownloadTool::found).transpose()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let targets = self.url.iter().map(|url| self.target(url));
        let targets: Vec<HttpTarget> = targets.collect::<Result<_>>().or_bad_input()?;
        let local = self.common.bind.as_ref();
        let interval = self.interval.map(Duration::from);
        let measurement = match (targets.as_slice(), self.tool) {
            ([target], Some(tool)) => tool.measure(target, interval, local, session)?,
            (_, Some(_)) => {
                return Err(Failure::bad_input("--tool downloads one URL"));
            }
            ([target], None) if !self.files.asked_for() => {
                let plan = HttpPlan {
                    amount: self.amount(),
                    interval: interval.unwrap_or(DEFAULT_INTERVAL),
                };
                http::measure(target, &plan, local, session)
            }
            _ => {
                let targets = self.files.targets(targets).or_bad_input()?;
                files::measure(&targets, &self.files.plan(targets.len()), local, session)
            }
        };
        Ok(measurement.into())
    }
}

impl HttpArgs {
    fn target(&self, url: &str) -> Result<HttpTarget> {
        let target = HttpTarget::resolve(url, self.common.family())?;
        Ok(match &self.path {
            Some(path) => target.at(path),
            None => target,
        })
    }

    fn amount(&self) -> Amount {
        match (self.bytes, self.duration) {
            (Some(Bytes(bytes)), _) => Amount::Bytes(bytes),
            (None, Some(time)) => Amount::For(time.into()),
            (None, None) => Amount::Whole,
        }
    }
}

/// What `farwire serve` gives for a path.
enum Served {
    Bytes(u64),
    For(Duration),
}

impl Served {
    /// Nothing where another server's path says nothing.
    fn by(path: &str) -> Option<Self> {
        match path.trim_start_matches('/').split_once('/')? {
            ("bytes", count) => count.parse().ok().map(Self::Bytes),
            ("seconds", time) => {
                let time = Duration::try_from_secs_f64(time.parse().ok()?).ok()?;
                Some(Self::For(time))
            }
            _ => None,
        }
    }
}

fn path(text: &str) -> Result<String> {
    ensure!(text.starts_with('/'), "a path begins with /");
    Ok(text.to_owned())
}

impl FilesArgs {
    fn asked_for(&self) -> bool {
        self.count.is_some()
            || self.sizes.is_some()
            || self.connections.is_some()
            || self.keep_alive
    }

    /// The URLs, where a bare server stands for `farwire serve`'s files if sizes are asked for.
    fn targets(&self, targets: Vec<HttpTarget>) -> Result<Vec<HttpTarget>> {
        let sized = |target: HttpTarget| match (&self.sizes, target.is_bare()) {
            (Some(_), true) => Ok(target.sized()),
            (Some(_), false) => {
                ensure!(
                    target.has_size(),
                    "{target}: write {{size}} where the server takes a file's size"
                );
                Ok(target)
            }
            (None, _) => {
                ensure!(
                    !target.has_size(),
                    "{target}: say with --sizes what {{size}} is to be"
                );
                Ok(target)
            }
        };
        targets.into_iter().map(sized).collect()
    }

    fn plan(&self, urls: usize) -> FilesPlan {
        const DEFAULT_COUNT: u32 = 100;
        let each_once = u32::try_from(urls).unwrap_or(u32::MAX);
        FilesPlan {
            count: self.count.unwrap_or(match self.sizes {
                Some(_) => DEFAULT_COUNT,
                None => each_once,
            }),
            sizes: self.sizes.clone(),
            seed: self.seed,
            connections: self.connections.unwrap_or(DEFAULT_CONNECTIONS),
            keep_alive: self.keep_alive,
        }
    }
}
