//! `measure tcp` and its far end with iperf3 in the other role: every combination completes, and both count the same.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use serde_json::Value;

use test_support::process::{self, farwire, ip, run_in};
use test_support::suite::{Need, Suite};

/// The needs of tests with iperf3.
pub(crate) const NEEDS: [Need; 2] = [Need::Tool("iperf3"), Need::Namespaces];
/// The usual port of iperf3. Each test runs in a separate namespace, so that the port is free.
const PORT: u16 = 5201;
const OPTIONS: [&str; 10] = [
    "-t 1",
    "-t 1 -P 4",
    "-t 1 -R",
    "-t 1 --bidir",
    "-t 1 --bidir -P 2",
    "-t 1 -O 1",
    "-t 1 -O 1 -R",
    "-n 10M",
    "-n 10M -R -P 3",
    "-t 1 -b 20M -C reno -M 1200 -N -S 0xb8",
];
/// Lengths of a block, from the shortest to the longest that iperf3 accepts, with its default between them.
const LENGTHS: [&str; 7] = [
    "-t 1 -l 1",
    "-t 1 -l 37 -R",
    "-t 1 -l 1448",
    "-t 1 -l 4097 --bidir",
    "-t 1 -l 65535 -P 2",
    "-t 1 -l 1048576",
    "-t 1 -l 1048576 -R",
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for address in ["127.0.0.1", "::1"] {
        let lengths = LENGTHS.into_iter().filter(|_| address == "127.0.0.1");
        for options in OPTIONS.into_iter().chain(lengths) {
            let name = format!("iperf3 {options} at {address} and farwire serve count the same");
            suite.test(name, &NEEDS, move || served(options, address));
            let name =
                format!("farwire measure tcp {options} at {address} and iperf3 -s count the same");
            suite.test(name, &NEEDS, move || measured(options, address));
        }
    }
    // Only the client knows when these tests end.
    for options in ["-k 100", "-k 100 -R", "-k 100 --bidir"] {
        let name = format!("iperf3 {options} and farwire serve count the same");
        suite.test(name, &NEEDS, move || served(options, "127.0.0.1"));
    }
}

fn served(options: &str, address: &str) -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let log = directory.path().join("log");
    let _server = serve(&ns, &log)?;
    let mut client = Command::new("iperf3");
    client.args(["-c", address, "-J"]).args(options.split(' '));
    let output = run_in(&ns, &mut client)?;
    let theirs: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(theirs["error"].is_null(), "{}", theirs["error"]);
    let logged = || Ok(Some(fs::read_to_string(&log)?).filter(|text| text.ends_with('\n')));
    let line = process::wait_for("the test to be logged", logged)?;
    same(&serde_json::from_str(&line)?, &theirs, Said::ByClient)
}

fn measured(options: &str, address: &str) -> Result<()> {
    let ns = namespace()?;
    let mut command = Command::new("iperf3");
    let server = start(&ns, command.args(["-s", "-1", "-J"]).stdout(Stdio::piped()))?;
    let mut client = farwire();
    client.args(["measure", "tcp", address, "--json", "-"]);
    let output = process::succeeds_in(&ns, client.args(options.split(' ')))?;
    let ours = serde_json::from_slice(&output.stdout)?;
    let output = server.finish()?;
    same(&ours, &serde_json::from_slice(&output)?, Said::ByServer)
}

#[test_support::test(Tool("iperf3"), Namespaces)]
fn the_largest_mss_of_iperf3_3_21_is_taken_by_farwire_serve_and_by_iperf3_s() -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let server = serve(&ns, &directory.path().join("log"))?;
    let (success, json) = measure(&ns, "127.0.0.1 -n 10M -M 32767")?;
    ensure!(success, "{json}");
    drop(server);
    measured("-n 10M -M 32767", "127.0.0.1")
}

#[test_support::test(Namespaces)]
fn farwire_measure_tcp_has_iperf3s_names() -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let _server = serve(&ns, &directory.path().join("log"))?;
    let (status, json) = measure(&ns, "127.0.0.1 -t 1 --bidir -P 2")?;
    ensure!(status, "{json}");
    ensure!(json["start"]["connected"].as_array().map(Vec::len) == Some(4));
    ensure!(json["start"]["test_start"]["num_streams"] == 2, "{json}");
    let interval = &json["intervals"][0];
    ensure!(interval["streams"][0]["snd_cwnd"].is_u64(), "{interval}");
    ensure!(interval["sum"]["retransmits"].is_u64(), "{interval}");
    ensure!(
        interval["sum_bidir_reverse"]["bytes"].is_u64(),
        "{interval}"
    );
    let end = &json["end"];
    ensure!(
        end["sum_sent"]["bytes"].as_u64() >= end["sum_received"]["bytes"].as_u64(),
        "{end}"
    );
    ensure!(
        end["streams"][3]["receiver"]["bits_per_second"].is_f64(),
        "{end}"
    );
    ensure!(
        end["cpu_utilization_percent"]["remote_total"].is_f64(),
        "{end}"
    );
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_refused_port_is_an_error_under_iperf3s_name_too() -> Result<()> {
    let (status, json) = measure(&namespace()?, "127.0.0.1 -t 1")?;
    let failure = json["failure"].as_str().context("a failure")?;
    ensure!(!status, "{json}");
    ensure!(failure.contains("refuses the connection"), "{json}");
    ensure!(json["error"] == failure, "{json}");
    Ok(())
}

/// Measures; returns whether that succeeded, and the JSON.
fn measure(ns: &NetNs, line: &str) -> Result<(bool, Value)> {
    let mut client = farwire();
    client.args(["measure", "tcp", "--quiet", "--json", "-"]);
    let output = run_in(ns, client.args(line.split(' ')))?;
    Ok((
        output.status.success(),
        serde_json::from_slice(&output.stdout)?,
    ))
}

#[test_support::test(Tool("iperf3"), Namespaces)]
fn ten_iperf3_at_once_are_all_served() -> Result<()> {
    let (ns, directory) = (namespace()?, tempfile::tempdir()?);
    let log = directory.path().join("log");
    let _server = serve(&ns, &log)?;
    let one = || -> Result<()> {
        let mut client = Command::new("iperf3");
        let output = run_in(&ns, client.args(["-c", "127.0.0.1", "-t", "1", "-J"]))?;
        let theirs: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(theirs["error"].is_null(), "{}", theirs["error"]);
        Ok(())
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(one)).collect();
        let mut ends = clients.into_iter().map(|client| client.join());
        ends.try_for_each(|end| end.expect("a client does not panic"))
    })?;
    let logged =
        || Ok(Some(fs::read_to_string(&log)?.lines().count()).filter(|count| *count >= 10));
    ensure!(process::wait_for("ten tests to be logged", logged)? == 10);
    Ok(())
}

/// Reads the output of one end of iperf3, which has the other end's results only if it is the client.
#[derive(Clone, Copy, PartialEq)]
enum Said {
    ByClient,
    ByServer,
}

/// Compares the counts of farwire with those of iperf3, at the senders and at the receivers.
fn same(ours: &Value, theirs: &Value, said: Said) -> Result<()> {
    ensure!(ours["failure"].is_null(), "{}", ours["failure"]);
    let mut compared = 0;
    let start = &theirs["start"]["test_start"];
    for direction in ["up", "down"] {
        for (metric, end) in [("sent_bytes", "sender"), ("received_bytes", "receiver")] {
            let by_server = (direction == "up") == (end == "receiver");
            if said == Said::ByServer && !by_server {
                continue;
            }
            let client_sends = direction == "up";
            let iperf3_sends = client_sends == (said == Said::ByClient);
            let streams = theirs["end"]["streams"].as_array().context("streams")?;
            let of = streams.iter().filter(|s| s[end]["sender"] == iperf3_sends);
            let theirs_of: Vec<f64> = of.filter_map(|s| s[end]["bytes"].as_f64()).collect();
            let sent_streams = theirs_of.len();
            let figures = ours["figures"].as_array().context("figures")?.iter();
            let mut whole = figures.filter(|f| {
                f["metric"] == metric && f["direction"] == direction && f["stream"].is_null()
            });
            let ours = whole.find_map(|figure| figure["value"].as_f64());
            let sum: Option<f64> = (!theirs_of.is_empty()).then(|| theirs_of.iter().sum());
            // From 3.16 on, iperf3 may report before its last block of each stream is counted.
            let block = start["blksize"].as_f64().context("a block")?;
            let uncounted = match end {
                "sender" if iperf3_sends && start["bytes"] == 0 => block * sent_streams as f64,
                _ => 0.0,
            };
            let is_same = match (ours, sum) {
                (Some(ours), Some(sum)) => (sum..=sum + uncounted).contains(&ours),
                (ours, sum) => ours == sum,
            };
            ensure!(
                is_same,
                "{direction} {metric}: {ours:?} here, {sum:?} at iperf3"
            );
            compared += usize::from(sum.is_some_and(|bytes| bytes > 0.0));
        }
    }
    ensure!(compared > 0, "nothing to compare: {theirs}");
    Ok(())
}

/// Creates a namespace with a loopback interface and free ports.
pub(crate) fn namespace() -> Result<NetNs> {
    let ns = NetNs::create()?;
    ip(&ns, "link set lo up")?;
    Ok(ns)
}

/// A program that is killed at the end of the test.
pub(crate) struct Server(Option<Child>);

impl Server {
    /// Waits for its end and returns its output.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        let child = self.0.take().context("it runs")?;
        Ok(child.wait_with_output()?.stdout)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a farwire that logs its tests to `log`, on the usual ports.
pub(crate) fn serve(ns: &NetNs, log: &Path) -> Result<Server> {
    let mut command = farwire();
    let command = command.args(["serve", "--json"]).arg(log);
    start(ns, command.stdout(Stdio::null()))
}

/// Starts `command` and waits until it listens.
pub(crate) fn start(ns: &NetNs, command: &mut Command) -> Result<Server> {
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    let server = Server(Some(ns.run(|| quiet.spawn())??));
    process::wait_for("the server to listen", || {
        ns.run(|| -> Result<Option<()>> {
            let sockets = ["tcp", "tcp6"]
                .map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}")));
            let local = format!(":{PORT:04X} ");
            let mut lines = sockets.iter().flatten().flat_map(|text| text.lines());
            // State 0A is TCP_LISTEN.
            let listens = lines.any(|line| line.contains(&local) && line.contains(" 0A "));
            Ok(listens.then_some(()))
        })?
    })?;
    Ok(server)
}
