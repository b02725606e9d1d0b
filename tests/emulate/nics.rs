//! `farwire run` between two existing network interfaces, which return whatever happens.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use test_support::process::{end_of, farwire, has, ip, run_in, wait_for};
use test_support::state::State;
use test_support::suite::{Need, Suite};

const NEEDS: [Need; 2] = [Need::Namespaces, Need::Tool("ip")];
const NICS: [&str; 2] = ["nic0", "nic1"];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let name = format!("{signal} during an experiment between two interfaces gives them back");
        suite.test(name, &NEEDS, move || interrupted(signal));
    }
}

/// A machine with two interfaces, one of them up, and a device between them.
fn machine() -> Result<NetNs> {
    let machine = NetNs::create()?;
    ip(&machine, "link add device type bridge")?;
    ip(&machine, "link set device up")?;
    for (number, nic) in NICS.iter().enumerate() {
        ip(
            &machine,
            &format!("link add {nic} mtu 1400 type veth peer name port{number}"),
        )?;
        ip(&machine, &format!("link set port{number} master device up"))?;
    }
    ip(&machine, "link set nic0 up")?;
    Ok(machine)
}

fn command(directory: &Path, cases: &str) -> Result<Command> {
    let text = format!(
        "name = 'small'\ntitle = 'Two interfaces'\nlate_budget = '1s'\ntcp = {{ congestion = 'reno' }}\n\
         [bed]\nkind = 'nics'\n\
         client = {{ interface = 'nic0', address = '192.0.2.1/24' }}\n\
         server = {{ interface = 'nic1', address = '192.0.2.2/24' }}\n\
         [[instruments]]\nname = 'ping'\nkind = 'ping'\n\
         parameters = {{ count = 5, interval = '20ms' }}\n{cases}"
    );
    let scenario = directory.join("small.toml");
    fs::write(&scenario, text)?;
    let mut command = farwire();
    command.arg("run").arg(scenario);
    command.arg("--out").arg(directory.join("out"));
    Ok(command)
}

fn states(machine: &NetNs) -> Result<Vec<State>> {
    NICS.iter().map(|nic| State::of(machine, nic)).collect()
}

fn check_same(machine: &NetNs, before: &[State]) -> Result<()> {
    for (nic, before) in NICS.iter().zip(before) {
        before.check_same(machine, nic)?;
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_experiment_between_two_interfaces_measures_what_is_between_them_and_gives_them_back()
-> Result<()> {
    let (machine, directory) = (machine()?, TempDir::new()?);
    let before = states(&machine)?;
    let cases = "[[cases]]\nname = 'plain'\nrepeats = 2\n";
    let output = run_in(&machine, &mut command(directory.path(), cases)?)?;
    check_same(&machine, &before)?;
    let record = fs::read_to_string(directory.path().join("out/record.jsonl"))
        .with_context(|| format!("{output:?}"))?;
    let lines: Vec<Value> = record
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let runs: Vec<&Value> = lines.iter().filter_map(|line| line.get("run")).collect();
    let mut repeats: Vec<&Value> = runs.iter().map(|run| &run["repeat"]).collect();
    repeats.dedup();
    ensure!(repeats == [1, 2], "{record}");
    // A machine that was too busy for the sender's schedule makes an attempt invalid, and another one follows.
    for run in runs {
        ensure!(run["outcome"]["outcome"] != "failed", "{run}");
        let probes = &run["measurements"][0];
        ensure!(probes["instrument"] == "ping", "{run}");
        ensure!(run["links"] == Value::Array(Vec::new()), "{run}");
        ensure!(run["environment"]["client's interface"] == "nic0", "{run}");
    }
    Ok(())
}

/// Returns `scenarios/needs-cards/alt-speed-cards.toml` with other names for its interfaces.
#[test_support::test(Namespaces, Tool("ip"), Tool("iperf"), CubicForRootOnly)]
fn the_scenario_for_two_cards_that_ships_measures_between_any_two_interfaces() -> Result<()> {
    let (machine, directory) = (machine()?, TempDir::new()?);
    let before = states(&machine)?;
    let mut text = fs::read_to_string("scenarios/needs-cards/alt-speed-cards.toml")?;
    for (own, nic) in ["ens801f0", "ens801f1"].iter().zip(NICS) {
        has(&text, own)?;
        text = text.replace(own, nic);
    }
    let scenario = directory.path().join("cards.toml");
    fs::write(&scenario, text)?;
    let mut command = farwire();
    command.arg("run").arg(scenario).arg("--quick");
    command.arg("--out").arg(directory.path().join("out"));
    let output = run_in(&machine, &mut command)?;
    check_same(&machine, &before)?;
    let record = fs::read_to_string(directory.path().join("out/record.jsonl"))
        .with_context(|| format!("{output:?}"))?;
    let lines: Vec<Value> = record
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let runs: Vec<&Value> = lines.iter().filter_map(|line| line.get("run")).collect();
    ensure!(!runs.is_empty(), "{record}");
    // A run also counts if the machine was too busy for its figures to describe the cards.
    for run in runs {
        ensure!(run["outcome"]["outcome"] != "failed", "{run}");
        let measured = run["measurements"].as_array().context("measurements")?;
        ensure!(measured.len() == 4, "{run}");
    }
    let rows = fs::read_to_string(directory.path().join("out/artifacts/cards-1-probe.csv"))?;
    ensure!(rows.lines().count() == 101, "{rows}");
    Ok(())
}

fn interrupted(signal: Signal) -> Result<()> {
    let (machine, directory) = (machine()?, TempDir::new()?);
    let before = states(&machine)?;
    let cases = "[[cases]]\nname = 'plain'\nparameters.ping = { count = 10000 }\n";
    let mut command = command(directory.path(), cases)?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = machine.run(|| command.spawn())??;
    let gone = wait_for("the interfaces to be borrowed", || {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "it ended by itself: {ended:?}");
        let here = ip(&machine, "link show")?;
        let gone = NICS.iter().all(|nic| !here.contains(nic));
        Ok((gone && directory.path().join("out/record.jsonl").exists()).then_some(()))
    });
    kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
    end_of(&mut child)?;
    gone?;
    wait_for("the interfaces to be back", || {
        let here = ip(&machine, "link show")?;
        Ok(NICS.iter().all(|nic| here.contains(nic)).then_some(()))
    })?;
    check_same(&machine, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_interface_in_use_is_refused_and_nothing_is_changed() -> Result<()> {
    let (machine, directory) = (machine()?, TempDir::new()?);
    ip(&machine, "address add 198.51.100.1/24 dev nic1")?;
    let before = states(&machine)?;
    let cases = "[[cases]]\nname = 'plain'\n";
    let output = run_in(&machine, &mut command(directory.path(), cases)?)?;
    let text = String::from_utf8(output.stderr).context("what it said")?;
    ensure!(output.status.code() == Some(3), "{}: {text}", output.status);
    let cause = "interface nic1 has addresses or routes, which it would lose";
    has(&text, cause)?;
    check_same(&machine, &before)
}
