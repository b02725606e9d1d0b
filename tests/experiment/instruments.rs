//! Instruments by themselves, against the far end and against the end of a test bed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::common::process::{self, farwire};
use crate::common::suite::{Need, Suite};
use crate::small::stderr;

pub(crate) fn add(suite: &mut Suite) {
    for address in ["10.77.0.2", "fd77::2"] {
        suite.test(
            format!("every echo to {address} is answered once"),
            &[Need::Namespaces],
            move || every_echo_is_answered(address),
        );
    }
    suite.test("a download from the far end is measured", &[], || {
        let far_end = FarEnd::start(&mut farwire())?;
        let url = format!("{}/bytes/1000000", far_end.url);
        let output = process::run(farwire().args(["measure", "http", &url, "--json", "-"]))?;
        ensure!(output.status.success(), "{}", stderr(&output));
        let measured: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(measured["summary"]["bytes"] == 1_000_000, "{measured}");
        Ok(())
    });
    suite.test(
        "a resource that is not there fails the measurement",
        &[],
        || {
            let far_end = FarEnd::start(&mut farwire())?;
            let url = format!("{}/nothing", far_end.url);
            let output = process::run(farwire().args(["measure", "http", &url]))?;
            ensure!(output.status.code() == Some(1), "{}", output.status);
            ensure!(stderr(&output).contains("404"), "{}", stderr(&output));
            Ok(())
        },
    );
    suite.test("a SIGHUP ignored at the start stays ignored", &[], || {
        let far_end = FarEnd::start(&mut farwire())?;
        ensure!(!far_end.ignores_hang_up()?, "SIGHUP is ignored unasked");
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
        shell.arg(farwire().get_program());
        let far_end = FarEnd::start(&mut shell)?;
        ensure!(far_end.ignores_hang_up()?, "SIGHUP is no longer ignored");
        Ok(())
    });
}

fn every_echo_is_answered(address: &str) -> Result<()> {
    let mut command = farwire();
    let program = command.get_program().to_owned();
    command.args(["exec", "--"]).arg(program);
    command.args(["measure", "ping", address, "--count", "5"]);
    let output = process::run(command.args(["--interval", "2ms", "--json", "-"]))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let measured: Value = serde_json::from_slice(&output.stdout)?;
    let summary = &measured["summary"];
    for (key, wanted) in [("sent", 5), ("received", 5), ("duplicates", 0)] {
        ensure!(summary[key] == wanted, "{summary}");
    }
    let samples = measured["samples"].as_array().context("samples")?;
    ensure!(
        samples.iter().all(|sample| sample["metric"] == "rtt_ms"),
        "{measured}"
    );
    Ok(())
}

/// A far end on a free port of 127.0.0.1, killed with the test.
pub(crate) struct FarEnd {
    child: Child,
    pub(crate) url: String,
}

impl FarEnd {
    /// Starts it by `command`, which is the program under test or becomes it.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .args(["serve", "--bind", "127.0.0.1", "--http-port", "0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stderr = child.stderr.take().context("a pipe was asked for")?;
        BufReader::new(stderr).read_line(&mut line)?;
        let url = line.split(' ').find(|word| word.starts_with("http://"));
        let url = url.with_context(|| line.clone())?.to_owned();
        Ok(Self { child, url })
    }

    /// As proc(5) has it: bit n - 1 stands for signal n, and SIGHUP is 1.
    fn ignores_hang_up(&self) -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.context("SigIgn")?.trim(), 16)?;
        Ok(mask & 1 == 1)
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
