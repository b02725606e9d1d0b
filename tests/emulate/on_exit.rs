//! Tests of what a box leaves behind, and of the ways to undo it.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use netio::Offload;
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER_PORT, WAN};
use netio::iface::Interface;
use netio::ingress_drop::IngressDrop;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::frames::{End, echo, frame, ipv4};
use test_support::capture::Capture;
use test_support::process::{farwire, has, ip, run_in, stderr, succeeds, succeeds_in, wait_for};
use test_support::state::State;
use test_support::wan_box::WanBox;

const PORTS: [&str; 2] = [CLIENT_PORT, SERVER_PORT];

#[test_support::test]
fn restore_takes_no_other_argument() -> Result<()> {
    let output = test_support::process::run(farwire().args(["emulate", "--restore", "eth0"]))?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn an_orderly_end_joins_the_interfaces_where_that_was_asked_for_and_the_next_start_parts_them()
-> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    WanBox::start(&bed, "--on-exit bridge")?.stop()?;
    ensure!(bridge_of(&bed)?.is_some(), "the interfaces are not joined");
    // The interfaces are ports of a bridge, which a box otherwise refuses.
    WanBox::start(&bed, "")?.stop()?;
    check_same(&bed, &before)
}

/// The bridge sends nothing by itself, and processes neither tags nor link-local groups.
#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn the_bridge_that_a_box_leaves_passes_every_frame_as_it_is() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "--on-exit bridge")?;
    wan.end_by(Signal::SIGKILL)?;
    let bridge = wait_for("a bridge", || bridge_of(&bed))?;
    wait_for("the bridge to run", || {
        let found = bed.emulator().run(|| Interface::by_index(bridge))??;
        Ok(found.running.then_some(()))
    })?;
    let mut near = End::open(bed.client())?;
    let mut far = End::open(bed.server())?;
    let capture = Capture::start(bed.server(), WAN)?;
    let groups = [(0x88cc, 0x0e), (0x0026, 0x00)].map(|(ethertype, group)| {
        let mut frame = frame(false, &[], ethertype, &[0x42; 60]);
        frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, group]);
        frame
    });
    for group in &groups {
        near.send(group, Offload::default()).context("sending")?;
    }
    let echo = ipv4(false, 1, &echo(false, 64));
    let tagged = frame(false, &[(0x8100, 100)], 0x0800, &echo);
    let unknown = frame(false, &[], 0x88b5, &[7; 46]);
    for sent in [tagged, unknown] {
        near.send(&sent, Offload::default()).context("sending")?;
        let got = far.receive()?;
        ensure!(got == sent, "sent {sent:02x?}, got {got:02x?}");
    }
    let seen = capture.finish()?;
    for group in groups {
        let is_it = |head: &[u8]| head.get(..14) == Some(&group[..14]);
        let passed = seen.iter().any(|frame| is_it(&frame.head));
        ensure!(passed, "{group:02x?} did not pass");
    }
    let bridge = bed.emulator().run(|| Interface::by_index(bridge))??.name;
    let addresses = ip(
        bed.emulator(),
        &format!("-oneline address show dev {bridge}"),
    )?;
    ensure!(addresses.is_empty(), "{addresses}");
    let details = ip(bed.emulator(), &format!("-details link show dev {bridge}"))?;
    for word in [
        "NOARP",
        "stp_state 0",
        "mcast_snooping 0",
        "vlan_filtering 0",
    ] {
        ensure!(details.contains(word), "no {word}: {details}");
    }
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_interface_with_an_address_is_not_set_down_by_a_kill() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    ip(
        bed.emulator(),
        &format!("address add 192.0.2.1/24 dev {CLIENT_PORT}"),
    )?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "--force")?;
    let (_, printed) = wan.end_by(Signal::SIGKILL)?;
    has(&printed, "client is restored but not set down")?;
    before[0].check_same(bed.emulator(), CLIENT_PORT)?;
    ensure!(!states(&bed)?[1].is_up(), "server is not down");
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn what_a_kill_left_is_undone_though_the_interface_has_another_name() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let mut wan = WanBox::start(&bed, "")?;
    wan.end_by(Signal::SIGKILL)?;
    ip(bed.emulator(), &format!("link set {CLIENT_PORT} name lan"))?;
    let said = restore(&bed)?;
    has(&said, "lan is restored: up")?;
    ensure!(State::of(bed.emulator(), "lan")?.is_up(), "lan is down");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn restore_leaves_alone_what_a_box_that_runs_has_changed() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, "")?;
    let during = states(&bed)?;
    let said = restore(&bed)?;
    let pid = wan.pid();
    for port in PORTS {
        let line = format!("another farwire already uses interface {port} (pid {pid})");
        has(&said, &line)?;
    }
    check_same(&bed, &during)?;
    wan.stop().map(drop)
}

#[test_support::test(Namespaces, Tool("ip"), Device("bridge"))]
fn a_box_whose_holder_was_killed_says_so_and_does_itself_what_is_to_be_done_at_the_end()
-> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "--on-exit bridge")?;
    kill(
        Pid::from_raw(i32::try_from(wan.holder()?)?),
        Signal::SIGKILL,
    )?;
    wan.await_line("the helper process has died")?;
    wan.stop()?;
    ensure!(bridge_of(&bed)?.is_some(), "the interfaces are not joined");
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_start_that_fails_leaves_the_interfaces_as_they_were() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let other = WanBox::start(&bed, "")?;
    let during = states(&bed)?;
    let mut second = farwire();
    second.args(["emulate", CLIENT_PORT, SERVER_PORT, "--on-exit", "bridge"]);
    let output = run_in(bed.emulator(), &mut second)?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let said = stderr(&output);
    ensure!(said.lines().count() == 1, "{said}");
    check_same(&bed, &during)?;
    other.stop().map(drop)
}

/// The user whose files root must not use.
const USER: u32 = 54_321;
const MERGING: &str = "rx-udp-gro-forwarding";

#[test_support::test(serial, Root, Namespaces, Tool("ip"))]
fn files_that_another_user_locks_or_forges_neither_stop_roots_box_nor_change_an_interface()
-> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    ip(bed.emulator(), "link add farwire-77 type bridge")?;
    let before = states(&bed)?;
    let wan = WanBox::start(&bed, "")?;
    let own = journals_of(wan.pid())?;
    wan.stop()?;
    let forged = format!(
        r#"{{"up":true}}
{{"feature":{{"name":"{MERGING}","on":true}}}}
{{"no_bridge":"farwire-77"}}"#
    );
    let dir = write_journals(USER, &own, &forged)?;
    let locked = fs::File::create(dir.0.join("interfaces.lock"))?;
    let all = nix::libc::flock {
        l_type: nix::libc::F_WRLCK.try_into()?,
        l_whence: nix::libc::SEEK_SET.try_into()?,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&locked, FcntlArg::F_OFD_SETLK(&all))?;
    let wan = WanBox::start(&bed, "")?;
    let during = states(&bed)?;
    drop(locked);
    restore(&bed)?;
    check_same(&bed, &during)?;
    wan.stop()?;
    let said = restore(&bed)?;
    has(&said, "there is nothing to restore")?;
    check_same(&bed, &before)?;
    ip(bed.emulator(), "link show dev farwire-77").map(drop)
}

/// The box of another user has its journals elsewhere, but keeps the host off its interfaces by the same tables.
#[test_support::test(Namespaces, Tool("ip"))]
fn restore_leaves_alone_what_a_box_of_another_user_has() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let before = states(&bed)?;
    let mut wan = WanBox::start(&bed, "")?;
    wan.end_by(Signal::SIGKILL)?;
    let during = states(&bed)?;
    ensure!(!during[0].is_up(), "client is not down");
    let other = bed.emulator().run(|| IngressDrop::new(&PORTS))??;
    let said = restore(&bed)?;
    for port in PORTS {
        let line = format!("not restored: another farwire already uses interface {port}");
        has(&said, &line)?;
    }
    check_same(&bed, &during)?;
    drop(other);
    restore(&bed)?;
    check_same(&bed, &before)
}

#[test_support::test(
    serial,
    Root,
    Namespaces,
    Tool("ip"),
    Tool("nsenter"),
    Tool("setpriv"),
    Tool("unshare")
)]
fn the_owner_of_a_namespace_is_the_only_other_user_whose_journals_root_puts_back() -> Result<()> {
    let user = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.args(["unshare", "--user", "--map-root-user", "--net"]);
    let mut owner = command
        .args(["sh", "-c", "echo ready; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)?;
    let mut ready = String::new();
    let stdout = owner.0.stdout.take().context("its standard output")?;
    BufReader::new(stdout).read_line(&mut ready)?;
    ensure!(ready == "ready\n", "no namespace of another user");
    let network = format!("--net=/proc/{}/ns/net", owner.0.id());
    let within = |command: &Command| {
        let mut inside = Command::new("nsenter");
        inside.arg(&network).arg(command.get_program());
        inside.args(command.get_args());
        inside
    };
    for line in [
        "link add client type veth peer name far",
        "link add server type veth peer name farther",
        "link set client up",
        "link set server up",
    ] {
        let mut ip = Command::new("ip");
        ip.args(line.split_whitespace());
        succeeds(&mut within(&ip))?;
    }
    let mut wan = WanBox::start_with(within(&farwire()), &[CLIENT_PORT, SERVER_PORT])?;
    let own = journals_of(wan.pid())?;
    wan.end_by(Signal::SIGTERM)?;

    let feature = format!(r#"{{"feature":{{"name":"{MERGING}","on":true}}}}"#);
    let dir = write_journals(USER, &own, &feature)?;
    let mut restore = farwire();
    let restore = within(restore.args(["emulate", "--restore"]));
    let said = || -> Result<String> {
        let mut again = Command::new(restore.get_program());
        Ok(stderr(&succeeds(again.args(restore.get_args()))?))
    };
    chown(&dir.0, Some(USER + 1), None)?;
    has(&said()?, "there is nothing to restore")?;
    chown(&dir.0, Some(USER), None)?;
    fs::set_permissions(&dir.0, Permissions::from_mode(0o777))?;
    has(&said()?, "there is nothing to restore")?;
    fs::set_permissions(&dir.0, Permissions::from_mode(0o700))?;
    has(&said()?, format!("{CLIENT_PORT} is restored: {MERGING} on"))
}

/// Writes journals of `user` to the place where root once looked for them: each with the name and first line of one of root's, and `rest`.
fn write_journals(user: u32, own: &[(String, String)], rest: &str) -> Result<Cleared> {
    let dir = PathBuf::from(format!("/tmp/farwire-{user}"));
    // The journal of an earlier run, which was killed.
    drop(Cleared(dir.clone()));
    fs::create_dir(&dir)?;
    let cleared = Cleared(dir.clone());
    for (name, first_line) in own {
        let path = dir.join(name);
        fs::write(&path, format!("{first_line}\n{rest}\n"))?;
        chown(&path, Some(user), Some(user))?;
    }
    chown(&dir, Some(user), Some(user))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
    Ok(cleared)
}

/// A process that ends with the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the names and first lines of the journals of the process `pid`, the client's first.
fn journals_of(pid: u32) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/run/farwire")? {
        let entry = entry?;
        // Other boxes start and end meanwhile.
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        if first.contains(&format!("\"pid\":{pid},")) {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, first.to_owned()));
        }
    }
    found.sort_by_key(|(_, line)| !line.contains(CLIENT_PORT));
    ensure!(found.len() == 2, "{found:?}");
    Ok(found)
}

/// A directory that is removed at the end of the test.
struct Cleared(PathBuf);

impl Drop for Cleared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the number of the bridge of which both interfaces are ports.
fn bridge_of(bed: &Bed) -> Result<Option<u32>> {
    let [a, b] = bed.emulator().run(|| PORTS.map(Interface::find))?;
    let (a, b) = (a?.master, b?.master);
    Ok(a.filter(|_| a == b))
}

fn restore(bed: &Bed) -> Result<String> {
    let mut command = farwire();
    let said = stderr(&succeeds_in(
        bed.emulator(),
        command.args(["emulate", "--restore"]),
    )?);
    Ok(said)
}

fn states(bed: &Bed) -> Result<[State; 2]> {
    let [a, b] = PORTS.map(|port| State::of(bed.emulator(), port));
    Ok([a?, b?])
}

fn check_same(bed: &Bed, before: &[State; 2]) -> Result<()> {
    before[0].check_same(bed.emulator(), CLIENT_PORT)?;
    before[1].check_same(bed.emulator(), SERVER_PORT)
}
