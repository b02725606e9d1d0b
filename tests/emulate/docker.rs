//! A link at containers of Docker, whose daemon runs on a separate host.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::attach::least_rtt_ms;
use super::container::archive_of_tools;
use test_support::process::{self, ends_with, farwire, has, ip, run_in, stdout, wait_for};
use test_support::wan_box::WanBox;

/// A namespace in which a daemon of Docker runs containers, with separate storage, a separate socket and a separate bridge.
struct Docker {
    host: NetNs,
    dir: TempDir,
    daemon: Child,
}

impl Docker {
    fn start() -> Result<Self> {
        let host = NetNs::create()?;
        ip(&host, "link set lo up")?;
        let dir = tempfile::tempdir()?;
        let at = |name: &str| dir.path().join(name);
        let mut command = Command::new("dockerd");
        command.arg("--data-root").arg(at("data"));
        command.arg("--exec-root").arg(at("exec"));
        command.arg("--pidfile").arg(at("pid"));
        command.arg("--host");
        command.arg(format!("unix://{}", at("docker.sock").display()));
        // A daemon of this machine may use the same containerd.
        command.args(["--containerd-namespace", "farwire"]);
        command.args(["--containerd-plugins-namespace", "farwire-plugins"]);
        command.args(["--storage-driver", "vfs"]);
        let log = File::create(at("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        command.stderr(log);
        let daemon = host.run(|| command.spawn())??;
        fs::create_dir(at("bin"))?;
        symlink(which::which("docker")?, at("bin").join("docker"))?;
        let docker = Self { host, dir, daemon };
        let answers = || -> Result<Option<()>> {
            let mut version = docker.command("version");
            let output = process::run(&mut version)?;
            Ok(output.status.success().then_some(()))
        };
        wait_for("the daemon of Docker", answers).with_context(|| docker.last_words())?;
        let archive = archive_of_tools(docker.dir.path())?;
        docker.docker(&format!("import {} tools", archive.display()))?;
        Ok(docker)
    }

    /// Starts a container of this name on Docker's own bridge.
    fn run(&self, name: &str) -> Result<()> {
        let line = format!("run --detach --name {name} --label app=shop tools /bin/sleep 1000");
        self.docker(&line).map(drop)
    }

    /// Returns the address of a container on Docker's own bridge.
    fn address(&self, name: &str) -> Result<String> {
        let format = "{{.NetworkSettings.Networks.bridge.IPAddress}}";
        let address = self.docker(&format!("inspect --format {format} {name}"))?;
        Ok(address.trim().to_owned())
    }

    fn docker(&self, line: &str) -> Result<String> {
        let output = process::succeeds(&mut self.command(line))?;
        Ok(stdout(&output))
    }

    /// Returns the program of Docker with the words of `line`.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("docker");
        command.arg("--host").arg(self.address_of_socket());
        command.args(line.split(' ')).stdin(Stdio::null());
        command
    }

    fn address_of_socket(&self) -> String {
        format!("unix://{}", self.dir.path().join("docker.sock").display())
    }

    /// Returns the program under test, which finds the socket of this daemon, but no program of an engine.
    fn farwire(&self) -> Command {
        let mut command = farwire();
        command.env("PATH", self.dir.path().join("tree"));
        command.env("CONTAINER_HOST", "unix:///no/such/podman.sock");
        command.env("DOCKER_HOST", self.address_of_socket());
        command
    }

    /// Returns the program under test, which finds the program of Docker.
    fn farwire_with_program(&self) -> Command {
        let mut command = self.farwire();
        command.env("PATH", self.bin());
        command
    }

    /// Returns the directory of the only engine that the program under test finds.
    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    /// Returns the last line that the daemon has written.
    fn last_words(&self) -> String {
        let said = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        said.lines().last().unwrap_or("it wrote nothing").to_owned()
    }

    /// Returns the least round-trip time of pings from the host to a container, in ms.
    fn least_rtt_ms(&self, name: &str) -> Result<f64> {
        let mut ping = Command::new("ping");
        ping.args(["-q", "-c", "3", "-i", "0.2", &self.address(name)?]);
        least_rtt_ms(&stdout(&process::succeeds_in(&self.host, &mut ping)?))
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if let Ok(all) = self.docker("ps --all --quiet") {
            for container in all.lines() {
                let _ = self.docker(&format!("rm --force {container}"));
            }
        }
        // It ends its containerd, too, and unmounts what is in the directory.
        if let Ok(pid) = self.daemon.id().try_into() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.daemon.wait();
    }
}

#[test_support::test(Docker)]
fn a_container_is_impaired_whether_the_program_or_the_socket_of_docker_is_asked() -> Result<()> {
    let docker = Docker::start()?;
    for name in ["web", "db"] {
        docker.run(name)?;
    }
    let before = ip(&docker.host, "-brief link show type bridge_slave")?;
    for program in [Docker::farwire, Docker::farwire_with_program] {
        let mut command = program(&docker);
        command.args(["emulate", "--container", "nobody"]);
        let refused = run_in(&docker.host, &mut command)?;
        ends_with(&refused, 2, "No such container: nobody")?;
        let line = "--container web --delay 20ms";
        let wan = WanBox::start_at(program(&docker), &docker.host, line)?;
        let least = docker.least_rtt_ms("web")?;
        ensure!(least >= 40.0, "{least} ms");
        wan.stop()?;
        let wan = WanBox::start_at(program(&docker), &docker.host, "--label app=shop")?;
        let links = wan.stop_links()?;
        ensure!(links.len() == 2, "{links:?}");
    }
    let after = ip(&docker.host, "-brief link show type bridge_slave")?;
    ensure!(before == after, "before: {before}, after: {after}");
    Ok(())
}

#[test_support::test(Docker)]
fn a_container_of_docker_keeps_its_link_when_it_is_renamed_and_restarts() -> Result<()> {
    let docker = Docker::start()?;
    docker.run("web")?;
    docker.docker("network create back")?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(docker.farwire(), &docker.host, line)?;
    docker.docker("rename web shop")?;
    docker.docker("network connect back shop")?;
    wan.await_line("container web is called shop now")?;
    wan.await_line("`farwire emulate --container shop --network back` inserts a link there")?;
    docker.docker("network disconnect back shop")?;
    docker.docker("pause shop")?;
    docker.docker("unpause shop")?;
    docker.docker("stop --time 0 shop")?;
    wan.await_line("is gone: waiting for container shop")?;
    docker.docker("start shop")?;
    wan.await_line("container shop is back: its link is inserted at")?;
    let least = docker.least_rtt_ms("shop")?;
    ensure!(least >= 40.0, "{least} ms");
    docker.docker("rm --force shop")?;
    let (status, said) = wan.end()?;
    has(&said, "container shop was removed, and with it the network")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    Ok(())
}
