//! The kernel's counters of a namespace, as nstat(8) shows them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;

/// Counters by name, such as `TcpInCsumErrors` or `Ip6ReasmReqds`.
#[derive(Debug)]
pub struct Counters(BTreeMap<String, u64>);

/// Counters that a link would increase if it altered or split packets: bad checksums, bad headers, fragments.
const CORRUPTION: [&str; 15] = [
    "IpInHdrErrors",
    "IpReasmReqds",
    "IpFragCreates",
    "IpExtInCsumErrors",
    "IpExtInTruncatedPkts",
    "IcmpInCsumErrors",
    "TcpInErrs",
    "TcpInCsumErrors",
    "UdpInCsumErrors",
    "Ip6InHdrErrors",
    "Ip6InTruncatedPkts",
    "Ip6ReasmReqds",
    "Ip6FragCreates",
    "Udp6InCsumErrors",
    "Icmp6InCsumErrors",
];

impl Counters {
    /// Reads the counters of `ns`.
    pub fn of(ns: &NetNs) -> Result<Self> {
        ns.run(|| {
            let mut counters = BTreeMap::new();
            for file in ["snmp", "netstat"] {
                let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"))?;
                read_pairs(&text, &mut counters);
            }
            // A kernel without IPv6 has no such file.
            let v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
            for line in v6.lines() {
                if let Some((name, value)) = line.split_once(char::is_whitespace) {
                    counters.insert(name.to_owned(), value.trim().parse().unwrap_or(0));
                }
            }
            Ok(Self(counters))
        })?
    }

    /// Returns the counter of this name, which must exist.
    pub fn get(&self, name: &str) -> Result<u64> {
        self.0
            .get(name)
            .copied()
            .with_context(|| format!("the kernel has no counter {name}"))
    }

    /// Fails if a packet arrived with a wrong checksum, with a bad header, or in fragments.
    pub fn check_intact(&self) -> Result<()> {
        let found: Vec<_> = CORRUPTION
            .iter()
            .filter_map(|name| self.0.get_key_value(*name))
            .filter(|(_, count)| **count > 0)
            .collect();
        ensure!(self.0.contains_key("TcpInCsumErrors"), "no counters");
        ensure!(found.is_empty(), "packets came damaged: {found:?}");
        Ok(())
    }
}

/// Reads pairs of lines: names and then values, both after the name of the protocol.
fn read_pairs(text: &str, counters: &mut BTreeMap<String, u64>) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (Some((protocol, names)), Some((_, values))) =
            (pair[0].split_once(':'), pair[1].split_once(':'))
        else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // A few counters are signed; none of those is used.
            counters.insert(format!("{protocol}{name}"), value.parse().unwrap_or(0));
        }
    }
}

/// The counters of an interface in `/proc/net/dev`.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceCounters {
    /// Bytes received, L2 without FCS.
    pub receive_bytes: u64,
    /// Frames dropped, receiving or sending.
    pub drops: u64,
}

impl InterfaceCounters {
    /// Reads the counters of `interface` in `ns`.
    pub fn of(ns: &NetNs, interface: &str) -> Result<Self> {
        ns.run(|| Self::here(interface))?
    }

    /// Reads the counters of `interface` in the namespace of the calling thread.
    pub fn here(interface: &str) -> Result<Self> {
        let text = fs::read_to_string("/proc/thread-self/net/dev")?;
        let line = text.lines().find_map(|line| {
            let (name, values) = line.split_once(':')?;
            (name.trim() == interface).then_some(values)
        });
        let values: Vec<u64> = line
            .with_context(|| format!("there is no interface {interface}"))?
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        ensure!(values.len() == 16, "/proc/net/dev has other columns");
        Ok(Self {
            receive_bytes: values[0],
            drops: values[3] + values[11],
        })
    }
}
