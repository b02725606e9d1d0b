//! Filters of packets, in a small part of tcpdump's filter language (pcap-filter(7)). Rules and captures have them.

pub(crate) mod condition;
pub(crate) mod value;

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

pub(crate) use self::condition::{FilterCondition, PacketEnd};
pub use self::condition::{IpFields, PacketFields};
use self::value::{Addresses, FilterValue, PortRange};
pub use self::value::{HostName, NotAValue};

/// The largest number of conditions of a filter. Every packet is compared with each of them.
pub const MOST_CONDITIONS: usize = 32;

/// Conditions that a packet must all meet. A filter without conditions matches every packet, even if it is not IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The conditions, without duplicates.
    conditions: Vec<FilterCondition>,
    text: String,
}

/// The reason why a filter is refused. The error names the word at fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// A word is unknown.
    #[error("`{0}` is not a word of a filter: use {WORDS}, joined by `and`")]
    UnknownWord(String),
    /// A word of tcpdump's language is not supported here.
    #[error("`{0}` is not supported: conditions are joined by `and`")]
    UnsupportedWord(String),
    /// Two conditions follow each other without `and`.
    #[error("`{before}` and `{word}` are not joined: conditions are joined by `and`")]
    NotJoined {
        /// The last word of the first condition.
        before: String,
        /// The word behind it.
        word: String,
    },
    /// The filter ends too early.
    #[error("`{after}` ends the filter: {expected} is missing")]
    Ends {
        /// The last word.
        after: String,
        /// The words that should follow.
        expected: &'static str,
    },
    /// A value is not one that the word before it takes.
    #[error("`{after} {word}`: expected {expected}")]
    Unexpected {
        /// The word before.
        after: String,
        /// The value.
        word: String,
        /// A description of a right value.
        expected: String,
    },
    /// There are too many conditions.
    #[error("more than {MOST_CONDITIONS} conditions: a filter has at most {MOST_CONDITIONS}")]
    TooMany,
    /// A second `vlan`, which means an inner tag to tcpdump.
    #[error("`vlan` occurs twice: a filter compares the outermost tag only")]
    TwoVlans,
    /// The name of a host where only addresses are allowed.
    #[error("`host {0}`: expected an IP address; only rules resolve names, when farwire starts")]
    Name(String),
}

const WORDS: &str = "ip, ip6, tcp, udp, sctp, icmp, icmp6, proto NUMBER, [src|dst] host ADDRESS, [src|dst] net PREFIX, [tcp|udp|sctp] [src|dst] port NUMBER, portrange FIRST-LAST, vlan [NUMBER], dscp NUMBER, ether proto NUMBER, fragment";
const HOST: &str = "an IP address, or in a rule the name of a host";
const NET: &str = "a prefix such as 10.0.0.0/8";
const PORT: &str = "a port, a number up to 65535";
const RANGE: &str = "a range of ports such as 5000-6000";
const PROTOCOL: &str = "the number of a protocol, up to 255";

impl Filter {
    /// Returns true if a packet meets all conditions.
    pub fn matches(&self, packet: &PacketFields) -> bool {
        self.conditions.iter().all(|one| one.matches(packet))
    }

    /// Returns true if the filter matches every packet.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Returns the filter, if it has no names of hosts.
    ///
    /// # Errors
    /// Returns an error that has the name of a host.
    pub fn without_names(self) -> Result<Self, FilterError> {
        let name = self.hosts().next().map(|host| host.name.clone());
        name.map_or(Ok(self), |name| Err(FilterError::Name(name)))
    }

    /// Returns it with only words that tcpdump has. It means the same for untagged packets; behind a VLAN tag, tcpdump
    /// looks only for what follows its `vlan`.
    pub fn for_tcpdump(&self) -> String {
        let (first, rest): (Vec<_>, Vec<_>) = self
            .conditions
            .iter()
            .partition(|one| matches!(one, FilterCondition::Vlan(_)));
        let all = first.into_iter().chain(rest);
        let words: Vec<String> = all.map(FilterCondition::for_tcpdump).collect();
        words.join(" and ")
    }

    /// Returns its conditions.
    pub(crate) fn conditions(&self) -> &[FilterCondition] {
        &self.conditions
    }

    /// Returns the hosts that it names.
    pub(crate) fn hosts_mut(&mut self) -> impl Iterator<Item = &mut HostName> {
        self.conditions.iter_mut().filter_map(|one| match one {
            FilterCondition::Address(_, Addresses::Named(host)) => Some(host),
            _ => None,
        })
    }

    /// Returns the hosts that it names.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.conditions.iter().filter_map(|one| match one {
            FilterCondition::Address(_, Addresses::Named(host)) => Some(host),
            _ => None,
        })
    }

    /// Returns the bytes of memory that it takes in addition to itself, without those of hosts.
    pub(crate) fn memory(&self) -> usize {
        self.text.capacity() + self.conditions.capacity() * size_of::<FilterCondition>()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut words = FilterWords {
            left: text.split_whitespace(),
            last: "",
        };
        let mut conditions = Vec::new();
        while let Some(word) = words.next() {
            words.condition(word, &mut conditions)?;
            if conditions.len() > MOST_CONDITIONS {
                return Err(FilterError::TooMany);
            }
            let before = words.last;
            match words.next() {
                None => break,
                Some("and" | "&&") if words.left.clone().next().is_some() => {}
                Some("and" | "&&") => return Err(words.ends("a condition")),
                Some(word) => return Err(not_joined(before, word)),
            }
        }
        let is_vlan = |one: &&FilterCondition| matches!(one, FilterCondition::Vlan(_));
        if conditions.iter().filter(is_vlan).count() > 1 {
            return Err(FilterError::TwoVlans);
        }
        let is_first =
            |(place, one): &(usize, &FilterCondition)| !conditions[..*place].contains(one);
        let each_once = conditions.iter().enumerate().filter(is_first);
        Ok(Self {
            conditions: each_once.map(|(_, one)| one.clone()).collect(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Filter {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Filter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A filter in tcpdump's words.",
            "examples": ["tcp port 443 and dst net 10.0.0.0/8"]
        })
    }
}

fn not_joined(before: &str, word: &str) -> FilterError {
    match word {
        "or" | "||" | "not" | "!" | "(" | ")" => FilterError::UnsupportedWord(word.to_owned()),
        _ => FilterError::NotJoined {
            before: before.to_owned(),
            word: word.to_owned(),
        },
    }
}

/// The words of a filter, read one by one.
struct FilterWords<'t> {
    left: std::str::SplitWhitespace<'t>,
    /// The last word that was read.
    last: &'t str,
}

impl<'t> FilterWords<'t> {
    fn next(&mut self) -> Option<&'t str> {
        self.last = self.left.next()?;
        Some(self.last)
    }

    /// Reads the condition that begins with `word`.
    fn condition(
        &mut self,
        word: &'t str,
        conditions: &mut Vec<FilterCondition>,
    ) -> Result<(), FilterError> {
        match word {
            "ip" => conditions.push(FilterCondition::V4),
            "ip6" => conditions.push(FilterCondition::V6),
            "icmp" => conditions.push(FilterCondition::Protocol(1)),
            "icmp6" => conditions.push(FilterCondition::Protocol(58)),
            "fragment" => conditions.push(FilterCondition::Fragment(true)),
            "proto" => {
                let number = self.value(word, PROTOCOL)?;
                conditions.push(FilterCondition::Protocol(number));
            }
            "dscp" => conditions.push(FilterCondition::Dscp(self.own_value(word)?)),
            "ether" => {
                let next = self.next().ok_or_else(|| self.ends("proto"))?;
                if next != "proto" {
                    return Err(unexpected(word, next, "proto"));
                }
                conditions.push(FilterCondition::EtherType(self.own_value("ether proto")?));
            }
            "vlan" => {
                let follows = self.left.clone().next();
                let is_joined = follows.is_none_or(|next| ["and", "&&"].contains(&next));
                let id = (!is_joined).then(|| self.own_value(word)).transpose()?;
                conditions.push(FilterCondition::Vlan(id));
            }
            "tcp" | "udp" | "sctp" => {
                let number = match word {
                    "tcp" => 6,
                    "udp" => 17,
                    _ => 132,
                };
                conditions.push(FilterCondition::Protocol(number));
                let follows = self.left.clone().next();
                let begins_port = |next: &&str| ["src", "dst", "port", "portrange"].contains(next);
                if let Some(next) = follows.filter(begins_port) {
                    self.last = next;
                    self.left.next();
                    let (end, word) = self.end(next)?;
                    conditions.push(self.at_end(end, word)?);
                }
            }
            "src" | "dst" | "host" | "net" | "port" | "portrange" => {
                let (end, word) = self.end(word)?;
                conditions.push(self.at_end(end, word)?);
            }
            "or" | "||" | "not" | "!" | "(" | ")" => {
                return Err(FilterError::UnsupportedWord(word.to_owned()));
            }
            _ => return Err(FilterError::UnknownWord(word.to_owned())),
        }
        Ok(())
    }

    /// Returns the end that `word` names and the word after it. If `word` names no end, returns `Either` and `word` itself.
    fn end(&mut self, word: &'t str) -> Result<(PacketEnd, &'t str), FilterError> {
        let end = match word {
            "src" => PacketEnd::Source,
            "dst" => PacketEnd::Destination,
            _ => return Ok((PacketEnd::Either, word)),
        };
        const EXPECTED: &str = "host, net or port";
        let next = self.next();
        Ok((end, next.ok_or_else(|| self.ends(EXPECTED))?))
    }

    /// Reads the condition on an end that begins with `word`: host, net, port or portrange.
    fn at_end(&mut self, end: PacketEnd, word: &'t str) -> Result<FilterCondition, FilterError> {
        match word {
            "host" => {
                let value = self.next().ok_or_else(|| self.ends(HOST))?;
                let addresses = value.parse().ok().filter(|_| !value.contains('/'));
                let addresses = addresses.ok_or_else(|| unexpected(word, value, HOST))?;
                Ok(FilterCondition::Address(end, addresses))
            }
            "net" => {
                let value = self.next().ok_or_else(|| self.ends(NET))?;
                let is_net = value.contains('/');
                let read = value.parse().map_err(|error: NotAValue| error.expected);
                let addresses = match read {
                    Ok(addresses) if is_net => addresses,
                    Err(expected) if expected != Addresses::EXPECTED => {
                        return Err(unexpected(word, value, &expected));
                    }
                    _ => return Err(unexpected(word, value, NET)),
                };
                Ok(FilterCondition::Address(end, addresses))
            }
            "port" => {
                let port: u16 = self.value(word, PORT)?;
                Ok(FilterCondition::Port(end, port.into()))
            }
            "portrange" => {
                let range: PortRange = self.value(word, RANGE)?;
                Ok(FilterCondition::Port(end, range))
            }
            other => Err(FilterError::UnknownWord(other.to_owned())),
        }
    }

    /// Reads a value that says itself what is expected.
    fn own_value<T: FilterValue>(&mut self, after: &str) -> Result<T, FilterError> {
        self.value(after, T::EXPECTED)
    }

    fn value<T: FromStr>(&mut self, after: &str, expected: &'static str) -> Result<T, FilterError> {
        let word = self.next().ok_or_else(|| self.ends(expected))?;
        word.parse().map_err(|_| unexpected(after, word, expected))
    }

    fn ends(&self, expected: &'static str) -> FilterError {
        FilterError::Ends {
            after: self.last.to_owned(),
            expected,
        }
    }
}

fn unexpected(after: &str, word: &str, expected: &str) -> FilterError {
    FilterError::Unexpected {
        after: after.to_owned(),
        word: word.to_owned(),
        expected: expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    /// Returns an IPv4 packet from 10.77.0.1, port 1000, to 10.77.0.2, port 443.
    fn packet(protocol: u8) -> PacketFields {
        let address = |last| IpAddr::from(Ipv4Addr::new(10, 77, 0, last));
        let ip = IpFields {
            addresses: [address(1), address(2)],
            protocol,
            ports: (protocol != 1).then_some([1000, 443]),
            dscp: 46,
            is_fragment: false,
        };
        PacketFields {
            ether_type: Some(0x0800),
            vlan: Some(7),
            ip: Some(ip),
        }
    }

    fn matches(filter: &str, packet: &PacketFields) -> bool {
        filter.parse::<Filter>().unwrap().matches(packet)
    }

    #[test]
    fn a_filter_has_few_conditions() {
        let of = |count: usize| vec!["port 443"; count].join(" and ");
        assert!(matches(&of(MOST_CONDITIONS), &packet(6)));
        let refused = of(9_200).parse::<Filter>().unwrap_err().to_string();
        assert_eq!(refused, "more than 32 conditions: a filter has at most 32");
        let once: Filter = "tcp and tcp port 443 and port 443".parse().unwrap();
        assert_eq!(once.conditions.len(), 2);
    }

    #[test]
    fn a_packet_meets_all_conditions() {
        let tcp = packet(6);
        for filter in [
            "",
            "tcp",
            "ip",
            "tcp port 443",
            "port 443",
            "tcp src port 1000",
            "dst port 443 and src host 10.77.0.1",
            "host 10.77.0.2",
            "net 10.0.0.0/8 and ip && tcp dst port 443",
            "net 0.0.0.0/0",
            "proto 6",
            "portrange 400-443",
            "tcp dst portrange 443-500",
            "vlan",
            "vlan 7 and tcp",
            "dscp 46",
            "dscp ef && vlan",
            "ether proto 0x0800",
            "ether proto 2048 and port 1000",
        ] {
            assert!(matches(filter, &tcp), "{filter}");
        }
        for filter in [
            "udp",
            "ip6",
            "icmp",
            "tcp src port 443",
            "tcp and port 80",
            "dst host 10.77.0.1",
            "src net 10.78.0.0/16",
            "host fd77::2",
            "src portrange 400-443",
            "vlan 8",
            "dscp 0",
            "ether proto 0x86dd",
            "fragment",
            "host not.yet.resolved.example",
        ] {
            assert!(!matches(filter, &tcp), "{filter}");
        }
        assert!(!matches("port 443", &packet(1)), "ICMP has no ports");
    }

    #[test]
    fn frames_without_ip_match_by_tag_and_type_only() {
        let arp = PacketFields {
            ether_type: Some(0x0806),
            vlan: None,
            ip: None,
        };
        assert!(matches("", &arp));
        assert!(matches("ether proto 0x0806", &arp));
        for filter in ["net 0.0.0.0/0", "vlan", "dscp 0", "proto 0", "ip"] {
            assert!(!matches(filter, &arp), "{filter}");
        }
    }

    #[test]
    fn a_named_host_is_all_its_addresses() {
        let mut filter: Filter = "tcp and dst host example.com".parse().unwrap();
        for host in filter.hosts_mut() {
            assert_eq!(host.name, "example.com");
            host.addresses = vec!["fd77::2".parse().unwrap(), "10.77.0.2".parse().unwrap()];
        }
        assert!(filter.matches(&packet(6)));
        assert!(!filter.matches(&packet(17)));
        assert_eq!(filter.to_string(), "tcp and dst host example.com");
        let refused = filter.without_names().unwrap_err().to_string();
        assert!(refused.starts_with("`host example.com`: expected an IP address"));
    }

    #[test]
    fn a_word_that_joins_conditions_is_no_name_of_a_host() {
        for text in ["host and", "src host or", "host not and tcp"] {
            assert!(text.parse::<Filter>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_filter_that_takes_fewer_packets_implies_the_other() {
        let implies = |text: &str, other: &str| {
            let [one, other]: [Filter; 2] = [text, other].map(|text| text.parse().unwrap());
            let is_implied =
                |right: &FilterCondition| one.conditions().iter().any(|own| own.implies(right));
            other.conditions().iter().all(is_implied)
        };
        for (narrow, wide) in [
            ("tcp port 443", "tcp"),
            ("tcp port 443", "port 443"),
            ("dst port 443", "port 443"),
            ("port 443", "portrange 400-500"),
            ("host 10.1.2.3", "net 10.0.0.0/8"),
            ("src net 10.1.0.0/16", "net 10.0.0.0/8 and ip"),
            ("host fd77::2", "ether proto 0x86dd"),
            ("vlan 7", "vlan"),
            ("udp", ""),
        ] {
            assert!(implies(narrow, wide), "{narrow} / {wide}");
            assert!(!implies(wide, narrow), "{wide} / {narrow}");
        }
        assert!(!implies("src port 443", "dst port 443"));
        assert!(!implies("host a.example", "net 10.0.0.0/8"));
    }

    #[test]
    fn tcpdump_has_words_for_all_of_it() {
        for (filter, words) in [
            ("tcp port 443 and vlan 7", "vlan 7 and tcp and port 443"),
            (
                "dscp ef",
                "(ip[1] & 0xfc == 0xb8 or ip6[0:2] & 0x0fc0 == 0x0b80)",
            ),
            ("fragment", "(ip[6:2] & 0x3fff != 0 or ip6[6] == 44)"),
            ("ether proto 2054", "ether proto 0x0806"),
            ("", ""),
        ] {
            assert_eq!(filter.parse::<Filter>().unwrap().for_tcpdump(), words);
        }
    }

    #[test]
    fn a_refusal_names_the_word() {
        let refused = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        for (filter, word) in [
            ("tpc", "`tpc` is not a word"),
            ("tcp or udp", "`or` is not supported"),
            ("not tcp", "`not` is not supported"),
            ("tcp udp", "`tcp` and `udp` are not joined"),
            ("tcp port", "`port` ends the filter: a port"),
            ("port http", "`port http`: expected a port"),
            ("port 65536", "`port 65536`"),
            (
                "portrange 9-1",
                "`portrange 9-1`: expected a range of ports",
            ),
            ("host 10.77.0", "`host 10.77.0`: expected an IP address"),
            (
                "host 10.0.0.0/8",
                "`host 10.0.0.0/8`: expected an IP address",
            ),
            ("net 10.0.0.1/8", "write 10.0.0.0/8"),
            ("net 10", "`net 10`: expected a prefix"),
            ("net example.com", "`net example.com`: expected a prefix"),
            ("vlan 4096", "`vlan 4096`: expected a VLAN"),
            ("vlan 1 and vlan 2", "`vlan` occurs twice"),
            ("dscp 64", "`dscp 64`: expected a DSCP"),
            ("ether host", "`ether host`: expected proto"),
            (
                "ether proto 0x1",
                "`ether proto 0x1`: expected an EtherType",
            ),
            (
                "proto 256",
                "`proto 256`: expected the number of a protocol",
            ),
            ("src", "`src` ends the filter: host, net or port"),
            ("src tcp", "`tcp` is not a word"),
            ("tcp and", "`and` ends the filter: a condition"),
        ] {
            assert!(refused(filter).contains(word), "{}", refused(filter));
        }
    }
}
