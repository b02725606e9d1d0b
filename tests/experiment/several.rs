//! Several scenarios by one command.

use std::fs;

use anyhow::{Result, ensure};

use crate::small::{PING, PLAIN, Small, stderr};
use test_support::process::{self, farwire};
use test_support::suite::{Need, Suite};

/// Faster than light.
const UNMET: &str = "expect = [{ of = 'ping.rtt_ms.median', most = '1us' }]\n";

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "several scenarios all run, and one page leads to their reports",
        &[Need::Namespaces],
        all_run,
    );
    suite.test(
        "of several scenarios none runs where one cannot be read, or two have one name",
        &[],
        none_runs,
    );
}

fn all_run() -> Result<()> {
    let small = Small::of(&[PING, PLAIN, UNMET])?;
    let text = fs::read_to_string(small.path("small.toml"))?;
    let met = text.replace("'small'", "'met'").replace(UNMET, "");
    fs::write(small.path("met.toml"), met)?;
    let mut command = farwire();
    command.current_dir(small.path("")).arg("run");
    let ended = process::run(command.args(["small.toml", "met.toml", "--out", "all"]))?;
    let said = stderr(&ended);
    ensure!(ended.status.code() == Some(1), "{said}");
    ensure!(
        said.contains("not all that is expected is met: small.toml"),
        "{said}"
    );
    ensure!(said.contains("all reports: all/index.html"), "{said}");
    let page = fs::read_to_string(small.path("all/index.html"))?;
    for report in ["small/report.html", "met/report.html"] {
        ensure!(page.contains(&format!("href=\"{report}\"")), "{page}");
        ensure!(small.path("all").join(report).exists(), "{report}");
    }
    Ok(())
}

fn none_runs() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let text = fs::read_to_string(small.path("small.toml"))?;
    fs::write(small.path("same.toml"), &text)?;
    fs::write(small.path("wrong.toml"), text.replace("'small'", "7"))?;
    for (other, why) in [
        (
            "same.toml",
            "small.toml and same.toml are both called `small`",
        ),
        ("wrong.toml", "wrong.toml:1"),
    ] {
        let mut command = farwire();
        command.current_dir(small.path("")).arg("run");
        let refused = process::run(command.args(["small.toml", other, "--out", "all"]))?;
        let said = stderr(&refused);
        ensure!(
            refused.status.code() == Some(2) && said.contains(why),
            "{said}"
        );
        ensure!(!small.path("all").exists());
    }
    let mut command = farwire();
    command.current_dir(small.path("")).arg("run");
    let files = ["small.toml", "met.toml", "--only", "plain"];
    fs::write(small.path("met.toml"), text.replace("'small'", "'met'"))?;
    let refused = process::run(command.args(files))?;
    let said = stderr(&refused);
    ensure!(refused.status.code() == Some(2), "{said}");
    ensure!(said.contains("--only is of one scenario"), "{said}");
    Ok(())
}
