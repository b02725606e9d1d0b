//! Two namespaces joined by one veth pair, and programs that run in them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use serde_json::Value;

use crate::processes::{FARWIRE, Running, await_listener, output, words};

pub(crate) const SERVER: &str = "10.78.0.2";
/// The name of the interface at both ends.
pub(crate) const WAN: &str = "wan";
/// The largest buffer that TCP may grow to, or that a UDP socket may ask for.
const WINDOW: u32 = 128 << 20;

/// A client and a server. The kernel removes them when this process ends.
pub(crate) struct Pair {
    pub(crate) client: NetNs,
    pub(crate) server: NetNs,
}

impl Pair {
    pub(crate) fn build() -> Result<Self> {
        let (client, server) = (NetNs::create()?, NetNs::create()?);
        let pair = Self { client, server };
        // The peer goes to the namespace of a process, because ip(8) cannot name this thread's own, which is /proc/thread-self.
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
                // If the namespace has no such setting, every rival uses the system's.
                let _ = ns.write_sysctl(&format!("net/core/{name}"), &WINDOW.to_string());
            }
        }
        Ok(pair)
    }

    /// Starts `line`, split at spaces, at the server, and waits until something there listens.
    pub(crate) fn serve(&self, line: &str) -> Result<Running> {
        let running = Running::start(&self.server, &mut words(line))?;
        await_listener(&self.server, line)?;
        Ok(running)
    }

    /// Runs `line` at the client until it ends, and returns its output.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        output(&self.client, words(line))
    }

    /// Like [`Pair::run`], for a program that prints JSON.
    pub(crate) fn json(&self, line: &str) -> Result<Value> {
        let text = self.run(line)?;
        serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
    }

    /// Starts farwire's far end.
    pub(crate) fn serve_farwire(&self) -> Result<Running> {
        self.serve(&farwire("serve"))
    }
}

/// Returns a command line with the farwire that was built for this bench.
pub(crate) fn farwire(rest: &str) -> String {
    format!("{FARWIRE} {rest}")
}

/// Returns the value of the figure over all streams and sizes, for whichever direction it has.
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
