//! Tests that changes of an interface are seen and undone.

use std::fs;
use std::process::Command;

use farwire_netio::bed::{CLIENT_PORT, WAN};
use farwire_netio::iface::{Interface, LinkChange, LinkWatcher};
use farwire_netio::lease::{InterfaceLease, InterfaceLeases, LeaseError, ReplacedSetting};
use farwire_netio::offloads::{Offloads, SwitchResult};
use nix::poll::{PollFd, PollFlags, poll};
use std::os::fd::AsFd as _;
use tempfile::TempDir;

use crate::bed::plain;
use crate::helper::{self, TIMEOUT_MS};

const TSO: &str = "tx-tcp-segmentation";

/// Runs `within` beside an interface WAN, with a directory for journals, and checks that no journal remains.
fn in_a_namespace(within: impl FnOnce(&TempDir) + Send) {
    let dir = tempfile::tempdir().unwrap();
    plain().client().run(|| within(&dir)).unwrap();
    let remaining = fs::read_dir(dir.path()).unwrap();
    let names: Vec<_> = remaining.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["interfaces.lock"]);
}

#[test_support::test(serial, Namespaces)]
fn a_feature_and_the_state_are_restored() {
    in_a_namespace(|dir| {
        let mut lease = lease(dir, WAN).unwrap();
        assert_eq!(lease.switch(TSO, false).unwrap(), SwitchResult::Changed);
        assert_eq!(lease.switch(TSO, false).unwrap(), SwitchResult::Unchanged);
        assert!(lease.set_up(false).unwrap());
        assert_eq!(lease.replaced().len(), 2);
        assert_eq!(lease.replaced()[1], ReplacedSetting::Up(true));
        assert_eq!(state(), (false, false));
        drop(lease);
        assert_eq!(state(), (true, true));
    });
}

#[test_support::test(serial, Namespaces)]
fn changes_of_a_killed_process_are_undone() {
    in_a_namespace(|dir| {
        kill_holder(dir);
        let lease = lease(dir, WAN).unwrap();
        assert_eq!(state(), (true, true));
        assert_eq!(lease.replaced(), []);
    });
}

#[test_support::test(serial, Namespaces, Tool("ip"))]
fn changes_of_a_killed_process_are_undone_after_a_rename() {
    in_a_namespace(|dir| {
        kill_holder(dir);
        ip(&["link", "set", WAN, "name", "lan"]);
        let lease = lease(dir, "lan").unwrap();
        assert_eq!(state_of("lan"), (true, true));
        assert!(lease.has_raised());
    });
}

/// It may be another interface, which has got the number of the first one.
#[test_support::test(serial, Namespaces, Tool("ip"))]
fn an_interface_with_another_address_is_left_alone() {
    in_a_namespace(|dir| {
        kill_holder(dir);
        ip(&["link", "set", WAN, "address", "02:00:00:00:00:77"]);
        let lease = lease(dir, WAN).unwrap();
        assert_eq!(state(), (false, false));
        assert!(!lease.has_raised());
    });
}

#[test_support::test(serial, Namespaces, Tool("ip"))]
fn a_renamed_interface_is_restored() {
    in_a_namespace(|dir| {
        let mut lease = lease(dir, WAN).unwrap();
        lease.switch(TSO, false).unwrap();
        lease.set_up(false).unwrap();
        ip(&["link", "set", WAN, "name", "lan"]);
        drop(lease);
        assert_eq!(state_of("lan"), (true, true));
    });
}

fn lease(dir: &TempDir, interface: &str) -> Result<InterfaceLease, LeaseError> {
    let found = Interface::find(interface).unwrap();
    InterfaceLeases::in_dir(dir.path())?.take(&found)
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
fn an_interface_cannot_be_leased_twice() {
    let dir = tempfile::tempdir().unwrap();
    let bed = plain();
    let within = || {
        let leases = InterfaceLeases::in_dir(dir.path()).unwrap();
        let [wan, lo] = [WAN, "lo"].map(|name| Interface::find(name).unwrap());
        let first = leases.take(&wan).unwrap();
        let refused =
            [leases.take(&wan), lease(&dir, WAN)].map(|other| other.unwrap_err().to_string());
        // The other interfaces of the same file of locks are free, and so is this one afterwards.
        drop(lease(&dir, "lo").unwrap());
        drop(leases.take(&lo).unwrap());
        let still = lease(&dir, WAN).unwrap_err().to_string();
        drop(first);
        drop(lease(&dir, WAN).unwrap());
        drop(leases.take(&wan).unwrap());
        [refused.to_vec(), vec![still]].concat()
    };
    let errors = bed.client().run(within).unwrap();
    let pid = std::process::id();
    let expected = format!(
        "another farwire already uses interface wan (pid {pid}): change its link with `farwire set`, or end it first"
    );
    assert_eq!(errors, [(); 3].map(|()| expected.clone()));
}

#[test_support::test(serial, Namespaces)]
fn an_unknown_or_fixed_feature_is_reported() {
    in_a_namespace(|dir| {
        let mut lease = lease(dir, WAN).unwrap();
        let absent = lease.switch("no-such-feature", true).unwrap();
        assert_eq!(absent, SwitchResult::Absent);
        assert_eq!(lease.switch("rx-lro", true).unwrap(), SwitchResult::Refused);
        assert_eq!(lease.replaced(), []);
    });
}

#[test_support::test(serial, Namespaces)]
fn loss_and_return_of_the_carrier_are_reported() {
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
fn the_last_state_is_reported_after_lost_notifications() {
    let bed = plain();
    let (mut watcher, index) = watch_wan(&bed);
    let wan = bed.client().run(|| Offloads::open(WAN).unwrap()).unwrap();
    // Each change sends a notification, and together they exceed the watcher's socket buffer.
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
        assert_eq!(poll(&mut fds, TIMEOUT_MS), Ok(1), "the change is not told");
    }
}

/// Returns whether the feature is on and whether the interface is up, in the namespace of the calling thread.
fn state() -> (bool, bool) {
    state_of(WAN)
}

fn state_of(interface: &str) -> (bool, bool) {
    let wan = Offloads::open(interface).unwrap();
    (wan.features().unwrap()[TSO].active, wan.is_up().unwrap())
}
