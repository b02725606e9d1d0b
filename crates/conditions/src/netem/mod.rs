//! netem's options as one condition, in tc's own words: `delay 100ms 10ms loss 1%` (tc-netem(8); iproute2, `tc/q_netem.c`).
//!
//! What tc reads is read and means the same, shortened options too; what tc refuses is refused. Beside that are refused a time without a
//! unit, which is microseconds before iproute2 6.9 and nanoseconds since, an option given twice, of which tc takes the last,
//! and values with which netem does nothing, or drops everything.

mod notes;
mod options;
mod words;
mod write;

use model::Netem;

pub(crate) use self::notes::notes;
use self::words::Words;

/// The netem that tc's options say: `delay 100ms 10ms 25% loss gemodel 1% 10%`.
///
/// # Errors
/// What tc would refuse, and what the module refuses beside that, with the option.
pub(crate) fn parse(text: &str) -> Result<Netem, String> {
    options::read(&mut Words::of(text))
}

#[cfg(test)]
mod tests;
