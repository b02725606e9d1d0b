//! The words of an option string, and the quantities among them as tc reads them.

use std::fmt::Display;
use std::str::FromStr;

use model::{Nanos, Probability};

/// Words separated by white space, and how many of them were read.
#[derive(Debug)]
pub(super) struct Words<'a> {
    all: Vec<&'a str>,
    read: usize,
}

/// Units of rates in bits per second; tc's `bps` are bytes per second.
const RATES: &[(&str, f64)] = &[
    ("", 1.0),
    ("bit", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("tbit", 1e12),
    ("kibit", 1_024.0),
    ("mibit", 1_048_576.0),
    ("gibit", 1_073_741_824.0),
    ("tibit", 1_099_511_627_776.0),
    ("bps", 8.0),
    ("kbps", 8e3),
    ("mbps", 8e6),
    ("gbps", 8e9),
    ("tbps", 8e12),
    ("kibps", 8_192.0),
    ("mibps", 8_388_608.0),
    ("gibps", 8_589_934_592.0),
    ("tibps", 8_796_093_022_208.0),
];

/// Units of sizes; tc's multiples are powers of 1024.
const SIZES: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1 << 30),
];

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self {
            all: text.split_whitespace().collect(),
            read: 0,
        }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.all.get(self.read).copied()?;
        self.read += 1;
        Some(word)
    }

    /// Returns the next word, which `option` needs; `right` is an example of it.
    pub(super) fn need(&mut self, option: &str, right: &str) -> Result<&'a str, String> {
        self.next()
            .ok_or_else(|| format!("{option}: its value is missing: {right}"))
    }

    /// Returns the next word if it is a number, which begins with a digit.
    pub(super) fn number(&mut self) -> Option<&'a str> {
        self.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Returns the next word if it is a number, which may begin with a minus sign.
    pub(super) fn signed_number(&mut self) -> Option<&'a str> {
        self.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
    }

    /// Reads the next word if it is `option` or its beginning, and returns whether it was.
    pub(super) fn option(&mut self, option: &str) -> bool {
        self.next_if(|word| option.starts_with(word)).is_some()
    }

    fn next_if(&mut self, is_right: impl Fn(&str) -> bool) -> Option<&'a str> {
        let word = self.all.get(self.read).copied()?;
        is_right(word).then(|| {
            self.read += 1;
            word
        })
    }
}

/// Reads a percentage; the percent sign is optional, as in tc.
pub(super) fn percent(option: &str, word: &str) -> Result<Probability, String> {
    let number = word.strip_suffix('%').unwrap_or(word);
    let share = format!("{number}%").parse();
    share.map_err(|cause| format!("{option}: {cause}"))
}

/// Reads a time, which needs a unit.
pub(super) fn time(option: &str, word: &str) -> Result<Nanos, String> {
    let is_bare = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    word.parse().map_err(|cause| {
        if is_bare {
            format!(
                "{option}: {cause} (tc takes it for {word}us before iproute2 6.9, and for {word}ns since)"
            )
        } else {
            format!("{option}: {cause}")
        }
    })
}

/// Reads a rate in whole bytes per second, rounded down as by tc.
pub(super) fn rate(word: &str) -> Result<u64, String> {
    let right = "write it as 10mbit, or in bytes per second as 1mbps";
    if word.ends_with('%') {
        return Err(format!(
            "rate: `{word}` is a share of a device's speed, and a link has none: {right}"
        ));
    }
    let wrong = || format!("rate: `{word}` is not a rate: {right}");
    let (number, unit) = split(word).ok_or_else(wrong)?;
    let is_unit = |(name, _): &&(&str, f64)| name.eq_ignore_ascii_case(unit);
    let (_, bits) = RATES.iter().find(is_unit).ok_or_else(wrong)?;
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * bits / 8.0;
    if bytes < 1.0 {
        return Err(format!(
            "rate: `{word}` is below a byte per second, which netem takes for no limit: leave rate out, or {right}"
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above 0 and below 10^15"
    )]
    if bytes <= 1e15 {
        Ok(bytes as u64)
    } else {
        Err(format!("rate: `{word}` is out of range: {right}"))
    }
}

/// Reads a number of bytes or of packets: k, m and g are multiples of 1024.
pub(super) fn size(option: &str, word: &str) -> Result<u32, String> {
    let wrong = || format!("{option}: `{word}` is not a number such as 1000 or 10k");
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = word.split_at(digits);
    let is_unit = |(name, _): &&(&str, u64)| name.eq_ignore_ascii_case(unit);
    let (_, multiple) = SIZES.iter().find(is_unit).ok_or_else(wrong)?;
    let number: u64 = whole(option, number).map_err(|_| wrong())?;
    number
        .checked_mul(*multiple)
        .and_then(|size| u32::try_from(size).ok())
        .ok_or_else(|| format!("{option}: `{word}` is out of range: at most {}", u32::MAX))
}

/// Reads an integer.
pub(super) fn whole<T: FromStr<Err: Display>>(option: &str, word: &str) -> Result<T, String> {
    word.parse()
        .map_err(|cause| format!("{option}: `{word}` is not a whole number in its range: {cause}"))
}

/// Splits a word into a decimal number and its unit.
fn split(word: &str) -> Option<(&str, &str)> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (number, unit) = word.split_at(word.len() - rest.len());
    number
        .starts_with(|c: char| c.is_ascii_digit())
        .then_some((number, unit))
}
