#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod counters;
mod decimal;
mod draw;
mod impair;
mod in_flight;
mod link;
mod packet;
mod queue;
#[cfg(any(feature = "serde", feature = "schema"))]
mod serialized;
mod stage;
mod time;
mod timers;
mod topology;
mod units;

pub use config::{Conditions, ConfigError, Fluctuation, HopConfig, LinkConfig, Rate, Toffee};
pub use counters::{Counters, StageReport};
pub use decimal::UnitError;
pub use link::Link;
pub use packet::{DropCause, Outcome, Packet, PacketId, Side};
pub use time::Nanos;
pub use units::{BitsPerSec, Bytes, Factor, Framing, Probability, QueueLimit};
