//! Effects of hosts that must not count as the network: a starved sender, and a server that drops datagrams in its full socket.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use netio::kill_on_drop::KillOnDrop;
use record::summary::Summary;
use record::{Direction, Figure, Measurement, Metric, Record, Run, RunOutcome};

use test_support::process::{farwire, run, stderr};

/// A paced sender beside busy processes.
const SCENARIO: &str = include_str!("starved.toml");
const OUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/truth-starved");
/// Parts of the notes with which `exec` and `measure` mark the results of a starved host.
const MARKS: [&str; 3] = ["starved of CPU", "fell short of its schedule", "ms late"];
/// Each command is run this many times.
const TIMES: usize = 3;
/// A receive buffer of a few datagrams.
const WINDOW: &str = "4KiB";

/// Returns whether every run beside one busy process for each processor is marked, by `run` as INVALID and by `exec` in a note.
///
/// The busy processes have the priority of this program and of the instruments that it starts.
///
/// # Errors
/// A program does not start, or leaves no record.
pub(crate) fn starved_senders_are_marked() -> Result<bool> {
    let _busy = busy_processes()?;
    let directory = tempfile::tempdir()?;
    let scenario = directory.path().join("starved.toml");
    fs::write(&scenario, SCENARIO)?;
    let mut command = farwire();
    command.arg("run").arg(&scenario);
    command.args(["--quiet", "--overwrite", "--out", OUT]);
    let ended = run(command.stdout(Stdio::null()))?;
    let record = Record::read(OUT.as_ref()).with_context(|| stderr(&ended))?;
    let mut is_good = true;
    let mut tell = |what: &str, marked: usize, all: usize| {
        let verdict = if all > 0 && marked == all {
            ""
        } else {
            "  RED"
        };
        is_good &= verdict.is_empty();
        println!("beside busy processes, {what}: {marked} of {all} runs are marked{verdict}");
    };
    for case in &record.plan().cases {
        let runs = || record.runs.iter().filter(|run| run.case == case.name);
        let is_invalid = |run: &&Run| matches!(run.outcome, RunOutcome::Invalid { .. });
        tell(
            &case.name,
            runs().filter(is_invalid).count(),
            runs().count(),
        );
    }
    let mut marked = 0;
    for _ in 0..TIMES {
        let mut command = farwire();
        command.args("exec --delay=5ms -- farwire measure udp 10.77.0.2 -b 200M -t 2".split(' '));
        let output = run(as_farwire(&mut command))?;
        ensure!(output.status.success(), "{}", stderr(&output));
        marked += usize::from(MARKS.iter().any(|mark| stderr(&output).contains(mark)));
    }
    tell("exec", marked, TIMES);
    Ok(is_good)
}

/// Starts processes that only compute, one for each processor, until they are dropped.
fn busy_processes() -> Result<Vec<KillOnDrop>> {
    let processors = thread::available_parallelism()?.get();
    let busy = || KillOnDrop::spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
    (0..processors).map(|_| Ok(busy()?)).collect()
}

/// Returns whether the intervals of loss and goodput contain the true values of the link, which lost nothing, while an iperf3 server
/// drops datagrams in its full socket.
///
/// # Errors
/// A program does not start, or fails.
pub(crate) fn full_sockets_are_no_loss_of_the_link() -> Result<bool> {
    let mut is_good = true;
    for (client, tool) in [("farwire", ""), ("iperf3", "--tool iperf3")] {
        let (mut dropped, mut covered) = (0, 0);
        for _ in 0..TIMES {
            let measured = into_full_socket(tool)?;
            let lost = up(&measured, Metric::LostPackets).map(|figure| figure.value);
            dropped += usize::from(lost > Some(0.0));
            covered += usize::from(contains_all_that_was_sent(&measured));
        }
        // A run without a full socket tests nothing.
        let verdict = if covered == TIMES && dropped > 0 {
            ""
        } else {
            "  RED"
        };
        is_good &= verdict.is_empty();
        println!(
            "an iperf3 server with a full socket, from {client}: {dropped} of {TIMES} runs had drops, the intervals of {covered} contain a \
             loss of 0 and the rate that was sent{verdict}"
        );
    }
    Ok(is_good)
}

/// Measures with a client that sends faster than an iperf3 server with a small buffer receives, over a link that loses nothing.
fn into_full_socket(tool: &str) -> Result<Measurement> {
    let directory = tempfile::tempdir()?;
    let [link, measured] = ["link.json", "measured.json"].map(|name| directory.path().join(name));
    let mut command = farwire();
    command.args(["exec", "--delay=5ms", "--far", "iperf3 -s -1", "--json"]);
    command
        .arg(&link)
        .args(["--", "farwire", "measure", "udp", "10.77.0.2"]);
    command.args([
        "-b", "300M", "-l", "1400", "-t", "2", "-w", WINDOW, "--quiet",
    ]);
    command
        .args(tool.split_whitespace())
        .arg("--json")
        .arg(&measured);
    let output = run(as_farwire(&mut command))?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let link: Summary = serde_json::from_slice(&fs::read(&link)?)?;
    ensure!(
        link.up.dropped_all() == 0,
        "the link dropped something: {link}"
    );
    Ok(serde_json::from_slice(&fs::read(&measured)?)?)
}

/// Returns whether the intervals of loss and goodput allow that nothing was lost.
fn contains_all_that_was_sent(measured: &Measurement) -> bool {
    let contains = |metric, truth: f64| {
        let figure = up(measured, metric);
        // A goodput without loss is exact, and has no interval from a tool.
        let interval = figure.map(|own| own.interval.unwrap_or([own.value; 2]));
        interval.is_some_and(|[low, high]| low <= truth * 1.001 && truth * 0.999 <= high)
    };
    let sent = up(measured, Metric::SentRateBitPerS).map(|figure| figure.value);
    contains(Metric::LostPercent, 0.0)
        && sent.is_some_and(|sent| contains(Metric::GoodputBitPerS, sent))
}

/// Finds the figure of all streams up together.
fn up(measured: &Measurement, metric: Metric) -> Option<&Figure> {
    let wanted = (metric, Some(Direction::Up), None);
    let mut figures = measured.figures.iter();
    figures.find(|one| (one.metric, one.direction, one.stream) == wanted)
}

/// Makes the command find the program under test as `farwire`.
fn as_farwire(command: &mut Command) -> &mut Command {
    let program = std::path::Path::new(test_support::process::program());
    let own = program.parent().unwrap_or(program).display().to_string();
    let others = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{own}:{others}"))
}
