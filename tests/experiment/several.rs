//! Several scenarios in one command.

use std::fs;

use anyhow::{Result, ensure};

use test_support::process::{self, ends_with, farwire, has, stderr};
use test_support::scenario::{PING, PLAIN, Small};

/// A round trip that no machine reaches, faster than light.
const UNMET: &str = "expect = [{ of = 'ping.rtt_ms.median', most = '1us' }]\n";

#[test_support::test(Namespaces)]
fn several_scenarios_all_run_and_one_page_leads_to_their_reports() -> Result<()> {
    let small = Small::of(&[PING, PLAIN, UNMET])?;
    let text = fs::read_to_string(small.path("small.toml"))?;
    let met = text.replace("'small'", "'met'").replace(UNMET, "");
    fs::write(small.path("met.toml"), met)?;
    let mut command = farwire();
    command
        .current_dir(small.path(""))
        .args(["run", "--no-baseline"]);
    let ended = process::run(command.args(["small.toml", "met.toml", "--out", "all"]))?;
    let said = ends_with(
        &ended,
        1,
        "failed, or not all expectations are met: small.toml",
    )?;
    has(&said, "all reports: all/index.html")?;
    let page = fs::read_to_string(small.path("all/index.html"))?;
    for report in ["small/report.html", "met/report.html"] {
        has(&page, format!("href=\"{report}\""))?;
        ensure!(small.path("all").join(report).exists(), "{report}");
    }
    Ok(())
}

#[test_support::test]
fn of_several_scenarios_none_runs_where_one_cannot_be_read_or_two_have_one_name() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let text = fs::read_to_string(small.path("small.toml"))?;
    fs::write(small.path("same.toml"), &text)?;
    fs::write(small.path("wrong.toml"), text.replace("'small'", "7"))?;
    for (other, why) in [
        (
            "same.toml",
            "small.toml and same.toml have the same name, `small`",
        ),
        ("wrong.toml", "wrong.toml:1"),
    ] {
        let mut command = farwire();
        command.current_dir(small.path("")).arg("run");
        let refused = process::run(command.args(["small.toml", other, "--out", "all"]))?;
        let said = stderr(&refused);
        ensure!(refused.status.code() == Some(2), "{said}");
        has(&said, why)?;
        ensure!(!small.path("all").exists());
    }
    let mut command = farwire();
    command.current_dir(small.path("")).arg("run");
    let files = ["small.toml", "met.toml", "--only", "plain"];
    fs::write(small.path("met.toml"), text.replace("'small'", "'met'"))?;
    let refused = process::run(command.args(files))?;
    ends_with(&refused, 2, "--only works with one scenario only")?;
    Ok(())
}
