//! Tests of the drop at ingress: the host gets no packets, but taps do.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;

use farwire_netio::bed::{Bed, BedConfig, SERVER, WAN};
use farwire_netio::ingress_drop::IngressDrop;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};

use crate::bed::{bridged, plain};
use crate::helper::run;

#[test_support::test(serial, Namespaces, Tool("ping"), Ingress)]
fn the_host_gets_no_packets_while_it_exists_but_taps_do() {
    let bed = bridged(&BedConfig::default());
    assert!(answers(&bed));

    let (ingress_drop, tap) = bed
        .server()
        .run(|| (IngressDrop::new(&[WAN]).unwrap(), tap()))
        .unwrap();
    assert!(!answers(&bed));
    assert_eq!(echo_requests(&tap), 2);

    drop(ingress_drop);
    assert!(answers(&bed));
}

#[test_support::test(serial, Namespaces, Tool("ping"), Tool("sleep"), Ingress)]
fn a_process_that_inherits_it_keeps_the_packets_from_the_host_until_it_ends() {
    let bed = bridged(&BedConfig::default());
    let within = || {
        let ingress_drop = IngressDrop::new(&[WAN]).unwrap();
        let start = |_| Command::new("sleep").arg("1000").spawn();
        let heir = ingress_drop.share(start).unwrap();
        (ingress_drop, heir)
    };
    let (ingress_drop, mut heir) = bed.server().run(within).unwrap();
    drop(ingress_drop);
    let answered = answers(&bed);
    heir.kill().unwrap();
    heir.wait().unwrap();
    assert!(!answered);
    assert!(answers(&bed));
}

#[test_support::test(serial, Namespaces, Ingress)]
fn two_interfaces_are_guarded_simultaneously() {
    let bed = plain();
    let guards = bed
        .emulator()
        .run(|| IngressDrop::new(&["client", "server"]));
    guards.unwrap().unwrap();
}

#[test_support::test(serial, Namespaces, Ingress)]
fn an_interface_cannot_be_guarded_twice() {
    let bed = plain();
    let within = || {
        let _first = IngressDrop::new(&[WAN]).unwrap();
        IngressDrop::new(&[WAN]).err().unwrap().to_string()
    };
    let error = bed.client().run(within).unwrap();
    assert!(error.contains("another farwire"), "{error}");
}

#[test_support::test(serial, Namespaces)]
fn a_missing_interface_is_named_in_the_error() {
    let error = IngressDrop::new(&["nosuch"]).err().unwrap().to_string();
    assert!(error.contains("nosuch"), "{error}");
}

fn answers(bed: &Bed) -> bool {
    let server = SERVER.v4.to_string();
    let ping = ["ping", "-c", "2", "-i", "0.2", "-W", "1", &server];
    run(bed.client(), &ping).0 == 0
}

/// Opens a packet socket on all interfaces in the namespace of the calling thread.
fn tap() -> OwnedFd {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let all = SockProtocol::EthAll;
    socket(AddressFamily::Packet, SockType::Raw, flags, all).unwrap()
}

/// Returns the number of ICMP echo requests that were received.
fn echo_requests(tap: &OwnedFd) -> usize {
    let mut frame = [0; 2048];
    let mut count = 0;
    while let Ok(length) = recv(tap.as_raw_fd(), &mut frame, MsgFlags::empty()) {
        // The offsets are 12 of Ethernet for IPv4, 9 of IPv4 for ICMP, and 0 of ICMP for the echo request.
        let is_ping = frame[12..14] == [8, 0] && frame[14 + 9] == 1 && frame[14 + 20] == 8;
        count += usize::from(length > 34 && is_ping);
    }
    count
}
