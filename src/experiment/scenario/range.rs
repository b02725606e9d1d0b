//! The values of a swept field: a list, or a range by sums or by factors.

use std::borrow::Cow;

use anyhow::{Context, Result, bail, ensure};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Place;

const MOST_VALUES: usize = 10_000;
/// What rounding may leave of a step at the upper end.
const ROUNDING: f64 = 1e-9;

/// The values that `given` stands for: itself if it is a list; of `{ from, to, times }` or `{ from, to, plus }` each
/// value from the first to the last, in their unit.
///
/// # Errors
/// Neither of them, or one without a value.
pub(super) fn values<'t>(
    place: Place<'_>,
    path: &str,
    given: Spanned<DeValue<'t>>,
) -> Result<Vec<Spanned<DeValue<'t>>>> {
    let span = given.span();
    let at = || format!("{}: sweep: {path}", place.line_at(span.start));
    let values: Vec<_> = match given.into_inner() {
        DeValue::Array(list) => list.into_iter().collect(),
        DeValue::Table(table) => {
            let range = Range::read(&table).with_context(at)?;
            let text = |text| Spanned::new(span.clone(), DeValue::String(Cow::Owned(text)));
            range
                .unroll()
                .with_context(at)?
                .into_iter()
                .map(text)
                .collect()
        }
        other => bail!(
            "{}: must be a list, {{ from, to, times }} or {{ from, to, plus }}, not a {}",
            at(),
            other.type_str()
        ),
    };
    ensure!(!values.is_empty(), "{}: there is no value", at());
    Ok(values)
}

/// Numbers of one unit.
struct Range {
    from: f64,
    to: f64,
    unit: String,
    step: Step,
}

enum Step {
    Times(f64),
    Plus(f64),
}

impl Range {
    fn read(table: &DeTable<'_>) -> Result<Self> {
        for key in table.keys() {
            let key = key.get_ref().as_ref();
            ensure!(
                ["from", "to", "times", "plus"].contains(&key),
                "unknown key `{key}`; a range has from, to, and times or plus"
            );
        }
        let end = |key: &str| -> Result<(f64, String)> {
            let value = table
                .get(key)
                .with_context(|| format!("{key} is missing"))?;
            number(value.get_ref()).with_context(|| key.to_owned())
        };
        let ((from, unit), (to, to_unit)) = (end("from")?, end("to")?);
        ensure!(
            unit == to_unit,
            "from and to must have one unit, not `{unit}` and `{to_unit}`"
        );
        let step = match (table.get("times"), table.get("plus")) {
            (Some(_), None) => {
                let (factor, of) = end("times")?;
                ensure!(
                    of.is_empty() && factor > 1.0,
                    "times: must be a number above 1"
                );
                ensure!(from > 0.0, "from: must be above 0 to be multiplied");
                Step::Times(factor)
            }
            (None, Some(_)) => {
                let (summand, of) = end("plus")?;
                ensure!(
                    of == unit && summand > 0.0,
                    "plus: must be above 0, in `{unit}`"
                );
                Step::Plus(summand)
            }
            _ => bail!("a range has either times or plus"),
        };
        ensure!(from <= to, "from is above to");
        Ok(Self {
            from,
            to,
            unit,
            step,
        })
    }

    fn unroll(&self) -> Result<Vec<String>> {
        let mut values = Vec::new();
        for i in 0..=MOST_VALUES {
            let i = i as f64;
            let value = match self.step {
                Step::Times(factor) => self.from * factor.powf(i),
                Step::Plus(summand) => self.from + summand * i,
            };
            if value > self.to * (1.0 + ROUNDING) {
                return Ok(values);
            }
            values.push(format!("{}{}", rounded(value), self.unit));
        }
        bail!("more than {MOST_VALUES} values")
    }
}

/// Without the last digits, which are the machine's.
fn rounded(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

/// A number and its unit: `10ms` is 10 of `ms`.
fn number(value: &DeValue<'_>) -> Result<(f64, String)> {
    let text = match value {
        DeValue::String(text) => text.as_ref(),
        DeValue::Integer(number) => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        other => bail!("must be a number with its unit, not a {}", other.type_str()),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits
        .parse()
        .with_context(|| format!("`{text}` is no number with a unit"))?;
    Ok((number, unit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(text: &str) -> Result<Vec<String>> {
        let line = format!("sweep = {text}");
        let mut table = DeTable::parse(&line).unwrap().into_inner();
        let place = Place {
            file: "x.toml",
            text: &line,
        };
        let values = values(place, "link.delay", table.remove("sweep").unwrap())?;
        Ok(values
            .iter()
            .map(|value| value.get_ref().as_str().unwrap().to_owned())
            .collect())
    }

    #[test]
    fn a_list_stands_for_itself() {
        assert_eq!(swept("['1ms', '2ms']").unwrap(), ["1ms", "2ms"]);
    }

    #[test]
    fn ranges_run_by_factors_or_by_sums_and_include_their_ends() {
        assert_eq!(
            swept("{ from = '1KiB', to = '8KiB', times = 2 }").unwrap(),
            ["1KiB", "2KiB", "4KiB", "8KiB"]
        );
        assert_eq!(
            swept("{ from = '0ms', to = '0.3ms', plus = '0.1ms' }").unwrap(),
            ["0ms", "0.1ms", "0.2ms", "0.3ms"]
        );
    }

    #[test]
    fn what_is_no_range_is_refused_with_its_line() {
        for (text, cause) in [
            ("[]", "there is no value"),
            ("'1ms'", "must be a list"),
            ("{ from = '1ms' }", "to is missing"),
            ("{ from = '1ms', to = '2s', times = 2 }", "one unit"),
            ("{ from = '1ms', to = '2ms', times = 1 }", "above 1"),
            ("{ from = '1ms', to = '2ms', plus = '0ms' }", "above 0"),
            ("{ from = '1ms', to = '2ms' }", "either times or plus"),
            ("{ from = '2ms', to = '1ms', plus = '1ms' }", "above to"),
            ("{ from = '0ms', to = '1ms', times = 2 }", "above 0"),
            ("{ from = '0b', to = '1b', plus = '0.00001b' }", "more than"),
            ("{ form = '1ms' }", "unknown key `form`"),
        ] {
            let error = format!("{:#}", swept(text).unwrap_err());
            assert!(
                error.starts_with("x.toml:1: sweep: link.delay") && error.contains(cause),
                "{text}: {error}"
            );
        }
    }
}
