//! The rivals that carry packets between client and server: the kernel's bridge, farwire, farwire of an earlier commit, or
//! rattan.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use model::Bytes;
use netio::bed::{Bed, BedConfig, CLIENT, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use netio::offloads::Offloads;
use serde_json::Value;

use crate::processes::{
    FARWIRE, Running, await_listener, await_thread, of_machine, output, processor_seconds, threads,
};
use crate::results::scratch;

/// The largest TCP buffer at both ends.
pub(crate) const WINDOW: Bytes = Bytes(128 << 20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    Bridge,
    /// farwire with a millisecond in each direction, and these options.
    Farwire(Vec<String>),
    /// The binary of another commit.
    Base(PathBuf),
    Rattan,
}

/// The way in which client and server communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Directly over the wire.
    Plain,
    /// Directly over the wire, every packet in a separate frame.
    NoOffloads,
    /// Through a VXLAN tunnel, whose trains reach the middle whole.
    Vxlan,
}

/// A rival between client and server, with a far end that listens.
pub(crate) struct Standing {
    bed: Bed,
    /// The far end's address.
    target: String,
    middle: Middle,
    server: Running,
}

enum Middle {
    Bridge,
    Farwire {
        emulator: Running,
        report: PathBuf,
    },
    /// rattan is started for each load, because it runs the client itself.
    Rattan,
}

/// The result of a load.
pub(crate) struct Carried {
    /// The client's JSON.
    pub(crate) said: Value,
    /// The processor seconds that the emulator took.
    pub(crate) emulator_s: Option<f64>,
    /// Those of farwire's thread that forwards.
    pub(crate) forwarder_s: Option<f64>,
    /// The emulator's busiest thread, and its processor seconds since it started.
    pub(crate) busiest: Option<(String, f64)>,
    /// The processor seconds that the whole machine took.
    pub(crate) machine_s: f64,
}

impl Rival {
    /// Returns farwire with only the delay.
    pub(crate) fn farwire() -> Self {
        Self::Farwire(Vec::new())
    }

    /// Returns farwire and its rivals: the bridge, the base if there is one, and rattan if it is asked for and installed.
    pub(crate) fn all(with_rattan: bool) -> Vec<Self> {
        let mut rivals = vec![Self::farwire(), Self::Bridge];
        rivals.extend(base_path().map(Self::Base));
        if with_rattan && rattan_path().is_some() {
            rivals.push(Self::Rattan);
        }
        rivals
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Bridge => "kernel bridge, no delay".to_owned(),
            Self::Farwire(options) if options.is_empty() => "farwire".to_owned(),
            Self::Farwire(options) => format!("farwire {}", options.join(" ")),
            Self::Base(binary) => binary.file_name().unwrap_or_default().display().to_string(),
            Self::Rattan => "rattan 0.1.1".to_owned(),
        }
    }

    /// Puts the rival between client and server, where `far_end`, a shell command, listens.
    pub(crate) fn stand(&self, over: Over, far_end: &str) -> Result<Standing> {
        let bed = Bed::build(&BedConfig {
            tcp_memory: Some(WINDOW),
            offloads: over != Over::NoOffloads,
            ..BedConfig::default()
        })?;
        let target = over.set_up(&bed)?;
        let server = Running::start(
            bed.server(),
            Command::new("sh").args(["-c", &format!("exec {far_end}")]),
        )?;
        await_listener(bed.server(), far_end)?;
        let middle = match self {
            Self::Bridge => {
                bed.bridge()?;
                Middle::Bridge
            }
            Self::Farwire(options) => Middle::farwire(Path::new(FARWIRE), options, &bed)?,
            Self::Base(binary) => Middle::farwire(binary, &[], &bed)?,
            Self::Rattan => Middle::Rattan,
        };
        Ok(Standing {
            bed,
            target,
            middle,
            server,
        })
    }
}

impl Over {
    /// Prepares the ends and returns the server's address.
    fn set_up(self, bed: &Bed) -> Result<String> {
        if self != Self::Vxlan {
            return Ok(SERVER.v4.to_string());
        }
        let ends = [(bed.client(), SERVER, 1), (bed.server(), CLIENT, 2)];
        for (ns, far, number) in ends {
            let script = format!(
                "ip link add vx type vxlan id 7 dstport 4789 remote {} dev {WAN} && \
                 ip addr add 10.78.0.{number}/24 dev vx && ip link set dev vx up",
                far.v4
            );
            ns.run(|| -> Result<()> {
                for feature in ["tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"] {
                    Offloads::open(WAN)?.switch(feature, true)?;
                }
                let made = Command::new("sh").args(["-c", &script]).status()?;
                anyhow::ensure!(made.success(), "no VXLAN interface could be made");
                Ok(())
            })??;
        }
        Ok("10.78.0.2".to_owned())
    }
}

impl Middle {
    /// Starts farwire. Except for `options`, it uses only what the binary of every commit has: `emulate`, `--delay`, `--json` and the
    /// thread's name.
    fn farwire(binary: &Path, options: &[String], bed: &Bed) -> Result<Self> {
        let report = scratch("emulate.json")?;
        let mut command = Command::new(binary);
        command.args(["emulate", CLIENT_PORT, SERVER_PORT, "--delay", "1ms"]);
        command.arg("--json").arg(&report).args(options);
        let mut emulator = Running::start(bed.emulator(), &mut command)?;
        await_thread(emulator.pid(), "forwarder")?;
        Ok(Self::Farwire { emulator, report })
    }
}

impl Standing {
    /// Runs `client`, a shell command that uses $TARGET and prints its result as JSON, against the far end.
    pub(crate) fn carry(&mut self, client: &str) -> Result<Carried> {
        let machine = of_machine()?;
        let mut carried = match &mut self.middle {
            Middle::Bridge => Carried::said(&self.run(client)?, None)?,
            Middle::Farwire { emulator, .. } => {
                let pid = emulator.pid();
                let before = processor_seconds(pid).unwrap_or(0.0);
                let forwarder_before = forwarder_seconds(pid).unwrap_or(0.0);
                let said = self.run(client)?;
                let mut carried = Carried::said(&said, busiest(pid))?;
                carried.emulator_s = processor_seconds(pid).map(|after| after - before);
                carried.forwarder_s = forwarder_seconds(pid).map(|after| after - forwarder_before);
                carried
            }
            Middle::Rattan => self.through_rattan(client)?,
        };
        carried.machine_s = of_machine()? - machine;
        Ok(carried)
    }

    /// Ends everything; returns the summary of farwire, null for other rivals.
    pub(crate) fn end(self) -> Result<Value> {
        drop(self.server);
        let Middle::Farwire { emulator, report } = self.middle else {
            return Ok(Value::Null);
        };
        emulator.end()?;
        let summary = serde_json::from_str(&fs::read_to_string(&report)?)?;
        fs::remove_file(&report)?;
        Ok(summary)
    }

    fn run(&self, client: &str) -> Result<String> {
        let mut command = Command::new("sh");
        command.args(["-c", client]).env("TARGET", &self.target);
        output(self.bed.client(), command)
    }

    /// Runs a load through rattan, which creates its own namespaces; its far end is the namespace in which it is started.
    fn through_rattan(&self, client: &str) -> Result<Carried> {
        let rattan = rattan_path().context("rattan is not installed")?;
        let report = scratch("rattan.json")?;
        let script = format!(
            "for m in tcp_rmem tcp_wmem; do echo 4096 131072 {} > /proc/sys/net/ipv4/$m; done; \
             TARGET=$RATTAN_BASE; {{ {client} ; }} > {}",
            WINDOW.0,
            report.display()
        );
        let mut command = Command::new(rattan);
        command.args(["link", "--uplink-delay", "1ms", "--downlink-delay", "1ms"]);
        command.args(["--", "sh", "-c", &script]);
        let mut running = Running::start(self.bed.server(), &mut command)?;
        while !running.has_ended()? {
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = fs::read_to_string(&report).context("rattan ran no client")?;
        fs::remove_file(&report)?;
        // rattan works in separate processes, so only the processors of the whole machine show its cost.
        Carried::said(&text, None)
    }
}

impl Carried {
    fn said(text: &str, busiest: Option<(String, f64)>) -> Result<Self> {
        Ok(Self {
            said: serde_json::from_str(text).with_context(|| text.to_owned())?,
            emulator_s: None,
            forwarder_s: None,
            busiest,
            machine_s: 0.0,
        })
    }
}

/// Returns the number of frames that farwire itself lost, from the summary of its only link.
pub(crate) fn own_loss(summary: &Value) -> u64 {
    let ways = ["up", "down"].iter();
    ways.map(|way| count(&summary[way]["emulator_lost"])).sum()
}

/// Returns the number of frames that farwire itself lost, from the summaries of all links. Links of a thread share its rings,
/// and each of them states what all of them lost there.
pub(crate) fn own_loss_of_links(links: &[Value]) -> u64 {
    let of_links: u64 = links.iter().map(own_loss).sum();
    let of_rings = links
        .iter()
        .map(|link| (link["thread"].as_u64(), count(&link["rings_full"])));
    let of_rings: HashMap<Option<u64>, u64> = of_rings.collect();
    of_links + of_rings.values().sum::<u64>()
}

/// Returns the sum of these losses, each of which has a cause; absent losses are 0.
fn count(losses: &Value) -> u64 {
    let losses = losses.as_array().into_iter().flatten();
    losses.filter_map(|loss| loss["count"].as_u64()).sum()
}

/// Returns the binary that `make bench BASE=COMMIT` built.
pub(crate) fn base_path() -> Option<PathBuf> {
    std::env::var_os("FARWIRE_BASE").map(PathBuf::from)
}

/// Finds rattan where `make bench` installs it, or on the PATH.
pub(crate) fn rattan_path() -> Option<PathBuf> {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/peers/bin/rattan");
    if installed.exists() {
        return Some(installed);
    }
    which::which("rattan").ok()
}

/// Returns the processor seconds of the thread of farwire that forwards.
fn forwarder_seconds(pid: u32) -> Option<f64> {
    let forwarder = |(name, _): &(String, f64)| name == "forwarder";
    Some(threads(pid).into_iter().find(forwarder)?.1)
}

/// Returns the thread of `pid` that has used the processors most, with its seconds.
fn busiest(pid: u32) -> Option<(String, f64)> {
    threads(pid).into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}
