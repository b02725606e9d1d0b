//! `farwire fit` on links that it does not know.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::process::{self, farwire, has, stdout};

/// The far end of `farwire exec`.
const SERVER: &str = "10.77.0.2";

/// Fits the link of `farwire exec` with these options, and returns the result and the text of the link.
fn fitted(link: &str, options: &[&str]) -> Result<(Value, String)> {
    let directory = tempfile::tempdir()?;
    let mut command = farwire();
    command.current_dir(directory.path()).arg("exec");
    command.args(link.split_whitespace()).arg("--");
    command.arg(farwire().get_program());
    command.args(["fit", SERVER, "--json", "-"]).args(options);
    let output = process::succeeds(&mut command)?;
    let result = serde_json::from_str(&stdout(&output))?;
    let text = fs::read_to_string(directory.path().join("fit-10.77.0.2/link.toml"))?;
    Ok((result, text))
}

/// Returns the parameter of a direction.
fn parameter<'a>(result: &'a Value, direction: &str, name: &str) -> Result<&'a Value> {
    let all = result["parameters"].as_array().context("no parameters")?;
    let mut all = all.iter();
    let found = all.find(|one| one["direction"] == direction && one["name"] == name);
    found.with_context(|| format!("no {name} {direction} in {result}"))
}

fn number(result: &Value, direction: &str, name: &str) -> Result<f64> {
    let parameter = parameter(result, direction, name)?;
    parameter["value"].as_f64().with_context(|| format!("{parameter}"))
}

/// Checks that a number is within an absolute or a relative distance of the truth.
fn is_near(found: f64, truth: f64, absolute: f64, relative: f64, what: &str) -> Result<()> {
    let most = absolute.max(relative * truth);
    ensure!((found - truth).abs() <= most, "{what}: {found} instead of {truth}");
    Ok(())
}

#[test_support::test(serial, Namespaces)]
fn a_hidden_link_is_found_and_its_file_is_a_link() -> Result<()> {
    let hidden = "--rate 20mbit --queue 100ms --loss 1% --up-delay 20ms --down-delay 35ms";
    let (result, link) = fitted(hidden, &["--time", "16s", "--no-proof"])?;
    for (way, delay) in [("up", 20.0), ("down", 35.0)] {
        is_near(number(&result, way, "delay")?, delay, 0.5, 0.02, "delay")?;
        is_near(number(&result, way, "rate")?, 20.0, 0.0, 0.03, "rate")?;
        is_near(number(&result, way, "queue")?, 100.0, 0.0, 0.15, "queue")?;
        let loss = &parameter(&result, way, "loss")?["interval"];
        let holds = loss[0].as_f64() <= Some(1.0) && loss[1].as_f64() >= Some(1.0);
        ensure!(holds, "{way}: {loss}");
        let kind = &parameter(&result, way, "queue kind")?["word"];
        ensure!(kind == "fifo", "{way}: {kind}");
    }
    has(&link, "# [fitted] farwire fit, \"10.77.0.2\"")?;
    ensure!(result["not_compared"] == "--no-proof leaves it out", "{result}");
    Ok(())
}

#[test_support::test(serial, Namespaces, All)]
fn the_fitted_link_is_compared_with_the_path() -> Result<()> {
    let hidden = "--rate 20mbit --queue 60ms --up-delay 10ms --down-delay 15ms";
    let (result, _) = fitted(hidden, &["--time", "16s"])?;
    let comparison = &result["comparison"];
    let delays = comparison["delays"].as_array().context("no delays")?;
    ensure!(delays.len() == 4, "{comparison}");
    let idle = &delays[0];
    let [path, link] = [0, 1].map(|at| idle["p50_ms"][at].as_f64().unwrap_or_default());
    is_near(link, path, 0.5, 0.02, "idle p50")?;
    let statement = comparison["statement"].as_str().context("no statement")?;
    has(statement, "idle delay (")
}

#[test_support::test]
fn a_file_that_exists_is_not_replaced_and_nothing_is_measured() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("link.toml"), "delay = \"1ms\"\n")?;
    let mut command = farwire();
    command.args(["fit", "192.0.2.1", "--out"]).arg(directory.path());
    let output = process::run(&mut command)?;
    process::ends_with(&output, 2, "the file exists: choose another place or name, or remove it")?;
    Ok(())
}

#[test_support::test]
fn a_time_that_is_too_short_to_fit_is_bad_input() -> Result<()> {
    let mut command = farwire();
    let output = process::run(command.args(["fit", "192.0.2.1", "--time", "5s"]))?;
    process::ends_with(&output, 2, "must be from 16s to 3600s")?;
    Ok(())
}
