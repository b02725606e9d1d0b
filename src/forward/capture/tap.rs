//! The packet path's end of a capture: it copies the packets that the capture keeps, and never waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use model::{Nanos, Side};
use netio::{FrameRef, Offload, Spare, TxFrame};

use super::{CaptureSpec, Filter};
use crate::forward::departures::Changes;
use crate::forward::observed::{ObservedPackets, PacketVerdict};

/// Frames and bytes per batch, and how many batches may wait: 64 MiB, which is 50 ms at 10 Gbit/s.
pub(super) const BATCH: usize = 2048;
const BATCH_BYTES: usize = 512 << 10;
pub(super) const WAITING: usize = 128;

/// A batch that is not full is handed over after this time, so that the capture can be followed while it grows.
const FOLLOW: Nanos = Nanos(200_000_000);

/// The captures of a link; usually none.
#[derive(Debug, Default)]
pub(crate) struct Captures(Vec<Tap>);

/// The packet path's end of a capture.
#[derive(Debug)]
pub(crate) struct Tap {
    side: Option<Side>,
    filter: Filter,
    start: Nanos,
    end: Nanos,
    /// The number of packets on their way, by arrival. Packets that arrived later cannot be put in order yet.
    on_their_way: BTreeMap<Nanos, u32>,
    batch: FrameBatch,
    handed_over: Nanos,
    stopped: Arc<AtomicBool>,
    waiting: Arc<WaitingBatches>,
    full: Sender<FrameBatch>,
    emptied: Receiver<FrameBatch>,
    spare: Spare,
}

/// How many batches wait for the writer.
#[derive(Debug, Default)]
pub(super) struct WaitingBatches(AtomicUsize);

/// Copies of frames for the writer.
#[derive(Debug, Default)]
pub(super) struct FrameBatch {
    pub(super) frames: Vec<CapturedFrame>,
    /// Their bytes, one after the other.
    pub(super) bytes: Vec<u8>,
    /// The due times of their segments.
    pub(super) due: Vec<Nanos>,
    /// By side: the packets of this capture so far, including those that were not kept.
    pub(super) seen: [u64; 2],
    /// Later batches have nothing that happened before this time.
    pub(super) until: Nanos,
}

/// A frame of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapturedFrame {
    pub(super) arrival: Nanos,
    pub(super) ingress: Side,
    /// `None` for a reply of the emulator itself.
    pub(super) verdict: Option<PacketVerdict>,
    pub(super) departure: Option<Nanos>,
    pub(super) changes: Changes,
    pub(super) offload: Offload,
    pub(super) bytes: usize,
    /// How many due times in the batch are its own.
    pub(super) due: usize,
    /// By side: whether it is written as a packet there.
    pub(super) at: [bool; 2],
}

impl Captures {
    pub(crate) fn add(&mut self, tap: Tap) {
        self.0.push(tap);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A frame of this many packets has arrived. What becomes of them is noted later.
    pub(crate) fn arrived(&mut self, frame: FrameRef<'_>, packets: u32) {
        for tap in &mut self.0 {
            if frame.arrival >= tap.start && tap.filter.matches(frame.bytes) {
                *tap.on_their_way.entry(frame.arrival).or_default() += packets;
            }
        }
    }

    /// Copies packets of which the verdict is known, unless the port could not hand over their frame.
    pub(crate) fn note(
        &mut self,
        packets: &ObservedPackets<'_>,
        verdict: PacketVerdict,
        departure: Option<Nanos>,
    ) {
        if packets.frame.bytes.is_empty() {
            return;
        }
        for tap in &mut self.0 {
            tap.note(packets, verdict, departure);
        }
    }

    /// The emulator itself has sent a packet back to `side`.
    #[cold]
    pub(crate) fn replied(&mut self, side: Side, packet: &TxFrame<'_>, departure: Nanos) {
        for tap in &mut self.0 {
            tap.replied(side, packet, departure);
        }
    }

    /// Hands over batches that have waited long enough by `now`, and ends captures that are to end. Whatever arrives later has
    /// an arrival time of at least `horizon`.
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

    /// When to call [`Captures::follow`] next at the latest.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        let all = self.0.iter();
        all.map(|tap| (tap.handed_over + FOLLOW).min(tap.end)).min()
    }

    /// Ends all captures.
    pub(crate) fn finish(&mut self) {
        self.0.drain(..).for_each(|mut tap| tap.end());
    }
}

impl Tap {
    pub(super) fn new(
        spec: &CaptureSpec,
        start: Nanos,
        stopped: Arc<AtomicBool>,
        waiting: Arc<WaitingBatches>,
        full: Sender<FrameBatch>,
        emptied: Receiver<FrameBatch>,
    ) -> Self {
        Self {
            side: spec.side,
            filter: spec.filter.clone(),
            start,
            end: spec.most_time.map_or(Nanos(u64::MAX), |most| start + most),
            on_their_way: BTreeMap::new(),
            batch: FrameBatch::default(),
            handed_over: start,
            stopped,
            waiting,
            full,
            emptied,
            spare: Spare::default(),
        }
    }

    fn note(
        &mut self,
        packets: &ObservedPackets<'_>,
        verdict: PacketVerdict,
        departure: Option<Nanos>,
    ) {
        let &ObservedPackets {
            ingress,
            frame,
            ref segments,
            due,
            changes,
            ..
        } = packets;
        if !self.filter.matches(frame.bytes) {
            return;
        }
        if !changes.is_copy {
            self.decided(frame.arrival, segments.end - segments.start);
        }
        let is_at = |side: Side| self.side.is_none_or(|only| only == side);
        let egress = ingress.other();
        let mut at = [false; 2];
        at[ingress.index()] = !changes.is_copy && frame.arrival >= self.start && is_at(ingress);
        at[egress.index()] = departure.is_some() && is_at(egress);
        let captured = CapturedFrame {
            arrival: frame.arrival,
            ingress,
            verdict: Some(verdict),
            departure,
            changes,
            offload: Offload::default(),
            bytes: 0,
            due: 0,
            at,
        };
        let Some(gso) = packets.gso else {
            return self.take(captured, [frame.bytes, &[]], &[], 1);
        };
        // A train that cannot leave as one frame is taken packet by packet.
        let most = gso.longest_run().max(1);
        let mut first = segments.start;
        while first < segments.end {
            let end = segments.end.min(first + most);
            let part = gso.part(frame, first..end, &mut self.spare);
            let from = (first - segments.start) as usize;
            let due = due.get(from..).unwrap_or_default();
            let due = &due[..due.len().min((end - first) as usize)];
            let offload = part.offload;
            let bytes = [part.head.bytes(), &part.body];
            self.take(
                CapturedFrame {
                    offload,
                    ..captured
                },
                bytes,
                due,
                end - first,
            );
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
        let captured = CapturedFrame {
            arrival: departure,
            ingress: side.other(),
            verdict: None,
            departure: Some(departure),
            changes: Changes::NONE,
            offload: Offload::default(),
            bytes: 0,
            due: 0,
            at,
        };
        self.take(captured, bytes, &[], 1);
    }

    /// Packets that arrived at `arrival` are no longer on their way.
    fn decided(&mut self, arrival: Nanos, packets: u32) {
        // Packets that arrived before the capture began are not counted.
        if let Some(left) = self.on_their_way.get_mut(&arrival) {
            *left = left.saturating_sub(packets);
            if *left == 0 {
                self.on_their_way.remove(&arrival);
            }
        }
    }

    fn take(&mut self, captured: CapturedFrame, bytes: [&[u8]; 2], due: &[Nanos], packets: u32) {
        if captured.at == [false; 2] {
            return;
        }
        for (seen, is_at) in self.batch.seen.iter_mut().zip(captured.at) {
            *seen += u64::from(packets) * u64::from(is_at);
        }
        let batch = &mut self.batch;
        let before = batch.bytes.len();
        for part in bytes {
            batch.bytes.extend_from_slice(part);
        }
        batch.due.extend_from_slice(due);
        batch.frames.push(CapturedFrame {
            bytes: batch.bytes.len() - before,
            due: due.len(),
            ..captured
        });
        if batch.frames.len() == BATCH || batch.bytes.len() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    /// The earliest arrival of packets that can still be noted.
    fn until(&self, horizon: Nanos) -> Nanos {
        let first = self.on_their_way.keys().next();
        first.map_or(horizon, |first| horizon.min(*first))
    }

    /// Hands the batch over, or drops its frames if too many batches wait.
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

    /// Hands over what is left, however many batches wait.
    fn end(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.until = Nanos(u64::MAX);
        self.send(batch);
    }

    fn send(&mut self, batch: FrameBatch) {
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        // A writer that has ended reports its error itself.
        let _ = self.full.send(batch);
    }
}

impl WaitingBatches {
    /// The writer has taken a batch.
    pub(super) fn taken(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FrameBatch {
    /// Empties the batch but keeps its memory.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.bytes.clear();
        self.due.clear();
    }
}
