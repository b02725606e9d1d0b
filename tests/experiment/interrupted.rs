//! A `run` that a signal ends leaves the earlier runs, and nothing else.

use std::process::{Child, Stdio};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use test_support::family::Family;
use test_support::process::{self, farwire, has, stdout};
use test_support::scenario::{PLAIN, Small, WGET};
use test_support::suite::{Need, Suite};

/// This scenario would take 27 minutes.
const ENDLESS: &str =
    "[[cases]]\nname = 'endless'\ntitle = 'very slow'\nlink = { rate = '10kbit' }\n";

#[test_support::tests]
fn add(suite: &mut Suite) {
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGKILL,
    ] {
        suite.test(
            format!("{signal} during run leaves the record and nothing else"),
            &[Need::Namespaces, Need::Tool("wget")],
            move || leaves_the_record(signal),
        );
    }
}

fn leaves_the_record(signal: Signal) -> Result<()> {
    let family = Family::begin();
    let small = Small::of(&[WGET, PLAIN, ENDLESS])?;
    let mut child = family
        .mark(&mut small.command())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let ended = interrupt(&mut child, signal, &small, &family);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended?;

    let runs = small.runs()?;
    ensure!(runs.len() == 1 && runs[0]["case"] == "plain", "{runs:?}");
    ensure!(!small.is_finished()?, "it did not finish");
    let mut report = farwire();
    let output = process::succeeds(report.arg("report").arg(small.path("out")))?;
    let text = stdout(&output);
    has(&text, "1 of 2 cases are incomplete")?;
    ensure!(!text.contains("FAILED"), "{text}");
    Ok(())
}

/// Sends the signal while the client of the second run works, and waits until all processes are gone.
fn interrupt(child: &mut Child, signal: Signal, small: &Small, family: &Family) -> Result<()> {
    let namespaces = process::wait_for("the second run", || {
        let ended = child.try_wait()?;
        ensure!(ended.is_none(), "it ended by itself: {ended:?}");
        // These are farwire, the first process of the client's PID namespace, and the client.
        let second = small.runs().is_ok_and(|runs| runs.len() == 1) && family.members().len() > 2;
        Ok(second.then(|| family.namespaces()))
    })?;
    kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
    let status = process::end_of(child)?;
    ensure!(
        status.code() == (signal != Signal::SIGKILL).then_some(1),
        "{status}"
    );
    family.check_gone(&namespaces)
}
