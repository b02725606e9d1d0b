//! Turns the cases of a file into the cases to run: fills in inherited values and unrolls sweeps.
//!
//! All of it works on TOML tables, before any value has a type. A sweep can therefore set every
//! field of a case, and an error about a wrong value names its place in the file.

use std::borrow::Cow;

use anyhow::{Context, Result, bail, ensure};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::toml_file::SourceFile;
use conditions::nearest;
use record::quantity::counted;

/// The largest number of cases of a scenario.
const MOST_CASES: usize = 10_000;
/// The largest number of values of a range.
const MOST_VALUES: usize = 10_000;
/// The relative rounding error that is allowed at the upper end of a range.
const ROUNDING: f64 = 1e-9;
/// The field with values that other people measured.
const PUBLISHED: &str = "published";

/// A case to run: its table without `base` and `sweep`, and the values that a sweep set.
#[derive(Clone, Debug)]
pub(super) struct ExpandedCase<'t> {
    pub(super) table: Spanned<DeTable<'t>>,
    /// The path of each swept field within the case and its value as written, in the order of the
    /// file.
    pub(super) axes: Vec<(String, String)>,
}

type Value<'t> = Spanned<DeValue<'t>>;

/// Returns every case of `cases`, in order. The `base` of a case is a key of `bases`, whose tables
/// may themselves have a `base`.
///
/// # Errors
/// Fails if a base does not exist or refers to itself, or if a sweep is empty, has lists of
/// different lengths or sets the same field twice.
pub(super) fn expand<'t>(
    source: SourceFile<'_>,
    cases: DeArray<'t>,
    bases: &DeTable<'t>,
) -> Result<Vec<ExpandedCase<'t>>> {
    let mut all = Vec::new();
    for case in cases {
        let span = case.span();
        let DeValue::Table(mut table) = case.into_inner() else {
            bail!(
                "{}: cases: must be tables, [[cases]]",
                source.at(span.start)
            );
        };
        inherit(source, &mut table, bases, &mut Vec::new())?;
        let sweep = table.remove("sweep");
        let table = Spanned::new(span.clone(), table);
        match sweep {
            Some(sweep) => unroll(source, &table, sweep, &mut all)?,
            None => all.push(ExpandedCase {
                table,
                axes: Vec::new(),
            }),
        }
        ensure!(
            all.len() <= MOST_CASES,
            "{}: sweep: more than {MOST_CASES} cases",
            source.at(span.start)
        );
    }
    Ok(all)
}

/// Fills in the keys that `table` lacks from the base that it names.
fn inherit<'t>(
    source: SourceFile<'_>,
    table: &mut DeTable<'t>,
    bases: &DeTable<'t>,
    chain: &mut Vec<String>,
) -> Result<()> {
    let Some(base) = table.remove("base") else {
        return Ok(());
    };
    let at = source.at(base.span().start);
    let Some(name) = base.get_ref().as_str().map(str::to_owned) else {
        bail!("{at}: base: must be the name of a table of `bases`");
    };
    let Some(found) = bases.get(name.as_str()) else {
        let known = bases.keys().map(|key| key.get_ref().as_ref());
        bail!(
            "{at}: base: there is no `bases.{name}`{}",
            nearest::or_all(&name, known)
        );
    };
    ensure!(
        !chain.contains(&name),
        "{at}: base: `{name}` is a base of itself"
    );
    chain.push(name);
    let DeValue::Table(mut from) = found.get_ref().clone() else {
        let at = source.at(found.span().start);
        bail!("{at}: bases.{}: must be a table", chain.join(", "));
    };
    inherit(source, &mut from, bases, chain)?;
    fill(table, from);
    Ok(())
}

/// Adds the keys of `from` that `table` lacks. A table that exists in both is filled in the same
/// way.
pub(super) fn fill<'t>(table: &mut DeTable<'t>, from: DeTable<'t>) {
    for (key, value) in from {
        match (table.get_mut(&key).map(Spanned::get_mut), value) {
            (None, value) => {
                table.insert(key, value);
            }
            (Some(DeValue::Table(own)), value) => {
                if let DeValue::Table(theirs) = value.into_inner() {
                    fill(own, theirs);
                }
            }
            (Some(_), _) => {}
        }
    }
}

/// Adds a case for every combination of the sweep's values to `all`. The keys of one table advance
/// together; several tables multiply.
fn unroll<'t>(
    source: SourceFile<'_>,
    case: &Spanned<DeTable<'t>>,
    sweep: Value<'t>,
    all: &mut Vec<ExpandedCase<'t>>,
) -> Result<()> {
    let at = source.at(sweep.span().start);
    let tables: Vec<DeTable<'t>> = match sweep.into_inner() {
        DeValue::Table(table) => vec![table],
        DeValue::Array(array) => {
            let table = |value: Value<'t>| match value.into_inner() {
                DeValue::Table(table) => Ok(table),
                other => bail!(
                    "{at}: sweep: must be a table or a list of tables, not a {}",
                    other.type_str()
                ),
            };
            array.into_iter().map(table).collect::<Result<_>>()?
        }
        other => bail!("{at}: sweep: must be a table, not a {}", other.type_str()),
    };
    ensure!(!tables.is_empty(), "{at}: sweep: it sets no field");
    let mut cases = vec![ExpandedCase {
        table: case.clone(),
        axes: Vec::new(),
    }];
    for table in tables {
        let steps = steps(source, &at, table)?;
        ensure!(
            cases.len() * steps.len() <= MOST_CASES,
            "{at}: sweep: more than {MOST_CASES} cases"
        );
        let mut next = Vec::with_capacity(cases.len() * steps.len());
        for case in &cases {
            for step in &steps {
                next.push(case.with(source, step)?);
            }
        }
        cases = next;
    }
    all.extend(cases);
    Ok(())
}

/// The fields that one step of a sweep sets, with their values.
type SweepStep<'t> = Vec<(String, Value<'t>)>;

/// Returns the steps of one table of a sweep. Its keys advance together: the first step has the
/// first value of each key, the second step the second.
fn steps<'t>(source: SourceFile<'_>, at: &str, table: DeTable<'t>) -> Result<Vec<SweepStep<'t>>> {
    let mut steps: Vec<SweepStep<'t>> = Vec::new();
    // The parser sorts the keys of a table; the case names follow the order of the file.
    let mut keys: Vec<_> = table.into_iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (i, (key, values)) in keys.into_iter().enumerate() {
        let path = key.get_ref().to_string();
        let at = source.at(key.span().start);
        let values = swept_values(source, &path, values)?;
        if i == 0 {
            steps.resize_with(values.len(), Vec::new);
        }
        ensure!(
            values.len() == steps.len(),
            "{at}: sweep: {path}: it has {}, but the key before it has {}: all keys of one table need the same number of values",
            counted(values.len() as u64, "value"),
            counted(steps.len() as u64, "value")
        );
        for (step, value) in steps.iter_mut().zip(values) {
            step.push((path.clone(), value));
        }
    }
    ensure!(!steps.is_empty(), "{at}: sweep: it sets no field");
    Ok(steps)
}

impl<'t> ExpandedCase<'t> {
    /// Returns the same case with one more step of a sweep.
    fn with(&self, source: SourceFile<'_>, step: &SweepStep<'t>) -> Result<Self> {
        let mut case = self.clone();
        for (path, value) in step {
            let at = source.at(value.span().start);
            ensure!(
                case.axes.iter().all(|(known, _)| known != path),
                "{at}: sweep: {path} is swept twice"
            );
            set(case.table.get_mut(), path, value.clone())
                .map_err(|cause| cause.context(format!("{at}: sweep: {path}")))?;
            // A published value describes the step, but is not one of its conditions.
            if path.split('.').next() != Some(PUBLISHED) {
                case.axes.push((path.clone(), written(value.get_ref())));
            }
        }
        Ok(case)
    }
}

/// Sets the field at a dotted path and creates the tables on the way. A list on the way is followed by the name of one of
/// its tables.
fn set<'t>(table: &mut DeTable<'t>, path: &str, value: Value<'t>) -> Result<()> {
    let key = |name: &str| Spanned::new(value.span(), Cow::Owned(name.to_owned()));
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(key(path), value);
        return Ok(());
    };
    let entry = table
        .entry(key(first))
        .or_insert_with(|| Spanned::new(value.span(), DeValue::Table(DeTable::new())));
    match entry.get_mut() {
        // The names of published figures contain dots.
        DeValue::Table(inner) if first == PUBLISHED => {
            inner.insert(key(rest), value);
            Ok(())
        }
        DeValue::Table(inner) => set(inner, rest, value),
        DeValue::Array(list) => set_in_list(list, first, rest, value),
        other => bail!("{first} is a {}, not a table", other.type_str()),
    }
}

/// Sets a field of a table in the list `key`. The first part of `path` is the table's `name`.
fn set_in_list<'t>(list: &mut DeArray<'t>, key: &str, path: &str, value: Value<'t>) -> Result<()> {
    let Some((name, rest)) = path.split_once('.') else {
        bail!("{key} is a list of tables: write the name of one and its key, {key}.NAME.KEY");
    };
    for item in list.iter_mut() {
        if let DeValue::Table(table) = item.get_mut()
            && table.get("name").and_then(|name| name.get_ref().as_str()) == Some(name)
        {
            return set(table, rest, value);
        }
    }
    bail!("no table of {key} has the name `{name}`")
}

/// Formats a value as the file has it, without quotes.
fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(all) => {
            let all: Vec<String> = all.iter().map(|value| written(value.get_ref())).collect();
            all.join(" ")
        }
        DeValue::Table(table) => {
            let pair = |(key, value): (&Spanned<Cow<'_, str>>, &Value<'_>)| {
                format!("{}={}", key.get_ref(), written(value.get_ref()))
            };
            table.iter().map(pair).collect::<Vec<_>>().join(" ")
        }
    }
}

/// Returns the values of a sweep: the list itself, or every value of a range `{ from, to, times }`
/// or `{ from, to, plus }`, in the range's unit.
///
/// # Errors
/// Fails if the value is neither a list nor a range, or has no values.
fn swept_values<'t>(
    source: SourceFile<'_>,
    path: &str,
    given: Spanned<DeValue<'t>>,
) -> Result<Vec<Spanned<DeValue<'t>>>> {
    let span = given.span();
    let at = || format!("{}: sweep: {path}", source.at(span.start));
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
    ensure!(!values.is_empty(), "{}: the list has no values", at());
    Ok(values)
}

/// A range of numbers with one unit.
struct Range {
    from: f64,
    to: f64,
    unit: String,
    step: Increase,
}

enum Increase {
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
            "from and to must have the same unit, not `{unit}` and `{to_unit}`"
        );
        let step = match (table.get("times"), table.get("plus")) {
            (Some(_), None) => {
                let (factor, of) = end("times")?;
                ensure!(
                    of.is_empty() && factor > 1.0,
                    "times: must be a number above 1"
                );
                ensure!(from > 0.0, "from: must be above 0 to be multiplied");
                Increase::Times(factor)
            }
            (None, Some(_)) => {
                let (summand, of) = end("plus")?;
                ensure!(
                    of == unit && summand > 0.0,
                    "plus: must be above 0, in `{unit}`"
                );
                Increase::Plus(summand)
            }
            _ => bail!("give a range either times or plus"),
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
                Increase::Times(factor) => self.from * factor.powf(i),
                Increase::Plus(summand) => self.from + summand * i,
            };
            if value > self.to * (1.0 + ROUNDING) {
                return Ok(values);
            }
            values.push(format!("{}{}", rounded(value), self.unit));
        }
        bail!("more than {MOST_VALUES} values")
    }
}

/// Rounds away the last digits, which hold only floating-point errors.
fn rounded(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

/// Splits a number and its unit: `10ms` is 10 of `ms`.
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
        .with_context(|| format!("`{text}` is not a number with a unit"))?;
    Ok((number, unit.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::named_files::NamedFiles;

    fn swept(text: &str) -> Result<Vec<String>> {
        let line = format!("sweep = {text}");
        let mut table = DeTable::parse(&line).unwrap().into_inner();
        let source = SourceFile {
            file: "x.toml",
            text: &line,
            also: NamedFiles::OWN,
        };
        let values = swept_values(source, "link.delay", table.remove("sweep").unwrap())?;
        Ok(values
            .iter()
            .map(|value| value.get_ref().as_str().unwrap().to_owned())
            .collect())
    }

    #[test]
    fn a_list_is_used_as_it_is() {
        assert_eq!(swept("['1ms', '2ms']").unwrap(), ["1ms", "2ms"]);
    }

    #[test]
    fn ranges_grow_by_a_factor_or_a_summand_and_include_their_ends() {
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
    fn a_wrong_range_is_refused_with_its_line() {
        for (text, cause) in [
            ("[]", "the list has no values"),
            ("'1ms'", "must be a list"),
            ("{ from = '1ms' }", "to is missing"),
            (
                "{ from = '1ms', to = '2s', times = 2 }",
                "from and to must have the same unit, not `ms` and `s`",
            ),
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
