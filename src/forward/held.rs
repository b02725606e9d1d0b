//! The frames on their way, kept until the last of their segments has left or is gone.

use std::collections::VecDeque;

use model::{Bytes, Packet, PacketId, Side};
use netio::{Frame, Train};

use super::truth::{Line, Verdict};

/// Low bits of a packet's id: the segment; above them: the frame's place.
const SEGMENT_BITS: u32 = 17;

/// Book-keeping that a frame and each of its packets cost beside their bytes, allocation included, so that
/// small ones are bounded too.
const FRAME_COST: usize = 192;
const SEGMENT_COST: usize = 64;

/// A bounded store of frames.
#[derive(Debug)]
pub(crate) struct HeldFrames {
    frames: Vec<Option<Held>>,
    free: Vec<usize>,
    /// By ingress: number and place of frames that stood in their port's memory when they came, oldest first.
    in_slots: [VecDeque<(u64, usize)>; 2],
    bytes: usize,
    peak: usize,
    limit: usize,
}

#[derive(Debug)]
struct Held {
    frame: Frame,
    train: Train,
    ingress: Side,
    /// Segments that have neither left nor been dropped.
    remaining: u32,
    cost: usize,
}

/// The segment of its frame that `id` names.
pub(crate) fn segment(id: PacketId) -> u32 {
    (id.0 & ((1 << SEGMENT_BITS) - 1)) as u32
}

impl HeldFrames {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            in_slots: [VecDeque::new(), VecDeque::new()],
            bytes: 0,
            peak: 0,
            limit,
        }
    }

    /// Whether the limit allows to keep that frame too.
    pub(crate) fn has_room(&self, frame: &Frame, train: &Train) -> bool {
        self.bytes + cost(frame, train) <= self.limit
    }

    /// Keeps a frame for which there is room; the id of its first segment.
    pub(crate) fn insert(&mut self, ingress: Side, frame: Frame, train: Train) -> PacketId {
        let cost = cost(&frame, &train);
        self.bytes += cost;
        self.peak = self.peak.max(self.bytes);
        let number = frame.slot();
        let held = Held {
            remaining: train.segments(),
            frame,
            train,
            ingress,
            cost,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[place] = Some(held);
        if let Some(number) = number {
            self.in_slots[ingress.index()].push_back((number, place));
        }
        PacketId((place as u64) << SEGMENT_BITS)
    }

    /// Moves the frames from `ingress` with numbers below `keep_from` out of their port's memory.
    pub(crate) fn vacate_below(&mut self, ingress: Side, keep_from: u64) {
        while let Some((number, place)) = self.in_slots[ingress.index()].front().copied() {
            let stands = self.stands(ingress, number, place);
            if number >= keep_from && stands {
                return;
            }
            self.in_slots[ingress.index()].pop_front();
            self.vacate(stands, place);
        }
    }

    /// Moves the frame from `ingress` with this number out of its port's memory, if it came last and is there.
    pub(crate) fn vacate_newest(&mut self, ingress: Side, number: u64) {
        let newest = self.in_slots[ingress.index()].back().copied();
        if let Some((_, place)) = newest.filter(|(n, _)| *n == number) {
            self.in_slots[ingress.index()].pop_back();
            self.vacate(self.stands(ingress, number, place), place);
        }
    }

    fn vacate(&mut self, stands: bool, place: usize) {
        if let Some(held) = self.frames[place].as_mut().filter(|_| stands) {
            held.frame.leave_slot();
        }
    }

    /// Whether that frame is still held, in its slot; its place may have gone to another one since.
    fn stands(&self, ingress: Side, number: u64, place: usize) -> bool {
        let held = self.frames[place].as_ref();
        held.is_some_and(|h| h.ingress == ingress && h.frame.slot() == Some(number))
    }

    /// Segment `segment` of the frame whose first segment is `first`, as the model sees it.
    pub(crate) fn packet(&self, first: PacketId, segment: u32) -> Packet {
        Packet {
            id: PacketId(first.0 + u64::from(segment)),
            len: Bytes(u64::from(self.train(first).segment_len(segment))),
        }
    }

    pub(crate) fn get(&self, id: PacketId) -> (&Frame, &Train) {
        let held = self.held(id);
        (&held.frame, &held.train)
    }

    pub(crate) fn train(&self, id: PacketId) -> &Train {
        &self.held(id).train
    }

    pub(crate) fn ingress(&self, id: PacketId) -> Side {
        self.held(id).ingress
    }

    /// A segment's line of truth, with neither due time nor departure.
    pub(crate) fn line(&self, id: PacketId, verdict: Verdict) -> Line {
        let held = self.held(id);
        Line {
            bytes: held.train.segment_len(segment(id)),
            ..Line::of(&held.frame, held.ingress, verdict)
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

    fn held(&self, id: PacketId) -> &Held {
        self.frames[place(id)]
            .as_ref()
            .expect("a packet's frame is held until the packet is released")
    }
}

fn cost(frame: &Frame, train: &Train) -> usize {
    FRAME_COST + frame.bytes().len() + train.segments() as usize * SEGMENT_COST
}

fn place(id: PacketId) -> usize {
    usize::try_from(id.0 >> SEGMENT_BITS).expect("made from a usize")
}
