//! `farwire serve` as a separate process.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A far end on free ports. It is killed when the test ends.
pub struct FarEnd {
    child: Child,
    services: Vec<(String, SocketAddr)>,
    /// Other lines that it printed at the start.
    pub notes: Vec<String>,
}

impl FarEnd {
    /// Starts it by `command`, which is `serve` of the program under test with any options, or executes it.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::start_everywhere(command.args(["--bind", "127.0.0.1"]))
    }

    /// Starts it on free ports of all addresses, unless `command` has other options.
    pub fn start_everywhere(command: &mut Command) -> Result<Self> {
        command
            .args(["--http-port", "0"])
            .args(["--iperf3-port", "0"])
            .args(["--messages-port", "0"])
            .args(["--capacity-port", "0"])
            .args(["--stamp-port", "0"]);
        Self::start_where_told(command)
    }

    /// Starts it by `command`, which sets the addresses itself. Fails if it ends before it serves.
    pub fn start_where_told(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("a pipe was asked for")?;
        let (mut services, mut notes) = (Vec::new(), Vec::new());
        let mut has_started = false;
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            let Some((_, service)) = line.split_once("farwire serves ") else {
                has_started = line.contains("farwire sends");
                notes.push(line);
                if has_started {
                    break;
                }
                continue;
            };
            let (name, address) = service.split_once(" on ").with_context(|| line.clone())?;
            services.push((name.to_owned(), address.parse()?));
        }
        let far_end = Self {
            child,
            services,
            notes,
        };
        ensure!(has_started, "it does not serve: {:?}", far_end.notes);
        Ok(far_end)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address of the service of this name.
    pub fn address(&self, name: &str) -> Result<SocketAddr> {
        let mut services = self.services.iter();
        let found = services.find(|(service, _)| service == name);
        Ok(found.with_context(|| format!("{name} is not served"))?.1)
    }

    /// Ends it by SIGINT, as its user does, and waits for its end.
    pub fn interrupt(&mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, Signal::SIGINT)?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns whether it ignores SIGHUP by /proc/PID/status: bit n - 1 is that of signal n, and SIGHUP is 1 (proc(5)).
    pub fn ignores_hang_up(&self) -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.context("SigIgn")?.trim(), 16)?;
        Ok(mask & 1 == 1)
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
