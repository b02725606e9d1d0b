//! `struct virtio_net_hdr` on a packet socket: ten bytes in the machine's own byte order
//! (include/uapi/linux/virtio_net.h, include/linux/virtio_net.h).

use crate::frame::{Gso, GsoKind, Offload, PartialChecksum};

pub(crate) const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_L4: u8 = 5;
const ECN: u8 = 0x80;

/// What the kernel says of a received frame; `None` for a kind of GSO frame that this program does not know.
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

/// The header of a frame to send; `head` is the length of its protocol headers, a hint to the kernel.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
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
    fn an_unknown_kind_of_gso_frame_is_not_guessed_at() {
        assert_eq!(read([0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
