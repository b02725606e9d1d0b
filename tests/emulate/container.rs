//! A link at containers of Podman, which run on a separate host.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::attach::{counts, least_rtt_ms};
use test_support::process::{
    self, ends_with, farwire, has, ip, run_in, stdout, succeeds_in, wait_for,
};
use test_support::wan_box::WanBox;

/// A namespace in which Podman runs containers, with separate storage, configuration and a separate bridge.
pub(super) struct Podman {
    pub(super) host: NetNs,
    dir: TempDir,
}

impl Podman {
    pub(super) fn start() -> Result<Self> {
        let host = NetNs::create()?;
        ip(&host, "link set lo up")?;
        let podman = Self {
            host,
            dir: tempfile::tempdir()?,
        };
        let dir = podman.dir.path().display();
        let found = which::which("podman")?;
        let script = format!(
            "#!/bin/sh\nexec {} --root {dir}/root --runroot {dir}/run --tmpdir {dir}/tmp --network-config-dir {dir}/net \
             --storage-driver vfs --cgroup-manager cgroupfs --events-backend none --runtime runc \"$@\"\n",
            found.display()
        );
        fs::create_dir(podman.bin())?;
        let wrapper = podman.bin().join("podman");
        fs::write(&wrapper, script)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
        let archive = archive_of_tools(podman.dir.path())?;
        podman.podman(&format!("import {} tools", archive.display()))?;
        Ok(podman)
    }

    /// Starts a container of this name on `network`.
    pub(super) fn run(&self, name: &str, network: &str) -> Result<()> {
        let limits = "--ulimit nofile=20000:20000 --ulimit nproc=10000:10000 --cap-add net_raw";
        let line = format!(
            "run --detach --name {name} --label app=shop --network {network} {limits} tools /bin/sleep 1000"
        );
        self.podman(&line)
            .context("a busybox with libraries does not run in a container: use busybox-static")
            .map(drop)
    }

    pub(super) fn address(&self, name: &str) -> Result<String> {
        let format = "{{.NetworkSettings.IPAddress}}";
        let address = self.podman(&format!("container inspect --format {format} {name}"))?;
        Ok(address.trim().to_owned())
    }

    pub(super) fn podman(&self, line: &str) -> Result<String> {
        let mut command = Command::new(self.bin().join("podman"));
        command.args(line.split(' ')).stdin(Stdio::null());
        Ok(stdout(&succeeds_in(&self.host, &mut command)?))
    }

    /// Returns the program under test, which finds this Podman and no other engine.
    pub(super) fn farwire(&self) -> Command {
        let mut command = farwire();
        command.env("PATH", self.bin());
        command.env("DOCKER_HOST", "unix:///no/such/docker.sock");
        command
    }

    /// Serves Podman's API at `socket` until the process is killed.
    fn serve(&self, socket: &Path) -> Result<Child> {
        let mut command = Command::new(self.bin().join("podman"));
        command.args(["system", "service", "--time", "0"]);
        command.arg(format!("unix://{}", socket.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        let service = self.host.run(|| command.spawn())??;
        wait_for("the socket of Podman", || Ok(socket.exists().then_some(())))?;
        Ok(service)
    }

    fn refuses(&self, line: &str, code: i32, words: &str) -> Result<()> {
        let mut command = self.farwire();
        command.arg("emulate").args(line.split(' '));
        ends_with(&run_in(&self.host, &mut command)?, code, words).map(drop)
    }

    /// Returns the directory of the only engine that the program under test finds.
    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.podman("rm --force --time 0 --all");
    }
}

#[test_support::test(Podman)]
fn the_command_of_the_guide_impairs_a_container_and_no_other() -> Result<()> {
    let podman = Podman::start()?;
    for name in ["web", "db"] {
        podman.run(name, "bridge")?;
    }
    let (web, db) = (podman.address("web")?, podman.address("db")?);
    let before = bridge_ports(&podman.host)?;
    let mut watch = Command::new("ping");
    watch.args(["-q", "-i", "0.02", "-c", "1000000", &db]);
    watch.stdout(Stdio::piped());
    let watch = podman.host.run(|| watch.spawn())??;

    let line = command_of_the_guide()?;
    let wan = WanBox::start_at(podman.farwire(), &podman.host, &line)?;
    for line in [
        format!("exec db ping -q -c 4 {web}"),
        format!("exec web ping -q -c 4 {db}"),
    ] {
        let least = least_rtt_ms(&podman.podman(&line)?)?;
        ensure!(least >= 100.0, "{line}: {least} ms");
    }
    let second = "another farwire already uses interface";
    podman.refuses("--container web", 1, second)?;
    let summary = wan.stop()?;
    ensure!(
        summary.up.delivered > 5 && summary.down.delivered > 5,
        "{summary:?}"
    );
    let after = bridge_ports(&podman.host)?;
    ensure!(before == after, "before: {before}, after: {after}");
    podman.podman(&format!("exec db ping -q -c 1 {web}"))?;

    kill(Pid::from_raw(watch.id().try_into()?), Signal::SIGINT)?;
    let said = stdout(&watch.wait_with_output()?);
    let [sent, answered] = counts(&said)?;
    // The last one may have been under way.
    ensure!(answered > 5 && sent - answered <= 1, "{said}");

    let mut all = WanBox::start_at(
        podman.farwire(),
        &podman.host,
        "--label app=shop --delay 20ms",
    )?;
    podman.podman("stop --time 0 web")?;
    all.await_line("is gone: waiting for container web")?;
    podman.podman("start web")?;
    all.await_line("container web is back: its link is inserted at")?;
    let web = podman.address("web")?;
    let least = least_rtt_ms(&podman.podman(&format!("exec db ping -q -c 3 {web}"))?)?;
    // Both containers have a link.
    ensure!(least >= 80.0, "{least} ms");
    podman.podman("stop --time 0 web")?;
    let mut ping = Command::new("ping");
    let output = succeeds_in(&podman.host, ping.args(["-q", "-c", "3", &db]))?;
    let least = least_rtt_ms(&stdout(&output))?;
    ensure!(least >= 40.0, "{least} ms");
    let links = all.stop_links()?;
    ensure!(
        links.len() == 2 && links.iter().any(|of| of.up.delivered > 2),
        "{links:?}"
    );
    Ok(())
}

#[test_support::test(Podman)]
fn a_container_that_cannot_get_a_link_is_refused_and_one_that_is_removed_ends_its_link()
-> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    podman.run("alone", "none")?;
    podman.run("open", "host")?;
    podman.refuses("--container nobody", 2, "no such container")?;
    podman.refuses("--label app=none", 2, "no running container")?;
    podman.refuses("--container alone", 2, "exec --net host")?;
    podman.refuses("--container open", 2, "exec --net host")?;
    let mut wan = WanBox::start_at(podman.farwire(), &podman.host, "--container web")?;
    podman.podman("pause web")?;
    podman.podman("unpause web")?;
    podman.podman("stop --time 0 web")?;
    wan.await_line("is gone: waiting for container web")?;
    podman.refuses("--container web", 2, "is not running")?;
    podman.podman("rm web")?;
    let (status, said) = wan.end()?;
    has(&said, "container web was removed, and with it the network")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    podman.refuses("--container web", 2, "no such container")?;
    let left = ip(&podman.host, "-brief link show type veth")?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

#[test_support::test(Podman)]
fn a_container_that_is_renamed_and_starts_again_keeps_its_link() -> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(podman.farwire(), &podman.host, line)?;
    podman.podman("rename web shop")?;
    podman.podman("stop --time 0 shop")?;
    wan.await_line("is gone: waiting for container web")?;
    wan.await_line("container web is called shop now")?;
    podman.podman("start shop")?;
    wan.await_line("container shop is back: its link is inserted at")?;
    let shop = podman.address("shop")?;
    let mut ping = Command::new("ping");
    let output = succeeds_in(&podman.host, ping.args(["-q", "-c", "3", &shop]))?;
    let least = least_rtt_ms(&stdout(&output))?;
    ensure!(least >= 40.0, "{least} ms");
    wan.stop().map(drop)
}

#[test_support::test(Podman)]
fn a_network_that_a_container_joins_is_named_and_one_that_it_leaves_ends_no_other_link()
-> Result<()> {
    let podman = Podman::start()?;
    podman.podman("network create --disable-dns back")?;
    podman.run("web", "bridge")?;
    let web = podman.address("web")?;
    let line = "--container web --delay 20ms";
    let start = |line| WanBox::start_at(podman.farwire(), &podman.host, line);
    let is_impaired = || -> Result<()> {
        let mut ping = Command::new("ping");
        let output = succeeds_in(&podman.host, ping.args(["-q", "-c", "3", &web]))?;
        let least = least_rtt_ms(&stdout(&output))?;
        ensure!(least >= 40.0, "{least} ms");
        Ok(())
    };
    let mut wan = start(line)?;
    podman.podman("network connect back web")?;
    wan.await_line("container web has joined the network back, which gets no link")?;
    start("--container web --network back")?.stop()?;
    podman.podman("network disconnect back web")?;
    is_impaired()?;
    wan.stop()?;

    podman.podman("network connect back web")?;
    let mut wan = start(line)?;
    podman.podman("network disconnect back web")?;
    wan.await_line("is gone: waiting for container web")?;
    is_impaired()?;
    let links = wan.stop_links()?;
    ensure!(links.len() == 2, "{links:?}");
    Ok(())
}

#[test_support::test(Podman)]
fn without_podman_on_path_its_socket_is_asked() -> Result<()> {
    let podman = Podman::start()?;
    podman.run("web", "bridge")?;
    let socket = podman.dir.path().join("api.sock");
    let mut service = podman.serve(&socket)?;
    let farwire = || {
        let mut command = podman.farwire();
        command.env("PATH", podman.dir.path().join("tree"));
        command.env("CONTAINER_HOST", format!("unix://{}", socket.display()));
        command
    };
    let try_socket = || -> Result<()> {
        let web = podman.address("web")?;
        for line in [
            "--container web --delay 20ms",
            "--label app=shop --delay 20ms",
        ] {
            let wan = WanBox::start_at(farwire(), &podman.host, line)?;
            let mut ping = Command::new("ping");
            let output = succeeds_in(&podman.host, ping.args(["-q", "-c", "3", &web]))?;
            let least = least_rtt_ms(&stdout(&output))?;
            ensure!(least >= 40.0, "{line}: {least} ms");
            wan.stop()?;
        }
        let mut nobody = farwire();
        nobody.args(["emulate", "--container", "nobody"]);
        let refused = run_in(&podman.host, &mut nobody)?;
        ends_with(&refused, 2, "no such container").map(drop)
    };
    let tried = try_socket();
    service.kill()?;
    service.wait()?;
    tried
}

/// Writes the tree of an image into the directory `tree` of `dir`, with a busybox that needs no libraries. Returns the archive
/// of it.
pub(super) fn archive_of_tools(dir: &Path) -> Result<PathBuf> {
    let (tree, archive) = (dir.join("tree"), dir.join("tree.tar"));
    let bin = tree.join("bin");
    fs::create_dir_all(&bin)?;
    fs::copy(which::which("busybox")?, bin.join("busybox"))?;
    for tool in ["sleep", "ping"] {
        symlink("busybox", bin.join(tool))?;
    }
    let mut tar = Command::new("tar");
    tar.args(["-c", "-C"]).arg(&tree).arg("-f");
    process::succeeds(tar.arg(&archive).arg("."))?;
    Ok(archive)
}

/// Returns the arguments of `farwire emulate` that the guide shows.
fn command_of_the_guide() -> Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/container.md");
    let text = fs::read_to_string(page)?;
    let mut shown = text
        .lines()
        .filter_map(|line| line.strip_prefix("# farwire emulate "));
    let found = shown.find(|line| line.starts_with("--container web"));
    Ok(found.context("the guide shows no command")?.to_owned())
}

/// Returns the names and addresses of the ports of all bridges.
fn bridge_ports(host: &NetNs) -> Result<String> {
    ip(host, "-brief link show type bridge_slave")
}
