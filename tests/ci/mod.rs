//! The files for continuous integration: the scripts of the action, and the examples for other systems. `scripts/ci_files` validates the files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use test_support::powerless;
use test_support::process::{self, python_tool, root, stdout};

/// The examples name this scenario. A busy machine must not make its run invalid.
const SCENARIO: &str = r#"
late_budget = "1s"
[[instruments]]
kind = "ping"
parameters = { count = 3, interval = "10ms" }
[[cases]]
name = "far"
link = { delay = "2ms" }
expect = [{ of = "ping.rtt_ms.median", least = "4ms" }]
"#;

/// Returns a directory with a scenario and a test suite, and with the program under test in its folder `bin`.
fn project() -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let bin = directory.path().join("bin");
    fs::create_dir(&bin)?;
    std::os::unix::fs::symlink(process::program(), bin.join("farwire"))?;
    fs::write(
        directory.path().join("ci.toml"),
        format!("name = \"ci\"{SCENARIO}"),
    )?;
    let unmet = SCENARIO.replace("4ms", "4s");
    fs::write(
        directory.path().join("unmet.toml"),
        format!("name = \"unmet\"{unmet}"),
    )?;
    let test = "def test_link(wan):\n    wan.exec(['ping', '-c', '1', wan.server])\n    wan.assert_met()\n";
    fs::write(directory.path().join("test_link.py"), test)?;
    Ok(directory)
}

/// Puts a program of the shell into the path of a project, in place of one with this name.
fn put_program(project: &TempDir, name: &str, script: &str) -> Result<()> {
    let path = project.path().join("bin").join(name);
    if path.exists() {
        fs::remove_file(&path)?;
    }
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(())
}

/// Returns a program as an ordinary user runs it in a project.
fn in_project(program: impl AsRef<Path>, project: &TempDir) -> Result<Command> {
    let path = std::env::var("PATH").unwrap_or_default();
    let bin = project.path().join("bin");
    let tools = python_tool("bin");
    let mut command = powerless::plain_user(program.as_ref())?;
    command.current_dir(project.path());
    command.env(
        "PATH",
        format!("{}:{}:{path}", bin.display(), tools.display()),
    );
    command.env("PYTHONPATH", root().join("python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTEST_ADDOPTS", "-p farwire.pytest_plugin");
    command.env("FARWIRE_REQUIRED", "1");
    Ok(command)
}

#[test_support::test(Namespaces, Tool("bash"), Tool("ping"))]
fn the_action_keeps_reports_and_ends_with_the_highest_code() -> Result<()> {
    let project = project()?;
    // A cache has kept the results of an earlier job.
    let stale = project.path().join("out/missing");
    fs::create_dir_all(&stale)?;
    fs::write(stale.join("record.jsonl"), "stale\n")?;
    fs::create_dir(project.path().join("other"))?;
    fs::copy(
        project.path().join("ci.toml"),
        project.path().join("other/ci.toml"),
    )?;
    let mut action = in_project(root().join(".github/action/run"), &project)?;
    action.env(
        "SCENARIO",
        "ci.toml\nunmet.toml\nother/ci.toml\nmissing.toml\n",
    );
    action.env("ARGUMENTS", "--no-baseline --late-budget 1s");
    action.env("OUT", "out");
    let files = ["summary", "output"].map(|name| project.path().join(name));
    action.env("GITHUB_STEP_SUMMARY", &files[0]);
    action.env("GITHUB_OUTPUT", &files[1]);
    let output = process::run(&mut action)?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    let [summary, code] = files.map(fs::read_to_string);
    let summary = summary?;
    process::has(&summary, "Met: 1 of 1")?;
    process::has(
        &summary,
        "missing: no record, because `farwire run` ended with 2",
    )?;
    ensure!(code? == "code=2\n", "the output of the step");
    for file in [
        "out/ci/junit.xml",
        "out/ci-2/junit.xml",
        "out/unmet/junit.xml",
        "out/ci/report.html",
    ] {
        ensure!(project.path().join(file).is_file(), "there is no {file}");
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("bash"))]
fn the_action_fails_if_a_report_cannot_be_made() -> Result<()> {
    let project = project()?;
    let program =
        "case $1 in\nrun) mkdir -p out/ci && touch out/ci/record.jsonl;;\nreport) exit 3;;\nesac";
    put_program(&project, "farwire", program)?;
    let mut action = in_project(root().join(".github/action/run"), &project)?;
    action.env("SCENARIO", "ci.toml").env("OUT", "out");
    let summary = project.path().join("summary");
    action.env("GITHUB_STEP_SUMMARY", &summary);
    let output = process::run(&mut action)?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    process::has(
        &fs::read_to_string(summary)?,
        "ci: no junit.xml, because `farwire report` ended with 3",
    )
}

#[test_support::test(Namespaces)]
fn the_action_installs_the_version_of_its_own_ref() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let sources = root().canonicalize()?;
    let project = project()?;
    put_program(&project, "pipx", r#"echo "pipx $*.""#)?;
    for (install, reference, installed) in [
        (
            "farwire",
            format!("v{version}"),
            format!("farwire=={version}"),
        ),
        ("farwire", "main".to_owned(), sources.display().to_string()),
        ("farwire", String::new(), sources.display().to_string()),
        (
            "farwire==0.0.1",
            "main".to_owned(),
            "farwire==0.0.1".to_owned(),
        ),
    ] {
        let mut action = in_project(root().join(".github/action/prepare"), &project)?;
        let output = process::succeeds(action.env("INSTALL", install).env("REF", reference))?;
        process::has(&stdout(&output), format!("pipx install {installed}."))?;
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn the_action_prepares_a_runner_that_has_farwire() -> Result<()> {
    let project = project()?;
    let mut action = in_project(root().join(".github/action/prepare"), &project)?;
    let output = process::succeeds(action.env("INSTALL", ""))?;
    process::has(&stdout(&output), "farwire ")
}

#[test_support::test(Namespaces, Tool("ping"), PythonTool("bin/pytest"))]
fn the_commands_of_the_examples_for_gitlab_and_jenkins_run() -> Result<()> {
    for (file, is_command) in [
        (
            "examples/ci/gitlab-ci.yaml",
            gitlab as fn(&str) -> Option<&str>,
        ),
        ("examples/ci/Jenkinsfile", jenkins),
    ] {
        let project = project()?;
        let text = fs::read_to_string(root().join(file))?;
        let commands: Vec<&str> = text.lines().filter_map(is_command).collect();
        ensure!(commands.len() == 3, "{file}: {commands:?}");
        for command in commands {
            let command = command.replace("--late-budget 10ms", "--late-budget 1s --no-baseline");
            let mut shell = in_project("sh", &project)?;
            process::succeeds(shell.args(["-c", &command])).with_context(|| file.to_owned())?;
        }
        for result in ["junit.xml", "pytest.xml"] {
            ensure!(
                project.path().join(result).is_file(),
                "{file}: there is no {result}"
            );
        }
    }
    Ok(())
}

/// Returns the command in a line of a script of GitLab, unless it installs something.
fn gitlab(line: &str) -> Option<&str> {
    let command = line.strip_prefix("    - ")?;
    (!command.starts_with("pip ")).then_some(command)
}

/// Returns the command in a step of Jenkins, unless it installs something.
fn jenkins(line: &str) -> Option<&str> {
    let quoted = line
        .split_once("script: '")
        .or_else(|| line.split_once("sh '"));
    let (command, _) = quoted?.1.rsplit_once('\'')?;
    (!command.contains("pip install")).then_some(command)
}
