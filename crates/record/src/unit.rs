//! Serde for values that are written as text with a unit; a bare number reaches the type's own parser too.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// For a value that must be there.
pub mod required {
    use super::{Deserializer, Display, FromStr, PhantomData, Scalar, Serializer};

    pub fn serialize<T: Display, S: Serializer>(value: &T, target: S) -> Result<S::Ok, S::Error> {
        target.collect_str(value)
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        source: D,
    ) -> Result<T, D::Error> {
        source.deserialize_any(Scalar::<T>(PhantomData))
    }
}

/// A scalar as its text.
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source
            .deserialize_any(Scalar::<String>(PhantomData))
            .map(Self)
    }
}

pub fn serialize<T: Display, S: Serializer>(
    value: &Option<T>,
    target: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(target)
}

/// For the schema: a text such as "20ms", "1%" or "10mbit", or a number where that has a meaning.
#[derive(Debug)]
pub struct Written;

impl JsonSchema for Written {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "description": "A value with its unit: \"20ms\", \"1%\", \"10mbit\", \"64KiB\", \"100pkt\"."
        })
    }
}

pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<T>, D::Error> {
    source.deserialize_any(Scalar::<T>(PhantomData)).map(Some)
}

struct Scalar<T>(PhantomData<T>);

impl<T: FromStr<Err: Display>> Visitor<'_> for Scalar<T> {
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
