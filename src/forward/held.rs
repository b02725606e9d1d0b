//! The frames on their way, kept until the last of their segments has left or is gone.

use model::{Nanos, PacketId, Side};
use netio::{Frame, GsoFrame, Lent};

use super::packet_log::{LogLine, PacketVerdict};

/// Low bits of a packet's id: the segment; above them: the frame's place.
const SEGMENT_BITS: u32 = 17;

/// Book-keeping that a frame and each of its packets cost beside their bytes, allocation included, so that
/// small ones are bounded too.
const FRAME_COST: usize = 192;
const SEGMENT_COST: usize = 64;

/// A bounded store of frames.
#[derive(Debug)]
pub(crate) struct HeldFrames<L> {
    frames: Vec<Option<Held<L>>>,
    free: Vec<usize>,
    /// By ingress, and by place in the memory of that port: where the frame that was there last is kept.
    lent: [Vec<usize>; 2],
    bytes: usize,
    peak: usize,
    limit: usize,
}

#[derive(Debug)]
struct Held<L> {
    frame: Frame<L>,
    gso: GsoFrame,
    ingress: Side,
    /// The number of its kind of packets.
    flow: u8,
    /// By how much the model took it to have come later than it did.
    clamped: Nanos,
    /// Segments and copies of them that have neither left nor been dropped.
    remaining: u32,
    cost: usize,
}

/// The segment of its frame that `id` names.
pub(crate) fn segment(id: PacketId) -> u32 {
    (id.0 & ((1 << SEGMENT_BITS) - 1)) as u32
}

impl<L: Lent> HeldFrames<L> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            lent: [Vec::new(), Vec::new()],
            bytes: 0,
            peak: 0,
            limit,
        }
    }

    /// Whether the limit allows to keep that frame too.
    pub(crate) fn has_room(&self, frame: &Frame<L>, gso: &GsoFrame) -> bool {
        self.bytes + cost(frame, gso) <= self.limit
    }

    /// Keeps a frame for which there is room; the id of its first segment.
    pub(crate) fn insert(
        &mut self,
        ingress: Side,
        flow: u8,
        frame: Frame<L>,
        gso: GsoFrame,
    ) -> PacketId {
        let cost = cost(&frame, &gso);
        self.bytes += cost;
        self.peak = self.peak.max(self.bytes);
        let lent = frame.place();
        let held = Held {
            remaining: gso.segments(),
            frame,
            gso,
            ingress,
            flow,
            clamped: Nanos::ZERO,
            cost,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[place] = Some(held);
        if let Some(lent) = lent {
            let places = &mut self.lent[ingress.index()];
            places.resize(places.len().max(lent + 1), 0);
            places[lent] = place;
        }
        PacketId((place as u64) << SEGMENT_BITS)
    }

    /// Gives `lent`, a place of its memory, back to the port at `ingress`.
    pub(crate) fn give_back(&mut self, ingress: Side, lent: usize) {
        let place = self.lent[ingress.index()].get(lent);
        let held = place.and_then(|place| self.frames[*place].as_mut());
        // That place of ours may have gone to another frame since.
        if let Some(held) = held.filter(|h| h.ingress == ingress && h.frame.place() == Some(lent)) {
            held.frame.own();
        }
    }

    pub(crate) fn get(&self, id: PacketId) -> (&Frame<L>, &GsoFrame) {
        let held = self.held(id);
        (&held.frame, &held.gso)
    }

    pub(crate) fn gso(&self, id: PacketId) -> &GsoFrame {
        &self.held(id).gso
    }

    pub(crate) fn ingress(&self, id: PacketId) -> Side {
        self.held(id).ingress
    }

    /// The number of its kind of packets, and by how much it was clamped.
    pub(crate) fn lateness(&self, id: PacketId) -> (u8, Nanos) {
        let held = self.held(id);
        (held.flow, held.clamped)
    }

    /// The model took a frame to have come so much later than it did.
    #[cold]
    pub(crate) fn clamp(&mut self, id: PacketId, by: Nanos) {
        if let Some(held) = &mut self.frames[place(id)] {
            held.clamped = held.clamped.max(by);
        }
    }

    /// A segment's line of the packet log, with neither due time nor departure.
    pub(crate) fn line(&self, id: PacketId, verdict: PacketVerdict) -> LogLine {
        let held = self.held(id);
        LogLine {
            bytes: held.gso.segment_len(segment(id)),
            ..LogLine::of(&held.frame, held.ingress, verdict)
        }
    }

    /// Keeps the frame of `id` for a copy of that segment too.
    pub(crate) fn copied(&mut self, id: PacketId) {
        if let Some(held) = &mut self.frames[place(id)] {
            held.remaining += 1;
        }
    }

    /// Forgets `count` segments of a frame, and the frame with the last of them.
    pub(crate) fn release(&mut self, id: PacketId, count: u32) {
        let place = place(id);
        let Some(held) = &mut self.frames[place] else {
            unreachable!("a packet is decided once");
        };
        held.remaining -= count;
        if held.remaining == 0 {
            self.bytes -= held.cost;
            self.frames[place] = None;
            self.free.push(place);
        }
    }

    /// The most that was held at one time, in bytes, book-keeping included.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.frames.iter().all(Option::is_none)
    }

    fn held(&self, id: PacketId) -> &Held<L> {
        self.frames[place(id)]
            .as_ref()
            .expect("a packet's frame is held until the packet is released")
    }
}

fn cost(frame: &Frame<impl Lent>, gso: &GsoFrame) -> usize {
    FRAME_COST + frame.bytes().len() + gso.segments() as usize * SEGMENT_COST
}

fn place(id: PacketId) -> usize {
    usize::try_from(id.0 >> SEGMENT_BITS).expect("made from a usize")
}
