//! The pure model of a network link: it decides what happens to a packet and never holds its bytes.
//!
//! A [`Link`] is built from a [`LinkConfig`], is offered packets with the time of their arrival and
//! answers with an [`Outcome`] for each. Time is an argument everywhere; the crate is `no_std`, so
//! the compiler itself keeps clocks and I/O out.
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
