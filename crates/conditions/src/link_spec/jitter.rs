//! Jitter as users write it.

use std::fmt;
use std::str::FromStr;

use model::{Jitter, Law, Nanos, Ordering};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::values::{parts, pattern};
use crate::dist;

/// A random part of a delay, written `2ms`, `2ms,normal,half-life=50ms,free` or as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitterSpec {
    /// How far, by which law, and how it wanders.
    pub jitter: Jitter,
    /// Whether packets may overtake each other.
    pub ordering: Ordering,
    /// The file that the law's table was read from, if it was.
    pub file: Option<String>,
}

/// [`JitterSpec`] as a table.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JitterTable {
    /// How far: half the width if uniform, the standard deviation if normal or log-normal, the unit of netem's laws.
    spread: Nanos,
    /// How it is distributed; uniform when absent.
    #[serde(default)]
    law: LawName,
    /// The `.dist` file of a table, as netem has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// A table's values, in the place of a file: numbers with spaces between, 8192 for one spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<String>,
    /// How long it takes until two packets' delays are half as alike; each packet's is drawn by itself when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    half_life: Option<Nanos>,
    /// Whether packets may overtake each other; fifo, which is that they may not, when absent.
    #[serde(default)]
    ordering: OrderingName,
}

/// A name of a law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LawName {
    #[default]
    Uniform,
    Normal,
    Pareto,
    ParetoNormal,
    LogNormal,
    Table,
}

/// A name of an ordering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum OrderingName {
    #[default]
    Fifo,
    Free,
    PerFlow,
}

const LAWS: [(&str, LawName); 6] = [
    ("uniform", LawName::Uniform),
    ("normal", LawName::Normal),
    ("pareto", LawName::Pareto),
    ("paretonormal", LawName::ParetoNormal),
    ("lognormal", LawName::LogNormal),
    ("table", LawName::Table),
];

const ORDERINGS: [(&str, OrderingName); 3] = [
    ("fifo", OrderingName::Fifo),
    ("free", OrderingName::Free),
    ("per-flow", OrderingName::PerFlow),
];

const BEHIND_THE_TIME: &str = "behind the time come a law (uniform, normal, pareto, paretonormal, lognormal), \
                               half-life=50ms, and an ordering (fifo, free, per-flow)";

impl JitterTable {
    fn read(self) -> Result<JitterSpec, String> {
        let law = match (self.law, &self.values, &self.file) {
            (LawName::Table, Some(values), _) => {
                let table = dist::parse(values);
                Law::Table(table.map_err(|cause| format!("values: {cause}"))?)
            }
            (LawName::Table, None, Some(file)) => {
                return Err(format!(
                    "file: {file} was not read: only a file of conditions can name one"
                ));
            }
            (LawName::Table, None, None) => {
                return Err("law: a table needs its values: file = \"x.dist\"".to_owned());
            }
            (_, Some(_), _) => return Err("values: they are of law = \"table\"".to_owned()),
            (_, _, Some(_)) => return Err("file: it is of law = \"table\"".to_owned()),
            (LawName::Uniform, ..) => Law::Uniform,
            (LawName::Normal, ..) => Law::Normal,
            (LawName::Pareto, ..) => Law::Pareto,
            (LawName::ParetoNormal, ..) => Law::ParetoNormal,
            (LawName::LogNormal, ..) => Law::LogNormal,
        };
        if self.half_life == Some(Nanos::ZERO) {
            let right = "leave it out, and each packet's is drawn by itself";
            return Err(format!("half_life: it is above 0; {right}"));
        }
        Ok(JitterSpec {
            jitter: Jitter {
                spread: self.spread,
                law,
                half_life: self.half_life,
            },
            ordering: match self.ordering {
                OrderingName::Fifo => Ordering::Fifo,
                OrderingName::Free => Ordering::Free,
                OrderingName::PerFlow => Ordering::PerFlow,
            },
            file: self.file,
        })
    }
}

impl From<&JitterSpec> for JitterTable {
    fn from(spec: &JitterSpec) -> Self {
        let values = match &spec.jitter.law {
            Law::Table(table) => Some(dist::print(table)),
            _ => None,
        };
        Self {
            spread: spec.jitter.spread,
            law: LawName::from(&spec.jitter.law),
            file: spec.file.clone(),
            values,
            half_life: spec.jitter.half_life,
            ordering: spec.ordering.into(),
        }
    }
}

impl From<&Law> for LawName {
    fn from(law: &Law) -> Self {
        match law {
            Law::Uniform => Self::Uniform,
            Law::Normal => Self::Normal,
            Law::Pareto => Self::Pareto,
            Law::ParetoNormal => Self::ParetoNormal,
            Law::LogNormal => Self::LogNormal,
            Law::Table(_) => Self::Table,
        }
    }
}

impl From<Ordering> for OrderingName {
    fn from(ordering: Ordering) -> Self {
        match ordering {
            Ordering::Fifo => Self::Fifo,
            Ordering::Free => Self::Free,
            Ordering::PerFlow => Self::PerFlow,
        }
    }
}

impl FromStr for JitterSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (spread, options) = text.split_once(',').unwrap_or((text, ""));
        let (mut law, mut half_life, mut ordering) = (None, None, None);
        for option in parts(options) {
            let named = |name: &str| name == option;
            let before = if let Some((_, known)) = LAWS.iter().find(|(name, _)| named(name)) {
                law.replace(*known).map(|_| "a law")
            } else if let Some((_, known)) = ORDERINGS.iter().find(|(name, _)| named(name)) {
                ordering.replace(*known).map(|_| "an ordering")
            } else if let Some(time) = option.strip_prefix("half-life=") {
                let time = time.trim().parse::<Nanos>();
                let time = time.map_err(|cause| format!("half-life: {cause}"))?;
                half_life.replace(time).map(|_| "a half-life")
            } else {
                return Err(format!("`{option}`: {BEHIND_THE_TIME}"));
            };
            if let Some(what) = before {
                return Err(format!("`{option}`: {what} has been said before"));
            }
        }
        if law == Some(LawName::Table) {
            let right = "jitter = { spread = \"2ms\", law = \"table\", file = \"x.dist\" }";
            return Err(format!("`table`: a table is for files: {right}"));
        }
        let spread = spread.trim();
        let is_word = |(name, _): &(&str, LawName)| *name == spread;
        if LAWS.iter().any(is_word) || ORDERINGS.iter().any(|(name, _)| *name == spread) {
            return Err(format!("`{spread}`: how far comes first: 2ms,{spread}"));
        }
        let table = JitterTable {
            spread: spread.parse().map_err(|cause| format!("{cause}"))?,
            law: law.unwrap_or_default(),
            file: None,
            values: None,
            half_life,
            ordering: ordering.unwrap_or_default(),
        };
        table.read()
    }
}

impl fmt::Display for JitterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_of = |law: LawName| LAWS.iter().find(|(_, known)| *known == law);
        self.jitter.spread.fmt(f)?;
        if let (Some((name, _)), true) = (
            name_of(LawName::from(&self.jitter.law)),
            self.jitter.law != Law::Uniform,
        ) {
            write!(f, ",{name}")?;
        }
        if let Some(half_life) = self.jitter.half_life {
            write!(f, ",half-life={half_life}")?;
        }
        match self.ordering {
            Ordering::Fifo => Ok(()),
            Ordering::Free => f.write_str(",free"),
            Ordering::PerFlow => f.write_str(",per-flow"),
        }
    }
}

impl Serialize for JitterSpec {
    /// As text, unless only a table can say it.
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        match self.jitter.law {
            Law::Table(_) => JitterTable::from(self).serialize(target),
            _ => target.collect_str(self),
        }
    }
}

struct JitterVisitor;

impl<'de> Visitor<'de> for JitterVisitor {
    type Value = JitterSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text such as \"2ms,normal,free\", or a table with spread, law and ordering")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<JitterSpec, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<JitterSpec, M::Error> {
        let table = JitterTable::deserialize(MapAccessDeserializer::new(map))?;
        table.read().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for JitterSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(JitterVisitor)
    }
}

impl JsonSchema for JitterSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Jitter".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let time = pattern::<Nanos>(generator);
        let laws = LAWS.iter().map(|(name, _)| *name);
        let words = laws.filter(|name| *name != "table");
        let words: Vec<&str> = words
            .chain(ORDERINGS.iter().map(|(name, _)| *name))
            .collect();
        let text = format!("^{time}( *, *({}|half-life= *{time}))*$", words.join("|"));
        let table = JitterTable::json_schema(generator);
        json_schema!({ "anyOf": [{ "type": "string", "pattern": text }, table] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_table(text: &str) -> Result<JitterSpec, String> {
        let read: Result<toml::Table, _> = toml::from_str(text);
        let read = read.unwrap()["jitter"].clone();
        JitterSpec::deserialize(read).map_err(|error| error.to_string())
    }

    #[test]
    fn a_text_prints_as_it_was_written_and_a_table_says_the_same() {
        for text in [
            "2ms",
            "2ms,normal",
            "2ms,free",
            "2ms,normal,free",
            "2ms,pareto,per-flow",
            "2ms,paretonormal",
            "2ms,lognormal,half-life=50ms,free",
        ] {
            let spec: JitterSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), *text);
            let table = serde_json::to_value(JitterTable::from(&spec)).unwrap();
            assert_eq!(JitterSpec::deserialize(table).unwrap(), spec);
        }
    }

    #[test]
    fn a_table_of_values_keeps_them_in_records() {
        let text = "jitter = { spread = '2ms', law = 'table', file = 'x.dist', values = '8192 -8192', half_life = '5ms' }";
        let spec = of_table(text).unwrap();
        let Law::Table(table) = &spec.jitter.law else {
            panic!("{spec:?}")
        };
        assert_eq!(table.values(), [-8_192, 8_192]);
        let written = serde_json::to_value(&spec).unwrap();
        assert_eq!(written["values"], "-8192 8192");
        assert_eq!(JitterSpec::deserialize(written).unwrap(), spec);
    }

    #[test]
    fn what_is_wrong_comes_with_what_would_be_right() {
        for (text, right) in [
            ("2", "unit"),
            ("normal", "`normal`: how far comes first: 2ms,normal"),
            ("free,normal", "how far comes first"),
            (
                "2ms,zipf",
                "come a law (uniform, normal, pareto, paretonormal, lognormal)",
            ),
            (
                "2ms,normal,uniform",
                "`uniform`: a law has been said before",
            ),
            (
                "2ms,free,per-flow",
                "`per-flow`: an ordering has been said before",
            ),
            (
                "2ms,half-life=0ms",
                "half_life: it is above 0; leave it out",
            ),
            ("2ms,half-life=5", "half-life: `5` has no unit"),
            (
                "2ms,half-life=1s,half-life=2s",
                "a half-life has been said before",
            ),
            ("2ms,table", "a table is for files: jitter = {"),
        ] {
            let error = text.parse::<JitterSpec>().unwrap_err();
            assert!(error.contains(right), "{text}: {error}");
        }
        for (table, right) in [
            ("law = 'normal'", "missing field `spread`"),
            (
                "spread = '2ms', law = 'table'",
                "law: a table needs its values",
            ),
            (
                "spread = '2ms', law = 'table', file = 'x'",
                "file: x was not read",
            ),
            (
                "spread = '2ms', law = 'table', values = '1 b'",
                "values: line 1: `b` is no",
            ),
            (
                "spread = '2ms', file = 'x'",
                "file: it is of law = \"table\"",
            ),
            ("spread = '2ms', values = '1'", "values: they are of law"),
            (
                "spread = '2ms', half_life = '0s'",
                "half_life: it is above 0",
            ),
            ("spread = '2ms', ordering = 'perflow'", "unknown variant"),
        ] {
            let error = of_table(&format!("jitter = {{ {table} }}")).unwrap_err();
            assert!(error.contains(right), "{table}: {error}");
        }
    }
}
