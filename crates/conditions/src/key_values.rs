//! Tables that may be written as one text: `delay=1ms,drop=2`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{self, MapAccessDeserializer, MapDeserializer};
use serde::de::{self, DeserializeOwned, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

/// A table whose values can all be written as text, without a comma.
pub(crate) trait KeyValues: DeserializeOwned {
    /// How it is written, for those who wrote it wrongly.
    const EXAMPLE: &str;
}

/// The table that `text` stands for.
///
/// # Errors
/// A part that is no `key=value`, a key that is there twice, and what the table refuses.
pub(crate) fn parse<T: KeyValues>(text: &str) -> Result<T, String> {
    let mut pairs: Vec<(&str, Value<'_>)> = Vec::new();
    for part in text.split(',') {
        let (key, text) = part
            .split_once('=')
            .ok_or_else(|| format!("`{part}`: write key=value, such as {}", T::EXAMPLE))?;
        let (key, text) = (key.trim(), text.trim());
        if pairs.iter().any(|(known, _)| *known == key) {
            return Err(format!("{key}: given twice"));
        }
        pairs.push((key, Value { key, text }));
    }
    T::deserialize(MapDeserializer::new(pairs.into_iter()))
        .map_err(|cause: value::Error| cause.to_string().replace("unknown field", "unknown key"))
}

/// Serde for an optional table that may be written as text too.
pub(crate) fn text_or_table<'de, T: KeyValues, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<T>, D::Error> {
    source.deserialize_any(TextOrTable(PhantomData)).map(Some)
}

struct TextOrTable<T>(PhantomData<T>);

impl<'de, T: KeyValues> Visitor<'de> for TextOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table, or text such as \"{}\"", T::EXAMPLE)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        parse(text).map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// A value in text, whose errors name its key.
struct Value<'a> {
    key: &'a str,
    text: &'a str,
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let named = |cause: value::Error| de::Error::custom(format_args!("{}: {cause}", self.key));
        visitor.visit_str(self.text).map_err(named)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, value::Error> for Value<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
