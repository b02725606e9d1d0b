//! JSON objects of the other end: bounded, strictly typed, with errors that say what came and what would be right.

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// How much of a wrong value an error quotes.
const QUOTED: usize = 40;

/// One JSON object that another program wrote.
#[derive(Debug)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Of a message's bytes; serde_json refuses more than 128 levels.
    ///
    /// # Errors
    /// It is not JSON, or not an object.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(bytes).context("it is not JSON")?;
        Self::of(value)
    }

    fn of(value: Value) -> Result<Self> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            other => bail!("it is not a JSON object but {}", quoted(&other)),
        }
    }

    /// A whole number; -1, which iperf3 3.12 writes as 2^64 - 1, means that the other end does not know.
    ///
    /// # Errors
    /// It is there, but is not a whole number.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        whole(value)
            .map(Some)
            .with_context(|| format!("{name} must be a whole number, not {}", quoted(value)))
    }

    /// A whole number from `least` to `most`.
    ///
    /// # Errors
    /// It is there, but is not such a number.
    pub(crate) fn within<T: TryFrom<i64> + Copy>(
        &self,
        name: &str,
        least: i64,
        most: i64,
    ) -> Result<Option<T>> {
        let Some(number) = self.integer(name)? else {
            return Ok(None);
        };
        let fits = (least..=most).contains(&number);
        match T::try_from(number) {
            Ok(number) if fits => Ok(Some(number)),
            _ => bail!("{name} must be from {least} to {most}, not {number}"),
        }
    }

    /// A number, finite and not negative.
    ///
    /// # Errors
    /// It is there, but is not such a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        match value.as_f64().filter(|n| n.is_finite() && *n >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => bail!(
                "{name} must be a number of 0 or more, not {}",
                quoted(value)
            ),
        }
    }

    /// Whether it is there and true. iperf3 writes flags as `true`, some of them as 1.
    ///
    /// # Errors
    /// It is there, but is neither.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.0.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => match whole(value) {
                Some(number) => Ok(number != 0),
                None => bail!("{name} must be true or false, not {}", quoted(value)),
            },
        }
    }

    /// A text of at most `longest` bytes.
    ///
    /// # Errors
    /// It is there, but is not such a text.
    pub(crate) fn text(&self, name: &str, longest: usize) -> Result<Option<String>> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => {
                ensure!(
                    text.len() <= longest,
                    "{name} must be at most {longest} bytes long, not {}",
                    text.len()
                );
                Ok(Some(text.clone()))
            }
            Some(value) => bail!("{name} must be a text, not {}", quoted(value)),
        }
    }

    /// What only farwire writes.
    ///
    /// # Errors
    /// It is there, but is something else.
    pub(crate) fn detail<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let value = self.0.get(name);
        let read = value.map(|value| serde_json::from_value(value.clone()));
        read.transpose().with_context(|| format!("in {name}"))
    }

    /// Objects in an array of at most `most`.
    ///
    /// # Errors
    /// It is missing, or is something else.
    pub(crate) fn objects(&mut self, name: &str, most: usize) -> Result<Vec<Self>> {
        match self.0.remove(name) {
            None => bail!("{name} is missing"),
            Some(Value::Array(values)) => {
                ensure!(
                    values.len() <= most,
                    "{name} must have at most {most} entries, not {}",
                    values.len()
                );
                let of = |value| Self::of(value).with_context(|| format!("in {name}"));
                values.into_iter().map(of).collect()
            }
            Some(value) => bail!("{name} must be an array, not {}", quoted(&value)),
        }
    }
}

/// A field that must be there.
///
/// # Errors
/// It is not, or it is wrong.
pub(crate) fn required<T>(name: &str, field: Result<Option<T>>) -> Result<T> {
    field?.with_context(|| format!("{name} is missing"))
}

/// iperf3 prints whole numbers as C prints doubles: 1e+15 is one.
fn whole(value: &Value) -> Option<i64> {
    const UNKNOWN: f64 = (1_u64 << 63) as f64;
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    if number.fract() != 0.0 {
        return None;
    }
    if number >= UNKNOWN {
        return (number <= 2.0 * UNKNOWN).then_some(-1);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole, and within i64 on both sides"
    )]
    (number >= -UNKNOWN).then_some(number as i64)
}

fn quoted(value: &Value) -> String {
    let text = match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    if text.chars().count() <= QUOTED {
        return text;
    }
    text.chars().take(QUOTED).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn whole_numbers_are_read_in_every_way_that_iperf3_writes_them() {
        let fields = fields(
            r#"{"a":7,"b":7.0,"c":1e+15,"d":18446744073709551615,"e":-1,"f":1.8446744073709552e+19}"#,
        );
        let read = |name| fields.integer(name).unwrap().unwrap();
        assert_eq!(
            (read("a"), read("b"), read("c")),
            (7, 7, 1_000_000_000_000_000)
        );
        assert_eq!((read("d"), read("e"), read("f")), (-1, -1, -1));
        assert_eq!(fields.integer("z").unwrap(), None);
    }

    #[test]
    fn a_wrong_type_is_refused_with_what_came_and_what_would_be_right() {
        let fields = fields(r#"{"time":"10","num":1.5,"big":1e300,"parallel":0,"reverse":"yes"}"#);
        let error = |result: Result<Option<i64>>| result.unwrap_err().to_string();
        assert_eq!(
            error(fields.integer("time")),
            r#"time must be a whole number, not "10""#
        );
        assert_eq!(
            error(fields.integer("num")),
            "num must be a whole number, not 1.5"
        );
        assert!(fields.integer("big").is_err());
        assert_eq!(
            error(fields.within("parallel", 1, 128)),
            "parallel must be from 1 to 128, not 0"
        );
        assert!(fields.flag("reverse").is_err());
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
        assert!(Fields::parse(&deep).is_err());
        let error = Fields::parse(b"[1]").unwrap_err().to_string();
        assert_eq!(error, "it is not a JSON object but an array");
    }
}
