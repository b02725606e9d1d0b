//! The search for the first rule that matches a packet.
//!
//! Each kind of header field has a table: where a value lies among the bounds of all rules, and which rules it allows
//! there, as a bit of a word for each rule (Lakshman and Stiliadis, "High-speed policy-based packet forwarding using
//! efficient multi-dimensional range matching", 1998). The rules that all tables allow are few, and the first one whose
//! conditions the packet meets applies.

use ipnet::IpNet;
use model::MOST_CLASSES;

use super::Rule;
use crate::Direction;
use crate::filter::{FilterCondition, IpFields, PacketEnd, PacketFields};

/// A set of rules: bit n is the rule with index n.
type RuleSet = u128;

const _: () = assert!(MOST_CLASSES as u32 <= RuleSet::BITS, "each rule has a bit");

/// Rules, and the tables in which they are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleIndex {
    rules: Vec<IndexedRule>,
    /// The rules for each direction.
    directions: [RuleSet; 2],
    /// The rules that packets without IP may match.
    without_ip: RuleSet,
    /// The rules that packets without ports may match.
    without_ports: RuleSet,
    ether_types: Table<u16>,
    vlans: Table<u16>,
    protocols: Table<u8>,
    codepoints: Table<u8>,
    ports: EndsTable<u16>,
    v4: EndsTable<u32>,
    v6: EndsTable<u128>,
}

/// A rule and its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexedRule {
    pub(super) name: String,
    direction: Option<Direction>,
    conditions: Box<[FilterCondition]>,
}

/// The value that represents packets without a VLAN tag.
const NO_VLAN: u16 = u16::MAX;
/// The value that represents packets without an EtherType.
const NO_TYPE: u16 = 0;

impl RuleIndex {
    pub(super) fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules: Vec<IndexedRule> = rules
            .into_iter()
            .map(|rule| IndexedRule {
                conditions: rule.conditions().into(),
                name: rule.name,
                direction: rule.direction,
            })
            .collect();
        let all = |is_in: &dyn Fn(&IndexedRule) -> bool| set(rules.iter().map(is_in));
        let lacks =
            |is_on: fn(&FilterCondition) -> bool| all(&|rule| !rule.conditions.iter().any(is_on));
        Self {
            directions: [Direction::Up, Direction::Down]
                .map(|own| all(&|rule| rule.direction.is_none_or(|direction| direction == own))),
            without_ip: lacks(|one| one.is_on_ip()),
            without_ports: lacks(|one| matches!(one, FilterCondition::Port(..))),
            ether_types: Table::new(&rules, FilterCondition::ether_types),
            vlans: Table::new(&rules, FilterCondition::vlans),
            protocols: Table::new(&rules, FilterCondition::protocols),
            codepoints: Table::new(&rules, FilterCondition::codepoints),
            ports: EndsTable::new(&rules, FilterCondition::ports),
            v4: EndsTable::new(&rules, FilterCondition::v4),
            v6: EndsTable::new(&rules, FilterCondition::v6),
            rules,
        }
    }

    pub(super) fn rules(&self) -> &[IndexedRule] {
        &self.rules
    }

    /// Returns the number of the first rule that matches a packet, from 1; 0 if none does.
    pub(super) fn first_match(&self, direction: Direction, packet: &PacketFields) -> u16 {
        let mut left = direction.choose(self.directions[0], self.directions[1])
            & self.ether_types.at(packet.ether_type.unwrap_or(NO_TYPE))
            & self.vlans.at(packet.vlan.unwrap_or(NO_VLAN));
        left &= match &packet.ip {
            Some(ip) => self.allowed(ip),
            None => self.without_ip,
        };
        while left != 0 {
            let first = left.trailing_zeros();
            if self.rules[first as usize].meets(packet) {
                return u16::try_from(first).map_or(0, |first| first + 1);
            }
            left &= left - 1;
        }
        0
    }

    fn allowed(&self, ip: &IpFields) -> RuleSet {
        let by_ports = match ip.ports {
            Some(ports) => self.ports.at(ports),
            None => self.without_ports,
        };
        let by_address = match ip.addresses {
            [
                std::net::IpAddr::V4(source),
                std::net::IpAddr::V4(destination),
            ] => self.v4.at([source.to_bits(), destination.to_bits()]),
            [
                std::net::IpAddr::V6(source),
                std::net::IpAddr::V6(destination),
            ] => self.v6.at([source.to_bits(), destination.to_bits()]),
            // No packet has addresses of both versions.
            [std::net::IpAddr::V4(_), std::net::IpAddr::V6(_)]
            | [std::net::IpAddr::V6(_), std::net::IpAddr::V4(_)] => RuleSet::MAX,
        };
        by_ports & by_address & self.protocols.at(ip.protocol) & self.codepoints.at(ip.dscp)
    }
}

impl IndexedRule {
    fn meets(&self, packet: &PacketFields) -> bool {
        self.conditions.iter().all(|one| one.matches(packet))
    }

    /// Returns whether every packet that `other` matches also matches this rule.
    pub(super) fn hides(&self, other: &Self) -> bool {
        let is_implied =
            |own: &FilterCondition| other.conditions.iter().any(|one| one.implies(own));
        let has_direction = self.direction.is_none() || self.direction == other.direction;
        has_direction && self.conditions.iter().all(is_implied)
    }
}

/// Returns the set of rules for which it is true.
fn set(are_in: impl Iterator<Item = bool>) -> RuleSet {
    let bits = are_in.take(RuleSet::BITS as usize).enumerate();
    bits.fold(0, |set, (bit, is_in)| set | RuleSet::from(is_in) << bit)
}

/// The values that a condition allows, both ends included.
type Range = (u128, u128);

/// The rules that each value of a header field allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table<K> {
    bounds: Bounds<K>,
    allowed: Vec<RuleSet>,
}

/// The rules that each value at the ends of a packet allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EndsTable<K> {
    bounds: Bounds<K>,
    allowed: Vec<EndRules>,
}

/// The rules that a value allows at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndRules {
    /// The rules that it allows as the source.
    source: RuleSet,
    /// The rules that it allows as the destination.
    destination: RuleSet,
    /// The rules that it allows as one of both ends.
    either: RuleSet,
}

/// The first values of adjacent intervals, except for the first interval, which begins at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bounds<K>(Vec<K>);

impl<K: Copy + Ord + TryFrom<u128>> Bounds<K> {
    /// Creates intervals in which each of these ranges contains all values or none.
    fn new(ranges: impl Iterator<Item = Range>) -> Self {
        let ends = ranges.flat_map(|(first, last)| [Some(first), last.checked_add(1)]);
        let starts = ends.flatten().filter(|start| *start > 0);
        let mut starts: Vec<K> = starts.filter_map(|start| start.try_into().ok()).collect();
        starts.sort_unstable();
        starts.dedup();
        Self(starts)
    }

    /// Returns the number of the interval of a value.
    fn find(&self, value: K) -> usize {
        self.0.partition_point(|start| *start <= value)
    }
}

impl<K: Copy + Ord + TryFrom<u128> + Into<u128>> Bounds<K> {
    /// Returns the first value of each interval.
    fn firsts(&self) -> impl Iterator<Item = u128> {
        [0].into_iter()
            .chain(self.0.iter().map(|start| (*start).into()))
    }
}

impl<K: Copy + Ord + TryFrom<u128> + Into<u128>> Table<K> {
    /// Creates the table of the conditions for which `range` returns a range.
    fn new(rules: &[IndexedRule], range: fn(&FilterCondition) -> Option<Range>) -> Self {
        let all = rules.iter().flat_map(|rule| &rule.conditions);
        let bounds = Bounds::new(all.filter_map(range));
        let allowed = bounds.firsts().map(|value| {
            let allows = |rule: &IndexedRule| {
                let mut ranges = rule.conditions.iter().filter_map(range);
                ranges.all(|(first, last)| (first..=last).contains(&value))
            };
            set(rules.iter().map(allows))
        });
        Self {
            allowed: allowed.collect(),
            bounds,
        }
    }

    fn at(&self, value: K) -> RuleSet {
        let found = self.allowed.get(self.bounds.find(value));
        found.copied().unwrap_or(0)
    }
}

/// An end of a packet, and the ranges of which one must have its value.
type EndRanges = (PacketEnd, Vec<Range>);

impl<K: Copy + Ord + TryFrom<u128> + Into<u128>> EndsTable<K> {
    /// Creates the table of the conditions for which `ranges` returns an end and ranges, of which a value must be in one.
    fn new(rules: &[IndexedRule], ranges: fn(&FilterCondition) -> Option<EndRanges>) -> Self {
        let of_rule = |rule: &IndexedRule| rule.conditions.iter().filter_map(ranges).collect();
        let all: Vec<Vec<EndRanges>> = rules.iter().map(of_rule).collect();
        let each = all.iter().flatten().flat_map(|(_, ranges)| ranges);
        let bounds = Bounds::new(each.copied());
        let allowed = bounds.firsts().map(|value| {
            let has = |ranges: &[Range]| {
                let mut ranges = ranges.iter();
                ranges.any(|(first, last)| (*first..=*last).contains(&value))
            };
            let at = |end| {
                let allows = |rule: &Vec<EndRanges>| {
                    let mut own = rule.iter().filter(|(of, _)| *of == end).peekable();
                    let is_free = own.peek().is_none();
                    match end {
                        PacketEnd::Source | PacketEnd::Destination => {
                            own.all(|(_, ranges)| has(ranges))
                        }
                        // Each of several conditions may be met at another end.
                        PacketEnd::Either => is_free || own.any(|(_, ranges)| has(ranges)),
                    }
                };
                set(all.iter().map(allows))
            };
            EndRules {
                source: at(PacketEnd::Source),
                destination: at(PacketEnd::Destination),
                either: at(PacketEnd::Either),
            }
        });
        Self {
            allowed: allowed.collect(),
            bounds,
        }
    }

    fn at(&self, [source, destination]: [K; 2]) -> RuleSet {
        let [source, destination] =
            [source, destination].map(|value| self.allowed.get(self.bounds.find(value)));
        match (source, destination) {
            (Some(from), Some(to)) => from.source & to.destination & (from.either | to.either),
            _ => 0,
        }
    }
}

/// The ranges of conditions on each kind of header field; `None` for a condition on another one.
impl FilterCondition {
    /// Returns whether packets without IP never meet it.
    fn is_on_ip(&self) -> bool {
        !matches!(self, Self::EtherType(_) | Self::Vlan(_))
    }

    fn ether_types(&self) -> Option<Range> {
        match self {
            Self::EtherType(kind) => Some((kind.0.into(), kind.0.into())),
            _ => None,
        }
    }

    fn vlans(&self) -> Option<Range> {
        match self {
            Self::Vlan(None) => Some((0, u128::from(NO_VLAN) - 1)),
            Self::Vlan(Some(id)) => Some((id.0.into(), id.0.into())),
            _ => None,
        }
    }

    fn protocols(&self) -> Option<Range> {
        match self {
            Self::Protocol(number) => Some(((*number).into(), (*number).into())),
            Self::AnyIcmp => Some((1, 58)),
            _ => None,
        }
    }

    fn codepoints(&self) -> Option<Range> {
        match self {
            Self::Dscp(dscp) => Some((dscp.0.into(), dscp.0.into())),
            _ => None,
        }
    }

    fn ports(&self) -> Option<EndRanges> {
        match self {
            Self::Port(end, range) => Some((*end, vec![(range.first.into(), range.last.into())])),
            _ => None,
        }
    }

    fn v4(&self) -> Option<EndRanges> {
        self.addresses(|net| match net {
            IpNet::V4(net) => {
                let ends = [net.network(), net.broadcast()].map(|end| end.to_bits().into());
                Some((ends[0], ends[1]))
            }
            IpNet::V6(_) => None,
        })
    }

    fn v6(&self) -> Option<EndRanges> {
        self.addresses(|net| match net {
            IpNet::V6(net) => Some((net.network().to_bits(), net.broadcast().to_bits())),
            IpNet::V4(_) => None,
        })
    }

    /// Returns the ranges of addresses of one version; a condition on the other version has none.
    fn addresses(&self, range: fn(IpNet) -> Option<Range>) -> Option<EndRanges> {
        match self {
            Self::Address(end, all) => Some((*end, all.nets().filter_map(range).collect())),
            _ => None,
        }
    }
}
