//! `farwire emulate` as a child process between the two ports of a test bed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, CLIENT_PORT, SERVER_PORT};
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use super::process;

/// What `--json` writes, as far as it is looked at here.
#[derive(Debug, Deserialize)]
pub(crate) struct Summary {
    pub(crate) up: Direction,
    pub(crate) down: Direction,
    #[serde(default)]
    pub(crate) shares: Vec<Share>,
    #[serde(default)]
    pub(crate) delays: Vec<Delays>,
    pub(crate) departure_error: Departures,
    #[serde(default)]
    pub(crate) interfaces: Vec<Happened>,
    pub(crate) capture: Option<Captured>,
}

/// How many packets a capture kept at each end.
#[derive(Debug, Deserialize)]
pub(crate) struct Captured {
    pub(crate) a: u64,
    pub(crate) b: u64,
}

/// What happened to an interface.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) name: String,
    pub(crate) carrier_losses: u64,
    pub(crate) mtu_changes: u64,
    pub(crate) gone: u64,
    pub(crate) back: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Share {
    pub(crate) stage: String,
    pub(crate) packets: u64,
    pub(crate) count: u64,
    pub(crate) asked_percent: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Delays {
    pub(crate) stage: String,
    pub(crate) packets: u64,
    pub(crate) mean_ns: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Direction {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    #[serde(default)]
    pub(crate) copies: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) marked: u64,
    #[serde(default)]
    pub(crate) edited: u64,
    #[serde(default)]
    pub(crate) replies: u64,
    #[serde(default)]
    pub(crate) classes: Vec<Class>,
    pub(crate) held_at_end: u64,
    pub(crate) link_control: u64,
    pub(crate) emulator_lost: Vec<OwnLoss>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) packets: u64,
    pub(crate) delivered: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OwnLoss {
    pub(crate) cause: String,
    pub(crate) count: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Departures {
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) over_budget: u64,
    pub(crate) budget_ns: u64,
}

impl Direction {
    /// Packets that random loss dropped.
    pub(crate) fn lost(&self) -> u64 {
        self.dropped.get("loss").copied().unwrap_or(0)
    }

    /// Packets that a full queue dropped.
    pub(crate) fn queue_full(&self) -> u64 {
        self.dropped.get("queue_full").copied().unwrap_or(0)
    }

    /// Packets that the emulator itself lost.
    pub(crate) fn own_losses(&self) -> u64 {
        self.emulator_lost.iter().map(|loss| loss.count).sum()
    }
}

/// A running box; killed when dropped.
pub(crate) struct WanBox {
    child: Child,
    printed: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    json: NamedTempFile,
}

impl WanBox {
    /// Starts a box between the ports of `bed` and waits until it forwards; `link` holds words of its command line.
    pub(crate) fn start(bed: &Bed, link: &str) -> Result<Self> {
        Self::start_as(process::farwire(), bed, link)
    }

    /// As [`WanBox::start`], with `command` as the program under test.
    pub(crate) fn start_as(mut command: Command, bed: &Bed, link: &str) -> Result<Self> {
        command.args(["emulate", CLIENT_PORT, SERVER_PORT]);
        command.args(link.split_whitespace());
        Self::launch(command, bed.emulator())
    }

    /// Starts a box of the links in `file` in `ns`, and waits until it forwards.
    pub(crate) fn start_links(ns: &NetNs, file: &Path) -> Result<Self> {
        Self::start_links_with(ns, file, &[])
    }

    /// The same with these options.
    pub(crate) fn start_links_with(ns: &NetNs, file: &Path, options: &[&str]) -> Result<Self> {
        let mut command = process::farwire();
        command.args(["emulate", "--links"]).arg(file).args(options);
        Self::launch(command, ns)
    }

    fn launch(mut command: Command, ns: &NetNs) -> Result<Self> {
        let json = NamedTempFile::new()?;
        command.arg("--json").arg(json.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let child = ns.run(|| command.spawn())?;
        let mut child = child.context("starting the box")?;
        let stderr = child.stderr.take().context("a pipe was asked for")?;
        let printed = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&printed);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut printed = shared.lock().unwrap_or_else(PoisonError::into_inner);
                *printed += &(line + "\n");
            }
        });
        let mut started = Self {
            child,
            printed,
            reader,
            json,
        };
        started.await_line("until a signal")?;
        Ok(started)
    }

    /// Waits until the box has printed `text`.
    pub(crate) fn await_line(&mut self, text: &str) -> Result<()> {
        process::wait_for(&format!("\"{text}\" of the box"), || {
            let ended = self.child.try_wait()?;
            let printed = self.printed();
            if printed.contains(text) {
                return Ok(Some(()));
            }
            ensure!(ended.is_none(), "the box ended: {printed}");
            Ok(None)
        })
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that sees to its interfaces when it has ended.
    pub(crate) fn holder(&self) -> Result<u32> {
        let of_box = format!("PPid:\t{}\n", self.child.id());
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let Some(pid) = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok())
            else {
                continue;
            };
            // A process may end while it is looked at.
            let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
            if read("status").contains(&of_box) && read("cmdline").contains("box-holder") {
                return Ok(pid);
            }
        }
        anyhow::bail!("the box has no holder")
    }

    /// Sends the box a signal and waits for its end; what it printed.
    pub(crate) fn end_by(&mut self, signal: Signal) -> Result<(ExitStatus, String)> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        let status = process::end_of(&mut self.child)?;
        process::wait_for("the end of what the box prints", || {
            Ok(self.reader.is_finished().then_some(()))
        })?;
        Ok((status, self.printed()))
    }

    /// Ends the box in order; what it counted.
    pub(crate) fn stop(self) -> Result<Summary> {
        self.stop_and_read()
    }

    /// As [`WanBox::stop`], for many links: what each counted.
    pub(crate) fn stop_links(self) -> Result<Vec<Summary>> {
        #[derive(Deserialize)]
        struct All {
            links: Vec<Summary>,
        }
        let All { links } = self.stop_and_read()?;
        Ok(links)
    }

    fn stop_and_read<T: DeserializeOwned>(mut self) -> Result<T> {
        let (status, printed) = self.end_by(Signal::SIGTERM)?;
        ensure!(status.success(), "the box ended with {status}: {printed}");
        let text = std::fs::read_to_string(self.json.path())?;
        serde_json::from_str(&text).with_context(|| format!("{text}{printed}"))
    }

    fn printed(&self) -> String {
        let printed = self.printed.lock();
        printed.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for WanBox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
