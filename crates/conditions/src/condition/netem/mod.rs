//! netem's options as one condition, with tc's names: `delay 100ms 10ms loss 1%` (tc-netem(8); iproute2,
//! `tc/q_netem.c`).
//!
//! Options that tc reads, also shortened ones and none at all, are read and have the same meaning; options that tc
//! refuses are refused. `docs/netem.md` lists the differences, and a test compares the verdicts of tc's own parser, which
//! `verdicts.txt` has, with those of this one. Most differences are a time without a unit, which means microseconds
//! before iproute2 6.9 and nanoseconds since; an option given twice, of which tc takes the last; and values with which
//! netem does nothing or drops everything.

mod notes;
mod options;
mod values;
mod write;

use model::Netem;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

pub(crate) use self::notes::notes;
use super::{describe, text_form};
use crate::tc_words::Words;

/// One netem, written as tc's options: `delay 100ms 10ms 25% loss gemodel 1% 10%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
pub struct NetemSpec(#[schemars(with = "String")] pub Netem);

describe! {
    NetemSpec: "netem" = "OPTIONS", as in "delay 100ms 10ms loss 1%", shapes Netem;
    "Options of tc-netem(8): \"delay 100ms 10ms loss 1%\"" + "They have the same effect as in the kernel's netem"
}

text_form!(NetemSpec);

impl<'de> Deserialize<'de> for NetemSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let netem = options::read(&mut Words::of(&text));
        netem.map(Self).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
