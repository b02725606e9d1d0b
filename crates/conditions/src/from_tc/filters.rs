//! Filters of tc: the packets that they match, and where these go (iproute2 6.1, `tc/f_u32.c`, `tc/f_flower.c`,
//! `tc/m_mirred.c` and `tc/m_police.c`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::ids::ClassId;
use super::qdiscs::{named, rate, size, whole};
use crate::condition::PoliceSpec;
use crate::rules::Protocol;
use crate::tc_words::Words;

/// The packets of a filter, as far as a rule of a link can match them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    pub(super) protocol: Option<Protocol>,
    pub(super) port: Option<u16>,
    pub(super) source: Option<IpNet>,
    pub(super) destination: Option<IpNet>,
}

/// The place to which the packets of a filter go.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// A class of the qdisc.
    Class(ClassId),
    /// The qdiscs of another device, and back.
    Device(String),
    /// On, unless they exceed a rate.
    Police(PoliceSpec),
}

/// The network protocol of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Any,
    Ipv4,
    Ipv6,
}

impl Network {
    /// Reads the word behind `protocol`.
    ///
    /// # Errors
    /// Returns a message for a protocol that a rule of a link cannot match.
    pub(super) fn read(word: &str) -> Result<Self, String> {
        match word {
            "all" => Ok(Self::Any),
            "ip" | "ipv4" | "0x0800" | "0x800" => Ok(Self::Ipv4),
            "ipv6" | "ip6" | "0x86dd" => Ok(Self::Ipv6),
            other => Err(format!("a filter for the protocol {other}")),
        }
    }
}

impl Matched {
    /// Returns whether it has every packet.
    pub(super) fn is_all(self) -> bool {
        self == Self::default()
    }

    /// Returns whether a packet can match both.
    pub(super) fn overlaps(self, other: Self) -> bool {
        fn both<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            }
        }
        let nets = |one: Option<IpNet>, other: Option<IpNet>| match (one, other) {
            (Some(one), Some(other)) => one.contains(&other) || other.contains(&one),
            _ => true,
        };
        both(self.protocol, other.protocol)
            && both(self.port, other.port)
            && nets(self.source, other.source)
            && nets(self.destination, other.destination)
    }

    /// Returns whether it compares addresses, which are those of one direction.
    pub(super) fn has_addresses(self) -> bool {
        self.source.is_some() || self.destination.is_some()
    }

    /// Returns a name for a rule with these packets.
    pub(super) fn name(self) -> String {
        let protocol = self.protocol.map(|protocol| match protocol {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
            Protocol::Sctp => "sctp",
            Protocol::Icmp => "icmp",
        });
        let ports = match (protocol, self.port) {
            (Some(protocol), Some(port)) => Some(format!("{protocol}-{port}")),
            (Some(protocol), None) => Some(protocol.to_owned()),
            (None, Some(port)) => Some(format!("port-{port}")),
            (None, None) => None,
        };
        let end = |word: &str, net: Option<IpNet>| {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let text = net.map(|net| shortest(net).chars().map(plain).collect::<String>());
            text.map(|text| format!("{word}-{text}"))
        };
        let ends = [end("from", self.source), end("to", self.destination)];
        let parts: Vec<String> = ports
            .into_iter()
            .chain(ends.into_iter().flatten())
            .collect();
        match parts.is_empty() {
            true => "all".to_owned(),
            false => parts.join("-"),
        }
    }

    fn set_address(&mut self, end: &str, net: IpNet) -> Result<(), String> {
        let place = match end {
            "src" => &mut self.source,
            _ => &mut self.destination,
        };
        match place.replace(net) {
            Some(before) if before != net => Err("a match on two addresses".to_owned()),
            _ => Ok(()),
        }
    }

    fn set_protocol(&mut self, number: u32) -> Result<(), String> {
        let protocol = match number {
            1 | 58 => Protocol::Icmp,
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            other => return Err(format!("a match on protocol {other}")),
        };
        match self.protocol.replace(protocol) {
            Some(before) if before != protocol => Err("a match on two protocols".to_owned()),
            _ => Ok(()),
        }
    }

    fn set_port(&mut self, port: u16) -> Result<(), String> {
        match self.port.replace(port) {
            Some(_) => Err("a match on two ports".to_owned()),
            None if port == 0 => Err("a match on port 0".to_owned()),
            None => Ok(()),
        }
    }
}

/// Returns a prefix without its length if it is a single address.
fn shortest(net: IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}

/// Reads an address or a prefix. The kernel ignores bits beyond the prefix.
fn net(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let net = text.parse::<IpNet>().ok().or_else(address);
    let net = net.ok_or_else(|| format!("a match on the address {text}"))?;
    Ok(net.trunc())
}

/// Reads a filter behind its kind.
///
/// # Errors
/// Returns the part of the filter that has no equivalent, or the reason why tc refuses it.
pub(super) fn filter(
    kind: &str,
    network: Network,
    words: &mut Words<'_>,
) -> Result<(Matched, Target), String> {
    let mut read = Filter::default();
    match kind {
        "u32" => read.u32(network, words)?,
        "flower" => read.flower(words)?,
        "matchall" => read.matchall(words)?,
        other => return Err(format!("a filter of the kind {other}")),
    }
    let target = read.action.or(read.class.map(Target::Class));
    let target = target.ok_or("a filter without a class or an action")?;
    Ok((read.matched, target))
}

/// A filter as far as it has been read.
#[derive(Default)]
struct Filter {
    matched: Matched,
    class: Option<ClassId>,
    action: Option<Target>,
}

impl Filter {
    fn u32(&mut self, network: Network, words: &mut Words<'_>) -> Result<(), String> {
        const SHORT: &[&str] = &[
            "match", "offset", "hashkey", "classid", "divisor", "order", "action", "police",
        ];
        const EXACT: &[&str] = &[
            "flowid", "link", "ht", "sample", "indev", "skip_hw", "skip_sw",
        ];
        while let Some(word) = words.next() {
            match named("u32", word, SHORT, EXACT)? {
                "match" => match selector(network, words)? {
                    Selector::Bytes(key) => key.add_to(&mut self.matched)?,
                    Selector::Address(end, net) => self.matched.set_address(end, net)?,
                },
                "classid" | "flowid" => self.class(words)?,
                "action" => self.action(words)?,
                "police" => self.action = Some(police(words)?),
                "skip_hw" | "skip_sw" => {}
                "order" => {
                    words.need("order", "a number")?;
                }
                other => return Err(format!("{other} of u32")),
            }
        }
        Ok(())
    }

    fn flower(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        while let Some(word) = words.next() {
            match word {
                "ip_proto" => {
                    let protocol = words.need(word, "a protocol, as in ip_proto tcp")?;
                    let number = match protocol {
                        "tcp" => 6,
                        "udp" => 17,
                        "icmp" => 1,
                        "icmpv6" => 58,
                        "sctp" => 132,
                        other => whole(word, other, 16)?,
                    };
                    self.matched.set_protocol(number)?;
                }
                "dst_port" | "src_port" => {
                    let port = words.need(word, "a port, as in dst_port 80")?;
                    let read = whole(word, port, 10);
                    self.matched
                        .set_port(read.map_err(|_| format!("a match on the ports {port}"))?)?;
                }
                "dst_ip" | "src_ip" => {
                    let address = net(words.need(word, "an address, as in dst_ip 10.0.0.2")?)?;
                    self.matched.set_address(&word[..3], address)?;
                }
                "classid" | "flowid" => self.class(words)?,
                "action" => self.action(words)?,
                "skip_hw" | "skip_sw" | "verbose" => {}
                other => return Err(format!("a match on {other}")),
            }
        }
        Ok(())
    }

    fn matchall(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        while let Some(word) = words.next() {
            match word {
                "classid" | "flowid" => self.class(words)?,
                "action" => self.action(words)?,
                "skip_hw" | "skip_sw" => {}
                other => return Err(format!("{other} of matchall")),
            }
        }
        Ok(())
    }

    fn class(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let word = words.need("classid", "a class, as in 1:10")?;
        let class = ClassId::class(word).ok_or_else(|| format!("`{word}` is not a class"))?;
        self.class = Some(class);
        Ok(())
    }

    fn action(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let mut word = words.need("action", "an action, such as mirred")?;
        if word == "order" {
            words.need(word, "a number")?;
            word = words.need("action", "an action, such as mirred")?;
        }
        match word {
            "mirred" => self.action = Some(redirected(words)?),
            "police" => self.action = Some(police(words)?),
            "pass" | "ok" | "pipe" | "continue" => {}
            other => return Err(format!("the action {other}")),
        }
        Ok(())
    }
}

/// A match of u32.
enum Selector<'t> {
    Bytes(Key),
    /// The address at the end with this name.
    Address(&'t str, IpNet),
}

/// Bytes of a packet that a filter compares, counted from the IP header.
struct Key {
    network: Network,
    bits: u32,
    at: i64,
    value: u32,
    mask: u32,
}

impl Key {
    fn add_to(&self, matched: &mut Matched) -> Result<(), String> {
        let Self {
            bits,
            at,
            value,
            mask,
            ..
        } = *self;
        if mask == 0 {
            return Ok(());
        }
        let is_ipv6 = self.network == Network::Ipv6;
        match (is_ipv6, bits, at) {
            (false, 8, 9) | (true, 8, 6) if mask == 0xff => matched.set_protocol(value & mask),
            (false, 16, 20 | 22) | (true, 16, 40 | 42) => match u16::try_from(value) {
                Ok(port) if mask == 0xffff => matched.set_port(port),
                _ => Err(format!("a match on several ports, with the mask {mask:#x}")),
            },
            (false, 32, 12 | 16) => {
                let end = if at == 12 { "src" } else { "dst" };
                let net = prefix(value & mask, mask)?;
                matched.set_address(end, net)
            }
            (true, _, 8..40) => {
                Err("a match on a part of an IPv6 address: write match ip6 dst".to_owned())
            }
            _ => Err(format!("a match on the bytes at {at}")),
        }
    }
}

/// Returns the prefix of IPv4 with these bits.
fn prefix(address: u32, mask: u32) -> Result<IpNet, String> {
    let net = IpNet::new(
        IpAddr::from(address.to_be_bytes()),
        u8::try_from(mask.leading_ones()).unwrap_or(32),
    );
    let is_prefix = mask.leading_ones() + mask.trailing_zeros() == u32::BITS;
    let net = net.ok().filter(|_| is_prefix);
    net.ok_or_else(|| format!("a match on addresses with the mask {mask:#x}, which is no prefix"))
}

/// Reads what is behind `match` of u32.
fn selector<'t>(network: Network, words: &mut Words<'t>) -> Result<Selector<'t>, String> {
    const KINDS: &[&str] = &[
        "u32", "u16", "u8", "ip", "ip6", "udp", "tcp", "icmp", "mark", "ether",
    ];
    let word = words.need("match", "a selector, as in ip dport 80 0xffff")?;
    match named("match", word, KINDS, &[])? {
        "u32" => key(network, 32, 0, words).map(Selector::Bytes),
        "u16" => key(network, 16, 0, words).map(Selector::Bytes),
        "u8" => key(network, 8, 0, words).map(Selector::Bytes),
        "ip" => field(Network::Ipv4, [9, 20, 22], words),
        "ip6" => field(Network::Ipv6, [6, 40, 42], words),
        "udp" | "tcp" => Err(format!(
            "match {word}: u32 looks for ports where `offset` says, and compares other bytes without one: write match ip dport"
        )),
        other => Err(format!("a match on {other}")),
    }
}

/// Reads a field of IP; `places` are those of protocol, source port and destination port.
fn field<'t>(
    network: Network,
    places: [i64; 3],
    words: &mut Words<'t>,
) -> Result<Selector<'t>, String> {
    let [protocol, source, destination] = places;
    let name = words.need("match ip", "a field, as in dport 80 0xffff")?;
    match name {
        "protocol" => key(network, 8, protocol, words).map(Selector::Bytes),
        "sport" => key(network, 16, source, words).map(Selector::Bytes),
        "dport" => key(network, 16, destination, words).map(Selector::Bytes),
        "src" | "dst" => {
            let address = words.need(name, "an address")?;
            let is_any = ["any", "all", "default"].contains(&address) || address.ends_with("/0");
            match is_any {
                true => Ok(Selector::Bytes(Key {
                    network,
                    bits: 32,
                    at: 0,
                    value: 0,
                    mask: 0,
                })),
                false => Ok(Selector::Address(name, net(address)?)),
            }
        }
        other => Err(format!("a match on the field {other}")),
    }
}

/// Reads a value, its mask, and perhaps another place.
fn key(network: Network, bits: u32, place: i64, words: &mut Words<'_>) -> Result<Key, String> {
    let value = whole("match", words.need("match", "a value")?, 0)?;
    let mask = whole("match", words.need("match", "a mask, as in 0xffff")?, 16)?;
    let mut at = place;
    if words.peek() == Some("at") {
        words.next();
        let word = words.need("at", "a place, as in at 20")?;
        at = whole("at", word, 0).map_err(|_| format!("a match at {word}"))?;
    }
    Ok(Key {
        network,
        bits,
        at,
        value,
        mask,
    })
}

/// Reads what is behind `mirred`: packets that leave by another device.
fn redirected(words: &mut Words<'_>) -> Result<Target, String> {
    let (mut leaves, mut moves) = (false, false);
    while let Some(word) = words.next() {
        match word {
            "dev" => {
                let device = words.need(word, "a device")?.to_owned();
                return match leaves && moves {
                    true => Ok(Target::Device(device)),
                    false => Err("mirred other than egress redirect".to_owned()),
                };
            }
            _ if "egress".starts_with(word) => leaves = true,
            _ if "redirect".starts_with(word) => moves = true,
            other => return Err(format!("mirred {other}")),
        }
    }
    Err("mirred: its device is missing".to_owned())
}

/// Reads what is behind `police`, up to the class of the filter.
fn police(words: &mut Words<'_>) -> Result<Target, String> {
    let (mut bytes_per_s, mut burst, mut drops) = (0, 0, false);
    while let Some(word) = words
        .peek()
        .filter(|word| !["flowid", "classid"].contains(word))
    {
        words.next();
        let mut value = || words.need(word, "tc needs one");
        match word {
            "rate" => bytes_per_s = rate(word, value()?)?,
            "burst" | "buffer" | "maxburst" => burst = size(word, value()?)?,
            // It is the longest packet that passes; farwire's burst is at least a full one.
            "mtu" => {
                value()?;
            }
            "drop" | "shot" => drops = true,
            "conform-exceed" => drops = value()?.starts_with("drop"),
            other => return Err(format!("{other} of police")),
        }
    }
    if !drops {
        return Err("a policer that does not drop".to_owned());
    }
    let text = format!("{}bit,burst={burst}b", bytes_per_s.saturating_mul(8));
    let police: Result<PoliceSpec, _> = text.parse();
    police
        .map(Target::Police)
        .map_err(|cause| format!("police: {cause}"))
}
