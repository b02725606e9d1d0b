//! Links at containers of an ordinary user's Podman, which runs without root.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::attach::least_rtt_ms;
use super::container::archive_of_tools;
use test_support::process::{self, end_of, ends_with, farwire, has, stdout, succeeds, wait_for};

/// The number of the user.
const USER: u32 = 3_000;

/// Makes the user in this mount namespace only, with ranges of subordinate users and a device for taps that everybody may
/// open. Then it keeps the namespace.
const MAKE_USER: &str = r#"
set -e
cd "$1"
{ echo "tester:x:3000:3000::$1/home:/bin/sh"; cat /etc/passwd; } >passwd
{ echo "tester:x:3000:"; cat /etc/group; } >group
echo "tester:300000:65536" >ranges
chmod 644 passwd group ranges
mount --bind passwd /etc/passwd
mount --bind group /etc/group
mount --bind ranges /etc/subuid
mount --bind ranges /etc/subgid
mount -t tmpfs -o mode=755 tmpfs /dev/net
mknod -m 666 /dev/net/tun c 10 200
: >ready
exec sleep 1000
"#;

/// Podman of a user who exists in a separate mount namespace only.
struct RootlessPodman {
    /// The process that keeps the mount namespace.
    keeper: Child,
    dir: TempDir,
}

impl RootlessPodman {
    fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let path = dir.path();
        let everybody =
            |path: PathBuf| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        everybody(path.to_owned())?;
        for own in ["home", "run"] {
            let own = path.join(own);
            fs::create_dir(&own)?;
            chown(&own, Some(USER), Some(USER))?;
            fs::set_permissions(&own, fs::Permissions::from_mode(0o700))?;
        }
        let bin = path.join("bin");
        fs::create_dir(&bin)?;
        everybody(bin.clone())?;
        let script = format!(
            "#!/bin/sh\nexec {} --storage-driver vfs --cgroup-manager cgroupfs --events-backend none --runtime runc \"$@\"\n",
            which::which("podman")?.display()
        );
        fs::write(bin.join("podman"), script)?;
        // The user may not be allowed to read the directory in which it was built.
        fs::copy(process::program(), bin.join("farwire"))?;
        for program in ["podman", "farwire"] {
            everybody(bin.join(program))?;
        }
        let archive = archive_of_tools(path)?;
        fs::set_permissions(&archive, fs::Permissions::from_mode(0o644))?;
        let mut keeper = Command::new("unshare");
        keeper.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            MAKE_USER,
            "sh",
        ]);
        let keeper = keeper.arg(path).stdin(Stdio::null()).spawn()?;
        let mut podman = Self { keeper, dir };
        let ready = podman.dir.path().join("ready");
        wait_for("the mount namespace of the user", || {
            let ended = podman.keeper.try_wait()?;
            ensure!(ended.is_none(), "the user cannot be made: {ended:?}");
            Ok(ready.exists().then_some(()))
        })?;
        podman.podman(&format!("import {} tools", archive.display()))?;
        Ok(podman)
    }

    /// Returns the command `line` as the user runs it.
    fn as_user(&self, line: &str) -> Command {
        let path = self.dir.path();
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.keeper.id().to_string()]);
        let user = USER.to_string();
        command.args(["setpriv", "--reuid", &user, "--regid", &user]);
        command.args(["--init-groups", "--inh-caps=-all"]);
        command.args(line.split(' ')).stdin(Stdio::null());
        let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        command.env_clear();
        command.env("PATH", format!("{}/bin:{usual}", path.display()));
        command.env("HOME", path.join("home"));
        command.env("XDG_RUNTIME_DIR", path.join("run"));
        // No other engine is asked.
        command.env("DOCKER_HOST", "unix:///no/such/docker.sock");
        command
    }

    fn podman(&self, line: &str) -> Result<String> {
        let output = succeeds(&mut self.as_user(&format!("podman {line}")))?;
        Ok(stdout(&output))
    }

    fn run(&self, name: &str, network: &str) -> Result<()> {
        let limits = "--ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --cap-add net_raw";
        let line = format!(
            "run --detach --name {name} --network {network} {limits} tools /bin/sleep 1000"
        );
        self.podman(&line).map(drop)
    }

    /// Returns what the engine has for `format` of a container.
    fn inspect(&self, name: &str, format: &str) -> Result<String> {
        let line = format!("container inspect --format {{{{{format}}}}} {name}");
        Ok(self.podman(&line)?.trim().to_owned())
    }

    /// Returns the ports of the bridges of the user.
    fn ports(&self) -> Result<String> {
        self.podman("unshare --rootless-netns ip -brief link show type bridge_slave")
    }

    /// Returns the least round-trip time from the container db to the container web.
    fn least_rtt_ms(&self) -> Result<f64> {
        let web = self.inspect("web", ".NetworkSettings.Networks.shop.IPAddress")?;
        least_rtt_ms(&self.podman(&format!("exec db ping -q -c 4 {web}"))?)
    }

    /// Starts the command of the guide with `line` behind it, and waits until it forwards.
    fn emulate(&self, line: &str) -> Result<Emulation> {
        let said = self.dir.path().join("said");
        let line = format!("podman unshare --rootless-netns farwire emulate {line}");
        let mut command = self.as_user(&line);
        command.stdout(Stdio::null()).stderr(File::create(&said)?);
        let mut emulation = Emulation {
            child: command.spawn()?,
            said,
        };
        emulation.await_line("until a signal")?;
        Ok(emulation)
    }
}

impl Drop for RootlessPodman {
    fn drop(&mut self) {
        let _ = self.podman("rm --force --time 0 --all");
        // It ends the process that keeps the user's namespaces.
        let _ = self.podman("system migrate");
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Podman and the program under test, which it has started.
struct Emulation {
    child: Child,
    /// The file with what both have printed.
    said: PathBuf,
}

impl Emulation {
    fn await_line(&mut self, text: &str) -> Result<()> {
        wait_for(&format!("\"{text}\""), || {
            let ended = self.child.try_wait()?;
            let said = fs::read_to_string(&self.said)?;
            if said.contains(text) {
                return Ok(Some(()));
            }
            ensure!(ended.is_none(), "it ended: {said}");
            Ok(None)
        })
    }

    /// Waits until the helper, which survives the program under test, has printed `text`.
    fn await_of_helper(&self, text: &str) -> Result<()> {
        wait_for(&format!("\"{text}\""), || {
            let said = fs::read_to_string(&self.said)?;
            Ok(said.contains(text).then_some(()))
        })
    }

    /// Waits for the end, and returns what was printed until then.
    fn end(&mut self) -> Result<(ExitStatus, String)> {
        let status = end_of(&mut self.child)?;
        Ok((status, fs::read_to_string(&self.said)?))
    }

    /// Sends a signal to the program under test. Podman ends after it.
    fn signal(&self, signal: Signal) -> Result<()> {
        let farwire = farwire_below(self.child.id()).context("Podman has not started farwire")?;
        Ok(kill(Pid::from_raw(farwire.try_into()?), signal)?)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // Podman does not pass a signal on.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.signal(Signal::SIGKILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the process below `ancestor` that is the program under test. Its helpers have another name.
fn farwire_below(ancestor: u32) -> Option<u32> {
    // Any thread of Podman may have started it.
    let threads = fs::read_dir(format!("/proc/{ancestor}/task")).ok()?;
    let children = threads.filter_map(|thread| {
        let path = thread.ok()?.path().join("children");
        fs::read_to_string(path).ok()
    });
    let children: Vec<String> = children.collect();
    let mut children = children.iter().flat_map(|text| text.split_whitespace());
    children.find_map(|child| {
        let child = child.parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        if name.trim() == "farwire" {
            Some(child)
        } else {
            farwire_below(child)
        }
    })
}

#[test_support::test(
    All,
    Podman,
    HostNetwork,
    Tool("newuidmap"),
    Tool("slirp4netns"),
    Tool("nsenter"),
    Tool("setpriv"),
    Tool("unshare")
)]
fn a_container_of_rootless_podman_on_a_bridge_gets_its_link_by_the_command_of_the_guide()
-> Result<()> {
    let podman = RootlessPodman::start()?;
    podman.podman("network create --disable-dns shop")?;
    for name in ["web", "db"] {
        podman
            .run(name, "shop")
            .context("a busybox with libraries does not run in a container: use busybox-static")?;
    }
    podman.run("alone", "slirp4netns")?;
    let [pid, alone] = ["web", "alone"].map(|name| podman.inspect(name, ".State.Pid"));
    let (pid, alone) = (pid?, alone?);

    let there = "podman unshare --rootless-netns farwire emulate";
    let no_end = "slirp4netns or pasta there is none";
    for (pid, words) in [(&pid, there), (&alone, no_end)] {
        let mut of_root = farwire();
        of_root.args(["emulate", "--pid", pid]);
        ends_with(&process::run(&mut of_root)?, 2, words)?;
    }
    let plain = format!("farwire emulate --pid {pid}");
    ends_with(&process::run(&mut podman.as_user(&plain))?, 3, there)?;
    let line = format!("{there} --container alone");
    ends_with(&process::run(&mut podman.as_user(&line))?, 2, no_end)?;

    let before = podman.ports()?;
    for target in [format!("--pid {pid}"), "--container web".to_owned()] {
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            let line = format!("{target} --up-delay 30ms --down-delay 20ms");
            let mut link = podman.emulate(&line)?;
            let least = podman.least_rtt_ms()?;
            ensure!(least >= 50.0, "{line}: {least} ms");
            link.signal(signal)?;
            let (status, said) = link.end()?;
            if signal == Signal::SIGINT {
                ensure!(status.success(), "{status}: {said}");
            } else {
                link.await_of_helper("is as it was before")?;
            }
            let after = podman.ports()?;
            ensure!(before == after, "before: {before}, after: {after}");
            podman.least_rtt_ms()?;
        }
    }

    let mut link = podman.emulate("--container web --delay 20ms")?;
    podman.podman("stop --time 0 web")?;
    link.await_line("is gone: waiting for container web")?;
    podman.podman("start web")?;
    link.await_line("container web is back: its link is inserted at")?;
    let least = podman.least_rtt_ms()?;
    ensure!(least >= 40.0, "{least} ms");
    podman.podman("stop --time 0 web db")?;
    podman.podman("start web")?;
    let (status, said) = link.end()?;
    has(&said, "container web is back in another network namespace")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    Ok(())
}
