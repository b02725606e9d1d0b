//! The resources that a process uses (proc(5)).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process;

/// The threads of a far end without a client.
const SERVICES: [&str; 7] = [
    "log",
    "http",
    "messages",
    "iperf3",
    "iperf3 udp",
    "capacity",
    "stamp",
];

/// A little longer than the interval in which the far end returns freed memory.
const TRIM_INTERVAL: Duration = Duration::from_secs(7);

/// Descriptors, threads and memory at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Number of open file descriptors.
    pub descriptors: usize,
    /// Number of threads.
    pub threads: usize,
    /// Resident memory in KiB (`VmRSS`).
    pub resident_kib: u64,
}

impl Usage {
    /// Reads the usage of the process `pid`.
    pub fn of(pid: u32) -> Result<Self> {
        let entries = |folder: &str| -> Result<usize> {
            let path = format!("/proc/{pid}/{folder}");
            Ok(fs::read_dir(&path).context(path)?.count())
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|text| text.split_whitespace().next());
        Ok(Self {
            descriptors: entries("fd")?,
            threads: entries("task")?,
            resident_kib: resident.context("VmRSS")?.parse()?,
        })
    }

    /// Reads the usage of the far end `pid` when all of its services have started, before the first client.
    pub fn of_idle_far_end(pid: u32) -> Result<Self> {
        process::wait_for("the far end's threads", || {
            let all = SERVICES.iter().all(|name| process::has_thread(pid, name));
            Ok(all.then_some(()))
        })?;
        Self::of(pid)
    }

    /// Waits until the process has no more descriptors and threads than this, and returns its usage.
    pub fn await_return(&self, pid: u32) -> Result<Self> {
        let mut now = Self::of(pid)?;
        let returned = process::wait_for("descriptors and threads to be given back", || {
            now = Self::of(pid)?;
            let back = now.descriptors <= self.descriptors && now.threads <= self.threads;
            Ok(back.then_some(now))
        });
        returned.with_context(|| format!("at first {self:?}, now {now:?}"))
    }

    /// Returns the least memory in KiB that the far end `pid` uses from when it has returned to this usage until it
    /// must have returned freed memory. A single reading could be just before that, but leaked memory is in every
    /// reading.
    pub fn await_tidied(&self, pid: u32) -> Result<u64> {
        let mut least = self.await_return(pid)?.resident_kib;
        let begun = Instant::now();
        while begun.elapsed() < TRIM_INTERVAL {
            thread::sleep(Duration::from_millis(200));
            least = least.min(Self::of(pid)?.resident_kib);
        }
        Ok(least)
    }
}

/// Returns the resident memory that belongs to the process `pid` alone, in KiB (`RssAnon`): heap and stacks, but not
/// the rings that it shares with the kernel.
pub fn heap_kib(pid: u32) -> Result<u64> {
    memory_kib(pid, "RssAnon:")
}

/// Returns the most resident memory that the process `pid` has had so far, in KiB (`VmHWM`), its program and shared
/// memory included.
pub fn peak_kib(pid: u32) -> Result<u64> {
    memory_kib(pid, "VmHWM:")
}

fn memory_kib(pid: u32, key: &'static str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|text| text.split_whitespace().next());
    Ok(number.context(key)?.parse()?)
}
