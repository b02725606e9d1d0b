//! netem's options as one condition, in tc's own words: `delay 100ms 10ms loss 1%` (tc-netem(8); iproute2, `tc/q_netem.c`).
//!
//! What tc reads is read and means the same, shortened options too; what tc refuses is refused. Beside that are refused a time without a
//! unit, which is microseconds before iproute2 6.9 and nanoseconds since, an option given twice, of which tc takes the last,
//! and values with which netem does nothing, or drops everything.

mod notes;
mod options;
mod words;
mod write;

use std::str::FromStr;

use model::Netem;

pub(super) use self::notes::notes;
use self::words::Words;

/// One netem, written as tc's options: `delay 100ms 10ms 25% loss gemodel 1% 10%`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NetemSpec(pub Netem);

impl FromStr for NetemSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        options::read(&mut Words::of(text)).map(Self)
    }
}

#[cfg(test)]
mod tests;
