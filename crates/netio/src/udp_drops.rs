//! Tells why a UDP socket dropped datagrams.
//!
//! The kernel has one counter of drops per socket (`sk_drops`: `SO_RXQ_OVFL`, `SO_MEMINFO`). It counts datagrams that
//! found the socket full, and also datagrams with a wrong checksum (net/ipv4/udp.c). Only the counters of the whole
//! network namespace distinguish the two.

use std::{fs, io};

/// Datagrams that the UDP sockets of a network namespace did not get, for IPv4 and IPv6 together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpErrors {
    /// Datagrams with a wrong checksum (`InCsumErrors`).
    pub checksum: u64,
    /// Datagrams for which the socket or the kernel had no room (`RcvbufErrors` and `MemErrors`). A train counts once.
    pub no_room: u64,
}

/// Bounds for the number of a socket's drops that found it full. They differ if the namespace also counted wrong
/// checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FullDrops {
    /// The least possible number.
    pub least: u64,
    /// The greatest possible number.
    pub most: u64,
}

/// The counters of a namespace when a socket was opened, from which the causes of the socket's drops are derived.
#[derive(Clone, Copy, Debug)]
pub struct DropCauses {
    /// The counters; absent if the kernel does not report them.
    before: Option<UdpErrors>,
}

impl UdpErrors {
    /// Reads the counters of the calling thread's network namespace.
    ///
    /// # Errors
    /// `/proc` is not mounted, or not accessible.
    pub fn so_far() -> io::Result<Self> {
        let v4 = fs::read_to_string("/proc/thread-self/net/snmp")?;
        // A kernel without IPv6 has no such file.
        let v6 = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
        Ok(Self::parse(&v4, &v6))
    }

    /// Parses the lines `Udp:` of `snmp`, the first of which has the names, and the lines `Udp6...` of `snmp6`.
    fn parse(snmp: &str, snmp6: &str) -> Self {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let names = lines.next().unwrap_or_default().split_whitespace();
        let values = lines.next().unwrap_or_default().split_whitespace();
        let v4 = names.zip(values);
        let v6 = snmp6.lines().filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.strip_prefix("Udp6")?, value.trim()))
        });
        let mut sum = Self::default();
        for (name, value) in v4.chain(v6) {
            let count = value.parse().unwrap_or(0);
            match name {
                "InCsumErrors" => sum.checksum += count,
                "RcvbufErrors" | "MemErrors" => sum.no_room += count,
                _ => {}
            }
        }
        sum
    }

    /// Returns the difference between these counters and those of `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            checksum: self.checksum.saturating_sub(before.checksum),
            no_room: self.no_room.saturating_sub(before.no_room),
        }
    }
}

impl FullDrops {
    /// Returns the bounds for `drops` of one socket while its namespace counted `errors`, if they are known.
    ///
    /// The counters of the namespace include those of its other sockets.
    pub fn of(drops: u64, errors: Option<UdpErrors>) -> Self {
        let Some(UdpErrors { checksum, no_room }) = errors else {
            return Self {
                least: 0,
                most: drops,
            };
        };
        let least = drops.saturating_sub(checksum);
        Self {
            least,
            most: drops.min(no_room).max(least),
        }
    }
}

impl DropCauses {
    /// Reads the counters. Call it when the socket is opened, on a thread in the socket's network namespace.
    pub fn watch() -> Self {
        Self {
            before: UdpErrors::so_far().ok(),
        }
    }

    /// Returns how many of the `drops` of that socket since then found it full. The calling thread must be in the same
    /// namespace.
    pub fn full(&self, drops: u64) -> FullDrops {
        if drops == 0 {
            return FullDrops::default();
        }
        let now = UdpErrors::so_far().ok();
        let errors = now.zip(self.before);
        FullDrops::of(drops, errors.map(|(now, before)| now.since(before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Icmp: InMsgs InErrors InCsumErrors
Icmp: 7 7 7
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 736924 5 114167 262344771 114 0 87 0 3
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 0 0 0 9 0 9 0 9
";
    const SNMP6: &str = "Udp6InDatagrams                 \t56\nUdp6RcvbufErrors                \t2\n\
                         Udp6InCsumErrors                \t10\nUdpLite6InCsumErrors            \t9\n";

    #[test]
    fn checksums_and_want_of_room_are_read_of_both_families() {
        let both = UdpErrors {
            checksum: 97,
            no_room: 119,
        };
        assert_eq!(UdpErrors::parse(SNMP, SNMP6), both);
        let v4 = UdpErrors {
            checksum: 87,
            no_room: 117,
        };
        assert_eq!(UdpErrors::parse(SNMP, ""), v4);
        assert_eq!(UdpErrors::parse("", ""), UdpErrors::default());
        let since = both.since(v4);
        assert_eq!((since.checksum, since.no_room), (10, 2));
    }

    #[test]
    fn a_wrong_checksum_is_no_drop_of_a_full_socket() {
        let full = |drops, checksum, no_room| {
            let full = FullDrops::of(drops, Some(UdpErrors { checksum, no_room }));
            (full.least, full.most)
        };
        // The cases are only corruption, only a full socket, both, and both with other sockets involved.
        assert_eq!(full(87, 87, 0), (0, 0));
        assert_eq!(full(87, 0, 87), (87, 87));
        assert_eq!(full(100, 87, 13), (13, 13));
        assert_eq!(full(100, 95, 13), (5, 13));
        assert_eq!(full(100, 200, 300), (0, 100));
    }

    #[test]
    fn drops_of_a_cause_that_is_not_known_may_be_any() {
        let full = FullDrops::of(87, None);
        assert_eq!((full.least, full.most), (0, 87));
    }
}
