//! The frames on their way, kept until the last of their segments has left or is gone.

use std::collections::VecDeque;

use model::{Bytes, Packet, PacketId, Side};
use netio::{Frame, Train};

use super::index;

/// Low bits of a packet's id: the segment; above them: the frame's place.
const SEGMENT_BITS: u32 = 17;

/// Book-keeping that a packet costs beside its bytes, so that tiny segments are bounded too.
const SEGMENT_COST: usize = 64;

/// A bounded store of frames.
#[derive(Debug)]
pub(crate) struct HeldFrames {
    frames: Vec<Option<Held>>,
    free: Vec<usize>,
    /// The latest frames of each ingress, oldest first: place and number.
    recent: [VecDeque<(usize, u64)>; 2],
    /// How many of them may stay where their port received them.
    in_place: [usize; 2],
    inserted: u64,
    bytes: usize,
    peak: usize,
    limit: usize,
}

#[derive(Debug)]
struct Held {
    frame: Frame,
    train: Train,
    ingress: Side,
    /// How many frames were inserted before: places are used again.
    number: u64,
    /// Segments that have neither left nor been dropped.
    remaining: u32,
    cost: usize,
}

/// The segment of its frame that `id` names.
pub(crate) fn segment(id: PacketId) -> u32 {
    (id.0 & ((1 << SEGMENT_BITS) - 1)) as u32
}

impl HeldFrames {
    /// Holds at most `limit` bytes; of each ingress, the latest `in_place` frames where they were received.
    pub(crate) fn new(limit: usize, in_place: [usize; 2]) -> Self {
        Self {
            frames: Vec::new(),
            free: Vec::new(),
            recent: Default::default(),
            in_place,
            inserted: 0,
            bytes: 0,
            peak: 0,
            limit,
        }
    }

    /// Keeps a frame; the id of its first segment, or `None` when the limit would be passed.
    pub(crate) fn insert(&mut self, ingress: Side, frame: Frame, train: Train) -> Option<PacketId> {
        let cost = frame.bytes().len() + train.segments() as usize * SEGMENT_COST;
        if self.bytes + cost > self.limit {
            return None;
        }
        self.bytes += cost;
        self.peak = self.peak.max(self.bytes);
        let held = Held {
            remaining: train.segments(),
            frame,
            train,
            ingress,
            number: self.inserted,
            cost,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            self.frames.len() - 1
        });
        self.frames[place] = Some(held);
        self.recent[index(ingress)].push_back((place, self.inserted));
        self.inserted += 1;
        self.detach_oldest(ingress);
        Some(PacketId((place as u64) << SEGMENT_BITS))
    }

    /// Gives a port its room back before it comes round to a frame that is still held.
    fn detach_oldest(&mut self, ingress: Side) {
        let recent = &mut self.recent[index(ingress)];
        if recent.len() <= self.in_place[index(ingress)] {
            return;
        }
        if let Some((place, number)) = recent.pop_front()
            && let Some(held) = &mut self.frames[place]
            && held.number == number
        {
            held.frame.detach();
        }
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

fn place(id: PacketId) -> usize {
    usize::try_from(id.0 >> SEGMENT_BITS).expect("made from a usize")
}
