//! What is changed on an interface is seen, and put back.

use std::fs;
use std::process::Command;

use farwire_netio::bed::{CLIENT_PORT, WAN};
use farwire_netio::iface::{Interface, LinkChange, LinkWatcher};
use farwire_netio::lease::{InterfaceLease, Replaced};
use farwire_netio::offloads::{Offloads, Switched};
use nix::poll::{PollFd, PollFlags, poll};
use std::os::fd::AsFd as _;
use tempfile::TempDir;

use crate::bed::plain;
use crate::helper::{self, PATIENCE_MS};

const TSO: &str = "tx-tcp-segmentation";

/// Runs `within` beside an interface WAN, with a directory for journals; none must be left in it.
fn in_a_namespace(within: impl FnOnce(&TempDir) + Send) {
    let dir = tempfile::tempdir().unwrap();
    plain().client().run(|| within(&dir)).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test_support::test(serial, Namespaces)]
fn a_feature_and_the_state_are_put_back() {
    in_a_namespace(|dir| {
        let mut lease = InterfaceLease::take_in(dir.path(), WAN).unwrap();
        assert_eq!(lease.switch(TSO, false).unwrap(), Switched::Changed);
        assert_eq!(lease.switch(TSO, false).unwrap(), Switched::Unchanged);
        assert!(lease.set_up(false).unwrap());
        assert_eq!(lease.replaced().len(), 2);
        assert_eq!(lease.replaced()[1], Replaced::Up(true));
        assert_eq!(state(), (false, false));
        drop(lease);
        assert_eq!(state(), (true, true));
    });
}

#[test_support::test(serial, Namespaces)]
fn what_a_killed_process_left_is_put_back() {
    in_a_namespace(|dir| {
        kill_holder(dir);
        let lease = InterfaceLease::take_in(dir.path(), WAN).unwrap();
        assert_eq!(state(), (true, true));
        assert_eq!(lease.replaced(), []);
    });
}

#[test_support::test(serial, Namespaces, Tool("ip"))]
fn what_a_killed_process_left_is_put_back_under_another_name() {
    in_a_namespace(|dir| {
        kill_holder(dir);
        ip(&["link", "set", WAN, "name", "lan"]);
        let lease = InterfaceLease::take_in(dir.path(), "lan").unwrap();
        assert_eq!(state_of("lan"), (true, true));
        assert!(lease.has_raised());
    });
}

/// It may be another one, which has got the number of the first.
#[test_support::test(serial, Namespaces, Tool("ip"))]
fn an_interface_of_another_address_is_left_alone() {
    in_a_namespace(|dir| {
        kill_holder(dir);
        ip(&["link", "set", WAN, "address", "02:00:00:00:00:77"]);
        let lease = InterfaceLease::take_in(dir.path(), WAN).unwrap();
        assert_eq!(state(), (false, false));
        assert!(!lease.has_raised());
    });
}

#[test_support::test(serial, Namespaces, Tool("ip"))]
fn a_renamed_interface_is_put_back() {
    in_a_namespace(|dir| {
        let mut lease = InterfaceLease::take_in(dir.path(), WAN).unwrap();
        lease.switch(TSO, false).unwrap();
        lease.set_up(false).unwrap();
        ip(&["link", "set", WAN, "name", "lan"]);
        drop(lease);
        assert_eq!(state_of("lan"), (true, true));
    });
}

/// Leaves the feature off and the interface down.
fn kill_holder(dir: &TempDir) {
    let (mut holder, _output) = helper::start(&["lease", dir.path().to_str().unwrap()]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(state(), (false, false));
}

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}

#[test_support::test(serial, Namespaces)]
fn an_interface_is_leased_once() {
    let dir = tempfile::tempdir().unwrap();
    let bed = plain();
    let within = || {
        let _lease = InterfaceLease::take_in(dir.path(), WAN).unwrap();
        InterfaceLease::take_in(dir.path(), WAN)
            .unwrap_err()
            .to_string()
    };
    let error = bed.client().run(within).unwrap();
    let pid = std::process::id();
    assert_eq!(
        error,
        format!("another farwire already uses interface wan (pid {pid})")
    );
}

#[test_support::test(serial, Namespaces)]
fn a_feature_that_is_unknown_or_fixed_is_told() {
    in_a_namespace(|dir| {
        let mut lease = InterfaceLease::take_in(dir.path(), WAN).unwrap();
        let absent = lease.switch("no-such-feature", true).unwrap();
        assert_eq!(absent, Switched::Absent);
        assert_eq!(lease.switch("rx-lro", true).unwrap(), Switched::Refused);
        assert_eq!(lease.replaced(), []);
    });
}

#[test_support::test(serial, Namespaces)]
fn the_carrier_is_seen_to_go_and_come() {
    let bed = plain();
    let (mut watcher, index) = watch_wan(&bed);
    let port = bed
        .emulator()
        .run(|| Offloads::open(CLIENT_PORT).unwrap())
        .unwrap();
    for up in [false, true] {
        port.set_up(up).unwrap();
        wait_for(&mut watcher, |change| {
            change.index == index && change.carrier == up
        });
    }
}

#[test_support::test(serial, Namespaces)]
fn the_last_state_is_told_though_changes_were_lost() {
    let bed = plain();
    let (mut watcher, index) = watch_wan(&bed);
    let wan = bed.client().run(|| Offloads::open(WAN).unwrap()).unwrap();
    // Each change tells the watcher; together they are more than its socket holds.
    for mtu in (1400..1500).cycle().take(2000) {
        wan.set_mtu(mtu).unwrap();
    }
    wan.set_up(false).unwrap();
    wait_for(&mut watcher, |change| change.index == index && !change.up);
}

fn watch_wan(bed: &farwire_netio::bed::Bed) -> (LinkWatcher, u32) {
    let within = || {
        (
            LinkWatcher::new().unwrap(),
            Interface::find(WAN).unwrap().index,
        )
    };
    bed.client().run(within).unwrap()
}

fn wait_for(watcher: &mut LinkWatcher, wanted: impl Fn(&LinkChange) -> bool) {
    while !watcher.changes().unwrap().iter().any(&wanted) {
        let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PATIENCE_MS), Ok(1), "the change is not told");
    }
}

/// Whether the feature is on and the interface up, in the calling thread's namespace.
fn state() -> (bool, bool) {
    state_of(WAN)
}

fn state_of(interface: &str) -> (bool, bool) {
    let wan = Offloads::open(interface).unwrap();
    (wan.features().unwrap()[TSO].active, wan.is_up().unwrap())
}
