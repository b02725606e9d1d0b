//! The rules that give packets other conditions: the first one that matches a packet applies.

mod index;

use std::net::IpAddr;
use std::sync::Arc;

use model::LinkConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::index::RuleIndex;
use crate::Direction;
use crate::filter::value::{Addresses, Dscp, EtherType, PortRange, VlanId};
use crate::filter::{Filter, FilterCondition, HostName, PacketEnd, PacketFields};

/// A link for the forwarder: the configuration of the model, and its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedLink {
    /// The configuration of the model.
    pub config: LinkConfig,
    /// The rules that give the class of each packet.
    pub rules: Rules,
}

/// The rules of a link in their order.
///
/// Looking up a packet allocates nothing, and takes hardly longer with many rules than with a few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Arc<RuleIndex>);

/// The packets of a rule. A packet matches if it meets everything that the rule states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Rule {
    /// Its name in counters and messages: letters, digits, `-` and `_`. When absent, it is made from what the rule
    /// matches, such as `tcp-port-443`.
    #[schemars(default)]
    pub name: String,
    /// A filter in tcpdump's words.
    #[serde(rename = "match", skip_serializing_if = "Filter::is_empty")]
    #[schemars(default)]
    pub(crate) filter: Filter,
    /// The protocol that IP carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<Protocol>,
    /// The port of TCP, UDP or SCTP at either end, or a range such as `5000-6000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<PortRange>,
    /// The port of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_port: Option<PortRange>,
    /// The port of the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destination_port: Option<PortRange>,
    /// The address of either end: an address, a prefix such as `10.0.0.0/8`, or the name of a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<Addresses>,
    /// The address of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<Addresses>,
    /// The address of the receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<Addresses>,
    /// The differentiated services codepoint: a number up to 63, or a name such as `ef`, `af41` or `cs1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dscp: Option<Dscp>,
    /// The number in the outermost VLAN tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vlan: Option<VlanId>,
    /// The EtherType behind all VLAN tags, such as `0x88f7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ether_type: Option<EtherType>,
    /// Whether the packet is a fragment of an IP packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fragment: Option<bool>,
    /// The direction; both when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) direction: Option<Direction>,
}

/// A protocol that IP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// SCTP.
    Sctp,
    /// ICMP, and ICMPv6 of IPv6.
    Icmp,
}

/// A rule that never applies, because an earlier one matches all its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenRule {
    /// Its name.
    pub name: String,
    /// The name of the earlier rule.
    pub earlier: String,
}

impl Rules {
    /// Returns the class of a packet in one direction: the number of the first rule that it matches, from 1; 0 if it
    /// matches none.
    pub fn class_of(&self, direction: Direction, packet: &PacketFields) -> u16 {
        self.0.first_match(direction, packet)
    }

    /// Returns the names of the rules in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.rules().iter().map(|rule| rule.name.as_str())
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.rules().is_empty()
    }

    /// Returns the rules that never apply because of one earlier rule. A rule that only several rules hide together is
    /// not among them.
    pub fn hidden(&self) -> Vec<HiddenRule> {
        let all = self.0.rules();
        let hidden = all.iter().enumerate().filter_map(|(place, rule)| {
            let earlier = all[..place].iter().find(|earlier| earlier.hides(rule))?;
            Some(HiddenRule {
                name: rule.name.clone(),
                earlier: earlier.name.clone(),
            })
        });
        hidden.collect()
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(Arc::new(RuleIndex::new(rules)))
    }
}

impl Rule {
    /// Returns everything that a packet must meet, except for the direction.
    pub(crate) fn conditions(&self) -> Vec<FilterCondition> {
        let port =
            |end, port: Option<PortRange>| port.map(|ports| FilterCondition::Port(end, ports));
        let address = |end, all: &Option<Addresses>| {
            let all = all.clone();
            all.map(|all| FilterCondition::Address(end, all))
        };
        let fields = [
            self.protocol.map(Protocol::condition),
            port(PacketEnd::Either, self.port),
            port(PacketEnd::Source, self.source_port),
            port(PacketEnd::Destination, self.destination_port),
            address(PacketEnd::Either, &self.host),
            address(PacketEnd::Source, &self.source),
            address(PacketEnd::Destination, &self.destination),
            self.dscp.map(FilterCondition::Dscp),
            self.vlan.map(|vlan| FilterCondition::Vlan(Some(vlan))),
            self.ether_type.map(FilterCondition::EtherType),
            self.fragment.map(FilterCondition::Fragment),
        ];
        let filter = self.filter.conditions().iter().cloned();
        filter.chain(fields.into_iter().flatten()).collect()
    }

    /// Returns what it matches in the words of a filter.
    pub(crate) fn words(&self) -> String {
        let conditions = self.conditions();
        let direction = self.direction.map(|direction| direction.name().to_owned());
        let filter = Some(self.filter.to_string()).filter(|text| !text.is_empty());
        let fields = conditions[self.filter.conditions().len()..].iter();
        let all = filter.into_iter().chain(fields.map(ToString::to_string));
        all.chain(direction).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the hosts that it names.
    pub(crate) fn hosts_mut(&mut self) -> impl Iterator<Item = &mut HostName> {
        let fields = [&mut self.host, &mut self.source, &mut self.destination];
        let named = fields.into_iter().filter_map(|field| match field {
            Some(Addresses::Named(host)) => Some(host),
            Some(Addresses::Net(_)) | None => None,
        });
        self.filter.hosts_mut().chain(named)
    }

    /// Returns the hosts that it names.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostName> {
        let fields = [&self.host, &self.source, &self.destination];
        let named = fields.into_iter().filter_map(|field| match field {
            Some(Addresses::Named(host)) => Some(host),
            Some(Addresses::Net(_)) | None => None,
        });
        self.filter.hosts().chain(named)
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    pub(crate) fn memory(&self) -> usize {
        let host = |host: &HostName| {
            host.name.capacity() + host.addresses.capacity() * size_of::<IpAddr>()
        };
        self.name.capacity() + self.filter.memory() + self.hosts().map(host).sum::<usize>()
    }
}

impl Protocol {
    fn condition(self) -> FilterCondition {
        match self {
            Self::Udp => FilterCondition::Protocol(17),
            Self::Tcp => FilterCondition::Protocol(6),
            Self::Sctp => FilterCondition::Protocol(132),
            Self::Icmp => FilterCondition::AnyIcmp,
        }
    }
}

#[cfg(test)]
mod tests;
