//! The values of netem's options as tc reads them, with advice for what it or farwire refuses.

use std::fmt::Display;

use model::{Nanos, Probability};

use crate::tc_number::{self, Wrong};

/// Reads a percentage; the percent sign is optional, as in tc.
pub(super) fn percent(option: &str, word: &str) -> Result<Probability, String> {
    let right = "write a percentage from 0% to 100%, as in 0.1%";
    let share = tc_number::percent(word)
        .and_then(|percent| Probability::from_percent(percent).map_err(|_| Wrong::OutOfRange));
    share.map_err(|wrong| refused(option, word, wrong, "a percentage", right))
}

/// Reads a time, which needs a unit unless it is 0.
pub(super) fn time(option: &str, word: &str) -> Result<Nanos, String> {
    let right = "write a time with ns, us, ms, s, min or h, as in 20ms";
    tc_number::time(word).map_err(|wrong| match wrong {
        // The times of slots have 64 bits in every version of tc.
        Wrong::NoUnit if option.starts_with("slot") => {
            format!("{option}: `{word}` has no unit: {right} (tc takes it for {word}ns)")
        }
        Wrong::NoUnit => format!(
            "{option}: `{word}` has no unit: {right} (tc takes it for {word}us before iproute2 6.9, and for {word}ns since)"
        ),
        wrong => refused(option, word, wrong, "a time", right),
    })
}

/// Reads a rate in whole bytes per second, rounded down as by tc.
pub(super) fn rate(word: &str) -> Result<u64, String> {
    const OPTION: &str = "rate";
    let right = "write it as 10mbit, or in bytes per second as 1mbps";
    if word.ends_with('%') {
        return Err(format!(
            "rate: `{word}` is a share of a device's speed, and a link has none: {right}"
        ));
    }
    match tc_number::rate(word) {
        Ok(0) => Err(format!(
            "rate: `{word}` is below a byte per second, which netem takes for no limit: leave rate out, or {right}"
        )),
        read => read.map_err(|wrong| refused(OPTION, word, wrong, "a rate", right)),
    }
}

/// Reads a number of bytes or of packets: k, m and g are multiples of 1024.
pub(super) fn size(option: &str, word: &str) -> Result<u32, String> {
    let right = format!("write a number such as 1000 or 10k, at most {}", u32::MAX);
    tc_number::size(word).map_err(|wrong| refused(option, word, wrong, "a number", &right))
}

/// Reads an integer: decimal, hexadecimal as in 0x10, or octal as in 010.
pub(super) fn whole<T: TryFrom<i128>>(option: &str, word: &str, right: &str) -> Result<T, String> {
    let read = tc_number::integer(word, 0).ok_or(Wrong::Malformed);
    let read = read.and_then(|number| T::try_from(number).map_err(|_| Wrong::OutOfRange));
    read.map_err(|wrong| refused(option, word, wrong, "a whole number", right))
}

fn refused(
    option: &str,
    word: &str,
    wrong: Wrong,
    what: impl Display,
    right: impl Display,
) -> String {
    match wrong {
        Wrong::OutOfRange => format!("{option}: `{word}` is out of range: {right}"),
        Wrong::Malformed | Wrong::NoUnit => {
            format!("{option}: `{word}` is not {what}: {right}")
        }
    }
}
