//! A record is never replaced unless the user asks for it.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use record::Record;
use serde_json::Value;

use test_support::process::{self, ends_with, farwire, has, stderr, stdout};
use test_support::scenario::{PING, PLAIN, Small};

#[test_support::test(Namespaces)]
fn a_runs_packets_are_captured_beside_the_record_which_says_where() -> Result<()> {
    let small = Small::of(&[PING, "[[cases]]\nname = 'a/b'\nrepeats = 2\n"])?;
    process::succeeds(small.command().args(["--pcap=seen", "--pcap-filter=icmp"]))?;
    let record = fs::read_to_string(small.path("out/record.jsonl"))?;
    let mut runs = 0;
    for line in record.lines() {
        let line: Value = serde_json::from_str(line)?;
        let Some(run) = line.get("run") else { continue };
        runs += 1;
        let capture = &run["links"][0]["capture"];
        let attempt = run["attempt"].as_u64().context("an attempt")?;
        let name = match attempt {
            1 => format!("seen-a_b-{}.pcapng", run["repeat"]),
            _ => format!("seen-a_b-{}-attempt-{attempt}.pcapng", run["repeat"]),
        };
        ensure!(capture["file"] == format!("artifacts/{name}"), "{capture}");
        // Five echoes and their replies are captured at both ends.
        ensure!(capture["a"] == 10 && capture["b"] == 10, "{capture}");
        let bytes = fs::read(small.path(&format!("out/artifacts/{name}")))?;
        ensure!(bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "{name}");
        ensure!(
            run["artifacts"][0]["file"] == capture["file"],
            "{}",
            run["artifacts"]
        );
    }
    summed(&small, "out")?;
    ensure!(runs >= 2, "{record}");
    Ok(())
}

/// Checks every file that the record in `folder` refers to with sha256sum of coreutils, and returns their number.
fn summed(small: &Small, folder: &str) -> Result<usize> {
    let record = Record::read(&small.path(folder))?;
    let artifacts: Vec<_> = record.runs.iter().flat_map(|run| &run.artifacts).collect();
    for artifact in &artifacts {
        let file = small.path(folder).join(&artifact.file);
        let said = process::run(Command::new("sha256sum").arg(&file))?;
        let said = stdout(&said);
        ensure!(said.starts_with(&artifact.sha256), "{artifact:?}: {said}");
        ensure!(fs::metadata(&file)?.len() == artifact.bytes, "{artifact:?}");
    }
    ensure!(!artifacts.is_empty(), "no run of {folder} left a file");
    Ok(artifacts.len())
}

#[test_support::test(Namespaces)]
fn a_capture_of_runs_that_cannot_be_is_refused() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let output = process::run(small.command().arg("--pcap=a/b"))?;
    ends_with(&output, 2, ", without /")?;
    ensure!(!small.path("out").exists(), "a record was begun");
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_probes_lines_are_kept_beside_the_record_and_go_with_it() -> Result<()> {
    const PROBE: &str = "\
[[instruments]]
name = 'lines'
kind = 'probe'
csv = true
parameters = { count = 5, interval = '5ms', timeout = '1s' }
";
    let small = Small::of(&[PROBE, "[[cases]]\nname = 'a/b'\nrepeats = 2\n"])?;
    process::succeeded(small.run()?)?;
    for repeat in ["1", "2"] {
        let file = small.path(&format!("out/artifacts/a_b-{repeat}-lines.csv"));
        let text = fs::read_to_string(file)?;
        ensure!(text.lines().count() == 6, "{text}");
        ensure!(text.starts_with("sent_ms,received_ms,"), "{text}");
    }
    let own = summed(&small, "out")?;
    let mut merge = farwire();
    merge.current_dir(small.path(""));
    process::succeeds(merge.args(["merge", "out", "--out", "elsewhere/all"]))?;
    ensure!(
        summed(&small, "elsewhere/all")? == own,
        "files were lost on the way"
    );
    let once = Small::of(&[PROBE, "[[cases]]\nname = 'once'\n"])?;
    fs::copy(once.path("small.toml"), small.path("small.toml"))?;
    process::succeeds(small.command().arg("--overwrite"))?;
    let files: Vec<_> = fs::read_dir(small.path("out/artifacts"))?
        .flatten()
        .map(|file| file.file_name())
        .collect();
    ensure!(files == ["once-1-lines.csv"], "{files:?}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_record_in_out_stays_as_it_is_unless_overwrite_replaces_it() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    ensure!(small.run()?.status.success());
    let before = fs::read(small.path("out/record.jsonl"))?;

    let refused = small.run()?;
    let said = ends_with(&refused, 2, "contains a record of `small`")?;
    has(&said, "--overwrite")?;
    ensure!(before == fs::read(small.path("out/record.jsonl"))?);

    // A killed run leaves this.
    let cut = before.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    fs::write(small.path("out/record.jsonl"), &before[..cut])?;
    let refused = small.run()?;
    let said = stderr(&refused);
    let how = format!("farwire run --resume {}", small.path("out").display());
    ensure!(refused.status.code() == Some(2), "{said}");
    has(&said, &how)?;
    ensure!(before[..cut] == fs::read(small.path("out/record.jsonl"))?);

    process::succeeds(small.command().arg("--overwrite"))?;
    ensure!(small.is_finished()? && small.runs()?.len() == 1);
    Ok(())
}

#[test_support::test(Namespaces)]
fn without_out_the_record_goes_to_the_next_free_directory_and_that_is_said() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let run = || {
        let mut command = farwire();
        command.args(["run", "--no-baseline"]);
        command.arg(small.path("small.toml"));
        process::run(command.current_dir(small.path("")))
    };
    ensure!(run()?.status.success());
    let before = fs::read(small.path("out/small/record.jsonl"))?;
    for next in ["out/small-2", "out/small-3"] {
        let again = process::succeeded(run()?)?;
        let said = stderr(&again);
        has(&said, format!("the new record goes to {next}"))?;
        ensure!(small.path(next).join("report.html").exists());
    }
    ensure!(before == fs::read(small.path("out/small/record.jsonl"))?);
    Ok(())
}
