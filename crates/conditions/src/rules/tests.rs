//! Tests: the rule that applies to a packet, and the warnings about rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::filter::IpFields;

fn rule(filter: &str) -> Rule {
    Rule {
        name: filter.to_owned(),
        filter: filter.parse().unwrap(),
        ..Rule::default()
    }
}

fn rules(filters: &[&str]) -> Rules {
    filters.iter().map(|filter| rule(filter)).collect()
}

/// Returns a packet between 10.77.0.1 and 10.77.0.2.
fn packet(protocol: u8, ports: Option<[u16; 2]>) -> PacketFields {
    let address = |last| IpAddr::from(Ipv4Addr::new(10, 77, 0, last));
    PacketFields {
        ether_type: Some(0x0800),
        vlan: None,
        ip: Some(IpFields {
            addresses: [address(1), address(2)],
            protocol,
            ports,
            dscp: 0,
            is_fragment: false,
        }),
    }
}

#[test]
fn the_first_matching_rule_applies() {
    let rules = rules(&["udp port 5004", "udp", "port 443", "icmp"]);
    for (protocol, ports, class) in [
        (17, Some([9, 5004]), 1),
        (17, Some([5004, 9]), 1),
        (17, Some([443, 9]), 2),
        (17, None, 2),
        (6, Some([40_000, 443]), 3),
        (6, Some([5004, 80]), 0),
        (6, None, 0),
        (1, None, 4),
        (47, None, 0),
    ] {
        for direction in [Direction::Up, Direction::Down] {
            let found = rules.class_of(direction, &packet(protocol, ports));
            assert_eq!(found, class, "{protocol} {ports:?}");
        }
    }
    let none = Rules::default();
    assert_eq!(none.class_of(Direction::Up, &packet(17, None)), 0);
    assert_eq!(none.class_of(Direction::Up, &PacketFields::default()), 0);
}

#[test]
fn fields_match_what_a_filter_matches() {
    let read = |text: &str| {
        crate::read::toml_text::<crate::RuleSpec>(text)
            .unwrap()
            .rule
    };
    let up = "protocol = 'tcp'\nport = '400-500'\nsource = '10.77.0.0/24'\ndirection = 'up'\nfragment = false";
    let rules: Rules = [read(up), read("vlan = 7\ndscp = 'ef'")]
        .into_iter()
        .collect();
    let name = "tcp-portrange-400-500-src-net-10-77-0-0-24-no-fragment-up";
    assert_eq!(rules.names().collect::<Vec<_>>(), [name, "dscp-46-vlan-7"]);
    let tcp = packet(6, Some([9, 443]));
    assert_eq!(rules.class_of(Direction::Up, &tcp), 1);
    assert_eq!(rules.class_of(Direction::Down, &tcp), 0);
    let mut part = tcp;
    part.ip.as_mut().unwrap().is_fragment = true;
    assert_eq!(rules.class_of(Direction::Up, &part), 0);
    (part.vlan, part.ip.as_mut().unwrap().dscp) = (Some(7), 46);
    assert_eq!(rules.class_of(Direction::Down, &part), 2);
}

#[test]
fn a_rule_that_an_earlier_one_hides_is_named_with_it() {
    let hidden = |filters: &[&str]| {
        let hidden = rules(filters).hidden().into_iter();
        hidden
            .map(|HiddenRule { name, earlier }| format!("{earlier} hides {name}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        hidden(&[
            "tcp port 443",
            "tcp",
            "tcp dst port 80",
            "udp",
            "net 10.0.0.0/8 and udp"
        ]),
        [
            "tcp hides tcp dst port 80",
            "udp hides net 10.0.0.0/8 and udp"
        ]
    );
    assert!(hidden(&["udp", "tcp", "host 10.0.0.1", "net 10.0.0.0/8"]).is_empty());
    let one_way = |direction| Rule {
        direction,
        ..rule("tcp")
    };
    for (earlier, later, is_hidden) in [
        (None, Some(Direction::Up), true),
        (Some(Direction::Up), Some(Direction::Up), true),
        (Some(Direction::Up), Some(Direction::Down), false),
        (Some(Direction::Up), None, false),
    ] {
        let rules: Rules = [one_way(earlier), one_way(later)].into_iter().collect();
        assert_eq!(rules.hidden().len(), usize::from(is_hidden));
    }
}

#[test]
fn a_hundred_and_twenty_eight_rules_each_have_their_packets() {
    let filters: Vec<String> = (1..=128)
        .map(|n| match n % 4 {
            0 => format!("port {n}"),
            1 => format!("src net 10.{n}.0.0/16"),
            2 => format!("vlan {n}"),
            _ => format!("dst host fd77::{n:x}"),
        })
        .collect();
    let all: Rules = filters.iter().map(|filter| rule(filter)).collect();
    for n in 1..=128_u16 {
        let mut own = packet(6, Some([1000, 2000]));
        let ip = own.ip.as_mut().unwrap();
        ip.addresses = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        match n % 4 {
            0 => ip.ports = Some([2000, n]),
            1 => ip.addresses[0] = Ipv4Addr::new(10, n.try_into().unwrap(), 1, 1).into(),
            2 => own.vlan = Some(n),
            _ => {
                let v6 = |last| IpAddr::from(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last));
                ip.addresses = [v6(500), v6(n)];
            }
        }
        assert_eq!(
            all.class_of(Direction::Up, &own),
            n,
            "{}",
            filters[usize::from(n) - 1]
        );
    }
}

const WORDS: &[&str] = &[
    "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "vlan", "fragment",
];

fn conditions() -> impl Strategy<Value = String> {
    let end = prop::sample::select(vec!["", "src ", "dst "]);
    let number = 0..4_u8;
    prop_oneof![
        prop::sample::select(WORDS).prop_map(str::to_owned),
        (end.clone(), number.clone()).prop_map(|(end, n)| format!("{end}port {n}")),
        (end.clone(), number.clone()).prop_map(|(end, n)| format!("{end}portrange {n}-3")),
        (end.clone(), number.clone()).prop_map(|(end, n)| format!("{end}host 10.0.0.{n}")),
        (end.clone(), number.clone()).prop_map(|(end, n)| format!("{end}host fd77::{n}")),
        (end.clone(), 28..=32_u8).prop_map(|(end, n)| format!("{end}net 10.0.0.0/{n}")),
        (end, 124..=128_u8).prop_map(|(end, n)| format!("{end}net fd77::/{n}")),
        number.clone().prop_map(|n| format!("vlan {n}")),
        number.clone().prop_map(|n| format!("dscp {n}")),
        number.prop_map(|n| format!(
            "ether proto 0x0{}",
            ["800", "806", "801", "999"][usize::from(n)]
        )),
    ]
}

fn filters() -> impl Strategy<Value = String> {
    let all = prop::collection::vec(conditions(), 1..4);
    all.prop_map(|all| all.join(" and "))
        .prop_filter("one tag", |text| text.parse::<Filter>().is_ok())
}

fn packets() -> impl Strategy<Value = PacketFields> {
    let v4 = (0..4_u8, 0..4_u8)
        .prop_map(|(from, to)| [from, to].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last))));
    let v6 = (0..4_u16, 0..4_u16).prop_map(|(from, to)| {
        [from, to].map(|last| IpAddr::from(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, last)))
    });
    let protocol = prop::sample::select(vec![1, 6, 17, 47, 58]);
    let ports = prop::option::of([0..4_u16, 0..4_u16]);
    let ip = (prop_oneof![v4, v6], protocol, ports, 0..4_u8, any::<bool>());
    let ip = ip.prop_map(|(addresses, protocol, ports, dscp, is_fragment)| IpFields {
        addresses,
        protocol,
        ports,
        dscp,
        is_fragment,
    });
    let ether_type = prop::sample::select(vec![None, Some(0x800), Some(0x86dd), Some(0x806)]);
    let vlan = prop::option::of(0..4_u16);
    (ether_type, vlan, prop::option::of(ip)).prop_map(|(other, vlan, ip)| PacketFields {
        ether_type: match &ip {
            Some(ip) if ip.addresses[0].is_ipv4() => Some(0x0800),
            Some(_) => Some(0x86dd),
            None => other,
        },
        vlan,
        ip,
    })
}

proptest! {
    /// The tables find what asking one rule after the other finds.
    #[test]
    fn the_index_finds_the_first_rule_that_matches(
        filters in prop::collection::vec(filters(), 0..20), packet in packets(),
    ) {
        let all: Rules = filters.iter().map(|filter| rule(filter)).collect();
        let parsed = filters.iter().map(|filter| filter.parse::<Filter>().unwrap());
        let first = parsed.into_iter().position(|filter| filter.matches(&packet));
        let expected = first.map_or(0, |place| u16::try_from(place).unwrap() + 1);
        prop_assert_eq!(all.class_of(Direction::Down, &packet), expected);
    }

    /// A rule that is reported as hidden never applies.
    #[test]
    fn a_hidden_rule_never_applies(
        filters in prop::collection::vec(filters(), 2..8), packet in packets(),
    ) {
        let numbered = (0..).zip(&filters).map(|(n, filter)| Rule { name: format!("r{n}"), ..rule(filter) });
        let all: Rules = numbered.collect();
        let hidden = all.hidden();
        let class = all.class_of(Direction::Up, &packet);
        let name = all.names().nth(usize::from(class.wrapping_sub(1)));
        prop_assert!(hidden.iter().all(|rule| Some(rule.name.as_str()) != name));
    }
}
