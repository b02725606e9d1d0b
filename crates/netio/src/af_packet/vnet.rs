//! `struct virtio_net_hdr` on a packet socket: ten bytes in the byte order of the machine
//! (include/uapi/linux/virtio_net.h, include/linux/virtio_net.h).

use crate::frame::{Gso, GsoKind, Offload, PartialChecksum};
use crate::port::TunnelHeaders;

pub(crate) const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_L4: u8 = 5;
const ECN: u8 = 0x80;
const TUNNEL_CSUM: u8 = 8;
const TUNNEL_V4: u8 = 0x20;
const TUNNEL_V6: u8 = 0x40;

/// Reads the header of a received frame; `None` for a kind of GSO frame that this program does not know.
pub(crate) fn read(h: [u8; LEN]) -> Option<Offload> {
    let word = |at: usize| u16::from_ne_bytes([h[at], h[at + 1]]);
    let kind = match h[1] & !ECN {
        0 => None,
        TCP_V4 => Some(GsoKind::TcpV4),
        TCP_V6 => Some(GsoKind::TcpV6),
        UDP_L4 => Some(GsoKind::Udp),
        _ => return None,
    };
    Some(Offload {
        gso: kind.map(|kind| Gso {
            kind,
            size: word(4),
            ecn: h[1] & ECN != 0,
        }),
        checksum: (h[0] & NEEDS_CSUM != 0).then(|| PartialChecksum {
            start: word(6),
            offset: word(8),
        }),
    })
}

/// Returns the header of a frame to send. `head` is the length of its protocol headers, which is a hint to the kernel.
pub(super) fn write(offload: &Offload, head: u16) -> [u8; LEN] {
    let mut h = [0; LEN];
    let mut put = |at: usize, value: u16| h[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    if let Some(gso) = offload.gso {
        put(2, head);
        put(4, gso.size);
    }
    if let Some(sum) = offload.checksum {
        put(6, sum.start);
        put(8, sum.offset);
        h[0] = NEEDS_CSUM;
    }
    if let Some(gso) = offload.gso {
        h[1] = match gso.kind {
            GsoKind::TcpV4 => TCP_V4,
            GsoKind::TcpV6 => TCP_V6,
            GsoKind::Udp => UDP_L4,
        } | if gso.ecn { ECN } else { 0 };
    }
    h
}

/// Length of a tap's header for tunnels' trains, `struct virtio_net_hdr_v1_hash_tunnel`.
pub(crate) const TUNNEL_LEN: usize = 24;

/// Returns a tap's header for the GSO frame of a tunnel. It is defined only for little-endian machines.
pub(super) fn write_tunnel(
    offload: &Offload,
    tunnel: TunnelHeaders,
    head: u16,
) -> [u8; TUNNEL_LEN] {
    let mut h = [0; TUNNEL_LEN];
    h[..LEN].copy_from_slice(&write(offload, head));
    if tunnel.outer_checksum {
        h[0] |= TUNNEL_CSUM;
    }
    h[1] |= if tunnel.outer_v6 {
        TUNNEL_V6
    } else {
        TUNNEL_V4
    };
    // The fields after these are the number of buffers, a hash and its type, which are 0.
    h[20..22].copy_from_slice(&tunnel.outer_udp.to_le_bytes());
    h[22..24].copy_from_slice(&tunnel.inner_ip.to_le_bytes());
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_reads_back() {
        let offload = Offload {
            gso: Some(Gso {
                kind: GsoKind::TcpV6,
                size: 1428,
                ecn: true,
            }),
            checksum: Some(PartialChecksum {
                start: 54,
                offset: 16,
            }),
        };
        assert_eq!(read(write(&offload, 86)), Some(offload));
        let plain = Offload::default();
        assert_eq!(read(write(&plain, 14)), Some(plain));
    }

    #[test]
    fn a_tunnel_header_has_the_kinds_of_tunnel_and_segments() {
        let offload = Offload {
            gso: Some(Gso {
                kind: GsoKind::TcpV4,
                size: 1398,
                ecn: false,
            }),
            checksum: Some(PartialChecksum {
                start: 84,
                offset: 16,
            }),
        };
        let tunnel = TunnelHeaders {
            outer_udp: 34,
            inner_ip: 64,
            outer_v6: false,
            outer_checksum: true,
        };
        let h = write_tunnel(&offload, tunnel, 144);
        assert_eq!(h[..2], [1 | 8, 1 | 0x20]);
        assert_eq!(h[2..10], write(&offload, 144)[2..]);
        assert_eq!(h[10..20], [0; 10]);
        assert_eq!(h[20..], [34, 0, 64, 0]);
    }

    #[test]
    fn an_unknown_kind_of_gso_frame_is_refused() {
        assert_eq!(read([0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
