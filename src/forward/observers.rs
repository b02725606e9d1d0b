//! The observers of packets beside the packet path: the packet log, captures and the measurement of
//! round trips.

use model::{Nanos, Side};
use netio::{FrameRef, SendTimes, TxFrame};
use record::summary::PacketLogSummary;

use super::capture::{Captures, Tap, TimeShare};
use super::observed::{ObservedPackets, PacketVerdict};
use super::packet_log::PacketLogWriter;
use super::round_trips::{RoundTripTimes, RoundTripTracker};

/// The observers of a link. Without any, a packet costs three comparisons and nothing is computed
/// for them.
#[derive(Debug)]
pub(super) struct Observers {
    log: Option<PacketLogWriter>,
    captures: Captures,
    round_trips: Option<Box<RoundTripTracker>>,
}

impl Observers {
    /// Creates the observers of a link. Its captures share the time budget `captures`.
    pub(super) fn new(log: Option<PacketLogWriter>, captures: TimeShare) -> Self {
        Self {
            log,
            captures: Captures::new(captures),
            round_trips: None,
        }
    }

    /// Copies packets from now on, until the capture ends.
    pub(super) fn capture(&mut self, tap: Tap) {
        self.captures.add(tap);
    }

    /// Measures round trips from now on.
    pub(super) fn measure_round_trips(&mut self) {
        self.round_trips.get_or_insert_default();
    }

    /// Returns the round trips measured up to now, by side.
    pub(super) fn round_trip_times(&self) -> [RoundTripTimes; 2] {
        let tracker = self.round_trips.as_deref();
        tracker.map(RoundTripTracker::times).unwrap_or_default()
    }

    /// Reports the arrival of a frame with this number of packets. The outcome of each packet
    /// follows later, even if the packet is never held.
    #[inline]
    pub(super) fn arrived<'f>(
        &mut self,
        ingress: Side,
        frame: impl Into<FrameRef<'f>>,
        packets: u32,
    ) {
        if self.is_empty() {
            return;
        }
        let frame = frame.into();
        self.captures.arrived(frame, packets);
        if let Some(tracker) = &mut self.round_trips {
            tracker.arrived(ingress, frame);
        }
    }

    /// Reports packets that the emulated network dropped, or that the emulator lost before they
    /// were due.
    #[inline]
    pub(super) fn decided<'f>(
        &mut self,
        verdict: impl Into<PacketVerdict>,
        packets: impl FnOnce() -> ObservedPackets<'f>,
    ) {
        if !self.is_empty() {
            self.note(&packets(), verdict.into(), None);
        }
    }

    /// Reports packets that were handed to the egress port. If the port accepted them, `sending` is
    /// given and `taken` is their verdict.
    #[inline]
    pub(super) fn sent<'f>(
        &mut self,
        taken: PacketVerdict,
        sending: Option<SendTimes>,
        packets: impl FnOnce() -> ObservedPackets<'f>,
    ) {
        if !self.is_empty() {
            let verdict = sending.map_or(PacketVerdict::SendFailed, |_| taken);
            self.note(&packets(), verdict, sending);
        }
    }

    /// Reports packets that were still on their way when the link ended.
    pub(super) fn held<'f>(&mut self, packets: impl FnOnce() -> ObservedPackets<'f>) {
        if !self.is_empty() {
            self.note(&packets(), PacketVerdict::HeldAtEnd, None);
        }
    }

    /// Reports a packet that the emulator itself has sent back to `side`. Only captures keep it,
    /// because it did not cross the link.
    #[cold]
    pub(super) fn replied(&mut self, side: Side, packet: &TxFrame<'_>, departure: Nanos) {
        self.captures.replied(side, packet, departure);
    }

    /// Hands over data that has waited long enough by `now`, and ends captures that have reached a
    /// limit or were stopped. Every later arrival has a time of at least `horizon`.
    pub(super) fn follow(&mut self, now: Nanos, horizon: Nanos) {
        if let Some(log) = &mut self.log {
            log.follow(now);
        }
        self.captures.follow(now, horizon);
    }

    /// Returns the latest time at which [`Observers::follow`] must be called next.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        let log = self.log.as_ref().and_then(PacketLogWriter::next_at);
        [log, self.captures.next_at()].into_iter().flatten().min()
    }

    /// Ends the packet log and all captures. Returns the summary of the log.
    pub(super) fn finish(&mut self) -> Option<PacketLogSummary> {
        self.captures.finish();
        self.log.take().map(PacketLogWriter::finish)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.log.is_none() && self.captures.is_empty() && self.round_trips.is_none()
    }

    #[inline(never)]
    fn note(
        &mut self,
        packets: &ObservedPackets<'_>,
        verdict: PacketVerdict,
        sending: Option<SendTimes>,
    ) {
        let departure = sending.map(|sending| sending.ended);
        if let Some(log) = &mut self.log {
            log.note(packets, verdict, departure);
        }
        self.captures.note(packets, verdict, departure);
        if let Some(tracker) = &mut self.round_trips {
            tracker.note(packets, sending);
        }
    }
}
