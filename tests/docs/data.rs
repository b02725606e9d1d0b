//! The lines of other programs on the pages about data and about the packet log read the files that the pages make.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use test_support::blocks;
use test_support::process::{self, stdout};

const PAGE: &str = "docs/data.md";
const PACKET_LOG: &str = "docs/packet-log.md";
const PYTHON: &str = "bin/python";

/// A program that runs the statements of a file in DuckDB.
const DUCKDB: &str = "import duckdb, sys; print(duckdb.sql(open(sys.argv[1]).read()).fetchall())";

#[test_support::test(All, Namespaces, FormatTool(PYTHON))]
fn pandas_reads_the_runs_as_the_page_shows() -> Result<()> {
    let mut python = Command::new(process::format_tool(PYTHON));
    has_the_means(python.arg("with_pandas.py"))
}

#[test_support::test(All, Namespaces, FormatTool(PYTHON))]
fn polars_reads_the_runs_as_the_page_shows() -> Result<()> {
    let mut python = Command::new(process::format_tool(PYTHON));
    has_the_means(python.arg("with_polars.py"))
}

#[test_support::test(All, Namespaces, FormatTool(PYTHON))]
fn duckdb_reads_the_runs_as_the_page_shows() -> Result<()> {
    let mut python = Command::new(process::format_tool(PYTHON));
    has_the_means(python.args(["-c", DUCKDB, "with_duckdb.sql"]))
}

#[test_support::test(All, Namespaces, Tool("Rscript"))]
fn r_reads_the_runs_as_the_page_shows() -> Result<()> {
    has_the_means(Command::new("Rscript").arg("with_r.R"))
}

#[test_support::test(All, Namespaces, FormatTool(PYTHON))]
fn pandas_reads_a_packet_log_as_the_page_shows() -> Result<()> {
    let directory = super::run_page(&blocks::of(PACKET_LOG, &fs::read_to_string(PACKET_LOG)?)?)?;
    let mut python = Command::new(process::format_tool(PYTHON));
    python.current_dir(directory.path()).arg("packets.py");
    let said = stdout(&process::succeeds(&mut python)?);
    let mut bytes: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut reader = csv::Reader::from_path(directory.path().join("packets.csv"))?;
    for row in reader.records() {
        let row = row?;
        let group = (row[1].to_owned(), row[4].to_owned());
        *bytes.entry(group).or_default() += row[2].parse::<u64>()?;
    }
    ensure!(!bytes.is_empty(), "no packets");
    for ((direction, verdict), sum) in bytes {
        let mut rows = said.lines().map(|line| line.split_whitespace());
        let is_shown = rows.any(|mut row| {
            let is_verdict = row.any(|word| word == verdict);
            is_verdict && row.next_back() == Some(sum.to_string().as_str())
        });
        ensure!(is_shown, "{direction}, {verdict}: {sum} bytes: {said}");
    }
    Ok(())
}

/// Runs the blocks of the page and then a program on their files, which must print the mean of every delay.
fn has_the_means(program: &mut Command) -> Result<()> {
    let directory = super::run_page(&blocks::of(PAGE, &fs::read_to_string(PAGE)?)?)?;
    let means = means(&directory.path().join("out/delays/runs.csv"))?;
    // The machine may have spoilt the runs of one delay.
    ensure!(!means.is_empty(), "no run counts");
    let said = stdout(&process::succeeds(program.current_dir(directory.path()))?);
    let words = said.split(|c: char| !c.is_ascii_digit() && c != '.');
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    for (delay, mean) in means {
        let has = |wanted: f64| numbers.iter().any(|own| (own / wanted - 1.0).abs() < 1e-4);
        ensure!(
            has(delay.parse()?) && has(mean),
            "{delay} ms: {mean}: {said}"
        );
    }
    Ok(())
}

/// Returns the mean of the round-trip times of each delay.
fn means(runs: &Path) -> Result<BTreeMap<String, f64>> {
    let mut reader = csv::Reader::from_path(runs)?;
    let names = reader.headers()?.clone();
    let place = |name: &str| {
        let place = names.iter().position(|known| known == name);
        place.with_context(|| format!("no column {name}: {names:?}"))
    };
    let [delay, rtt] = [place("link.delay_ms")?, place("ping.rtt_ms.median")?];
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in reader.records() {
        let row = row?;
        let own = times.entry(row[delay].to_owned()).or_default();
        own.push(row[rtt].parse()?);
    }
    let mean = |times: Vec<f64>| times.iter().sum::<f64>() / times.len() as f64;
    let means = times.into_iter().map(|(delay, times)| (delay, mean(times)));
    Ok(means.collect())
}
