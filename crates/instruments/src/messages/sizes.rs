//! Message sizes, and the number of messages of each size.

use record::quantity::counted;
use std::fmt;
use std::str::FromStr;

use crate::codec::as_text;
use crate::error::{Context, Error, Result, bail, ensure};
use clap::ValueEnum;
use model::Bytes;
use serde::{Deserialize, Serialize};

/// Messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLoad {
    /// Size of a message in bytes.
    pub size: usize,
    /// Number of messages in a run.
    pub(crate) count: u64,
}

/// Message sizes in the text form `64`, `1,2,4` or `1..131072`, which doubles and includes the last size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageSizes(Vec<usize>);

/// A sweep that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sweep {
    /// The 25 sizes of nettest's tables, 1 to 131,072 bytes, with their iteration counts
    Nettest,
}

/// nettest's sizes with its iterations of pingpong and of blast ("Experiment on Oct 10" with nettest, kernel 2.4.10).
const NETTEST: [(usize, u64, u64); 25] = [
    (1, 100_000, 1_000_000),
    (2, 100_000, 1_000_000),
    (4, 100_000, 1_000_000),
    (8, 100_000, 1_000_000),
    (16, 100_000, 1_000_000),
    (32, 100_000, 1_000_000),
    (64, 100_000, 1_000_000),
    (128, 100_000, 100_000),
    (256, 100_000, 100_000),
    (512, 100_000, 100_000),
    (1024, 100_000, 10_000),
    (2048, 1_000, 10_000),
    (3072, 10_000, 10_000),
    (4096, 10_000, 10_000),
    (5120, 10_000, 10_000),
    (6144, 10_000, 10_000),
    (7168, 10_000, 10_000),
    (8192, 10_000, 10_000),
    (9216, 10_000, 10_000),
    (10_240, 1_000, 10_000),
    (16_384, 1_000, 100_000),
    (32_768, 1_000, 100_000),
    (65_536, 1_000, 100_000),
    (98_304, 1_000, 100_000),
    (131_072, 1_000, 100_000),
];

/// The eight block sizes of "Perl TCP Transfer Test".
pub(crate) const TRANSFER_BLOCKS: [usize; 8] =
    [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];

/// The most sizes in a list.
const MOST: usize = 100;

impl MessageSizes {
    #[cfg(test)]
    pub(crate) fn of(sizes: &[usize]) -> Self {
        Self(sizes.into())
    }

    /// Returns the sizes in the order of the text.
    pub fn list(&self) -> &[usize] {
        &self.0
    }

    /// Returns `count` messages of each size.
    pub(crate) fn loads(&self, count: u64) -> Vec<MessageLoad> {
        let load = |&size| MessageLoad { size, count };
        self.0.iter().map(load).collect()
    }
}

impl MessageLoad {
    /// Describes the message `number` for an error message.
    pub(super) fn message(self, number: u64) -> String {
        let size = counted(self.size, "byte");
        format!("message {number} of {} of {size}", self.count)
    }
}

impl Sweep {
    /// Returns the sweep of pingpong, with its own counts or with counts scaled so that the largest is `most`.
    pub(crate) fn pingpong(self, most: Option<u64>) -> Vec<MessageLoad> {
        scaled(NETTEST.iter().map(|&(size, count, _)| (size, count)), most)
    }

    /// Returns the sweep of blast, with its own counts or with counts scaled so that the largest is `most`.
    pub fn blast(self, most: Option<u64>) -> Vec<MessageLoad> {
        scaled(NETTEST.iter().map(|&(size, _, count)| (size, count)), most)
    }
}

fn scaled(
    sweep: impl Iterator<Item = (usize, u64)> + Clone,
    most: Option<u64>,
) -> Vec<MessageLoad> {
    let own = sweep.clone().map(|(_, count)| count).max().unwrap_or(1);
    let most = most.unwrap_or(own);
    let count = |count: u64| (u128::from(count) * u128::from(most) / u128::from(own)).max(1);
    sweep
        .map(|(size, of)| MessageLoad {
            size,
            count: u64::try_from(count(of)).unwrap_or(u64::MAX),
        })
        .collect()
}

impl FromStr for MessageSizes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(size(part)?),
                Some((low, high)) => {
                    let (low, high) = (size(low)?, size(high)?);
                    ensure!(Input, low <= high, "{part}: the range is descending");
                    let doubling = std::iter::successors(Some(low), |size| size.checked_mul(2));
                    sizes.extend(doubling.take_while(|size| *size < high));
                    sizes.push(high);
                }
            }
            ensure!(Input, sizes.len() <= MOST, "more than {MOST} sizes");
        }
        let mut numbered = sizes.iter().enumerate();
        if let Some((_, size)) = numbered.find(|(at, size)| sizes[..*at].contains(size)) {
            bail!(Input, "{size} comes twice");
        }
        Ok(Self(sizes))
    }
}

fn size(text: &str) -> Result<usize> {
    let bytes: Bytes = match text.parse::<u64>() {
        Ok(plain) => Bytes(plain),
        Err(_) => text.trim().parse()?,
    };
    if bytes.0 == 0 {
        bail!(Input, "a message must have at least 1 byte");
    }
    usize::try_from(bytes.0).context("too large")
}

as_text!(MessageSizes);

impl fmt::Display for MessageSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_one_a_list_or_a_doubling_range() {
        for (text, sizes) in [
            ("64", "64"),
            ("1,100,10", "1,100,10"),
            ("1..8", "1,2,4,8"),
            ("1..10", "1,2,4,8,10"),
            ("5..5", "5"),
            ("1KiB..4KiB,10kb", "1024,2048,4096,10000"),
        ] {
            assert_eq!(text.parse::<MessageSizes>().unwrap().to_string(), sizes);
        }
        let all: MessageSizes = "1..131072".parse().unwrap();
        assert_eq!(all.list().len(), 18);
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "0", "-1", "8..1", "1..", "a", "1,,2", "4,1..8"] {
            assert!(text.parse::<MessageSizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_sweep_has_nettests_counts_and_scales_them() {
        let whole = Sweep::Nettest.pingpong(None);
        assert_eq!(whole.len(), 25);
        assert_eq!(
            whole[0],
            MessageLoad {
                size: 1,
                count: 100_000
            }
        );
        assert_eq!(
            whole[11],
            MessageLoad {
                size: 2048,
                count: 1_000
            }
        );
        let scaled = Sweep::Nettest.blast(Some(1_000));
        assert_eq!(
            scaled[0],
            MessageLoad {
                size: 1,
                count: 1_000
            }
        );
        assert_eq!(
            scaled[10],
            MessageLoad {
                size: 1024,
                count: 10
            }
        );
        assert_eq!(Sweep::Nettest.blast(Some(1))[24].count, 1);
    }
}
