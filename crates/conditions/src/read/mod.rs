//! The reader of conditions: TOML files, JSON of the API and texts such as `1%,burst=8` become values by serde. Every
//! error has its path of keys and, if the source keeps positions, its position.
//!
//! A [`Node`] is a value with its position, and a serde deserializer. In addition to what every deserializer does:
//! - A struct may be written as a text: the first part is its first field, and the others are `key=value` or words that
//!   name a field; `noecn` is `ecn=false`.
//! - An enum of structs ([`Tagged`]) is a table whose key `kind` names the struct; in a text, the first part does. A
//!   node delivers the first field of a struct first.
//!
//! Types that other deserializers also read, such as those of records, begin with `through_node`.

mod node_deserializer;
mod schema;
mod tagged;

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(crate) use self::schema::OrText;
pub(crate) use self::tagged::{FromNode, PartialTable, serialize_keys, through_node};
pub use self::tagged::{KIND, Tagged, kind_schema, read_tagged, serialize_tagged};
use crate::error::Error;

/// A value, and its position in its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    value: Value,
    span: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    Whole(i128),
    Number(f64),
    Text(String),
    /// A value within a text, which can be read as a text or a number.
    Word(String),
    /// A single word within a text, which can also be read as true.
    Flag(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key of a table and its value.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    key_span: Option<Range<usize>>,
    value: Node,
}

/// Reads a value from a table of a TOML file.
///
/// # Errors
/// Returns an error with path and position for an unknown key and for a value that its key cannot have.
pub fn toml_table<T: DeserializeOwned>(table: &Spanned<DeTable<'_>>) -> Result<T, Error> {
    T::deserialize(Node::of_table(table.get_ref(), table.span()))
}

/// The keys of a link that name a profile.
const PROFILE_KEYS: [&str; 2] = ["profile", "based_on"];
/// The key of the conditions that replace the name of a profile. No file has it, because it contains spaces.
pub(crate) const CONDITIONS_OF_PROFILE: &str = "farwire: the conditions of a profile";

/// The key of a link's trace.
const TRACE_KEY: &str = "trace";

/// Finds what a table of a file names and does not contain.
pub trait Named {
    /// Returns the conditions of the profile with a name, as JSON; `None` leaves the name as it is.
    ///
    /// # Errors
    /// Returns an error if there is no such profile, or if it is wrong.
    fn profile(&mut self, name: &str) -> Result<Option<serde_json::Value>, Error>;

    /// Returns a trace with its content; `trace` is the value that names its file.
    ///
    /// # Errors
    /// Returns an error if there is no such file, or if it is no trace.
    fn trace(&mut self, trace: serde_json::Value) -> Result<serde_json::Value, Error>;
}

/// Reads a value from a table of a TOML file, as [`toml_table`] does, in which links may name profiles beside those that
/// ship, and files of traces.
///
/// # Errors
/// Returns the errors of [`toml_table`], and those of `named` with their path and position.
pub fn toml_table_with<T: DeserializeOwned>(
    table: &Spanned<DeTable<'_>>,
    named: &mut dyn Named,
) -> Result<T, Error> {
    let mut node = Node::of_table(table.get_ref(), table.span());
    node.put_named(named)?;
    T::deserialize(node)
}

/// Reads a value from the text of a TOML file.
///
/// # Errors
/// Returns the errors of [`toml_table`], and an error for text that is not TOML.
pub fn toml_text<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let table = DeTable::parse(text).map_err(|cause| {
        let error = Error::other(cause.message());
        error.with_span(cause.span().as_ref())
    })?;
    toml_table(&table)
}

/// Reads a value from JSON.
///
/// # Errors
/// Returns an error with its path for an unknown key and for a value that its key cannot have.
pub fn json<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Error> {
    T::deserialize(Node::from(value))
}

/// Reads a value from its text form, such as `1%,burst=8`.
///
/// # Errors
/// Returns an error with advice for a text that the type cannot have.
pub fn text<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    T::deserialize(Node::from(Value::Text(text.to_owned())))
}

/// Returns the position of the value at the end of `path`, or of the last value on that path that exists.
pub fn locate(table: &DeTable<'_>, path: &[crate::PathStep]) -> Option<Range<usize>> {
    use crate::PathStep;
    let Some((PathStep::Key(key), mut rest)) = path.split_first() else {
        return None;
    };
    let mut value = table.get(key.as_str())?;
    while let Some((PathStep::Item { index, .. }, behind)) = rest.split_first() {
        let Some(item) = value.get_ref().as_array().and_then(|all| all.get(*index)) else {
            break;
        };
        (value, rest) = (item, behind);
    }
    value
        .get_ref()
        .as_table()
        .and_then(|inner| locate(inner, rest))
        .or_else(|| Some(value.span()))
}

impl Node {
    fn of_table(table: &DeTable<'_>, span: Range<usize>) -> Self {
        let entry = |(key, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| Entry {
            key: key.get_ref().to_string(),
            key_span: Some(key.span()),
            value: Self::of_toml(value),
        };
        Self {
            value: Value::Table(table.iter().map(entry).collect()),
            span: Some(span),
        }
    }

    fn of_toml(value: &Spanned<DeValue<'_>>) -> Self {
        let span = Some(value.span());
        let value = match value.get_ref() {
            DeValue::Table(table) => return Self::of_table(table, value.span()),
            DeValue::Array(all) => Value::List(all.iter().map(Self::of_toml).collect()),
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Boolean(yes) => Value::Bool(*yes),
            DeValue::Integer(number) => {
                let read = i128::from_str_radix(number.as_str(), number.radix());
                read.map_or_else(|_| Value::Text(number.as_str().to_owned()), Value::Whole)
            }
            DeValue::Float(number) => Value::Number(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Datetime(time) => Value::Text(time.to_string()),
        };
        Self { value, span }
    }

    /// Replaces the names of profiles in it by their conditions, and those of traces by their content.
    fn put_named(&mut self, named: &mut dyn Named) -> Result<(), Error> {
        match &mut self.value {
            Value::Table(entries) => {
                for entry in entries {
                    let put = entry.put_named(named);
                    put.map_err(|error| {
                        let error = error.with_span(entry.value.span.as_ref());
                        error.at(entry.key.as_str())
                    })?;
                }
            }
            Value::List(all) => {
                for (index, item) in all.iter_mut().enumerate() {
                    let put = item.put_named(named);
                    put.map_err(|error| error.at_item(index, None))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Describes it for error messages.
    fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(yes) => format!("`{yes}`"),
            Value::Whole(number) => format!("`{number}`"),
            Value::Number(number) => format!("`{number}`"),
            Value::Text(text) => format!("\"{text}\""),
            Value::Word(word) | Value::Flag(word) => format!("`{word}`"),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

impl Entry {
    fn put_named(&mut self, named: &mut dyn Named) -> Result<(), Error> {
        match &self.value.value {
            Value::Text(name) if PROFILE_KEYS.contains(&self.key.as_str()) => {
                if let Some(conditions) = named.profile(name)? {
                    self.value.value = Value::Table(vec![Self {
                        key: CONDITIONS_OF_PROFILE.to_owned(),
                        key_span: None,
                        value: conditions.into(),
                    }]);
                }
                Ok(())
            }
            Value::Text(_) | Value::Table(_) if self.key == TRACE_KEY => {
                let trace = serde_json::Value::deserialize(self.value.clone())?;
                self.value.value = Node::from(named.trace(trace)?).value;
                Ok(())
            }
            _ => self.value.put_named(named),
        }
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, span: None }
    }
}

impl From<serde_json::Value> for Node {
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match value {
            Json::Null => Value::Null,
            Json::Bool(yes) => Value::Bool(yes),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Value::Whole(whole.into()),
                (None, Some(whole)) => Value::Whole(whole.into()),
                (None, None) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text),
            Json::Array(all) => Value::List(all.into_iter().map(Self::from).collect()),
            Json::Object(table) => {
                let entries = table.into_iter().map(|(key, value)| Entry {
                    key,
                    key_span: None,
                    value: value.into(),
                });
                Value::Table(entries.collect())
            }
        };
        value.into()
    }
}

impl<'de> Deserialize<'de> for Node {
    /// Reads it from another format, which keeps no positions.
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        serde_json::Value::deserialize(source).map(Self::from)
    }
}

#[cfg(test)]
mod tests;
