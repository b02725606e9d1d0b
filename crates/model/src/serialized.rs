//! The units as text for serde, their only form in files.

use alloc::string::ToString;
use core::{fmt, fmt::Display, marker::PhantomData, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use crate::framing::Framing;
use crate::spec::BitErrorRate;
use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, Probability, QueueLimit};

macro_rules! as_text {
    ($($unit:ty),+) => {$(
        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                target.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                source.deserialize_any(Text(PhantomData))
            }
        }
    )+};
}

as_text!(
    BitErrorRate,
    BitsPerSec,
    Bytes,
    Factor,
    Framing,
    Nanos,
    Probability,
    QueueLimit
);

/// Reads a text with the unit's own parser, or a number as if it were written as text.
struct Text<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value with its unit, such as \"20ms\", \"1%\", \"10mbit\" or \"100pkt\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
