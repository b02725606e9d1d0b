//! Every figure of every run as JSON Lines: one object per line, which pandas, jq and DuckDB read without a schema.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use record::{Figure, Latest, Measured, Record, Run};

/// A figure of a run. The keys of the figure itself are those of the record.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    case: &'a str,
    /// The values that a sweep set, by the path of the field; absent for a case that no sweep made.
    #[serde(skip_serializing_if = "Option::is_none")]
    swept: Option<&'a SweptValues<'a>>,
    repeat: u32,
    attempt: u32,
    instrument: &'a str,
    #[serde(flatten)]
    figure: &'a Figure,
    unit: &'static str,
    /// Whether reports count it.
    valid: bool,
    /// The reason why reports do not count it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// Writes a line for every figure, in the order in which the runs took place.
///
/// # Errors
/// Those of writing to `target`.
pub(crate) fn write_jsonl(record: &Record, target: &mut dyn Write) -> io::Result<()> {
    let latest = record.latest();
    let swept = swept(record);
    for run in &record.runs {
        for measured in &run.measurements {
            for figure in &measured.measurement.figures {
                let cause = cause(&latest, run, measured, figure);
                let line = Line {
                    experiment: &record.plan().name,
                    case: &run.case,
                    swept: swept.get(run.case.as_str()),
                    repeat: run.repeat,
                    attempt: run.attempt,
                    instrument: &measured.instrument,
                    figure,
                    unit: figure.metric.unit(),
                    valid: cause.is_none(),
                    cause,
                };
                serde_json::to_writer(&mut *target, &line)?;
                writeln!(target)?;
            }
        }
    }
    Ok(())
}

/// The swept fields of a case, by path, with their values.
type SweptValues<'a> = BTreeMap<&'a str, &'a str>;

/// Returns the values that sweeps set in each case that has any, by the name of the case.
fn swept(record: &Record) -> HashMap<&str, SweptValues<'_>> {
    let cases = record.plan().cases.iter();
    let of_case = cases.map(|case| {
        let values: SweptValues<'_> = case.swept_values().collect();
        (case.name.as_str(), values)
    });
    of_case.filter(|(_, values)| !values.is_empty()).collect()
}

/// Returns the reason why reports do not count a figure, if they do not.
fn cause(latest: &Latest<'_>, run: &Run, measured: &Measured, figure: &Figure) -> Option<String> {
    let last = latest.run(&run.case, run.repeat)?;
    if last.attempt > run.attempt {
        return Some(format!("attempt {} replaces this one", last.attempt));
    }
    let failure = measured.measurement.failure.clone();
    failure.or_else(|| run.spoilt(measured, figure))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{record, spoil};
    use serde_json::{Value, json};

    fn lines(record: &Record) -> Vec<Value> {
        let mut text = Vec::new();
        write_jsonl(record, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines = text.lines();
        lines.map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn every_figure_of_every_run_is_a_line_with_its_unit_and_interval() {
        let mut record = record();
        let goodput = &mut record.runs[0].measurements[1].measurement.figures[0];
        *goodput = goodput.clone().at_least(15e6);
        let lines = lines(&record);
        let measured = record.runs.iter().flat_map(|run| &run.measurements);
        let figures: usize = measured.map(|m| m.measurement.figures.len()).sum();
        assert_eq!(lines.len(), figures);
        let mut of_download = lines.iter().filter(|l| l["instrument"] != "ping");
        let line = of_download.next().unwrap();
        for (key, value) in [
            ("experiment", json!("small")),
            ("case", json!("base")),
            ("repeat", json!(1)),
            ("attempt", json!(1)),
            ("metric", json!("goodput_bit_per_s")),
            ("statistic", json!("mean")),
            ("unit", json!("bit/s")),
            ("value", json!(16e6)),
            ("interval", json!([15e6, null])),
            ("valid", json!(true)),
            ("cause", Value::Null),
        ] {
            assert_eq!(line[key], value, "{key} of {line}");
        }
    }

    #[test]
    fn a_swept_case_has_its_swept_values() {
        let mut record = record();
        let axis = ("link.delay".to_owned(), "10ms".to_owned());
        record.head.plan.cases[1].axes = vec![axis];
        for line in lines(&record) {
            let swept = match line["case"].as_str() {
                Some("slow") => json!({"link.delay": "10ms"}),
                _ => Value::Null,
            };
            assert_eq!(line["swept"], swept, "{line}");
        }
    }

    #[test]
    fn an_invalid_figure_has_its_cause() {
        let mut record = record();
        let mut again = record.runs[0].clone();
        spoil(&mut record.runs[0], "late");
        let of_first = |record: &Record| lines(record)[0].clone();
        assert_eq!(of_first(&record)["cause"], "late");
        again.attempt = 2;
        record.runs.push(again);
        let line = of_first(&record);
        assert_eq!(line["valid"], false);
        assert_eq!(line["cause"], "attempt 2 replaces this one");
    }
}
