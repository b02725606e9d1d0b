//! Packets that skip the delay.

use std::fmt;
use std::num::NonZeroU32;

use model::{Probability, Reorder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Needs, describe, text_form};
use crate::read::OrText;

/// Packets that skip the delay, written `5%` or `5%,gap=3`, or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a text such as 5%,gap=3, or a table")]
#[schemars(transform = OrText::of("share"))]
pub struct ReorderSpec {
    /// The share of packets that skip the delay, among those that may.
    pub share: Probability,
    /// The distance in packets from one that skips the delay to the next that may; 1 when absent.
    #[serde(default = "one")]
    pub gap: NonZeroU32,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

describe! {
    ReorderSpec: "reorder" = "PERCENT[,gap=N]", as in "5%,gap=3", shapes Delay needs Needs::Delay("reordered packets skip a delay");
    "Share of packets that skip the delay: 5%" + "With gap=3, a packet can skip the delay only after at least two delayed packets: 5%,gap=3"
}

impl ReorderSpec {
    /// Returns the model's law; `None` if no packet skips the delay.
    pub(crate) fn to_model(self) -> Option<Reorder> {
        let Self { share, gap } = self;
        (share > Probability::ZERO).then_some(Reorder { share, gap })
    }
}

impl fmt::Display for ReorderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.share.fmt(f)?;
        match self.gap.get() {
            1 => Ok(()),
            gap => write!(f, ",gap={gap}"),
        }
    }
}

text_form!(ReorderSpec);
