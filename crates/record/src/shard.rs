//! A part of an experiment's runs, for one of several hosts.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::Display as Words;

/// Largest number of shards, which is more than anyone has hosts.
const MOST: u32 = 1_000;

/// The number of a shard among all shards, as on a command line: "3/16".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShardNumber {
    /// The number of this shard, from 1.
    pub index: u32,
    /// The number of all shards.
    pub of: u32,
}

/// The unit that is never divided between shards.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Words,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ShardBy {
    /// A run is the unit; for a case whose number of repeats depends on their scatter, the case is.
    #[default]
    Run,
    /// A case with all its repeats is the unit.
    Case,
}

/// The runs of one shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// The number of the shard.
    #[serde(flatten)]
    pub number: ShardNumber,
    /// The unit by which the runs were divided.
    pub by: ShardBy,
    /// The shard's repeats of each of its cases, in ascending order. A case whose number of repeats depends on their
    /// scatter has all that it may need.
    pub runs: BTreeMap<String, Vec<u32>>,
}

impl Shard {
    /// Returns whether this run belongs to the shard.
    pub fn has(&self, case: &str, repeat: u32) -> bool {
        let repeats = self.runs.get(case);
        repeats.is_some_and(|repeats| repeats.binary_search(&repeat).is_ok())
    }
}

impl Display for ShardNumber {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for ShardNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('/').and_then(|(index, of)| {
            let index = index.parse().ok()?;
            Some(Self {
                index,
                of: of.parse().ok()?,
            })
        });
        let number: Self = numbers.ok_or("write the shard and the number of shards, as in 3/16")?;
        number.check()?;
        Ok(number)
    }
}

impl ShardNumber {
    /// Checks that the number of the shard and the number of shards are in range.
    pub(crate) fn check(self) -> Result<(), String> {
        let Self { index, of } = self;
        if !(1..=MOST).contains(&of) {
            return Err(format!("the number of shards must be 1 to {MOST}"));
        }
        if !(1..=of).contains(&index) {
            return Err(format!(
                "shards are numbered from 1: the first is 1/{of}, the last {of}/{of}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_number_is_in_range() {
        assert_eq!("3/16".parse(), Ok(ShardNumber { index: 3, of: 16 }));
        for (text, cause) in [
            ("0/4", "shards are numbered from 1"),
            ("5/4", "the last 4/4"),
            ("1/0", "the number of shards must be 1 to 1000"),
            ("1/1001", "the number of shards must be 1 to 1000"),
            ("x", "as in 3/16"),
            ("1/x", "as in 3/16"),
            ("-1/4", "as in 3/16"),
            ("4294967296/4294967297", "as in 3/16"),
        ] {
            let error = text.parse::<ShardNumber>().unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }

    #[test]
    fn a_shard_has_only_its_runs() {
        let text = r#"{"index":2,"of":3,"by":"run","runs":{"a":[1,4]}}"#;
        let shard: Shard = serde_json::from_str(text).unwrap();
        assert!(shard.has("a", 1) && shard.has("a", 4));
        assert!(!shard.has("a", 2) && !shard.has("b", 1));
        assert_eq!(serde_json::to_string(&shard).unwrap(), text);
    }
}
