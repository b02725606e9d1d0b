#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod behaviour;
mod change;
mod check;
mod checked;
mod counters;
mod decimal;
mod draw;
mod framing;
mod impair;
mod in_flight;
mod limits;
mod link;
mod named;
mod packet;
mod path;
mod queue;
mod schedule;
#[cfg(feature = "schema")]
mod schema;
#[cfg(feature = "serde")]
mod serialized;
mod spec;
mod stage;
mod time;
mod timed_queue;
mod timers;
mod units;

pub use behaviour::{Behaviour, Bottleneck, Damage, Holding, LongRunLoss, LossLaw, SkipLaw};
pub use checked::CheckedPaths;
pub use counters::{Counters, DelayStatistics, HopCounters, StageReport, Waiting};
pub use decimal::UnitError;
pub use framing::{Cells, Framing};
pub use impair::DelayEstimate;
pub use limits::{
    MOST_CLASSES, MOST_COPIES, MOST_FLOW_QUEUES, MOST_STAGES, MOST_STAGES_IN_ALL, MOST_STEPS,
};
pub use link::Link;
pub use packet::{DropCause, Ecn, Edit, Flow, Outcome, Packet, PacketId, Reply, Side};
pub use schedule::{ScheduleClock, ScheduleOrder};
pub use spec::*;
pub use time::Nanos;
pub use units::{BitsPerSec, Bytes, Factor, Probability, QueueLimit};
