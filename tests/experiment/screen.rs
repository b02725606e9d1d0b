//! The text that a user reads: one screen at the end of a run, nothing with `--quiet`, the same in a pipe as without colours.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use test_support::process::{self, farwire, has, stderr};
use test_support::scenario::{HTTP, PING, PLAIN, Small};

const FAR: &str = "\
[[cases]]
name = 'a-case-of-a-long-name[delay=30ms,rate=20mbit]'
title = '30 ms each way'
link = { delay = '30ms' }
";

#[test_support::test(serial, Namespaces)]
fn a_run_of_two_cases_and_two_instruments_ends_with_one_screen_in_the_units_of_its_progress()
-> Result<()> {
    let small = Small::of(&[PING, HTTP, PLAIN, FAR])?;
    let output = small.run()?;
    let (text, progress) = (String::from_utf8(output.stdout.clone())?, stderr(&output));
    ensure!(text.lines().count() <= 36, "{text}");
    check_width(&text)?;
    for part in [
        "plain",
        "ping",
        "download",
        "Mbit/s",
        "for more, use --details or open the report",
    ] {
        ensure!(text.contains(part), "{part} in\n{text}");
    }
    for elsewhere in ["warm-up", "Student", "without emulation"] {
        ensure!(!text.contains(elsewhere), "{elsewhere} in\n{text}");
    }
    has(&progress, "Mbit/s")?;
    ensure!(!progress.contains("MB/s"), "{progress}");
    // Every figure of the progress is in the table, which has the digits that its interval allows.
    let line = progress.lines().find(|line| line.contains("plain: "));
    let figures = line.unwrap_or_default().split([' ', ',']);
    let shown: Vec<f64> = text.split_whitespace().filter_map(number).collect();
    for figure in figures.filter_map(number) {
        let is_shown = shown
            .iter()
            .any(|one| (one - figure).abs() <= figure / 20.0);
        ensure!(is_shown, "{figure} in\n{text}");
    }
    let mut details = farwire();
    details.arg("report").arg(small.path("out"));
    let details = process::run(details.arg("--details"))?;
    let details = String::from_utf8(details.stdout)?;
    has(&details, "warm-up")?;
    has(&details, "Student")?;
    check_width(&details)
}

fn number(word: &str) -> Option<f64> {
    word.parse().ok()
}

fn check_width(text: &str) -> Result<()> {
    let wide = text.lines().find(|line| line.chars().count() > 80);
    ensure!(wide.is_none(), "wider than 80: {wide:?}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_quiet_run_exec_or_measurement_says_nothing_on_standard_error() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let mut run = small.command();
    let mut json = small.command();
    let mut exec = farwire();
    exec.args(["-q", "exec", "--delay", "1ms", "--", "true"]);
    let mut measured = farwire();
    measured.args(["exec", "--quiet", "--", process::program()]);
    measured.args([
        "measure",
        "ping",
        "10.77.0.2",
        "-c",
        "2",
        "-i",
        "10ms",
        "-q",
        "--json",
        "-",
    ]);
    for command in [
        run.arg("-q"),
        json.args(["--overwrite", "--quiet", "--json", "-"]),
        &mut exec,
        &mut measured,
    ] {
        let output = process::run(command)?;
        ensure!(output.status.success(), "{command:?}: {}", stderr(&output));
        ensure!(output.stderr.is_empty(), "{command:?}: {}", stderr(&output));
    }
    // Errors are printed.
    let mut bad = farwire();
    let output = process::run(bad.args(["-q", "report", "/nowhere"]))?;
    ensure!(output.status.code() == Some(2) && !output.stderr.is_empty());
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_log_as_json_has_an_object_a_line_errors_among_them() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let mut found = small.command();
    let mut missing = farwire();
    missing.args(["run", "gone.toml", "--log-format=json"]);
    missing.current_dir(small.path(""));
    for (command, level, words) in [
        (found.arg("--log-format=json"), "info", "[1/1] plain: "),
        (&mut missing, "error", "gone.toml"),
    ] {
        let output = process::run(command)?;
        let lines = stderr(&output);
        let entries = lines.lines().map(serde_json::from_str);
        let entries: Vec<Value> = entries.collect::<Result<_, _>>().context(lines.clone())?;
        ensure!(
            entries.iter().all(|entry| entry["time"].is_string()),
            "{lines}"
        );
        let mut of_level = entries.iter().filter(|entry| entry["level"] == level);
        let said =
            of_level.any(|entry| entry["msg"].as_str().is_some_and(|msg| msg.contains(words)));
        ensure!(said, "{words} in {lines}");
    }
    // A run whose JSON goes to standard output prints no table between the log's lines.
    let mut json = small.command();
    let output = process::run(json.args(["--overwrite", "--log-format=json", "--json=-"]))?;
    let lines = stderr(&output);
    ensure!(
        lines.lines().all(|line| line.starts_with(r#"{"time":"#)),
        "{lines}"
    );
    Ok(())
}

#[test_support::test]
fn the_text_of_a_report_is_the_same_in_a_pipe_whatever_the_terminals_variables_say() -> Result<()> {
    for fixture in ["small", "grid", "every-kind"] {
        let record = format!("tests/fixtures/records/{fixture}.jsonl");
        for details in [None, Some("--details")] {
            let shown = |variables: &[(&str, &str)]| {
                let mut command = farwire();
                command.arg("report").arg(&record).args(details);
                command.env_remove("NO_COLOR").env_remove("COLUMNS");
                command.envs(variables.iter().copied());
                process::run(&mut command)
            };
            let plain = process::succeeded(shown(&[])?)?;
            check_width(&String::from_utf8(plain.stdout.clone())?)?;
            for variables in [
                [("NO_COLOR", "1")],
                [("COLUMNS", "200")],
                [("COLUMNS", "40")],
            ] {
                ensure!(shown(&variables)?.stdout == plain.stdout, "{variables:?}");
            }
        }
    }
    Ok(())
}

#[test_support::test(Tool("script"), Tool("stty"))]
fn a_table_is_folded_to_the_terminals_width_or_to_columns() -> Result<()> {
    let farwire = process::program();
    let report = format!("NO_COLOR=1 {farwire} report tests/fixtures/records/small.jsonl");
    let widest = |before: &str| -> Result<usize> {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{before} {report}"), "/dev/null"]);
        let output = process::run(script.stdin(Stdio::null()).env_remove("COLUMNS"))?;
        let text = String::from_utf8(output.stdout)?;
        has(&text, "Met: 3 of 3 tested expectations met")?;
        let widths = text.lines().map(|line| line.trim_end().chars().count());
        Ok(widths.max().unwrap_or_default())
    };
    let wide = widest("stty cols 200 rows 24;")?;
    ensure!(wide > 80, "folded to {wide} of 200");
    let narrow = widest("stty cols 60 rows 24;")?;
    ensure!(narrow <= 60, "{narrow} of 60");
    let asked = widest("stty cols 200 rows 24; COLUMNS=50")?;
    ensure!(asked <= 50, "{asked} of COLUMNS=50");
    Ok(())
}

#[test_support::test(Namespaces)]
fn one_of_anything_is_no_plural() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    let checked = process::run(small.command().arg("--check"))?;
    let output = small.run()?;
    let mut said = String::from_utf8(checked.stdout)? + &stderr(&output);
    said += &String::from_utf8(output.stdout)?;
    for one in ["1 run, about", "1 case, 1 run "] {
        ensure!(said.contains(one), "{one} in\n{said}");
    }
    for several in [
        " 1 runs",
        "\n1 runs",
        "1 cases",
        "1 times",
        "1 attempts",
        "1 expectations",
    ] {
        ensure!(!said.contains(several), "{several} in\n{said}");
    }
    Ok(())
}
