//! What a link is built from: named stages in a list for each side and class, as plain data.

pub(crate) mod bit_errors;
mod effects;
mod four_state;
mod jitter;
mod netem;
mod red;

use core::fmt;
use core::num::NonZeroU32;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::framing::Framing;
use crate::limits::{MOST_COPIES, MOST_STAGES_IN_ALL};
use crate::packet::Side;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, Probability, QueueLimit};
pub use bit_errors::BitErrorRate;
pub use effects::{Corruption, Duplication, HoldBack, Police, RandomLoss, Reorder, Slots};
pub use four_state::FourState;

pub use self::jitter::{Jitter, Law, Table};
pub use self::red::Red;
pub(crate) use self::red::power;

pub use self::netem::{
    Netem, NetemDistribution, NetemLoss, NetemRate, NetemShare, NetemSlot, NetemSlotDelay,
};

/// A whole link: the seed of its randomness and its paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Every random draw follows from it; the same seed gives the same verdicts.
    pub seed: u64,
    /// Tells links of one experiment apart, so that two of them never lose the same packets.
    pub link: u64,
    /// When the link begins: the origin of schedules and traces.
    pub start: Nanos,
    /// The paths from either side, by class. A side without any passes everything at once.
    pub paths: Vec<PathSpec>,
}

/// What packets of one class that enter by one side meet, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Where they enter.
    pub side: Side,
    /// Their class. The classes of a side are numbered from 0 without a gap.
    pub class: u16,
    /// The stages. A name that stands in several paths is one stage, which all of them share.
    pub stages: Vec<StageSpec>,
}

/// A stage with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSpec {
    /// What counters call it; its random draws follow from it: "box.up.loss".
    pub name: String,
    /// What it does at first.
    pub effect: Effect,
    /// What it does from later times on, counted from the link's start, in order.
    pub schedule: Vec<(Nanos, Effect)>,
}

/// What a stage does to packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Effect {
    /// Nothing. Of a kind only where the schedule says something else.
    #[default]
    Nothing,
    /// A bottleneck of a rate.
    Rate(Rate),
    /// A bottleneck that serves when a trace says so.
    Trace(Trace),
    /// TOFFEE-Mocha's bottleneck: so long a packet.
    Toffee(Toffee),
    /// Every packet is lost with one probability.
    Loss(RandomLoss),
    /// Packets of these numbers, ascending from 0 for the first one that comes to the stage, are lost; copies are not counted.
    Indexes(Arc<[u64]>),
    /// Every n-th packet is lost.
    EveryNth(NonZeroU32),
    /// Losses in bursts.
    GilbertElliott(GilbertElliott),
    /// Losses in bursts within which packets are received.
    FourState(FourState),
    /// Bits are wrong, and with them packets lost.
    BitErrors(BitErrorRate),
    /// Each packet is followed by a copy with this probability.
    Duplicate(Duplication),
    /// Bits of each packet are flipped, with a probability.
    Corrupt(Corruption),
    /// What is longer, in L3 bytes, is dropped, and its sender told by ICMP. Whole GSO frames meet it segment by segment.
    Mtu(u16),
    /// Propagation.
    Delay(Delay),
    /// Packets leave in bursts.
    Slots(Slots),
    /// Packets are held back until others have overtaken them.
    HoldBack(HoldBack),
    /// What comes while it is closed waits until it opens.
    Gate(Gate),
    /// The link stands still for a while in every period.
    Stall(Stall),
    /// What comes faster than a rate is dropped, but for bursts.
    Police(Police),
    /// All that Linux's netem does, in its order.
    Netem(Box<Netem>),
}

/// A bottleneck: how fast it serves, what it counts, how much may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Service rate; in the mean, if it fluctuates. `None` stalls: packets wait until another rate takes over.
    pub rate: Option<BitsPerSec>,
    /// How it varies, if it does.
    pub fluctuation: Option<Fluctuation>,
    /// Of a token bucket: how much passes at once after a time without packets, counted as `framing` says; at least 1,514 bytes,
    /// a full frame of an MTU of 1,500. A longer frame waits until the bucket would hold it. A bucket is full at first and after
    /// a stall. Not of a rate that varies. Without one, a packet takes as long as the rate serves it.
    pub burst: Option<Bytes>,
    /// The bytes it counts.
    pub framing: Framing,
    /// What may wait, the packet in service not counted.
    pub queue: Queue,
}

/// The waiting room of a bottleneck. What joins it and what leaves it next is its discipline's business.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// How much may wait.
    pub limit: QueueLimit,
    /// Who is dropped or marked before it is full, and who goes first.
    pub discipline: Discipline,
}

/// A queue discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// First in, first out; what finds it full is dropped.
    #[default]
    DropTail,
    /// First in, first out; what comes to a full one pushes out what has waited longest.
    DropHead,
    /// RFC 8289: one queue whose head is dropped while packets have waited too long for too long. The interval shrinks by the
    /// exact square root, of which Linux takes an approximation. The longest packet so far stands for the interface's MTU.
    Codel(Codel),
    /// RFC 8290: queues that take turns, each under CoDel, those of new flows first. A full one drops half of the packets of
    /// the fattest queue, 64 at most, which do not count in that queue's CoDel; in newer kernels they do.
    FqCodel(FqCodel),
    /// RFC 9332, appendix A: what says ECT(1) or CE waits apart from the rest, is served before it (15 bytes to 1 while
    /// both wait) and marked twice as often as the root of how often the rest is marked or dropped; in overload it is dropped
    /// too. Marks and drops come at regular intervals (the RFC's `recur`), not at random.
    DualPi2(DualPi2),
    /// Floyd and Jacobson 1993: dropped at arrival, the likelier the longer the queue is on average.
    Red(Red),
    /// RFC 8033: dropped at arrival, with a probability that follows the queue's delay.
    Pie(Pie),
}

/// The parameters of CoDel (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// The waiting time that may last.
    pub target: Nanos,
    /// For how long a queue may exceed it.
    pub interval: Nanos,
    /// Whether packets are marked, where they allow it, instead of dropped.
    pub ecn: bool,
}

/// The parameters of FQ-CoDel (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// Those of each flow's CoDel.
    pub codel: Codel,
    /// Queues to which flows are hashed.
    pub flows: u16,
    /// Bytes that a flow may send in its turn.
    pub quantum: u32,
}

/// The parameters of DualPI2 (RFC 9332, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2 {
    /// The delay of the Classic queue that the controller aims at.
    pub target: Nanos,
    /// How often it looks; at least 1 ms.
    pub t_update: Nanos,
    /// The delay of the L4S queue from which on marks begin; 400 us further on, every packet is marked.
    pub l_threshold: Nanos,
}

/// PIE (RFC 8033): drops at arrival, with a probability that a controller of the queue's delay sets anew again and again.
///
/// The delay is that of the packet that left last, none while nothing waits. Beside the basic scheme there are marks as long as
/// the probability is below 10 % (section 5.1), drops that are neither too close nor too far apart (5.4: `accu_prob`, 0.85
/// and 8.5), and increases of at most 2 % at once from 10 % on (5.5); and as in Linux 2 % more at delays above 250 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// The delay that the controller aims at.
    pub target: Nanos,
    /// How often it looks; at least 1 ms.
    pub tupdate: Nanos,
    /// How long a burst may last to an empty queue before anything is dropped.
    pub max_burst: Nanos,
    /// Whether packets are marked, where they allow it, instead of dropped.
    pub ecn: bool,
}

/// A rate that is drawn anew at regular intervals, as a radio channel's rate varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fluctuation {
    /// How far the rate may lie from its mean, each value equally likely; below 100 %.
    pub spread: Probability,
    /// How long each rate lasts, 1 ms to 1 h; the first interval begins with the first packet.
    pub hold: Nanos,
}

/// TOFFEE-Mocha's kind of emulator: a delay is the service time of one server, which its paths share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Toffee {
    /// Constant service time a packet.
    pub delay: Nanos,
    /// Service time that grows with the packet: microseconds = L2 bytes / factor.
    pub dynamic: Option<Factor>,
    /// What may wait for the server, all directions together.
    pub queue: Queue,
}

/// A bottleneck that serves at given times, as Mahimahi's trace-driven links do.
#[derive(Clone, Debug)]
pub struct Trace {
    /// When it serves.
    pub opportunities: Arc<dyn Opportunities>,
    /// What may wait, the packet in service not counted.
    pub queue: Queue,
}

/// When a trace-driven bottleneck serves: times that never run backwards, each good for
/// [`OPPORTUNITY`] bytes of L2. Long traces are read by whoever implements this; the model reads no files.
pub trait Opportunities: fmt::Debug + Send + Sync {
    /// The time of opportunity number `index` (from 0) after the link's start; [`Nanos::MAX`] for none any more.
    fn at(&self, index: u64) -> Nanos;
}

/// The bytes that one opportunity of a trace is good for (Mahimahi's packet: 1,500 bytes of L3 and 4 of its own).
pub const OPPORTUNITY: Bytes = Bytes(1_504);

/// Opportunities that repeat: those of one period, and the next period from the time of the last one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeating(Vec<Nanos>);

impl Repeating {
    /// The period that ends with the last of `times`.
    ///
    /// # Errors
    /// No time at all, times that run backwards, or a last one of 0.
    pub fn new(times: Vec<Nanos>) -> Result<Self, ConfigError> {
        let refused = |right| ConfigError::BadTrace { right };
        match times.last() {
            None => Err(refused("write at least one time")),
            Some(&Nanos::ZERO) => Err(refused(
                "its last time is its duration, which must be above 0",
            )),
            Some(_) if times.is_sorted() => Ok(Self(times)),
            Some(_) => Err(refused("its times must be in ascending order")),
        }
    }
}

impl Opportunities for Repeating {
    fn at(&self, index: u64) -> Nanos {
        let len = self.0.len() as u64;
        let period = self.0[self.0.len() - 1].saturating_mul(index / len);
        let within = usize::try_from(index % len).map(|place| self.0[place]);
        within.map_or(Nanos::MAX, |within| period + within)
    }
}

/// Propagation, perhaps with jitter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delay {
    /// One way.
    pub time: Nanos,
    /// What grows with the packet: microseconds = L2 bytes / factor.
    pub by_size: Option<Factor>,
    /// What is drawn for each packet; what would fall below 0 in all is 0, and counted.
    pub jitter: Option<Jitter>,
    /// Whether packets may overtake each other.
    pub ordering: Ordering,
    /// Which packets pass at once.
    pub reorder: Option<Reorder>,
}

/// Whether a delay keeps the order of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// None leaves before one that entered earlier.
    #[default]
    Fifo,
    /// Each leaves when its own delay is over.
    Free,
    /// None leaves before one of its own flow that entered earlier. Flows are hashed to 4,096 places: two of one place keep
    /// the order among them, too.
    PerFlow,
}

/// Loss with a memory of one state (Gilbert 1960, Elliott 1963), as tc's `gemodel`: first the state changes, then the
/// state that was left decides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GilbertElliott {
    /// The probability that a bad state follows a good one, a packet.
    pub to_bad: Probability,
    /// The probability that a good state follows a bad one, a packet.
    pub to_good: Probability,
    /// The probability of loss in the bad state (tc's 1-h).
    pub bad_loss: Probability,
    /// The probability of loss in the good state (tc's 1-k).
    pub good_loss: Probability,
    /// Whether a packet is marked in place of being lost, where its sender understands marks.
    pub ecn: bool,
}

/// A gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Whether packets pass.
    pub open: bool,
    /// What may wait before it while it is closed; what finds that full is dropped. Not a time: nothing is served.
    pub queue: QueueLimit,
}

/// A link that stands still again and again, as one does that changes the satellite or the cell, or listens to other channels.
///
/// Packets that come during a stall leave when it is over, in order. Periods count from the link's start, and the end of each is
/// the stall. Any number of packets may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// The period: from the end of a stall to the end of the next one. There is no stall where it is 0.
    pub every: Nanos,
    /// How long each stall lasts. One as long as the period, or longer, lets packets go at the end of each period only.
    pub lasts: Nanos,
}

impl StageSpec {
    /// A stage without a schedule.
    #[must_use]
    pub fn new(name: impl Into<String>, effect: Effect) -> Self {
        Self {
            name: name.into(),
            effect,
            schedule: Vec::new(),
        }
    }

    /// All that it does at one time or another.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        core::iter::once(&self.effect).chain(self.schedule.iter().map(|(_, effect)| effect))
    }
}

impl LinkConfig {
    /// A link on which every packet from either side meets `up` and `down`, that side's stages.
    #[must_use]
    pub fn new(seed: u64, up: Vec<StageSpec>, down: Vec<StageSpec>) -> Self {
        let path = |side, stages| PathSpec {
            side,
            class: 0,
            stages,
        };
        Self {
            seed,
            paths: [path(Side::A, up), path(Side::B, down)].into(),
            ..Self::default()
        }
    }
}

impl From<QueueLimit> for Queue {
    fn from(limit: QueueLimit) -> Self {
        Self {
            limit,
            discipline: Discipline::DropTail,
        }
    }
}

impl Default for Codel {
    /// 5 ms, 100 ms, drops (RFC 8289, sections 4.5 and 5.3).
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: false,
        }
    }
}

impl Default for FqCodel {
    /// 1,024 queues, 1,514 bytes, marks (RFC 8290, section 5.2; tc's quantum and ecn).
    fn default() -> Self {
        let codel = Codel {
            ecn: true,
            ..Codel::default()
        };
        Self {
            codel,
            flows: 1_024,
            quantum: 1_514,
        }
    }
}

impl Default for DualPi2 {
    /// 15 ms, 16 ms, 800 us (RFC 9332, appendix A.1).
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(15),
            t_update: Nanos::from_millis(16),
            l_threshold: Nanos::from_micros(800),
        }
    }
}

impl Default for Pie {
    /// 15 ms, 15 ms, 150 ms, drops (RFC 8033, sections 4.2 and 4.4).
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(15),
            tupdate: Nanos::from_millis(15),
            max_burst: Nanos::from_millis(150),
            ecn: false,
        }
    }
}

impl PartialEq for Trace {
    /// Equal if it is the same trace, not only one of the same times.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opportunities, &other.opportunities) && self.queue == other.queue
    }
}

/// Conditions that contradict each other or lie out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A stage without a name could not be told from another in counters and draws.
    #[error("stage {0} of a path has no name: give it one, such as box.up.loss")]
    Unnamed(usize),
    /// One path that meets a stage twice.
    #[error("{0} occurs twice in one path: give each stage its own name")]
    Twice(String),
    /// One name for two different stages.
    #[error("{0} differs between paths: a name in several paths must be the same stage")]
    NotTheSame(String),
    /// A class that only one side, or one path between, knows.
    #[error(
        "class {class} has no path from side {side:?}: number classes from 0, and give each a path from both sides"
    )]
    NoPath {
        /// The class.
        class: u16,
        /// Where it has none.
        side: Side,
    },
    /// Two lists for packets of one class from one side.
    #[error("class {class} has two paths from side {side:?}: give it one")]
    TwoPaths {
        /// The class.
        class: u16,
        /// Where it has two.
        side: Side,
    },
    /// A schedule that runs backwards.
    #[error("{0}: its schedule goes back in time: put it in order")]
    Backwards(String),
    /// A name whose effect becomes one of another kind.
    #[error("{0} would become a stage of another kind: give the new stage its own name")]
    OtherKind(String),
    /// A change that would have packets meet stages in another order.
    #[error("{0} would change places with another stage: keep the order of the remaining stages")]
    Reordered(String),
    /// A change that has packets of one path meet a shared stage no more, which could then overtake others that do.
    #[error(
        "{0} would leave one path and stay in another: remove a shared stage from all paths or from none"
    )]
    LeavesHalf(String),
    /// A trace that cannot be one.
    #[error("a trace is out of range: {right}")]
    BadTrace {
        /// What would be right.
        right: &'static str,
    },
    /// A table that cannot be a distribution.
    #[error("a distribution needs 1 to 16384 values, not {values}")]
    BadTable {
        /// How many it has.
        values: usize,
    },
    /// A value that its field cannot have.
    #[error("{stage}: {field} = {value} is out of range: {right}")]
    OutOfRange {
        /// The stage's name.
        stage: String,
        /// The field.
        field: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        right: &'static str,
    },
    /// A path whose stages make too many packets of one.
    #[error(
        "{stages} stages of one path duplicate packets, which makes {copies} packets of one: at most {MOST_COPIES} are allowed, so \
         use at most {} such stages",
        MOST_COPIES.ilog2()
    )]
    TooManyCopies {
        /// The stages that copy.
        stages: usize,
        /// The packets that come of one: 2 to the power of the stages.
        copies: u64,
    },
    /// Conditions that would cost more than a link is allowed to.
    #[error("{count} {what}: at most {most} are allowed")]
    TooMany {
        /// The things of which there are too many.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The largest number that is allowed.
        most: usize,
    },
    /// Stages of former conditions that would still have packets on their way.
    #[error(
        "{stages} stages of earlier conditions would still have packets in flight: at most {MOST_STAGES_IN_ALL} are allowed, so wait \
         until the packets have left"
    )]
    TooManyLeave {
        /// Their number.
        stages: usize,
    },
    /// The link was stopped.
    #[error("the link was stopped, and cannot be changed any more")]
    Stopped,
}
