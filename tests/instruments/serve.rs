//! The far end as its operator uses it: permitted clients, the log and its report, and the running tests.

use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use netio::host_name::name_of;
use netio::netns::NetNs;
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::process::{self, ends_with, farwire, has, stderr, stdout};

/// Begins a test of HTTP that ends only with its connection.
fn endless(far_end: &FarEnd) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(far_end.address("http")?)?;
    stream.write_all(b"GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    stream.read_exact(&mut [0; 1000])?;
    Ok(stream)
}

/// Runs a transfer to the far end.
fn transfer(far_end: &FarEnd) -> Result<()> {
    let address = far_end.address("messages")?.to_string();
    let mut measure = farwire();
    measure.args(["measure", "transfer", &address, "--bytes", "100000b"]);
    process::succeeds(measure.args(["--runs", "1"]))?;
    Ok(())
}

/// Waits until the log has this number of lines.
fn await_lines(log: &Path, count: usize) -> Result<String> {
    process::wait_for("the tests to be logged", || {
        let text = fs::read_to_string(log)?;
        Ok((text.matches('\n').count() >= count).then_some(text))
    })
}

/// Of 16 ports that are free for TCP, three are free for UDP, which are as many as the services need.
#[test_support::test(Namespaces)]
fn a_port_that_is_chosen_for_iperf3_is_free_for_tcp_and_udp() -> Result<()> {
    const PORTS: Range<u16> = 40_000..40_016;
    let ns = NetNs::create()?;
    process::ip(&ns, "link set lo up")?;
    let range = format!("{} {}", PORTS.start, PORTS.end - 1);
    ns.write_sysctl("net/ipv4/ip_local_port_range", &range)?;
    let used = PORTS.filter(|port| port % 6 != 0);
    let bound = |port| ns.run(|| UdpSocket::bind(("127.0.0.1", port)));
    let _others: Vec<_> = used.map(|port| Ok(bound(port)??)).collect::<Result<_>>()?;
    let far_end = ns.run(|| FarEnd::start(farwire().arg("serve")))??;
    let port = far_end.address("iperf3")?.port();
    ensure!(port % 6 == 0, "{port}");
    Ok(())
}

#[test_support::test]
fn each_test_is_logged_as_a_line_of_json() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    let url = format!("http://{}/bytes/1000", far_end.address("http")?);
    process::succeeds(farwire().args(["measure", "http", &url]))?;
    let logged = || Ok(Some(fs::read_to_string(&log)?).filter(|text| text.ends_with('\n')));
    let line = process::wait_for("the test to be logged", logged)?;
    let entry: Value = serde_json::from_str(&line)?;
    ensure!(entry["test"] == "http", "{entry}");
    ensure!(entry["samples"].is_null(), "{entry}");
    let sent = entry["figures"].as_array().context("figures")?.iter();
    let sent = sent.filter(|figure| figure["metric"] == "sent_bytes");
    ensure!(
        sent.map(|f| f["value"].as_f64()).eq([Some(1000.0)]),
        "{entry}"
    );
    // Times of equal form sort like text.
    let [began, ended] = ["started_at", "ended_at"].map(|key| entry[key].as_str());
    ensure!(began.is_some() && began <= ended, "{entry}");
    Ok(())
}

#[test_support::test]
fn a_test_that_the_end_of_the_server_cuts_short_is_logged() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let mut far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    let _stream = endless(&far_end)?;
    far_end.interrupt()?;
    let entry: Value = serde_json::from_str(&fs::read_to_string(&log)?)?;
    ensure!(entry["test"] == "http", "{entry}");
    Ok(())
}

#[test_support::test]
fn who_is_not_allowed_is_told_so() -> Result<()> {
    let far_end = FarEnd::start(farwire().args(["serve", "--allow", "10.0.0.0/8"]))?;
    let url = format!("http://{}/bytes/1000", far_end.address("http")?);
    let output = process::run(farwire().args(["measure", "http", &url]))?;
    ends_with(&output, 1, "503")?;
    Ok(())
}

#[test_support::test]
fn a_report_of_the_log_has_the_averages_over_its_tests() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    for _ in 0..3 {
        transfer(&far_end)?;
    }
    await_lines(&log, 3)?;
    let report = |options: &[&str]| process::run(farwire().arg("report").arg(&log).args(options));
    let text = stdout(&process::succeeded(report(&[])?)?);
    has(&text, "3 tests of 1 client, none of which failed")?;
    has(&text, "transfer: averages over 3 tests")?;
    has(&text, "127.0.0.1")?;
    let json: Value = serde_json::from_slice(&report(&["--format", "json"])?.stdout)?;
    let kind = &json["kinds"][0];
    ensure!(kind["test"] == "transfer" && kind["tests"] == 3, "{json}");
    ensure!(kind["received_bytes"].as_f64() == Some(300_000.0), "{json}");
    let mut averages = kind["averages"].as_array().context("averages")?.iter();
    let bytes = averages.find(|one| one["metric"] == "received_bytes");
    let bytes = bytes.context("received_bytes")?;
    let mean = [&bytes["count"], &bytes["mean"], &bytes["sd"]].map(Value::as_f64);
    ensure!(
        mean == [Some(3.0), Some(100_000.0), Some(0.0)],
        "{bytes} of {json}"
    );
    let lines = stdout(&process::succeeded(report(&["--format", "csv"])?)?);
    has(
        &lines,
        "\nclient,127.0.0.1,,transfer,received_bytes,total,up,",
    )?;
    let page = stdout(&process::succeeded(report(&["--format", "html"])?)?);
    has(&page, "<p>3 tests of 1 client, none of which failed")?;
    let refused = report(&["--format", "junit"])?;
    ends_with(&refused, 2, "text, md, html, csv or json")?;
    Ok(())
}

#[test_support::test]
fn the_drawings_of_a_log_are_files() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut report = farwire();
    report.arg("report");
    report.arg(process::root().join("tests/fixtures/serve.jsonl"));
    process::succeeds(report.arg("--figures").arg(directory.path()))?;
    for name in ["rates-by-client", "rates-by-hour", "tests-by-hour"] {
        let svg = fs::read_to_string(directory.path().join(format!("{name}.svg")))?;
        ensure!(svg.starts_with("<svg"), "{name}: {svg}");
    }
    Ok(())
}

#[test_support::test]
fn a_running_test_has_lines_if_they_are_asked_for() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let lines = directory.path().join("lines");
    let mut shell = Command::new("sh");
    shell
        .args([
            "-c",
            "exec \"$0\" serve --progress \"$@\" > \"$LINES_FILE\"",
        ])
        .arg(process::program())
        .env("LINES_FILE", &lines);
    let far_end = FarEnd::start(&mut shell)?;
    let mut stream = endless(&far_end)?;
    let client = stream.local_addr()?;
    let text = process::wait_for("a line about the traffic", || {
        stream.read_exact(&mut [0; 100_000])?;
        let text = fs::read_to_string(&lines)?;
        let is_traffic = |line: &str| line.contains(" down ") && line.contains(" Mbit/s");
        Ok(text.lines().any(is_traffic).then_some(text))
    })?;
    has(&text, format!(", {client}, http, began\n"))?;
    drop(stream);
    let ended =
        |line: &str| line.contains(&format!(", {client}, http, ")) && line.contains(" s from ");
    process::wait_for("the line of the test that ended", || {
        let text = fs::read_to_string(&lines)?;
        Ok(text.lines().any(ended).then_some(()))
    })
}

/// Starts a far end that exports metrics. Returns it with the address of its API.
fn with_metrics() -> Result<(FarEnd, String)> {
    let far_end = FarEnd::start(farwire().args(["serve", "--metrics", "127.0.0.1:0"]))?;
    let api = far_end.notes.iter().find_map(|line| {
        let (_, url) = line.split_once("exports metrics at ")?;
        url.strip_suffix("/metrics")
    });
    let api = api.context("no address of the metrics")?.to_owned();
    Ok((far_end, api))
}

/// Returns the metrics in the text format of Prometheus.
fn scrape(api: &str) -> Result<String> {
    let scrape = ureq::get(format!("{api}/metrics")).header("accept", "text/plain");
    Ok(scrape.call()?.body_mut().read_to_string()?)
}

#[test_support::test]
fn finished_tests_and_their_bytes_are_counted_by_protocol() -> Result<()> {
    let (far_end, api) = with_metrics()?;
    let url = format!("http://{}/bytes/100000", far_end.address("http")?);
    for _ in 0..2 {
        process::succeeds(farwire().args(["measure", "http", &url]))?;
    }
    transfer(&far_end)?;
    let address = far_end.address("iperf3")?.to_string();
    let tcp = ["measure", "tcp", &address, "--bytes", "1M", "--json", "-"];
    let tcp: Value = process::json(farwire().args(tcp))?;
    let mut figures = tcp["figures"].as_array().context("figures")?.iter();
    let received = figures.find(|figure| {
        figure["metric"] == "received_bytes"
            && figure["statistic"] == "total"
            && figure["direction"] == "up"
            && figure["stream"].is_null()
    });
    let received = received.with_context(|| format!("received_bytes: {tcp}"))?;
    let received = received["value"].as_f64().context("a number")?;
    ensure!(received > 0.0, "{tcp}");
    let value = |page: &str, name: &str| -> Option<f64> {
        let of_it = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        page.lines().find_map(of_it)
    };
    let done = |protocol: &str, test: &str| {
        format!("farwire_tests_total{{protocol=\"{protocol}\",test=\"{test}\",result=\"done\"}}")
    };
    let tests = [
        (done("http", "http"), 2.0),
        (done("messages", "transfer"), 1.0),
        (done("iperf3", "tcp"), 1.0),
    ];
    // The far end counts a test after its client has the results.
    let page = process::wait_for("the tests to be counted", || {
        let page = scrape(&api)?;
        let mut tests = tests.iter();
        let are_counted = tests.all(|(name, count)| value(&page, name) == Some(*count));
        Ok(are_counted.then_some(page))
    })?;
    for (protocol, direction, bytes) in [
        ("http", "down", 200_000.0),
        ("messages", "up", 100_000.0),
        ("iperf3", "up", received),
    ] {
        let name = format!(
            "farwire_test_bytes_total{{protocol=\"{protocol}\",direction=\"{direction}\"}}"
        );
        let counted = value(&page, &name);
        ensure!(
            counted == Some(bytes),
            "{name}: {counted:?} instead of {bytes}: {page}"
        );
    }
    Ok(())
}

#[test_support::test(Tool("promtool"))]
fn promtool_has_nothing_against_the_metrics_of_a_far_end() -> Result<()> {
    let (far_end, api) = with_metrics()?;
    transfer(&far_end)?;
    let text = scrape(&api)?;
    has(&text, "farwire_tests_total{")?;
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let said = process::run_with(&mut promtool, file.into())?;
    let words = format!("{}{}", stdout(&said), stderr(&said));
    ensure!(said.status.success() && words.is_empty(), "{words}{text}");
    Ok(())
}

#[test_support::test]
fn running_tests_are_json_beside_the_metrics() -> Result<()> {
    let (far_end, api) = with_metrics()?;
    let url = api + "/v1/tests";
    let tests = || -> Result<Value> {
        let text = ureq::get(&url).call()?.body_mut().read_to_string()?;
        Ok(serde_json::from_str(&text)?)
    };
    let before = tests()?;
    ensure!(before["running"] == serde_json::json!([]), "{before}");
    let mut stream = endless(&far_end)?;
    let seen = process::wait_for("traffic", || {
        stream.read_exact(&mut [0; 100_000])?;
        let seen = tests()?;
        let bytes = seen
            .pointer("/running/0/down/bytes")
            .and_then(Value::as_u64);
        Ok((bytes > Some(0)).then_some(seen))
    })?;
    let row = &seen["running"][0];
    ensure!(row["test"] == "http", "{seen}");
    ensure!(row["peer"] == stream.local_addr()?.to_string(), "{seen}");
    ensure!(row["rtt_ms"].as_f64() > Some(0.0), "{seen}");
    ensure!(row["lost_packets"].is_u64(), "{seen}");
    drop(stream);
    let after = process::wait_for("the end of the test", || {
        let seen = tests()?;
        Ok((seen["ended"] == 1).then_some(seen))
    })?;
    ensure!(after["running"] == serde_json::json!([]), "{after}");
    let total = |of: &Value| of["total"]["down"]["bytes"].as_u64();
    ensure!(total(&after) >= total(&seen), "{seen}, then {after}");
    Ok(())
}

#[test_support::test]
fn a_client_has_the_name_that_the_system_knows() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let far_end = FarEnd::start(farwire().args(["serve", "--names", "--json"]).arg(&log))?;
    // Not every machine has a name for it.
    let expected = name_of("127.0.0.1".parse()?);
    let mut count = 0;
    process::wait_for("the name of a client", || {
        transfer(&far_end)?;
        count += 1;
        let text = await_lines(&log, count)?;
        let last: Value = serde_json::from_str(text.lines().last().context("a line")?)?;
        let name = last["peer_name"].as_str();
        ensure!(name.is_none() || name == expected.as_deref(), "{last}");
        Ok((name == expected.as_deref()).then_some(()))
    })
}
