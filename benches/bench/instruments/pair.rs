//! Two namespaces joined by one veth pair, and programs run in them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use serde_json::Value;

use crate::processes::{FARWIRE, Running, await_listener, output, words};

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

impl Pair {
    pub(crate) fn build() -> Result<Self> {
        let (client, server) = (NetNs::create()?, NetNs::create()?);
        let pair = Self { client, server };
        // The peer goes to the namespace of a process: this thread's own is /proc/thread-self.
        let mut far = Running::start(&pair.server, Command::new("sleep").arg("60"))?;
        let script = format!(
            "ip link add {WAN} type veth peer name {WAN} netns {}",
            far.pid()
        );
        shell(&pair.client, &script)?;
        for (ns, number) in [(&pair.client, 1), (&pair.server, 2)] {
            shell(
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
        let running = Running::start(&self.server, &mut words(line))?;
        await_listener(&self.server, line)?;
        Ok(running)
    }

    /// Runs `line` at the client to its end; what it printed.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        output(&self.client, words(line))
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
    format!("{FARWIRE} {rest}")
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

fn shell(ns: &NetNs, script: &str) -> Result<()> {
    let status = ns.run(|| Command::new("sh").args(["-ec", script]).status())??;
    ensure!(status.success(), "{script}: {status}");
    Ok(())
}
