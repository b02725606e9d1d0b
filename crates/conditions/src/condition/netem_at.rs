//! The place of netem beside the rate.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Needs, describe, text_form};

/// The place of netem beside the rate and its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetemAtSpec {
    /// Packets meet netem first, and then wait for the rate, as in tc.
    BeforeRate,
    /// Packets wait for the rate first, and then meet netem.
    #[default]
    AfterRate,
}

describe! {
    NetemAtSpec: "netem_at" = "PLACE", as in "before-rate", shapes Netem needs Needs::Netem("`netem_at` is the place of netem");
    "Place of netem: before-rate, as in tc [default: after-rate]"
    + "With before-rate, packets pass netem first and then wait for the rate. tc does so whether netem is above or below tbf or htb"
}

impl fmt::Display for NetemAtSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeRate => "before-rate",
            Self::AfterRate => "after-rate",
        })
    }
}

text_form!(NetemAtSpec);
