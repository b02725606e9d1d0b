//! A box as a service of systemd.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, CLIENT_PORT};
use nix::sys::ptrace;
use nix::unistd::Pid;

use test_support::process::{self, PATIENCE, farwire, ip, stderr, stdout};
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

/// Each unit of `dist`, with the exposure that docs/wan-box.md states, in tenths.
const UNITS: [(&str, u32); 2] = [
    ("farwire-emulate@.service", 25),
    ("farwire-serve.service", 17),
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (unit, exposure) in UNITS {
        suite.test(
            format!("{unit} stands before systemd-analyze"),
            &[Need::Tool("systemd-analyze")],
            move || stands(unit, exposure),
        );
    }
}

#[test_support::test(Namespaces, Tool("ip"))]
fn systemd_is_told_when_a_box_is_ready_what_befalls_it_and_that_it_ends() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let manager = Manager::new()?;
    let wan = WanBox::start_as(manager.farwire(None), &bed, "--delay 1ms")?;
    manager.await_word("READY=1\nSTATUS=link client <-> server: delay 1ms in each direction")?;
    ip(bed.emulator(), &format!("link delete {CLIENT_PORT}"))?;
    manager.await_word("STATUS=interface client is gone")?;
    wan.stop()?;
    manager.await_word("STOPPING=1")
}

/// Only the forwarder's thread is stopped.
#[test_support::test(Namespaces, Tool("ip"))]
fn the_watchdog_is_fed_by_the_forwarder_alone() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let manager = Manager::new()?;
    let interval = Duration::from_secs(2);
    let wan = WanBox::start_as(manager.farwire(Some(interval)), &bed, "--delay 1ms")?;
    manager.await_word("WATCHDOG=1")?;
    manager.await_word("WATCHDOG=1")?;
    let forwarder = thread_of(wan.pid(), "forwarder")?;
    ptrace::seize(forwarder, ptrace::Options::empty())?;
    ptrace::interrupt(forwarder)?;
    let triggered = manager.await_word("WATCHDOG=trigger");
    // A traced process cannot be killed completely.
    ptrace::detach(forwarder, None)?;
    triggered
}

/// The program is replaced by the one under test, because none may exist at the unit's path.
fn stands(unit: &str, exposure: u32) -> Result<()> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("dist")
        .join(unit);
    let dir = tempfile::tempdir()?;
    let copy = dir.path().join(unit);
    let text = fs::read_to_string(shipped)?;
    let text = text.replace("/usr/local/bin/farwire", process::program());
    fs::write(&copy, text)?;
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        process::run(command.args(arguments).arg(&copy))
    };
    let verified = process::succeeded(analyze(&["verify", "--man=no"])?)?;
    let said = stderr(&verified);
    ensure!(!said.contains(unit), "{said}");
    let threshold = format!("--threshold={exposure}");
    let security = analyze(&["security", "--offline=true", &threshold])?;
    let said = stdout(&security);
    let last = said.lines().last().unwrap_or_default();
    ensure!(security.status.success(), "{last}");
    Ok(())
}

fn thread_of(pid: u32, name: &str) -> Result<Pid> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        if fs::read_to_string(task.path().join("comm"))?.trim_end() == name {
            let id = task.file_name().to_string_lossy().parse()?;
            return Ok(Pid::from_raw(id));
        }
    }
    anyhow::bail!("no thread {name}")
}

/// A socket that plays the part of systemd for a service.
struct Manager {
    socket: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Manager {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = UnixDatagram::bind(dir.path().join("notify"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, dir })
    }

    /// Returns the program under test as a service of this manager.
    fn farwire(&self, watchdog: Option<Duration>) -> Command {
        let mut command = farwire();
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        if let Some(interval) = watchdog {
            command.env("WATCHDOG_USEC", interval.as_micros().to_string());
        }
        command
    }

    fn await_word(&self, word: &str) -> Result<()> {
        let mut bytes = [0; 4096];
        loop {
            let length = process::uninterrupted(|| self.socket.recv(&mut bytes))
                .with_context(|| word.to_owned())?;
            if String::from_utf8_lossy(&bytes[..length]).contains(word) {
                return Ok(());
            }
        }
    }
}
