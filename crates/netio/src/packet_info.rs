//! Reads which of this host's addresses a datagram was sent to, and answers from that address (`IP_PKTINFO`, ip(7);
//! `IPV6_PKTINFO`, RFC 3542 section 6). Otherwise a host with several addresses answers from the one that its routes prefer.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, setsockopt, sockopt};

/// The address that a datagram leaves from, as the kernel takes it.
#[derive(Clone, Copy)]
pub(crate) enum SourceAddress {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

/// Has the kernel say with each datagram which address it was sent to.
pub(crate) fn ask(socket: &impl AsFd, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    Ok(())
}

/// The address that a datagram was sent to, if `note` says it; of IPv4 in a socket of IPv6 it is mapped.
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
    /// From `asked`; the kernel's choice where that is no address to send from.
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

    /// What sendmsg(2) is told.
    pub(crate) fn message(&self) -> ControlMessage<'_> {
        match self {
            Self::V4(info) => ControlMessage::Ipv4PacketInfo(info),
            Self::V6(info) => ControlMessage::Ipv6PacketInfo(info),
        }
    }
}
