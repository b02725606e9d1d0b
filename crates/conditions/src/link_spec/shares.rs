//! Conditions that are a share of the packets and what is done to them: a percentage, and options behind it.

use std::fmt;
use std::marker::PhantomData;
use std::num::{NonZeroU8, NonZeroU32};
use std::str::FromStr;

use model::{Corruption, Duplication, Nanos, Probability, Reorder};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{Text, parts, pattern, read_from_text, serialized_as_text};

/// Packets that pass the delay at once, written `5%` or `5%,gap=3`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReorderSpec(pub Reorder);

/// Copies, written `1%` or `1%,delay=5ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplicateSpec(pub Duplication);

/// Flipped bits, written `0.1%`, `0.1%,bits=2` or `0.1%,repair`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CorruptSpec(pub Corruption);

/// A share, and its options by `read`, which takes an option's key and value and knows `right` ones; none comes twice.
fn share_with(
    text: &str,
    right: &str,
    mut read: impl FnMut(&str, &str) -> Option<()>,
) -> Result<Probability, String> {
    let (share, options) = text.split_once(',').unwrap_or((text, ""));
    let share = share.trim().parse().map_err(|cause| format!("{cause}"))?;
    let mut given: Vec<&str> = Vec::new();
    for option in parts(options) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if given.contains(&key) {
            return Err(format!("{key}: given twice"));
        }
        given.push(key);
        read(key.trim(), value.trim()).ok_or_else(|| format!("`{option}`: {right}"))?;
    }
    Ok(share)
}

impl ReorderSpec {
    /// Nothing where no packet passes.
    pub(super) fn to_model(self) -> Option<Reorder> {
        (self.0.share > Probability::ZERO).then_some(self.0)
    }
}

impl FromStr for ReorderSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut gap = NonZeroU32::MIN;
        let right = "behind the share comes gap=3, from which packet on one may pass, 1 or more";
        let share = share_with(text, right, |key, value| match key {
            "gap" => value.parse().map(|count| gap = count).ok(),
            _ => None,
        })?;
        Ok(Self(Reorder { share, gap }))
    }
}

impl fmt::Display for ReorderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reorder { share, gap } = self.0;
        share.fmt(f)?;
        match gap.get() {
            1 => Ok(()),
            gap => write!(f, ",gap={gap}"),
        }
    }
}

impl FromStr for DuplicateSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut delay = Nanos::ZERO;
        let right = "behind the share comes delay=5ms, by which copies go on later";
        let share = share_with(text, right, |key, value| match key {
            "delay" => value.parse().map(|time| delay = time).ok(),
            _ => None,
        })?;
        Ok(Self(Duplication { share, delay }))
    }
}

impl fmt::Display for DuplicateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Duplication { share, delay } = self.0;
        share.fmt(f)?;
        match delay {
            Nanos::ZERO => Ok(()),
            delay => write!(f, ",delay={delay}"),
        }
    }
}

impl FromStr for CorruptSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut bits, mut repair) = (NonZeroU8::MIN, false);
        let right =
            "behind the share come bits=2, from 1 to 255, and repair, which mends the checksum";
        let share = share_with(text, right, |key, value| match (key, value) {
            ("bits", _) => value.parse().map(|count| bits = count).ok(),
            ("repair", "") => {
                repair = true;
                Some(())
            }
            _ => None,
        })?;
        Ok(Self(Corruption {
            share,
            bits,
            repair,
        }))
    }
}

impl fmt::Display for CorruptSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption {
            share,
            bits,
            repair,
        } = self.0;
        share.fmt(f)?;
        if bits > NonZeroU8::MIN {
            write!(f, ",bits={bits}")?;
        }
        f.write_str(if repair { ",repair" } else { "" })
    }
}

serialized_as_text!(ReorderSpec, DuplicateSpec, CorruptSpec);
read_from_text! {
    DuplicateSpec: "\"1%\", or \"1%,delay=5ms\".",
        |generator| {
            let time = pattern::<Nanos>(generator);
            format!("{}( *, *delay=({time}))?", pattern::<Probability>(generator))
        };
    CorruptSpec: "\"0.1%\", perhaps with options: \"0.1%,bits=2,repair\".",
        |generator| format!("{}( *, *(bits=[0-9]+|repair))*", pattern::<Probability>(generator));
    ReorderSpec: "\"5%\", or \"5%,gap=3\".",
        |generator| format!("{}( *, *gap=[0-9]+)?", pattern::<Probability>(generator));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_written<T: FromStr<Err = String> + fmt::Display>(texts: &[&str]) {
        for text in texts {
            let value: T = text
                .parse()
                .unwrap_or_else(|cause| panic!("{text}: {cause}"));
            assert_eq!(value.to_string(), *text);
        }
    }

    fn refused<T: FromStr<Err = String> + fmt::Debug>(text: &str, cause: &str) {
        let error = text.parse::<T>().unwrap_err();
        assert!(error.contains(cause), "{error}");
    }

    #[test]
    fn each_prints_as_it_was_written() {
        as_written::<ReorderSpec>(&["5%", "5%,gap=3"]);
        as_written::<DuplicateSpec>(&["1%", "1%,delay=5ms"]);
        as_written::<CorruptSpec>(&["0.1%", "0.1%,bits=2", "0.1%,repair", "1%,bits=3,repair"]);
    }

    #[test]
    fn what_is_wrong_comes_with_what_would_be_right() {
        refused::<ReorderSpec>("5", "%");
        refused::<ReorderSpec>("5%,gap=0", "`gap=0`: behind the share comes gap=3");
        refused::<ReorderSpec>("5%,gap", "gap=3");
        refused::<ReorderSpec>("5%,extent=3", "gap=3");
        refused::<ReorderSpec>("5%,gap=3,gap=4", "gap: given twice");
        refused::<DuplicateSpec>("1%,delay=5", "`delay=5`: behind the share comes delay=5ms");
        refused::<DuplicateSpec>("1%,5ms", "delay=5ms");
        refused::<CorruptSpec>("0.1%,bits=0", "bits=2, from 1 to 255");
        refused::<CorruptSpec>("0.1%,bits=256", "bits=2, from 1 to 255");
        refused::<CorruptSpec>("0.1%,repair=yes", "repair, which mends the checksum");
        refused::<CorruptSpec>("0.1%,repair,repair", "repair: given twice");
    }
}
