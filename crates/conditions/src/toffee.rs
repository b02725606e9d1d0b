//! TOFFEE-Mocha's box, which has one server for both directions.

use std::str::FromStr;

use model::{Effect, Factor, Nanos, Probability, QueueLimit, Toffee};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::read::{self, OrText};

/// The default queue of a TOFFEE box, for both directions together.
pub(crate) const DEFAULT_TOFFEE_QUEUE: QueueLimit = QueueLimit::Packets(1000);

/// TOFFEE's conditions, written as a table or as `delay=1ms,dynamic=1,drop=2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a text such as delay=1ms,drop=2, or a table"
)]
#[schemars(transform = OrText::of("delay"))]
pub struct ToffeeSpec {
    /// The constant service time of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// The service time that grows with the packet: microseconds = L2 bytes / factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<Factor>,
    /// The drop factor k: a loss of 5.5 % / k^2.5 in each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<Factor>,
    /// The size of the queue; 1000 packets when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
}

impl ToffeeSpec {
    pub(crate) fn server(&self) -> Effect {
        let delay = self.delay.unwrap_or_default();
        if delay == Nanos::ZERO && self.dynamic.is_none() {
            return Effect::Nothing;
        }
        let queue: QueueLimit = self.queue.unwrap_or(DEFAULT_TOFFEE_QUEUE);
        Effect::Toffee(Toffee {
            delay,
            dynamic: self.dynamic,
            queue: queue.into(),
        })
    }

    /// Returns the loss in each direction.
    pub(crate) fn loss(&self) -> Result<Probability, Error> {
        let Some(k) = self.drop else {
            return Ok(Probability::ZERO);
        };
        if k.get() < 1.0 {
            let why = format_args!("{k} is out of range: a drop factor is at least 1");
            return Err(Error::other(why).at("drop").at("toffee"));
        }
        Ok(loss_of(k))
    }
}

impl FromStr for ToffeeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read::text(text)
    }
}

/// Returns the loss in each direction that TOFFEE-Mocha's drop factor `k`, which is at least 1, represents: 5.5 % /
/// k^2.5.
///
/// TOFFEE-Mocha publishes no law. This one is fitted to the downloads in The TOFFEE Project, "TOFFEE-Mocha test cases,
/// Raspberry Pi", 2016, cases 6 (k = 1: 0.70 MB/s) and 7 (k = 2: 5.5 MB/s), by a sweep over the loss on the same
/// reference path (CUBIC, 60 Mb/s, 1.86 ms RTT), which needed 5.5 % and 0.95 %. The published pings (2 of 13 and 0 of 9
/// lost) agree.
fn loss_of(k: Factor) -> Probability {
    let k = k.get();
    let percent = 5.5 / (k * k * k.sqrt());
    Probability::from_percent(percent).expect("0 to 5.5")
}
