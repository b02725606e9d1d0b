//! What an experiment does, resolved: nothing is left to a default here.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{BitsPerSec, Bytes};
use netio::tbf::TokenBucket;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expectation::{Expectation, Trend};
use super::figure_name::FigureName;
use crate::instrument::layers::ETHERNET_HEADER;
use crate::link_spec::{LinkSpec, unit};
use crate::measure::Kind;

/// Setting up a rig and taking it down, as the time left is estimated.
const RIG_TIME: Duration = Duration::from_millis(500);

/// A whole experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Short name, as of the output directory.
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// Whether counts and sizes were shortened.
    pub(crate) quick: bool,
    /// Seed of the first repeat, and of the order; each further repeat adds 1.
    pub(crate) seed: u64,
    /// In which order the cases of a round run.
    pub(crate) order: Order,
    /// The case that the others are held against.
    pub(crate) reference: Option<String>,
    /// In the order of the report.
    pub(crate) cases: Vec<Case>,
    /// What is expected of several cases together.
    pub(crate) trends: Vec<Trend>,
}

/// In which order runs take place. Each round has every case once, so that a drift of the machine meets all alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Every round in an order of its own, drawn by the plan's seed.
    #[default]
    Random,
    /// Every round as the scenario has it.
    AsWritten,
}

/// One case: the conditions, how they are measured, what was published of it, and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// What a sweep set: the field's path within the case, and its value as written.
    pub(crate) axes: Vec<(String, String)>,
    /// Where it runs.
    pub(crate) bed: Bed,
    /// TCP congestion control of the sending sockets.
    pub(crate) congestion: String,
    /// The conditions of the box.
    pub(crate) link: LinkSpec,
    pub(crate) repeats: Repeats,
    /// In the order in which each run uses them; those of one group at the same time.
    pub(crate) instruments: Vec<Instrument>,
    /// What somebody else measured under the same conditions, in the metric's unit.
    pub(crate) published: BTreeMap<FigureName, f64>,
    pub(crate) expect: Vec<Expectation>,
    /// Where the measured and the published may differ, and why.
    pub(crate) note: String,
}

/// A test bed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Rate of a token bucket of the kernel's own (tbf) at the client's egress, counting L2 bytes without FCS.
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub(crate) tbf: Option<BitsPerSec>,
    /// The conditions of the bed's own wire, which every case has.
    #[serde(default)]
    pub(crate) wire: LinkSpec,
}

/// What a test bed is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BedKind {
    /// Client, emulator and server in namespaces of this machine.
    Netns,
}

/// How many times a case runs, each with a seed of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Repeats {
    /// At least so many.
    pub(crate) least: u32,
    /// At most so many; as many as `least` without `until`.
    pub(crate) most: u32,
    /// Between the two, until this is so.
    pub(crate) until: Option<Narrow>,
}

/// That the 95 % interval of a figure's mean is narrow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Narrow {
    pub(crate) of: FigureName,
    /// Half the interval in percent of the mean, at most.
    pub(crate) percent: f64,
}

/// An instrument and how it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instrument {
    /// As the record and the report call it.
    pub(crate) name: String,
    /// What it does.
    pub(crate) kind: Kind,
    /// As on the command line of `farwire measure KIND`.
    pub(crate) options: Vec<String>,
    /// Instruments of one name here, neighbours in the list, run at the same time.
    pub(crate) group: Option<String>,
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
    /// The case of this name.
    pub(crate) fn case(&self, name: &str) -> Option<&Case> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// The cases of a round, from 1, in the order in which they run, whether or not each still needs it.
    pub(crate) fn round(&self, repeat: u32) -> Vec<PlannedRun<'_>> {
        let mut runs: Vec<_> = self
            .cases
            .iter()
            .map(|case| PlannedRun {
                case,
                repeat,
                seed: case.link.seed.unwrap_or(self.seed) + u64::from(repeat - 1),
            })
            .collect();
        if self.order == Order::Random {
            // One generator a round, so that a resumed experiment draws the same orders.
            let round = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            fastrand::Rng::with_seed(round ^ u64::from(repeat)).shuffle(&mut runs);
        }
        runs
    }

    /// The most rounds that any case may need.
    pub(crate) fn rounds(&self) -> u32 {
        let most = self.cases.iter().map(|case| case.repeats.most);
        most.max().unwrap_or(0)
    }
}

impl Case {
    /// About how long a run takes, where that can be said: instruments without a stated time are left out.
    pub(crate) fn estimate(&self) -> Duration {
        let groups = self.groups();
        let times = groups.iter().map(|group| {
            let each = group.iter().filter_map(|instrument| instrument.expected());
            each.max().unwrap_or_default()
        });
        times.sum::<Duration>() + RIG_TIME
    }

    /// The instruments that run at the same time, each group after the other.
    pub(crate) fn groups(&self) -> Vec<&[Instrument]> {
        self.instruments
            .chunk_by(|a, b| a.group.is_some() && a.group == b.group)
            .collect()
    }
}

impl Repeats {
    /// Exactly so many.
    pub(crate) fn fixed(count: u32) -> Self {
        Self {
            least: count,
            most: count,
            until: None,
        }
    }
}

impl Instrument {
    /// How long it takes, if its options say so.
    fn expected(&self) -> Option<Duration> {
        self.kind.expected(&self.options)
    }
}

impl Bed {
    /// The kernel's shaper at the client, if there is one.
    pub(crate) fn token_bucket(&self) -> Option<TokenBucket> {
        let frame = Bytes(u64::from(self.mtu + ETHERNET_HEADER));
        self.tbf.map(|rate| TokenBucket::new(rate, frame))
    }

    fn default_mtu() -> u32 {
        1500
    }

    fn default_offloads() -> bool {
        true
    }
}
