//! The frames on their way, each kept until its last segment has left or was dropped.

use model::{Nanos, PacketId, Side};
use netio::{COPY_BELOW, Frame, FrameBytes, FrameRef, GsoFrame, Lent, Offload, Vlan};

use super::arena::{Arena, Span};
use super::departures::Changes;
use super::observed::ObservedPackets;
use conditions::in_effect::{BESIDE_FRAME, BESIDE_PACKET};

/// The low bits of a packet's identifier that hold its segment. The bits above them hold the place
/// of its frame.
const SEGMENT_BITS: u32 = 17;

/// The memory that a frame takes in addition to its bytes, and the memory of each packet that can
/// result from it, allocations included. It counts towards the limit, which thus also bounds the
/// number of small frames, of packets in trains and of copies.
const FRAME_COST: usize = 160;
const PACKET_COST: usize = 128;
const _: () = assert!(FRAME_COST as u64 == BESIDE_FRAME && PACKET_COST as u64 == BESIDE_PACKET);

/// A bounded store of frames. Small frames are copied into an arena; long ones stay where they were
/// received.
#[derive(Debug)]
pub(crate) struct HeldFrames<L> {
    frames: Vec<Option<HeldFrame<L>>>,
    free: Vec<u32>,
    arena: Arena,
    /// The place of the frame that last occupied each place of the ports' memory, by set of ports.
    lent: Vec<Vec<usize>>,
    /// The memory in use without the arena's.
    bytes: usize,
    peak: usize,
    limit: usize,
}

#[derive(Debug)]
struct HeldFrame<L> {
    arrival: Nanos,
    bytes: HeldBytes<L>,
    gso: GsoFrame,
    /// The difference between the arrival time that the model used and the actual one.
    clamped: Nanos,
    /// The number of segments and copies that have neither left nor been dropped.
    remaining: u32,
    /// The frame's share of `bytes`.
    cost: u32,
    offload: Offload,
    vlan: Option<Vlan>,
    origin: FrameOrigin,
}

/// The origin of a frame, and the class and kind of its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameOrigin {
    /// The set of ports whose memory the frame may occupy.
    pub(crate) set: u16,
    pub(crate) side: Side,
    /// The number of the packets' kind.
    pub(crate) flow: u8,
    /// The class of the packets.
    pub(crate) class: u16,
}

#[derive(Debug)]
enum HeldBytes<L> {
    Small(Span),
    Long(FrameBytes<L>),
}

/// Returns the segment of its frame that `id` identifies.
pub(crate) fn segment(id: PacketId) -> u32 {
    (id.0 & ((1 << SEGMENT_BITS) - 1)) as u32
}

impl<L: Lent> HeldFrames<L> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            arena: Arena::default(),
            lent: Vec::new(),
            bytes: 0,
            peak: 0,
            limit,
        }
    }

    /// Returns true if the limit allows this frame too, with up to `copies` packets for each of its
    /// packets.
    pub(crate) fn has_room(&self, frame: &Frame<L>, gso: &GsoFrame, copies: u32) -> bool {
        let len = frame.bytes().len();
        let bytes = if len < COPY_BELOW {
            self.arena.held_with(len)
        } else {
            self.arena.held() + len
        };
        self.bytes + book_keeping(gso, copies) + bytes <= self.limit
    }

    /// Stores a frame for which there is room. Returns the identifier of its first segment.
    pub(crate) fn insert(
        &mut self,
        origin: FrameOrigin,
        frame: Frame<L>,
        gso: GsoFrame,
        copies: u32,
    ) -> PacketId {
        let is_small = frame.bytes().len() < COPY_BELOW;
        let cost = book_keeping(&gso, copies) + if is_small { 0 } else { frame.bytes().len() };
        let (arrival, offload, vlan) = (frame.arrival, frame.offload, frame.vlan);
        let (bytes, lent) = if is_small {
            (HeldBytes::Small(self.arena.store(frame.bytes())), None)
        } else {
            let bytes = frame.into_bytes();
            let lent = bytes.place();
            (HeldBytes::Long(bytes), lent)
        };
        self.bytes += cost;
        self.peak = self.peak.max(self.bytes());
        let held = HeldFrame {
            arrival,
            bytes,
            clamped: Nanos::ZERO,
            remaining: gso.segments(),
            gso,
            cost: u32::try_from(cost).expect("a frame is far below 4 GiB"),
            offload,
            vlan,
            origin,
        };
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => {
                self.frames.push(None);
                self.frames.len() - 1
            }
        };
        self.frames[place] = Some(held);
        if let Some(lent) = lent {
            let set = usize::from(origin.set);
            self.lent
                .resize_with(self.lent.len().max(set + 1), Vec::new);
            let places = &mut self.lent[set];
            places.resize(places.len().max(lent + 1), 0);
            places[lent] = place;
        }
        PacketId((place as u64) << SEGMENT_BITS)
    }

    /// Frees `lent`, a place in the memory of a set of ports, by copying the frame that occupies
    /// it. Returns the number of bytes copied, which is zero if no frame does.
    pub(crate) fn give_back(&mut self, set: u16, lent: usize) -> usize {
        let place = self
            .lent
            .get(usize::from(set))
            .and_then(|places| places.get(lent));
        let held = place.and_then(|place| self.frames[*place].as_mut());
        // The recorded place may belong to another frame by now.
        if let Some(HeldFrame {
            bytes: HeldBytes::Long(bytes),
            origin,
            ..
        }) = held
            && origin.set == set
            && bytes.place() == Some(lent)
        {
            bytes.own();
            return bytes.bytes().len();
        }
        0
    }

    pub(crate) fn get(&self, id: PacketId) -> (FrameRef<'_>, &GsoFrame) {
        let held = self.held(id);
        (self.frame(held), &held.gso)
    }

    pub(crate) fn gso(&self, id: PacketId) -> &GsoFrame {
        &self.held(id).gso
    }

    pub(crate) fn ingress(&self, id: PacketId) -> Side {
        self.held(id).origin.side
    }

    /// Returns the number of the packet's kind, and how much later than the actual arrival the
    /// model took the frame in.
    pub(crate) fn lateness(&self, id: PacketId) -> (u8, Nanos) {
        let held = self.held(id);
        (held.origin.flow, held.clamped)
    }

    /// Returns the class of a packet and its arrival time.
    pub(crate) fn arrival(&self, id: PacketId) -> (u16, Nanos) {
        let held = self.held(id);
        (held.origin.class, held.arrival)
    }

    /// Records that the model used an arrival time that is `by` later than the actual one.
    #[cold]
    pub(crate) fn clamp(&mut self, id: PacketId, by: Nanos) {
        if let Some(held) = &mut self.frames[place(id)] {
            held.clamped = held.clamped.max(by);
        }
    }

    /// Returns `count` neighbouring segments of a frame for observers, unchanged and without due
    /// times.
    pub(crate) fn observed(&self, id: PacketId, count: u32) -> ObservedPackets<'_> {
        let held = self.held(id);
        let first = segment(id);
        ObservedPackets {
            ingress: held.origin.side,
            frame: self.frame(held),
            gso: Some(&held.gso),
            segments: first..first + count,
            due: &[],
            changes: Changes::NONE,
            hop: None,
        }
    }

    /// Keeps the frame of `id` until a copy of that segment has left too.
    pub(crate) fn copied(&mut self, id: PacketId) {
        if let Some(held) = &mut self.frames[place(id)] {
            held.remaining += 1;
        }
    }

    /// Releases `count` segments of a frame, and the frame with its last segment.
    pub(crate) fn release(&mut self, id: PacketId, count: u32) {
        let place = place(id);
        let Some(held) = &mut self.frames[place] else {
            unreachable!("a packet is decided once");
        };
        held.remaining -= count;
        if held.remaining == 0 {
            self.bytes -= held.cost as usize;
            if let HeldBytes::Small(span) = held.bytes {
                self.arena.release(span);
            }
            self.frames[place] = None;
            let place = u32::try_from(place).expect("below 4 billion frames");
            self.free.push(place);
        }
    }

    /// Returns the bytes held now, bookkeeping included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.arena.held()
    }

    /// Returns the most bytes held at any time, bookkeeping included.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.frames.iter().all(Option::is_none)
    }

    fn frame<'h>(&'h self, held: &'h HeldFrame<L>) -> FrameRef<'h> {
        FrameRef {
            arrival: held.arrival,
            offload: held.offload,
            vlan: held.vlan,
            bytes: match &held.bytes {
                HeldBytes::Small(span) => self.arena.bytes(*span),
                HeldBytes::Long(bytes) => bytes.bytes(),
            },
        }
    }

    fn held(&self, id: PacketId) -> &HeldFrame<L> {
        self.frames[place(id)]
            .as_ref()
            .expect("a packet's frame is held until the packet is released")
    }
}

fn book_keeping(gso: &GsoFrame, copies: u32) -> usize {
    FRAME_COST + gso.segments() as usize * copies as usize * PACKET_COST
}

fn place(id: PacketId) -> usize {
    usize::try_from(id.0 >> SEGMENT_BITS).expect("made from a usize")
}

#[cfg(test)]
mod tests {
    use netio::LentSlot;

    use super::*;

    #[test]
    fn a_million_small_frames_take_their_bytes_and_little_more() {
        assert!(
            size_of::<Option<HeldFrame<LentSlot>>>() <= 128,
            "{}",
            size_of::<Option<HeldFrame<LentSlot>>>()
        );
    }
}
