//! The cost of a packet in rules: the search for the first one that matches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use divan::Bencher;
use divan::counter::ItemsCount;
use farwire_conditions::filter::{IpFields, PacketFields};
use farwire_conditions::{Direction, LinkSpec, RuleSpec, Rules};

/// Packets between two readings of the clock.
const BATCH: u64 = 1_000;

fn main() {
    divan::main();
}

/// One rule, for a port.
#[divan::bench]
fn one_rule(bencher: Bencher<'_, '_>) {
    search(bencher, 1, |n| format!("tcp port {}", 1_000 + n));
}

/// 100 rules, each for a port.
#[divan::bench]
fn hundred_rules_by_port(bencher: Bencher<'_, '_>) {
    search(bencher, 100, |n| format!("tcp port {}", 1_000 + n));
}

/// 100 rules, each for a prefix and a range of ports.
#[divan::bench]
fn hundred_rules_by_prefix_and_ports(bencher: Bencher<'_, '_>) {
    search(bencher, 100, |n| {
        format!("dst net 10.{n}.0.0/16 and udp portrange {n}-{}", 60_000 + n)
    });
}

/// 100 rules of all kinds.
#[divan::bench]
fn hundred_mixed_rules(bencher: Bencher<'_, '_>) {
    search(bencher, 100, |n| match n % 5 {
        0 => format!("port {n} and dscp {}", n % 64),
        1 => format!("src net fd{n:02}::/16 and tcp"),
        2 => format!("vlan {n}"),
        3 => format!("host 10.0.0.{n}"),
        _ => format!("proto {n} and net 10.{n}.0.0/16"),
    });
}

/// Looks up packets of both IP versions, most of which match none of the first rules.
fn search(bencher: Bencher<'_, '_>, count: u64, filter: fn(u64) -> String) {
    let rule = |n| -> RuleSpec { format!("{}: name=r{n}", filter(n)).parse().expect("a rule") };
    let spec = LinkSpec {
        rules: (0..count).map(rule).collect(),
        ..LinkSpec::default()
    };
    let rules: Rules = spec.to_link("box").expect("the rules are valid").rules;
    let packets: Vec<PacketFields> = (0..BATCH).map(packet).collect();
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(move || {
            for packet in &packets {
                let packet = divan::black_box(packet);
                divan::black_box(rules.class_of(Direction::Up, packet));
            }
        });
}

fn packet(n: u64) -> PacketFields {
    // A multiplicative sequence visits ports and addresses without an order that a processor could learn.
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [a, b, c, d, e, f, ..] = mixed.to_le_bytes();
    let v4 = |last| IpAddr::from(Ipv4Addr::new(10, a % 128, b, last));
    let v6 = |last| IpAddr::from(Ipv6Addr::new(0xfd00 | u16::from(a), 0, 0, 0, 0, 0, 0, last));
    let is_v6 = n.is_multiple_of(4);
    let addresses = match is_v6 {
        true => [v6(u16::from(c)), v6(u16::from(d))],
        false => [v4(c), v4(d)],
    };
    PacketFields {
        ether_type: Some(if is_v6 { 0x86dd } else { 0x0800 }),
        vlan: n.is_multiple_of(16).then_some(u16::from(e)),
        ip: Some(IpFields {
            addresses,
            protocol: if f % 2 == 0 { 6 } else { 17 },
            ports: Some([40_000 + u16::from(e), 1_000 + u16::from(c % 128)]),
            dscp: d % 64,
            is_fragment: false,
        }),
    }
}
