//! Tells whether the programs in a network namespace tried to reach what it has no way to.

use std::{fs, io};

use crate::netns::NetNs;

/// Attempts of the programs in a network namespace that its kernel refused, since the namespace was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreachable {
    /// Packets and connections without a route (`OutNoRoutes`), of both families together.
    pub no_route: u64,
    /// Datagrams to a port of the own loopback on which nobody listened. One sent to another host is none.
    pub own_port: u64,
}

impl Unreachable {
    /// Reads the counters of `namespace`.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `/proc` is not mounted.
    pub fn so_far(namespace: &NetNs) -> io::Result<Self> {
        let read = || {
            let v4 = fs::read_to_string("/proc/thread-self/net/snmp")?;
            // A kernel without IPv6 has no such file.
            let v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
            Ok(Self::parse(&v4, &v6))
        };
        namespace.run(read).map_err(io::Error::other)?
    }

    /// Returns the difference between these counters and those of `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            no_route: self.no_route.saturating_sub(before.no_route),
            own_port: self.own_port.saturating_sub(before.own_port),
        }
    }

    /// Parses the pairs of lines of `snmp`, the first of which has the names, and the lines of `snmp6`.
    fn parse(snmp: &str, snmp6: &str) -> Self {
        let v4 = |protocol: &str, wanted: &str| {
            let prefix = format!("{protocol}: ");
            let mut lines = snmp.lines().filter_map(|line| line.strip_prefix(&*prefix));
            let names = lines.next()?.split_whitespace();
            let mut pairs = names.zip(lines.next()?.split_whitespace());
            pairs.find_map(|(name, value)| (name == wanted).then(|| value.parse::<u64>().ok())?)
        };
        let v6 = |wanted: &str| {
            snmp6.lines().find_map(|line| {
                let (name, value) = line.split_once(char::is_whitespace)?;
                (name == wanted).then(|| value.trim().parse::<u64>().ok())?
            })
        };
        let no_port_v4 = v4("Udp", "NoPorts").unwrap_or(0);
        let refused_v4 = v4("Icmp", "InDestUnreachs").unwrap_or(0);
        let no_port_v6 = v6("Udp6NoPorts").unwrap_or(0);
        let refused_v6 = v6("Icmp6InDestUnreachs").unwrap_or(0);
        Self {
            no_route: v4("Ip", "OutNoRoutes").unwrap_or(0) + v6("Ip6OutNoRoutes").unwrap_or(0),
            // Only a datagram that the namespace sent to itself is counted by its receiver, and its refusal by its sender.
            own_port: no_port_v4.min(refused_v4) + no_port_v6.min(refused_v6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding OutDiscards OutNoRoutes
Ip: 2 0 3
Icmp: InMsgs InErrors InDestUnreachs
Icmp: 7 7 2
Udp: InDatagrams NoPorts InErrors
Udp: 9 5 0
UdpLite: InDatagrams NoPorts InErrors
UdpLite: 0 8 0
";
    const SNMP6: &str =
        "Ip6OutNoRoutes                  \t4\nIcmp6InDestUnreachs\t1\nUdp6NoPorts\t0\n";

    #[test]
    fn packets_without_a_route_and_refused_datagrams_to_the_own_loopback_are_counted() {
        let both = Unreachable::parse(SNMP, SNMP6);
        assert_eq!((both.no_route, both.own_port), (7, 2));
        let v4 = Unreachable::parse(SNMP, "");
        assert_eq!((v4.no_route, v4.own_port), (3, 2));
        assert_eq!(both.since(v4).no_route, 4);
        assert_eq!(Unreachable::parse("", ""), Unreachable::default());
    }
}
