//! The command runs as elsewhere, with its output, exit code and environment.

use std::process::Output;

use anyhow::{Result, ensure};

use test_support::process::{self, has, stderr};
use test_support::wan_box::Summary;

#[test_support::test(Namespaces)]
fn the_commands_output_is_its_own_the_figures_go_to_stderr() -> Result<()> {
    let output = exec(&["--", "printf", "hello"])?;
    check(&output, 0, "hello")?;
    let stderr = stderr(&output);
    ensure!(stderr.contains("link counters"), "no figures: {stderr}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn farwire_ends_with_the_commands_exit_code() -> Result<()> {
    check(&exec(&["--", "sh", "-c", "exit 7"])?, 7, "")?;
    check(&exec(&["--", "sh", "-c", "kill -9 $$"])?, 137, "")
}

#[test_support::test(Namespaces)]
fn a_command_that_is_not_there_is_127_one_that_is_no_program_126() -> Result<()> {
    check(&exec(&["--", "/no/such/command"])?, 127, "")?;
    check(&exec(&["--", "/proc/version"])?, 126, "")
}

#[test_support::test(Namespaces)]
fn the_command_is_told_where_the_far_end_is() -> Result<()> {
    let output = exec(&["--", "sh", "-c", "echo $FARWIRE_SERVER"])?;
    check(&output, 0, "10.77.0.2\n")
}

#[test_support::test(Namespaces)]
fn the_figures_go_to_standard_output_when_asked_for() -> Result<()> {
    let output = exec(&["--json", "-", "--", "true"])?;
    let summary: Summary = serde_json::from_slice(&output.stdout)?;
    ensure!(summary.up.own_losses() == 0, "{summary:?}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("wget"))]
fn a_page_of_the_built_in_far_end_is_downloaded_whole() -> Result<()> {
    let line = "wget -qO- http://$FARWIRE_SERVER/bytes/3000000 | wc -c";
    let output = exec(&["--delay", "1ms", "--", "sh", "-c", line])?;
    check(&output, 0, "3000000\n")
}

#[test_support::test(serial, Namespaces, Tool("iperf3"))]
fn another_command_runs_at_the_far_end_its_output_on_stderr() -> Result<()> {
    let near = ["iperf3", "-c", "10.77.0.2", "-n", "1M"];
    let output = process::succeeded(exec(&[&["--far", "iperf3 -s", "--"][..], &near].concat())?)?;
    let stderr = stderr(&output);
    has(&stderr, "Accepted connection")?;
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_far_end_that_never_listens_does_not_stop_the_command() -> Result<()> {
    check(&exec(&["--far", "true", "--", "echo", "ran"])?, 0, "ran\n")
}

/// Runs `farwire exec` with these arguments until it ends.
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

#[test_support::test(Namespaces)]
fn the_command_reads_what_farwire_is_given() -> Result<()> {
    let input = tempfile::NamedTempFile::new()?;
    std::fs::write(input.path(), "from outside")?;
    let output = process::farwire()
        .args(["exec", "--", "cat"])
        .stdin(input.reopen()?)
        .output()?;
    check(&output, 0, "from outside")
}
