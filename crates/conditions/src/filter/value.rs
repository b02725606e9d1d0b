//! The values that filters compare with a packet's header fields.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer, de};

/// A text that is not a value of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct NotAValue {
    text: String,
    pub(super) expected: String,
}

/// A port, or all ports from one to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRange {
    /// The first port.
    pub(crate) first: u16,
    /// The last port, which is not below the first.
    pub(crate) last: u16,
}

/// The addresses of a prefix, or of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// The addresses of a prefix; a single address is a prefix of full length.
    Net(IpNet),
    /// The addresses of a host with a name.
    Named(HostName),
}

/// The name of a host, and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    /// The name.
    pub name: String,
    /// The addresses of its A and AAAA records; empty until the name is resolved, so that no packet matches it.
    pub addresses: Vec<IpAddr>,
}

/// A differentiated services codepoint (RFC 2474): 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dscp(pub(crate) u8);

/// The number of a VLAN: 0 to 4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VlanId(pub(crate) u16);

/// An EtherType: 0x0600 to 0xffff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EtherType(pub(crate) u16);

/// Names of codepoints (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622), in addition to `cs0` to `cs7` and `af11` to
/// `af43`.
const DSCP_NAMES: [(&str, u8); 4] = [("be", 0), ("le", 1), ("va", 44), ("ef", 46)];

impl PortRange {
    /// Returns whether it has this port.
    pub(crate) fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Returns whether it has all ports of `other`.
    pub(crate) fn has_all_of(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }
}

impl Addresses {
    /// Returns whether it has this address.
    pub(crate) fn contains(&self, address: &IpAddr) -> bool {
        match self {
            Self::Net(net) => net.contains(address),
            Self::Named(host) => host.addresses.contains(address),
        }
    }

    /// Returns whether it has all addresses of `other`.
    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Net(net), Self::Net(other)) => net.contains(other),
            (_, Self::Named(host)) => {
                let all = &host.addresses;
                self == other || !all.is_empty() && all.iter().all(|one| self.contains(one))
            }
            (Self::Named(_), Self::Net(net)) => {
                net.prefix_len() == net.max_prefix_len() && self.contains(&net.addr())
            }
        }
    }

    /// Returns its prefixes.
    pub(crate) fn nets(&self) -> impl Iterator<Item = IpNet> {
        let (net, host) = match self {
            Self::Net(net) => (Some(*net), None),
            Self::Named(host) => (None, Some(host)),
        };
        let of_host = host.into_iter().flat_map(|host| &host.addresses);
        net.into_iter().chain(of_host.map(|one| IpNet::from(*one)))
    }
}

/// A value that is written as a text, and perhaps as a number.
pub(crate) trait FilterValue: FromStr<Err = NotAValue> + fmt::Display {
    /// A description of what is expected.
    const EXPECTED: &str;
    /// Its schema.
    fn schema() -> Schema;

    /// Returns the error about a text.
    fn refused(text: &str) -> NotAValue {
        NotAValue {
            text: text.to_owned(),
            expected: Self::EXPECTED.to_owned(),
        }
    }
}

impl FilterValue for PortRange {
    const EXPECTED: &str = "a port, a number up to 65535, or a range such as 5000-6000";

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65_535 },
            { "type": "string", "pattern": "^[0-9]+(-[0-9]+)?$", "examples": ["5000-6000"] },
        ]})
    }
}

impl FilterValue for Addresses {
    const EXPECTED: &str = "an IP address, a prefix such as 10.0.0.0/8, or the name of a host";

    fn schema() -> Schema {
        json_schema!({ "type": "string", "examples": ["10.0.0.0/8", "fd77::2", "example.com"] })
    }
}

impl FilterValue for Dscp {
    const EXPECTED: &str = "a DSCP, a number up to 63 or a name such as ef, af41 or cs1";

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": 63 },
            { "type": "string", "examples": ["ef", "af41", "cs1"] },
        ]})
    }
}

impl FilterValue for VlanId {
    const EXPECTED: &str = "a VLAN, a number up to 4095";

    fn schema() -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": 4_095 })
    }
}

impl FilterValue for EtherType {
    const EXPECTED: &str = "an EtherType from 0x0600 to 0xffff";

    fn schema() -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1_536, "maximum": 65_535 },
            { "type": "string", "pattern": "^(0x[0-9a-fA-F]+|[0-9]+)$", "examples": ["0x88f7"] },
        ]})
    }
}

/// Reads a number up to `most`. Signs are refused.
fn number(text: &str, most: u16) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|_| is_number)?;
    (value <= most).then_some(value)
}

impl FromStr for PortRange {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = [first, last].map(|port| number(port, u16::MAX));
        match ports {
            [Some(first), Some(last)] if first <= last => Ok(Self { first, last }),
            _ => Err(Self::refused(text)),
        }
    }
}

impl FromStr for Addresses {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Net(address.into()));
        }
        if let Ok(net) = text.parse::<IpNet>() {
            let whole = net.trunc();
            let beyond = || NotAValue {
                text: text.to_owned(),
                expected: format!("a prefix without bits beyond its length: write {whole}"),
            };
            return if whole == net {
                Ok(Self::Net(net))
            } else {
                Err(beyond())
            };
        }
        is_host_name(text)
            .then(|| {
                Self::Named(HostName {
                    name: text.to_owned(),
                    addresses: Vec::new(),
                })
            })
            .ok_or_else(|| Self::refused(text))
    }
}

/// The words that join the conditions of a filter. tcpdump takes none of them for the name of a host either.
const JOINING: [&str; 3] = ["and", "or", "not"];

/// Returns whether a text can be the name of a host (RFC 1123, section 2.1). Its last label has a letter, as an address in
/// dotted decimals has not.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_right)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels = text.strip_suffix('.').unwrap_or(text);
    let last = labels.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && !JOINING.contains(&text)
        && labels.split('.').all(is_label)
        && last.bytes().any(|byte| byte.is_ascii_alphabetic())
}

impl FromStr for Dscp {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        let lower = text.to_ascii_lowercase();
        let named = DSCP_NAMES.iter().find(|(name, _)| *name == lower);
        let digit = |byte: u8, digits: std::ops::RangeInclusive<u8>| {
            let digit = byte.wrapping_sub(b'0');
            digits.contains(&digit).then_some(digit)
        };
        let value = match (named, lower.as_bytes()) {
            (Some((_, value)), _) => Some(*value),
            (None, [b'c', b's', class]) => digit(*class, 0..=7).map(|class| 8 * class),
            (None, [b'a', b'f', class, drops]) => digit(*class, 1..=4)
                .zip(digit(*drops, 1..=3))
                .map(|(class, drops)| 8 * class + 2 * drops),
            (None, _) => number(text, 63).and_then(|value| u8::try_from(value).ok()),
        };
        value.map(Self).ok_or_else(|| Self::refused(text))
    }
}

impl FromStr for VlanId {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        let value = number(text, 4_095).map(Self);
        value.ok_or_else(|| Self::refused(text))
    }
}

impl FromStr for EtherType {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        let value = match text.strip_prefix("0x") {
            Some(digits) if !digits.starts_with('+') => u16::from_str_radix(digits, 16).ok(),
            Some(_) => None,
            None => number(text, u16::MAX),
        };
        let is_right = |value: &u16| *value >= 0x600;
        let value = value.filter(is_right).map(Self);
        value.ok_or_else(|| Self::refused(text))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => first.fmt(f),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            Self::Net(net) => net.fmt(f),
            Self::Named(host) => host.name.fmt(f),
        }
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// Reads a value from a text or a number.
struct ValueVisitor<T>(PhantomData<T>);

impl<T: FilterValue> Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Reads and writes values as texts, or as numbers where they are numbers.
macro_rules! value {
    ($($type:ident as $write:expr;)+) => {
        $(
            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                    source.deserialize_any(ValueVisitor(PhantomData))
                }
            }

            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                    let number: Option<u16> = $write(self);
                    match number {
                        Some(number) => target.serialize_u16(number),
                        None => target.collect_str(self),
                    }
                }
            }

            impl JsonSchema for $type {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($type).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    Self::schema()
                }
            }
        )+
    };
}

value! {
    PortRange as |range: &PortRange| (range.first == range.last).then_some(range.first);
    Addresses as |_: &Addresses| None;
    Dscp as |dscp: &Dscp| Some(dscp.0.into());
    VlanId as |vlan: &VlanId| Some(vlan.0);
    EtherType as |_: &EtherType| None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written() {
        fn same<T: FilterValue>(text: &str) -> String {
            let value: Result<T, NotAValue> = text.parse();
            value.map_or_else(|error| error.to_string(), |value| value.to_string())
        }
        for port in ["443", "5000-6000"] {
            assert_eq!(same::<PortRange>(port), port);
        }
        assert_eq!(same::<PortRange>("7-7"), "7");
        for (text, number) in [
            ("EF", "46"),
            ("af41", "34"),
            ("af13", "14"),
            ("cs7", "56"),
            ("le", "1"),
            ("63", "63"),
        ] {
            assert_eq!(same::<Dscp>(text), number);
        }
        assert_eq!(same::<EtherType>("35063"), "0x88f7");
        assert_eq!(same::<VlanId>("4095"), "4095");
        for text in [
            "10.0.0.0/8",
            "10.77.0.2",
            "fd77::/64",
            "example.com",
            "a-b",
            "localhost.",
        ] {
            assert_eq!(same::<Addresses>(text), text);
        }
        for (refused, why) in [
            (
                same::<PortRange>("6000-5000"),
                "`6000-5000` is not a port, a number",
            ),
            (same::<PortRange>("+7"), "`+7` is not a port"),
            (same::<Dscp>("64"), "`64` is not a DSCP, a number up to 63"),
            (same::<Dscp>("af44"), "is not a DSCP"),
            (same::<VlanId>("4096"), "`4096` is not a VLAN"),
            (same::<EtherType>("0x5ff"), "from 0x0600"),
            (same::<Addresses>("10.0.0.1/8"), "write 10.0.0.0/8"),
            (same::<Addresses>("10.77.0"), "is not an IP address"),
            (same::<Addresses>("-a.b"), "is not an IP address"),
        ] {
            assert!(refused.contains(why), "{refused}");
        }
    }
}
