//! Programs in namespaces, and their processor time.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use netio::kill_on_drop::KillOnDrop;
use netio::netns::NetNs;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;

/// The farwire that was built for this bench.
pub(crate) const FARWIRE: &str = env!("CARGO_BIN_EXE_farwire");

/// A program that runs until it is dropped.
pub(crate) struct Running(KillOnDrop);

impl Running {
    /// Starts a program in a namespace, without streams.
    pub(crate) fn start(ns: &NetNs, command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let running = KillOnDrop::spawn_in(ns, command);
        Ok(Self(running.with_context(|| name)?))
    }

    pub(crate) fn pid(&mut self) -> u32 {
        self.0.streams().id()
    }

    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.streams().try_wait()?.is_some())
    }

    /// Asks the program to end, and waits for its end.
    pub(crate) fn end(mut self) -> Result<()> {
        self.terminate();
        self.0.wait()?;
        Ok(())
    }

    fn terminate(&mut self) {
        let child = self.0.streams();
        if let (Ok(None), Ok(pid)) = (child.try_wait(), i32::try_from(child.id())) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.terminate();
        for _ in 0..50 {
            if !matches!(self.0.streams().try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // iperf 2 would wait for its last client, so it is killed.
    }
}

/// Makes a command from `line`, split at spaces.
pub(crate) fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs `command` in a namespace until it ends, and returns its output.
pub(crate) fn output(ns: &NetNs, mut command: Command) -> Result<String> {
    let output = ns.run(|| command.output())??;
    // iperf3 prints errors as JSON on standard output.
    let said = match output.stderr.is_empty() {
        true => &output.stdout,
        false => &output.stderr,
    };
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(said)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until something in the namespace listens on TCP or has a UDP socket.
pub(crate) fn await_listener(ns: &NetNs, what: &str) -> Result<()> {
    let listens = |table: &str, state: &str| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines()
            .any(|socket| socket.split_whitespace().nth(3) == Some(state))
    };
    ns.run(|| {
        for _ in 0..500 {
            // proc(5): 0A is a listening TCP socket, 07 an unconnected UDP socket.
            if ["tcp", "tcp6"].iter().any(|table| listens(table, "0A"))
                || ["udp", "udp6"].iter().any(|table| listens(table, "07"))
            {
                // Some peers bind before they listen.
                thread::sleep(Duration::from_millis(100));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("{what} did not listen")
    })?
}

/// Waits until the process `pid` has a thread of this name, from when on it forwards.
pub(crate) fn await_thread(pid: u32, name: &str) -> Result<()> {
    for _ in 0..500 {
        if threads(pid).iter().any(|(thread, _)| thread == name) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("process {pid} started no thread {name}")
}

/// Returns name and processor seconds of each thread of a running process (proc(5), stat and schedstat).
pub(crate) fn threads(pid: u32) -> Vec<(String, f64)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let thread = |task: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        let nanos: f64 = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
        Some((read("comm")?.trim().to_owned(), nanos / 1e9))
    };
    tasks.flatten().filter_map(thread).collect()
}

/// Returns the processor seconds of all threads of a running process, or nothing when it has ended.
pub(crate) fn processor_seconds(pid: u32) -> Option<f64> {
    let threads = threads(pid);
    (!threads.is_empty()).then(|| threads.iter().map(|(_, seconds)| seconds).sum())
}

/// Returns the memory of a running process under this key of its status (proc(5)) in MB, or nothing when it has ended: `VmRSS` is what is
/// resident, `VmHWM` the most that was.
pub(crate) fn memory_mb(pid: u32, key: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, size) = lines.find(|(of, _)| *of == key)?;
    let kib: f64 = size.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

/// Returns the processor seconds of all children that have been waited for.
pub(crate) fn of_children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let both = usage.user_time() + usage.system_time();
    Ok(both.num_microseconds() as f64 / 1e6)
}

/// Returns the seconds for which all processors of the machine together were busy since it started (proc(5), /proc/stat: all fields
/// except idle, iowait and steal).
pub(crate) fn of_machine() -> Result<f64> {
    const TICKS_A_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let mut fields = Vec::new();
    for field in line.split_whitespace().skip(1) {
        fields.push(field.parse::<f64>()?);
    }
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at));
    Ok(busy.sum::<f64>() / TICKS_A_SECOND)
}
