//! A part of an experiment's runs, for one of several hosts.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::Display as Words;

/// More shards than anyone has hosts.
const MOST: u32 = 10_000;

/// Which shard of how many, as on a command line: "3/16".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShardNumber {
    /// From 1.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

/// What is never parted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Words,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ShardBy {
    /// A run; where the scatter of its runs decides how many a case has, the case.
    #[default]
    Run,
    /// A case with all its repeats.
    Case,
}

/// The runs of one shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Which one.
    #[serde(flatten)]
    pub number: ShardNumber,
    /// How the runs were parted.
    pub by: ShardBy,
    /// Its repeats of each case that it has some of, ascending; all that there may be of one whose scatter decides.
    pub runs: BTreeMap<String, Vec<u32>>,
}

impl Shard {
    /// Whether this run is its own.
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
    /// Refuses a shard that is none of its number, and more shards than there can be.
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
    fn a_shard_is_one_of_so_many() {
        assert_eq!("3/16".parse(), Ok(ShardNumber { index: 3, of: 16 }));
        for (text, cause) in [
            ("0/4", "shards are numbered from 1"),
            ("5/4", "the last 4/4"),
            ("1/0", "the number of shards must be 1 to 10000"),
            ("1/10001", "the number of shards must be 1 to 10000"),
            ("x", "as 3/16"),
            ("1/x", "as 3/16"),
            ("-1/4", "as 3/16"),
            ("4294967296/4294967297", "as 3/16"),
        ] {
            let error = text.parse::<ShardNumber>().unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }

    #[test]
    fn it_has_its_own_runs_and_no_others() {
        let text = r#"{"index":2,"of":3,"by":"run","runs":{"a":[1,4]}}"#;
        let shard: Shard = serde_json::from_str(text).unwrap();
        assert!(shard.has("a", 1) && shard.has("a", 4));
        assert!(!shard.has("a", 2) && !shard.has("b", 1));
        assert_eq!(serde_json::to_string(&shard).unwrap(), text);
    }
}
