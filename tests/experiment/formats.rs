//! Reports for other programs: these programs accept them and read the same numbers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use test_support::process::{self, farwire, stderr, stdout};

const FLENT: &str = "bin/flent";

/// A record of every kind of instrument, through a link of 10 Mbit/s.
fn record() -> PathBuf {
    process::root().join("tests/fixtures/records/every-kind.jsonl")
}

/// Writes a report of the record to a file or, for some formats, to a directory.
fn report(format: &str, target: &Path) -> Result<()> {
    let mut report = farwire();
    report.arg("report").arg(record()).arg("--out").arg(target);
    process::succeeds(report.args(["--format", format]))?;
    Ok(())
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
