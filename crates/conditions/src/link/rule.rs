//! Rules: packets with other conditions.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use model::MOST_CLASSES;

use super::LinkSpec;
use crate::Direction;
use crate::condition::{CONDITIONS, RULE_KEYS};
use crate::error::{At, Error};
use crate::filter::HostName;
use crate::layer::{ConditionSet, Layer};
use crate::nearest;
use crate::require;
use crate::rules::{Protocol, Rule};

/// The largest number of conditions that the filters and fields of all rules of a link have together.
const MOST_CONDITIONS: usize = 1_024;

/// A rule: the packets that match it, and the conditions that differ for them. They share all other conditions with the
/// packets that match no rule.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RuleSpec {
    /// Its name, and the packets that match it.
    #[serde(flatten)]
    pub rule: Rule,
    /// The hop whose conditions differ, by its name; when absent, those of the link itself differ. At the other hops, its
    /// packets meet the same conditions as those that match no rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<String>,
    /// The weight by which its packets share the link's rate with the others, 1 to 255. Those of a rule without a weight,
    /// and those that match no rule, have the weight 1. Without any weight, all packets wait in one queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<NonZeroU8>,
    /// The conditions that differ in both directions.
    #[serde(flatten)]
    pub both: Layer,
    /// The conditions that differ from client to server.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub up: Layer,
    /// The conditions that differ from server to client.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub down: Layer,
}

/// A host whose name a rule has, with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedHost {
    /// The name of the rule.
    pub rule: String,
    /// The name of the host.
    pub host: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// Refuses rules with equal names, and rules that match no packet.
pub(crate) fn check(rules: &[RuleSpec]) -> Result<(), Error> {
    let (count, most) = (rules.len(), usize::from(MOST_CLASSES));
    require!(count <= most, "rules": "there are {count}: at most {most} are allowed");
    let conditions = rules.iter().map(|one| one.rule.conditions().len());
    let count: usize = conditions.sum();
    require!(
        count <= MOST_CONDITIONS,
        "rules": "their filters have {count} conditions together: at most {MOST_CONDITIONS} are allowed"
    );
    for (number, RuleSpec { rule, .. }) in rules.iter().enumerate() {
        let others = &rules[..number];
        let check = || {
            let name = &rule.name;
            require!(
                super::is_name(name),
                "name": "`{name}`: a rule needs a name of letters, digits, - and _, such as voice"
            );
            require!(
                others.iter().all(|other| other.rule.name != *name),
                "name": "two rules have the name {name}: give each its own name"
            );
            rule.check()
        };
        check().at_item("rules", number, Some(&rule.name))?;
    }
    Ok(())
}

impl Rule {
    fn check(&self) -> Result<(), Error> {
        require!(
            !self.conditions().is_empty(),
            "the rule matches no packet in particular: set match = \"tcp port 443\", or a field such as protocol, port or host"
        );
        let ports = [
            ("port", self.port),
            ("source_port", self.source_port),
            ("destination_port", self.destination_port),
        ];
        for (key, port) in ports {
            require!(
                self.protocol != Some(Protocol::Icmp) || port.is_none(),
                key => "ICMP has no ports: leave {key} out, or set protocol = \"udp\" or \"tcp\""
            );
            require!(
                port.is_none_or(|port| port.first > 0),
                key => "0 is not a port: write 1 to 65535"
            );
        }
        Ok(())
    }

    /// Returns a name made from what it matches, such as `tcp-port-443`.
    fn usual_name(&self) -> String {
        let words = self.words();
        let words = words
            .split_whitespace()
            .filter(|word| !["and", "&&"].contains(word));
        let text = words.collect::<Vec<_>>().join("-");
        let plain = text.chars().map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        });
        let plain: String = plain.collect();
        plain
            .split('-')
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("-")
    }
}

impl RuleSpec {
    /// Gives it the usual name if it has none.
    fn named(mut self) -> Self {
        if self.rule.name.is_empty() {
            self.rule.name = self.rule.usual_name();
        }
        self
    }
}

impl LinkSpec {
    /// Gives every host that its rules name its addresses, which `lookup` returns for a name. Returns the hosts.
    ///
    /// # Errors
    /// Returns an error with the rule for a name that `lookup` refuses, or that has no addresses.
    pub fn resolve(
        &mut self,
        mut lookup: impl FnMut(&str) -> Result<Vec<IpAddr>, String>,
    ) -> Result<Vec<ResolvedHost>, Error> {
        let mut resolved = Vec::new();
        for (number, RuleSpec { rule, .. }) in self.rules.iter_mut().enumerate() {
            let name = rule.name.clone();
            for host in rule.hosts_mut() {
                let found = lookup(&host.name).and_then(|all| match all.is_empty() {
                    true => Err("it has no addresses".to_owned()),
                    false => Ok(all),
                });
                let mut found = found
                    .map_err(|why| {
                        Error::other(format_args!(
                            "{}: {why}: correct the name, or write addresses",
                            host.name
                        ))
                    })
                    .at_item("rules", number, Some(&name))?;
                found.sort_unstable();
                found.dedup();
                host.addresses.clone_from(&found);
                resolved.push(ResolvedHost {
                    rule: name.clone(),
                    host: host.name.clone(),
                    addresses: found,
                });
            }
        }
        Ok(resolved)
    }

    /// Returns the addresses that a rule has for the name of a host; `None` if no rule has the name, or it was not
    /// resolved.
    pub fn addresses_of(&self, name: &str) -> Option<&[IpAddr]> {
        let hosts = self.rules.iter().flat_map(|one| one.rule.hosts());
        let known = hosts.filter(|host| host.name == name && !host.addresses.is_empty());
        known.map(|host| host.addresses.as_slice()).next()
    }

    /// Refuses rules that name hosts whose addresses are not known. `exec` and `emulate` look names up when they start.
    ///
    /// # Errors
    /// Returns an error with the rule and the name of the host.
    pub fn require_addresses(&self) -> Result<(), Error> {
        for (number, RuleSpec { rule, .. }) in self.rules.iter().enumerate() {
            let check = || {
                for HostName { name, addresses } in rule.hosts() {
                    require!(
                        !addresses.is_empty(),
                        "{name} is the name of a host, whose addresses are not known here, because only exec and emulate look names up, when they start: write its addresses"
                    );
                }
                Ok::<_, Error>(())
            };
            check().at_item("rules", number, Some(&rule.name))?;
        }
        Ok(())
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = RuleSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a rule")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RuleSpec, A::Error> {
        let mut rule = Rule::default();
        let mut name: Option<String> = None;
        let (mut hop, mut weight) = (None, None);
        let [mut both, mut up, mut down] = <[Layer; 3]>::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => name = Some(map.next_value()?),
                "match" => rule.filter = map.next_value()?,
                "protocol" => rule.protocol = map.next_value()?,
                "port" => rule.port = map.next_value()?,
                "source_port" => rule.source_port = map.next_value()?,
                "destination_port" => rule.destination_port = map.next_value()?,
                "host" => rule.host = map.next_value()?,
                "source" => rule.source = map.next_value()?,
                "destination" => rule.destination = map.next_value()?,
                "dscp" => rule.dscp = map.next_value()?,
                "vlan" => rule.vlan = map.next_value()?,
                "ether_type" => rule.ether_type = map.next_value()?,
                "fragment" => rule.fragment = map.next_value()?,
                "direction" => rule.direction = map.next_value()?,
                "hop" => hop = map.next_value()?,
                "weight" => weight = map.next_value()?,
                "up" => up = map.next_value()?,
                "down" => down = map.next_value()?,
                key => both.read(key, &mut map, RULE_KEYS)?,
            }
        }
        rule.name = name.unwrap_or_else(|| rule.usual_name());
        Ok(RuleSpec {
            rule,
            hop,
            weight,
            both,
            up,
            down,
        })
    }
}

impl<'de> Deserialize<'de> for RuleSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(RuleVisitor)
    }
}

/// The words in front of a condition for one direction.
const UP: &str = "up-";
const DOWN: &str = "down-";

impl FromStr for RuleSpec {
    type Err = Error;

    /// Reads a rule from its text form: `tcp port 443: loss=2% up-delay=20ms`.
    fn from_str(text: &str) -> Result<Self, Error> {
        const FORM: &str =
            "write a filter, a colon, a space and conditions, as in 'tcp port 443: loss=2%'";
        // The colons of an IPv6 address may be followed by a space, but conditions have no such colon.
        let (filter, conditions) = match (text.rsplit_once(": "), text.strip_suffix(':')) {
            (Some((filter, conditions)), _) => (filter, conditions),
            (None, Some(filter)) => (filter, ""),
            (None, None) => {
                return Err(Error::other(format_args!(
                    "`{text}` has no conditions: {FORM}"
                )));
            }
        };
        let filter = filter.parse().map_err(Error::other)?;
        let mut rule = Rule {
            filter,
            ..Rule::default()
        };
        let (mut hop, mut weight) = (None, None);
        let [mut both, mut up, mut down] = <[ConditionSet; 3]>::default();
        for (key, value) in assignments(conditions)? {
            match key {
                "name" => rule.name = value,
                "direction" => rule.direction = Some(direction(&value)?),
                "hop" => hop = Some(value),
                "weight" => weight = Some(self::weight(&value)?),
                _ => {
                    let (set, name) = match (key.strip_prefix(UP), key.strip_prefix(DOWN)) {
                        (Some(name), _) => (&mut up, name),
                        (None, Some(name)) => (&mut down, name),
                        (None, None) => (&mut both, key),
                    };
                    set.set(condition(name, &value)?);
                }
            }
        }
        let rule = Self {
            rule,
            hop,
            weight,
            both: both.into(),
            up: up.into(),
            down: down.into(),
        };
        Ok(rule.named())
    }
}

/// Splits `loss=2% netem=delay 1ms` into keys and values. A word without `=` belongs to the value before it.
fn assignments(text: &str) -> Result<Vec<(&str, String)>, Error> {
    let mut all: Vec<(&str, String)> = Vec::new();
    for word in text.split_whitespace() {
        // `1%,burst=8` is a value, and not a key.
        let key = word.split_once('=').filter(|(key, _)| !key.contains(','));
        match (key, all.last_mut()) {
            (Some((key, value)), _) => all.push((key, value.to_owned())),
            (None, Some((_, before))) => {
                before.push(' ');
                before.push_str(word);
            }
            (None, None) => {
                return Err(Error::other(format_args!(
                    "`{word}` is not a condition: write its name, = and its value, as in loss=2%"
                )));
            }
        }
    }
    Ok(all)
}

fn direction(text: &str) -> Result<Direction, Error> {
    match text {
        "up" => Ok(Direction::Up),
        "down" => Ok(Direction::Down),
        other => Err(Error::other(format_args!(
            "direction={other}: write up or down"
        ))),
    }
}

fn weight(text: &str) -> Result<NonZeroU8, Error> {
    text.parse().map_err(|_| {
        Error::other(format_args!(
            "weight={text}: write a whole number from 1 to 255"
        ))
    })
}

/// Reads a condition whose name is that of its flag or of its key.
fn condition(name: &str, value: &str) -> Result<crate::Condition, Error> {
    let key = name.replace('-', "_");
    match CONDITIONS.iter().find(|kind| kind.key == key) {
        Some(kind) => (kind.read)(value),
        None => {
            let known: Vec<&str> = CONDITIONS.iter().map(|kind| kind.key).collect();
            let advice = match nearest::of(&key, known.iter().copied()) {
                Some(near) => format!("did you mean `{}`?", near.replace('_', "-")),
                None => format!(
                    "use one of: {}, name, direction, hop, weight",
                    known.join(", ").replace('_', "-")
                ),
            };
            Err(Error::other(format_args!(
                "unknown condition `{name}`; {advice}"
            )))
        }
    }
}
