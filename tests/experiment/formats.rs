//! Reports for other programs: these programs accept them and read the same numbers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use test_support::process::{self, farwire, stderr, stdout};

const FLENT: &str = "bin/flent";
const PYTHON: &str = "bin/python";

/// Compares the table of a CSV file with that of a Parquet file, and prints the number of rows that each program reads from
/// each file.
const TABLES: &str = r#"import sys
import duckdb, pandas, polars
text, binary = sys.argv[1:]
csv, parquet = pandas.read_csv(text), pandas.read_parquet(binary)
assert list(csv.columns) == list(parquet.columns), (csv.columns, parquet.columns)
for name, numbers in parquet.select_dtypes("number").items():
    assert csv[name].count() == numbers.count(), name
    assert abs(float(csv[name].sum()) - float(numbers.sum())) <= 1e-9 * abs(float(numbers.sum())), name
lines, rows = polars.read_csv(text, infer_schema_length=None), polars.read_parquet(binary)
assert lines.columns == rows.columns == list(csv.columns), (lines.columns, rows.columns)
tables = f"read_csv('{text}', header = true)", f"read_parquet('{binary}')"
in_duckdb = [duckdb.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables]
print(len(csv), len(parquet), lines.height, rows.height, *in_duckdb)
"#;

/// Prints the number of figures, of valid round-trip times, and their sum, in a line for each program.
const LINES: &str = r#"import sys
import duckdb, pandas, polars
[file] = sys.argv[1:]
figures = pandas.read_json(file, lines=True)
times = figures[figures["valid"] & (figures["metric"] == "rtt_ms")]["value"]
print(len(figures), len(times), times.sum())
figures = polars.read_ndjson(file, infer_schema_length=None)
times = figures.filter(polars.col("valid") & (polars.col("metric") == "rtt_ms"))["value"]
print(figures.height, len(times), times.sum())
wanted = "FILTER (WHERE valid AND metric = 'rtt_ms')"
print(*duckdb.sql(f"SELECT count(*), count(*) {wanted}, sum(value) {wanted} FROM read_json('{file}')").fetchall()[0])
"#;

/// Reads a document as CommonMark with GitHub's tables, and prints the number of tables. Every row has the cells of its
/// table, every link within the document has its target, and only these targets are HTML.
const MARKDOWN: &str = r##"import re, sys
from markdown_it import MarkdownIt
[file] = sys.argv[1:]
text = open(file, encoding="utf-8").read()
lines, tables, links, targets = text.split("\n"), 0, set(), set()
for token in MarkdownIt("commonmark").enable("table").parse(text):
    assert token.type != "html_block", token.content
    if token.type == "table_open":
        tables += 1
    elif token.type == "tr_open":
        row, cells = lines[token.map[0]], 0
    elif token.type in ("th_open", "td_open"):
        cells += 1
    elif token.type == "tr_close":
        assert cells == len(re.findall(r"(?<!\\)\|", row)) - 1, row
    elif token.type == "inline":
        assert not token.content.startswith("|"), token.content
        for child in token.children:
            if child.type == "link_open" and child.attrGet("href").startswith("#"):
                links.add(child.attrGet("href"))
            elif child.type == "html_inline" and child.content != "</a>":
                [target] = re.findall('^<a id="([^"]+)">$', child.content)
                targets.add("#" + target)
assert links <= targets, links - targets
print(tables)
"##;

/// Prints the number of tests, failures, errors and skipped tests of each suite, and compares them with its elements.
const JUNIT: &str = r#"import sys
from junitparser import JUnitXml
for file in sys.argv[1:]:
    for suite in JUnitXml.fromfile(file):
        stated = suite.tests, suite.failures, suite.errors, suite.skipped
        suite.update_statistics()
        counted = suite.tests, suite.failures, suite.errors, suite.skipped
        assert stated == counted, (file, stated, counted)
        print(*stated)
"#;

/// A record of every kind of instrument, through a link of 10 Mbit/s.
fn record() -> PathBuf {
    fixture("records/every-kind.jsonl")
}

fn fixture(name: &str) -> PathBuf {
    process::root().join("tests/fixtures").join(name)
}

/// Writes a report of the record to a file or, for some formats, to a directory.
fn report(format: &str, target: &Path) -> Result<()> {
    report_of(&record(), &["--format", format], target)
}

fn report_of(record: &Path, options: &[&str], target: &Path) -> Result<()> {
    let mut report = farwire();
    report.arg("report").arg(record).arg("--out").arg(target);
    process::succeeds(report.args(options))?;
    Ok(())
}

/// Runs a program in Python on these files and returns its output.
fn python(program: &str, files: &[PathBuf]) -> Result<String> {
    let mut python = Command::new(process::format_tool(PYTHON));
    python.args(["-B", "-c", program]).args(files);
    Ok(stdout(&process::succeeds(&mut python)?))
}

#[test_support::test(Tool("promtool"))]
fn promtool_has_nothing_against_the_metrics_of_a_record() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let metrics = folder.path().join("farwire.prom");
    report("openmetrics", &metrics)?;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let said = process::run_with(&mut promtool, File::open(&metrics)?.into())?;
    let words = format!("{}{}", stdout(&said), stderr(&said));
    ensure!(said.status.success() && words.is_empty(), "{words}");
    Ok(())
}

#[test_support::test(All, FormatTool(FLENT))]
fn flents_summary_has_the_goodput_of_the_record_and_no_rate_above_the_links() -> Result<()> {
    let folder = tempfile::tempdir()?;
    report("flent", folder.path())?;
    let mut flent = Command::new(process::format_tool(FLENT));
    flent
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .args(["-f", "summary", "-i", "far-tcp-1.flent"]);
    let said = stdout(&process::succeeds(&mut flent)?);
    let row = said.lines().find(|line| line.contains("TCP upload"));
    let (_, numbers) = row
        .and_then(|row| row.split_once(':'))
        .context(said.clone())?;
    let numbers = numbers
        .split_whitespace()
        .map_while(|word| word.parse::<f64>().ok());
    let [average, median, p99] = numbers.collect::<Vec<_>>()[..] else {
        bail!("no average, median and 99th percentile: {said}");
    };
    // The record's mean is 9.17 Mbit/s. The rate of its last 24 ms is 18.8 Mbit/s.
    ensure!(average == 9.17, "{said}");
    ensure!((8.8..=9.0).contains(&median) && p99 < 10.0, "{said}");
    Ok(())
}

#[test_support::test]
fn csv_has_a_row_for_each_run_or_for_each_sample() -> Result<()> {
    let lines = |rows: &[&str]| {
        let mut report = farwire();
        report.arg("report").arg(record()).args(["--format", "csv"]);
        let text = stdout(&process::succeeds(report.args(rows))?);
        let head = text.lines().next().context("a header")?.to_owned();
        Ok::<_, anyhow::Error>((head, text.lines().count()))
    };
    let (runs, count) = lines(&["--rows", "runs"])?;
    let begin = "case,repeat,attempt,outcome,reason,seed,host,started_at,ping.rtt_ms.";
    ensure!(runs.starts_with(begin) && count == 5, "{count}: {runs}");
    let (samples, count) = lines(&[])?;
    let begin = "case,repeat,attempt,outcome,seed,instrument,at_s,metric,";
    ensure!(
        samples.starts_with(begin) && count == 1 + 478,
        "{count}: {samples}"
    );
    ensure!(lines(&["--with-invalid"])?.1 == 1 + 478, "other samples");
    Ok(())
}

#[test_support::test]
fn rows_are_selected_only_from_the_formats_that_have_some() -> Result<()> {
    for selection in [&["--rows", "runs"][..], &["--with-invalid"]] {
        let mut report = farwire();
        report
            .arg("report")
            .arg(record())
            .args(["--format", "html"]);
        let refused = process::run(report.args(selection))?;
        let words = stderr(&refused);
        ensure!(refused.status.code() == Some(2), "{words}");
        ensure!(words.contains("html has no rows to select"), "{words}");
    }
    Ok(())
}

#[test_support::test(All, FormatTool(PYTHON))]
fn pandas_polars_and_duckdb_read_the_same_rows_from_csv_and_parquet() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (rows, count) in [("runs", "4"), ("samples", "478")] {
        let files = ["csv", "parquet"].map(|end| folder.path().join(format!("{rows}.{end}")));
        for (format, file) in ["csv", "parquet"].into_iter().zip(&files) {
            report_of(&record(), &["--format", format, "--rows", rows], file)?;
        }
        let said = python(TABLES, &files)?;
        ensure!(
            said.split_whitespace().eq([count; 6]),
            "{count} {rows}: {said}"
        );
    }
    Ok(())
}

#[test_support::test(All, FormatTool(PYTHON))]
fn pandas_polars_and_duckdb_read_every_figure_from_json_lines() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("figures.jsonl");
    report("jsonl", &file)?;
    let text = fs::read_to_string(&file)?;
    let mut times = Vec::new();
    for line in text.lines() {
        let figure: Value = serde_json::from_str(line)?;
        if figure["valid"] == true && figure["metric"] == "rtt_ms" {
            times.push(figure["value"].as_f64().context("a value")?);
        }
    }
    let [figures, valid] = [text.lines().count(), times.len()].map(|count| count as f64);
    let sum: f64 = times.iter().sum();
    ensure!(valid > 0.0, "no round-trip time");
    let said = python(LINES, &[file])?;
    ensure!(said.lines().count() == 3, "{said}");
    for line in said.lines() {
        let numbers = line.split_whitespace().map(str::parse::<f64>);
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
        let [all, own, total] = numbers[..] else {
            bail!("no two counts and a sum: {said}");
        };
        ensure!(all == figures && own == valid, "{figures}, {valid}: {said}");
        ensure!((total / sum - 1.0).abs() < 1e-9, "{sum}: {said}");
    }
    Ok(())
}

#[test_support::test(All, Tool("jq"))]
fn jq_reads_the_same_figures_from_the_document_and_from_the_lines() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut values = Vec::new();
    for (format, filter) in [
        ("json", ".runs[].measurements[].figures[] | .value"),
        ("jsonl", ".value"),
    ] {
        let file = folder.path().join(format);
        report(format, &file)?;
        let mut jq = Command::new("jq");
        values.push(stdout(&process::succeeds(jq.arg(filter).arg(&file))?));
    }
    ensure!(values[0].lines().count() > 100, "{}", values[0]);
    ensure!(values[0] == values[1], "{values:?}");
    Ok(())
}

#[test_support::test(All, FormatTool(PYTHON))]
fn a_markdown_parser_finds_every_table_and_the_target_of_every_link() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("report.md");
    for name in [
        "records/every-kind.jsonl",
        "records/small.jsonl",
        "serve.jsonl",
    ] {
        report_of(&fixture(name), &["--format", "md"], &file)?;
        let text = fs::read_to_string(&file)?;
        let tables = text.lines().filter(|line| line.starts_with("|---")).count();
        let said = python(MARKDOWN, std::slice::from_ref(&file)).context(name)?;
        ensure!(
            tables > 0 && said.trim() == tables.to_string(),
            "{name}: {tables} tables: {said}"
        );
    }
    Ok(())
}

#[test_support::test(All, FormatTool(PYTHON))]
fn a_junit_parser_counts_the_tests_as_the_report_states_them() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let records = ["small", "grid", "truth"];
    let files = records.map(|name| folder.path().join(name));
    for (name, file) in records.into_iter().zip(&files) {
        let record = fixture(&format!("records/{name}.jsonl"));
        report_of(&record, &["--format", "junit"], file)?;
    }
    // All are met; no run took place; the first runs of a long experiment.
    let said = python(JUNIT, &files)?;
    ensure!(said == "3 0 0 0\n2 0 2 0\n6 0 1 5\n", "{said}");
    Ok(())
}
