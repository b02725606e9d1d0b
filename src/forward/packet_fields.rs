//! The header fields that rules and the filters of captures compare.

use conditions::filter::{IpFields, PacketFields};
use netio::{FiveTuple, FrameRef, Headers};

/// Returns the fields of the packets in `frame`, whose headers were read.
pub(crate) fn packet_fields(frame: FrameRef<'_>, headers: &Headers) -> PacketFields {
    let ip = FiveTuple::of(frame.bytes).map(|flow| IpFields {
        addresses: [flow.source, flow.destination],
        protocol: flow.protocol,
        ports: flow.ports,
        dscp: headers.dscp,
        is_fragment: headers.is_fragment,
    });
    PacketFields {
        ether_type: headers.ether_type,
        vlan: headers.vlan,
        ip,
    }
}
