//! Runs programs to their end in bounded time, and waits for conditions.

use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use netio::netns::NetNs;
use serde::de::DeserializeOwned;

/// Time after which anything counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Returns the root of the checkout.
pub fn root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("this crate is in crates/ of the checkout")
}

/// Returns the path at which Cargo has built the program under test; a test is in `deps` beside it.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let test = std::env::current_exe().expect("a test has a path");
        let profile = test
            .ancestors()
            .nth(2)
            .expect("it is in target/PROFILE/deps");
        let program = profile.join("farwire");
        program.to_str().expect("a path of UTF-8").to_owned()
    });
    &PROGRAM
}

/// Returns the program under test.
pub fn farwire() -> Command {
    Command::new(program())
}

/// Returns the program under test with a resource limit in the form of prlimit(1).
pub fn limited(limit: &str) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(limit).arg(program());
    command
}

/// Restores the default actions of SIGHUP and SIGINT for this process and those that it starts. Under nohup(1), and in
/// the background of a script, a program starts with them ignored and keeps it so. This program executes itself again
/// for that.
pub fn take_usual_signals() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.context("no signals")?.trim(), 16)?;
    // SIGHUP is 1 and SIGINT 2, which are the two lowest bits.
    if ignored & 0b11 == 0 {
        return Ok(());
    }
    let mut anew = Command::new("env");
    anew.arg("--default-signal=HUP,INT")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1));
    Err(anew.exec()).context("env")
}

/// Returns the path at which `make test-tools` or `make format-tools` builds the program `name`.
pub fn peer(name: &str) -> PathBuf {
    root().join("target/peers/bin").join(name)
}

/// Returns the path at which `make soak-tools` stores this tool.
pub fn soak_tool(path: &str) -> PathBuf {
    root().join("target/soak-tools").join(path)
}

/// Returns the path at which `make format-tools` installs this tool.
pub fn format_tool(path: &str) -> PathBuf {
    root().join("target/format-tools").join(path)
}

/// Returns the path at which `make test-tools` installs this tool for the Python package.
pub fn python_tool(path: &str) -> PathBuf {
    root().join("target/python-tools").join(path)
}

/// Runs `command` to its end, without input, and collects its output.
pub fn run(command: &mut Command) -> Result<Output> {
    run_with(command, Stdio::null())
}

/// Runs `command` with this input.
pub fn run_with(command: &mut Command, input: Stdio) -> Result<Output> {
    run_within(command, input, PATIENCE)
}

/// Runs `command`, which takes this long by itself.
pub fn run_for(command: &mut Command, takes: Duration) -> Result<Output> {
    run_within(command, Stdio::null(), takes + PATIENCE)
}

fn run_within(command: &mut Command, input: Stdio, timeout: Duration) -> Result<Output> {
    let what = format!("{command:?}");
    let mut child = command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| what.clone())?;
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let ended = wait_within(timeout, "the program to end", || Ok(child.try_wait()?));
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let (stdout, stderr) = (collect(stdout), collect(stderr));
    let status = ended.with_context(|| {
        format!(
            "{what}\n{}{}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        )
    })?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// Runs `command` in the namespace `ns`.
pub fn run_in(ns: &NetNs, command: &mut Command) -> Result<Output> {
    ns.run(|| run(command))?
}

/// Runs `command`, which must succeed.
pub fn succeeds(command: &mut Command) -> Result<Output> {
    succeeded(run(command)?)
}

/// Runs `command` in the namespace `ns`; it must succeed.
pub fn succeeds_in(ns: &NetNs, command: &mut Command) -> Result<Output> {
    succeeded(run_in(ns, command)?)
}

/// Returns the JSON that a program prints, which must succeed.
pub fn json<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    Ok(serde_json::from_slice(&succeeds(command)?.stdout)?)
}

/// Fails unless the program succeeded.
pub fn succeeded(output: Output) -> Result<Output> {
    let (status, out, err) = (output.status, stdout(&output), stderr(&output));
    ensure!(status.success(), "{status}: {out}{err}");
    Ok(output)
}

/// Returns the standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless `text` contains these words.
pub fn has(text: &str, words: impl AsRef<str>) -> Result<()> {
    let words = words.as_ref();
    ensure!(text.contains(words), "`{words}` is not in: {text}");
    Ok(())
}

/// Fails unless a program ended with `code` and printed these words to standard error, all of which is returned.
pub fn ends_with(output: &Output, code: i32, words: impl AsRef<str>) -> Result<String> {
    let said = stderr(output);
    ensure!(
        output.status.code() == Some(code),
        "{}: {said}",
        output.status
    );
    has(&said, words)?;
    Ok(said)
}

/// Runs ip(8) in `ns` with the words of `line`; it must succeed.
pub fn ip(ns: &NetNs, line: &str) -> Result<String> {
    let output = succeeds_in(ns, Command::new("ip").args(line.split_whitespace()))
        .with_context(|| format!("ip {line}"))?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits for the end of `child`, at most for [`PATIENCE`].
pub fn end_of(child: &mut Child) -> Result<ExitStatus> {
    wait_for("the program to end", || Ok(child.try_wait()?))
}

/// Calls `call` again for as long as it is interrupted. The kernel interrupts calls of sockets that have a time-out, without any signal
/// handler, when a stopped process or a suspended machine continues (signal(7)).
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            ended => return ended,
        }
    }
}

/// Evaluates `condition` repeatedly until it returns a value: every 2 ms at first, later at twentieths of the time so far, at most 50 ms
/// apart, because a condition may ask a browser or read a long list.
pub fn wait_for<T>(what: &str, condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_within(PATIENCE, what, condition)
}

fn wait_within<T>(
    timeout: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    let [shortest, longest] = [2, 50].map(Duration::from_millis);
    loop {
        if let Some(found) = condition()? {
            return Ok(found);
        }
        let waited = begun.elapsed();
        if waited > timeout {
            bail!("waited {timeout:?} in vain for {what}");
        }
        std::thread::sleep((waited / 20).clamp(shortest, longest));
    }
}

/// Returns whether the process `pid` has a thread of this name.
pub fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.into_iter().any(|comm| comm.trim_end() == name)
}

fn drain(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // After an error, the bytes that could be read are returned.
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn collect(reader: JoinHandle<Vec<u8>>) -> Vec<u8> {
    reader.join().unwrap_or_default()
}
