//! Reads the address of this host to which a datagram was sent, and answers from that address (`IP_PKTINFO`, ip(7);
//! `IPV6_PKTINFO`, RFC 3542 section 6). Otherwise a host with several addresses would answer from the one that its
//! routes prefer.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, setsockopt, sockopt};

/// The source address of a datagram, in the form that the kernel accepts.
#[derive(Clone, Copy)]
pub(crate) enum SourceAddress {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

/// Makes the kernel report the destination address of each datagram.
pub(crate) fn ask(socket: &impl AsFd, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    Ok(())
}

/// Returns the destination address of a datagram if `note` has it. An IPv4 address on an IPv6 socket is mapped.
pub(crate) fn asked(note: &ControlMessageOwned) -> Option<IpAddr> {
    match note {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::from(info.ipi6_addr.s6_addr)),
        _ => None,
    }
}

impl SourceAddress {
    /// Returns the source address for an answer to `asked`; `None` lets the kernel choose it if `asked` cannot be a
    /// source address.
    pub(crate) fn of(asked: IpAddr) -> Option<Self> {
        match asked {
            IpAddr::V4(asked) => Some(Self::V4(libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(asked.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            })),
            IpAddr::V6(asked) if asked.is_multicast() => None,
            IpAddr::V6(asked) => Some(Self::V6(libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: asked.octets(),
                },
                ipi6_ifindex: 0,
            })),
        }
    }

    /// Returns the control message for sendmsg(2).
    pub(crate) fn message(&self) -> ControlMessage<'_> {
        match self {
            Self::V4(info) => ControlMessage::Ipv4PacketInfo(info),
            Self::V6(info) => ControlMessage::Ipv6PacketInfo(info),
        }
    }
}
