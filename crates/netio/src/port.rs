//! The interface between the forwarder and network ports.

use std::borrow::Cow;
use std::io;

use model::Nanos;

use crate::checksum;
use crate::frame::{Frame, Lent, Offload};

/// A set of ports by which frames arrive and leave, numbered from 0. Frames that have arrived at any of them wait in
/// shared memory.
///
/// Ownership of a frame's bytes: a received [`Frame`] either owns them, or the set lends it a part of its memory. Lent
/// bytes belong to the frame until it is dropped or made to own a copy ([`FrameBytes::own`](crate::FrameBytes::own));
/// until then the set neither changes nor reuses them. A set that runs short of memory, or that cannot be waited for
/// while a certain frame is in it, recalls places ([`PortSet::recall`], [`PortSet::recall_to_wait`]). Bytes to be sent
/// are lent to the set for the duration of the call.
pub trait PortSet {
    /// The type of bytes in this set's memory that are lent to a frame; [`Infallible`](std::convert::Infallible) if it
    /// lends none.
    type Lent: Lent;

    /// Returns the capabilities of these ports. They are constant until a port gets another interface
    /// ([`PortSet::rejoin`]).
    fn capabilities(&self) -> Capabilities;

    /// Registers the frames that have arrived by `now`. Call it once before a series of [`PortSet::arrival`] and
    /// [`PortSet::take`].
    fn refresh(&mut self, now: Nanos);

    /// Returns whether any frame has arrived, including those since [`PortSet::refresh`].
    fn has_arrivals(&self) -> bool;

    /// Returns the arrival time of the next frame, if one arrived before [`PortSet::refresh`]. It is never before that
    /// of the frame taken last.
    fn arrival(&self) -> Option<Nanos>;

    /// Takes the next frame and returns it with the number of its port; `None` if the frame no longer belongs to any
    /// port.
    fn take(&mut self) -> Option<(usize, ReceivedFrame<Self::Lent>)>;

    /// Returns a place whose frame, of [`COPY_BELOW`](crate::COPY_BELOW) bytes or more, must leave it if it is still
    /// there, because arriving frames may otherwise be lost. Call it after each [`PortSet::take`], at least once
    /// for each frame taken on average.
    fn recall(&mut self) -> Option<usize> {
        None
    }

    /// Returns a place whose frame must leave it, if it is still there, before the caller waits for this set. Otherwise
    /// the wait would end immediately.
    fn recall_to_wait(&self) -> Option<usize> {
        None
    }

    /// Sends the frames in order by `port`, the first of them not before `not_before`, until which it spins. For each
    /// frame it calls `sent` with the index of the frame and either its times or the error.
    fn send(
        &mut self,
        port: usize,
        not_before: Nanos,
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    );

    /// Sends the frames in order, each by the port with the same index in `ports`, which has as many entries. For each
    /// frame it calls `sent` with the index of the frame and either its times or the error. A set for which frames of
    /// several ports in one call cost less than a call for each port does so.
    fn send_each(
        &mut self,
        ports: &[usize],
        frames: &[TxFrame<'_>],
        sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
        let mut first = 0;
        for same in ports.chunk_by(|a, b| a == b) {
            let own = &frames[first..first + same.len()];
            self.send(same[0], Nanos::ZERO, own, &mut |index, result| {
                sent(first + index, result);
            });
            first += same.len();
        }
    }

    /// Returns the number of frames that the set itself has lost since it was opened, before they could be taken.
    fn missed(&mut self) -> Missed;

    /// Assigns the interface with the number `interface` to `port`, in place of one that is gone.
    ///
    /// # Errors
    /// There is no such interface, or it has disappeared again.
    fn rejoin(&mut self, port: usize, interface: u32) -> io::Result<()>;
}

/// The times at which a frame was sent, on the clock of [`PortSet::refresh`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTimes {
    /// Start of the call that sent it.
    pub begun: Nanos,
    /// The time at which it had left. It includes the work of the kernel before the call returns, such as that at the
    /// other end of a veth.
    pub ended: Nanos,
}

/// Frames that were lost unseen: they found a receive ring full, or were refused after they had been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Frames that found the ring of single packets full.
    pub small: u64,
    /// Frames that found the ring of GSO and jumbo frames full.
    pub large: u64,
    /// Trains of tunnels that [`PortSet::send`] accepted and the interface refused. These are not arriving frames.
    pub refused: u64,
}

impl std::ops::AddAssign for Missed {
    fn add_assign(&mut self, other: Self) {
        self.small += other.small;
        self.large += other.large;
        self.refused += other.refused;
    }
}

/// The result of [`PortSet::take`].
#[derive(Debug)]
pub enum ReceivedFrame<L> {
    /// A frame.
    Frame(Frame<L>),
    /// A frame that was longer than the port can hold and was truncated, so that it cannot be forwarded.
    Truncated,
    /// A GSO frame of a kind that this program does not know and cannot segment.
    UnsupportedGso,
}

/// The capabilities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it sends GSO frames. If not, every segment leaves by itself.
    pub gso: bool,
    /// Whether it sends GSO frames of UDP tunnels with the segments of the inner packets ([`TxFrame::tunnel`]). This
    /// does not imply that it sends GSO frames whose segments are the datagrams of a tunnel.
    pub tunnel_gso: bool,
    /// Whether it completes partial checksums of frames that it sends. If not, they must be complete. GSO requires it.
    pub checksum: bool,
    /// Whether it removes VLAN tags from received frames ([`Frame::vlan`]). If not, they are among the bytes of a
    /// frame, as they always are in sent frames.
    pub vlan: bool,
    /// Whether arrival times are those at which frames arrived. If not, they are those at which the port was read.
    pub arrival_stamp: bool,
    /// Bytes of the longest frame that it receives completely, including GSO frames.
    pub largest_frame: usize,
}

/// Bytes that leave as one frame: a rewritten head and an unchanged body.
#[derive(Debug)]
pub struct TxFrame<'a> {
    /// The work that the port is to complete; offsets count from the first byte of `head`.
    pub offload: Offload,
    /// The tunnel headers around a GSO frame's segments, if they are in a tunnel.
    pub tunnel: Option<TunnelHeaders>,
    /// The rewritten head, possibly empty.
    pub head: FrameHead,
    /// The rest, in the memory where it was received, or rebuilt.
    pub body: Cow<'a, [u8]>,
}

/// The headers of a UDP tunnel around a GSO frame's segments, in an untagged frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelHeaders {
    /// Offset of the outer UDP header.
    pub outer_udp: u16,
    /// Offset of the inner IP header.
    pub inner_ip: u16,
    /// Whether the outer IP header is one of IPv6.
    pub outer_v6: bool,
    /// Whether the outer UDP header has a checksum, which then holds the sum of the pseudo header.
    pub outer_checksum: bool,
}

/// Memory for rebuilt frames that is used repeatedly, because fresh pages for each frame would cost more than building
/// it.
#[derive(Debug, Default)]
pub struct Spare {
    heads: Vec<Vec<u8>>,
    bodies: Vec<Vec<u8>>,
}

/// Number of pieces of either kind that are kept, which is more than the frames of one call.
const KEPT: usize = 64;

impl Spare {
    /// Returns an empty head.
    pub(crate) fn head(&mut self) -> FrameHead {
        FrameHead(self.heads.pop().unwrap_or_default())
    }

    /// Returns an empty piece for a body.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        self.bodies.pop().unwrap_or_default()
    }

    /// Takes back the memory of a frame that has been sent.
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
    /// Creates a complete frame, in which no work is left.
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
    /// Completes the checksum of a single packet, as a port would; does nothing if there is no partial one.
    pub fn complete_checksum(&mut self) {
        let Some(partial) = self.offload.checksum.take() else {
            return;
        };
        let start = usize::from(partial.start);
        let at = start + usize::from(partial.offset);
        let head = self.head.bytes();
        if head.len() < at + 2 || !(head.len() - start).is_multiple_of(2) && !self.body.is_empty() {
            // The checksum is in the body, because this is not the rewritten head of a segment.
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

/// The longest head that can be rewritten, in bytes: two stacks of headers with tags and options.
pub const MAX_HEAD: usize = 256;

/// Rewritten header bytes, at most [`MAX_HEAD`]. Most frames have none, and then take no memory for them.
#[derive(Clone, Debug)]
pub struct FrameHead(Vec<u8>);

impl FrameHead {
    /// A head without bytes.
    pub const EMPTY: Self = Self(Vec::new());

    /// Appends `bytes`; the head may have at most [`MAX_HEAD`] bytes.
    ///
    /// # Panics
    /// The head would be longer than [`MAX_HEAD`].
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

    /// Inserts `bytes` before the byte at `at`; the head may have at most [`MAX_HEAD`] bytes.
    pub(crate) fn insert(&mut self, at: usize, bytes: &[u8]) {
        self.extend(bytes);
        self.0[at..].rotate_right(bytes.len());
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes for changes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PartialChecksum;

    #[test]
    fn a_checksum_is_completed_in_head_and_body() {
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

    /// Ports that record the calls of [`PortSet::send`]. They refuse frames of one byte.
    #[derive(Default)]
    struct RecordingPorts(Vec<(usize, Vec<usize>)>);

    impl PortSet for RecordingPorts {
        type Lent = std::convert::Infallible;

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                gso: false,
                tunnel_gso: false,
                checksum: false,
                vlan: false,
                arrival_stamp: true,
                largest_frame: 0,
            }
        }

        fn refresh(&mut self, _: Nanos) {}

        fn has_arrivals(&self) -> bool {
            false
        }

        fn arrival(&self) -> Option<Nanos> {
            None
        }

        fn take(&mut self) -> Option<(usize, ReceivedFrame<Self::Lent>)> {
            None
        }

        fn send(
            &mut self,
            port: usize,
            _: Nanos,
            frames: &[TxFrame<'_>],
            sent: &mut dyn FnMut(usize, io::Result<SendTimes>),
        ) {
            let lengths = frames.iter().map(|frame| frame.body.len());
            self.0.push((port, lengths.collect()));
            for (index, frame) in frames.iter().enumerate() {
                let times = SendTimes {
                    begun: Nanos(port as u64),
                    ended: Nanos(frame.body.len() as u64),
                };
                let refused = frame.body.len() == 1;
                let result = if refused {
                    Err(io::ErrorKind::NetworkDown.into())
                } else {
                    Ok(times)
                };
                sent(index, result);
            }
        }

        fn missed(&mut self) -> Missed {
            Missed::default()
        }

        fn rejoin(&mut self, _: usize, _: u32) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_of_several_ports_are_sent_in_order_and_each_has_its_result() {
        let frames = [5, 6, 1, 7, 8].map(|len| TxFrame::from(vec![0; len]));
        let mut set = RecordingPorts::default();
        let mut results = Vec::new();
        set.send_each(&[3, 3, 0, 3, 9], &frames, &mut |index, result| {
            let times = result.ok().map(|times| (times.begun.0, times.ended.0));
            results.push((index, times));
        });
        let calls = [(3, vec![5, 6]), (0, vec![1]), (3, vec![7]), (9, vec![8])];
        assert_eq!(set.0, calls);
        let expected = [
            (0, Some((3, 5))),
            (1, Some((3, 6))),
            (2, None),
            (3, Some((3, 7))),
            (4, Some((9, 8))),
        ];
        assert_eq!(results, expected);
        set.send_each(&[], &[], &mut |_, _| unreachable!("there is no frame"));
    }

    #[test]
    fn bytes_are_inserted_in_the_middle_of_a_head() {
        let mut head = FrameHead::EMPTY;
        head.extend(&[1, 2, 3, 6, 7]);
        head.insert(3, &[4, 5]);
        assert_eq!(head.bytes(), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn memory_is_reused_and_does_not_accumulate() {
        let mut spare = Spare::default();
        for _ in 0..10 * KEPT {
            spare.take_back(vec![0; 9].into());
        }
        assert_eq!((spare.heads.len(), spare.bodies.len()), (0, KEPT));
        assert!(spare.body().is_empty());
        assert_eq!(spare.bodies.len(), KEPT - 1);
    }
}
