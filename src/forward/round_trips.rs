//! Round trips as they are seen at the ends of a link: from when a packet came until its answer left to where it came from.
//!
//! Of each side one TCP segment and one ICMP echo are followed at a time, and no flow is kept: it takes the same memory however
//! many there are.

use model::{Nanos, PacketId, Side};
use netio::{Answer, Asked, FrameRef, Question, Sending};

/// The next packet is followed no sooner than this after the one before.
const EVERY: Nanos = Nanos::from_millis(10);

/// What is not answered by then is given up.
const LONGEST: Nanos = Nanos::from_millis(10_000);

/// Those of both sides.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips([AtSide; 2]);

#[derive(Debug, Default)]
struct AtSide {
    segment: Followed,
    echo: Followed,
    times: RoundTripTimes,
}

/// The packet of its kind whose answer is waited for.
#[derive(Debug, Default)]
struct Followed {
    probe: Option<Probe>,
    /// When the next one may be followed.
    next: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    question: Question,
    /// The last packet of its frame.
    id: PacketId,
    came: Nanos,
    /// When it was sent on.
    passed: Option<Nanos>,
}

/// Packets of a frame that are on their way no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone<'f> {
    /// Where they came.
    pub(crate) ingress: Side,
    pub(crate) first: PacketId,
    pub(crate) count: u32,
    pub(crate) frame: FrameRef<'f>,
    /// When they left as they had come; nothing of what was lost or damaged.
    pub(crate) sent: Option<Sending>,
}

/// How long round trips took, in buckets that always are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundTripTimes {
    /// Those longer than the bound before and not longer than the one of the same place; the last are longer than all.
    pub(crate) counts: [u64; Self::BOUNDS.len() + 1],
    /// Of all of them.
    pub(crate) sum: Nanos,
}

impl RoundTrips {
    /// A frame came in at `side`, whose last packet has this id.
    pub(crate) fn came(&mut self, side: Side, last: PacketId, frame: FrameRef<'_>) {
        let at = &mut self.0[side.index()];
        if at.segment.is_idle(frame.arrival) && at.echo.is_idle(frame.arrival) {
            return;
        }
        if let Some(question) = Question::of(frame) {
            at.of(question.asked()).came(question, last, frame.arrival);
        }
    }

    /// What became of packets is known.
    pub(crate) fn gone(&mut self, gone: &Gone<'_>) {
        let asked = &mut self.0[gone.ingress.index()];
        asked.segment.gone(gone);
        asked.echo.gone(gone);
        let asking = &mut self.0[gone.ingress.other().index()];
        if asking.segment.probe.is_none() && asking.echo.probe.is_none() {
            return;
        }
        let Some(answer) = Answer::of(gone.frame) else {
            return;
        };
        match (gone.sent, answer.asked()) {
            // A later acknowledgement does as well.
            (None, Asked::Segment) => {}
            (None, Asked::Echo) => {
                asking.echo.answered(&answer);
            }
            (Some(sent), asked) => {
                let probe = asking.of(asked).answered(&answer);
                let time = probe.and_then(|probe| probe.time(gone.frame.arrival, sent.ended));
                time.into_iter().for_each(|time| asking.times.record(time));
            }
        }
    }

    /// How long those took that were seen so far, by side.
    pub(crate) fn times(&self) -> [RoundTripTimes; 2] {
        [self.0[0].times, self.0[1].times]
    }
}

impl AtSide {
    fn of(&mut self, asked: Asked) -> &mut Followed {
        match asked {
            Asked::Segment => &mut self.segment,
            Asked::Echo => &mut self.echo,
        }
    }
}

impl Followed {
    /// Whether what comes now is of no concern.
    fn is_idle(&self, now: Nanos) -> bool {
        self.probe.is_none() && now < self.next
    }

    fn came(&mut self, question: Question, id: PacketId, came: Nanos) {
        if let Some(probe) = &self.probe {
            let is_repeated = probe.question.is_repeated_by(&question);
            if !is_repeated && came <= probe.came + LONGEST {
                return;
            }
            self.probe = None;
            // Nobody could tell which of the two is answered (Karn and Partridge 1987; RFC 6298, section 3).
            if is_repeated {
                return;
            }
        }
        if self.is_idle(came) {
            return;
        }
        self.next = came + EVERY;
        self.probe = Some(Probe {
            question,
            id,
            came,
            passed: None,
        });
    }

    /// The packet that is followed may be among these.
    fn gone(&mut self, gone: &Gone<'_>) {
        let Some(probe) = &mut self.probe else {
            return;
        };
        let packets = gone.first.0..gone.first.0 + u64::from(gone.count);
        // The number of a packet that has gone is given to a later one.
        if !packets.contains(&probe.id.0) || probe.came != gone.frame.arrival {
            return;
        }
        match gone.sent {
            Some(sent) => probe.passed = probe.passed.or(Some(sent.begun)),
            None if probe.passed.is_none() => self.probe = None,
            None => {}
        }
    }

    fn answered(&mut self, answer: &Answer) -> Option<Probe> {
        self.probe
            .take_if(|probe| probe.question.is_answered_by(answer))
    }
}

impl Probe {
    /// How long the round trip took by an answer that came at `came` and left at `left`. What came before the packet had passed
    /// answers another copy of it.
    fn time(&self, came: Nanos, left: Nanos) -> Option<Nanos> {
        let time = Nanos(left.0.saturating_sub(self.came.0));
        let is_its = self.passed.is_some_and(|passed| passed <= came);
        (is_its && time <= LONGEST).then_some(time)
    }
}

impl RoundTripTimes {
    /// From two hosts side by side to what is given up half later.
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

    /// How many there were.
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
