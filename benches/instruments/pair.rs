//! Two namespaces joined by one veth pair, and programs run in them.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use netio::kill_on_drop::KillOnDrop;
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) const SERVER: &str = "10.78.0.2";
/// The interface at either end.
pub(crate) const WAN: &str = "wan";
/// Largest buffer that TCP may grow to, or a UDP socket ask for.
const WINDOW: u32 = 128 << 20;

/// A client and a server; the kernel clears them away with this process.
pub(crate) struct Pair {
    pub(crate) client: NetNs,
    pub(crate) server: NetNs,
}

/// A program that runs until it is dropped, or the thread that started it ends.
pub(crate) struct Running(KillOnDrop);

impl Pair {
    pub(crate) fn build() -> Result<Self> {
        let (client, server) = (NetNs::create()?, NetNs::create()?);
        let pair = Self { client, server };
        // The peer goes to the namespace of a process: this thread's own is /proc/thread-self.
        let mut far = spawn(&pair.server, Command::new("sleep").arg("60"))?;
        let script = format!(
            "ip link add {WAN} type veth peer name {WAN} netns {}",
            far.0.streams().id()
        );
        sh(&pair.client, &script)?;
        for (ns, number) in [(&pair.client, 1), (&pair.server, 2)] {
            sh(
                ns,
                &format!(
                    "ip addr add 10.78.0.{number}/24 dev {WAN} && ip link set {WAN} up && ip link set lo up"
                ),
            )?;
            for name in ["tcp_rmem", "tcp_wmem"] {
                ns.write_sysctl(
                    &format!("net/ipv4/{name}"),
                    &format!("4096 131072 {WINDOW}"),
                )?;
            }
            for name in ["rmem_max", "wmem_max"] {
                // Where it is not the namespace's own, every rival has the system's.
                let _ = ns.write_sysctl(&format!("net/core/{name}"), &WINDOW.to_string());
            }
        }
        Ok(pair)
    }

    /// Starts `line`, words divided by spaces, at the server, and waits until something there listens.
    pub(crate) fn serve(&self, line: &str) -> Result<Running> {
        let running = spawn(&self.server, &mut command(line))?;
        self.server.run(|| await_listener(line))??;
        Ok(running)
    }

    /// Runs `line` at the client to its end; what it printed.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        let output = self.client.run(|| command(line).output())??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// As [`Pair::run`], for a program that prints JSON.
    pub(crate) fn json(&self, line: &str) -> Result<Value> {
        let text = self.run(line)?;
        serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
    }

    /// farwire's far end.
    pub(crate) fn serve_farwire(&self) -> Result<Running> {
        self.serve(&farwire("serve"))
    }
}

/// The command line of the farwire that was built for this.
pub(crate) fn farwire(rest: &str) -> String {
    format!("{} {rest}", env!("CARGO_BIN_EXE_farwire"))
}

/// The value of the figure over all streams and sizes, whichever way it went.
pub(crate) fn figure(measured: &Value, metric: &str, statistic: &str) -> Result<f64> {
    let figures = measured["figures"].as_array().context("figures")?;
    let found = figures.iter().find(|figure| {
        figure["metric"] == metric && figure["statistic"] == statistic && figure["stream"].is_null()
    });
    found
        .and_then(|figure| figure["value"].as_f64())
        .with_context(|| format!("no {statistic} of {metric}: {figures:?}"))
}

impl Drop for Running {
    fn drop(&mut self) {
        let child = self.0.streams();
        if let Ok(pid) = i32::try_from(child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        for _ in 0..20 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // iperf 2 waits for its last client first, and is killed.
    }
}

fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    command
}

fn spawn(ns: &NetNs, command: &mut Command) -> Result<Running> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let command = command.stderr(Stdio::null());
    Ok(Running(KillOnDrop::spawn_in(ns, command)?))
}

fn sh(ns: &NetNs, script: &str) -> Result<()> {
    let status = ns.run(|| Command::new("sh").args(["-ec", script]).status())??;
    ensure!(status.success(), "{script}: {status}");
    Ok(())
}

/// Waits until something in the calling thread's namespace listens on TCP or has a UDP socket.
fn await_listener(what: &str) -> Result<()> {
    let listens = |table: &str, state: &str| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines()
            .any(|socket| socket.split_whitespace().nth(3) == Some(state))
    };
    for _ in 0..500 {
        // proc(5): 0A is a listening TCP socket, 07 a UDP one that is not connected.
        if listens("tcp", "0A")
            || listens("tcp6", "0A")
            || listens("udp", "07")
            || listens("udp6", "07")
        {
            // Some peers bind before they listen.
            thread::sleep(Duration::from_millis(100));
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("{what} did not listen")
}
