//! A [`Node`] as a serde deserializer.

use std::ops::Range;
use std::vec;

use serde::de::{DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::tagged::{KIND, THROUGH_NODE};
use super::{Entry, Node, Value};
use crate::error::{Error, PathStep, Problem};

/// The keys of jitter that only a table has: the file and the values of a distribution.
const ONLY_IN_TABLES: [&str; 2] = ["file", "values"];
/// The advice about a share in the place of netem's correlation of delays.
const SIMILAR: &str = "for similar delays of neighbouring packets, write half-life=50ms, the time after which they are half as similar";

/// Implements the deserializer for integers, each with its range.
macro_rules! whole_numbers {
    ($($method:ident: $type:ty => $visit:ident,)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let whole = match &self.value {
                Value::Whole(number) => Some(*number),
                Value::Word(word) => word.parse().ok(),
                _ => None,
            };
            let number = whole
                .and_then(|number| <$type>::try_from(number).ok())
                .ok_or_else(|| {
                    // serde's words for a type such as NonZeroU8.
                    let is_nonzero = (&visitor as &dyn Expected).to_string().starts_with("a nonzero ");
                    let least = if is_nonzero { 1 } else { <$type>::MIN };
                    self.is_no(&format!("a whole number from {least} to {}", <$type>::MAX))
                })?;
            self.visit(|_| visitor.$visit(number))
        }
    )+};
}

impl<'de> Deserializer<'de> for Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit(|value| match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(yes),
            Value::Whole(number) => match (i64::try_from(number), u64::try_from(number)) {
                (Ok(number), _) => visitor.visit_i64(number),
                (_, Ok(number)) => visitor.visit_u64(number),
                _ => visitor.visit_i128(number),
            },
            Value::Number(number) => visitor.visit_f64(number),
            Value::Text(text) | Value::Word(text) | Value::Flag(text) => visitor.visit_string(text),
            Value::List(all) => visitor.visit_seq(Items {
                all: all.into_iter().enumerate(),
            }),
            Value::Table(entries) => visit_table(entries, visitor),
        })
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Flag(_) => visitor.visit_bool(true),
            Value::Word(word) if word == "true" => visitor.visit_bool(true),
            Value::Word(word) if word == "false" => visitor.visit_bool(false),
            _ => Err(self.is_no("true or false")),
        }
    }

    whole_numbers! {
        deserialize_i64: i64 => visit_i64,
        deserialize_u8: u8 => visit_u8,
        deserialize_u16: u16 => visit_u16,
        deserialize_u32: u32 => visit_u32,
        deserialize_u64: u64 => visit_u64,
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match &self.value {
            #[expect(clippy::cast_precision_loss, reason = "as every reader does")]
            Value::Whole(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            Value::Word(word) => word.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.is_no("a number"))?;
        self.visit(|_| visitor.visit_f64(number))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match name {
            THROUGH_NODE => visitor.visit_some(self),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // A type that does not say how it is written is a table.
        let mut right = (&visitor as &dyn Expected).to_string();
        if right == format!("struct {name}") {
            "a table".clone_into(&mut right);
        }
        match self.value {
            Value::Text(text) | Value::Word(text) => {
                let is_named = text
                    .split(',')
                    .next()
                    .is_some_and(|part| part.contains('='));
                let unnamed = if is_named { &[] } else { fields };
                let parts = parts(&text, fields);
                let read = parts.and_then(|parts| visit_table(parts, visitor));
                read.map_err(|error| error.in_text(unnamed, right).with_span(self.span.as_ref()))
            }
            Value::Table(mut entries) => {
                // The kind of a table must be known before its other keys.
                entries.sort_by_key(|entry| Some(&entry.key.as_str()) != fields.first());
                let read = visit_table(entries, visitor);
                read.map_err(|error| error.with_span(self.span.as_ref()))
            }
            Value::Null
            | Value::Bool(_)
            | Value::Whole(_)
            | Value::Number(_)
            | Value::Flag(_)
            | Value::List(_) => Err(self.is_no(&right)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let span = self.span.clone();
        match self.value {
            Value::Text(name) | Value::Word(name) | Value::Flag(name) => {
                visitor.visit_enum(name.into_deserializer())
            }
            _ => Err(self.is_no("a name in quotes")),
        }
        .map_err(|error: Error| error.with_span(span.as_ref()))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier
        ignored_any
    }
}

impl Node {
    /// Reads the value, and adds its position to errors.
    fn visit<T>(self, read: impl FnOnce(Value) -> Result<T, Error>) -> Result<T, Error> {
        read(self.value).map_err(|error| error.with_span(self.span.as_ref()))
    }

    fn is_no(&self, right: &str) -> Error {
        Error::new(Problem::WrongType {
            found: self.describe(),
            right: right.to_owned(),
        })
        .with_span(self.span.as_ref())
    }
}

impl Error {
    /// Returns the error for keys that are parts of a text. If its path begins with the first of `unnamed`, which the
    /// text does not name, that key is removed, so that the path ends with the key of the text.
    fn in_text(mut self, unnamed: &[&str], right: String) -> Self {
        let is_first = |step: &PathStep| match step {
            PathStep::Key(key) => unnamed.first() == Some(&key.as_str()),
            PathStep::Item { .. } => false,
        };
        if self.path.first().is_some_and(is_first) {
            self.path.remove(0);
        }
        self.span = None;
        if let Problem::UnknownKey { key, known, place } = &mut *self.problem {
            let is_jitter = known.iter().any(|known| known == "half_life");
            known.retain(|known| !is_jitter || !ONLY_IN_TABLES.contains(&known.as_str()));
            // tc-netem(8) has a correlation there.
            if is_jitter && key.ends_with('%') {
                *place = Some(SIMILAR.to_owned());
            }
        }
        Self::new(Problem::InText { error: self, right })
    }
}

/// Splits a text at its commas into the table of a struct with these fields. The first part is the first field. A
/// single word sets its field to true, and `no` before the word sets it to false.
fn parts(text: &str, fields: &[&str]) -> Result<Vec<Entry>, Error> {
    // The fields of a kind are not known yet.
    let is_field = |key: &str| fields == [KIND] || fields.contains(&key);
    let mut all: Vec<Entry> = Vec::new();
    for (number, part) in text.split(',').map(str::trim).enumerate() {
        let opposite = part.strip_prefix("no").filter(|key| is_field(key));
        let (key, value) = match (part.split_once('='), fields.first(), opposite) {
            (Some((key, value)), ..) => {
                let key = key.trim().replace('-', "_");
                (key, Value::Word(value.trim().to_owned()))
            }
            (None, Some(first), _) if number == 0 => {
                ((*first).to_owned(), Value::Word(part.to_owned()))
            }
            _ if part.is_empty() => continue,
            (None, _, Some(key)) => (key.to_owned(), Value::Word("false".to_owned())),
            (None, ..) => (part.to_owned(), Value::Flag(part.to_owned())),
        };
        if all.iter().any(|known| known.key == key) {
            return Err(Error::new(Problem::Twice { key }));
        }
        all.push(Entry {
            key,
            key_span: None,
            value: value.into(),
        });
    }
    Ok(all)
}

struct Items {
    all: std::iter::Enumerate<vec::IntoIter<Node>>,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((index, item)) = self.all.next() else {
            return Ok(None);
        };
        let span = item.span.clone();
        let read = seed.deserialize(item);
        read.map(Some)
            .map_err(|error| error.with_span(span.as_ref()).at_item(index, None))
    }
}

/// Has a table visited. An error for an unknown key gets the position of the key.
fn visit_table<'de, V: Visitor<'de>>(entries: Vec<Entry>, visitor: V) -> Result<V::Value, Error> {
    let mut table = Table {
        entries: entries.into_iter(),
        value: None,
        key_span: None,
    };
    visitor
        .visit_map(&mut table)
        .map_err(|error| match (&*error.problem, error.path.is_empty()) {
            (Problem::UnknownKey { .. }, true) => error.with_span(table.key_span.as_ref()),
            _ => error,
        })
}

struct Table {
    entries: vec::IntoIter<Entry>,
    /// The key that was read last, with its value.
    value: Option<(String, Node)>,
    key_span: Option<Range<usize>>,
}

impl<'de> MapAccess<'de> for &mut Table {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(Entry {
            key,
            key_span,
            value,
        }) = self.entries.next()
        else {
            return Ok(None);
        };
        self.key_span = key_span;
        self.value = Some((key.clone(), value));
        let key = Node::from(Value::Text(key));
        let read = seed.deserialize(key).map(Some);
        read.map_err(|error| error.with_span(self.key_span.as_ref()))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((key, value)) = self.value.take() else {
            return Err(Error::other("a value was requested before its key"));
        };
        let span = value.span.clone();
        let read = seed.deserialize(value);
        read.map_err(|error| error.with_span(span.as_ref()).within(PathStep::Key(key)))
    }
}
