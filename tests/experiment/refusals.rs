//! Bad input ends with 2 and one line that names the problem, before anything runs.

use anyhow::{Context, Result, ensure};

use record::Record;
use record::figure_name::FigureName;
use test_support::far_end::FarEnd;
use test_support::powerless::farwire_without_namespaces;
use test_support::process::{self, ends_with, farwire, stderr, stdout};
use test_support::scenario::{PING, PLAIN, SYSTEM_PING, Small};

#[test_support::test]
fn a_scenario_that_is_wrong_is_one_error_with_its_place() -> Result<()> {
    let case = PLAIN.to_owned() + "link = { dealy = '30ms' }\n";
    let cause = "small.toml:14: link: unknown key `dealy`";
    check(&Small::of(&[PING, &case])?.run()?, cause)
}

#[test_support::test]
fn who_resumes_cannot_choose_the_repeats_and_a_late_budget_is_at_most_a_second() -> Result<()> {
    for (arguments, cause) in [
        ("--resume out --repeats 2", "cannot be used with"),
        ("x.toml --repeats 0", "write a whole number of at least 1"),
        (
            "x.toml --late-budget 2s",
            "write a time above 0 and at most 1s, as in 1ms",
        ),
    ] {
        let output = process::run(farwire().arg("run").args(arguments.split(' ')))?;
        ends_with(&output, 2, cause)?;
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_congestion_control_that_is_not_here_is_refused_by_run_and_by_check_alike() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let text = std::fs::read_to_string(small.path("small.toml"))?;
    let own =
        "[[instruments]]\nname = 'load'\nkind = 'tcp'\nparameters = { congestion = 'warp' }\n";
    for text in [text.replace("reno", "warp"), text.clone() + own] {
        let small = Small::written(&text)?;
        let cause = "case `plain`: TCP congestion control `warp` is not available";
        refused(&small.run()?, 3, cause)?;
        refused(&process::run(small.command().arg("--check"))?, 3, cause)?;
        ensure!(!small.path("out").exists(), "something was written");
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn where_one_case_has_a_congestion_control_that_is_not_here_only_runs_the_others() -> Result<()> {
    let other = PLAIN.replace("plain", "other") + "tcp = { congestion = 'warp' }\n";
    let small = Small::of(&[PING, PLAIN, &other])?;
    let cause = "case `other`: TCP congestion control `warp` is not available";
    refused(&small.run()?, 3, cause)?;
    process::succeeds(small.command().args(["--check", "--only", "plain"]))?;
    Ok(())
}

#[test_support::test]
fn check_names_a_tool_that_is_missing_as_run_does() -> Result<()> {
    let small = Small::of(&[SYSTEM_PING, PLAIN])?;
    for more in [&[][..], &["--check"]] {
        let output = process::run(small.command().args(more).env("PATH", "/nowhere"))?;
        refused(&output, 3, "iputils-ping")?;
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn where_there_is_no_privilege_check_doctor_and_ping_say_so_as_run_does_with_the_way_round()
-> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    for more in [&[][..], &["--check"]] {
        let mut command = farwire_without_namespaces()?;
        command.arg("run").arg(small.path("small.toml")).args(more);
        refused(&process::run(&mut command)?, 3, "a test bed needs root")?;
    }
    let mut ping = farwire_without_namespaces()?;
    ping.args(["measure", "ping", "127.0.0.1", "-c", "1"]);
    refused(
        &process::run(&mut ping)?,
        3,
        "sysctl -w net.ipv4.ping_group_range=",
    )?;
    let doctor = process::run(farwire_without_namespaces()?.arg("doctor"))?;
    let text = stdout(&doctor);
    let told = text
        .split_once("degraded  ICMP sockets")
        .context("its line")?
        .1;
    ensure!(
        told.split("\nok")
            .next()
            .is_some_and(|told| told.contains("sysctl -w")),
        "{text}"
    );
    let uses = "this machine can: measure and serve; it cannot: run, exec, exec --net host, emulate between interfaces, \
                emulate --container";
    ensure!(text.lines().last() == Some(uses), "{text}");
    Ok(())
}

#[test_support::test]
fn i_is_bare_seconds_or_a_time_with_a_unit() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let address = far_end.address("http")?.to_string();
    for interval in ["0.001", "1ms"] {
        let mut command = farwire();
        command.args(["measure", "connect", &address]);
        let output = process::run(command.args(["-c", "2", "-q", "-i", interval]))?;
        ensure!(output.status.success(), "{interval}: {output:?}");
    }
    Ok(())
}

#[test_support::test]
fn bad_input_ends_with_2_and_one_line() -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let port = &far_end.address("http")?.port().to_string();
    for (arguments, cause) in [
        (
            &["serve", "--bind", "127.0.0.1", "--http-port", port][..],
            "--http-port: another program uses",
        ),
        (&["measure", "http", "ftp://127.0.0.1/"], "http://HOST"),
        (&["report", "Cargo.toml"], "not a farwire record"),
        (&["run", "nothing.toml"], "nothing.toml: cannot read"),
    ] {
        check(&process::run(farwire().args(arguments))?, cause)?;
    }
    Ok(())
}

/// Every kind of instrument that needs no options, and some ways of using them.
const SMALLEST: &str = "\
name = 'small'
[[instruments]]
kind = 'ping'
parameters = { count = 3, interval = '10ms' }
[[instruments]]
kind = 'connect'
parameters = { count = 3, interval = '10ms' }
[[instruments]]
kind = 'http'
parameters = { sizes = '1kb,10kb', count = 4 }
[[instruments]]
kind = 'tcp'
parameters = { time = '1s', bidir = true }
[[instruments]]
kind = 'udp'
parameters = { time = '1s', reverse = true }
[[instruments]]
kind = 'capacity'
parameters = { time = '5s' }
[[instruments]]
kind = 'probe'
parameters = { count = 20, under = 'udp:1mbit' }
[[instruments]]
kind = 'pingpong'
parameters = { udp = true, size = '1,64', count = 5, runs = 2 }
[[instruments]]
kind = 'transfer'
parameters = { bytes = '100kb', runs = 2 }
[[cases]]
name = 'plain'
";

#[test_support::test(Namespaces)]
fn the_smallest_scenario_runs_with_what_the_host_has_and_every_figure_that_it_measured_may_be_expected()
-> Result<()> {
    let small = Small::written(SMALLEST)?;
    let output = process::run(small.command().arg("--quick"))?;
    let record = Record::read(&small.path("out/record.jsonl")).with_context(|| stderr(&output))?;
    // The link has no conditions, so the run may be INVALID if the machine did not keep up; it must not have failed.
    let failed = record.runs.iter().any(record::Run::has_failed);
    ensure!(!failed, "{}", stderr(&output));
    ensure!(record.finished_at.is_some(), "{}", stderr(&output));
    let host = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
    let case = &record.plan().cases[0];
    ensure!(case.congestion == host.trim(), "{}", case.congestion);
    let mut text = SMALLEST.to_owned() + "expect = [\n";
    for measured in &record.runs[0].measurements {
        let figures = measured.measurement.figures.iter();
        for figure in figures.filter(|figure| figure.stream.is_none()) {
            let name = FigureName::of(&measured.instrument, figure);
            text += &format!("  {{ of = '{name}', least = -1e9 }},\n");
        }
    }
    let expecting = Small::written(&(text + "]\n"))?;
    process::succeeds(expecting.command().arg("--check"))?;
    Ok(())
}

fn check(output: &std::process::Output, cause: &str) -> Result<()> {
    refused(output, 2, cause)
}

fn refused(output: &std::process::Output, code: i32, cause: &str) -> Result<()> {
    let text = stderr(output);
    ensure!(
        output.status.code() == Some(code),
        "{}: {text}",
        output.status
    );
    ensure!(text.contains(cause) && text.lines().count() == 1, "{text}");
    Ok(())
}
