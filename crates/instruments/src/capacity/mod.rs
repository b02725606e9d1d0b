//! The maximum IP-layer capacity of a path (RFC 9097), over the UDP Speed Test Protocol (RFC 9946).
//!
//! The server searches: it tells the sender, itself or the client, how fast to send by what the receiver fed back.

pub mod args;
mod channel;
mod client;
mod exchange;
mod pacer;
mod rates;
mod receiver;
mod results;
mod search;
pub(crate) mod server;
pub mod wire;

use std::time::Duration;

use record::Direction;
use serde::{Deserialize, Serialize};

pub(crate) use self::client::measure;
pub(crate) use self::wire::{Algorithm, Thresholds};
use self::wire::{Sizes, StartRow, TestParameters};

/// From one feedback to the next (RFC 9097).
const FEEDBACK: Duration = Duration::from_millis(50);

/// How to search for the capacity.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CapacityPlan {
    /// Which way the load goes.
    pub(crate) direction: Direction,
    /// How long; whole seconds, 1 to 3,600.
    pub(crate) duration: Duration,
    /// The time over which the capacity is the mean; 100 ms to 10 s.
    pub(crate) sub_interval: Duration,
    /// How the rate follows the feedback.
    pub(crate) algorithm: Algorithm,
    /// What clean and congested feedback is.
    pub(crate) thresholds: Thresholds,
    /// Which sizes to send; small ones, or those that the server wants, when absent.
    pub(crate) datagrams: Option<Datagrams>,
}

/// IP packet sizes of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Datagrams {
    /// Up to 1,250 bytes.
    Standard,
    /// Up to 1,500 bytes.
    Traditional,
    /// Up to 1,250 bytes to 1 Gb/s, to 9,000 above.
    Jumbo,
    /// Up to 1,500 bytes to 1 Gb/s, to 9,000 above.
    TraditionalJumbo,
}

impl CapacityPlan {
    fn parameters(&self) -> TestParameters {
        let ms = |time: Duration| u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        TestParameters {
            thresholds: self.thresholds,
            algorithm: self.algorithm,
            feedback_ms: ms(FEEDBACK),
            duration_s: u16::try_from(self.duration.as_secs()).unwrap_or(u16::MAX),
            sub_interval_ms: ms(self.sub_interval),
            start: StartRow::Lowest,
            one_way: false,
            ignore_reordering: true,
            random_payload: true,
        }
    }
}

impl From<Datagrams> for Sizes {
    fn from(datagrams: Datagrams) -> Self {
        use Datagrams::{Jumbo, Traditional, TraditionalJumbo};
        Self {
            jumbo: matches!(datagrams, Jumbo | TraditionalJumbo),
            traditional: matches!(datagrams, Traditional | TraditionalJumbo),
        }
    }
}
