//! `compare` as a gate: its output and exit code, on records made from a real one.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use test_support::process::{self, ends_with, farwire, has, stderr, stdout};

const RECORD: &str = include_str!("../fixtures/records/small.jsonl");

#[test_support::test]
fn too_few_runs_end_compare_with_1() -> Result<()> {
    let records = Records::of(&lines(3, 1.0)?, &lines(3, 3.0)?)?;
    let output = records.compare(&["--json", "-"])?;
    let text = ends_with(&output, 1, "too few runs: 4")?;
    ensure!(!text.contains("got worse"), "{text}");
    has(&text, "--allow-missing")?;
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let few = json!({"cause": "too-few-runs", "enough": 4});
    ensure!(
        rows.iter().all(|row| row["cannot_tell"] == few),
        "{rows:#?}"
    );
    process::succeeded(records.compare(&["--allow-missing"])?)?;
    Ok(())
}

#[test_support::test]
fn a_figure_that_one_record_lacks_ends_compare_with_1() -> Result<()> {
    let whole = lines(4, 1.0)?;
    let mut without = whole.clone();
    for run in without.iter_mut().filter_map(|line| line.get_mut("run")) {
        let all = run["measurements"].as_array_mut().context("no list")?;
        all.retain(|one| one["instrument"] != "ping");
    }
    for (records, lacking) in [
        (Records::of(&whole, &without)?, "record"),
        (Records::of(&without, &whole)?, "reference"),
    ] {
        let output = records.compare(&["--json", "-"])?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        let missing: Vec<_> = rows
            .iter()
            .filter(|row| !row["cannot_tell"].is_null())
            .collect();
        let cause = json!({"cause": "missing", "lacking": lacking});
        ensure!(
            !missing.is_empty() && missing.iter().all(|row| row["cannot_tell"] == cause),
            "{rows:#?}"
        );
        let what = format!("not compared: base: ping.rtt_ms.median: not in the {lacking}\n");
        has(&stderr(&output), &what)?;
        ensure!(records.compare(&["--allow-missing"])?.status.success());
    }
    Ok(())
}

#[test_support::test]
fn a_case_that_one_record_lacks_ends_compare_with_1() -> Result<()> {
    let one = lines(4, 1.0)?;
    let mut two = one.clone();
    let cases = two[0]["plan"]["cases"].as_array_mut().context("no cases")?;
    let mut more = cases[0].clone();
    more["name"] = "more".into();
    cases.push(more);
    let output = Records::of(&one, &two)?.compare(&[])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let text = stdout(&output);
    has(&text, "not compared: more: not in the reference")?;
    has(&text, "no figure of the rest got worse")?;
    Ok(())
}

#[test_support::test]
fn compare_ends_with_0_on_what_it_can_tell() -> Result<()> {
    process::succeeded(Records::of(&lines(4, 1.0)?, &lines(4, 1.0)?)?.compare(&[])?)?;
    let slower = Records::of(&lines(4, 1.0)?, &lines(4, 3.0)?)?;
    let output = slower.compare(&["--allow-missing"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let text = stdout(&output);
    has(
        &text,
        "REGRESSION: base: ping.rtt_ms.median: 3.0 times as long",
    )?;
    Ok(())
}

#[test_support::test]
fn other_links_are_compared_when_asked_for() -> Result<()> {
    let plain = lines(4, 1.0)?;
    let mut longer = plain.clone();
    longer[0]["plan"]["cases"][0]["link"] = json!({"delay": "20ms"});
    let records = Records::of(&plain, &longer)?;
    let refused = records.compare(&[])?;
    let text = stderr(&refused);
    ensure!(refused.status.code() == Some(2), "{refused:?}");
    has(&text, "`reference`")?;
    has(&text, "--across-links")?;
    let output = process::succeeded(records.compare(&["--across-links"])?)?;
    let text = stdout(&output);
    let links = "across links: case `base`: none in the reference, delay 20ms in the record\n";
    has(&text, links)?;
    Ok(())
}

#[test_support::test]
fn records_that_differ_on_purpose_are_compared_by_that_field() -> Result<()> {
    let cubic = lines(5, 1.0)?;
    let mut bbr = lines(5, 3.0)?;
    bbr[0]["plan"]["cases"][0]["congestion"] = "bbr".into();
    let records = Records::of(&cubic, &bbr)?;
    let refused = records.compare(&[])?;
    ensure!(refused.status.code() == Some(2), "{refused:?}");
    has(&stderr(&refused), "use --by congestion")?;
    let output = process::succeeded(records.compare(&["--by", "congestion"])?)?;
    let text = stdout(&output).replace("\n  ", " ");
    has(&text, "differ on purpose in their congestion control\n")?;
    has(
        &text,
        "Does the median round-trip time of ping depend on the congestion control?\n",
    )?;
    has(
        &text,
        "the median round-trip time of ping with bbr is 3.000 times that with cubic in case `base`\n",
    )?;
    ensure!(!text.contains("REGRESSION"), "{text}");
    let figures = records.directory.path().join("figures");
    let directory = figures.to_str().context("a name in UTF-8")?;
    process::succeeded(records.compare(&["--by", "congestion", "--figures", directory])?)?;
    let file = "compare-congestion-ping-rtt_ms-median-bbr---cubic.svg";
    let svg = fs::read_to_string(figures.join(file))?;
    has(&svg, "Does the median round-trip time of ping depend on")?;
    let output = process::succeeded(records.compare(&["--by", "congestion", "--json", "-"])?)?;
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let mut of_ping = rows
        .iter()
        .filter(|row| row["figure"] == "ping.rtt_ms.median");
    let row = of_ping.next().context("no row")?;
    for (key, value) in [
        ("by", json!("congestion")),
        ("case", json!("base")),
        ("values", json!(["cubic", "bbr"])),
        ("runs", json!([5, 5])),
        ("found", json!("higher")),
        ("cannot_tell", Value::Null),
    ] {
        ensure!(row[key] == value, "{key}: {row}");
    }
    for (options, told) in [
        (&["--by", "links"][..], "differs in its congestion control"),
        (
            &["--by", "congestion", "--threshold", "5%"],
            "cannot be used with",
        ),
    ] {
        let refused = records.compare(options)?;
        ensure!(refused.status.code() == Some(2), "{refused:?}");
        has(&stderr(&refused), told)?;
    }
    Ok(())
}

#[test_support::test]
fn too_few_runs_end_compare_by_with_1() -> Result<()> {
    let mut other = lines(3, 1.0)?;
    other[0]["plan"]["cases"][0]["congestion"] = "bbr".into();
    let records = Records::of(&lines(3, 1.0)?, &other)?;
    let output = records.compare(&["--by", "congestion"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    has(
        &stdout(&output),
        "not made: 1 of 1 comparison: too few runs: 4 of each needed",
    )?;
    has(&stderr(&output), "--allow-missing")?;
    process::succeeded(records.compare(&["--by", "congestion", "--allow-missing"])?)?;
    Ok(())
}

/// Returns a record's lines with this many runs of its case "base", whose round trips are `factor` times the measured ones.
fn lines(runs: u32, factor: f64) -> Result<Vec<Value>> {
    let mut lines = Vec::new();
    for line in RECORD.lines() {
        let mut line: Value = serde_json::from_str(line)?;
        if line.get("plan").is_some() {
            let plan = &mut line["plan"];
            plan["trends"] = json!([]);
            plan["cases"]
                .as_array_mut()
                .context("no cases")?
                .truncate(1);
            plan["cases"][0]["repeats"] = json!({"least": runs, "most": runs, "until": null});
        } else if line["run"]["case"] == "base" {
            let all = line["run"]["measurements"].as_array_mut();
            let ping = all.context("no list")?.iter_mut();
            let figures = ping.filter(|one| one["instrument"] == "ping");
            for figure in figures
                .flat_map(|one| one["figures"].as_array_mut())
                .flatten()
            {
                let value = figure["value"].as_f64().context("no value")?;
                figure["value"] = (value * factor).into();
            }
            for repeat in 1..=runs {
                line["run"]["repeat"] = repeat.into();
                lines.push(line.clone());
            }
            continue;
        } else if line.get("run").is_some() {
            continue;
        }
        lines.push(line);
    }
    Ok(lines)
}

/// Writes a reference and a record.
struct Records {
    directory: TempDir,
}

impl Records {
    fn of(reference: &[Value], record: &[Value]) -> Result<Self> {
        let records = Self {
            directory: tempfile::tempdir()?,
        };
        for (path, lines) in records.paths().iter().zip([reference, record]) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            fs::write(path, text)?;
        }
        Ok(records)
    }

    fn paths(&self) -> [PathBuf; 2] {
        ["reference.jsonl", "record.jsonl"].map(|name| self.directory.path().join(name))
    }

    fn compare(&self, options: &[&str]) -> Result<Output> {
        process::run(farwire().arg("compare").args(self.paths()).args(options))
    }
}
