//! The state of the machine after the program is killed at a random moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT};
use netio::netns::NetNs;
use netio::offloads::Offloads;
use nix::unistd::geteuid;

use test_support::family::Family;
use test_support::process::{farwire, ip, wait_for};
use test_support::scenario::{HEAD, PLAIN};
use test_support::state::State;
use test_support::wan_box::WanBox;
use test_support::{is_soak, nft};

/// The number of kills, for all commands together.
const KILLS: u32 = 25;
const KILLS_IN_FULL: u32 = 1000;
/// The seed of the random moments.
const SEED: u64 = 17;
/// A feature that a box switches off, and that is on before it starts.
const MERGING: &str = "rx-udp-gro-forwarding";
/// A scenario whose runs take seconds, and whose baseline takes part of a second.
const DOWNLOAD: &str = "\
[[instruments]]
name = 'download'
kind = 'http'
parameters = { path = '/bytes/20000000' }
";

/// The commands that are started, each with the latest moment of a kill.
#[derive(Clone, Copy, Debug)]
enum Killed {
    Exec,
    Run,
    Emulate,
    Attach,
    Serve,
}

const ALL: [Killed; 5] = [
    Killed::Exec,
    Killed::Run,
    Killed::Emulate,
    Killed::Attach,
    Killed::Serve,
];

#[test_support::test(serial, Namespaces, Device("bridge"), Tool("ip"))]
fn kills_at_random_moments_leave_nothing() -> Result<()> {
    let kills = if is_soak() { KILLS_IN_FULL } else { KILLS };
    let place = Place::new()?;
    let mut moments = fastrand::Rng::with_seed(SEED);
    for kill in 0..kills {
        let what = ALL[kill as usize % ALL.len()];
        let after = Duration::from_micros(moments.u64(..what.longest_us()));
        let killed = place.kill(what, after);
        killed.with_context(|| format!("kill {kill}, of {what:?} after {after:?}"))?;
    }
    Ok(())
}

impl Killed {
    /// The latest moment of a kill, when the command has long done its work.
    fn longest_us(self) -> u64 {
        match self {
            Self::Exec | Self::Emulate | Self::Attach | Self::Serve => 400_000,
            Self::Run => 1_500_000,
        }
    }
}

/// A namespace with two interfaces, and a directory, in which everything is started. A container is connected to a bridge there.
struct Place {
    bed: Bed,
    container: Container,
    directory: tempfile::TempDir,
    before: Traces,
}

/// Everything that the program may change in a namespace.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    ports: [State; 2],
    interfaces: BTreeSet<String>,
    /// The ports of the bridge, and the flags of each.
    bridged: Vec<String>,
    tables: Vec<String>,
    journals: Vec<PathBuf>,
}

impl Place {
    fn new() -> Result<Self> {
        let bed = Bed::build(&BedConfig::default())?;
        let emulator = bed.emulator();
        emulator.run(|| Offloads::open(CLIENT_PORT)?.switch(MERGING, true))??;
        ip(emulator, "link set lo up")?;
        let container = Container::connect(emulator)?;
        let directory = tempfile::tempdir()?;
        let text = [HEAD, DOWNLOAD, PLAIN].concat();
        fs::write(directory.path().join("killed.toml"), text)?;
        let before = Traces::of(&bed)?;
        let untouched = before.tables.is_empty() && before.journals.is_empty();
        ensure!(untouched, "there is something before the first: {before:?}");
        Ok(Self {
            bed,
            container,
            directory,
            before,
        })
    }

    /// Starts a command, kills it after the time `after`, and checks what is left.
    fn kill(&self, what: Killed, after: Duration) -> Result<()> {
        let family = Family::begin();
        let mut child = self.start(what, &family)?;
        thread::sleep(after);
        let ended = child.try_wait()?;
        let namespaces = &family.namespaces() - &held()?;
        child.kill()?;
        child.wait()?;
        ensure!(ended.is_none(), "it ended by itself: {ended:?}");
        family.check_gone(&namespaces)?;
        if let Killed::Emulate = what {
            // A killed program restores nothing; the next start on these interfaces does.
            WanBox::start(&self.bed, "")?.stop()?;
            for (port, state) in [CLIENT_PORT, SERVER_PORT].iter().zip(&self.before.ports) {
                // The carrier may take a while.
                state.check_same(self.bed.emulator(), port)?;
            }
        }
        if let Killed::Attach = what {
            // The holder may not have been there yet.
            let line = self.container.option();
            WanBox::start_at(farwire(), self.bed.emulator(), &line)?.stop()?;
        }
        let left = Traces::of(&self.bed)?;
        ensure!(
            left == self.before,
            "before {:?}, now {left:?}",
            self.before
        );
        Ok(())
    }

    fn start(&self, what: Killed, family: &Family) -> Result<Child> {
        let mut command = farwire();
        match what {
            Killed::Exec => {
                let line = "sleep 1000 & setsid sleep 1000 & wait";
                command.args(["exec", "--delay", "1ms", "--", "sh", "-c", line])
            }
            Killed::Run => self.scenario(&mut command),
            Killed::Emulate => command.args(["emulate", CLIENT_PORT, SERVER_PORT]),
            Killed::Attach => {
                let line = self.container.option();
                command.arg("emulate").args(line.split(' '))
            }
            Killed::Serve => command.args(["serve", "--stamp-port", "0", "--names"]),
        };
        family.mark(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(self.bed.emulator().run(|| command.spawn())??)
    }

    fn scenario<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let (file, out) = ("killed.toml", "out");
        command.arg("run").arg(self.directory.path().join(file));
        command.arg("--overwrite");
        command.arg("--out").arg(self.directory.path().join(out))
    }
}

impl Traces {
    fn of(bed: &Bed) -> Result<Self> {
        let emulator = bed.emulator();
        let links = ip(emulator, "-oneline link show")?;
        let name = |line: &str| line.split(": ").nth(1).map(str::to_owned);
        Ok(Self {
            ports: [
                State::of(emulator, CLIENT_PORT)?,
                State::of(emulator, SERVER_PORT)?,
            ],
            interfaces: links.lines().filter_map(name).collect(),
            bridged: ports_of(emulator)?,
            tables: nft::tables(emulator)?,
            journals: journals(bed)?,
        })
    }
}

/// A process in a separate namespace, which is connected to a bridge. The process is killed when this is dropped.
struct Container {
    process: Child,
    /// Keeps the namespace, so that nobody takes it for one that was left behind.
    ns: NetNs,
}

/// The host's end of the container's interface, and the bridge.
const CONTAINER_END: &str = "farkill0";
const BRIDGE: &str = "farkill1";

impl Container {
    fn connect(host: &NetNs) -> Result<Self> {
        let ns = NetNs::create()?;
        let mut sleep = Command::new("sleep");
        sleep.arg("10000").stdin(Stdio::null());
        let process = ns.run(|| sleep.spawn())??;
        let pid = process.id();
        let container = Self { process, ns };
        for line in [
            format!("link add {BRIDGE} type bridge"),
            format!("link set {BRIDGE} up"),
            format!("link add {CONTAINER_END} type veth peer name eth0 netns {pid}"),
            format!("link set {CONTAINER_END} master {BRIDGE} up"),
        ] {
            ip(host, &line)?;
        }
        ip(&container.ns, "link set eth0 up")?;
        wait_for("the container's carrier", || {
            let ports = ports_of(host)?;
            let is_up = |port: &String| port.contains("LOWER_UP");
            Ok(ports.iter().any(is_up).then_some(()))
        })?;
        Ok(container)
    }

    /// Returns the option that names it.
    fn option(&self) -> String {
        format!("--pid {}", self.process.id())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lists the ports of bridges: the name, the address and the flags of each, without its state, which may take a while.
fn ports_of(host: &NetNs) -> Result<Vec<String>> {
    let text = ip(host, "-brief link show type bridge_slave")?;
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        [&words[..1], words.get(2..).unwrap_or_default()]
            .concat()
            .join(" ")
    };
    Ok(text.lines().map(port).collect())
}

/// Lists the journals, in any directory, that contain the hardware address of one of the bed's ports.
fn journals(bed: &Bed) -> Result<Vec<PathBuf>> {
    let mut addresses = Vec::new();
    for port in [CLIENT_PORT, SERVER_PORT, CONTAINER_END] {
        let line = ip(bed.emulator(), &format!("-brief link show dev {port}"))?;
        let address = line.split_whitespace().nth(2).context("an address")?;
        let bytes: Result<Vec<u8>, _> = address
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect();
        addresses.push(serde_json::to_string(&bytes?)?);
    }
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("farwire"));
    let temporary = std::env::temp_dir().join(format!("farwire-{}", geteuid()));
    let folders = [Some(PathBuf::from("/run/farwire")), user, Some(temporary)];
    let files = folders
        .into_iter()
        .flatten()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let paths = files.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let names_one = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        addresses.iter().any(|address| text.contains(address))
    };
    Ok(paths.filter(names_one).collect())
}

/// Lists the network namespaces that this process itself holds.
fn held() -> Result<BTreeSet<PathBuf>> {
    let links = fs::read_dir("/proc/self/fd")?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(links.filter_map(|link| fs::read_link(link).ok()).collect())
}
