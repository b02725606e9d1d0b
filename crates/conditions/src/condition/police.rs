//! A policer.

use std::fmt;

use model::{BitsPerSec, Bytes, Effect, Police};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{describe, refuse_out_of_range, text_form};
use crate::read::OrText;

/// A policer, written `10mbit,burst=64KiB` or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as 10mbit,burst=64KiB, or a table"
)]
#[schemars(transform = OrText::of("rate"))]
pub struct PoliceSpec {
    /// The rate that may pass, in L2 bytes without FCS.
    pub rate: BitsPerSec,
    /// The bytes by which traffic may exceed the rate after a time without packets.
    pub burst: Bytes,
}

describe! {
    PoliceSpec: "police" = "RATE,burst=SIZE", as in "10mbit,burst=64KiB", shapes Police;
    "Drop traffic above this rate, allowing bursts" + "For example 10mbit,burst=64KiB. Nothing waits; --rate queues instead"
}

impl PoliceSpec {
    pub(crate) fn to_model(self) -> Police {
        let Self { rate, burst } = self;
        Police { rate, burst }
    }

    fn check(&self) -> Result<(), String> {
        refuse_out_of_range(Effect::Police(self.to_model()))
    }
}

impl fmt::Display for PoliceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},burst={}", self.rate, self.burst)
    }
}

text_form!(PoliceSpec, checked);
