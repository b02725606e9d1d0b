//! JSON Schemas of tables that may also be texts, and of tables with a key for every condition.

use std::sync::LazyLock;

use model::{BitErrorRate, BitsPerSec, Bytes, Factor, Framing, Nanos, Probability, QueueLimit};
use schemars::transform::Transform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// A transform that lets a table also be a text, as [`super::Node`] reads it.
#[derive(Clone, Copy)]
pub(crate) struct OrText {
    /// The key whose value is the first part of the text.
    pub(crate) first: &'static str,
    /// Words that represent a key and its value.
    pub(crate) words: &'static [&'static str],
}

impl OrText {
    pub(crate) const fn of(first: &'static str) -> Self {
        Self { first, words: &[] }
    }
}

impl Transform for OrText {
    fn transform(&mut self, schema: &mut Schema) {
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let required = schema.get("required").and_then(Value::as_array);
        let is_needed = |key: &str| required.is_some_and(|all| all.iter().any(|one| one == key));
        let first = properties.get(self.first).map_or_else(String::new, pattern);
        let rest = properties.iter().filter(|(key, _)| *key != self.first);
        let words = self.words.iter().map(|word| (*word).to_owned());
        let parts: Vec<String> = rest
            .map(|(key, value)| part(key, value))
            .chain(words)
            .collect();
        let needs_more = properties
            .keys()
            .any(|key| *key != self.first && is_needed(key));
        let many = if needs_more { "+" } else { "*" };
        let begin = if is_needed(self.first) {
            format!("({}= *)?{first}", self.first)
        } else {
            format!("({}= *{first}|{})", self.first, parts.join("|"))
        };
        let text = format!("^ *{begin} *( *, *({}) *){many}$", parts.join("|"));
        let table = std::mem::take(schema);
        *schema = json_schema!({ "anyOf": [{ "type": "string", "pattern": text }, table] });
    }
}

/// Returns the pattern of a part of a text behind the first one.
fn part(key: &str, value: &Value) -> String {
    let key = key.replace('_', "[-_]");
    if has_type(value, "boolean") {
        return format!("(no)?{key}");
    }
    format!("{key} *= *{}", pattern(value))
}

fn has_type(value: &Value, name: &str) -> bool {
    match &value["type"] {
        Value::String(own) => own == name,
        Value::Array(all) => all.iter().any(|own| own == name),
        _ => false,
    }
}

/// Returns the pattern of a value that is part of a text.
fn pattern(value: &Value) -> String {
    if let Some(pattern) = value.get("pattern").and_then(Value::as_str) {
        return bare(pattern);
    }
    if let Some(name) = value.get("$ref").and_then(Value::as_str) {
        let name = name.rsplit('/').next().unwrap_or_default();
        let unit = UNITS.iter().find(|(known, _)| known == name);
        return unit.map_or_else(|| "[^,]*".to_owned(), |(_, pattern)| pattern.clone());
    }
    let options = value.get("anyOf").and_then(Value::as_array);
    if let Some(option) = options.and_then(|all| all.iter().find(|one| one["type"] != "null")) {
        return pattern(option);
    }
    if has_type(value, "integer") || has_type(value, "number") {
        "[0-9.]+".to_owned()
    } else {
        "[^,]*".to_owned()
    }
}

fn bare(pattern: &str) -> String {
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    format!("({inner})")
}

/// The patterns of the model's units, by the names of their schemas.
static UNITS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    fn unit<T: JsonSchema>() -> (String, String) {
        let schema = T::json_schema(&mut SchemaGenerator::default());
        let pattern = schema.get("pattern").and_then(Value::as_str);
        (
            T::schema_name().into_owned(),
            bare(pattern.unwrap_or_default()),
        )
    }
    vec![
        unit::<BitErrorRate>(),
        unit::<BitsPerSec>(),
        unit::<Bytes>(),
        unit::<Factor>(),
        unit::<Framing>(),
        unit::<Nanos>(),
        unit::<Probability>(),
        unit::<QueueLimit>(),
    ]
});
