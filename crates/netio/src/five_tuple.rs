//! Addresses, protocol and ports of the packet in a frame.

use std::net::IpAddr;

use crate::ip::{Fragment, Ip, u16_at};

/// Protocol, addresses and ports of an IP packet; for a tunnel, the outermost ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiveTuple {
    /// The IP protocol number: 6 is TCP, 17 is UDP. In IPv6 it is the protocol after the extension headers.
    pub protocol: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source and destination port of TCP, UDP and SCTP; absent in a later fragment.
    pub ports: Option<[u16; 2]>,
}

impl FiveTuple {
    /// Reads the five-tuple of `frame`, from its Ethernet header on; `None` if that is not IP or is truncated.
    pub fn of(frame: &[u8]) -> Option<Self> {
        Self::behind(frame, Ip::of(frame)?)
    }

    /// Reads the five-tuple of the packet that starts with `ip`.
    pub(crate) fn behind(frame: &[u8], ip: Ip) -> Option<Self> {
        let addresses = ip.addresses(frame);
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        Some(Self {
            protocol: ip.protocol,
            source: address(source)?,
            destination: address(destination)?,
            ports: ports(frame, ip),
        })
    }

    /// Returns the five-tuple of the opposite direction.
    pub(crate) fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ports: self.ports.map(|[from, to]| [to, from]),
            ..self
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v6.or_else(|_| v4()).ok()
}

/// Returns the ports of the packet that starts with `ip`, if it has any.
pub(crate) fn ports(frame: &[u8], ip: Ip) -> Option<[u16; 2]> {
    const WITH_PORTS: [u8; 3] = [6, 17, 132];
    let has_ports = WITH_PORTS.contains(&ip.protocol) && ip.fragment != Fragment::Later;
    has_ports.then(|| Some([u16_at(frame, ip.next)?, u16_at(frame, ip.next + 2)?]))?
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Returns an Ethernet frame with this EtherType around `ip`.
    fn frame(kind: u16, ip: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(kind.to_be_bytes());
        frame.extend(ip);
        frame
    }

    /// An IPv4 packet: UDP from 10.77.0.1:1000 to 10.77.0.2:53.
    fn v4() -> Vec<u8> {
        let mut ip = vec![0; 28];
        ip[0] = 0x45;
        ip[9] = 17;
        ip[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        ip[20..24].copy_from_slice(&[0x03, 0xe8, 0, 53]);
        ip
    }

    /// An IPv6 packet from ::1 to ::2 with a fragment header with this offset field, before TCP's ports 1000 and 53.
    fn v6_fragment(offset_field: u16) -> Vec<u8> {
        let mut ip = vec![0; 40];
        ip[0] = 0x60;
        ip[6] = 44;
        (ip[23], ip[39]) = (1, 2);
        ip.extend([6, 0]);
        ip.extend(offset_field.to_be_bytes());
        ip.extend([0, 0, 0, 9, 0x03, 0xe8, 0, 53]);
        ip
    }

    #[test]
    fn an_ipv4_packet_has_addresses_and_ports() {
        let flow = FiveTuple::of(&frame(0x0800, &v4())).unwrap();
        assert_eq!(flow.protocol, 17);
        assert_eq!(flow.source, Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(flow.destination, Ipv4Addr::new(10, 77, 0, 2));
        assert_eq!(flow.ports, Some([1000, 53]));
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let mut ip = v4();
        ip[7] = 1;
        assert_eq!(FiveTuple::of(&frame(0x0800, &ip)).unwrap().ports, None);
        let first = FiveTuple::of(&frame(0x86dd, &v6_fragment(1))).unwrap();
        assert_eq!((first.protocol, first.ports), (6, Some([1000, 53])));
        let later = FiveTuple::of(&frame(0x86dd, &v6_fragment(8))).unwrap();
        assert_eq!((later.protocol, later.ports), (6, None));
    }

    #[test]
    fn truncated_frames_have_no_five_tuple() {
        let whole = frame(0x0800, &v4());
        for len in 0..34 {
            assert_eq!(FiveTuple::of(&whole[..len]), None, "{len} bytes");
        }
        let whole = frame(0x86dd, &v6_fragment(1));
        for len in 0..whole.len() {
            let ports = FiveTuple::of(&whole[..len]).and_then(|flow| flow.ports);
            assert_eq!(ports, None, "{len} bytes");
        }
        assert_eq!(FiveTuple::of(&frame(0x0806, &[0; 28])), None);
    }
}
