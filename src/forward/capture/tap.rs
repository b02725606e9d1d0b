//! What stands in the packet path: copies what a capture is to keep, and never waits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use model::{Nanos, Side};
use netio::{FrameRef, GsoFrame, Offload, Spare, TxFrame};

use super::{CaptureSpec, Filter};
use crate::forward::departures::Changes;
use crate::forward::packet_log::PacketVerdict;

/// Frames and bytes handed over at once, and how many such batches may wait: 64 MiB, 50 ms at 10 Gbit/s.
pub(super) const BATCH: usize = 2048;
const BATCH_BYTES: usize = 512 << 10;
pub(super) const WAITING: usize = 128;

/// A batch that is not full waits so long, so that the capture can be followed.
const FOLLOW: Nanos = Nanos(200_000_000);

/// The captures of a link: none, as a rule.
#[derive(Debug, Default)]
pub(crate) struct Captures(Vec<Tap>);

/// Segments of a frame of which the same became at one time.
#[derive(Clone, Debug)]
pub(crate) struct Seen<'f> {
    pub(crate) frame: FrameRef<'f>,
    /// None of a frame that cannot be taken apart.
    pub(crate) gso: Option<&'f GsoFrame>,
    pub(crate) segments: Range<u32>,
    pub(crate) ingress: Side,
    pub(crate) fate: Fate,
    /// When each segment was to leave; nothing if it was not to.
    pub(crate) due: &'f [Nanos],
}

/// What became of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    /// None of a packet of the emulator's own.
    pub(crate) verdict: Option<PacketVerdict>,
    pub(crate) departure: Option<Nanos>,
    pub(crate) changes: Changes,
}

/// The packet path's end of a capture.
#[derive(Debug)]
pub(crate) struct Tap {
    side: Option<Side>,
    filter: Filter,
    start: Nanos,
    end: Nanos,
    /// Packets on their way, by arrival: nothing later can be put in order yet.
    on_their_way: BTreeMap<Nanos, u32>,
    batch: Batch,
    handed_over: Nanos,
    stopped: Arc<AtomicBool>,
    waiting: Arc<Waiting>,
    full: Sender<Batch>,
    emptied: Receiver<Batch>,
    spare: Spare,
}

/// How many batches wait for the writer.
#[derive(Debug, Default)]
pub(super) struct Waiting(AtomicUsize);

/// Frames as they came, for the writer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) frames: Vec<Taken>,
    /// Their bytes, one after the other.
    pub(super) bytes: Vec<u8>,
    /// The due times of their segments.
    pub(super) due: Vec<Nanos>,
    /// By side, the packets of this capture so far, those included that were not kept.
    pub(super) seen: [u64; 2],
    /// What comes later happened at this time or after it.
    pub(super) until: Nanos,
}

/// A frame of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) arrival: Nanos,
    pub(super) ingress: Side,
    pub(super) fate: Fate,
    pub(super) offload: Offload,
    pub(super) bytes: usize,
    /// Due times of its own in the batch.
    pub(super) due: usize,
    /// By side, whether it is to be written as a packet there.
    pub(super) at: [bool; 2],
}

impl Captures {
    pub(crate) fn add(&mut self, tap: Tap) {
        self.0.push(tap);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A frame of so many packets comes in; what becomes of each is said later.
    pub(crate) fn arrives<'f>(&mut self, frame: impl Into<FrameRef<'f>>, packets: u32) {
        let frame = frame.into();
        for tap in &mut self.0 {
            if frame.arrival >= tap.start && tap.filter.matches(frame.bytes) {
                *tap.on_their_way.entry(frame.arrival).or_default() += packets;
            }
        }
    }

    /// What became of packets is known.
    pub(crate) fn note(&mut self, seen: &Seen<'_>) {
        for tap in &mut self.0 {
            tap.note(seen);
        }
    }

    /// The emulator itself sends a packet back to `side`.
    #[cold]
    pub(crate) fn replied(&mut self, side: Side, packet: &TxFrame<'_>, departure: Nanos) {
        for tap in &mut self.0 {
            tap.replied(side, packet, departure);
        }
    }

    /// Hands over what has waited for long by `now`, and ends what is to end. What arrives later arrives at `horizon` or after it.
    pub(crate) fn follow(&mut self, now: Nanos, horizon: Nanos) {
        self.0.retain_mut(|tap| {
            let ends = now >= tap.end || tap.stopped.load(Ordering::Relaxed);
            tap.batch.until = tap.until(horizon);
            if ends {
                tap.end();
            } else if now >= tap.handed_over + FOLLOW {
                tap.handed_over = now;
                tap.hand_over();
            }
            !ends
        });
    }

    /// When to come back.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        let all = self.0.iter();
        all.map(|tap| (tap.handed_over + FOLLOW).min(tap.end)).min()
    }

    /// Ends all.
    pub(crate) fn finish(&mut self) {
        self.0.drain(..).for_each(|mut tap| tap.end());
    }
}

impl<'f> Seen<'f> {
    /// All packets of a frame, none of which was to leave at a time of its own.
    pub(crate) fn whole(
        frame: impl Into<FrameRef<'f>>,
        gso: &'f GsoFrame,
        ingress: Side,
        fate: Fate,
    ) -> Self {
        Self {
            gso: Some(gso),
            segments: 0..gso.segments(),
            ..Self::unparsed(frame, ingress, fate)
        }
    }

    /// A frame that cannot be taken apart.
    pub(crate) fn unparsed(frame: impl Into<FrameRef<'f>>, ingress: Side, fate: Fate) -> Self {
        Self {
            frame: frame.into(),
            gso: None,
            segments: 0..1,
            ingress,
            fate,
            due: &[],
        }
    }
}

impl Fate {
    /// Of packets that were to leave, and did if there is a departure.
    pub(crate) fn of_run(departure: Option<Nanos>, changes: Changes) -> Self {
        let verdict = departure.map_or(PacketVerdict::SendFailed, |_| PacketVerdict::Delivered);
        Self {
            departure,
            changes,
            ..Self::of(verdict)
        }
    }

    /// It did not leave.
    pub(crate) fn of(verdict: impl Into<PacketVerdict>) -> Self {
        Self {
            verdict: Some(verdict.into()),
            departure: None,
            changes: Changes::NONE,
        }
    }
}

impl Tap {
    pub(super) fn new(
        spec: &CaptureSpec,
        start: Nanos,
        stopped: Arc<AtomicBool>,
        waiting: Arc<Waiting>,
        full: Sender<Batch>,
        emptied: Receiver<Batch>,
    ) -> Self {
        Self {
            side: spec.side,
            filter: spec.filter.clone(),
            start,
            end: spec.most_time.map_or(Nanos(u64::MAX), |most| start + most),
            on_their_way: BTreeMap::new(),
            batch: Batch::default(),
            handed_over: start,
            stopped,
            waiting,
            full,
            emptied,
            spare: Spare::default(),
        }
    }

    fn note(&mut self, seen: &Seen<'_>) {
        let (frame, fate) = (seen.frame, seen.fate);
        if !self.filter.matches(frame.bytes) {
            return;
        }
        let is_copy = fate.changes.is_copy;
        let packets = seen.segments.end - seen.segments.start;
        if !is_copy {
            self.decided(frame.arrival, packets);
        }
        let is_at = |side: Side| self.side.is_none_or(|only| only == side);
        let mut at = [false; 2];
        at[seen.ingress.index()] = !is_copy && frame.arrival >= self.start && is_at(seen.ingress);
        at[seen.ingress.other().index()] = fate.departure.is_some() && is_at(seen.ingress.other());
        let taken = Taken {
            arrival: frame.arrival,
            ingress: seen.ingress,
            fate,
            offload: Offload::default(),
            bytes: 0,
            due: 0,
            at,
        };
        let Some(gso) = seen.gso else {
            return self.take(taken, [frame.bytes, &[]], &[], 1);
        };
        // A train that cannot leave as one frame is taken packet by packet.
        let most = gso.longest_run().max(1);
        let mut first = seen.segments.start;
        while first < seen.segments.end {
            let end = seen.segments.end.min(first + most);
            let part = gso.part(frame, first..end, &mut self.spare);
            let from = (first - seen.segments.start) as usize;
            let due = seen.due.get(from..).unwrap_or_default();
            let due = &due[..due.len().min((end - first) as usize)];
            let offload = part.offload;
            let bytes = [part.head.bytes(), &part.body];
            self.take(Taken { offload, ..taken }, bytes, due, end - first);
            self.spare.take_back(part);
            first = end;
        }
    }

    fn replied(&mut self, side: Side, packet: &TxFrame<'_>, departure: Nanos) {
        let bytes = [packet.head.bytes(), &packet.body];
        if !self.filter.matches(&bytes.concat()) || self.side.is_some_and(|only| only != side) {
            return;
        }
        let mut at = [false; 2];
        at[side.index()] = true;
        let taken = Taken {
            arrival: departure,
            ingress: side.other(),
            fate: Fate {
                verdict: None,
                departure: Some(departure),
                changes: Changes::NONE,
            },
            offload: Offload::default(),
            bytes: 0,
            due: 0,
            at,
        };
        self.take(taken, bytes, &[], 1);
    }

    /// Packets that came at `arrival` are not on their way any more.
    fn decided(&mut self, arrival: Nanos, packets: u32) {
        // Those that came before the capture began are not counted.
        if let Some(left) = self.on_their_way.get_mut(&arrival) {
            *left = left.saturating_sub(packets);
            if *left == 0 {
                self.on_their_way.remove(&arrival);
            }
        }
    }

    fn take(&mut self, taken: Taken, bytes: [&[u8]; 2], due: &[Nanos], packets: u32) {
        if taken.at == [false; 2] {
            return;
        }
        for (seen, is_at) in self.batch.seen.iter_mut().zip(taken.at) {
            *seen += u64::from(packets) * u64::from(is_at);
        }
        let batch = &mut self.batch;
        let before = batch.bytes.len();
        for part in bytes {
            batch.bytes.extend_from_slice(part);
        }
        batch.due.extend_from_slice(due);
        batch.frames.push(Taken {
            bytes: batch.bytes.len() - before,
            due: due.len(),
            ..taken
        });
        if batch.frames.len() == BATCH || batch.bytes.len() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    /// Since when there can be packets of which nothing was said yet.
    fn until(&self, horizon: Nanos) -> Nanos {
        let first = self.on_their_way.keys().next();
        first.map_or(horizon, |first| horizon.min(*first))
    }

    /// Hands the batch over, unless too many wait: then its frames are not kept.
    fn hand_over(&mut self) {
        let seen = self.batch.seen;
        if self.waiting.0.load(Ordering::Relaxed) >= WAITING {
            self.batch.clear();
            return;
        }
        let empty = self.emptied.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, empty);
        (self.batch.seen, self.batch.until) = (seen, batch.until);
        self.send(batch);
    }

    /// Hands over what is left, however much waits.
    fn end(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.until = Nanos(u64::MAX);
        self.send(batch);
    }

    fn send(&mut self, batch: Batch) {
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        // A writer that has ended says why itself.
        let _ = self.full.send(batch);
    }
}

impl Waiting {
    /// One batch was taken.
    pub(super) fn taken(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batch {
    /// Leaves it empty, with its memory.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.bytes.clear();
        self.due.clear();
    }
}
