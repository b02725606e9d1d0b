//! A cable is cut while a test runs: the client ends with the cause within the time-out that its page states, and the far end
//! notices too and continues to serve others.

use std::fs;
use std::process::{Output, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER_PORT, WAN};
use serde_json::Value;

use super::tcp::start;
use test_support::counters::InterfaceCounters;
use test_support::process::{self, farwire, has, run_in, stderr};
use test_support::suite::{Need, Suite};

/// An instrument, and the expected messages.
#[derive(Clone, Copy)]
struct Case {
    /// The arguments after `measure`; HOST is the far end.
    test: &'static str,
    /// A short test of the same kind.
    short: &'static str,
    /// The bytes that reach the far end once the test is in progress.
    under_way: u64,
    /// The client's messages when the far end's link goes down, and when its own does.
    far: &'static str,
    near: &'static str,
    /// The far end's log of the test.
    logged: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        test: "tcp HOST -t 3 -b 50M",
        short: "tcp HOST -n 100K",
        under_way: 500_000,
        far: "EXCHANGE_RESULTS (13) did not arrive within 10",
        near: "EXCHANGE_RESULTS (13) did not arrive within 10",
        logged: "no stream transferred data for 2 s",
    },
    Case {
        test: "udp HOST -t 3 -b 20M",
        short: "udp HOST -n 100K -b 20M",
        under_way: 500_000,
        far: "EXCHANGE_RESULTS (13) did not arrive within 10",
        near: "unreachable",
        logged: "no stream transferred data for 2 s",
    },
    Case {
        test: "capacity HOST --up -t 10",
        short: "capacity HOST --up -t 1 -i 200ms",
        under_way: 500_000,
        far: "sent nothing for 3 s during the test",
        near: "unreachable",
        logged: "sent nothing for 3 s",
    },
    Case {
        test: "probe HOST -c 6000 -i 1ms -W 200ms",
        short: "probe HOST -c 10 -i 1ms",
        under_way: 20_000,
        far: "",
        near: "unreachable",
        logged: "",
    },
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    // Wait for the time-outs of all tests simultaneously.
    suite.test(
        "a cut at the far end's side ends every instrument with its cause",
        &[Need::Namespaces],
        || all(Side::Far),
    );
}

#[test_support::test(Namespaces)]
fn a_cut_at_ones_own_side_ends_every_instrument_with_its_cause() -> Result<()> {
    all(Side::Near)
}

#[derive(Clone, Copy)]
enum Side {
    Far,
    Near,
}

fn all(side: Side) -> Result<()> {
    thread::scope(|scope| {
        let cut = CASES.map(|case| scope.spawn(move || case.cut(side).context(case.test)));
        let mut ends = cut.into_iter().map(|test| test.join());
        ends.try_for_each(|end| end.expect("a case does not panic"))
    })
}

impl Case {
    fn cut(self, side: Side) -> Result<()> {
        let bed = Bed::build(&BedConfig::default())?;
        bed.bridge()?;
        let directory = tempfile::tempdir()?;
        let log = directory.path().join("log");
        let mut server = farwire();
        server.args(["serve", "--idle-timeout", "2s", "--json"]);
        let _server = start(bed.server(), server.arg(&log).stdout(Stdio::null()))?;
        let output = thread::scope(|scope| -> Result<Output> {
            let client = scope.spawn(|| run_in(bed.client(), &mut measure(self.test, "10.77.0.2")));
            process::wait_for("the test to be under way", || {
                let bytes = InterfaceCounters::of(bed.server(), WAN)?.receive_bytes;
                Ok((bytes > self.under_way).then_some(()))
            })?;
            match side {
                Side::Far => process::ip(bed.emulator(), &format!("link set {SERVER_PORT} down"))?,
                Side::Near => process::ip(bed.client(), &format!("link set {WAN} down"))?,
            };
            let other = run_in(bed.server(), &mut measure(self.short, "127.0.0.1"))?;
            ensure!(other.status.success(), "another: {other:?}");
            client.join().expect("a client does not panic")
        })?;
        self.check(side, &output)?;
        let failure = || -> Result<Option<()>> {
            let text = fs::read_to_string(&log)?;
            let failures = text.lines().map(|line| -> Result<String> {
                let entry: Value = serde_json::from_str(line)?;
                Ok(entry["failure"].as_str().unwrap_or_default().to_owned())
            });
            let failures = failures.collect::<Result<Vec<_>>>()?;
            let found = failures.iter().any(|cause| cause.contains(self.logged));
            Ok(found.then_some(()))
        };
        process::wait_for(&format!("the log of \"{}\"", self.logged), failure)
    }

    fn check(self, side: Side, output: &Output) -> Result<()> {
        let said = stderr(output);
        let words = match side {
            Side::Far => self.far,
            Side::Near => self.near,
        };
        // Lost packets are an outcome of a probe, not its failure.
        let code = i32::from(!words.is_empty());
        ensure!(output.status.code() == Some(code), "{output:?}");
        has(&said, words)?;
        Ok(())
    }
}

fn measure(test: &str, host: &str) -> std::process::Command {
    let mut command = farwire();
    command.arg("measure");
    command.args(test.replace("HOST", host).split(' '));
    command
}
