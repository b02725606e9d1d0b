//! Tests of the hits of rules: 10,000 packets of 20 flows through the forwarder, in virtual time.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use conditions::filter::Filter;
use conditions::{LinkSpec, RuleSpec};
use model::{Counters, Link, Nanos, Side};
use netio::{Frame, MemoryPort, Offload, Vlan};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use record::lateness::LateBudget;

use super::{Forwarder, NextStep, PortId};

/// The rules, in an order in which several match one packet.
const RULES: [(&str, &str); 11] = [
    ("tagged", "vlan 7 and tcp"),
    ("web", "tcp port 443"),
    ("dns", "udp dst port 53 and dst net 10.77.0.0/24"),
    ("media", "udp portrange 5000-5999"),
    ("voice", "dscp ef"),
    ("far", "src net fd77:1::/32"),
    ("parts", "fragment"),
    ("gre", "proto 47"),
    ("six", "ip6 and host fd77::9"),
    ("lab", "ether proto 0x88b5"),
    ("ping", "icmp"),
];

/// A flow: the side at which its packets enter, one of them, and the rule that they match by what the test wrote into it.
type TestFlow = (Side, Vec<u8>, Option<&'static str>);

/// Returns an IPv4 packet with this protocol, TOS and fragment field between these addresses; `ports` begin its payload.
fn v4(protocol: u8, tos: u8, fragment: u16, ends: [[u8; 4]; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, tos, 0, 48, 0, 9]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.extend(ends.concat());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.resize(14 + 48, 0);
    frame
}

/// Returns an IPv6 packet with this protocol and traffic class between these addresses.
fn v6(protocol: u8, class: u8, ends: [&str; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([
        0x86,
        0xdd,
        0x60 | class >> 4,
        class << 4,
        0,
        0,
        0,
        28,
        protocol,
        64,
    ]);
    for end in ends {
        let address: std::net::Ipv6Addr = end.parse().unwrap();
        frame.extend(address.octets());
    }
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.resize(14 + 40 + 28, 0);
    frame
}

/// Returns a frame with a VLAN tag in its bytes.
fn tagged(frame: &[u8], id: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, id], &frame[12..]].concat()
}

fn flows() -> [TestFlow; 20] {
    use Side::{A, B};
    let (client, server, other) = ([10, 77, 0, 1], [10, 77, 0, 2], [192, 0, 2, 1]);
    let (near, far) = ("fd77::1", "fd77:1::5");
    let (tcp, udp, ef) = (6, 17, 0xb9);
    let up = [client, server];
    [
        (A, v4(tcp, 0, 0, up, [40_000, 443]), Some("web")),
        (
            B,
            v4(tcp, 0, 0, [server, client], [443, 40_000]),
            Some("web"),
        ),
        (A, v6(tcp, 0, [near, "fd77::2"], [40_001, 443]), Some("web")),
        (
            A,
            tagged(&v4(tcp, 0, 0, up, [40_000, 443]), 7),
            Some("tagged"),
        ),
        (A, tagged(&v4(udp, 0, 0, up, [9, 9]), 8), None),
        (A, v4(udp, 0, 0, up, [40_000, 53]), Some("dns")),
        (B, v4(udp, 0, 0, [server, client], [53, 40_000]), None),
        (A, v4(udp, 0, 0, [client, other], [40_000, 53]), None),
        (A, v4(udp, ef, 0, up, [40_000, 5004]), Some("media")),
        (B, v6(udp, 0, ["fd77::2", near], [5999, 7]), Some("media")),
        (A, v4(udp, ef, 0, up, [7, 9]), Some("voice")),
        (B, v6(udp, ef, ["fd77::2", near], [7, 9]), Some("voice")),
        (B, v6(tcp, 0, [far, near], [7, 9]), Some("far")),
        (A, v6(tcp, 0, [near, far], [9, 7]), None),
        (A, v4(udp, 0, 0x2000, up, [9, 5004]), Some("media")),
        (A, v4(udp, 0, 0x0002, up, [0, 5004]), Some("parts")),
        (A, v4(47, 0, 0, up, [0, 0x0800]), Some("gre")),
        // An echo request has type 128.
        (A, v6(58, 0, [near, "fd77::9"], [0x8000, 0]), Some("six")),
        (B, v4(1, 0, 0, [server, client], [0, 0]), Some("ping")),
        (
            A,
            [&[2; 12][..], &[0x88, 0xb5], &[0; 46]].concat(),
            Some("lab"),
        ),
    ]
}

fn rules() -> Vec<RuleSpec> {
    let rule = |(name, filter): &(&str, &str)| {
        format!("{filter}: name={name} loss=0%").parse::<RuleSpec>()
    };
    RULES.iter().map(|one| rule(one).unwrap()).collect()
}

/// Returns 10,000 packets of the flows in a mixed order, by the places of their flows.
fn mixed() -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(44);
    (0..10_000).map(|_| random.usize(..flows().len())).collect()
}

/// Returns the counters of all classes by side, after these packets have passed.
fn pass(order: &[usize]) -> [Vec<Counters>; 2] {
    let spec = LinkSpec {
        rules: rules(),
        ..LinkSpec::default()
    };
    let link = spec.to_link("box").unwrap();
    let mut ports = [MemoryPort::new(true), MemoryPort::new(true)];
    let flows = flows();
    for (n, flow) in (1..).zip(order) {
        let (side, bytes, _) = &flows[*flow];
        // Every second tagged frame arrives as the kernel delivers it, with its tag beside its bytes.
        let frame = match bytes[12..16] {
            [0x81, 0, 0, id] if n % 2 == 0 => {
                let vlan = Vlan {
                    tpid: 0x8100,
                    tci: id.into(),
                };
                let bytes = [&bytes[..12], &bytes[16..]].concat();
                Frame::new(Nanos(n), Offload::default(), Some(vlan), &bytes)
            }
            _ => Frame::new(Nanos(n), Offload::default(), None, bytes),
        };
        ports[side.index()].arrive(frame);
    }
    let mut forwarder = Forwarder::new(ports.into(), usize::MAX);
    let (model, budget) = (Link::new(&link.config).unwrap(), LateBudget::DEFAULT);
    forwarder.add_link(PortId::SEPARATE_SETS, model, link.rules, budget, None);
    let now = Nanos(order.len() as u64 + 1);
    while forwarder.step(now, Nanos::ZERO) != NextStep::Arrival {}
    forwarder.stats(0).link.clone()
}

/// Returns the hits of each rule, and of no rule under the name of "".
fn hits(counters: &[Vec<Counters>; 2]) -> BTreeMap<&'static str, u64> {
    let names = [""].into_iter().chain(RULES.map(|(name, _)| name));
    let counted = names.enumerate().map(|(class, name)| {
        let packets = counters.iter().map(|side| side[class].packets);
        (name, packets.sum())
    });
    counted.collect()
}

#[test]
fn the_hits_of_rules_are_the_packets_that_were_written_for_them() {
    let (order, flows) = (mixed(), flows());
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for flow in &order {
        *expected.entry(flows[*flow].2.unwrap_or("")).or_default() += 1;
    }
    let counters = pass(&order);
    assert_eq!(hits(&counters), expected);
    assert_eq!(expected.values().sum::<u64>(), 10_000);
    // Each direction has its own counts.
    let ups = order.iter().filter(|flow| flows[**flow].0 == Side::A);
    let up: u64 = counters[0].iter().map(|class| class.packets).sum();
    assert_eq!(up, ups.count() as u64);
}

/// Returns the numbers of the packets in `file` that tcpdump keeps with a filter. Packet n has the time n us.
fn kept_by_tcpdump(file: &Path, filter: &str) -> Vec<usize> {
    let mut tcpdump = Command::new("tcpdump");
    tcpdump
        .args(["-tt", "-n", "-q", "-r"])
        .arg(file)
        .arg(filter);
    let output = tcpdump.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{filter}: {said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().filter_map(|line| {
        let (_, micros) = line.split_once(' ')?.0.split_once('.')?;
        micros.parse().ok()
    });
    numbers.collect()
}

#[test]
fn the_hits_of_rules_are_those_of_tcpdump_with_the_same_filters() {
    if which::which("tcpdump").is_err() {
        eprintln!("skipped: there is no tcpdump");
        return;
    }
    let (order, flows) = (mixed(), flows());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixed.pcap");
    let mut file = PcapWriter::new(File::create(&path).unwrap()).unwrap();
    for (n, flow) in (0..).zip(&order) {
        let bytes = &flows[*flow].1;
        let length = u32::try_from(bytes.len()).unwrap();
        let packet = PcapPacket::new(Duration::from_micros(n), length, bytes);
        file.write_packet(&packet).unwrap();
    }
    drop(file);
    // The first rule that matches a packet applies.
    let mut first = vec![""; order.len()];
    for (name, filter) in RULES.iter().rev() {
        let filter: Filter = filter.parse().unwrap();
        for packet in kept_by_tcpdump(&path, &filter.for_tcpdump()) {
            first[packet] = name;
        }
    }
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for name in first {
        *expected.entry(name).or_default() += 1;
    }
    assert_eq!(hits(&pass(&order)), expected);
}
