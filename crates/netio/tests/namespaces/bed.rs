//! Tests of the test bed with real packets.

use std::fs;

use farwire_netio::bed::{Bed, BedConfig, CLIENT, CLIENT_PORT, Endpoint, SERVER, SegmentEnd, WAN};
use farwire_netio::iface::{HostUse, Interface, InterfaceLookup, LinkWatcher};
use farwire_netio::netns::NetNs;
use farwire_netio::offloads::Offloads;
use nix::poll::{PollFd, PollFlags, poll};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};

use crate::helper::{TIMEOUT_MS, run};

/// A bed with the default configuration.
pub(crate) fn plain() -> Bed {
    Bed::build(&BedConfig::default()).unwrap()
}

/// A bed whose packets the kernel forwards.
pub(crate) fn bridged(config: &BedConfig) -> Bed {
    let bed = Bed::build(config).unwrap();
    bed.bridge().unwrap();
    bed
}

#[test_support::test(serial, Namespaces, Tool("ping"))]
fn a_chain_routes_between_any_two_nodes() {
    let bed = bridged(&BedConfig {
        segments: 3,
        ..BedConfig::default()
    });
    // Node N is on the segments N - 1 and N. A packet that crosses N routers has lost N of its 64 hops.
    let ways = [
        (0, Endpoint::on(2, SegmentEnd::Server), 62),
        (3, Endpoint::on(0, SegmentEnd::Client), 62),
        (1, Endpoint::on(2, SegmentEnd::Server), 63),
        (2, Endpoint::on(1, SegmentEnd::Client), 64),
    ];
    for (from, to, ttl) in ways {
        for address in [to.v4.to_string(), to.v6.to_string()] {
            let options = ["ping", "-c", "1", "-W", "5", "-t", "64", &address];
            let (code, out, err) = run(&bed.nodes()[from], &options);
            assert_eq!(code, 0, "{out}{err}");
            assert!(out.contains(&format!("ttl={ttl}")), "{out}");
        }
    }
}

fn ping(bed: &Bed, options: &[&str]) -> String {
    let (code, out, err) = run(bed.client(), &[&["ping"], options].concat());
    assert_eq!(code, 0, "{out}{err}");
    out
}

#[test_support::test(serial, Namespaces, Tool("ping"))]
fn the_first_ping_passes_over_ipv4_and_ipv6() {
    let bed = bridged(&BedConfig::default());
    for address in [SERVER.v4.to_string(), SERVER.v6.to_string()] {
        let out = ping(&bed, &["-c", "1", "-W", "5", &address]);
        assert!(out.contains("1 received"), "{out}");
    }
}

#[test_support::test(serial, Namespaces, Tool("ping"))]
fn a_jumbo_ping_passes_unfragmented() {
    let bed = bridged(&BedConfig {
        mtu: 9000,
        ..BedConfig::default()
    });
    let server = SERVER.v4.to_string();
    let out = ping(
        &bed,
        &["-c", "1", "-W", "5", "-M", "do", "-s", "8972", &server],
    );
    assert!(out.contains("1 received"), "{out}");
}

#[test_support::test(serial, Namespaces, Tool("ping"))]
fn a_small_mtu_disables_ipv6() {
    let bed = bridged(&BedConfig {
        mtu: 576,
        ..BedConfig::default()
    });
    let server = SERVER.v4.to_string();
    let out = ping(
        &bed,
        &["-c", "1", "-W", "5", "-M", "do", "-s", "548", &server],
    );
    assert!(out.contains("1 received"), "{out}");
}

#[test_support::test(serial, Namespaces)]
fn an_mtu_out_of_range_is_refused() {
    let refused = Bed::build(&BedConfig {
        mtu: 67,
        ..BedConfig::default()
    });
    let error = refused.unwrap_err().to_string();
    assert_eq!(error, "an MTU of 67 is out of range: 68 to 65535");
}

/// The check uses an interface in a namespace of the test itself, whose peer is in the bed and disappears with it.
#[test_support::test(serial, Namespaces)]
fn nothing_is_left_after_a_bed_is_dropped() {
    let before = open_namespaces();
    let outside = NetNs::create().unwrap();
    let bed = plain();
    let there = bed.emulator().as_fd().as_raw_fd();
    let (mut watcher, index) = outside
        .run(|| {
            let peer = LinkUnspec::new_with_name("inside")
                .setns_by_fd(there)
                .build();
            let pair = LinkVeth::new("outside", "inside")
                .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
                .build();
            netlink(async |handle| handle.link().add(pair).execute().await);
            let watcher = LinkWatcher::new().unwrap();
            (watcher, Interface::find("outside").unwrap().index)
        })
        .unwrap();

    drop(bed);
    let mut gone = false;
    while !gone {
        let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, TIMEOUT_MS), Ok(1), "the namespace lives on");
        let changes = watcher.changes().unwrap();
        gone = changes
            .iter()
            .any(|change| change.index == index && change.gone);
    }
    drop((watcher, outside));
    assert_eq!(open_namespaces(), before);
}

#[test_support::test(serial, Namespaces)]
fn the_ends_keep_their_offloads_except_for_tunnels() {
    let bed = plain();
    for end in [bed.client(), bed.server()] {
        assert!(active(end, "tx-tcp-segmentation"));
        assert!(active(end, "tx-checksum-ip-generic"));
        assert!(!active(end, "tx-udp_tnl-segmentation"));
        assert!(!active(end, "tx-gre-segmentation"));
        assert!(!active(end, "tx-sctp-segmentation"));
    }
}

#[test_support::test(serial, Namespaces)]
fn without_offloads_the_ends_segment_everything() {
    let bed = Bed::build(&BedConfig {
        offloads: false,
        ..BedConfig::default()
    })
    .unwrap();
    for end in [bed.client(), bed.server()] {
        for feature in [
            "tx-tcp-segmentation",
            "tx-udp-segmentation",
            "tx-generic-segmentation",
            "tx-checksum-ip-generic",
        ] {
            assert!(!active(end, feature), "{feature}");
        }
    }
}

#[test_support::test(serial, Namespaces)]
fn tcp_memory_is_raised_at_both_ends() {
    let bed = Bed::build(&BedConfig {
        tcp_memory: Some(model::Bytes(128 << 20)),
        ..BedConfig::default()
    })
    .unwrap();
    for end in [bed.client(), bed.server()] {
        for sysctl in ["tcp_rmem", "tcp_wmem"] {
            let path = format!("/proc/sys/net/ipv4/{sysctl}");
            let value = end.run(|| fs::read_to_string(path)).unwrap().unwrap();
            assert_eq!(value.split_whitespace().last(), Some("134217728"));
        }
    }
}

#[test_support::test(serial, Namespaces)]
fn the_emulators_ports_have_no_address() {
    let bed = plain();
    let ipv6 = bed
        .emulator()
        .run(|| fs::read_to_string("/proc/net/if_inet6"))
        .unwrap()
        .unwrap();
    let routes = bed
        .emulator()
        .run(|| fs::read_to_string("/proc/thread-self/net/fib_trie"))
        .unwrap()
        .unwrap();
    assert!(!ipv6.contains(CLIENT_PORT), "{ipv6}");
    assert!(!routes.contains("10.77"), "{routes}");
}

#[test_support::test(serial, Namespaces)]
fn an_interface_is_found_with_its_properties() {
    let bed = plain();
    let (loopback, wan, routed) = bed
        .client()
        .run(|| {
            let wan = Interface::find(WAN).unwrap();
            let has_default_route = || HostUse::now().unwrap().has_default_route(&wan);
            let before = has_default_route();
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .gateway(SERVER.v4)
                .build();
            netlink(async |handle| handle.route().add(route).execute().await);
            let routed = [before, has_default_route()];
            (Interface::find("lo").unwrap(), wan, routed)
        })
        .unwrap();
    assert!(!loopback.ethernet);
    assert_eq!(wan.name.as_str(), WAN);
    assert_eq!(wan.mtu, 1500);
    assert_eq!(wan.mac, CLIENT.mac);
    assert!(wan.up && wan.carrier && wan.running && wan.ethernet);
    assert_eq!((wan.master, wan.kind.as_deref()), (None, Some("veth")));
    assert_eq!(routed, [false, true]);
}

#[test_support::test(serial, Namespaces)]
fn addresses_and_routes_not_added_by_the_kernel_count_as_configured() {
    let bed = plain();
    let configured = |name| Interface::find(name).unwrap().is_configured().unwrap();
    assert!(bed.client().run(|| configured(WAN)).unwrap());
    // This adds a link-local address and its routes.
    let ipv6 = format!("net/ipv6/conf/{CLIENT_PORT}/disable_ipv6");
    bed.emulator().write_sysctl(&ipv6, "0").unwrap();
    let (local, routed) = bed
        .emulator()
        .run(|| {
            let before = configured(CLIENT_PORT);
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(SERVER.v4, 32)
                .output_interface(Interface::find(CLIENT_PORT).unwrap().index)
                .build();
            netlink(async |handle| handle.route().add(route).execute().await);
            (before, configured(CLIENT_PORT))
        })
        .unwrap();
    assert!(!local);
    assert!(routed);
}

#[test_support::test(serial, Namespaces)]
fn a_missing_interface_is_named_in_the_error() {
    for name in ["nosuch", "", "a-name-that-no-kernel-takes"] {
        let error = Interface::find(name).unwrap_err().to_string();
        assert_eq!(error, format!("there is no interface {name}"));
    }
}

#[test_support::test(serial, Namespaces)]
fn interfaces_are_looked_up_one_after_another_by_name_other_name_and_number() {
    let ns = NetNs::create().unwrap();
    ns.run(|| {
        netlink(async |handle| {
            let lo = handle.link().property_add(1);
            lo.alt_ifname(&["another-name"]).execute().await
        });
        let lookup = InterfaceLookup::open().unwrap();
        let lo = Interface::find("lo").unwrap();
        assert_eq!(lookup.find("another-name").unwrap(), lo);
        assert!(lookup.by_index(2).is_err());
        assert_eq!(lookup.by_index(1).unwrap(), lo);
        assert!(lookup.find("nosuch").is_err());
        assert_eq!(Interface::all().unwrap(), [lo]);
    })
    .unwrap();
}

#[test_support::test(serial, Namespaces)]
fn a_panic_continues_in_the_caller() {
    let ns = NetNs::create().unwrap();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| ns.run(|| panic!("inside")));
    std::panic::set_hook(quiet);
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"inside"));
}

/// Executes one rtnetlink request in the namespace of the calling thread.
fn netlink(request: impl AsyncFnOnce(rtnetlink::Handle) -> Result<(), rtnetlink::Error>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        request(handle).await.unwrap();
    });
}

fn active(ns: &NetNs, feature: &str) -> bool {
    let features = ns.run(|| Offloads::open(WAN)?.features()).unwrap().unwrap();
    features[feature].active
}

/// Returns the number of descriptors of network namespaces that this process has.
fn open_namespaces() -> usize {
    let links = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|target| target.to_string_lossy().starts_with("net:"))
        .count()
}
