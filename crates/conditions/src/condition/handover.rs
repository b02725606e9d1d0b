//! Handovers of a moving terminal or satellite.

use std::fmt;

use model::{Nanos, Probability};
use schemars::JsonSchema;
use serde::Deserialize;

use super::outage::SHORTEST;
use super::{describe, text_form};
use crate::read::OrText;

/// Handovers that come at regular times, written `every=15s,hold=60ms,loss=1%,delay=5ms` or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as every=15s,hold=60ms,loss=1%,delay=5ms, or a table"
)]
#[schemars(transform = OrText::of("every"))]
pub struct HandoverSpec {
    /// The time from one handover to the next. The first one comes after that time.
    pub every: Nanos,
    /// The time for which packets are held; they leave in order when it is over.
    pub hold: Nanos,
    /// The share of packets that are lost while a handover lasts, in place of being held.
    #[serde(default)]
    pub loss: Option<Probability>,
    /// The most by which each handover moves the delay, up or down from the delay that is stated. It is the same for both
    /// directions.
    #[serde(default)]
    pub delay: Option<Nanos>,
}

describe! {
    HandoverSpec: "handover" = "KEY=VALUE,...", as in "every=15s,hold=60ms,loss=1%,delay=5ms", shapes Handover;
    "Handovers to another cell or satellite: every=15s,hold=60ms"
    + "Packets are held during a handover and leave in order. loss=1% drops this share of the packets that arrive during a handover; \
       delay=5ms changes the delay by up to 5 ms, up or down, at each handover: every=15s,hold=60ms,loss=1%,delay=5ms"
}

impl HandoverSpec {
    fn check(&self) -> Result<(), String> {
        let Self { every, hold, .. } = self;
        if *hold < SHORTEST || hold >= every {
            return Err(format!(
                "hold: {hold} is out of range: it is at least {SHORTEST} and below the {every} of `every`"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for HandoverSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every={},hold={}", self.every, self.hold)?;
        if let Some(loss) = self.loss {
            write!(f, ",loss={loss}")?;
        }
        self.delay
            .map_or(Ok(()), |delay| write!(f, ",delay={delay}"))
    }
}

text_form!(HandoverSpec, checked);
