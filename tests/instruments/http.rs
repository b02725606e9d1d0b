//! Many small files, as a user fetches them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, ends_with, farwire};
use test_support::suite::{Need, Suite};

#[test_support::tests]
fn add(suite: &mut Suite) {
    // Each round trip takes 20 ms: a new connection costs one, which no size explains.
    suite.test(
        "a new connection for each file costs a round trip more",
        &[Need::Namespaces],
        || {
            let kept = far_away(&["--keep-alive"])?;
            let new = far_away(&[])?;
            ensure!(kept >= 20.0 && new >= 40.0, "{kept} and {new}");
            Ok(())
        },
    );
}

#[test_support::test]
fn many_files_are_fetched_the_same_ones_again() -> Result<()> {
    let sizes = || -> Result<Vec<Value>> {
        let measured = fetch(&["--count", "30", "--sizes", "lognormal:5kb,1"])?;
        let samples = measured["samples"].as_array().context("samples")?.iter();
        let mut all: Vec<_> = samples
            .filter(|sample| sample["metric"] == "completion_ms")
            .map(|sample| (sample["index"].as_u64(), sample["size"].clone()))
            .collect();
        all.sort_by_key(|(index, _)| *index);
        Ok(all.into_iter().map(|(_, size)| size).collect())
    };
    let first = sizes()?;
    ensure!(first.len() == 30 && first == sizes()?, "{first:?}");
    Ok(())
}

#[test_support::test]
fn a_urls_own_size_is_asked_for() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let address = far_end.address("http")?;
    let url = format!("http://{address}/bytes/{{size}}");
    let arguments = ["measure", "http", &url, "--size", "2kb", "--count", "3"];
    process::succeeds(farwire().args(arguments))?;
    let url = format!("http://{address}/bytes/1");
    let output = process::run(farwire().args(["measure", "http", &url, "--size", "2kb"]))?;
    ends_with(&output, 2, "write {size}")?;
    Ok(())
}

fn fetch(arguments: &[&str]) -> Result<Value> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let url = format!("http://{}", far_end.address("http")?);
    let mut command = farwire();
    command.args(["measure", "http", &url, "--json", "-"]);
    process::json(command.args(arguments))
}

/// Returns the median completion time of small files over 10 ms in each direction.
fn far_away(arguments: &[&str]) -> Result<f64> {
    let mut command = farwire();
    let program = command.get_program().to_owned();
    command.args(["exec", "--delay", "10ms", "--"]).arg(program);
    command.args(["measure", "http", "http://10.77.0.2", "--size", "1kb"]);
    command.args(["--count", "12", "--connections", "1", "--json", "-"]);
    let measured: Value = process::json(command.args(arguments))?;
    let figures = measured["figures"].as_array().context("figures")?.iter();
    let median = figures
        .filter(|f| f["metric"] == "completion_ms" && f["statistic"] == "median")
        .find_map(|f| f["value"].as_f64());
    median.with_context(|| measured.to_string())
}
