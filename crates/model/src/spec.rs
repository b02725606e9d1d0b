//! The specification of a link as plain data: named stages in a list for each side and class.

pub(crate) mod bit_errors;
mod cell_replay;
mod effects;
mod four_state;
mod jitter;
mod netem;
mod red;
mod steps;
mod weights;

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
pub use cell_replay::{CellReplay, LIGHT_OPPORTUNITY, LightLoad, LightTrain};
pub use effects::{Corruption, Duplication, HoldBack, Police, RandomLoss, Reorder, Slots};
pub use four_state::FourState;

pub use self::jitter::{Jitter, Law, Table};
pub use self::red::Red;
pub(crate) use self::red::power;
pub use self::steps::{Schedule, Steps};
pub use self::weights::Weights;

pub use self::netem::{
    Netem, NetemDistribution, NetemLoss, NetemRate, NetemShare, NetemSlot, NetemSlotDelay,
};

/// A whole link: the seed of its randomness and its paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// The seed of every random draw; the same seed gives the same outcomes.
    pub seed: u64,
    /// The number of the link in an experiment, so that two of its links never lose the same packets.
    pub link: u64,
    /// The time at which the link begins: the origin of schedules and traces.
    pub start: Nanos,
    /// Whether the link begins when its first packet arrives, in place of `start`. Until then it has its first conditions.
    pub waits: bool,
    /// The paths from either side, by class. A side without paths passes everything immediately.
    pub paths: Vec<PathSpec>,
}

/// The stages that packets of one class from one side meet, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// The side at which they enter.
    pub side: Side,
    /// Their class. The classes of a side are numbered from 0 without a gap.
    pub class: u16,
    /// The stages. A name that occurs in several paths is one stage, which all of them share.
    pub stages: Vec<StageSpec>,
}

/// A stage: its name and its effects.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSpec {
    /// Its name in counters, which also determines its random draws: "box.up.loss".
    pub name: String,
    /// The name of the hop to which it belongs, which counts what its stages drop; empty for none.
    pub hop: String,
    /// Its first effect.
    pub effect: Effect,
    /// Its later effects.
    pub schedule: Schedule,
}

/// An effect of a stage on packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Effect {
    /// No effect. A stage has a kind nevertheless if its schedule has another effect.
    #[default]
    Nothing,
    /// A bottleneck with a rate.
    Rate(Rate),
    /// A bottleneck that serves at the times of a trace.
    Trace(Trace),
    /// A bottleneck with a light and a full load, as CellReplay records them.
    CellReplay(CellReplay),
    /// TOFFEE-Mocha's bottleneck, which takes a given time for each packet.
    Toffee(Toffee),
    /// Every packet is lost with one probability.
    Loss(RandomLoss),
    /// Packets with these numbers are lost. The numbers ascend; the first packet that enters the stage has number 0,
    /// and copies are not counted.
    Indexes(Arc<[u64]>),
    /// Every n-th packet is lost.
    EveryNth(NonZeroU32),
    /// Packets are lost in bursts.
    GilbertElliott(GilbertElliott),
    /// Packets are lost in bursts within which some are received.
    FourState(FourState),
    /// Bits are wrong, and the packets that contain them are lost.
    BitErrors(BitErrorRate),
    /// Each packet is followed by a copy with this probability.
    Duplicate(Duplication),
    /// Bits of a packet are flipped with this probability.
    Corrupt(Corruption),
    /// Packets longer than this number of L3 bytes are dropped, and ICMP tells their senders. Segments of a GSO frame
    /// are compared one by one.
    Mtu(u16),
    /// Packets are delayed by propagation.
    Delay(Delay),
    /// Packets leave in bursts.
    Slots(Slots),
    /// Packets are held back until others have overtaken them.
    HoldBack(HoldBack),
    /// Packets that come while the gate is closed wait until it opens.
    Gate(Gate),
    /// The link stalls for a while in every period.
    Stall(Stall),
    /// Packets that exceed a rate and a burst are dropped.
    Police(Police),
    /// Everything that Linux's netem does, in its order.
    Netem(Box<Netem>),
}

/// A bottleneck: its rate, the bytes that it counts, and its queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The service rate; the mean rate, if it fluctuates. `None` stalls: packets wait until another rate is in force.
    pub rate: Option<BitsPerSec>,
    /// The fluctuation, if the rate varies.
    pub fluctuation: Option<Fluctuation>,
    /// The size of a token bucket: the bytes that pass immediately after a time without packets, counted as `framing`
    /// says. It is at least 1,514 bytes, a full frame at an MTU of 1,500. A longer frame waits until the bucket would
    /// hold it. The bucket is full at first and after a stall. A rate that fluctuates has none. Without a bucket, each
    /// packet takes the time in which the rate serves it.
    pub burst: Option<Bytes>,
    /// The bytes of a frame that it counts.
    pub framing: Framing,
    /// The queue, without the packet in service.
    pub queue: Queue,
}

/// The queue of a bottleneck. Its discipline decides which packets join it and which one leaves next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// The most that may wait.
    pub limit: QueueLimit,
    /// The discipline: it decides which packets are dropped or marked before the queue is full, and which one goes
    /// first.
    pub discipline: Discipline,
}

/// A queue discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// First in, first out; a packet that finds the queue full is dropped.
    #[default]
    DropTail,
    /// First in, first out; a packet that finds the queue full pushes out the one that has waited longest.
    DropHead,
    /// CoDel (RFC 8289): one queue whose head is dropped when packets have waited longer than a target for a whole
    /// interval. The interval shrinks by the exact square root, which Linux approximates. The longest packet so far
    /// replaces the interface's MTU.
    Codel(Codel),
    /// FQ-CoDel (RFC 8290): queues that take turns, each under CoDel, those of new flows first. When it is full, it
    /// drops half of the packets of the queue with the most bytes, at most 64. They do not count in that queue's CoDel;
    /// in newer kernels they do.
    FqCodel(FqCodel),
    /// DualPI2 (RFC 9332, appendix A): packets with ECT(1) or CE wait in a second queue and are served first (15 bytes
    /// to 1 while both queues have packets). They are marked with twice the square root of the probability with which
    /// the others are marked or dropped; in overload they are dropped, too. Marks and drops come at regular intervals
    /// (the RFC's `recur`) and not at random.
    DualPi2(DualPi2),
    /// RED (Floyd and Jacobson 1993): packets are dropped at arrival, with a probability that grows with the average
    /// queue.
    Red(Red),
    /// PIE (RFC 8033): packets are dropped at arrival, with a probability that follows the queue's delay.
    Pie(Pie),
    /// Packets of each class wait in a separate queue, and classes take turns in proportion to their weights (deficit
    /// round robin, Shreedhar and Varghese 1996). The limit holds for all queues together. When it is exceeded, the
    /// class with the most bytes for its weight loses the packet that came last.
    Weighted(Weights),
}

/// The parameters of CoDel (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// The acceptable waiting time.
    pub target: Nanos,
    /// The time for which packets may wait longer than that.
    pub interval: Nanos,
    /// Whether packets are marked instead of dropped, if their senders understand marks.
    pub ecn: bool,
    /// The waiting time above which a packet that leaves is marked, if its sender understands marks; absent for none. It
    /// is independent of `ecn` and of the target (Linux's `ce_threshold`, for data centres and L4S).
    pub ce_threshold: Option<Nanos>,
}

/// The parameters of FQ-CoDel (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// The parameters of each queue's CoDel.
    pub codel: Codel,
    /// The number of queues to which flows are hashed.
    pub flows: u16,
    /// The bytes that a queue may send in one turn.
    pub quantum: u32,
}

/// The parameters of DualPI2 (RFC 9332, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualPi2 {
    /// The delay of the Classic queue that the controller aims at.
    pub target: Nanos,
    /// The interval of the controller, at least 1 ms.
    pub t_update: Nanos,
    /// The delay of the L4S queue at which marking begins.
    pub l_threshold: Nanos,
    /// The delay above the threshold at which every L4S packet is marked; 0 is a step.
    pub ramp: Nanos,
    /// The coupling factor k: an L4S packet is marked with k times the base probability, and a Classic one is dropped
    /// with its square. It is above 0.
    pub coupling: u8,
}

/// PIE (RFC 8033): drops at arrival, with a probability that a controller sets periodically from the queue's delay.
///
/// The delay is that of the packet that left last, and 0 while nothing waits. In addition to the basic scheme, packets
/// are marked while the probability is below 10 % (section 5.1), drops are neither too close nor too far apart (section
/// 5.4: `accu_prob`, 0.85 and 8.5), and the probability grows by at most 2 percentage points at a time from 10 % on
/// (section 5.5); as in Linux, it grows by 2 points more at delays above 250 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pie {
    /// The delay that the controller aims at.
    pub target: Nanos,
    /// The interval of the controller, at least 1 ms.
    pub tupdate: Nanos,
    /// The time for which a burst into an empty queue passes before anything is dropped.
    pub max_burst: Nanos,
    /// Whether packets are marked instead of dropped, if their senders understand marks.
    pub ecn: bool,
}

/// A rate that is drawn anew at regular intervals, like the rate of a radio channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fluctuation {
    /// The largest deviation from the mean rate, below 100 %. Each rate within it is equally likely.
    pub spread: Probability,
    /// The time that each rate lasts, 1 ms to 1 h. The first interval begins with the first packet.
    pub hold: Nanos,
}

/// TOFFEE-Mocha's kind of emulator: a delay is the service time of one server, which its paths share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Toffee {
    /// The constant service time of a packet.
    pub delay: Nanos,
    /// The service time that grows with the packet's length: microseconds = L2 bytes / factor.
    pub dynamic: Option<Factor>,
    /// The queue of the server, for all directions together.
    pub queue: Queue,
}

/// A bottleneck that serves at given times, as Mahimahi's trace-driven links do.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The times at which it serves.
    pub opportunities: Arc<dyn Opportunities>,
    /// The queue, without the packet in service.
    pub queue: Queue,
}

/// The times at which a trace-driven bottleneck serves some bytes of L2 each. They never run backwards. The model reads
/// no files, so a long trace comes from an implementation of this trait.
///
/// They are times of the schedules' clock, which at first are those since the link's start. While that clock is stopped,
/// the opportunities of the [`OPPORTUNITY_WINDOW`] before it repeat.
pub trait Opportunities: fmt::Debug + Send + Sync {
    /// Returns the time of opportunity number `index` (from 0); [`Nanos::MAX`] if there is none any more.
    fn at(&self, index: u64) -> Nanos;

    /// Returns the number of opportunities before a time.
    fn count_before(&self, time: Nanos) -> u64 {
        let mut above = 1_u64;
        while self.at(above - 1) < time && above < u64::MAX / 2 {
            above *= 2;
        }
        let (mut low, mut high) = (above / 2, above);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) < time {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the bytes that each of them serves, at least 1.
    fn bytes(&self) -> Bytes {
        OPPORTUNITY
    }
}

/// The bytes that one opportunity of a trace serves (Mahimahi's packet: 1,500 bytes of L3 and 4 that Mahimahi adds).
pub const OPPORTUNITY: Bytes = Bytes(1_504);

/// The time over which the opportunities of a trace have a rate.
pub const OPPORTUNITY_WINDOW: Nanos = Nanos::from_millis(100);

/// Opportunities that repeat: the next period begins at the last time of the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeating(Vec<Nanos>);

impl Repeating {
    /// Creates opportunities with a period that ends with the last of `times`.
    ///
    /// # Errors
    /// Returns an error for an empty list, for times that run backwards and for a last time of 0.
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

/// A propagation delay, optionally with jitter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delay {
    /// The constant part, in one direction.
    pub time: Nanos,
    /// The part that grows with the packet's length: microseconds = L2 bytes / factor.
    pub by_size: Option<Factor>,
    /// The part that is drawn for each packet. A total delay below 0 is set to 0 and counted.
    pub jitter: Option<Jitter>,
    /// The order in which packets leave.
    pub ordering: Ordering,
    /// The packets that skip the delay.
    pub reorder: Option<Reorder>,
}

/// The order in which packets leave a delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// No packet leaves before one that entered earlier.
    #[default]
    Fifo,
    /// Each packet leaves when its own delay is over.
    Free,
    /// No packet leaves before one of the same flow that entered earlier. Flows are hashed to 4,096 places, and flows
    /// that share a place keep a common order.
    PerFlow,
}

/// Loss by a chain of two states (Gilbert 1960, Elliott 1963), as tc's `gemodel`: the state changes first, then the
/// state that was left decides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GilbertElliott {
    /// The probability, for each packet, that the good state changes to the bad one.
    pub to_bad: Probability,
    /// The probability, for each packet, that the bad state changes to the good one.
    pub to_good: Probability,
    /// The probability of loss in the bad state (tc's 1-h).
    pub bad_loss: Probability,
    /// The probability of loss in the good state (tc's 1-k).
    pub good_loss: Probability,
    /// Whether a packet is marked instead of lost, if its sender understands marks.
    pub ecn: bool,
}

/// A gate, which holds packets while it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Whether it is open.
    pub open: bool,
    /// The most that may wait while it is closed; a packet that finds this full is dropped. It is not a time, because
    /// nothing is served.
    pub queue: QueueLimit,
}

/// A link that stalls periodically, as one does that changes the satellite or the cell, or listens to other channels.
///
/// Packets that come during a stall leave when it is over, in order. Periods count from the link's start, and each ends
/// with the stall. Any number of packets may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// The period: from the end of a stall to the end of the next one. There is no stall where it is 0.
    pub every: Nanos,
    /// The length of each stall. If it is as long as the period or longer, packets leave only at the end of each
    /// period.
    pub lasts: Nanos,
}

impl StageSpec {
    /// Creates a stage without a schedule, which belongs to no hop.
    #[must_use]
    pub fn new(name: impl Into<String>, effect: Effect) -> Self {
        Self {
            name: name.into(),
            hop: String::new(),
            effect,
            schedule: Schedule::default(),
        }
    }

    /// Returns its first effect and those of its schedule; of computed steps, those that describe all.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        core::iter::once(&self.effect).chain(self.schedule.effects())
    }
}

impl LinkConfig {
    /// Creates a link on which every packet meets the stages of its side: `up` from side A, `down` from side B.
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
    /// A target of 5 ms, an interval of 100 ms, and drops (RFC 8289, sections 4.5 and 5.3).
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            ecn: false,
            ce_threshold: None,
        }
    }
}

impl Default for FqCodel {
    /// 1,024 queues, a quantum of 1,514 bytes, and marks (RFC 8290, section 5.2; tc's quantum and ecn).
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
    /// A target of 15 ms, an interval of 16 ms, a threshold of 800 us with a ramp of 400 us, and a coupling factor of 2
    /// (RFC 9332, appendix A.1).
    fn default() -> Self {
        Self {
            target: Nanos::from_millis(15),
            t_update: Nanos::from_millis(16),
            l_threshold: Nanos::from_micros(800),
            ramp: Nanos::from_micros(400),
            coupling: 2,
        }
    }
}

impl Default for Pie {
    /// A target of 15 ms, an interval of 15 ms, bursts of 150 ms, and drops (RFC 8033, sections 4.2 and 4.4).
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
    /// Compares the traces themselves: two objects with the same times are not equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.opportunities, &other.opportunities) && self.queue == other.queue
    }
}

/// An error in conditions: they contradict each other or lie out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A stage has no name, so that counters and draws could not distinguish it from another one.
    #[error("stage {0} of a path has no name: give it one, such as box.up.loss")]
    Unnamed(usize),
    /// A path meets a stage twice.
    #[error("{0} occurs twice in one path: give each stage its own name")]
    Twice(String),
    /// Two different stages have one name.
    #[error("{0} differs between paths: a name in several paths must be the same stage")]
    NotTheSame(String),
    /// A class has a path from one side only, or a lower class has no path.
    #[error(
        "class {class} has no path from side {side:?}: number classes from 0, and give each a path from both sides"
    )]
    NoPath {
        /// The class.
        class: u16,
        /// The side without a path.
        side: Side,
    },
    /// A class has two paths from one side.
    #[error("class {class} has two paths from side {side:?}: give it one")]
    TwoPaths {
        /// The class.
        class: u16,
        /// The side with two paths.
        side: Side,
    },
    /// A schedule runs backwards.
    #[error("{0}: its schedule goes back in time: put it in order")]
    Backwards(String),
    /// The effect of a stage becomes one of another kind.
    #[error("{0} would become a stage of another kind: give the new stage its own name")]
    OtherKind(String),
    /// A change would make packets meet stages in another order.
    #[error("{0} would change places with another stage: keep the order of the remaining stages")]
    Reordered(String),
    /// A change removes a shared stage from one of its paths, so that the packets there could overtake others that
    /// still meet it.
    #[error(
        "{0} would leave one path and stay in another: remove a shared stage from all paths or from none"
    )]
    LeavesHalf(String),
    /// A trace is not valid.
    #[error("a trace is out of range: {right}")]
    BadTrace {
        /// The advice on how to write it.
        right: &'static str,
    },
    /// A table is not a distribution.
    #[error("a distribution needs 1 to 16384 values, not {values}")]
    BadTable {
        /// The number of its values.
        values: usize,
    },
    /// A value is out of the range of its field.
    #[error("{stage}: {field} = {value} is out of range: {right}")]
    OutOfRange {
        /// The stage's name.
        stage: String,
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
        /// The advice on how to write it.
        right: &'static str,
    },
    /// The stages of a path make too many packets out of one.
    #[error(
        "{stages} stages of one path duplicate packets, which makes {copies} packets of one: at most {MOST_COPIES} are allowed, so \
         use at most {} such stages",
        MOST_COPIES.ilog2()
    )]
    TooManyCopies {
        /// The number of stages that copy.
        stages: usize,
        /// The number of packets that result from one: 2 to the power of the stages.
        copies: u64,
    },
    /// The conditions would cost more than a link is allowed to.
    #[error("{count} {what}: at most {most} are allowed")]
    TooMany {
        /// The things of which there are too many.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The largest number that is allowed.
        most: usize,
    },
    /// Too many stages of former conditions would still have packets on their way.
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
