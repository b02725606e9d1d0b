//! The interface between the forwarder and network ports.

use std::borrow::Cow;
use std::io;

use model::Nanos;

use crate::checksum;
use crate::frame::{Frame, Lent, Offload};

/// Ports where frames come in and go out, numbered from 0. Frames that arrive at any of them wait in shared memory.
///
/// Who owns a frame's bytes: a received [`Frame`] has its own, or the set lends it some of its memory. Lent bytes
/// belong to the frame until that is dropped or made to own a copy ([`FrameBytes::own`](crate::FrameBytes::own)); so long the set neither changes
/// nor reuses them. A set that runs short of memory, or cannot be waited for while a frame is in it, asks for places
/// back ([`PortSet::recall`], [`PortSet::recall_to_wait`]). Bytes to be sent are lent to it for the length of the call.
pub trait PortSet {
    /// Bytes of this set's memory, lent to a frame; [`Infallible`](std::convert::Infallible) if it lends none.
    type Lent: Lent;

    /// What these ports can do; constant until one stands on another interface ([`PortSet::rejoin`]).
    fn capabilities(&self) -> Capabilities;

    /// Takes note of what has arrived by `now`; call once before a run of [`PortSet::arrival`] and [`PortSet::take`].
    fn refresh(&mut self, now: Nanos);

    /// Whether anything has arrived, also since [`PortSet::refresh`].
    fn has_arrivals(&self) -> bool;

    /// The arrival of the next frame, if one came before [`PortSet::refresh`]; never before that of the one taken last.
    fn arrival(&self) -> Option<Nanos>;

    /// Takes the next frame, and says at which port it came; nothing if what came belongs to no port any more.
    fn take(&mut self) -> Option<(usize, ReceivedFrame<Self::Lent>)>;

    /// A place whose frame, of [`COPY_BELOW`](crate::COPY_BELOW) bytes or more, must leave it if it is still there, or what
    /// arrives may be lost; call after each [`PortSet::take`] until it gives none.
    fn recall(&mut self) -> Option<usize> {
        None
    }

    /// A place whose frame must leave it, if it is still there, before the caller waits for this set, or the waiting
    /// ends at once.
    fn recall_to_wait(&self) -> Option<usize> {
        None
    }

    /// Sends each frame in order by `port`, the first of them not before that time, for which it spins; calls `sent` with the
    /// index of each one and when it was handed over and had left; or why it could not be sent.
    fn send(
        &mut self,
        port: usize,
        not_before: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    );

    /// Frames that the set itself lost before they could be taken, since it was opened.
    fn missed(&mut self) -> Missed;

    /// Has `port` stand on the interface with that number, in the place of one that is gone.
    ///
    /// # Errors
    /// There is no such interface, or it went away again.
    fn rejoin(&mut self, port: usize, interface: u32) -> io::Result<()>;
}

/// When a frame was sent, on the clock of [`PortSet::refresh`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTimes {
    /// The call that sent it began.
    pub begun: Nanos,
    /// It had left: what the kernel does with it before the call returns is in this, the other end of a veth included.
    pub ended: Nanos,
}

/// Frames that were lost unseen: found a receive ring full, or were refused after they had been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// The ring of single packets.
    pub small: u64,
    /// The ring of GSO and jumbo frames.
    pub large: u64,
    /// None that came: trains of tunnels that [`PortSet::send`] took and the interface refused.
    pub refused: u64,
}

impl std::ops::AddAssign for Missed {
    fn add_assign(&mut self, other: Self) {
        self.small += other.small;
        self.large += other.large;
        self.refused += other.refused;
    }
}

/// What [`PortSet::take`] found.
#[derive(Debug)]
pub enum ReceivedFrame<L> {
    /// A frame.
    Frame(Frame<L>),
    /// A frame longer than the port can hold arrived and was cut short: it cannot pass.
    Truncated,
    /// A GSO frame of a kind that this program does not know: it cannot be taken apart.
    UnsupportedGso,
}

/// What a port can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Sends GSO frames; without it every segment leaves by itself.
    pub gso: bool,
    /// Sends GSO frames of UDP tunnels with the segments of the packets inside ([`TxFrame::tunnel`]); it may without
    /// sending any by which their segments would be the tunnel's datagrams.
    pub tunnel_gso: bool,
    /// Completes partial checksums of what it sends; without it they are complete before. GSO needs it.
    pub checksum: bool,
    /// Takes VLAN tags out of what it receives ([`Frame::vlan`]); without it they are among a frame's bytes, as they
    /// are in everything that is sent.
    pub vlan: bool,
    /// Arrivals are the moments at which frames came; without it those at which the port was looked at.
    pub arrival_stamp: bool,
    /// Bytes of the longest frame that it takes in whole, GSO frames included.
    pub largest_frame: usize,
}

/// Bytes that leave as one frame: a head that was rewritten and the body that was not.
#[derive(Debug)]
pub struct TxFrame<'a> {
    /// What the port is to complete; offsets count from the first byte of `head`.
    pub offload: Offload,
    /// What a GSO frame's segments are inside of, if that is a tunnel.
    pub tunnel: Option<TunnelHeaders>,
    /// The rewritten head, possibly empty.
    pub head: FrameHead,
    /// The rest, where it was received, or built anew.
    pub body: Cow<'a, [u8]>,
}

/// The headers of a UDP tunnel around a GSO frame's segments, in an untagged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelHeaders {
    /// First byte of the outer UDP header.
    pub outer_udp: u16,
    /// First byte of the inner IP header.
    pub inner_ip: u16,
    /// The outer IP header is one of IPv6.
    pub outer_v6: bool,
    /// The outer UDP header has a checksum, of which it holds the pseudo header's sum.
    pub outer_checksum: bool,
}

/// Memory for what is built anew, used again and again: fresh pages for each frame would cost more than the building.
#[derive(Debug, Default)]
pub struct Spare {
    heads: Vec<Vec<u8>>,
    bodies: Vec<Vec<u8>>,
}

/// Pieces of either kind that are kept: more than frames leave in one call.
const KEPT: usize = 64;

impl Spare {
    /// An empty head.
    pub(crate) fn head(&mut self) -> FrameHead {
        FrameHead(self.heads.pop().unwrap_or_default())
    }

    /// An empty piece for a body.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        self.bodies.pop().unwrap_or_default()
    }

    /// Takes back what a frame that has been sent was built in.
    pub fn take_back(&mut self, sent: TxFrame<'_>) {
        keep(&mut self.heads, sent.head.0);
        if let Cow::Owned(body) = sent.body {
            keep(&mut self.bodies, body);
        }
    }
}

fn keep(kept: &mut Vec<Vec<u8>>, mut piece: Vec<u8>) {
    if piece.capacity() > 0 && kept.len() < KEPT {
        piece.clear();
        kept.push(piece);
    }
}

impl From<Vec<u8>> for TxFrame<'_> {
    /// A frame that was built whole, with nothing left undone.
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            offload: Offload::default(),
            tunnel: None,
            head: FrameHead::EMPTY,
            body: bytes.into(),
        }
    }
}

impl TxFrame<'_> {
    /// Completes a single packet's checksum, as a port would; does nothing if it has no partial one.
    pub fn complete_checksum(&mut self) {
        let Some(partial) = self.offload.checksum.take() else {
            return;
        };
        let start = usize::from(partial.start);
        let at = start + usize::from(partial.offset);
        let head = self.head.bytes();
        if head.len() < at + 2 || !(head.len() - start).is_multiple_of(2) && !self.body.is_empty() {
            // Not a head that a segment was given: the checksum stands in the body.
            let mut bytes = [head, &self.body].concat();
            if let Some(summed) = bytes.get(start..)
                && at + 2 <= bytes.len()
            {
                let sum = checksum::complete(&[summed], at - start);
                bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            (self.head, self.body) = (FrameHead::EMPTY, bytes.into());
            return;
        }
        let sum = checksum::complete(&[&head[start..], &self.body], at - start);
        self.head.bytes_mut()[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The longest head that can be rewritten: two stacks of headers with tags and options.
pub const MAX_HEAD: usize = 256;

/// Rewritten header bytes, at most [`MAX_HEAD`]. Most frames have none, and take no memory for them.
#[derive(Clone, Debug)]
pub struct FrameHead(Vec<u8>);

impl FrameHead {
    /// No bytes.
    pub const EMPTY: Self = Self(Vec::new());

    /// Appends `bytes`; at most [`MAX_HEAD`] in all.
    ///
    /// # Panics
    /// When the head grows beyond [`MAX_HEAD`].
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(
            self.0.len() + bytes.len() <= MAX_HEAD,
            "a head has room for headers"
        );
        if self.0.capacity() == 0 && !bytes.is_empty() {
            self.0.reserve_exact(MAX_HEAD);
        }
        self.0.extend_from_slice(bytes);
    }

    /// Puts `bytes` in before the byte at `at`; at most [`MAX_HEAD`] in all.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.extend(bytes);
        self.0[at..].rotate_right(bytes.len());
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PartialChecksum;

    #[test]
    fn a_checksum_is_completed_wherever_it_stands() {
        let packet: Vec<u8> = (0..101).collect();
        let completed = |in_head: usize| {
            let mut head = FrameHead::EMPTY;
            head.extend(&packet[..in_head]);
            let mut frame = TxFrame {
                offload: Offload {
                    gso: None,
                    checksum: Some(PartialChecksum {
                        start: 34,
                        offset: 16,
                    }),
                },
                tunnel: None,
                head,
                body: packet[in_head..].into(),
            };
            frame.complete_checksum();
            assert_eq!(frame.offload, Offload::default());
            [frame.head.bytes(), &frame.body].concat()
        };
        let expected = !checksum::sum(&[&packet[34..]]);
        for in_head in [0, 12, 51, 52, 53, 54] {
            let bytes = completed(in_head);
            assert_eq!(bytes[50..52], expected.to_be_bytes(), "{in_head} bytes");
            assert_eq!((&bytes[..50], &bytes[52..]), (&packet[..50], &packet[52..]));
        }
    }

    #[test]
    fn a_tag_goes_in_between() {
        let mut head = FrameHead::EMPTY;
        head.extend(&[1, 2, 3, 6, 7]);
        head.insert(3, &[4, 5]);
        assert_eq!(head.bytes(), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn memory_is_used_again_and_does_not_pile_up() {
        let mut spare = Spare::default();
        for _ in 0..10 * KEPT {
            spare.take_back(vec![0; 9].into());
        }
        assert_eq!((spare.heads.len(), spare.bodies.len()), (0, KEPT));
        assert!(spare.body().is_empty());
        assert_eq!(spare.bodies.len(), KEPT - 1);
    }
}
