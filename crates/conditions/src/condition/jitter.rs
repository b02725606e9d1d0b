//! The random part of each packet's delay.

use std::fmt;

use model::{Jitter, Law, Nanos, Ordering, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use strum::IntoStaticStr;

use super::{describe, text_form};
use crate::dist;
use crate::read::OrText;

/// A random part of a delay, written `2ms`, `2ms,normal,half-life=50ms,free` or as a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as 2ms,normal,half-life=50ms,free, or a table"
)]
#[schemars(transform = OrText { first: "spread", words: WORDS })]
pub struct JitterSpec {
    /// The size of the variation: half the width for a uniform law, the standard deviation for a normal or log-normal
    /// one, the unit of netem's laws.
    pub spread: Nanos,
    /// The distribution; uniform when absent.
    // In a text, the name of a law is enough.
    #[serde(
        default,
        alias = "uniform",
        alias = "normal",
        alias = "pareto",
        alias = "paretonormal",
        alias = "lognormal"
    )]
    pub law: LawName,
    /// The `.dist` file of a table, as netem has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The values of a table, instead of a file: numbers separated by spaces, where 8192 is one spread.
    #[serde(
        default,
        deserialize_with = "read_values",
        serialize_with = "print_values"
    )]
    #[schemars(with = "Option<String>")]
    pub values: Option<Table>,
    /// The time after which the delays of two packets are half as similar; when absent, each packet is drawn
    /// independently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<Nanos>,
    /// The order of packets; when absent it is fifo, so that packets do not overtake each other.
    #[serde(
        default,
        with = "OrderingName",
        alias = "fifo",
        alias = "free",
        alias = "per-flow"
    )]
    #[schemars(with = "OrderingName")]
    pub ordering: Ordering,
}

/// The words in a text that name the law and the ordering.
const WORDS: &[&str] = &[
    "uniform",
    "normal",
    "pareto",
    "paretonormal",
    "lognormal",
    "fifo",
    "free",
    "per-flow",
];

/// The law of a distribution.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LawName {
    /// Every value within the spread is equally likely.
    #[default]
    Uniform,
    /// Normal.
    Normal,
    /// Pareto, from netem's table.
    Pareto,
    /// A mixture of Pareto and normal, from netem's table.
    ParetoNormal,
    /// Log-normal, without delays below 0.
    LogNormal,
    /// The values of a table.
    Table,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Ordering", rename_all = "kebab-case")]
enum OrderingName {
    Fifo,
    Free,
    PerFlow,
}

describe! {
    JitterSpec: "jitter" = "TIME[,OPTION...]", as in "2ms,pareto,half-life=50ms,per-flow", shapes Delay;
    "Variation of the delay from packet to packet: 2ms"
    + "The distribution is uniform unless named: 2ms,normal (or pareto, paretonormal, lognormal). half-life=50ms makes the delays of neighbouring packets similar. \
       Packets keep their order unless `free` or `per-flow` lets them overtake each other: 2ms,normal,free"
}

impl JitterSpec {
    /// Returns the model's jitter, unless nothing varies.
    pub(crate) fn to_model(&self) -> Option<Jitter> {
        let law = match (self.law, &self.values) {
            (LawName::Uniform, _) => Law::Uniform,
            (LawName::Normal, _) => Law::Normal,
            (LawName::Pareto, _) => Law::Pareto,
            (LawName::ParetoNormal, _) => Law::ParetoNormal,
            (LawName::LogNormal, _) => Law::LogNormal,
            (LawName::Table, Some(table)) => Law::Table(table.clone()),
            // This was refused when it was read.
            (LawName::Table, None) => return None,
        };
        (self.spread > Nanos::ZERO).then_some(Jitter {
            spread: self.spread,
            law,
            half_life: self.half_life,
        })
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    pub(crate) fn memory(&self) -> usize {
        let values = self
            .values
            .as_ref()
            .map(|table| size_of_val(table.values()));
        self.file.as_ref().map_or(0, String::capacity) + values.unwrap_or(0)
    }

    fn check(&self) -> Result<(), String> {
        match (self.law, &self.values, &self.file) {
            (LawName::Table, None, Some(file)) => {
                return Err(format!(
                    "file: {file} was not read: only a TOML file of conditions can name such a file"
                ));
            }
            (LawName::Table, None, None) => {
                return Err(
                    "law: a table needs its values, which only a table of a file has: \
                     jitter = { spread = \"2ms\", law = \"table\", file = \"x.dist\" }"
                        .to_owned(),
                );
            }
            (LawName::Table, Some(_), _) | (_, None, None) => {}
            (_, Some(_), _) => return Err("values: add law = \"table\"".to_owned()),
            (_, None, Some(_)) => return Err("file: add law = \"table\"".to_owned()),
        }
        match self.half_life {
            Some(Nanos::ZERO) => {
                Err("half_life: it must be above 0; leave it out for independent delays".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn print_values<S: Serializer>(values: &Option<Table>, target: S) -> Result<S::Ok, S::Error> {
    values.as_ref().map(dist::print).serialize(target)
}

fn read_values<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Table>, D::Error> {
    let text = Option::<String>::deserialize(source)?;
    let table = text.map(|text| dist::parse(&text)).transpose();
    table.map_err(de::Error::custom)
}

impl fmt::Display for JitterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spread.fmt(f)?;
        if self.law != LawName::default() {
            write!(f, ",{}", <&str>::from(self.law))?;
        }
        if let Some(half_life) = self.half_life {
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
    /// Writes it as a text, unless only a table can express it.
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        match self.values {
            Some(_) => Self::serialize(self, target),
            None => target.collect_str(self),
        }
    }
}

text_form!(checked JitterSpec);
