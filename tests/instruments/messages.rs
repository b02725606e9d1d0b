//! pingpong, blast and transfer as programs: the sweeps of "Experiment on Oct 10" (nettest) and "Perl TCP Transfer Test", and peers that
//! disappear.

use std::fs;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER_PORT, WAN};
use serde_json::Value;

use test_support::counters::InterfaceCounters;
use test_support::far_end::FarEnd;
use test_support::process::{self, ends_with, farwire, has, stderr};
use test_support::suite::{Need, Suite};

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (mtu, mss) in [(1500, 1448), (9000, 8948)] {
        suite.test(
            format!("a transfer states its MTU of {mtu}"),
            &[Need::Namespaces],
            move || states_its_mtu(mtu, mss),
        );
    }
}

#[test_support::test]
fn one_command_prints_nettests_table_of_pingpong() -> Result<()> {
    let table = sweep("pingpong --sweep nettest --count 100 --nagle --runs 2")?;
    check_nettest(
        &table,
        &["iteration", "1st", "2nd", "AVG", "variation", "RTT"],
    )
}

#[test_support::test]
fn one_command_prints_nettests_table_of_blast() -> Result<()> {
    let table = sweep("blast --sweep nettest --count 1000 --nagle --runs 2")?;
    check_nettest(&table, &["log2(size)", "AVG", "variation", "throughput"])?;
    ensure!(table.contains(" 11.58496 "), "{table}");
    Ok(())
}

#[test_support::test]
fn a_message_larger_than_a_datagram_is_refused() -> Result<()> {
    let command = "measure pingpong 127.0.0.1:1 --udp --size 65508";
    let output = run(command)?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    ensure!(stderr(&output).contains("at most 65507"), "{output:?}");
    Ok(())
}

#[test_support::test]
fn a_port_where_nothing_listens_is_said_to_be_one() -> Result<()> {
    let output = run("measure blast 127.0.0.1:1")?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(
        stderr(&output).contains("127.0.0.1:1 refuses"),
        "{output:?}"
    );
    Ok(())
}

fn sweep(command: &str) -> Result<String> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let (kind, rest) = command.split_once(' ').context("a kind")?;
    let address = far_end.address("messages")?;
    let output = process::succeeded(run(&format!("measure {kind} {address} {rest}"))?)?;
    Ok(String::from_utf8(output.stdout)?)
}

fn check_nettest(table: &str, columns: &[&str]) -> Result<()> {
    for column in columns.iter().chain(&["tested size"]) {
        ensure!(shows(table, column), "no {column}: {table}");
    }
    let sizes: Vec<u64> = first_numbers(table);
    // Each row appears once, and once more for each fold of a table wider than 80 characters.
    ensure!(sizes.chunks(25).all(|fold| fold == &sizes[..25]), "{table}");
    ensure!(sizes[11..13] == [2048, 3072], "{table}");
    ensure!(sizes[24] == 131_072, "{table}");
    Ok(())
}

/// Returns whether the words of a column's title are there, possibly on several lines.
fn shows(table: &str, title: &str) -> bool {
    title.split_whitespace().all(|word| table.contains(word))
}

/// Returns the numbers at the beginning of lines.
fn first_numbers(table: &str) -> Vec<u64> {
    let firsts = table
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    firsts.filter_map(|word| word.parse().ok()).collect()
}

#[test_support::test]
fn one_command_prints_the_reads_of_eight_block_sizes() -> Result<()> {
    let table = sweep("transfer --sweep --bytes 1MiB --runs 2")?;
    for column in [
        "packets",
        "avg packet",
        "total",
        "network",
        "average",
        "ms/MiB",
    ] {
        ensure!(shows(&table, column), "no {column}: {table}");
    }
    let blocks = first_numbers(&table);
    let wanted: Vec<u64> = (10..18).map(|power| 1 << power).collect();
    ensure!(blocks.chunks(8).all(|fold| fold == wanted), "{table}");
    Ok(())
}

#[test_support::test]
fn the_far_end_logs_the_reads_of_each_transfer() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    let address = far_end.address("messages")?;
    let output = run(&format!(
        "measure transfer {address} --bytes 100000b --runs 1"
    ))?;
    ensure!(output.status.success(), "{output:?}");
    let whole = || Ok(Some(fs::read_to_string(&log)?).filter(|text| text.ends_with('\n')));
    let entry: Value = serde_json::from_str(&process::wait_for("the log", whole)?)?;
    ensure!(entry["test"] == "transfer", "{entry}");
    for metric in [
        "reads",
        "received_bytes",
        "read_size_bytes",
        "elapsed_s",
        "network_elapsed_s",
        "read_time_ms",
        "time_per_mib_ms",
    ] {
        let mut figures = entry["figures"].as_array().context("figures")?.iter();
        ensure!(
            figures.any(|f| f["metric"] == metric),
            "no {metric}: {entry}"
        );
    }
    Ok(())
}

fn states_its_mtu(mtu: u32, mss: u32) -> Result<()> {
    let output = behind_link(&format!("--mtu {mtu}"), "transfer", "--bytes 1MiB --runs 1")?;
    let measured: Value = serde_json::from_slice(&output.stdout)?;
    let fact = |name: &str| {
        measured["facts"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    ensure!(fact("mtu").starts_with(&format!("{mtu} ")), "{measured}");
    ensure!(fact("mss").starts_with(&format!("{mss} ")), "{measured}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn what_goes_over_udp_is_counted_by_direction_through_a_lossy_link() -> Result<()> {
    let link = "--up-loss 30% --seed 7";
    let options = "--udp --size 64 --count 50 --runs 1 --timeout 100ms --bind wan";
    let output = behind_link(link, "pingpong", options)?;
    let measured: Value = serde_json::from_slice(&output.stdout)?;
    let figures = measured["figures"].as_array().context("figures")?;
    let value = |metric: &str, way: &str| {
        let found = figures
            .iter()
            .find(|f| f["metric"] == metric && f["direction"] == way);
        found
            .and_then(|f| f["value"].as_f64())
            .context(metric.to_owned())
    };
    ensure!(value("sent_packets", "up")? == 50.0, "{measured}");
    ensure!(value("lost_percent", "up")? > 0.0, "{measured}");
    Ok(())
}

/// Runs an instrument at the client of a bed.
fn behind_link(link: &str, kind: &str, options: &str) -> Result<Output> {
    let mut command = farwire();
    let program = command.get_program().to_owned();
    command.arg("exec").args(link.split_whitespace());
    command
        .arg("--")
        .arg(program)
        .args(["measure", kind, "10.77.0.2", "--json", "-"]);
    let output = process::succeeds(command.args(options.split_whitespace()))?;
    Ok(output)
}

#[test_support::test(Namespaces)]
fn a_cable_that_is_cut_ends_both_ends_with_the_cause() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    bed.bridge()?;
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let mut server = farwire();
    server
        .args(["serve", "--idle-timeout", "2s", "--json"])
        .arg(&log);
    let mut server = bed
        .server()
        .run(|| server.stdout(Stdio::null()).stderr(Stdio::null()).spawn())??;
    let cut = || -> Result<Output> {
        let client = "measure pingpong 10.77.0.2 --count 1000000000 --runs 1";
        process::wait_for("the far end", || {
            let output = process::run_in(bed.client(), &mut command("measure blast 10.77.0.2"))?;
            Ok(output.status.success().then_some(()))
        })?;
        let client = bed.client().run(|| {
            let mut client = command(client);
            client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        })??;
        process::wait_for("messages", || {
            let bytes = InterfaceCounters::of(bed.server(), WAN)?.receive_bytes;
            Ok((bytes > 200_000).then_some(()))
        })?;
        process::ip(bed.emulator(), &format!("link set {SERVER_PORT} down"))?;
        Ok(client.wait_with_output()?)
    };
    let output = cut();
    let logged = || {
        let text = fs::read_to_string(&log)?;
        Ok(text.contains("neither sent nor received").then_some(()))
    };
    let logged = process::wait_for("the far end to give up", logged);
    server.kill()?;
    server.wait()?;
    let output = output?;
    let said = ends_with(&output, 1, "10.77.0.2:5203")?;
    has(&said, "neither sent nor received anything for 20 s")?;
    logged
}

fn run(line: &str) -> Result<Output> {
    process::run(&mut command(line))
}

fn command(line: &str) -> Command {
    let mut command = farwire();
    command.args(line.split_whitespace());
    command
}
