//! Addresses and interface names of a test bed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Name of the only interface of an end.
pub const WAN: &str = "wan";
/// A router's interface towards the client.
pub const LEFT: &str = "left";
/// A router's interface towards the server.
pub const RIGHT: &str = "right";
/// The emulator's interface towards the client.
pub const CLIENT_PORT: &str = "client";
/// The emulator's interface towards the server.
pub const SERVER_PORT: &str = "server";

/// The client's addresses.
pub const CLIENT: Endpoint = Endpoint::on(0, SegmentEnd::Client);
/// The server's addresses in a bed without routers.
pub const SERVER: Endpoint = Endpoint::on(0, SegmentEnd::Server);

/// The two ends of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentEnd {
    /// The end nearer to the client.
    Client,
    /// The end nearer to the server.
    Server,
}

/// The addresses at one end of a segment. Segment N has the networks 10.77.N.0/24 and fd77:0:0:N::/64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// IPv4 address.
    pub v4: Ipv4Addr,
    /// IPv6 address.
    pub v6: Ipv6Addr,
    /// Ethernet address, locally administered. It is the same in every bed, so that captures can be compared.
    pub mac: [u8; 6],
}

impl Endpoint {
    /// Returns the addresses of an end of segment `segment`, counted from 0 at the client.
    pub const fn on(segment: u8, side: SegmentEnd) -> Self {
        match side {
            SegmentEnd::Client => Self::numbered(segment, 1),
            SegmentEnd::Server => Self::numbered(segment, 2),
        }
    }

    /// Returns the addresses of the segment's networks.
    pub(super) const fn network(segment: u8) -> Self {
        Self::numbered(segment, 0)
    }

    const fn numbered(segment: u8, host: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(10, 77, segment, host),
            v6: Ipv6Addr::new(0xfd77, 0, 0, segment as u16, 0, 0, 0, host as u16),
            mac: [0x02, 0, 10, 77, segment, host],
        }
    }

    /// Returns the IPv4 address and, if the bed has IPv6, the IPv6 address, each with the prefix length of its network.
    pub(super) fn nets(self, ipv6: bool) -> impl Iterator<Item = (IpAddr, u8)> {
        let v4 = (IpAddr::from(self.v4), 24);
        let v6 = ipv6.then_some((IpAddr::from(self.v6), 64));
        [Some(v4), v6].into_iter().flatten()
    }
}

/// One interface of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    pub(super) name: &'static str,
    pub(super) segment: u8,
    pub(super) side: SegmentEnd,
}

impl Attachment {
    /// Returns the interfaces of `node`, counted from 0 at the client, in a chain of `nodes` nodes; the one towards the
    /// client comes first.
    pub(super) fn of(node: u8, nodes: u8) -> Vec<Self> {
        let last = node + 1 == nodes;
        let left = (node > 0).then(|| Self {
            name: if last { WAN } else { LEFT },
            segment: node - 1,
            side: SegmentEnd::Server,
        });
        let right = (!last).then_some(Self {
            name: if node == 0 { WAN } else { RIGHT },
            segment: node,
            side: SegmentEnd::Client,
        });
        [left, right].into_iter().flatten().collect()
    }

    pub(super) fn own(self) -> Endpoint {
        Endpoint::on(self.segment, self.side)
    }

    pub(super) fn peer(self) -> Endpoint {
        match self.side {
            SegmentEnd::Client => Endpoint::on(self.segment, SegmentEnd::Server),
            SegmentEnd::Server => Endpoint::on(self.segment, SegmentEnd::Client),
        }
    }

    /// Returns the emulator's interface on this wire.
    pub(super) fn port(self) -> &'static str {
        match self.side {
            SegmentEnd::Client => CLIENT_PORT,
            SegmentEnd::Server => SERVER_PORT,
        }
    }

    /// Returns the segments behind its peer, in a chain of `segments` segments.
    pub(super) fn beyond(self, segments: u8) -> Range<u8> {
        match self.side {
            SegmentEnd::Client => self.segment + 1..segments,
            SegmentEnd::Server => 0..self.segment,
        }
    }
}
