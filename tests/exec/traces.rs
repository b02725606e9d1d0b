//! Links that follow traces from files, and the tool for traces.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::effects::Run;
use test_support::process::{self, farwire, has, stderr, stdout};
use test_support::usage::peak_kib;
use test_support::wan_box::Summary;

/// Conditions that no packet of a test outlives, so that its time does not matter.
const TABLE: &str = "t,delay,loss\n0s,7ms,0%\n1h,90ms,100%\n2h,,\n";

/// Returns the program in a folder with these files.
fn with_files(folder: &Path, files: &[(&str, &str)]) -> Result<Command> {
    for (name, text) in files {
        fs::write(folder.join(name), text)?;
    }
    let mut command = farwire();
    command.current_dir(folder);
    Ok(command)
}

#[test_support::test(Namespaces, Tool("ping"))]
fn packets_have_the_delay_and_the_loss_of_a_trace_to_the_nanosecond() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = [
        ("up.csv", TABLE),
        ("lost.csv", "t,loss\n0s,100%\n1h,\n"),
        (
            "link.toml",
            "up.trace = 'up.csv'\ndown.trace = 'lost.csv'\n",
        ),
    ];
    let lines = [
        "exec --up-trace up.csv --down-trace lost.csv",
        "exec --link link.toml",
    ];
    for line in lines {
        let mut command = with_files(folder.path(), &files)?;
        command.args(line.split(' '));
        command.args(["--json", "x.json", "--packet-log", "x.csv", "--"]);
        command.args(["ping", "-c", "3", "-i", "0.02", "-W", "1", "10.77.0.2"]);
        let ended = process::run(&mut command)?;
        has(&stdout(&ended), "100% packet loss")?;
        let summary = fs::read(folder.path().join("x.json")).context(stderr(&ended))?;
        let summary: Summary = serde_json::from_slice(&summary)?;
        ensure!(summary.up.delivered == 3, "{summary:?}");
        ensure!(summary.down.delivered == 0, "{summary:?}");
        let log = fs::read_to_string(folder.path().join("x.csv"))?;
        let mut delays = 0;
        for row in log.lines().filter(|row| row.contains(",up,")) {
            let columns: Vec<&str> = row.split(',').collect();
            if let [_, _, _, arrival, "delivered", _, due, ..] = columns[..] {
                let delay = due.parse::<u64>()? - arrival.parse::<u64>()?;
                ensure!(delay == 7_000_000, "{row}");
                delays += 1;
            }
        }
        ensure!(delays == 3, "{log}");
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_trace_of_opportunities_is_named_before_packets_pass() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = with_files(folder.path(), &[("cell.down", "0\n5\n5\n10\n")])?;
    command.args(["exec", "--down-trace", "cell.down,clear", "--", "true"]);
    let said = stderr(&process::succeeds(&mut command)?);
    has(&said, "down trace cell.down (10ms, then clear)")
}

/// The trace has 400 times in each second, closer together at first. In any second, a sender that offers more has that many packets due.
#[test_support::test(serial, Namespaces)]
fn every_second_has_as_many_packets_as_the_trace_has_times() -> Result<()> {
    const TIMES: u64 = 400;
    const SECOND: u64 = 1_000_000_000;
    let times: String = (1..=TIMES).map(|n| format!("{}\\n", n * n / 160)).collect();
    let link =
        format!("[up]\nqueue = '1000pkt'\ntrace = {{ file = 'cell.up', content = \"{times}\" }}\n");
    // Datagrams of 1,462 bytes are frames of 1,504, which one time of the trace serves. The queue covers two seconds.
    let script = "$farwire measure udp 10.77.0.2 -b 20M -l 1462 -t 4";
    let run = Run::of(&link, script)?;
    let mut due = Vec::new();
    for row in run.packet_log.lines() {
        let columns: Vec<&str> = row.split(',').collect();
        if let [_, "up", "1504", _, "delivered", _, due_ns, ..] = columns[..] {
            due.push(due_ns.parse::<u64>()?);
        }
    }
    due.sort_unstable();
    let (Some(first), Some(last)) = (due.first(), due.last()) else {
        anyhow::bail!("no packets: {}", run.said);
    };
    let begins = (1..).map(|second| first + second * SECOND);
    let mut seconds = 0;
    for begin in begins.take_while(|begin| begin + SECOND <= *last) {
        let within = begin..begin + SECOND;
        let count = due.iter().filter(|due| within.contains(*due)).count() as u64;
        ensure!(count.abs_diff(TIMES) <= 2, "{count} packets: {}", run.said);
        seconds += 1;
    }
    ensure!(seconds >= 2, "{seconds} seconds: {}", run.said);
    Ok(())
}

#[test_support::test]
fn a_wrong_trace_is_refused_with_its_file_and_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = [
        ("back.csv", "t,rate\n0s,1mbit\n2s,2mbit\n1s,3mbit\n"),
        ("cut.csv", "t,rate,delay\n0s,1mbit,5ms\n2s,2mb\n"),
        ("empty", ""),
        ("zeros.down", "0\n0\n0\n"),
        ("both.csv", "t,rate,delay,jitter,loss\n100,5,6,7,8\n"),
        ("link.toml", "delay = '5ms'\n[down]\ntrace = 'back.csv'\n"),
        ("other.toml", "trace = '../x.csv'\n"),
        ("heavy", "5\n10\n"),
        ("light", "0 20 0\n9 20\n12 20 0\n"),
        ("offsets", "100 1\n200 x\n"),
    ];
    for (line, words) in [
        (
            "--trace back.csv",
            "back.csv:4: 1s comes after 2s: put the lines in order of time",
        ),
        (
            "--up-trace cut.csv",
            "cut.csv:3: rate: `2mb` is not a rate: write a rate",
        ),
        (
            "--trace empty",
            "empty: the file is empty: a trace needs at least one line",
        ),
        (
            "--trace zeros.down",
            "zeros.down:3: all times are 0: the last time is the length of the trace",
        ),
        (
            "--trace both.csv",
            "both.csv:2: numbers without units may be farwire's columns or TheaterQ's",
        ),
        (
            "--trace heavy,light=light",
            "light:2: a train has at least one delivery",
        ),
        (
            "--up-trace heavy,light=light,offsets=offsets",
            "offsets:2: offset: `x` is not a number of milliseconds",
        ),
        (
            "--trace light",
            "light:1: this may be a light load of CellReplay",
        ),
        (
            "--trace heavy,offsets=offsets",
            "offsets: they belong to a light load: name its file too",
        ),
        ("--trace none.csv", "none.csv: cannot open"),
        ("--trace .", ".: a directory is no trace: name a file"),
        ("--link link.toml", "back.csv:4: 1s comes after 2s"),
        ("--link other.toml", "trace: "),
        ("--trace zeros.down,never", "never"),
    ] {
        let mut command = with_files(folder.path(), &files)?;
        let output = process::run(command.arg("link").args(line.split(' ')))?;
        process::ends_with(&output, 2, words)?;
    }
    Ok(())
}

/// A format whose files may have ten million lines.
struct LongFormat {
    name: &'static str,
    header: &'static str,
    /// Writes a line by its number from 0.
    line: fn(&mut dyn Write, u64) -> io::Result<()>,
    /// The commands that read the file `many`: one that describes it, and one that passes packets through it.
    commands: [&'static str; 2],
}

const LONG_FORMATS: [LongFormat; 4] = [
    LongFormat {
        name: "csv",
        header: "t,rate,delay\n",
        line: |file, n| writeln!(file, "{n}ms,{}mbit,{}us", 1 + n % 97, 1 + n % 1_009),
        commands: ["trace many --json -", "link --trace many"],
    },
    LongFormat {
        name: "mahimahi",
        header: "",
        line: |file, n| writeln!(file, "{}", n / 10),
        commands: ["trace many --json -", "link --trace many"],
    },
    LongFormat {
        name: "theaterq",
        header: "",
        line: |file, n| {
            writeln!(
                file,
                "1000,{},{}000000,{},100",
                n % 1_009,
                1 + n % 97,
                n % 5
            )
        },
        commands: ["trace many --json -", "link --trace many"],
    },
    LongFormat {
        name: "LeoReplayer's delays",
        header: "",
        line: |file, n| writeln!(file, "{}", 1 + n % 97),
        commands: [
            "trace times --delays many --json -",
            "link --trace times,delays=many",
        ],
    },
];

#[test_support::test(All)]
fn ten_million_lines_of_a_file_take_less_than_50_mb() -> Result<()> {
    const LINES: u64 = 10_000_000;
    const MOST_KIB: u64 = 50_000_000 / 1_024;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("times"), "1\n2\n")?;
    for format in LONG_FORMATS {
        let mut file = BufWriter::new(File::create(folder.path().join("many"))?);
        file.write_all(format.header.as_bytes())?;
        for n in 0..LINES {
            (format.line)(&mut file, n)?;
        }
        file.flush()?;
        drop(file);
        let mut outputs = Vec::new();
        for line in format.commands {
            let mut command = farwire();
            command.current_dir(folder.path()).args(line.split(' '));
            let (output, most) = with_peak(&mut command)?;
            let name = format.name;
            ensure!(output.status.success(), "{name}: {}", stderr(&output));
            ensure!((1..MOST_KIB).contains(&most), "{name}, {line}: {most} KiB");
            outputs.push(output);
        }
        let described: Value = serde_json::from_slice(&outputs[0].stdout)?;
        let lines = described["lines"].as_u64();
        ensure!(lines.is_some_and(|lines| lines >= LINES), "{described}");
    }
    Ok(())
}

/// Runs a command to its end, and returns its output and the most memory that it had at any time, in KiB.
fn with_peak(command: &mut Command) -> Result<(Output, u64)> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pid = child.id();
    let mut most = 0;
    while child.try_wait()?.is_none() {
        // A process that has ended meanwhile has no memory.
        most = most.max(peak_kib(pid).unwrap_or_default());
        thread::sleep(Duration::from_millis(10));
    }
    Ok((child.wait_with_output()?, most))
}

#[test_support::test]
fn traces_are_described_converted_cut_and_made_from_samples() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let drive = "t,rate,delay\n0s,12.032mbit,20ms\n1s,0bit,\n2s,6.016mbit,30ms\n4s,,\n";
    let files = [
        ("drive.csv", drive),
        ("samples.tsv", "when\tdown\n0\t5\n1\t0\n2\t7.5\n"),
        ("light", "0 20 0\n3000 40 0 1\n4000 99 0\n"),
        ("delays", "20\n40\n"),
    ];
    let run = |line: &str| -> Result<String> {
        let mut command = with_files(folder.path(), &files)?;
        let output = process::succeeds(command.arg("trace").args(line.split(' ')))?;
        Ok(stdout(&output))
    };
    let text = run("drive.csv")?;
    has(&text, "csv: 3 lines, 4 s\n")?;
    has(&text, "stalls: 1, longest 1 s, 1 s in total")?;
    let json: Value = serde_json::from_str(&run("drive.csv --json -")?)?;
    ensure!(json["lines"] == 3 && json["stalls"]["count"] == 1, "{json}");
    let down = run("drive.csv --only rate --to mahimahi")?;
    ensure!(down.lines().count() == 1_000 + 1_000, "{}", down.len());
    run("drive.csv --only rate --to mahimahi --out drive.down")?;
    has(&run("drive.down")?, "mahimahi: 2000 lines, 4 s\n")?;
    let loads: Value = serde_json::from_str(&run("drive.down --light light --json -")?)?;
    ensure!(loads["delay_ms"]["greatest"] == 40.0, "{loads}");
    let pair: Value = serde_json::from_str(&run("drive.down --delays delays --json -")?)?;
    ensure!(pair["delay_ms"]["greatest"] == 40.0, "{pair}");
    let delays = run("drive.down --delays delays --only delay --to csv")?;
    ensure!(
        delays == "t,delay\n0ms,20ms\n10ms,40ms\n20ms,\n",
        "{delays}"
    );
    let rates = run("drive.down --to csv --every 2s")?;
    // Both windows have the same mean, so one line states it.
    ensure!(rates == "t,rate\n0ms,6.016mbit\n4s,\n", "{rates}");
    let part = run("drive.csv --from 1s --until 3s --scale-rate 0.5 --to csv")?;
    ensure!(
        part == "t,rate,delay\n0ms,0bit,20ms\n1s,3.008mbit,30ms\n2s,,\n",
        "{part}"
    );
    let made = run("samples.tsv --from-samples down --every 500ms --to csv")?;
    ensure!(
        made == "t,rate\n0ms,5mbit\n500ms,0bit\n1s,7.5mbit\n1.5s,\n",
        "{made}"
    );
    let mut command = with_files(folder.path(), &files)?;
    let refused = process::run(command.args([
        "trace",
        "drive.csv",
        "--to",
        "mahimahi",
        "--out",
        "drive.csv",
    ]))?;
    process::ends_with(&refused, 2, "keep the rate alone with --only rate")?;
    let mut command = with_files(folder.path(), &files)?;
    let both = "trace drive.down --delays delays --to csv";
    let refused = process::run(command.args(both.split(' ')))?;
    process::ends_with(&refused, 2, "add --only delay, or leave --delays out")?;
    let kept = fs::read_to_string(folder.path().join("drive.csv"))?;
    ensure!(kept == drive, "{kept}");
    Ok(())
}
