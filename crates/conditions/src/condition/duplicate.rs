//! Copies of packets.

use std::fmt;

use model::{Duplication, Effect, Nanos, Probability};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{describe, text_form};
use crate::read::OrText;

/// Copies, written `1%` or `1%,delay=5ms`, or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a text such as 1%,delay=5ms, or a table"
)]
#[schemars(transform = OrText::of("share"))]
pub struct DuplicateSpec {
    /// The share of packets that are followed by a copy.
    pub share: Probability,
    /// The time by which the copy follows later; 0 when absent.
    #[serde(default)]
    pub delay: Nanos,
}

describe! {
    DuplicateSpec: "duplicate" = "PERCENT[,delay=TIME]", as in "1%,delay=5ms", shapes Duplicate;
    "Share of packets that are duplicated: 1%" + "The copy follows immediately, or with delay=5ms after this time: 1%,delay=5ms"
}

impl DuplicateSpec {
    pub(crate) fn effect(self) -> Effect {
        let Self { share, delay } = self;
        Effect::Duplicate(Duplication { share, delay })
    }
}

impl fmt::Display for DuplicateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.share.fmt(f)?;
        match self.delay {
            Nanos::ZERO => Ok(()),
            delay => write!(f, ",delay={delay}"),
        }
    }
}

text_form!(DuplicateSpec);
