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
use netio::offloads::Offloads;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use crate::process;

/// The part of the output of `--json` that tests use.
#[derive(Debug, Deserialize)]
pub struct Summary {
    pub up: Direction,
    pub down: Direction,
    #[serde(default)]
    pub shares: Vec<Share>,
    #[serde(default)]
    pub delays: Vec<Delays>,
    pub departure_error: Departures,
    pub ring_bytes: u64,
    #[serde(default)]
    pub interfaces: Vec<Happened>,
    pub packet_log: Option<Logged>,
    pub capture: Option<Captured>,
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Numbers of lines of a packet log.
#[derive(Debug, Deserialize)]
pub struct Logged {
    pub lines: u64,
    /// Lines that could not be written.
    #[serde(default)]
    pub not_kept: u64,
}

/// Number of packets that a capture kept at each end.
#[derive(Debug, Deserialize)]
pub struct Captured {
    pub a: u64,
    pub b: u64,
}

/// Events on an interface.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Happened {
    pub name: String,
    pub carrier_losses: u64,
    pub mtu_changes: u64,
    pub gone: u64,
    pub back: u64,
}

#[derive(Debug, Deserialize)]
pub struct Share {
    pub stage: String,
    pub packets: u64,
    pub count: u64,
    pub asked_percent: f64,
}

#[derive(Debug, Deserialize)]
pub struct Delays {
    pub stage: String,
    pub packets: u64,
    pub mean_ns: u64,
}

#[derive(Debug, Deserialize)]
pub struct Direction {
    pub packets: u64,
    pub bytes: u64,
    pub delivered: u64,
    pub delivered_bytes: u64,
    #[serde(default)]
    pub copies: u64,
    pub dropped: BTreeMap<String, u64>,
    #[serde(default)]
    pub marked: u64,
    #[serde(default)]
    pub edited: u64,
    #[serde(default)]
    pub replies: u64,
    #[serde(default)]
    pub rules: Vec<Rule>,
    pub held_at_end: u64,
    pub link_control: u64,
    pub emulator_lost: Vec<OwnLoss>,
}

#[derive(Debug, Deserialize)]
pub struct Rule {
    pub name: String,
    pub packets: u64,
    pub delivered: u64,
    pub dropped: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub struct OwnLoss {
    pub cause: String,
    pub count: u64,
}

#[derive(Debug, Deserialize)]
pub struct Departures {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    pub over_budget: u64,
    pub budget_ns: u64,
}

impl Direction {
    /// Returns the number of packets that random loss dropped.
    pub fn lost(&self) -> u64 {
        self.dropped.get("loss").copied().unwrap_or(0)
    }

    /// Returns the number of packets that a full queue dropped.
    pub fn queue_full(&self) -> u64 {
        self.dropped.get("queue_full").copied().unwrap_or(0)
    }

    /// Returns the number of packets that the emulator itself lost.
    pub fn own_losses(&self) -> u64 {
        self.emulator_lost.iter().map(|loss| loss.count).sum()
    }
}

/// Makes the ports of a box in `bed` complete checksums, and therefore also segment GSO frames.
pub fn complete_checksums(bed: &Bed) -> Result<()> {
    bed.emulator().run(|| -> Result<()> {
        for port in [CLIENT_PORT, SERVER_PORT] {
            // Segmentation offloads require this one, so they are switched off with it.
            Offloads::open(port)?.switch("tx-checksum-ip-generic", false)?;
        }
        Ok(())
    })?
}

/// A running box. It is killed when this is dropped.
pub struct WanBox {
    child: Child,
    printed: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
    json: NamedTempFile,
}

impl WanBox {
    /// Starts a box between the ports of `bed` and waits until it forwards. `link` has words of its command line.
    pub fn start(bed: &Bed, link: &str) -> Result<Self> {
        Self::start_as(process::farwire(), bed, link)
    }

    /// Starts a box with `command` as the program under test.
    pub fn start_as(mut command: Command, bed: &Bed, link: &str) -> Result<Self> {
        command.args(["emulate", CLIENT_PORT, SERVER_PORT]);
        command.args(link.split_whitespace());
        Self::launch(command, bed.emulator())
    }

    /// Starts a box of the links in `file` in `ns`, and waits until it forwards.
    pub fn start_links(ns: &NetNs, file: &Path) -> Result<Self> {
        Self::start_links_with(ns, file, &[])
    }

    /// Starts a box of the links in `file` with these options.
    pub fn start_links_with(ns: &NetNs, file: &Path, options: &[&str]) -> Result<Self> {
        let mut command = process::farwire();
        command
            .arg("emulate")
            .args(options)
            .arg("--links")
            .arg(file);
        Self::launch(command, ns)
    }

    /// Starts a box of the links in `file` with `command` as the program under test.
    pub fn start_links_as(mut command: Command, ns: &NetNs, file: &Path) -> Result<Self> {
        command.args(["emulate", "--links"]).arg(file);
        Self::launch(command, ns)
    }

    /// Starts `command`, the program under test, as a box between two interfaces of the namespace that the command
    /// enters, and waits until it forwards.
    pub fn start_with(mut command: Command, interfaces: &[&str; 2]) -> Result<Self> {
        command.arg("emulate").args(interfaces);
        Self::launch(command, &NetNs::current()?)
    }

    /// Starts a box in `ns` with the words of `line`, which name what runs there, and with `command` as the program
    /// under test. Waits until it forwards.
    pub fn start_at(mut command: Command, ns: &NetNs, line: &str) -> Result<Self> {
        command.arg("emulate").args(line.split_whitespace());
        Self::launch(command, ns)
    }

    fn launch(mut command: Command, ns: &NetNs) -> Result<Self> {
        let json = NamedTempFile::new()?;
        command.arg("--json").arg(json.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let mut child = ns.run(|| command.spawn())?.context("starting the box")?;
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
    pub fn await_line(&mut self, text: &str) -> Result<()> {
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

    /// Forgets what the box has printed so far, so that [`WanBox::await_line`] waits for later lines.
    pub fn forget_lines(&self) {
        let printed = self.printed.lock();
        printed.unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the names of the threads of the box.
    pub fn thread_names(&self) -> Result<Vec<String>> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            Ok(std::fs::read_to_string(task?.path().join("comm"))?
                .trim()
                .to_owned())
        };
        tasks.map(name).collect()
    }

    /// Returns the process that restores the box's interfaces when the box has ended.
    pub fn holder(&self) -> Result<u32> {
        self.helper("box-holder")
    }

    /// Returns the process that looks for the containers of the box's links.
    pub fn container_watcher(&self) -> Result<u32> {
        self.helper("container-watcher")
    }

    /// Returns the child process of the box that runs this hidden command.
    fn helper(&self, command: &str) -> Result<u32> {
        let of_box = format!("PPid:\t{}\n", self.child.id());
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let Some(pid) = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok())
            else {
                continue;
            };
            // A process may end while its files are read.
            let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
            if read("status").contains(&of_box) && read("cmdline").contains(command) {
                return Ok(pid);
            }
        }
        anyhow::bail!("the box has no process {command}")
    }

    /// Sends a signal to the box, waits for its end, and returns its output.
    pub fn end_by(&mut self, signal: Signal) -> Result<(ExitStatus, String)> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        self.end()
    }

    /// Waits for the end of the box, and returns its output.
    pub fn end(&mut self) -> Result<(ExitStatus, String)> {
        let status = process::end_of(&mut self.child)?;
        process::wait_for("the end of what the box prints", || {
            Ok(self.reader.is_finished().then_some(()))
        })?;
        Ok((status, self.printed()))
    }

    /// Stops the box and returns its counters.
    pub fn stop(self) -> Result<Summary> {
        self.stop_and_read()
    }

    /// Stops a box of many links and returns the counters of each.
    pub fn stop_links(self) -> Result<Vec<Summary>> {
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
