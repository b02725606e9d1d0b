//! All that Linux's netem does, in tc's words.

use model::Netem;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::describe;
use crate::netem;

/// One netem, written as tc's options: `delay 100ms 10ms 25% loss gemodel 1% 10%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(extend("pattern" = ".+"))]
pub struct NetemSpec(#[schemars(with = "String")] pub Netem);

describe! {
    NetemSpec: "netem" = "OPTIONS", as in "delay 100ms 10ms loss 1%", shapes Netem;
    "What Linux's netem does, in tc's words: \"delay 100ms 10ms loss 1% 25%\""
}

impl Serialize for NetemSpec {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NetemSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        netem::parse(&text).map(Self).map_err(de::Error::custom)
    }
}
