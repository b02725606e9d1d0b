//! What an experiment does, resolved: nothing is left to a default here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::instrument::http::files::FilesPlan;
use crate::instrument::http::{Amount, HttpPlan};
use crate::instrument::iperf3::plan::Plan as StreamPlan;
use crate::instrument::ping::PingPlan;
use crate::link_spec::LinkSpec;

/// Setting up a rig and taking it down, as the time left is estimated.
const RIG_TIME: Duration = Duration::from_millis(500);
/// What a download of unknown speed is taken to last, as the time left is estimated.
const UNKNOWN_DOWNLOAD: Duration = Duration::from_secs(60);
/// No download of a stated size may take longer.
const LONGEST_DOWNLOAD: Duration = Duration::from_secs(3600);
/// What an instrument may take beyond its plan before it is stopped.
const GRACE: Duration = Duration::from_secs(30);

/// A whole experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Short name, as of the output directory.
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// Whether counts and sizes were shortened.
    pub(crate) quick: bool,
    /// Seed of the first repeat; each further repeat adds 1.
    pub(crate) seed: u64,
    /// The case that the others are held against.
    pub(crate) reference: Option<String>,
    /// Where the experiment runs.
    pub(crate) bed: Bed,
    /// TCP congestion control of the sending sockets.
    pub(crate) congestion: String,
    /// In the order in which each run uses them.
    pub(crate) instruments: Vec<Instrument>,
    /// In the order of the report.
    pub(crate) cases: Vec<Case>,
}

/// A test bed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bed {
    /// What it is made of.
    pub(crate) kind: BedKind,
    /// MTU of every interface.
    #[serde(default = "Bed::default_mtu")]
    pub(crate) mtu: u32,
    /// Whether the end hosts' segmentation and checksum offloads stay on.
    #[serde(default = "Bed::default_offloads")]
    pub(crate) offloads: bool,
    /// The conditions of the bed's own wire, which every case has.
    #[serde(default)]
    pub(crate) wire: LinkSpec,
}

/// What a test bed is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BedKind {
    /// Client, emulator and server in namespaces of this machine.
    Netns,
}

/// An instrument and how it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instrument {
    /// As the record and the report call it.
    pub(crate) name: String,
    /// What it does.
    pub(crate) method: Method,
}

/// What an instrument does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// farwire's own ICMP echo.
    Ping(PingPlan),
    /// farwire's own HTTP download.
    Http(HttpPlan),
    /// The ping on PATH.
    SystemPing(PingPlan),
    /// The wget on PATH.
    Wget(HttpPlan),
    /// The curl on PATH.
    Curl(HttpPlan),
    /// farwire's own fetching of many files.
    HttpFiles(FilesPlan),
    /// The iperf3 on PATH, against farwire's far end.
    Iperf3(StreamPlan),
    /// The iperf 2 on PATH, at both ends.
    Iperf(StreamPlan),
    /// The nuttcp on PATH, at both ends.
    Nuttcp(StreamPlan),
}

/// One case: the conditions, what was published of it, and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// The conditions of the box.
    pub(crate) link: LinkSpec,
    /// How many times, each with a seed of its own.
    pub(crate) repeats: u32,
    pub(crate) published: Published,
    pub(crate) expect: Expectations,
    /// Where the measured and the published may differ, and why.
    pub(crate) note: String,
}

/// What somebody else measured under the same conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Published {
    pub(crate) rtt_mean_ms: Option<f64>,
    pub(crate) lost_percent: Option<f64>,
    /// Payload bytes over the time they took.
    pub(crate) goodput_bytes_per_s: Option<f64>,
}

/// What the measured values must meet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Expectations {
    /// Median RTT less that of the reference case.
    pub(crate) rtt_gain: Option<GainExpectation>,
    /// Goodput against the published.
    pub(crate) goodput: Option<GoodputExpectation>,
}

/// A gain and how far the measured may lie from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GainExpectation {
    pub(crate) gain_ms: f64,
    pub(crate) tolerance_ms: f64,
}

/// How far a goodput may lie from the published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GoodputExpectation {
    /// Within this fraction of it, either way.
    Within(f64),
    /// Between it divided and multiplied by this factor.
    Factor(f64),
}

/// One run: a case set up once and every instrument used in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedRun<'a> {
    pub(crate) case: &'a Case,
    /// From 1.
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
}

impl Plan {
    /// Every run in order; repeats are spread, so that a drift of the machine meets all cases alike.
    pub(crate) fn runs(&self) -> Vec<PlannedRun<'_>> {
        let most = self
            .cases
            .iter()
            .map(|case| case.repeats)
            .max()
            .unwrap_or(0);
        let rounds =
            (1..=most).flat_map(|repeat| self.cases.iter().map(move |case| (case, repeat)));
        rounds
            .filter(|(case, repeat)| *repeat <= case.repeats)
            .map(|(case, repeat)| PlannedRun {
                case,
                repeat,
                seed: case.link.seed.unwrap_or(self.seed) + u64::from(repeat - 1),
            })
            .collect()
    }

    /// About how long a run of `case` takes.
    pub(crate) fn estimate(&self, case: &Case) -> Duration {
        let instruments = self
            .instruments
            .iter()
            .map(|i| i.method.estimate(&case.published));
        instruments.sum::<Duration>() + RIG_TIME
    }

    /// The case of this name.
    pub(crate) fn case(&self, name: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.name == name)
    }
}

impl Bed {
    fn default_mtu() -> u32 {
        1500
    }

    fn default_offloads() -> bool {
        true
    }
}

impl Method {
    /// After which it is stopped.
    pub(crate) fn time_limit(&self) -> Duration {
        GRACE
            + match self {
                Self::Ping(plan) | Self::SystemPing(plan) => plan.longest(),
                Self::Http(plan) | Self::Wget(plan) | Self::Curl(plan) => match plan.amount {
                    Amount::For(time) => time,
                    Amount::Whole | Amount::Bytes(_) => LONGEST_DOWNLOAD,
                },
                Self::HttpFiles(_) => LONGEST_DOWNLOAD,
                Self::Iperf3(plan) | Self::Iperf(plan) | Self::Nuttcp(plan) => {
                    plan.duration().unwrap_or(LONGEST_DOWNLOAD)
                }
            }
    }

    /// Whether it measures the round-trip time of echoes.
    pub(crate) fn pings(&self) -> bool {
        matches!(self, Self::Ping(_) | Self::SystemPing(_))
    }

    /// Whether it downloads one large resource.
    pub(crate) fn downloads(&self) -> bool {
        matches!(self, Self::Http(_) | Self::Wget(_) | Self::Curl(_))
    }

    fn estimate(&self, published: &Published) -> Duration {
        match self {
            Self::Ping(plan) | Self::SystemPing(plan) => plan.interval * plan.count,
            Self::Iperf3(plan) | Self::Iperf(plan) | Self::Nuttcp(plan) => {
                plan.duration().unwrap_or(UNKNOWN_DOWNLOAD)
            }
            Self::HttpFiles(_) => UNKNOWN_DOWNLOAD,
            Self::Http(plan) | Self::Wget(plan) | Self::Curl(plan) => {
                match (plan.amount, published.goodput_bytes_per_s) {
                    (Amount::For(time), _) => time,
                    (Amount::Bytes(bytes), Some(rate)) => {
                        Duration::from_secs_f64(bytes as f64 / rate)
                    }
                    _ => UNKNOWN_DOWNLOAD,
                }
            }
        }
    }
}
