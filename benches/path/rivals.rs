//! What carries the packets between client and server: the kernel's bridge, farwire, farwire of an earlier commit,
//! or rattan.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use model::Bytes;
use netio::bed::{Bed, BedConfig, CLIENT, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use netio::kill_on_drop::KillOnDrop;
use netio::netns::NetNs;
use netio::offloads::Offloads;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Largest TCP buffer at both ends.
pub(crate) const WINDOW: Bytes = Bytes(128 << 20);

/// What [`Rival::Idle`] asks for beside the delay.
const IDLE: &[&str] = &["--jitter", "0ms", "--loss", "0%"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rival {
    Bridge,
    Farwire,
    /// farwire with conditions that are asked for and do nothing.
    Idle,
    /// The binary of another commit.
    Base(PathBuf),
    Rattan,
}

/// How client and server talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// On the wire.
    Plain,
    /// Through a VXLAN tunnel whose trains reach the middle whole.
    Vxlan,
}

impl Over {
    /// Prepares the ends; the server's address.
    fn set_up(self, bed: &Bed) -> Result<String> {
        if self == Self::Plain {
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

impl Rival {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Bridge => "kernel bridge, no delay".to_owned(),
            Self::Farwire => "farwire, 1 ms each way".to_owned(),
            Self::Idle => "farwire, 1 ms each way, jitter 0, loss 0".to_owned(),
            Self::Base(binary) => format!(
                "{}, 1 ms each way",
                binary.file_name().unwrap_or_default().display()
            ),
            Self::Rattan => "rattan 0.1.1, 1 ms each way".to_owned(),
        }
    }

    /// Has `load` cross this rival, on namespaces of its own.
    pub(crate) fn carry(&self, over: Over, load: &Load) -> Result<Carried> {
        let config = BedConfig {
            tcp_memory: Some(WINDOW),
            ..BedConfig::default()
        };
        let bed = Bed::build(&config)?;
        let target = over.set_up(&bed)?;
        let server = spawn_in(bed.server(), Command::new("sh").args(["-c", &load.server]))?;
        await_listener(bed.server())?;
        let own = Path::new(env!("CARGO_BIN_EXE_farwire"));
        let carried = match self {
            Self::Bridge => {
                bed.bridge()?;
                let said = load.run(&bed, &target)?;
                Ok(Carried {
                    said,
                    cpu: None,
                    summary: Value::Null,
                })
            }
            Self::Farwire => through_farwire(own, &[], &bed, &target, load),
            Self::Idle => through_farwire(own, IDLE, &bed, &target, load),
            Self::Base(binary) => through_farwire(binary, &[], &bed, &target, load),
            Self::Rattan => through_rattan(&bed, load),
        };
        stop(server, Signal::SIGKILL)?;
        carried
    }
}

/// What is sent, as lines of the shell.
pub(crate) struct Load {
    /// The far end; it listens on TCP once it is ready.
    pub(crate) server: String,
    /// The client of $TARGET; it says in JSON, on standard output, how it went.
    pub(crate) client: String,
}

/// How it went.
pub(crate) struct Carried {
    /// What the client said.
    pub(crate) said: Value,
    /// The emulator's busiest thread, and its processor seconds.
    pub(crate) cpu: Option<(String, f64)>,
    /// What farwire said of itself; null of others.
    pub(crate) summary: Value,
}

impl Carried {
    /// Frames that farwire itself lost.
    pub(crate) fn own_loss(&self) -> u64 {
        let ways = ["up", "down"].iter();
        let lost = ways.filter_map(|way| self.summary[way]["emulator_lost"].as_array());
        let counts = lost.flatten().filter_map(|loss| loss["count"].as_u64());
        counts.sum()
    }
}

impl Load {
    /// Runs the client in its namespace.
    fn run(&self, bed: &Bed, target: &str) -> Result<Value> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.client]).env("TARGET", target);
        let output = bed.client().run(|| command.output())??;
        self.read(&String::from_utf8_lossy(&output.stdout))
    }

    fn read(&self, said: &str) -> Result<Value> {
        serde_json::from_str(said).with_context(|| format!("{}: {said}", self.client))
    }
}

/// Uses only what every commit's binary has, but for `conditions`: `emulate`, `--delay`, `--json` and the thread's name.
fn through_farwire(
    binary: &Path,
    conditions: &[&str],
    bed: &Bed,
    target: &str,
    load: &Load,
) -> Result<Carried> {
    let report = std::env::temp_dir().join(format!("farwire-bench-{}.json", std::process::id()));
    let mut command = Command::new(binary);
    command.args([
        "emulate",
        CLIENT_PORT,
        SERVER_PORT,
        "--delay",
        "1ms",
        "--json",
    ]);
    command.arg(&report).args(conditions);
    let mut emulator = spawn_in(bed.emulator(), &mut command)?;
    let pid = emulator.streams().id();
    await_threads(pid, "forwarder")?;
    let said = load.run(bed, target);
    let cpu = thread_cpu_seconds(pid);
    stop(emulator, Signal::SIGTERM)?;
    let summary = serde_json::from_str(&fs::read_to_string(&report)?)?;
    fs::remove_file(&report)?;
    Ok(Carried {
        said: said?,
        cpu,
        summary,
    })
}

/// rattan makes namespaces of its own; its far end is the namespace that it is started in.
fn through_rattan(bed: &Bed, load: &Load) -> Result<Carried> {
    let rattan = rattan_path().context("rattan is not installed")?;
    let report = std::env::temp_dir().join(format!("rattan-bench-{}.json", std::process::id()));
    let script = format!(
        "for m in tcp_rmem tcp_wmem; do echo 4096 131072 {} > /proc/sys/net/ipv4/$m; done; \
         TARGET=$RATTAN_BASE; {{ {} ; }} > {}",
        WINDOW.0,
        load.client,
        report.display()
    );
    let mut command = Command::new(rattan);
    command.args([
        "link",
        "--uplink-delay",
        "1ms",
        "--downlink-delay",
        "1ms",
        "--",
    ]);
    let mut child = spawn_in(bed.server(), command.args(["sh", "-c", &script]))?;
    let pid = child.streams().id();
    let mut cpu = None;
    while child.streams().try_wait()?.is_none() {
        cpu = thread_cpu_seconds(pid).or(cpu);
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = fs::read_to_string(&report).context("rattan ran no client")?;
    fs::remove_file(&report)?;
    Ok(Carried {
        said: load.read(&text)?,
        cpu,
        summary: Value::Null,
    })
}

/// The binary that `make bench BASE=COMMIT` built.
pub(crate) fn base_path() -> Option<PathBuf> {
    std::env::var_os("FARWIRE_BASE").map(PathBuf::from)
}

/// Where `make bench` installs it, or on the PATH.
pub(crate) fn rattan_path() -> Option<PathBuf> {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/peers/bin/rattan");
    if installed.exists() {
        return Some(installed);
    }
    which::which("rattan").ok()
}

/// Starts a command in a namespace; it ends with the calling thread.
pub(crate) fn spawn_in(ns: &NetNs, command: &mut Command) -> Result<KillOnDrop> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    KillOnDrop::spawn_in(ns, command).with_context(|| name)
}

pub(crate) fn stop(mut running: KillOnDrop, signal: Signal) -> Result<()> {
    let child = running.streams();
    if child.try_wait()?.is_none() {
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
    }
    child.wait()?;
    Ok(())
}

/// Waits until something in `ns` listens on TCP: state 0A of /proc/net/tcp and tcp6.
fn await_listener(ns: &NetNs) -> Result<()> {
    ns.run(|| {
        for _ in 0..500 {
            let tables =
                ["tcp", "tcp6"].map(|t| fs::read_to_string(format!("/proc/thread-self/net/{t}")));
            let mut sockets = tables.iter().flatten().flat_map(|t| t.lines());
            if sockets.any(|s| s.split_whitespace().nth(3) == Some("0A")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("iperf3 did not listen")
    })?
}

/// Waits until the process `pid` has a thread of this name: it forwards from then on.
pub(crate) fn await_threads(pid: u32, name: &str) -> Result<()> {
    for _ in 0..500 {
        if threads(pid).iter().any(|(thread, _)| thread == name) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("process {pid} started no thread {name}")
}

/// The thread of `pid` that has used most CPU, and how many seconds of it.
fn thread_cpu_seconds(pid: u32) -> Option<(String, f64)> {
    threads(pid).into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Name and CPU seconds of each thread (proc(5): fields 14 and 15 of stat, in clock ticks).
fn threads(pid: u32) -> Vec<(String, f64)> {
    const TICKS_A_SECOND: f64 = 100.0;
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = tasks
        .flatten()
        .filter_map(|t| fs::read_to_string(t.path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            let mut fields = rest.split_whitespace().skip(11);
            let (user, system): (f64, f64) =
                (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some((name.to_owned(), (user + system) / TICKS_A_SECOND))
        })
        .collect()
}
