//! The shipped scenarios, run by a user without privileges: one case of each, with about a second for each instrument.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use toml::{Table, Value as Toml, toml};

use test_support::powerless;
use test_support::process::{self, stderr};
use test_support::scenario::Small;
use test_support::suite::{Need, Suite};

/// The external tools that the scenarios use.
const TOOLS: [&str; 5] = ["iperf", "iperf3", "nuttcp", "ping", "wget"];

/// The scenarios that are tried without the long tests, too: that of `make demo`, and one for each external tool.
const SHORT_FORM: [&str; 3] = ["toffee-mocha.toml", "bc10-router.toml", "tcp-transfer.toml"];

#[test_support::tests]
fn add(suite: &mut Suite) {
    let folder = fs::read_dir("scenarios").expect("the scenarios that ship");
    let files = folder.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = files.filter(|file| file.is_file()).collect();
    files.sort();
    for file in files {
        let text = fs::read_to_string(&file).expect("a scenario");
        let tools = TOOLS
            .into_iter()
            .filter(|tool| text.contains(&format!("tool = \"{tool}\"")));
        let mut needs = vec![Need::Namespaces, Need::CubicForRootOnly];
        if !SHORT_FORM.iter().any(|name| file.ends_with(name)) {
            needs.push(Need::All);
        }
        needs.extend(tools.map(Need::Tool));
        suite.test(
            format!("an unprivileged user can run {}", file.display()),
            &needs,
            move || runs_unprivileged(&text).with_context(|| file.display().to_string()),
        );
    }
}

fn runs_unprivileged(shipped: &str) -> Result<()> {
    let scenario = shortened(shipped)?;
    let congestion = scenario["tcp"]["congestion"].clone();
    let small = Small::written(&scenario.to_string())?;
    let mut command = powerless::farwire_unprivileged()?;
    command.arg("run").arg(small.path("small.toml"));
    command.args(["--quick", "--no-baseline", "--out"]);
    command.arg(small.path("out"));
    let output = process::run(&mut command)?;
    let runs = small.runs().with_context(|| stderr(&output))?;
    ensure!(small.is_finished()?, "{}", stderr(&output));
    // Every attempt counts here, also one in which the machine was too busy for its figures to describe the link.
    for run in &runs {
        ensure!(run["outcome"]["outcome"] != "failed", "{run}");
        let environment = run["environment"].as_object().context("an environment")?;
        let in_effect = |value: &Value| value.as_str() == congestion.as_str();
        ensure!(environment.values().any(in_effect), "{environment:?}");
        let measured = run["measurements"].as_array().context("measurements")?;
        ensure!(
            measured.len() == scenario["instruments"].as_array().map_or(0, Vec::len),
            "{run}"
        );
    }
    ensure!(!runs.is_empty(), "nothing was run");
    Ok(())
}

/// Shortens a scenario to its first case, run once and without expectations, with shortened instruments.
fn shortened(scenario: &str) -> Result<Table> {
    let mut scenario: Table = scenario.parse()?;
    for of_several_cases in ["reference", "compare", "trends"] {
        scenario.remove(of_several_cases);
    }
    scenario.insert("quick".to_owned(), Toml::Table(toml! { repeats = 1 }));
    let cases = scenario.get_mut("cases").and_then(Toml::as_array_mut);
    let cases = cases.context("cases")?;
    cases.truncate(1);
    let case = cases[0].as_table_mut().context("a case")?;
    for of_the_full_form in ["sweep", "expect", "instruments"] {
        case.remove(of_the_full_form);
    }
    let instruments = scenario.get_mut("instruments");
    for instrument in instruments
        .and_then(Toml::as_array_mut)
        .context("instruments")?
    {
        let kind = instrument["kind"].as_str().context("a kind")?;
        let sized = instrument
            .get("parameters")
            .is_some_and(|own| own.get("sizes").is_some());
        let short = match kind {
            "ping" | "probe" => toml! { count = 40 interval = "25ms" },
            "http" if sized => toml! { count = 4 },
            "http" => toml! { path = "/seconds/2" duration = "1s" },
            "tcp" | "udp" => toml! { time = "1s" omit = false },
            "pingpong" => toml! { count = 5 runs = 1 },
            "blast" => toml! { count = 10 runs = 1 },
            "transfer" => toml! { bytes = "128KiB" runs = 1 },
            _ => bail!("say here what is short for `{kind}`"),
        };
        let instrument = instrument.as_table_mut().context("an instrument")?;
        instrument.insert("quick".to_owned(), Toml::Table(short));
    }
    Ok(scenario)
}
