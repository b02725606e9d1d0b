//! The rules that assign packets to classes.

use model::LinkConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A link for the forwarder: the configuration of the model, and the rules of its classes.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatedLink {
    /// The configuration of the model.
    pub config: LinkConfig,
    /// The rules that give the class of each packet.
    pub rules: Rules,
}

/// The classes of a link: the rules in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// The rule of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Rule {
    /// The class's name in summaries.
    pub name: String,
    /// The protocol that IP carries; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The port of UDP or TCP at either end; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A protocol that IP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// ICMP, and ICMPv6 of IPv6.
    Icmp,
}

impl Rules {
    /// Returns the class of a packet: the number of the first class whose rule it matches, from 1; 0 if it matches
    /// none. `protocol` is the one that IP carries; `ports` are those of source and destination, if there are any.
    pub fn class_of(&self, protocol: u8, ports: Option<[u16; 2]>) -> u16 {
        (1..)
            .zip(&self.0)
            .find(|(_, rule)| rule.takes(protocol, ports))
            .map_or(0, |(class, _)| class)
    }

    /// Returns the names of the classes, from class 1 on.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|rule| rule.name.as_str())
    }

    /// Returns whether every packet is of class 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<I: IntoIterator<Item = Rule>>(rules: I) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl Rule {
    fn takes(&self, protocol: u8, ports: Option<[u16; 2]>) -> bool {
        let of_protocol = self
            .protocol
            .is_none_or(|own| own.numbers().contains(&protocol));
        let of_port = |port| ports.is_some_and(|ports| ports.contains(&port));
        of_protocol && self.port.is_none_or(of_port)
    }
}

impl Protocol {
    /// Returns its numbers in the headers of IPv4 and IPv6.
    const fn numbers(self) -> &'static [u8] {
        match self {
            Self::Udp => &[17],
            Self::Tcp => &[6],
            Self::Icmp => &[1, 58],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_determines_the_class() {
        let rule = |name: &str, protocol, port| Rule {
            name: name.to_owned(),
            protocol,
            port,
        };
        let rules: Rules = [
            rule("voice", Some(Protocol::Udp), Some(5004)),
            rule("udp", Some(Protocol::Udp), None),
            rule("web", None, Some(443)),
            rule("ping", Some(Protocol::Icmp), None),
        ]
        .into_iter()
        .collect();
        for (protocol, ports, class) in [
            (17, Some([9, 5004]), 1),
            (17, Some([5004, 9]), 1),
            (17, Some([443, 9]), 2),
            (17, None, 2),
            (6, Some([40_000, 443]), 3),
            (6, Some([5004, 80]), 0),
            (6, None, 0),
            (1, None, 4),
            (58, None, 4),
            (47, None, 0),
        ] {
            assert_eq!(
                rules.class_of(protocol, ports),
                class,
                "{protocol} {ports:?}"
            );
        }
        assert_eq!(
            rules.names().collect::<Vec<_>>(),
            ["voice", "udp", "web", "ping"]
        );
        assert_eq!(Rules::default().class_of(17, None), 0);
    }
}
