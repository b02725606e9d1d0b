//! The filter of a capture, in a small part of tcpdump's filter language (pcap-filter(7)).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use netio::FiveTuple;
use thiserror::Error;

/// The largest number of conditions of a filter. Every packet is compared with each of them.
pub(crate) const MOST_CONDITIONS: usize = 32;

/// Conditions that a packet must all meet. A filter without conditions keeps every packet, even if
/// it is not IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// The conditions, without duplicates.
    conditions: Vec<FilterCondition>,
    text: String,
}

/// The reason why a filter is refused. The error names the word at fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum FilterError {
    #[error("`{0}` is not a word of a filter: use {WORDS}, joined by `and`")]
    UnknownWord(String),
    #[error("`{0}` is not supported: conditions are joined by `and`")]
    UnsupportedWord(String),
    #[error("`{before}` and `{word}` are not joined: conditions are joined by `and`")]
    NotJoined { before: String, word: String },
    #[error("`{after}` ends the filter: {expected} is missing")]
    Ends {
        after: String,
        expected: &'static str,
    },
    #[error("`{after} {word}`: expected {expected}")]
    Unexpected {
        after: String,
        word: String,
        expected: &'static str,
    },
    #[error("more than {MOST_CONDITIONS} conditions: a filter has at most {MOST_CONDITIONS}")]
    TooMany,
    #[error("`net {0}` has bits set beyond its prefix: write `net {1}`")]
    BeyondPrefix(IpNet, IpNet),
}

const WORDS: &str = "ip, ip6, tcp, udp, sctp, icmp, icmp6, [src|dst] host ADDRESS, [src|dst] net PREFIX, [tcp|udp|sctp] [src|dst] port NUMBER";
const PORT: &str = "a port, a number up to 65535";
const ADDRESS: &str = "an IP address";
const NET: &str = "a prefix such as 10.0.0.0/8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterCondition {
    V4,
    V6,
    Protocol(u8),
    Net(PacketEnd, IpNet),
    Port(PacketEnd, u16),
}

/// The end of a packet whose address or port is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketEnd {
    Source,
    Destination,
    Either,
}

impl Filter {
    /// Returns true if the filter keeps a frame of this flow. `flow` is `None` for a frame without
    /// a readable flow.
    pub(crate) fn matches(&self, flow: Option<&FiveTuple>) -> bool {
        self.is_empty()
            || flow.is_some_and(|flow| self.conditions.iter().all(|one| one.matches(flow)))
    }

    /// Returns true if the filter keeps every frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }
}

impl FilterCondition {
    fn matches(&self, flow: &FiveTuple) -> bool {
        let addresses = [flow.source, flow.destination];
        match *self {
            Self::V4 => flow.source.is_ipv4(),
            Self::V6 => flow.source.is_ipv6(),
            Self::Protocol(number) => flow.protocol == number,
            Self::Net(end, net) => end.matches(addresses, |address| net.contains(address)),
            Self::Port(end, number) => flow
                .ports
                .is_some_and(|ports| end.matches(ports, |port| *port == number)),
        }
    }
}

impl PacketEnd {
    fn matches<T>(self, [source, destination]: [T; 2], is_equal: impl Fn(&T) -> bool) -> bool {
        match self {
            Self::Source => is_equal(&source),
            Self::Destination => is_equal(&destination),
            Self::Either => is_equal(&source) || is_equal(&destination),
        }
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
        let is_first =
            |(place, one): &(usize, FilterCondition)| !conditions[..*place].contains(one);
        let each_once = conditions.iter().copied().enumerate().filter(is_first);
        Ok(Self {
            conditions: each_once.map(|(_, one)| one).collect(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
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
            "tcp" | "udp" | "sctp" => {
                let number = match word {
                    "tcp" => 6,
                    "udp" => 17,
                    _ => 132,
                };
                conditions.push(FilterCondition::Protocol(number));
                let follows = self.left.clone().next();
                if let Some(next) = follows.filter(|next| ["src", "dst", "port"].contains(next)) {
                    self.last = next;
                    self.left.next();
                    let (end, word) = self.end(next)?;
                    conditions.push(self.at_end(end, word)?);
                }
            }
            "src" | "dst" | "host" | "net" | "port" => {
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

    /// Returns the end that `word` names and the word after it. If `word` names no end, returns
    /// `Either` and `word` itself.
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

    /// Reads the condition on an end that begins with `word`: host, net or port.
    fn at_end(&mut self, end: PacketEnd, word: &'t str) -> Result<FilterCondition, FilterError> {
        match word {
            "host" => {
                let address: IpAddr = self.value(word, ADDRESS)?;
                Ok(FilterCondition::Net(end, address.into()))
            }
            "net" => {
                let net: IpNet = self.value(word, NET)?;
                match net.trunc() {
                    whole if whole == net => Ok(FilterCondition::Net(end, net)),
                    whole => Err(FilterError::BeyondPrefix(net, whole)),
                }
            }
            "port" => Ok(FilterCondition::Port(end, self.value(word, PORT)?)),
            other => Err(FilterError::UnknownWord(other.to_owned())),
        }
    }

    fn value<T: FromStr>(&mut self, after: &str, expected: &'static str) -> Result<T, FilterError> {
        let word = self.next().ok_or_else(|| self.ends(expected))?;
        word.parse().map_err(|_| FilterError::Unexpected {
            after: after.to_owned(),
            word: word.to_owned(),
            expected,
        })
    }

    fn ends(&self, expected: &'static str) -> FilterError {
        FilterError::Ends {
            after: self.last.to_owned(),
            expected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an Ethernet frame with IPv4 from 10.77.0.1, port 1000, to 10.77.0.2, port 443.
    fn frame(protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; 54];
        (frame[12], frame[14], frame[23]) = (8, 0x45, protocol);
        frame[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        frame[34..38].copy_from_slice(&[0x03, 0xe8, 0x01, 0xbb]);
        frame
    }

    fn keeps(filter: &str, frame: &[u8]) -> bool {
        let flow = FiveTuple::of(frame);
        filter.parse::<Filter>().unwrap().matches(flow.as_ref())
    }

    #[test]
    fn a_filter_has_few_conditions() {
        let of = |count: usize| vec!["port 443"; count].join(" and ");
        assert!(keeps(&of(MOST_CONDITIONS), &frame(6)));
        let refused = of(9_200).parse::<Filter>().unwrap_err().to_string();
        assert_eq!(refused, "more than 32 conditions: a filter has at most 32");
        let once: Filter = "tcp and tcp port 443 and port 443".parse().unwrap();
        assert_eq!(once.conditions.len(), 2);
    }

    #[test]
    fn a_packet_meets_all_conditions() {
        let tcp = frame(6);
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
        ] {
            assert!(keeps(filter, &tcp), "{filter}");
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
        ] {
            assert!(!keeps(filter, &tcp), "{filter}");
        }
        assert!(!keeps("port 443", &frame(1)), "ICMP has no ports");
    }

    #[test]
    fn only_the_empty_filter_keeps_frames_without_ip() {
        let mut arp = frame(6);
        arp[13] = 6;
        assert!(keeps("", &arp));
        assert!(!keeps("net 0.0.0.0/0", &arp));
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
            ("host 10.77.0", "`host 10.77.0`: expected an IP address"),
            ("net 10.0.0.1/8", "write `net 10.0.0.0/8`"),
            ("src", "`src` ends the filter: host, net or port"),
            ("src tcp", "`tcp` is not a word"),
            ("tcp and", "`and` ends the filter: a condition"),
        ] {
            assert!(refused(filter).contains(word), "{}", refused(filter));
        }
    }
}
