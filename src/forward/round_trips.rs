//! Round trips as measured at the ends of a link: from the arrival of a packet until its reply
//! leaves towards the sender.
//!
//! At each side, one TCP segment and one ICMP echo are followed at a time. Flows are not stored, so
//! the memory does not depend on their number.

use model::{Nanos, Side};
use netio::{FrameRef, GsoFrame, ProbeKind, ProbeReply, ProbeRequest, SendTimes};

use super::observed::ObservedPackets;

/// The shortest time between two followed packets.
const EVERY: Nanos = Nanos::from_millis(10);

/// The time after which a packet without a reply is given up.
const LONGEST: Nanos = Nanos::from_millis(10_000);

/// The measurement of round trips at both ends of a link.
#[derive(Debug, Default)]
pub(crate) struct RoundTripTracker([SideTracker; 2]);

#[derive(Debug, Default)]
struct SideTracker {
    segment: ProbeSlot,
    echo: ProbeSlot,
    times: RoundTripTimes,
}

/// The followed packet of one kind, if any.
#[derive(Debug, Default)]
struct ProbeSlot {
    probe: Option<FollowedProbe>,
    /// The earliest time at which the next packet may be followed.
    next: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct FollowedProbe {
    request: ProbeRequest,
    arrival: Nanos,
    /// The time at which the last segment of the packet's frame was sent.
    passed: Option<Nanos>,
}

/// The durations of round trips, in fixed buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundTripTimes {
    /// Bucket n counts times above bound n - 1 and up to bound n; the last bucket counts times
    /// above all bounds.
    pub(crate) counts: [u64; Self::BOUNDS.len() + 1],
    /// The sum of all times.
    pub(crate) sum: Nanos,
}

impl RoundTripTracker {
    /// Records the arrival of a frame at `side`.
    pub(crate) fn arrived(&mut self, side: Side, frame: FrameRef<'_>) {
        let at = &mut self.0[side.index()];
        if at.segment.is_idle(frame.arrival) && at.echo.is_idle(frame.arrival) {
            return;
        }
        if let Some(request) = ProbeRequest::of(frame) {
            at.slot(request.kind()).arrived(request, frame.arrival);
        }
    }

    /// Records packets that left, or that were lost if `sending` is `None`.
    pub(crate) fn note(&mut self, packets: &ObservedPackets<'_>, sending: Option<SendTimes>) {
        let changes = packets.changes;
        if sending.is_none() && changes.is_copy {
            return;
        }
        // A damaged packet counts as lost.
        let sent = sending.filter(|_| changes.edit().is_none());
        let requesting = &mut self.0[packets.ingress.index()];
        requesting.segment.concluded(packets, sent);
        requesting.echo.concluded(packets, sent);
        let awaiting = &mut self.0[packets.ingress.other().index()];
        if awaiting.segment.probe.is_none() && awaiting.echo.probe.is_none() {
            return;
        }
        let Some(reply) = ProbeReply::of(packets.frame) else {
            return;
        };
        match (sent, reply.kind()) {
            // A later acknowledgement covers the segment as well.
            (None, ProbeKind::Segment) => {}
            (None, ProbeKind::Echo) => {
                awaiting.echo.answered(&reply);
            }
            (Some(sent), kind) => {
                let probe = awaiting.slot(kind).answered(&reply);
                let time = probe.and_then(|probe| probe.time(packets.frame.arrival, sent.ended));
                time.into_iter()
                    .for_each(|time| awaiting.times.record(time));
            }
        }
    }

    /// Returns the round trips measured up to now, by side.
    pub(crate) fn times(&self) -> [RoundTripTimes; 2] {
        [self.0[0].times, self.0[1].times]
    }
}

impl SideTracker {
    fn slot(&mut self, kind: ProbeKind) -> &mut ProbeSlot {
        match kind {
            ProbeKind::Segment => &mut self.segment,
            ProbeKind::Echo => &mut self.echo,
        }
    }
}

impl ProbeSlot {
    /// Returns true if a frame that arrives at `now` can be ignored.
    fn is_idle(&self, now: Nanos) -> bool {
        self.probe.is_none() && now < self.next
    }

    fn arrived(&mut self, request: ProbeRequest, arrival: Nanos) {
        if let Some(probe) = &self.probe {
            let is_repeated = probe.request.is_repeated_by(&request);
            if !is_repeated && arrival <= probe.arrival + LONGEST {
                return;
            }
            self.probe = None;
            // A reply could belong to either of the two transmissions (Karn and Partridge 1987; RFC
            // 6298, section 3).
            if is_repeated {
                return;
            }
        }
        if self.is_idle(arrival) {
            return;
        }
        self.next = arrival + EVERY;
        self.probe = Some(FollowedProbe {
            request,
            arrival,
            passed: None,
        });
    }

    /// Records the outcome of packets, which may include the last segment of the followed frame.
    fn concluded(&mut self, packets: &ObservedPackets<'_>, sent: Option<SendTimes>) {
        let Some(probe) = &mut self.probe else {
            return;
        };
        if !probe.is_of(packets) {
            return;
        }
        match sent {
            Some(sent) => probe.passed = probe.passed.or(Some(sent.begun)),
            None if probe.passed.is_none() => self.probe = None,
            None => {}
        }
    }

    fn answered(&mut self, reply: &ProbeReply) -> Option<FollowedProbe> {
        self.probe
            .take_if(|probe| probe.request.is_answered_by(reply))
    }
}

impl FollowedProbe {
    /// Returns true if these packets include the last one of the followed frame.
    fn is_of(&self, packets: &ObservedPackets<'_>) -> bool {
        let frame = packets.frame;
        self.arrival == frame.arrival
            && packets.segments.end == packets.gso.map_or(1, GsoFrame::segments)
            && ProbeRequest::of(frame) == Some(self.request)
    }

    /// Returns the duration of the round trip, for a reply that arrived and left at these times. A
    /// reply that arrived before the packet had passed answers an earlier transmission.
    fn time(&self, arrival: Nanos, left: Nanos) -> Option<Nanos> {
        let time = Nanos(left.0.saturating_sub(self.arrival.0));
        let is_its = self.passed.is_some_and(|passed| passed <= arrival);
        (is_its && time <= LONGEST).then_some(time)
    }
}

impl RoundTripTimes {
    /// The upper bounds of the buckets, from two hosts on one network to half the time after which
    /// a packet is given up.
    pub(crate) const BOUNDS: [Nanos; 15] = [
        Nanos(100_000),
        Nanos(200_000),
        Nanos(500_000),
        Nanos(1_000_000),
        Nanos(2_000_000),
        Nanos(5_000_000),
        Nanos(10_000_000),
        Nanos(20_000_000),
        Nanos(50_000_000),
        Nanos(100_000_000),
        Nanos(200_000_000),
        Nanos(500_000_000),
        Nanos(1_000_000_000),
        Nanos(2_000_000_000),
        Nanos(5_000_000_000),
    ];

    /// Adds the times of other packets.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum.0 = self.sum.0.saturating_add(other.sum.0);
    }

    /// Returns the number of round trips.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn record(&mut self, time: Nanos) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < time);
        self.counts[bucket] += 1;
        self.sum.0 = self.sum.0.saturating_add(time.0);
    }
}

#[cfg(test)]
mod tests;
