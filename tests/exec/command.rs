//! The command runs as it would elsewhere: its output, its exit code, its environment.

use std::process::Output;

use anyhow::{Result, ensure};

use test_support::process;
use test_support::suite::{Need, Suite};
use test_support::wan_box::Summary;

const NEEDS: [Need; 1] = [Need::Namespaces];

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "the command's output is its own, the figures go to stderr",
        &NEEDS,
        || {
            let output = exec(&["--", "printf", "hello"])?;
            check(&output, 0, "hello")?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(stderr.contains("crossed the link"), "no figures: {stderr}");
            Ok(())
        },
    );
    suite.test(
        "the command reads what farwire is given",
        &NEEDS,
        the_command_reads_stdin,
    );
    suite.test("farwire ends with the command's exit code", &NEEDS, || {
        check(&exec(&["--", "sh", "-c", "exit 7"])?, 7, "")?;
        check(&exec(&["--", "sh", "-c", "kill -9 $$"])?, 137, "")
    });
    suite.test(
        "a command that is not there is 127, one that is no program 126",
        &NEEDS,
        || {
            check(&exec(&["--", "/no/such/command"])?, 127, "")?;
            check(&exec(&["--", "/proc/version"])?, 126, "")
        },
    );
    suite.test("the command is told where the far end is", &NEEDS, || {
        let output = exec(&["--", "sh", "-c", "echo $FARWIRE_SERVER"])?;
        check(&output, 0, "10.77.0.2\n")
    });
    suite.test(
        "the figures go to standard output when asked for",
        &NEEDS,
        || {
            let output = exec(&["--json", "-", "--", "true"])?;
            let summary: Summary = serde_json::from_slice(&output.stdout)?;
            ensure!(summary.up.own_losses() == 0, "{summary:?}");
            Ok(())
        },
    );
    let wget = [Need::Namespaces, Need::Tool("wget")];
    suite.test(
        "a page of the built-in far end is downloaded whole",
        &wget,
        || {
            let line = "wget -qO- http://$FARWIRE_SERVER/bytes/3000000 | wc -c";
            let output = exec(&["--delay", "1ms", "--", "sh", "-c", line])?;
            check(&output, 0, "3000000\n")
        },
    );
    let iperf = [Need::Namespaces, Need::Tool("iperf3")];
    suite.test(
        "another command runs at the far end, its output on stderr",
        &iperf,
        || {
            let near = ["iperf3", "-c", "10.77.0.2", "-n", "1M"];
            let output = exec(&[&["--far", "iperf3 -s", "--"][..], &near].concat())?;
            ensure!(output.status.success(), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            ensure!(stderr.contains("Accepted connection"), "{stderr}");
            Ok(())
        },
    );
    suite.test(
        "a far end that never listens does not stop the command",
        &NEEDS,
        || check(&exec(&["--far", "true", "--", "echo", "ran"])?, 0, "ran\n"),
    );
}

/// Runs `farwire exec` with these arguments to its end.
pub(crate) fn exec(arguments: &[&str]) -> Result<Output> {
    process::run(process::farwire().arg("exec").args(arguments))
}

fn check(output: &Output, code: i32, stdout: &str) -> Result<()> {
    ensure!(
        output.status.code() == Some(code) && output.stdout == stdout.as_bytes(),
        "not {code} and {stdout:?}: {output:?}"
    );
    Ok(())
}

fn the_command_reads_stdin() -> Result<()> {
    let input = tempfile::NamedTempFile::new()?;
    std::fs::write(input.path(), "from outside")?;
    let output = process::farwire()
        .args(["exec", "--", "cat"])
        .stdin(input.reopen()?)
        .output()?;
    check(&output, 0, "from outside")
}
