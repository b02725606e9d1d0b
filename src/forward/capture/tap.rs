//! The part of a capture in the packet path. It copies the packets that the capture keeps, and
//! never waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use conditions::filter::{Filter, PacketFields};
use model::{Nanos, Side};
use netio::{FrameRef, Headers, Offload, Spare, TxFrame};

use super::CaptureSpec;
use super::time_share::TimeShare;
use crate::forward::departures::Changes;
use crate::forward::observed::{ObservedPackets, PacketVerdict};
use crate::forward::packet_fields;

/// The limits of frames and bytes per batch and of waiting batches: 64 MiB, which is 50 ms at 10
/// Gbit/s.
pub(super) const BATCH: usize = 2048;
const BATCH_BYTES: usize = 512 << 10;
pub(super) const WAITING: usize = 128;

/// A batch that is not full is handed over after this time, so that a growing capture can be
/// followed.
const FOLLOW: Nanos = Nanos(200_000_000);

/// The captures of a link, usually none.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    taps: Vec<Tap>,
    time: TimeShare,
}

/// The part of a capture in the packet path.
#[derive(Debug)]
pub(crate) struct Tap {
    side: Option<Side>,
    filter: Filter,
    start: Nanos,
    end: Nanos,
    /// True while captures have used up their share of the time: packets are counted, but not kept.
    is_paused: bool,
    /// The tap has observed every frame that arrived from this time on.
    observes_from: Nanos,
    /// The number of packets on their way, by arrival time. Packets that arrived after the earliest
    /// of them cannot be sorted yet.
    on_their_way: BTreeMap<Nanos, u32>,
    batch: FrameBatch,
    handed_over: Nanos,
    stopped: Arc<AtomicBool>,
    waiting: Arc<WaitingBatches>,
    full: Sender<FrameBatch>,
    emptied: Receiver<FrameBatch>,
    spare: Spare,
}

/// The number of batches that wait for the writer.
#[derive(Debug, Default)]
pub(super) struct WaitingBatches(AtomicUsize);

/// Copies of frames on their way to the writer.
#[derive(Debug, Default)]
pub(super) struct FrameBatch {
    pub(super) frames: Vec<CapturedFrame>,
    /// The bytes of the frames, one after the other.
    pub(super) bytes: Vec<u8>,
    /// The due times of the frames' segments.
    pub(super) due: Vec<Nanos>,
    /// The number of packets of this capture up to now, by side, including those that were not
    /// kept. It includes all packets that passed while the tap did not look, even those that the
    /// filter might have refused.
    pub(super) observed: [u64; 2],
    /// Later batches contain no packet from before this time.
    pub(super) until: Nanos,
}

/// A frame in a batch.
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
    /// The number of due times in the batch that belong to this frame.
    pub(super) due: usize,
    /// True for each side at which the frame is written as packets.
    pub(super) at: [bool; 2],
}

impl Captures {
    /// Creates an empty list of captures, which share the time budget `time`.
    pub(crate) fn new(time: TimeShare) -> Self {
        Self {
            taps: Vec::new(),
            time,
        }
    }

    pub(crate) fn add(&mut self, tap: Tap) {
        self.taps.push(tap);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taps.is_empty()
    }

    /// Records the arrival of a frame with this number of packets. Their outcomes follow later.
    pub(crate) fn arrived(&mut self, frame: FrameRef<'_>, packets: u32) {
        if self.is_empty() {
            return;
        }
        let Some(begun) = self.time.begin() else {
            return self.taps.iter_mut().for_each(Tap::pause);
        };
        let fields = self.fields(frame);
        for tap in &mut self.taps {
            if !tap.is_paused && frame.arrival >= tap.start && tap.filter.matches(&fields) {
                *tap.on_their_way.entry(frame.arrival).or_default() += packets;
            }
        }
        self.time.end(begun);
    }

    /// Returns the header fields that filters compare, if a tap has a filter.
    fn fields(&self, frame: FrameRef<'_>) -> PacketFields {
        if self.taps.iter().all(|tap| tap.filter.is_empty()) {
            return PacketFields::default();
        }
        packet_fields(frame, &Headers::of(frame))
    }

    /// Copies packets whose outcome is known, unless the port could not deliver their frame.
    pub(crate) fn note(
        &mut self,
        packets: &ObservedPackets<'_>,
        verdict: PacketVerdict,
        departure: Option<Nanos>,
    ) {
        if self.is_empty() || packets.frame.bytes.is_empty() {
            return;
        }
        let Some(begun) = self.time.begin() else {
            for tap in &mut self.taps {
                tap.pause();
                tap.count(packets, departure);
            }
            return;
        };
        let fields = self.fields(packets.frame);
        for tap in &mut self.taps {
            if tap.is_paused {
                tap.count(packets, departure);
            } else if tap.filter.matches(&fields) {
                tap.note(packets, verdict, departure);
            }
        }
        self.time.end(begun);
    }

    /// Copies a packet that the emulator itself sent back to `side`.
    #[cold]
    pub(crate) fn replied(&mut self, side: Side, packet: &TxFrame<'_>, departure: Nanos) {
        if self.is_empty() {
            return;
        }
        let begun = self.time.begin();
        for tap in &mut self.taps {
            match begun {
                Some(_) if !tap.is_paused => tap.replied(side, packet, departure),
                _ => tap.batch.observed[side.index()] += u64::from(tap.is_at(side)),
            }
        }
        if let Some(begun) = begun {
            self.time.end(begun);
        }
    }

    /// Hands over batches that have waited long enough by `now`, and ends captures that have
    /// reached a limit or were stopped. Every later arrival has a time of at least `horizon`.
    pub(crate) fn follow(&mut self, now: Nanos, horizon: Nanos) {
        if self.is_empty() {
            return;
        }
        let may_observe = self.time.follow(now);
        self.taps.retain_mut(|tap| {
            if may_observe && tap.is_paused {
                (tap.is_paused, tap.observes_from) = (false, horizon);
            }
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

    /// Returns the latest time at which [`Captures::follow`] must be called next.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        let all = self.taps.iter();
        all.map(|tap| (tap.handed_over + FOLLOW).min(tap.end)).min()
    }

    /// Ends all captures.
    pub(crate) fn finish(&mut self) {
        self.taps.drain(..).for_each(|mut tap| tap.end());
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
            is_paused: false,
            observes_from: start,
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
        let count = segments.end - segments.start;
        if !changes.is_copy {
            self.remove_on_their_way(frame.arrival, count);
        }
        let mut at = self.sides_with(packets, departure);
        let arrived = &mut at[ingress.index()];
        if *arrived && frame.arrival < self.observes_from {
            // The frame arrived while the tap did not look, so packets that arrived later may
            // already be written.
            *arrived = false;
            self.batch.observed[ingress.index()] += u64::from(count);
        }
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
        // A train that cannot leave as one frame is copied in parts.
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

    fn is_at(&self, side: Side) -> bool {
        self.side.is_none_or(|only| only == side)
    }

    /// Returns, for each side, whether a capture without a filter includes these packets.
    fn sides_with(&self, packets: &ObservedPackets<'_>, departure: Option<Nanos>) -> [bool; 2] {
        let (ingress, egress) = (packets.ingress, packets.ingress.other());
        let has_arrived = !packets.changes.is_copy && packets.frame.arrival >= self.start;
        let mut at = [false; 2];
        at[ingress.index()] = has_arrived && self.is_at(ingress);
        at[egress.index()] = departure.is_some() && self.is_at(egress);
        at
    }

    /// Stops observing until captures have time again.
    fn pause(&mut self) {
        if !self.is_paused {
            self.is_paused = true;
            self.on_their_way.clear();
        }
    }

    /// Counts packets that the tap did not observe.
    fn count(&mut self, packets: &ObservedPackets<'_>, departure: Option<Nanos>) {
        let count = packets.segments.end - packets.segments.start;
        let at = self.sides_with(packets, departure);
        for (observed, is_at) in self.batch.observed.iter_mut().zip(at) {
            *observed += u64::from(count) * u64::from(is_at);
        }
    }

    fn replied(&mut self, side: Side, packet: &TxFrame<'_>, departure: Nanos) {
        let bytes = [packet.head.bytes(), &packet.body];
        let whole = bytes.concat();
        let frame = FrameRef {
            arrival: departure,
            offload: Offload::default(),
            vlan: None,
            bytes: &whole,
        };
        let fields = packet_fields(frame, &Headers::of(frame));
        if !self.filter.matches(&fields) || !self.is_at(side) {
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

    /// Removes packets that arrived at `arrival` from those on their way.
    fn remove_on_their_way(&mut self, arrival: Nanos, packets: u32) {
        // Packets that arrived before the capture started were never counted.
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
        for (observed, is_at) in self.batch.observed.iter_mut().zip(captured.at) {
            *observed += u64::from(packets) * u64::from(is_at);
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

    /// Returns the earliest arrival time of packets that may still be copied.
    fn until(&self, horizon: Nanos) -> Nanos {
        let first = self.on_their_way.keys().next();
        first.map_or(horizon, |first| horizon.min(*first))
    }

    /// Hands the batch over, or drops its frames if too many batches wait.
    fn hand_over(&mut self) {
        let observed = self.batch.observed;
        if self.waiting.0.load(Ordering::Relaxed) >= WAITING {
            self.batch.clear();
            return;
        }
        let empty = self.emptied.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, empty);
        (self.batch.observed, self.batch.until) = (observed, batch.until);
        self.send(batch);
    }

    /// Hands over the last batch, regardless of how many batches wait.
    fn end(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.until = Nanos(u64::MAX);
        self.send(batch);
    }

    fn send(&mut self, batch: FrameBatch) {
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        // If the writer has ended, it has reported its error itself.
        let _ = self.full.send(batch);
    }
}

impl WaitingBatches {
    /// Records that the writer has taken a batch.
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
