//! The rate of a bottleneck.

use std::fmt;

use model::{BitsPerSec, Bytes, Effect, Police};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::{describe, refuse_out_of_range, text_form};
use crate::read::OrText;

/// The rate of a bottleneck, written `10mbit`, `0bit` or `10mbit,burst=32KiB`, or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as 10mbit,burst=32KiB, or a table"
)]
#[schemars(transform = OrText::of("rate"))]
pub struct RateSpec {
    /// The rate at which packets are served; `None` is 0bit, at which none is.
    #[serde(deserialize_with = "or_zero")]
    #[schemars(with = "BitsPerSec")]
    pub rate: Option<BitsPerSec>,
    /// The size of a token bucket.
    #[serde(default)]
    pub burst: Option<Bytes>,
}

describe! {
    RateSpec: "rate" = "RATE[,burst=SIZE]", as in "10mbit", shapes Rate;
    "Rate of the bottleneck in each direction: 10mbit, 1gbit"
    + "Without a rate, there is no limit. With burst=32KiB, a token bucket lets bursts through: 10mbit,burst=32KiB. 0bit stops all traffic until a schedule or a change raises the rate"
}

impl RateSpec {
    fn check(&self) -> Result<(), String> {
        match (self.rate, self.burst) {
            (None, Some(_)) => {
                Err("burst: a rate of 0bit has no burst: leave burst out".to_owned())
            }
            (Some(rate), Some(burst)) => {
                refuse_out_of_range(Effect::Police(Police { rate, burst }))
            }
            (_, None) => Ok(()),
        }
    }
}

/// Reads a rate; 0 with a unit of rates is `None`.
fn or_zero<'de, D: Deserializer<'de>>(source: D) -> Result<Option<BitsPerSec>, D::Error> {
    let text = String::deserialize(source)?;
    let unit = text.trim_start_matches(['0', '.']);
    let number = &text[..text.len() - unit.len()];
    let is_zero = number.contains('0') && unit.starts_with(char::is_alphabetic);
    if is_zero && format!("1{unit}").parse::<BitsPerSec>().is_ok() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(de::Error::custom)
}

impl fmt::Display for RateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => rate.fmt(f),
            None => f.write_str("0bit"),
        }?;
        self.burst
            .map_or(Ok(()), |burst| write!(f, ",burst={burst}"))
    }
}

text_form!(RateSpec, checked);
