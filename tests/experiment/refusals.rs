//! Bad input ends with 2 and one line that names what is wrong, before anything runs.

use anyhow::{Context, Result, ensure};

use crate::common::far_end::FarEnd;
use crate::common::powerless::farwire_without_namespaces;
use crate::common::process::{self, farwire};
use crate::common::suite::{Need, Suite};
use crate::small::{PING, PLAIN, SYSTEM_PING, Small, stderr};
use record::Record;
use record::figure_name::FigureName;

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "a scenario that is wrong is one error with its place",
        &[],
        || {
            let case = PLAIN.to_owned() + "link = { dealy = '30ms' }\n";
            let cause = "small.toml:14: link: unknown key `dealy`";
            check(&Small::of(&[PING, &case])?.run()?, cause)
        },
    );
    suite.test(
        "a budget of lateness is no choice of one who resumes, and at most a second",
        &[],
        || {
            for (arguments, cause) in [
                ("--resume out --late-budget 2ms", "cannot be used with"),
                (
                    "x.toml --late-budget 2s",
                    "write a time above 0 and at most 1s, as in 1ms",
                ),
            ] {
                let output = process::run(farwire().arg("run").args(arguments.split(' ')))?;
                ensure!(output.status.code() == Some(2), "{}", output.status);
                ensure!(stderr(&output).contains(cause), "{}", stderr(&output));
            }
            Ok(())
        },
    );
    suite.test(
        "a congestion control that is not here is refused by run and by --check alike",
        &[Need::Namespaces],
        || {
            let small = Small::of(&[PING, PLAIN])?;
            let text = std::fs::read_to_string(small.path("small.toml"))?;
            let own = "[[instruments]]\nname = 'load'\nkind = 'tcp'\nparameters = { congestion = 'warp' }\n";
            for text in [text.replace("reno", "warp"), text.clone() + own] {
                let small = Small::written(&text)?;
                let cause = "case `plain`: TCP congestion control `warp` is not available";
                refused(&small.run()?, 3, cause)?;
                refused(&process::run(small.command().arg("--check"))?, 3, cause)?;
                ensure!(!small.path("out").exists(), "something was written");
            }
            Ok(())
        },
    );
    suite.test(
        "where one case has a congestion control that is not here, --only runs the others",
        &[Need::Namespaces],
        || {
            let other = PLAIN.replace("plain", "other") + "tcp = { congestion = 'warp' }\n";
            let small = Small::of(&[PING, PLAIN, &other])?;
            let cause = "case `other`: TCP congestion control `warp` is not available";
            refused(&small.run()?, 3, cause)?;
            let rest = process::run(small.command().args(["--check", "--only", "plain"]))?;
            ensure!(rest.status.success(), "{}", stderr(&rest));
            Ok(())
        },
    );
    suite.test(
        "--check names a tool that is missing as run does",
        &[],
        || {
            let small = Small::of(&[SYSTEM_PING, PLAIN])?;
            for more in [&[][..], &["--check"]] {
                let output = process::run(small.command().args(more).env("PATH", "/nowhere"))?;
                refused(&output, 3, "iputils-ping")?;
            }
            Ok(())
        },
    );
    suite.test(
        "where there is no privilege --check, doctor and ping say so as run does, with the way round",
        &[Need::Namespaces],
        || {
            let small = Small::of(&[PING, PLAIN])?;
            for more in [&[][..], &["--check"]] {
                let mut command = farwire_without_namespaces()?;
                command.arg("run").arg(small.path("small.toml")).args(more);
                refused(&process::run(&mut command)?, 3, "a test bed needs root")?;
            }
            let mut ping = farwire_without_namespaces()?;
            ping.args(["measure", "ping", "127.0.0.1", "-c", "1"]);
            refused(&process::run(&mut ping)?, 3, "sysctl -w net.ipv4.ping_group_range=")?;
            let doctor = process::run(farwire_without_namespaces()?.arg("doctor"))?;
            let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
            let told = text.split_once("degraded  ICMP sockets").context("its line")?.1;
            ensure!(told.split("\nok").next().is_some_and(|told| told.contains("sysctl -w")), "{text}");
            Ok(())
        },
    );
    suite.test(
        "the smallest scenario runs with what the host has, and every figure that it measured may be expected",
        &[Need::Namespaces],
        smallest,
    );
    suite.test("-i is bare seconds or a time with a unit", &[], || {
        let far_end = FarEnd::start(farwire().arg("serve"))?;
        let address = far_end.address("http")?.to_string();
        for interval in ["0.001", "1ms"] {
            let mut command = farwire();
            command.args(["measure", "connect", &address]);
            let output = process::run(command.args(["-c", "2", "-q", "-i", interval]))?;
            ensure!(output.status.success(), "{interval}: {output:?}");
        }
        Ok(())
    });
    suite.test("bad input ends with 2 and one line", &[], || {
        let far_end = FarEnd::start(farwire().arg("serve"))?;
        let port = &far_end.address("http")?.port().to_string();
        for (arguments, cause) in [
            (
                &["serve", "--bind", "127.0.0.1", "--http-port", port][..],
                "is in use",
            ),
            (&["measure", "http", "ftp://127.0.0.1/"], "http://HOST"),
            (&["report", "Cargo.toml"], "not a farwire record"),
            (&["run", "nothing.toml"], "nothing.toml: cannot read"),
        ] {
            check(&process::run(farwire().args(arguments))?, cause)?;
        }
        Ok(())
    });
}

/// Every kind of instrument that needs nothing said, and some ways of using them.
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

fn smallest() -> Result<()> {
    let small = Small::written(SMALLEST)?;
    let output = small.run()?;
    let record = Record::read(&small.path("out/record.jsonl")).with_context(|| stderr(&output))?;
    // As fast as the machine goes: whether it kept up is its own.
    let failed = record.runs.iter().any(record::Run::has_failed);
    ensure!(
        !failed && record.finished_at.is_some(),
        "{}",
        stderr(&output)
    );
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
    let output = process::run(expecting.command().arg("--check"))?;
    ensure!(output.status.success(), "{}", stderr(&output));
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
