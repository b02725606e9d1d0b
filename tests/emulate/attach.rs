//! A link that is inserted at the network of something that runs: both directions, nothing changed inside, nobody else
//! affected, everything as before at the end.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use caps::Capability;
use netio::iface::LinkWatcher;
use netio::netns::NetNs;
use netio::veth::HostEnd;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use test_support::powerless::farwire_with;
use test_support::process::{self, ends_with, farwire, has, ip, run_in, stdout, wait_for};
use test_support::wan_box::WanBox;

/// A host with a bridge, to which containers are connected.
pub(super) struct Bridged {
    pub(super) host: NetNs,
}

/// A namespace with a process, whose interface `eth0` is connected to a bridge of the host.
pub(super) struct Container {
    pub(super) ns: NetNs,
    process: Child,
}

impl Bridged {
    pub(super) const HOST: &str = "10.9.0.1";

    pub(super) fn start() -> Result<Self> {
        let host = NetNs::create()?;
        ip(&host, "link set lo up")?;
        ip(&host, "link add br0 type bridge")?;
        ip(&host, &format!("addr add {}/24 dev br0", Self::HOST))?;
        ip(&host, "link set br0 up")?;
        Ok(Self { host })
    }

    /// Connects a new container, whose address has this number and whose interface on the host is `vethNUMBER`.
    pub(super) fn connect(&self, number: u8) -> Result<Container> {
        let container = Container::start()?;
        ip(&container.ns, "link set lo up")?;
        self.join(&container, number)?;
        Ok(container)
    }

    /// Connects a container, which has no interface `eth0`.
    pub(super) fn join(&self, container: &Container, number: u8) -> Result<()> {
        let pid = container.pid();
        let pair = format!("link add veth{number} type veth peer name eth0 netns {pid}");
        ip(&self.host, &pair)?;
        ip(&self.host, &format!("link set veth{number} master br0 up"))?;
        let inside = &container.ns;
        ip(inside, &format!("addr add 10.9.0.{number}/24 dev eth0"))?;
        ip(inside, "link set eth0 up")?;
        wait_for("the container's network", || {
            let ping = ["-q", "-c", "1", "-W", "1", Self::HOST];
            let output = run_in(inside, Command::new("ping").args(ping))?;
            Ok(output.status.success().then_some(()))
        })
    }

    /// Returns the name, address, MTU, flags and bridge of each of the host's interfaces, and the settings of its port.
    pub(super) fn state(&self) -> Result<String> {
        let text = ip(&self.host, "-json -details link show")?;
        let all: Vec<Value> = serde_json::from_str(&text)?;
        let mut state = String::new();
        for link in &all {
            for key in ["ifname", "address", "mtu", "flags", "master"] {
                write!(state, "{key} {}, ", link[key])?;
            }
            for key in ["hairpin", "isolated", "priority", "cost", "learning"] {
                let setting = &link["linkinfo"]["info_slave_data"][key];
                write!(state, "{key} {setting}, ")?;
            }
            state.push('\n');
        }
        Ok(state)
    }

    /// Returns the least round-trip time of pings from the host to the container with the number 2, in ms.
    pub(super) fn least_rtt_ms(&self) -> Result<f64> {
        let ping = ["-q", "-c", "3", "-i", "0.1", "10.9.0.2"];
        let output = process::succeeds_in(&self.host, Command::new("ping").args(ping))?;
        least_rtt_ms(&stdout(&output))
    }

    /// Returns the hardware address of the bridge.
    fn mac(&self) -> Result<String> {
        let text = ip(&self.host, "-brief link show br0")?;
        let mac = text.split_whitespace().nth(2).context("no address")?;
        Ok(mac.to_owned())
    }

    /// Returns the output of the emulator, which must refuse.
    fn refused(&self, line: &str, code: i32, words: &str) -> Result<()> {
        let mut emulate = farwire();
        emulate.arg("emulate").args(line.split_whitespace());
        let output = run_in(&self.host, &mut emulate)?;
        ends_with(&output, code, words).map(drop)
    }
}

impl Container {
    /// Starts a container that is connected to nothing.
    pub(super) fn start() -> Result<Self> {
        Self::start_in(NetNs::create()?)
    }

    fn start_in(ns: NetNs) -> Result<Self> {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null());
        let process = ns.run(|| command.spawn())??;
        Ok(Self { ns, process })
    }

    /// Returns a container that shares the namespace of this one.
    pub(super) fn beside(&self) -> Result<Self> {
        Self::start_in(self.ns.try_clone()?)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn both_directions_are_impaired_connections_survive_and_a_neighbour_loses_nothing() -> Result<()> {
    let bridged = Bridged::start()?;
    let (own, neighbour) = (bridged.connect(2)?, bridged.connect(3)?);
    ip(
        &bridged.host,
        "link set veth2 type bridge_slave hairpin on isolated on priority 7",
    )?;
    let (state, mac) = (bridged.state()?, bridged.mac()?);
    let mut watch = Command::new("ping");
    watch.args(["-q", "-i", "0.02", "-c", "1000000", "10.9.0.3"]);
    watch.stdout(Stdio::piped());
    let mut watch = bridged.host.run(|| watch.spawn())??;
    let listener = own.ns.run(|| TcpListener::bind("10.9.0.2:80"))??;
    let mut near = bridged.host.run(|| TcpStream::connect("10.9.0.2:80"))??;
    let (mut far, _) = listener.accept()?;
    let mut exchange = || -> Result<()> {
        near.write_all(b"question")?;
        far.read_exact(&mut [0; 8])?;
        far.write_all(b"answer")?;
        Ok(near.read_exact(&mut [0; 6])?)
    };
    exchange()?;

    let line = format!("--pid {} --delay 20ms", own.pid());
    let wan = WanBox::start_at(farwire(), &bridged.host, &line)?;
    exchange()?;
    ensure!(bridged.mac()? == mac, "the bridge has another address");
    let ports = ip(&bridged.host, "-details link show type bridge_slave")?;
    let taken = ports.split(": farw").nth(1).context("no new port")?;
    for word in ["hairpin on", "isolated on", "priority 7"] {
        has(taken, word)?;
    }
    ensure!(!ports.contains(": veth2"), "{ports}");
    let ping = ["-q", "-c", "5", "-i", "0.1", "10.9.0.2"];
    let output = process::succeeds_in(&bridged.host, Command::new("ping").args(ping))?;
    let least = least_rtt_ms(&stdout(&output))?;
    ensure!(least >= 40.0, "{least} ms");
    let inside = ip(&own.ns, "-oneline link show")?;
    ensure!(inside.lines().count() == 2, "{inside}");

    let summary = wan.stop()?;
    ensure!(
        summary.up.delivered > 5 && summary.down.delivered > 5,
        "{summary:?}"
    );
    exchange()?;
    let after = bridged.state()?;
    ensure!(after == state, "before: {state}\nafter: {after}");
    ensure!(bridged.mac()? == mac, "the bridge has another address");
    kill(Pid::from_raw(watch.id().try_into()?), Signal::SIGINT)?;
    let mut said = String::new();
    let stdout = watch.stdout.as_mut().context("no output")?;
    stdout.read_to_string(&mut said)?;
    watch.wait()?;
    let [sent, answered] = counts(&said)?;
    // The last one may have been under way.
    ensure!(answered > 5 && sent - answered <= 1, "{said}");
    drop(neighbour);
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn what_the_host_has_passed_on_before_the_insertion_does_not_arrive_again() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    for conditions in ["--delay 100ms", ""] {
        let mut ping = Command::new("ping");
        ping.args(["-q", "-i", "0.01", Bridged::HOST]);
        ping.stdout(Stdio::piped());
        let mut ping = own.ns.run(|| ping.spawn())??;
        let line = format!("--pid {} {conditions}", own.pid());
        let wan = WanBox::start_at(farwire(), &bridged.host, &line)?;
        bridged.least_rtt_ms()?;
        // This fails if the emulator itself has lost a packet.
        wan.stop()?;
        kill(Pid::from_raw(ping.id().try_into()?), Signal::SIGINT)?;
        let mut said = String::new();
        let stdout = ping.stdout.as_mut().context("no output")?;
        stdout.read_to_string(&mut said)?;
        ping.wait()?;
        ensure!(!said.contains("duplicates"), "{said}");
    }
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn an_attached_link_is_changed_and_leased_while_connections_stay_open() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let listener = own.ns.run(|| TcpListener::bind("10.9.0.2:80"))??;
    let mut near = bridged.host.run(|| TcpStream::connect("10.9.0.2:80"))??;
    let (mut far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_read_timeout(Some(process::PATIENCE))?;
    }
    let mut exchange = || -> Result<()> {
        near.write_all(b"question")?;
        far.read_exact(&mut [0; 8])?;
        far.write_all(b"answer")?;
        Ok(near.read_exact(&mut [0; 6])?)
    };
    let folder = tempfile::tempdir()?;
    let at = format!("unix:{}", folder.path().join("socket").display());
    let set = |words: &str| {
        let mut set = farwire();
        set.args(["set", "link", "--at", &at]);
        process::succeeds(set.args(words.split(' ')))
    };
    let line = format!("--pid {} --delay 5ms --listen {at}", own.pid());
    let wan = WanBox::start_at(farwire(), &bridged.host, &line)?;
    exchange()?;
    set("--delay 30ms")?;
    exchange()?;
    let changed = bridged.least_rtt_ms()?;
    ensure!(changed >= 60.0, "{changed} ms");
    set("--delay 60ms --for 300s")?;
    exchange()?;
    let leased = bridged.least_rtt_ms()?;
    ensure!(leased >= 120.0, "{leased} ms");
    has(&stdout(&set("--revert")?), "delay 30ms in each direction")?;
    // The lease ends by itself, and TCP sends again what was lost until then.
    set("--loss 100% --for 1s")?;
    exchange()?;
    wan.stop()?;
    exchange()
}

#[test_support::test(
    Namespaces,
    Ingress,
    Device("bridge vlan_filtering 1"),
    Tool("ip"),
    Tool("bridge"),
    Tool("ping")
)]
fn the_new_port_of_a_bridge_that_filters_vlans_has_those_of_the_old_one() -> Result<()> {
    let bridged = Bridged::start()?;
    let [own, peer, other] = [
        bridged.connect(2)?,
        bridged.connect(3)?,
        bridged.connect(4)?,
    ];
    let vlan = |line: &str| {
        let mut bridge = Command::new("bridge");
        bridge.arg("vlan").args(line.split(' '));
        process::succeeds_in(&bridged.host, &mut bridge)
    };
    ip(&bridged.host, "link set br0 type bridge vlan_filtering 1")?;
    // Both are in VLAN 10, and the other container stays in VLAN 1.
    for port in ["veth2", "veth3"] {
        vlan(&format!("del dev {port} vid 1"))?;
        vlan(&format!("add dev {port} vid 10 pvid untagged"))?;
        vlan(&format!("add dev {port} vid 100-110"))?;
    }
    let vlans = || Ok::<_, anyhow::Error>(stdout(&vlan("show")?));
    let before = vlans()?;
    let ping = |to: &str, wait: &str| {
        let ping = ["-q", "-c", "3", "-i", "0.1", "-W", wait, to];
        run_in(&own.ns, Command::new("ping").args(ping))
    };
    let line = format!("--pid {} --delay 20ms", own.pid());
    let wan = WanBox::start_at(farwire(), &bridged.host, &line)?;
    let with = vlans()?;
    let of_port = |text: &str, port: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with(port));
        let own = lines.enumerate();
        let own =
            own.take_while(|(number, line)| *number == 0 || line.starts_with(char::is_whitespace));
        let words = own.flat_map(|(_, line)| line.split_whitespace());
        words.skip(1).map(str::to_owned).collect()
    };
    let right = of_port(&before, "veth2");
    ensure!(
        !right.is_empty() && of_port(&with, "farw") == right,
        "{with}"
    );
    let least = least_rtt_ms(&stdout(&process::succeeded(ping("10.9.0.3", "10")?)?))?;
    ensure!(least >= 40.0, "{least} ms");
    let lost = ping("10.9.0.4", "1")?;
    ensure!(!lost.status.success(), "{}", stdout(&lost));
    wan.stop()?;
    let after = vlans()?;
    ensure!(of_port(&after, "veth2") == right, "{before}\n{after}");
    process::succeeded(ping("10.9.0.3", "10")?)?;
    drop((peer, other));
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_killed_emulator_leaves_the_network_as_it_was() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let state = bridged.state()?;
    let line = format!("--pid {} --loss 100% --on-exit restore", own.pid());
    let mut wan = WanBox::start_at(farwire(), &bridged.host, &line)?;
    ensure!(bridged.state()? != state, "nothing was inserted");
    wan.end_by(Signal::SIGKILL)?;
    wait_for("the state before", || {
        Ok((bridged.state()? == state).then_some(()))
    })?;
    let ping = ["-q", "-c", "1", "-W", "10", "10.9.0.2"];
    process::succeeds_in(&bridged.host, Command::new("ping").args(ping))?;
    Ok(())
}

/// Each change of an interface that the insertion makes is a step of it.
#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn an_emulator_that_is_killed_at_any_step_of_the_insertion_leaves_the_network_as_it_was()
-> Result<()> {
    const KILLS: usize = 12;
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let state = bridged.state()?;
    let line = format!("--pid {} --loss 100%", own.pid());
    let mut watcher = bridged.host.run(LinkWatcher::new)??;
    let wan = WanBox::start_at(farwire(), &bridged.host, &line)?;
    let steps = watcher.changes()?.len();
    ensure!(steps >= 4, "{steps} steps");
    wan.stop()?;
    for number in 0..=KILLS {
        watcher.changes()?;
        let mut emulate = farwire();
        emulate.arg("emulate").args(line.split(' '));
        emulate.stdin(Stdio::null()).stdout(Stdio::null());
        emulate.stderr(Stdio::null());
        let mut emulator = bridged.host.run(|| emulate.spawn())??;
        let mut left = steps * number / KILLS;
        while left > 0 {
            let mut change = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
            // There may be fewer changes than the first time, and then all of them have been made.
            if poll(&mut change, 2_000_u16)? == 0 {
                break;
            }
            left = left.saturating_sub(watcher.changes()?.len());
        }
        emulator.kill()?;
        emulator.wait()?;
        wait_for(&format!("the state before, after kill {number}"), || {
            Ok((bridged.state()? == state).then_some(()))
        })?;
        // It ends with the first answer. The kernel can take a second to notice that the interface carries packets again.
        let ping = ["-q", "-c", "1", "-i", "0.1", "-w", "5", "10.9.0.2"];
        process::succeeds_in(&bridged.host, Command::new("ping").args(ping))?;
    }
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_start_that_fails_after_the_pair_is_made_leaves_the_network_as_it_was() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let state = bridged.state()?;
    let taken = bridged.host.run(|| TcpListener::bind("127.0.0.1:0"))??;
    let mut emulate = farwire();
    emulate.args(["emulate", "--pid", &own.pid().to_string()]);
    emulate.args(["--listen", &taken.local_addr()?.to_string()]);
    let words = format!("--listen: another program uses {}", taken.local_addr()?);
    let said = ends_with(&run_in(&bridged.host, &mut emulate)?, 2, words)?;
    ensure!(!said.contains("has died"), "{said}");
    ensure!(bridged.state()? == state, "something is left behind");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_link_whose_helper_was_killed_too_is_undone_by_the_next_start_or_by_restore() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let state = bridged.state()?;
    let line = format!("--pid {}", own.pid());
    let start = || WanBox::start_at(farwire(), &bridged.host, &line);
    let kill_both = |mut wan: WanBox| -> Result<()> {
        kill(Pid::from_raw(wan.holder()?.try_into()?), Signal::SIGKILL)?;
        wan.await_line("the helper process has died")?;
        wan.end_by(Signal::SIGKILL)?;
        ensure!(bridged.state()? != state, "something else restored it");
        Ok(())
    };
    kill_both(start()?)?;
    let again = start()?;
    bridged.refused(&line, 1, "another farwire already uses interface")?;
    again.stop()?;
    ensure!(bridged.state()? == state, "{}", bridged.state()?);
    kill_both(start()?)?;
    process::succeeds_in(&bridged.host, farwire().args(["emulate", "--restore"]))?;
    ensure!(bridged.state()? == state, "{}", bridged.state()?);
    Ok(())
}

#[test_support::test(
    Namespaces,
    Ingress,
    Device("bridge"),
    Device("dummy"),
    Tool("ip"),
    Tool("ping")
)]
fn a_link_that_cannot_be_undone_ends_with_an_error_and_restore_tries_again() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let mut wan = WanBox::start_at(farwire(), &bridged.host, &format!("--pid {}", own.pid()))?;
    // The container cannot return to a bridge that is none.
    ip(&bridged.host, "link del br0")?;
    ip(&bridged.host, "link add br0 type dummy")?;
    let (status, said) = wan.end_by(Signal::SIGTERM)?;
    has(
        &said,
        "interface veth2 is not as it was before; `farwire emulate --restore` tries again",
    )?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    ip(&bridged.host, "link del br0")?;
    ip(&bridged.host, "link add br0 type bridge")?;
    process::succeeds_in(&bridged.host, farwire().args(["emulate", "--restore"]))?;
    has(&ip(&bridged.host, "link show veth2")?, "master br0")
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn an_interface_that_another_program_puts_back_into_its_bridge_is_named() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let state = bridged.state()?;
    let mut wan = WanBox::start_at(farwire(), &bridged.host, &format!("--pid {}", own.pid()))?;
    for _ in 0..2 {
        ip(&bridged.host, "link set veth2 master br0")?;
        wan.await_line("another program has made veth2 a port of a bridge")?;
        wan.forget_lines();
        ip(&bridged.host, "link set veth2 nomaster")?;
        // The box follows changes in their order.
        ip(&bridged.host, "link set veth2 mtu 1400")?;
        wan.await_line("veth2 has MTU 1400")?;
        ip(&bridged.host, "link set veth2 mtu 1500")?;
    }
    wan.stop()?;
    let after = bridged.state()?;
    ensure!(after == state, "before: {state}\nafter: {after}");
    Ok(())
}

#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_that_ends_ends_its_link_with_a_message() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let mut wan = WanBox::start_at(farwire(), &bridged.host, &format!("--pid {}", own.pid()))?;
    drop(own);
    let (status, said) = wan.end()?;
    has(&said, "veth2 is gone")?;
    ensure!(status.code() == Some(1), "{status}");
    let left = ip(&bridged.host, "-brief link show type veth")?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

#[test_support::test(Namespaces, Device("bridge"), Tool("ip"))]
fn a_container_inside_another_is_not_taken_for_one_of_the_host() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = Container::start()?;
    let (outer, inner) = (Container::start()?, Container::start()?);
    // Numbers of interfaces are unique only within a namespace.
    for (host, container) in [(&bridged.host, &own), (&outer.ns, &inner)] {
        let pid = container.pid();
        let pair = format!("link add veth9 index 71 type veth peer name eth0 index 72 netns {pid}");
        ip(host, &pair)?;
    }
    // The kernel numbers the namespaces to which an interface of the host leads.
    let pid = inner.pid();
    let pair = format!("link add veth8 type veth peer name eth1 netns {pid}");
    ip(&bridged.host, &pair)?;
    for (container, only) in [(&own, "veth9"), (&inner, "veth8")] {
        let found = bridged.host.run(|| HostEnd::all_of(&container.ns))??;
        let names: Vec<&str> = found.iter().map(|end| end.host.name.as_str()).collect();
        ensure!(names == [only], "{found:?}");
    }
    Ok(())
}

/// The bridges of rootless Podman are in a network namespace of the user.
#[test_support::test(Namespaces, Ingress, Device("bridge"), Tool("ip"), Tool("ping"))]
fn a_container_whose_bridge_is_in_another_namespace_gets_its_link_there() -> Result<()> {
    let (bridged, of_user) = (Bridged::start()?, Bridged::start()?);
    let own = of_user.connect(2)?;
    let line = format!("--pid {} --delay 20ms", own.pid());
    let words = "podman unshare --rootless-netns farwire emulate";
    bridged.refused(&line, 2, words)?;
    let mut powerless = farwire_with(&[])?;
    powerless.arg("emulate").args(line.split(' '));
    ends_with(&run_in(&bridged.host, &mut powerless)?, 3, words)?;
    let mut cannot_enter = farwire_with(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW])?;
    cannot_enter.arg("emulate").args(line.split(' '));
    let refused = run_in(&of_user.host, &mut cannot_enter)?;
    ends_with(&refused, 3, "needs CAP_SYS_ADMIN")?;
    let wan = WanBox::start_at(farwire(), &of_user.host, &line)?;
    let least = of_user.least_rtt_ms()?;
    ensure!(least >= 40.0, "{least} ms");
    wan.stop().map(drop)
}

#[test_support::test(Namespaces, Device("bridge"), Tool("ip"), Tool("bridge"), Tool("ping"))]
fn a_place_where_no_link_can_be_inserted_is_refused_with_the_reason() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    let pid = format!("--pid {}", own.pid());
    let refused = |words| bridged.refused(&pid, 2, words);
    let state = bridged.state()?;
    ip(&bridged.host, "link set br0 type bridge stp_state 1")?;
    refused("runs the spanning tree protocol")?;
    ip(&bridged.host, "link set br0 type bridge stp_state 0")?;
    let entry = |change: &str| {
        let mut bridge = Command::new("bridge");
        let words = format!("fdb {change} 02:00:00:00:00:09 dev veth2 master static");
        bridge.args(words.split(' '));
        process::succeeds_in(&bridged.host, &mut bridge)
    };
    entry("add")?;
    refused("the bridge br0 has static entries for the port veth2")?;
    entry("del")?;
    ip(&bridged.host, "link set veth2 nomaster")?;
    refused("is not a port of a bridge")?;
    ip(&bridged.host, "link set veth2 master br0")?;
    bridged.refused(&format!("{pid} --network eth9"), 2, "it has eth0")?;
    bridged.refused("--pid 0", 2, "--pid 0")?;
    bridged.refused(&format!("{pid} --on-exit cut"), 2, "are always restored")?;
    bridged.refused("--netns /no/such/file", 2, "/no/such/file")?;
    let other = NetNs::create()?;
    let mut sleep = Command::new("sleep");
    let mut alone = other.run(|| sleep.arg("1000").spawn())??;
    let nowhere = bridged.refused(
        &format!("--pid {}", alone.id()),
        2,
        "with the host's network, macvlan, ipvlan, slirp4netns or pasta",
    );
    alone.kill()?;
    alone.wait()?;
    nowhere?;
    ensure!(bridged.state()? == state, "something is left behind");
    Ok(())
}

#[test_support::test(
    Namespaces,
    Ingress,
    Device("bridge"),
    Device("dummy"),
    Tool("ip"),
    Tool("ping")
)]
fn an_interface_inside_without_an_end_on_the_host_is_named_and_not_impaired() -> Result<()> {
    let bridged = Bridged::start()?;
    let own = bridged.connect(2)?;
    // Like a macvlan, it has no end on the host.
    ip(&own.ns, "link add eth1 type dummy")?;
    ip(&own.ns, "link set eth1 up")?;
    let pid = format!("--pid {}", own.pid());
    let mut wan = WanBox::start_at(farwire(), &bridged.host, &pid)?;
    wan.await_line("its interface eth1 is no veth whose other end is on this host")?;
    wan.stop()?;
    let chosen = format!("{pid} --network eth0");
    let mut wan = WanBox::start_at(farwire(), &bridged.host, &chosen)?;
    let (_, said) = wan.end_by(Signal::SIGTERM)?;
    ensure!(!said.contains("eth1"), "{said}");
    bridged.refused(&format!("{pid} --network eth1"), 2, "; choose eth0")
}

/// Returns the numbers in the line `N packets transmitted, M received` of ping.
pub(super) fn counts(said: &str) -> Result<[u32; 2]> {
    let line = said.lines().find(|line| line.contains(" transmitted, "));
    let mut numbers = line.context("no counts")?.split(", ");
    let mut number = || -> Result<u32> {
        let words = numbers.next().context("no number")?;
        Ok(words.split(' ').next().context("no number")?.parse()?)
    };
    Ok([number()?, number()?])
}

/// Returns the least time in the last line of `ping -q`: `rtt min/avg/max/mdev = 40.1/...`.
pub(super) fn least_rtt_ms(said: &str) -> Result<f64> {
    let (_, times) = said.rsplit_once("= ").context("no times")?;
    let least = times.split('/').next().context("no least")?;
    Ok(least.parse()?)
}
