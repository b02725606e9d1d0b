//! A link at containers that an engine names: by container, label, service and network, also in rules and after a restart.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::{env, fs, iter};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::attach::{Bridged, Container};
use test_support::process::{self, ends_with, farwire, has, ip, run_in, stdout, wait_for};
use test_support::wan_box::WanBox;

/// A directory with programs that answer as container engines do. They print the process, the ID and the name of a
/// container, whose ID is its name unless a test needs another one.
struct Engines {
    dir: TempDir,
}

impl Engines {
    fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        Ok(Self { dir })
    }

    /// Adds the engine `name`, or replaces it. It runs this script of sh.
    fn add(&self, name: &str, script: &str) -> Result<()> {
        let (path, new) = (self.dir.path().join(name), self.dir.path().join("new"));
        fs::write(&new, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
        // The one that is replaced may be running.
        Ok(fs::rename(new, path)?)
    }

    /// Answers at the socket of Docker's API as its engine does: `answer` returns the JSON for the target of a request, or
    /// `None` for a container that the engine does not know.
    fn serve(&self, answer: impl Fn(&str) -> Option<String> + Send + 'static) -> Result<()> {
        let listener = UnixListener::bind(self.socket())?;
        thread::spawn(move || {
            for connection in listener.incoming() {
                // A client that has gone is not the engine's fault.
                let _ = connection.and_then(|mut connection| {
                    let mut request = [0; 4_096];
                    let length = connection.read(&mut request)?;
                    let request = String::from_utf8_lossy(&request[..length]);
                    let target = request.split(' ').nth(1).unwrap_or_default();
                    let unknown = r#"{"message": "No such container: web"}"#;
                    let (status, body) = match answer(target) {
                        Some(body) => ("200 OK", body),
                        None => ("404 Not Found", unknown.to_owned()),
                    };
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
                    connection.write_all((head + &body).as_bytes())
                });
            }
        });
        Ok(())
    }

    /// Returns the place of the socket of Docker's API, which is not there unless this serves it.
    fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    /// Returns the program under test, which finds these engines and no others.
    fn farwire(&self) -> Command {
        let mut command = farwire();
        command.env("PATH", self.dir.path());
        command.env("CONTAINER_HOST", "unix:///no/such/podman.sock");
        command.env("DOCKER_HOST", format!("unix://{}", self.socket().display()));
        command
    }
}

/// Returns a host with a container, and engines of which Podman knows the container as `web`.
fn web() -> Result<(Bridged, Container, Engines)> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let engines = Engines::new()?;
    engines.add("podman", &format!("echo {} web web", own.pid()))?;
    Ok((bridged, own, engines))
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_that_restarts_is_attached_again_and_one_that_is_removed_ends_its_link() -> Result<()>
{
    let bridged = Bridged::start()?;
    let mut own = bridged.connect(2)?;
    let engines = Engines::new()?;
    let file = engines.dir.path().join("pid");
    let answer = |pid: &str| fs::write(&file, pid);
    answer(&own.pid().to_string())?;
    let reads = format!("read pid < {}; echo $pid web web", file.display());
    engines.add("podman", &reads)?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    for _ in 0..2 {
        answer("0")?;
        drop(own);
        wan.await_line("veth2 is gone: waiting for container web")?;
        own = bridged.connect(2)?;
        answer(&own.pid().to_string())?;
        wan.await_line("container web is back: its link is inserted at veth2")?;
        let least = bridged.least_rtt_ms()?;
        ensure!(least >= 40.0, "{least} ms");
        wan.forget_lines();
    }
    // The engine is asked after the interface is gone, so the container may still seem to run.
    drop(own);
    wan.await_line("veth2 is gone: waiting for container web")?;
    engines.add(
        "podman",
        "echo 'Error: no such container web' >&2; exit 125",
    )?;
    let (status, said) = wan.end()?;
    has(&said, "container web was removed, and with it the network")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    let left = ip(&bridged.host, "-brief link show type veth")?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// The answers have the form that Docker's documentation of its API shows.
#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn without_the_program_of_an_engine_its_socket_is_asked_also_after_a_restart() -> Result<()> {
    const REMOVED: u32 = u32::MAX;
    let bridged = Bridged::start()?;
    let mut own = bridged.connect(2)?;
    let text = ip(&own.ns, "-brief link show eth0")?;
    let mac = text.split_whitespace().nth(2).context("no address")?;
    let mac = mac.to_owned();
    let pid = Arc::new(AtomicU32::new(own.pid()));
    let engines = Engines::new()?;
    let answered = Arc::clone(&pid);
    engines.serve(move |target| {
        let pid = answered.load(Ordering::Relaxed);
        match target {
            "/containers/web/json" | "/containers/6f/json" if pid != REMOVED => Some(format!(
                r#"{{"Id": "6f", "Name": "/web", "State": {{"Running": {}, "Pid": {pid}}},
                    "NetworkSettings": {{"Networks": {{"front": {{"IPAddress": "10.9.0.2", "GlobalIPv6Address": "",
                    "MacAddress": "{mac}"}}}}}}}}"#,
                pid > 0
            )),
            "/containers/json?filters=%7B%22label%22%3A%5B%22app%3Dshop%22%5D%7D" => {
                Some(r#"[{"Id": "6f", "Names": ["/web"]}]"#.to_owned())
            }
            _ => None,
        }
    })?;
    for line in ["--container web --network front", "--label app=shop"] {
        WanBox::start_at(engines.farwire(), &bridged.host, line)?.stop()?;
    }
    let mut emulate = engines.farwire();
    emulate.args(["emulate", "--container", "nobody"]);
    let refused = run_in(&bridged.host, &mut emulate)?;
    ends_with(&refused, 2, "docker.sock: No such container")?;

    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    pid.store(0, Ordering::Relaxed);
    drop(own);
    wan.await_line("veth2 is gone: waiting for container web")?;
    own = bridged.connect(2)?;
    pid.store(own.pid(), Ordering::Relaxed);
    wan.await_line("container web is back: its link is inserted at veth2")?;
    let least = bridged.least_rtt_ms()?;
    ensure!(least >= 40.0, "{least} ms");
    pid.store(REMOVED, Ordering::Relaxed);
    drop(own);
    let (status, said) = wan.end()?;
    has(&said, "container web was removed, and with it the network")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    Ok(())
}

/// Another container has its former name.
#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_that_is_renamed_keeps_its_link_and_is_named_by_its_new_name() -> Result<()> {
    let bridged = Bridged::start()?;
    let (own, neighbour) = (bridged.connect(2)?, bridged.connect(3)?);
    let (pid, other) = (own.pid(), neighbour.pid());
    let text = ip(&own.ns, "-brief link show eth0")?;
    let mac = text.split_whitespace().nth(2).context("no address")?;
    let engines = Engines::new()?;
    let knows = |names: &str| {
        let script = format!(
            r#"
            case "$*" in
                *Networks*" -- 6f")
                    echo '/any {{"front": {{"MacAddress": "{mac}"}}, "back": {{"MacAddress": "02:00:00:00:00:05"}}}}';;
                {names}
                *) echo 'Error: no such container' >&2; exit 125;;
            esac"#
        );
        engines.add("podman", &script)
    };
    knows(&format!(r#"*" -- web") echo {pid} 6f web;;"#))?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    knows(&format!(
        r#"*" -- 6f") echo {pid} 6f shop;; *" -- web") echo {other} 70 web;;"#
    ))?;
    ip(&bridged.host, "link del veth2")?;
    wan.await_line("veth2 is gone: waiting for container web")?;
    wan.await_line("container web is called shop now")?;
    bridged.join(&own, 2)?;
    wan.await_line("container shop is back: its link is inserted at veth2")?;
    let least = bridged.least_rtt_ms()?;
    ensure!(least >= 40.0, "{least} ms");
    let peer = format!("peer name eth1 address 02:00:00:00:00:05 netns {pid}");
    ip(&bridged.host, &format!("link add veth5 type veth {peer}"))?;
    ip(&bridged.host, "link set veth5 master br0 up")?;
    ip(&own.ns, "link set eth1 up")?;
    wan.await_line("`farwire emulate --container shop --network back` inserts a link there")?;
    knows("")?;
    ip(&bridged.host, "link del veth2")?;
    let (status, said) = wan.end()?;
    has(&said, "container shop was removed, and with it the network")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_that_leaves_its_network_and_joins_it_again_keeps_its_link() -> Result<()> {
    let (bridged, own, engines) = web()?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    ip(&bridged.host, "link del veth2")?;
    wan.await_line("veth2 is gone: waiting for container web")?;
    bridged.join(&own, 2)?;
    wan.await_line("container web is back: its link is inserted at veth2")?;
    let state = bridged.state()?;
    wan.end_by(Signal::SIGKILL)?;
    wait_for("the state before", || {
        let now = bridged.state()?;
        Ok((now != state && !now.contains("farw")).then_some(()))
    })?;
    let ping = ["-q", "-c", "1", "-W", "10", "10.9.0.2"];
    process::succeeds_in(&bridged.host, Command::new("ping").args(ping))?;
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_that_is_attached_again_is_shown_with_its_new_interface() -> Result<()> {
    let (bridged, own, engines) = web()?;
    let at = format!("unix:{}", engines.dir.path().join("socket").display());
    let line = format!("--container web --listen {at}");
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, &line)?;
    let near = || -> Result<String> {
        let links: Value = process::json(farwire().args(["links", "--at", &at, "--json", "-"]))?;
        let near = links["links"][0]["ends"][0].as_str();
        Ok(near.context("no link")?.to_owned())
    };
    ensure!(near()? == "veth2");
    ip(&bridged.host, "link del veth2")?;
    wan.await_line("veth2 is gone: waiting for container web")?;
    bridged.join(&own, 4)?;
    wan.await_line("container web is back: its link is inserted at veth4")?;
    ensure!(near()? == "veth4");
    let summary = wan.stop()?;
    let mut returned = summary.interfaces.iter().filter(|of| of.back > 0);
    let of_container = returned.next().context("no interface came back")?;
    ensure!(of_container.name == "veth4", "{of_container:?}");
    ensure!(of_container.gone == 1, "{of_container:?}");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_that_changes_its_network_gets_its_link_at_the_new_interface() -> Result<()> {
    let (bridged, own, engines) = web()?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    ip(&bridged.host, "link del veth2")?;
    wan.await_line("veth2 is gone: waiting for container web")?;
    let pid = own.pid();
    let pair = format!("link add veth5 type veth peer name eth1 netns {pid}");
    ip(&bridged.host, &pair)?;
    ip(&bridged.host, "link set veth5 master br0 up")?;
    ip(&own.ns, "addr add 10.9.0.2/24 dev eth1")?;
    ip(&own.ns, "link set eth1 up")?;
    wan.await_line("container web is back: its link is inserted at veth5")?;
    let least = bridged.least_rtt_ms()?;
    ensure!(least >= 40.0, "{least} ms");
    wan.stop().map(drop)
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_network_that_a_container_joins_is_named_and_one_that_it_leaves_ends_no_other_link()
-> Result<()> {
    let (bridged, own, engines) = web()?;
    let text = ip(&own.ns, "-brief link show eth0")?;
    let mac = text.split_whitespace().nth(2).context("no address")?;
    let pid = own.pid();
    let knows_networks = format!(
        r#"
        case "$*" in
            *Networks*)
                echo '/web {{"front": {{"MacAddress": "{mac}"}}, "back": {{"MacAddress": "02:00:00:00:00:05"}}}}';;
            *) echo {pid} web web;;
        esac"#
    );
    engines.add("podman", &knows_networks)?;
    ip(&bridged.host, "link add br1 type bridge")?;
    ip(&bridged.host, "link set br1 up")?;
    let join = || -> Result<()> {
        let peer = format!("peer name eth1 address 02:00:00:00:00:05 netns {pid}");
        ip(&bridged.host, &format!("link add veth5 type veth {peer}"))?;
        ip(&bridged.host, "link set veth5 master br1 up")?;
        ip(&own.ns, "link set eth1 up").map(drop)
    };
    let line = "--container web --delay 20ms";
    let start = |line| WanBox::start_at(engines.farwire(), &bridged.host, line);
    let is_impaired = || -> Result<()> {
        let least = bridged.least_rtt_ms()?;
        ensure!(least >= 40.0, "{least} ms");
        Ok(())
    };
    let mut wan = start(line)?;
    join()?;
    wan.await_line("container web has joined the network back, which gets no link")?;
    wan.await_line("`farwire emulate --container web --network back` inserts a link there")?;
    start("--container web --network back")?.stop()?;
    ip(&bridged.host, "link del veth5")?;
    is_impaired()?;
    wan.stop()?;

    join()?;
    let mut wan = start(line)?;
    ip(&bridged.host, "link del veth5")?;
    wan.await_line("veth5 is gone: waiting for container web")?;
    is_impaired()?;
    let links = wan.stop_links()?;
    ensure!(links.len() == 2, "{links:?}");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn an_engine_that_does_not_answer_keeps_nothing_of_a_killed_emulator() -> Result<()> {
    let (bridged, _own, engines) = web()?;
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, "--container web")?;
    let (file, sleep) = (engines.dir.path().join("pid"), which::which("sleep")?);
    let hangs = format!("echo $$ >{}; exec {} 1000", file.display(), sleep.display());
    engines.add("podman", &hangs)?;
    ip(&bridged.host, "link del veth2")?;
    let engine = wait_for("a question to the engine", || {
        let pid = fs::read_to_string(&file).unwrap_or_default();
        Ok(pid.trim().parse().ok().map(Pid::from_raw))
    })?;
    // It waits until no process of farwire has the standard error of the emulator.
    let ended = wan.end_by(Signal::SIGKILL);
    kill(engine, Signal::SIGKILL)?;
    ended.map(drop)
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn without_the_helper_that_watches_containers_a_link_goes_on_until_its_interface_is_gone()
-> Result<()> {
    let (bridged, own, engines) = web()?;
    let line = "--container web --delay 20ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    let helper = Pid::from_raw(wan.container_watcher()?.try_into()?);
    kill(helper, Signal::SIGKILL)?;
    wan.await_line("the helper process that watches containers has died")?;
    let least = bridged.least_rtt_ms()?;
    ensure!(least >= 40.0, "{least} ms");
    drop(own);
    let (status, said) = wan.end()?;
    has(&said, "veth2 is gone, and with it the network")?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_signal_before_the_link_is_inserted_leaves_no_pair_behind() -> Result<()> {
    let (bridged, own, engines) = web()?;
    let state = bridged.state()?;
    let interrupts = format!("kill -INT $PPID; echo {} web web", own.pid());
    engines.add("podman", &interrupts)?;
    let mut emulate = engines.farwire();
    emulate.args(["emulate", "--container", "web"]);
    let ended = run_in(&bridged.host, &mut emulate)?;
    ends_with(&ended, 1, "interrupted by a signal")?;
    ensure!(bridged.state()? == state, "something is left behind");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_is_found_by_its_name_and_a_namespace_by_its_path() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let engines = Engines::new()?;
    let emulate = || {
        let mut command = engines.farwire();
        command.args(["emulate", "--container", "web"]);
        run_in(&bridged.host, &mut command)
    };
    ends_with(&emulate()?, 3, "neither podman nor docker")?;
    let format = "{{.State.Pid}} {{.Id}} {{.Name}}";
    let asked = format!("test \"$*\" = 'container inspect --format {format} -- web' || exit 9");
    engines.add("docker", "echo 'no such container: web' >&2; exit 1")?;
    ends_with(&emulate()?, 2, "docker: no such container: web")?;
    // The one that does not answer may know the container.
    let denied = "permission denied while trying to connect to the Docker daemon socket";
    engines.add("podman", &format!("echo '{denied}' >&2; exit 1"))?;
    ends_with(&emulate()?, 3, denied)?;
    engines.add("podman", &format!("{asked}; echo 0 web web"))?;
    ends_with(&emulate()?, 2, "is not running")?;
    engines.add("docker", &format!("{asked}; echo {} 6f /web", own.pid()))?;
    ends_with(&emulate()?, 2, "podman and docker both")?;
    let path = format!("/proc/{}/ns/net", own.pid());
    let wan = WanBox::start_at(
        farwire(),
        &bridged.host,
        &format!("--netns {path} --network eth0"),
    )?;
    wan.stop()?;
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn every_labelled_container_gets_its_links_once_whichever_engine_answers() -> Result<()> {
    let bridged = Bridged::start()?;
    let (web, db) = (bridged.connect(2)?, bridged.connect(3)?);
    let side = web.beside()?;
    let engines = Engines::new()?;
    let knows_all = format!(
        r#"
        case "$*" in
            "ps --filter label=app=shop --format {{{{.Names}}}}") printf 'web
side
db
';;
            "ps "*) ;;
            *" -- web") echo {} web web;;
            *" -- side") echo {} side side;;
            *" -- db") echo {} db db;;
        esac"#,
        web.pid(),
        side.pid(),
        db.pid()
    );
    let no_daemon = "echo 'Cannot connect to the daemon' >&2; exit 1";
    engines.add("podman", &knows_all)?;
    // The second one is Podman under another name, as Debian's podman-docker is.
    for docker in [no_daemon, &knows_all] {
        engines.add("docker", docker)?;
        let logs = tempfile::tempdir()?;
        let log = logs.path().join("log.csv");
        let line = format!(
            "--label app=shop --delay 1ms --packet-log {}",
            log.display()
        );
        let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, &line)?;
        wan.await_line("link at web, db of the containers with label app=shop")?;
        let links = wan.stop_links()?;
        ensure!(links.len() == 2, "{links:?}");
        let is_logged = links.iter().all(|of| of.packet_log.is_some());
        let files = fs::read_dir(logs.path())?.count();
        ensure!(is_logged && files == 2, "{files} files: {links:?}");
    }
    WanBox::start_at(engines.farwire(), &bridged.host, "--container web")?.stop()?;
    let emulate = |label: &str| {
        let mut command = engines.farwire();
        command.args(["emulate", "--label", label]);
        run_in(&bridged.host, &mut command)
    };
    ends_with(&emulate("app=none")?, 2, "no running container")?;
    engines.add("docker", no_daemon)?;
    let why = "no running container has this label (docker: Cannot connect to the daemon)";
    ends_with(&emulate("app=none")?, 2, why)?;
    engines.add("podman", "echo 'Error: no storage' >&2; exit 125")?;
    let why = "podman: Error: no storage; docker: Cannot connect to the daemon";
    ends_with(&emulate("app=shop")?, 3, why)?;
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_labelled_container_about_which_an_engine_does_not_answer_is_named() -> Result<()> {
    let (bridged, own, engines) = web()?;
    let pid = own.pid();
    let knows_one = format!(
        r#"
        case "$*" in
            "ps --filter label=app=shop "*) echo web; echo db; echo former;;
            "ps "*) echo db;;
            *" -- web") echo {pid} web web;;
            *" -- db") echo 'Error: database is locked' >&2; exit 125;;
            *) echo 'Error: no such container' >&2; exit 125;;
        esac"#
    );
    engines.add("podman", &knows_one)?;
    engines.add("docker", "echo 'Cannot connect to the daemon' >&2; exit 1")?;
    let line = "--label app=shop";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    let words = "containers with label app=shop may be without a link: ";
    wan.await_line(&format!("{words}docker: Cannot connect to the daemon"))?;
    wan.await_line(&format!(
        "{words}podman: container db: Error: database is locked"
    ))?;
    let (_, said) = wan.end_by(Signal::SIGTERM)?;
    ensure!(!said.contains("former"), "{said}");
    let mut emulate = engines.farwire();
    emulate.args(["emulate", "--label", "app=batch"]);
    let refused = run_in(&bridged.host, &mut emulate)?;
    let words = "podman: container db: Error: database is locked";
    ends_with(&refused, 3, words).map(drop)
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_labelled_container_without_an_end_here_is_skipped_unless_no_other_is_left() -> Result<()> {
    let bridged = Bridged::start()?;
    let (web, alone) = (bridged.connect(2)?, Container::start()?);
    let engines = Engines::new()?;
    let knows_both = format!(
        r#"
        case "$*" in
            "ps --filter label=app=shop "*) echo alone; echo web;;
            "ps "*) echo alone;;
            *" -- web") echo {} web web;;
            *" -- alone") echo {} alone alone;;
        esac"#,
        web.pid(),
        alone.pid()
    );
    engines.add("podman", &knows_both)?;
    let line = "--label app=shop";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    wan.await_line(
        "gets no link: container alone has no interface whose other end is on this host",
    )?;
    wan.await_line("link at web of the containers with label app=shop")?;
    wan.stop()?;
    let mut emulate = engines.farwire();
    emulate.args(["emulate", "--label", "app=batch"]);
    let refused = run_in(&bridged.host, &mut emulate)?;
    let words = "container alone has no interface whose other end is on this host";
    ends_with(&refused, 2, words).map(drop)
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn containers_of_two_engines_that_have_one_name_get_links_of_two_names() -> Result<()> {
    let bridged = Bridged::start()?;
    let containers = [bridged.connect(2)?, bridged.connect(3)?];
    let engines = Engines::new()?;
    for (engine, container) in ["podman", "docker"].into_iter().zip(&containers) {
        let pid = container.pid();
        let knows_web = format!("case $1 in ps) echo web;; *) echo {pid} web web;; esac");
        engines.add(engine, &knows_web)?;
    }
    let line = "--label app=shop --delay 1ms";
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    wan.await_line("link at web, web-docker of the containers with label app=shop")?;
    wan.stop_links()?;
    // Another container has the name that results.
    let third = bridged.connect(4)?;
    let pid = third.pid();
    let (web, other) = (containers[0].pid(), "web-docker");
    let knows_two = format!(
        "case \"$*\" in ps*) echo web; echo {other};; *{other}) echo {pid} {other} {other};; \
         *) echo {web} web web;; esac"
    );
    engines.add("podman", &knows_two)?;
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
    let words = "link at web, web-docker, web-docker-veth3 of the containers with label app=shop";
    wan.await_line(words)?;
    wan.stop_links().map(drop)
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn only_the_engine_that_knows_a_container_is_asked_for_its_networks() -> Result<()> {
    let (bridged, _own, engines) = web()?;
    let asked = engines.dir.path().join("asked");
    let script = "case \"$*\" in ps*) ;; *Networks*) echo >FILE; exit 1;; *) exit 1;; esac";
    let script = script.replace("FILE", &asked.display().to_string());
    engines.add("docker", &script)?;
    WanBox::start_at(engines.farwire(), &bridged.host, "--container web")?.stop()?;
    ensure!(!asked.exists(), "docker was asked");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_network_has_the_name_that_the_engine_gives_it_and_a_service_that_of_compose() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let text = ip(&own.ns, "-brief link show eth0")?;
    let mac = text.split_whitespace().nth(2).context("no address")?;
    let engines = Engines::new()?;
    let knows_networks = format!(
        r#"
        case "$*" in
            "ps --filter label=com.docker.compose.service=shop --format "*) echo web;;
            *"{{{{json .NetworkSettings.Networks}}}} -- web")
                echo '/web {{"front": {{"MacAddress": "{mac}"}}, "lost": {{"MacAddress": "02:00:00:00:00:09"}}}}';;
            *" -- web") echo {} web /web;;
        esac"#,
        own.pid()
    );
    engines.add("docker", &knows_networks)?;
    for line in [
        "--container web --network front",
        "--service shop --network eth0",
    ] {
        let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, line)?;
        wan.await_line("link at ")?;
        wan.stop()?;
    }
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, "--container web")?;
    wan.await_line(
        "no interface inside has the hardware address that the engine has for its network lost",
    )?;
    wan.stop()?;
    let mut emulate = engines.farwire();
    emulate.args(["emulate", "--container", "web", "--network", "back"]);
    let refused = run_in(&bridged.host, &mut emulate)?;
    let words = "has no interface or network back; it has eth0 (front)";
    ends_with(&refused, 2, words).map(drop)
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_process_here_is_not_taken_for_the_container_of_an_engine_elsewhere() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let engines = Engines::new()?;
    let knows_another = format!(
        r#"
        case "$*" in
            "ps "*) echo web;;
            *"{{{{json .NetworkSettings.Networks}}}} -- web") echo '/web {{"front": {{"MacAddress": "02:00:00:00:00:09"}}}}';;
            *" -- web") echo {} web /web;;
        esac"#,
        own.pid()
    );
    engines.add("docker", &knows_another)?;
    let state = bridged.state()?;
    for line in ["--container web", "--label app=shop"] {
        let mut emulate = engines.farwire();
        emulate.arg("emulate").args(line.split(' '));
        let refused = run_in(&bridged.host, &mut emulate)?;
        ends_with(&refused, 2, "has other hardware addresses here")?;
    }
    ensure!(bridged.state()? == state, "something is left behind");
    Ok(())
}

#[test_support::test(
    Namespaces,
    Ingress,
    Device("bridge"),
    Tool("ip"),
    Tool("ping"),
    Tool("python3")
)]
fn a_test_in_python_attaches_to_a_container_and_leaves_nothing_when_it_is_killed() -> Result<()> {
    let (bridged, _own, engines) = web()?;
    let state = bridged.state()?;
    let script = "
import farwire
wan = farwire.Wan()
wan.attach(container='web').set(delay='30ms')
print('set', flush=True)
input()
";
    let mut python = Command::new(which::which("python3")?);
    python.args(["-B", "-c", script]);
    // Python itself may be a script that needs other programs.
    let path = env::var_os("PATH").unwrap_or_default();
    let own_first = iter::once(engines.dir.path().to_owned()).chain(env::split_paths(&path));
    python.env("PATH", env::join_paths(own_first)?);
    python.env("PYTHONPATH", process::root().join("python"));
    python.env("FARWIRE_BIN", process::program());
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = bridged.host.run(|| python.spawn())??;
    let mut line = [0; 4];
    let stdout = python.stdout.as_mut().context("no output")?;
    stdout.read_exact(&mut line).context("python failed")?;
    let least = bridged.least_rtt_ms()?;
    ensure!(least >= 60.0, "{least} ms");
    python.kill()?;
    python.wait()?;
    wait_for("the state before", || {
        Ok((bridged.state()? == state).then_some(()))
    })
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_rule_has_the_name_of_a_container_or_of_a_host() -> Result<()> {
    let bridged = Bridged::start()?;
    let (own, neighbour) = (bridged.connect(2)?, bridged.connect(3)?);
    let engines = Engines::new()?;
    let networks = r#"
        case "$*" in
            *"{{json .NetworkSettings.Networks}} -- db")
                echo 'db {"front": {"IPAddress": "10.9.0.3", "GlobalIPv6Address": ""},
                          "back": {"IPAddress": "10.9.9.3", "GlobalIPv6Address": "fd09::3"}}';;
            *" -- idle") echo 'idle {"front": {"IPAddress": ""}}';;
            # As if that were the beginning of an ID.
            *" -- localhost") echo 'other {"front": {"IPAddress": "192.0.2.9"}}';;
            *) echo "Error: no such container" >&2; exit 1;;
        esac"#;
    engines.add("podman", networks)?;
    engines.add("docker", "echo 'Cannot connect to the daemon' >&2; exit 1")?;
    let file = engines.dir.path().join("rules.toml");
    let rules = "[[rules]]\nmatch = 'host db'\nloss = '100%'\n[[rules]]\nmatch = 'host localhost'\nloss = '1%'\n";
    fs::write(&file, rules)?;
    let line = format!("--pid {} --link {}", own.pid(), file.display());
    let mut wan = WanBox::start_at(engines.farwire(), &bridged.host, &line)?;
    wan.await_line("rule host-db: db is 10.9.0.3, 10.9.9.3, fd09::3")?;
    wan.await_line("rule host-localhost: localhost is ")?;
    let ping = |to: &str, wait: &str| {
        let ping = ["-q", "-c", "1", "-W", wait, to];
        run_in(&own.ns, Command::new("ping").args(ping))
    };
    let lost = ping("10.9.0.3", "1")?;
    ensure!(!lost.status.success(), "{}", stdout(&lost));
    process::succeeded(ping(Bridged::HOST, "10")?)?;
    let (status, said) = wan.end_by(Signal::SIGTERM)?;
    ensure!(status.success() && !said.contains("192.0.2.9"), "{said}");

    let pid = own.pid().to_string();
    let mut emulate = engines.farwire();
    emulate.args(["emulate", "--pid", &pid, "--rule", "host idle: loss=1%"]);
    let refused = run_in(&bridged.host, &mut emulate)?;
    ends_with(
        &refused,
        2,
        "idle: the container of this name has no address",
    )?;
    drop(neighbour);
    Ok(())
}
