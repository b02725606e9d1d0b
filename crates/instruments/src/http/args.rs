//! The arguments of `farwire measure http`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::{Result, ensure};
use clap::Args;
use model::{Bytes, Nanos};
use record::lateness::Traffic;
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::profile::{Calibration, Carrier, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::{Direction, Metric, Statistic};
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::external::Tool;
use crate::failure::{Blame, Failure};
use crate::http::files::{self, FilesArgs};
use crate::http::tool::DownloadTool;
use crate::http::{self, Amount, DEFAULT_INTERVAL, HttpTarget, history};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, above_zero, estimated};

/// Measure an HTTP/1.1 download, or the download of many small files
///
/// `farwire serve` offers /bytes/N and /seconds/T on port 8080. Any other HTTP server works too.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct HttpArgs {
    /// `http://HOST[:PORT]/PATH`, where {size} is replaced by the size of a file
    #[arg(required = true)]
    #[serde(skip)]
    url: Vec<String>,
    /// Path to request, in place of the path of the URL
    #[arg(long, value_name = "PATH", value_parser = path)]
    path: Option<String>,
    /// Stop after this number of payload bytes
    #[arg(long, value_name = "SIZE", conflicts_with = "duration")]
    bytes: Option<Bytes>,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    duration: Option<Nanos>,
    /// Interval in which bytes are counted [default: 100ms]
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
    pub(crate) common: CommonArgs,
}

impl Instrument for HttpArgs {
    fn profile(&self) -> InstrumentProfile {
        let goodput = Headline::new(Metric::GoodputBitPerS, Statistic::Mean);
        let streams = if self.files.is_requested() {
            self.files.connections()
        } else {
            1
        };
        let usual = self.table().profile(goodput, HostLimit::TcpRate);
        InstrumentProfile {
            direction: Some(Direction::Down),
            carrier: Some(Carrier::Tcp {
                streams,
                congestion: None,
            }),
            samples: Some(SampleKind::Intervals),
            calibration: Calibration {
                answers: true,
                ..usual.calibration
            },
            ..usual
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(self.table())
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(None)]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        let address = SocketAddr::new(far_end.address, far_end.http);
        self.url = vec![format!("http://{address}/")];
    }

    fn expected(&self) -> Option<Duration> {
        self.duration.map(Duration::from)
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        if self.files.is_requested() {
            return self.files.estimate_s(pace?).map(estimated);
        }
        let served = self.path.as_deref().and_then(ServedBody::of_path);
        let asked = match (self.amount(), served) {
            (Amount::For(time), Some(ServedBody::For(served))) => return Some(time.min(served)),
            (Amount::For(time), _) => return Some(time),
            (_, Some(ServedBody::For(time))) => return Some(time),
            (Amount::Bytes(bytes), Some(ServedBody::Bytes(served))) => bytes.min(served),
            (Amount::Bytes(bytes), None) | (Amount::Whole, Some(ServedBody::Bytes(bytes))) => bytes,
            (Amount::Whole, None) => return None,
        };
        let pace = pace?;
        let connected_s = 2.0 * pace.round_trip_s(0, 0);
        Some(estimated(
            connected_s + pace.stream_s(Direction::Down, asked),
        ))
    }

    fn tool(&self) -> Result<Option<Tool>> {
        self.tool.map(DownloadTool::find_tool).transpose()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let targets: Vec<HttpTarget> = self
            .url
            .iter()
            .map(|url| self.target(url))
            .collect::<Result<_>>()
            .or_bad_input()?;
        let local = self.common.bind.as_ref();
        let interval = self.interval.map(Duration::from);
        let measurement = match (targets.as_slice(), self.tool) {
            ([target], Some(tool)) => tool.measure(target, interval, local, session)?,
            (_, Some(_)) => {
                return Err(Failure::bad_input("--tool downloads one URL only"));
            }
            ([target], None) if !self.files.is_requested() => {
                let interval = interval.unwrap_or(DEFAULT_INTERVAL);
                http::measure(target, self.amount(), interval, local, session)
            }
            _ => {
                let targets = self.files.targets(targets).or_bad_input()?;
                files::measure(&targets, &self.files, local, session)
            }
        };
        Ok(measurement.into())
    }
}

impl HttpArgs {
    fn table(&self) -> MetricTable {
        if self.files.is_requested() {
            return files::metrics(&self.files);
        }
        http::metrics().and(match self.tool {
            Some(DownloadTool::Curl) => MetricTable::new([MetricRow::mean(Metric::ConnectMs)]),
            Some(DownloadTool::Wget) => MetricTable::default(),
            None => history::metrics(),
        })
    }

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

/// The body that `farwire serve` sends for a path.
enum ServedBody {
    Bytes(u64),
    For(Duration),
}

impl ServedBody {
    /// Returns the body for `path`, or `None` for a path that only another server knows.
    fn of_path(path: &str) -> Option<Self> {
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
    ensure!(Input, text.starts_with('/'), "a path must begin with /");
    Ok(text.to_owned())
}
