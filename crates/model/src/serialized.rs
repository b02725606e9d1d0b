//! The units in files: their one text form, for serde and for a JSON Schema.

#[cfg(feature = "schema")]
use alloc::borrow::Cow;
#[cfg(feature = "serde")]
use alloc::string::ToString;
#[cfg(feature = "serde")]
use core::{fmt, fmt::Display, marker::PhantomData, str::FromStr};

#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
#[cfg(feature = "serde")]
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

#[cfg(feature = "schema")]
use crate::decimal::NUMBER;
use crate::framing::Framing;
use crate::spec::BitErrorRate;
#[cfg(feature = "schema")]
use crate::spec::bit_errors::PATTERN;
use crate::time::Nanos;
#[cfg(feature = "schema")]
use crate::time::TIME;
use crate::units::{BitsPerSec, Bytes, Factor, Probability, QueueLimit};
#[cfg(feature = "schema")]
use crate::units::{QUEUE, RATE, SIZE};

macro_rules! as_text {
    ($($unit:ty),+) => {$(
        #[cfg(feature = "serde")]
        impl Serialize for $unit {
            fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                target.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
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

#[cfg(feature = "schema")]
macro_rules! as_pattern {
    ($($unit:ty: $name:literal, $example:literal, $pattern:expr;)+) => {$(
        impl JsonSchema for $unit {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "pattern": alloc::format!("^{}$", $pattern),
                    "description": $example
                })
            }
        }
    )+};
}

#[cfg(feature = "schema")]
as_pattern! {
    BitsPerSec: "Rate", "A rate with its unit: \"10mbit\".", RATE.pattern();
    Bytes: "Size", "A size with its unit: \"64KiB\".", SIZE.pattern();
    Framing: "RateAt", "What a rate counts: \"l2\", \"l1\", \"docsis\", \"atm,overhead=18\".", "[a-z0-9, =-]+";
    Nanos: "Time", "A time with its unit: \"20ms\".", TIME.pattern();
    Probability: "Probability", "A percentage: \"1%\".", alloc::format!("{NUMBER}%");
    QueueLimit: "QueueLimit", "Packets, bytes or a time: \"100pkt\", \"64KiB\", \"50ms\".",
        alloc::format!("({}|{}|{})", QUEUE.pattern(), SIZE.pattern(), TIME.pattern());
}

#[cfg(feature = "schema")]
impl JsonSchema for BitErrorRate {
    fn schema_name() -> Cow<'static, str> {
        "BitErrorRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "minimum": 0,
            "exclusiveMaximum": 1,
            "pattern": alloc::format!("^{PATTERN}$"),
            "description": "The share of bits that are wrong: 1e-6."
        })
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for Factor {
    fn schema_name() -> Cow<'static, str> {
        "Factor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": alloc::format!("^{NUMBER}$"),
            "description": "A number above 0."
        })
    }
}

/// Reads a text, or a number as if it were written as text, with the unit's own parser.
#[cfg(feature = "serde")]
struct Text<T>(PhantomData<T>);

#[cfg(feature = "serde")]
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
