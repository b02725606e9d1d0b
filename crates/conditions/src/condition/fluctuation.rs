//! A rate that varies.

use std::fmt;

use model::{Fluctuation, Nanos, Probability};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Needs, describe};
use crate::read::OrText;

/// A rate that is drawn anew periodically, independently in each direction; every value within the spread is equally
/// likely. It is written as a table or as `spread=20%,hold=5s`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a text such as spread=20%,hold=5s, or a table"
)]
#[schemars(transform = OrText::of("spread"))]
pub struct FluctuationSpec {
    /// The largest deviation from the rate, in percent of the rate; below 100 %.
    pub spread: Probability,
    /// The time that each value lasts, 1 ms to 1 h.
    pub hold: Nanos,
}

describe! {
    FluctuationSpec: "fluctuation" = "KEY=VALUE,...", as in "spread=20%,hold=5s", shapes Rate needs Needs::Rate("a fluctuation varies a rate");
    "Let the rate vary: spread=20%,hold=5s" + "The rate is drawn anew after each hold time, uniformly from RATE - spread to RATE + spread"
}

impl FluctuationSpec {
    pub(crate) fn to_model(self) -> Fluctuation {
        let Self { spread, hold } = self;
        Fluctuation { spread, hold }
    }
}

impl fmt::Display for FluctuationSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spread={},hold={}", self.spread, self.hold)
    }
}
