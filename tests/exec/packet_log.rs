//! The packet log agrees with the counters in the link's summary.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

use test_support::process::{self, has, stderr, stdout};
use test_support::wan_box::{Direction, Summary};

const PYTHON: &str = "bin/python";

/// Prints the number of packets that were delivered upward and their bytes, in a line for each program.
const DELIVERED: &str = r#"import sys
import duckdb, pandas, polars
[file] = sys.argv[1:]
packets = pandas.read_parquet(file)
up = packets[(packets["direction"] == "up") & (packets["verdict"] == "delivered")]
print(len(up), int(up["bytes"].sum()))
packets = polars.read_parquet(file)
up = packets.filter((polars.col("direction") == "up") & (polars.col("verdict") == "delivered"))
print(up.height, up["bytes"].sum())
up = "direction = 'up' AND verdict = 'delivered'"
print(*duckdb.sql(f"SELECT count(*), sum(bytes) FROM read_parquet('{file}') WHERE {up}").fetchall()[0])
"#;

/// The rows, as maps from column to value.
type Row = BTreeMap<String, String>;

#[test_support::test(serial, Namespaces)]
fn the_packet_log_has_a_line_for_every_packet_that_the_summary_counts() -> Result<()> {
    let (log, json) = (NamedTempFile::new()?, NamedTempFile::new()?);
    let mut command = process::farwire();
    command.args("exec --delay 300ms --loss 2% --rate 8mbit --queue 10pkt".split(' '));
    command.arg("--packet-log").arg(log.path());
    command.arg("--json").arg(json.path());
    // The load exceeds the rate of the link, and the end comes while packets are on their way.
    let client = "udp 10.77.0.2 -b 10M -l 1000 -t 1 --quiet";
    command.arg("--").arg(process::program());
    command.arg("measure").args(client.split(' '));
    let said = stderr(&process::succeeds(&mut command)?);
    let summary: Summary = serde_json::from_slice(&std::fs::read(json.path())?)?;
    let rows = rows(&std::fs::read_to_string(log.path())?)?;
    for (name, direction) in [("up", &summary.up), ("down", &summary.down)] {
        let rows: Vec<&Row> = rows.iter().filter(|r| r["direction"] == name).collect();
        agrees(&rows, direction).with_context(|| format!("{name}: {direction:?}, {said}"))?;
    }
    ensure!(summary.up.lost() > 0, "{said}");
    ensure!(summary.up.queue_full() > 0, "{said}");
    let numbers = rows.iter().map(|row| row["number"].parse::<u64>());
    for (number, expected) in numbers.zip(1..) {
        ensure!(number? == expected, "a gap before {expected}: {said}");
    }
    has(&said, format!("packet log: {} lines", rows.len()))?;
    Ok(())
}

/// Checks that the rows of one direction agree with the summary, and that departures follow arrivals.
fn agrees(rows: &[&Row], direction: &Direction) -> Result<()> {
    let of = |verdict: &str| rows.iter().filter(|r| r["verdict"] == verdict).count() as u64;
    let counted = [
        ("delivered", direction.delivered),
        ("loss", direction.lost()),
        ("queue_full", direction.queue_full()),
        ("held_at_end", direction.held_at_end),
        ("link_control", direction.link_control),
    ];
    let mut all = 0;
    for (verdict, count) in counted {
        ensure!(of(verdict) == count, "{verdict}: {} rows", of(verdict));
        all += count;
    }
    ensure!(
        rows.len() as u64 == all,
        "{} rows, {all} counted",
        rows.len()
    );
    let mut bytes = 0;
    for row in rows.iter().filter(|r| r["verdict"] == "delivered") {
        bytes += row["bytes"].parse::<u64>()?;
        let times = ["arrival_ns", "due_ns", "departure_ns"].map(|key| row[key].parse::<u64>());
        let [arrival, due, departure] = times;
        let (arrival, due) = (arrival?, due?);
        // The delay is 300 ms; times are converted to the wall clock batch by batch.
        ensure!(due - arrival >= 300_000_000, "{row:?}");
        ensure!(departure? >= due, "{row:?}");
        ensure!(row["source"].starts_with("10.77.0."), "{row:?}");
    }
    ensure!(bytes == direction.delivered_bytes, "{bytes} bytes");
    Ok(())
}

fn rows(text: &str) -> Result<Vec<Row>> {
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
    let columns: Vec<String> = lines.next().context("a header")?.collect();
    Ok(lines
        .map(|row| columns.iter().cloned().zip(row).collect())
        .collect())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn the_packet_log_names_the_hop_that_dropped_a_packet() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [link, log] = ["link.toml", "log.csv"].map(|name| folder.path().join(name));
    let hops = "[[hops]]\nname = 'near'\ndelay = '1ms'\n[[hops]]\nname = 'far'\nup.loss = '100%'\n";
    std::fs::write(&link, hops)?;
    let mut command = process::farwire();
    command.args(["exec", "--link"]).arg(&link);
    command.arg("--packet-log").arg(&log);
    let pings = "ping -q -n -c 3 -i 0.2 -W 1 10.77.0.2; true";
    let said = stderr(&process::succeeds(command.args(["--", "sh", "-c", pings]))?);
    let rows = rows(&std::fs::read_to_string(&log)?)?;
    let (lost, others): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row["verdict"] == "loss");
    ensure!(lost.len() >= 3, "{said}");
    let is_far = |row: &&Row| row["hop"] == "far" && row["direction"] == "up";
    ensure!(lost.iter().all(is_far), "{lost:?}");
    ensure!(others.iter().all(|row| row["hop"].is_empty()), "{others:?}");
    has(
        &said,
        format!("hop near: 0 dropped; hop far: {} dropped", lost.len()),
    )?;
    Ok(())
}

#[test_support::test(All, Namespaces, FormatTool(PYTHON))]
fn pandas_polars_and_duckdb_read_a_packet_log_as_parquet() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [log, json] = ["log.parquet", "json"].map(|name| folder.path().join(name));
    let mut exec = process::farwire();
    exec.args("exec --delay 5ms --loss 2%".split(' '));
    exec.arg("--packet-log").arg(&log).arg("--json").arg(&json);
    let client = "udp 10.77.0.2 -b 1M -l 1000 -t 1 --quiet";
    exec.arg("--").arg(process::program()).arg("measure");
    process::succeeds(exec.args(client.split(' ')))?;
    let summary: Summary = serde_json::from_slice(&std::fs::read(&json)?)?;
    let mut python = Command::new(process::format_tool(PYTHON));
    let said = process::succeeds(python.args(["-B", "-c", DELIVERED]).arg(&log))?;
    let Direction {
        delivered,
        delivered_bytes,
        ..
    } = summary.up;
    ensure!(delivered > 50, "{delivered}");
    let line = format!("{delivered} {delivered_bytes}\n");
    ensure!(stdout(&said) == line.repeat(3), "{line}{}", stdout(&said));
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_packet_log_that_cannot_be_written_is_found_before_the_command_runs() -> Result<()> {
    let mut command = process::farwire();
    command.args(["exec", "--packet-log", "/nowhere/log", "--", "echo", "ran"]);
    let output = process::run(&mut command)?;
    let said = stderr(&output);
    ensure!(output.status.code() == Some(125), "{}", output.status);
    has(&said, "/nowhere/log")?;
    ensure!(output.stdout.is_empty(), "the command ran");
    Ok(())
}
