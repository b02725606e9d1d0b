//! Beds with several links, and beds without one.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has, stderr, succeeded};
use test_support::scenario::{PING, Small};

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

#[test_support::test(Namespaces)]
fn every_segment_of_a_chain_is_measured_by_itself_and_the_whole() -> Result<()> {
    let small = Small::written(&[CHAIN, PING, CASES].concat())?;
    succeeded(small.run()?)?;
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

/// Returns the head of a scenario with this many clients.
fn clients_head(clients: u32) -> String {
    format!(
        "name = 'clients'\nlate_budget = '1s'\ntcp = {{ congestion = 'reno' }}\n\
         bed = {{ kind = 'netns', clients = {clients}, wire = {{ rate = '2mbit', delay = '1ms' }} }}\n"
    )
}

#[test_support::test(Namespaces)]
fn every_client_has_a_link_of_its_own_and_all_measure_at_once() -> Result<()> {
    const TCP: &str = "[[instruments]]\nname = 'tcp'\nkind = 'tcp'\nparameters = { time = '1s' }\n";
    const CASES: &str = "[[cases]]\nname = 'five'\n\
        expect = [{ of = 'tcp.client_goodput_bit_per_s.min', least = '1kbit' }]\n";
    let small = Small::written(&[&clients_head(5), PING, TCP, CASES].concat())?;
    // The links are divided among three threads.
    let output = process::run(small.command().args(["--threads", "3"]))?;
    let runs = small.runs()?;
    let run = runs.first().context("a run")?;
    ensure!(run["outcome"]["outcome"] != "failed", "{run}");
    let links = run["links"].as_array().context("links")?;
    ensure!(links.len() == 5, "{run}");
    for (number, link) in (1..).zip(links) {
        ensure!(link["name"] == format!("client {number}"), "{link}");
        for way in ["up", "down"] {
            // The client sent five pings, and TCP segments.
            let delivered = link[way]["delivered"].as_u64().context("delivered")?;
            ensure!(delivered > 5, "{link}");
        }
    }
    let [ping, tcp] = [0, 1].map(|at| &run["measurements"][at]);
    ensure!(figure(ping, "sent_packets", "total")? == 25.0, "{ping}");
    let goodput = |metric, statistic| figure(tcp, metric, statistic);
    let least = goodput("client_goodput_bit_per_s", "min")?;
    ensure!(least > 0.0, "{tcp}");
    ensure!(
        goodput("goodput_bit_per_s", "mean")? >= 5.0 * least,
        "{tcp}"
    );
    let fairness = goodput("fairness_index", "mean")?;
    ensure!(fairness > 0.0 && fairness <= 1.0 + 1e-9, "{tcp}");
    has(&stderr(&output), "report: ")?;
    Ok(())
}

#[test_support::test(serial, Namespaces)]
fn a_bed_of_two_hundred_clients_is_pinged() -> Result<()> {
    let cases = "[[cases]]\nname = 'many'\n";
    let small = Small::written(&[&clients_head(200), PING, cases].concat())?;
    let output = small.run()?;
    let runs = small.runs()?;
    let run = runs.first().context("a run")?;
    ensure!(run["outcome"]["outcome"] != "failed", "{}", stderr(&output));
    let links = run["links"].as_array().context("links")?;
    let crossed = |link: &&Value| link["up"]["packets"].as_u64() >= Some(5);
    ensure!(links.iter().filter(crossed).count() == 200, "{run}");
    let ping = &run["measurements"][0];
    ensure!(figure(ping, "sent_packets", "total")? == 1000.0, "{ping}");
    ensure!(figure(ping, "rtt_ms", "min")? >= 2.0, "{ping}");
    Ok(())
}

#[test_support::test]
fn a_number_of_clients_that_no_bed_has_is_refused_with_its_place() -> Result<()> {
    for clients in [0, 1001] {
        let cases = "[[cases]]\nname = 'x'\n";
        let output = Small::written(&[&clients_head(clients), PING, cases].concat())?.run()?;
        ensure!(output.status.code() == Some(2), "{}", stderr(&output));
        let cause = format!("bed: clients: {clients} is out of range: 1 to 1000");
        has(&stderr(&output), &cause)?;
        has(&stderr(&output), "small.toml:4")?;
    }
    Ok(())
}

/// Returns the value of a figure over all streams.
fn figure(measured: &Value, metric: &str, statistic: &str) -> Result<f64> {
    let figures = measured["figures"].as_array().context("figures")?;
    let mut figures = figures.iter();
    let found = figures.find(|f| f["metric"] == metric && f["statistic"] == statistic);
    let found = found.with_context(|| format!("no {metric}: {measured}"))?;
    found["value"].as_f64().context("a number")
}

fn rtt_ms(run: &Value) -> Result<f64> {
    figure(&run["measurements"][0], "rtt_ms", "min")
}

#[test_support::test]
fn a_node_that_is_not_in_the_chain_is_refused_with_its_place() -> Result<()> {
    let cases = "[[cases]]\nname = 'x'\nbetween = ['a', 'd']\n";
    let output = Small::written(&[CHAIN, PING, cases].concat())?.run()?;
    ensure!(output.status.code() == Some(2), "{}", stderr(&output));
    let cause = "between: there is no node `d`; use one of: a, b, c";
    has(&stderr(&output), cause)?;
    Ok(())
}

/// Returns the head of a scenario against 127.0.0.1, with an instrument.
fn against(port: u16) -> String {
    format!(
        "name = 'host'\ntitle = 'A host'\nlate_budget = '1s'\ntcp = {{ congestion = 'reno' }}\n\
         bed = {{ kind = 'external', host = '127.0.0.1', http_port = {port} }}\n\
         [[instruments]]\nname = 'download'\nkind = 'http'\n\
         parameters = {{ path = '/bytes/200000' }}\n[[cases]]\nname = 'plain'\n"
    )
}

#[test_support::test]
fn a_host_that_exists_is_measured_as_it_is() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let small = Small::written(&against(far_end.address("http")?.port()))?;
    succeeded(small.run()?)?;
    let runs = small.runs()?;
    ensure!(runs.len() == 1, "{runs:?}");
    ensure!(runs[0]["outcome"]["outcome"] == "ok", "{runs:?}");
    ensure!(runs[0]["links"] == Value::Array(Vec::new()), "{runs:?}");
    Ok(())
}

#[test_support::test]
fn a_host_without_a_far_end_is_named() -> Result<()> {
    let mut far_end = FarEnd::start(farwire().arg("serve"))?;
    let port = far_end.address("http")?.port();
    far_end.interrupt()?;
    let small = Small::written(&against(port))?;
    let output = small.run()?;
    ensure!(output.status.code() == Some(3), "{}", stderr(&output));
    let cause = format!("no HTTP server on port {port} of 127.0.0.1: run `farwire serve` there");
    has(&stderr(&output), &cause)?;
    ensure!(!small.path("out").exists(), "something was written");
    Ok(())
}
