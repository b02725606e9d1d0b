//! Beds with more than one link, and with none.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::common::far_end::FarEnd;
use crate::common::process::farwire;
use crate::common::suite::{Need, Suite};
use crate::small::{PING, Small, stderr};

const CHAIN: &str = "\
name = 'chain'
title = 'Three nodes'
late_budget = '1s'
tcp = { congestion = 'reno' }
[bed]
kind = 'chain'
nodes = ['a', 'b', 'c']
links = { a-b = { delay = '2ms' }, b-c = { up = { delay = '9ms' }, down = { delay = '1ms' } } }
";
const CASES: &str = "\
[[cases]]
name = 'first'
between = ['b', 'a']
[[cases]]
name = 'second'
between = ['b', 'c']
[[cases]]
name = 'whole'
between = ['c', 'a']
expect = [{ of = 'ping.rtt_ms.min', least = '14ms' }]
";

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "every segment of a chain is measured by itself, and the whole",
        &[Need::Namespaces],
        chain,
    );
    suite.test(
        "a node that is not in the chain is refused with its place",
        &[],
        unknown_node,
    );
    suite.test("a host that exists is measured as it is", &[], external);
    suite.test("a host without a far end is named", &[], nobody);
}

fn chain() -> Result<()> {
    let small = Small::written(&[CHAIN, PING, CASES].concat())?;
    let output = small.run()?;
    ensure!(output.status.success(), "{}", stderr(&output));
    for (case, least, links) in [
        ("first", 4.0, [true, false]),
        ("second", 10.0, [false, true]),
        ("whole", 14.0, [true, true]),
    ] {
        let runs = small.runs()?;
        let run = runs.iter().find(|run| run["case"] == case);
        let run = run.with_context(|| case.to_owned())?;
        ensure!(rtt_ms(run)? >= least, "{case}: {run}");
        let names = ["a-b", "b-c"];
        for (number, (name, crossed)) in names.iter().zip(links).enumerate() {
            let link = &run["links"][number];
            ensure!(link["name"] == *name, "{link}");
            ensure!((link["up"]["packets"] != 0) == crossed, "{case}: {link}");
        }
    }
    Ok(())
}

fn rtt_ms(run: &Value) -> Result<f64> {
    let figures = run["measurements"][0]["figures"]
        .as_array()
        .context("figures")?;
    let mut figures = figures.iter();
    let least = figures.find(|f| f["metric"] == "rtt_ms" && f["statistic"] == "min");
    least.context("no RTT")?["value"]
        .as_f64()
        .context("a number")
}

fn unknown_node() -> Result<()> {
    let cases = "[[cases]]\nname = 'x'\nbetween = ['a', 'd']\n";
    let output = Small::written(&[CHAIN, PING, cases].concat())?.run()?;
    ensure!(output.status.code() == Some(2), "{}", stderr(&output));
    let cause = "between: there is no node `d`; there are: a, b, c";
    ensure!(stderr(&output).contains(cause), "{}", stderr(&output));
    Ok(())
}

/// The head of a scenario against 127.0.0.1, and an instrument.
fn against(port: u16) -> String {
    format!(
        "name = 'host'\ntitle = 'A host'\ntcp = {{ congestion = 'reno' }}\n\
         bed = {{ kind = 'external', host = '127.0.0.1', http_port = {port} }}\n\
         [[instruments]]\nname = 'download'\nkind = 'http'\n\
         parameters = {{ path = '/bytes/200000' }}\n[[cases]]\nname = 'plain'\n"
    )
}

fn external() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let small = Small::written(&against(far_end.address("http")?.port()))?;
    let output = small.run()?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let runs = small.runs()?;
    ensure!(
        runs.len() == 1 && runs[0]["outcome"]["outcome"] == "ok",
        "{runs:?}"
    );
    ensure!(runs[0]["links"] == Value::Array(Vec::new()), "{runs:?}");
    Ok(())
}

fn nobody() -> Result<()> {
    let mut far_end = FarEnd::start(farwire().arg("serve"))?;
    let port = far_end.address("http")?.port();
    far_end.interrupt()?;
    let small = Small::written(&against(port))?;
    let output = small.run()?;
    ensure!(output.status.code() == Some(3), "{}", stderr(&output));
    let cause = format!("no web server on port {port} of 127.0.0.1: run `farwire serve` there");
    ensure!(stderr(&output).contains(&cause), "{}", stderr(&output));
    ensure!(!small.path("out").exists(), "something was written");
    Ok(())
}
