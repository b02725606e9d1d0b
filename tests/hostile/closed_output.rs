//! Output that nobody reads, or that is full: it changes the end of no command, and delays nothing.

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use test_support::process::{self, farwire, ip, root, succeeds, wait_for};
use test_support::scenario::{PING, PLAIN, Small};

/// The exit code of a Rust program that panics.
const PANICKED: i32 = 101;

/// The destination of output.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sink {
    /// A pipe whose reader has closed it.
    Closed,
    /// A device without room.
    Full,
}

const SINKS: [Sink; 2] = [Sink::Closed, Sink::Full];

impl Sink {
    fn open(self) -> Result<Stdio> {
        Ok(match self {
            Self::Closed => std::io::pipe()?.1.into(),
            Self::Full => File::options().write(true).open("/dev/full")?.into(),
        })
    }
}

/// Runs `command` without input until it ends.
fn end_of(command: &mut Command) -> Result<ExitStatus> {
    let mut child = command.stdin(Stdio::null()).spawn()?;
    let ended = process::end_of(&mut child);
    if ended.is_err() {
        let _ = child.kill();
    }
    ended.with_context(|| format!("{command:?}"))
}

/// Every command that needs nothing from the machine, and commands that end with an error.
const COMMANDS: [&str; 26] = [
    "--help",
    "--version",
    "run --help",
    "nonsense",
    "exec --delya 1ms",
    "run missing.toml",
    "report RECORD",
    "report RECORD --format html",
    "report RECORD --format csv",
    "report RECORD --format csv --rows runs",
    "report RECORD --format parquet",
    "report RECORD --format json",
    "report missing",
    "compare RECORD RECORD",
    "compare RECORD RECORD --json -",
    "merge RECORD --out /dev/null/nowhere",
    "link --delay 20ms --loss 1%",
    "link --delay 20ms --as-netem",
    "theory --rate 10mbit",
    "profiles",
    "profiles lte",
    "doctor",
    "doctor --json -",
    "schema",
    "completions bash",
    "man",
];

#[test_support::test]
fn no_command_panics_where_its_output_cannot_be_written() -> Result<()> {
    let record = root().join("tests/fixtures/records/small.jsonl");
    let record = record.display().to_string();
    for line in COMMANDS {
        let command = || {
            let mut command = farwire();
            command.args(line.split(' ').map(|word| word.replace("RECORD", &record)));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let usual = end_of(&mut command())?;
        for sink in SINKS {
            let status = end_of(command().stderr(sink.open()?))?;
            ensure!(
                status == usual,
                "{line}, standard error {sink:?}: {status}, usually {usual}"
            );
            let status = end_of(command().stdout(sink.open()?))?;
            let is_panic = status.code() == Some(PANICKED) || status.signal().is_some();
            ensure!(!is_panic, "{line}, standard output {sink:?}: {status}");
            // The reader stops because it has read enough.
            ensure!(
                sink != Sink::Closed || status == usual,
                "{line}, standard output {sink:?}: {status}, usually {usual}"
            );
            let status = end_of(command().stdout(sink.open()?).stderr(sink.open()?))?;
            ensure!(status.code() != Some(PANICKED), "{line}, both: {status}");
        }
    }
    Ok(())
}

#[test_support::test(All, Namespaces)]
fn exec_and_run_end_as_they_would_where_nobody_reads_what_they_say() -> Result<()> {
    let small = Small::of(&[PING, PLAIN])?;
    for sink in SINKS {
        let mut exec = farwire();
        exec.args(["exec", "--delay", "1ms", "--", "sh", "-c", "exit 7"]);
        let status = end_of(exec.stdout(Stdio::null()).stderr(sink.open()?))?;
        ensure!(status.code() == Some(7), "exec, {sink:?}: {status}");
        let mut missing = farwire();
        missing.args(["exec", "--delay", "1ms", "--", "no-such-command"]);
        let status = end_of(missing.stdout(Stdio::null()).stderr(sink.open()?))?;
        ensure!(status.code() == Some(127), "exec, {sink:?}: {status}");
        let mut run = small.command();
        run.arg("--overwrite").args(["--json", "-"]);
        let status = end_of(run.stdout(Stdio::null()).stderr(sink.open()?))?;
        ensure!(status.success(), "run, {sink:?}: {status}");
        ensure!(small.is_finished()?);
    }
    Ok(())
}

/// A command whose standard error was read up to some words. It is killed when dropped.
struct Heard {
    child: Child,
    said: String,
    lines: std::io::Lines<BufReader<PipeReader>>,
}

impl Heard {
    fn until(words: &str, command: &mut Command) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let child = command.stderr(writer).spawn();
        // The command must have the only writing end of the pipe.
        command.stderr(Stdio::null());
        let mut heard = Self {
            child: child?,
            said: String::new(),
            lines: BufReader::new(reader).lines(),
        };
        while !heard.said.contains(words) {
            let line = heard.lines.next().context("it ended")??;
            heard.said += &(line + "\n");
        }
        Ok(heard)
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test_support::test(Namespaces)]
fn a_lease_ends_at_its_time_where_nobody_reads_standard_error() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let address = format!("unix:{}", folder.path().join("socket").display());
    let mut exec = farwire();
    exec.args(["exec", "--delay", "20ms", "--listen", &address, "--", "cat"]);
    exec.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut heard = Heard::until(&address, &mut exec)?;
    let (nobody, _) = std::io::pipe()?;
    heard.lines = BufReader::new(nobody).lines();
    lease_several_times(&address)?;
    drop(heard.child.stdin.take());
    let status = process::end_of(&mut heard.child)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Leases the link at `address`, which has a delay of 20 ms, and waits for the end of the lease, several times.
fn lease_several_times(address: &str) -> Result<()> {
    for round in 0..3 {
        let mut set = farwire();
        set.args(["set", "link", "--at", address, "--delay", "50ms"]);
        succeeds(set.args(["--for", "200ms"])).with_context(|| format!("round {round}"))?;
        wait_for("the lease to end", || {
            let mut links = farwire();
            links.args(["links", "--at", address, "--json", "-"]);
            let links: Value = process::json(&mut links)?;
            let link = &links["links"][0];
            let is_back = link["lease"].is_null() && link["conditions"]["delay"] == "20ms";
            Ok(is_back.then_some(()))
        })?;
    }
    Ok(())
}

#[test_support::test(Namespaces)]
fn a_lease_ends_at_its_time_beside_a_full_pipe_that_nobody_reads() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let address = format!("unix:{}", socket.display());
    let (_unread, full) = full_pipe()?;
    let mut exec = farwire();
    exec.args(["exec", "--delay", "20ms", "--listen", &address, "--", "cat"]);
    exec.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut exec = Ending(exec.stderr(full).spawn()?);
    wait_for("it to listen", || {
        Ok(UnixStream::connect(&socket).is_ok().then_some(()))
    })?;
    lease_several_times(&address)?;
    drop(exec.0.stdin.take());
    let status = process::end_of(&mut exec.0)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test_support::test(Namespaces)]
fn exec_and_run_end_as_they_would_beside_a_full_pipe_that_nobody_reads() -> Result<()> {
    let (_unread, full) = full_pipe()?;
    let mut exec = farwire();
    exec.args(["exec", "--delay", "1ms", "--", "sh", "-c", "exit 7"]);
    let status = end_of(exec.stdout(Stdio::null()).stderr(full.try_clone()?))?;
    ensure!(status.code() == Some(7), "exec: {status}");
    let small = Small::of(&[PING, PLAIN])?;
    let mut run = small.command();
    let status = end_of(run.stdout(Stdio::null()).stderr(full))?;
    ensure!(status.success(), "run: {status}");
    ensure!(small.is_finished()?);
    Ok(())
}

/// A command that is killed when dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_box_goes_on_and_ends_in_order_where_nobody_reads_standard_error() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut command = farwire();
    command.args(["emulate", CLIENT_PORT, netio::bed::SERVER_PORT]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let heard = bed
        .emulator()
        .run(|| Heard::until("until a signal", &mut command))?;
    let mut heard = heard?;
    let (nobody, _) = std::io::pipe()?;
    heard.lines = BufReader::new(nobody).lines();
    // The box prints each change of the carrier.
    for state in ["down", "up", "down", "up"] {
        ip(
            bed.client(),
            &format!("link set {} {state}", netio::bed::WAN),
        )?;
    }
    kill(Pid::from_raw(heard.child.id().try_into()?), Signal::SIGTERM)?;
    let status = process::end_of(&mut heard.child)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test_support::test]
fn a_full_pipe_that_nobody_reads_does_not_keep_a_command_from_ending() -> Result<()> {
    let (_unread, full) = full_pipe()?;
    let mut command = farwire();
    command.args(["report", "missing"]).stdout(Stdio::null());
    let status = end_of(command.stderr(full))?;
    ensure!(status.code() == Some(2), "{status}");
    Ok(())
}

/// Returns both ends of a pipe that has no room left.
fn full_pipe() -> Result<(PipeReader, PipeWriter)> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let (reader, mut writer) = std::io::pipe()?;
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok((reader, writer))
}
