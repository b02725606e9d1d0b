//! The events of a link for its observers: ten samples per second, and every change.

use std::sync::Arc;

use model::{Nanos, Waiting};
use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

use super::bounded_history::BoundedHistory;
use super::counters::DirectionCounters;
use super::moment::{Calendar, seconds, since};
use super::view::ChangeView;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::thread::LinkReading;

/// How often a link that is watched is looked at.
pub(super) const EVERY: Nanos = Nanos::from_millis(100);

/// Events that are kept for who comes back, at most: a minute of samples.
const KEPT: usize = 600;

/// Events that a reader may lag behind; one that does more is cut off.
const LAG: usize = 64;

/// An event with its number, which counts up by one.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) what: Happening,
}

impl Event {
    /// The bytes that it takes.
    fn memory(&self) -> usize {
        let what = match &self.what {
            Happening::Change(change) => {
                size_of::<ChangeView>()
                    + change.conditions.memory()
                    + change.says.capacity()
                    + change.at.capacity()
            }
            Happening::Sample(sample) => {
                size_of::<LinkSample>()
                    + sample.at.capacity()
                    + sample.up.counters.memory()
                    + sample.down.counters.memory()
            }
            Happening::End => 0,
        };
        size_of::<Self>() + what
    }
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Happening {
    Sample(Box<LinkSample>),
    Change(Box<ChangeView>),
    /// The link ended; nothing comes after it.
    End,
}

/// A link in a span of about a tenth of a second.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LinkSample {
    /// The end of the span: RFC 3339.
    pub(crate) at: String,
    /// The same in seconds since the link's start.
    pub(crate) at_s: f64,
    /// How long the span was, in seconds.
    pub(crate) span_s: f64,
    /// The revision in force.
    pub(crate) revision: u64,
    /// From the client's side to the server's.
    pub(crate) up: DirectionSample,
    /// The other way.
    pub(crate) down: DirectionSample,
    /// Round trips that ended in the span.
    pub(crate) round_trips: RoundTripSample,
    /// Of all packets since the link's start.
    pub(crate) departure_error: DepartureErrorSample,
    /// Bytes of frames held by all links of the forwarder, book-keeping included.
    pub(crate) held_bytes: u64,
}

/// One direction: rates in the span, counters since the link's start, and the queue of its bottleneck now.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DirectionSample {
    /// L2 bits a second that were offered to the link.
    pub(crate) offered_bit_per_s: f64,
    /// L2 bits a second that left it.
    pub(crate) delivered_bit_per_s: f64,
    /// Packets that wait for the bottleneck; absent of a link without a rate, as are the next two.
    pub(crate) queue_packets: Option<u64>,
    /// Their L2 bytes.
    pub(crate) queue_bytes: Option<u64>,
    /// How long a packet that comes now waits, at the rate of now, if it goes behind all others.
    pub(crate) queue_delay_ms: Option<f64>,
    /// Since the link's start.
    #[serde(flatten)]
    pub(crate) counters: DirectionCounters,
}

/// Round trips by the side at which they are seen: from when a TCP segment or an ICMP echo came there to when its acknowledgement
/// or reply left there. Of each side and kind one is followed at a time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RoundTripSample {
    /// At the client's side; null where none was seen.
    pub(crate) a: Option<RoundTrip>,
    /// At the server's side; null where none was seen.
    pub(crate) b: Option<RoundTrip>,
}

/// Round trips that ended in a span, at least one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct RoundTrip {
    /// How many.
    pub(crate) count: u64,
    /// How long they took.
    pub(crate) mean_ms: f64,
}

/// How long after their due times packets left.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DepartureErrorSample {
    /// Half of them left no later than this.
    pub(crate) p50_us: f64,
    /// 99 of 100 did.
    pub(crate) p99_us: f64,
    /// All of them did.
    pub(crate) max_us: f64,
    /// Packets that left later than the budget.
    pub(crate) late: u64,
    /// The budget.
    pub(crate) budget_us: f64,
}

/// The events of a link: the last ones, and who waits for more.
#[derive(Debug)]
pub(super) struct EventJournal {
    last_id: u64,
    kept: BoundedHistory<Arc<Event>>,
    readers: broadcast::Sender<Arc<Event>>,
    /// The reading before, while somebody watches.
    before: Option<LinkReading>,
}

impl Default for EventJournal {
    fn default() -> Self {
        Self {
            last_id: 0,
            kept: BoundedHistory::at_most(KEPT),
            readers: broadcast::Sender::new(LAG),
            before: None,
        }
    }
}

impl EventJournal {
    /// Notes an event, and tells it to all readers.
    pub(super) fn note(&mut self, what: Happening) {
        self.last_id += 1;
        let event = Arc::new(Event {
            id: self.last_id,
            what,
        });
        self.kept.push(Arc::clone(&event), event.memory());
        // Nobody may be reading.
        let _ = self.readers.send(event);
    }

    /// The events kept that came after number `last`, and those that come from now on.
    pub(super) fn follow(
        &self,
        last: Option<u64>,
    ) -> (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>) {
        let missed = |event: &&Arc<Event>| last.is_some_and(|last| event.id > last);
        let missed = self.kept.iter().filter(missed).cloned().collect();
        (missed, self.readers.subscribe())
    }

    pub(super) fn is_watched(&self) -> bool {
        self.readers.receiver_count() > 0
    }

    /// When the next reading is wanted, while somebody watches.
    pub(super) fn next_reading(&self) -> Nanos {
        self.before
            .as_ref()
            .map_or(Nanos::ZERO, |before| before.at + EVERY)
    }

    /// Forgets the reading before: nobody watches.
    pub(super) fn rest(&mut self) {
        self.before = None;
    }

    /// Notes what became of the link since the reading before; of the first one there is nothing to note.
    pub(super) fn take(
        &mut self,
        now: LinkReading,
        start: Nanos,
        revision: u64,
        calendar: &Calendar,
    ) {
        if let Some(before) = self.before.take() {
            let sample = LinkSample::between(&before, &now, start, revision, calendar);
            self.note(Happening::Sample(sample.into()));
        }
        self.before = Some(now);
    }
}

impl LinkSample {
    fn between(
        before: &LinkReading,
        now: &LinkReading,
        start: Nanos,
        revision: u64,
        calendar: &Calendar,
    ) -> Self {
        let span_s = seconds(since(before.at, now.at));
        let direction = |side: usize| {
            let of = |reading: &LinkReading| {
                let directions = [&reading.summary.up, &reading.summary.down];
                DirectionCounters::of(directions[side])
            };
            DirectionSample::between(&of(before), of(now), now.backlogs[side], span_s)
        };
        let error = &now.summary.departure_error;
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            at: calendar.at(now.at),
            at_s: seconds(since(start, now.at)),
            span_s,
            revision,
            up: direction(0),
            down: direction(1),
            round_trips: RoundTripSample {
                a: RoundTrip::between(&before.round_trips[0], &now.round_trips[0]),
                b: RoundTrip::between(&before.round_trips[1], &now.round_trips[1]),
            },
            departure_error: DepartureErrorSample {
                p50_us: us(error.p50_ns),
                p99_us: us(error.p99_ns),
                max_us: us(error.max_ns),
                late: error.over_budget,
                budget_us: us(error.budget_ns),
            },
            held_bytes: now.held_bytes as u64,
        }
    }
}

impl RoundTrip {
    fn between(before: &RoundTripTimes, now: &RoundTripTimes) -> Option<Self> {
        let count = now.count() - before.count();
        let sum_ms = since(before.sum, now.sum).0 as f64 / 1e6;
        (count > 0).then(|| Self {
            count,
            mean_ms: sum_ms / count as f64,
        })
    }
}

impl DirectionSample {
    fn between(
        before: &DirectionCounters,
        now: DirectionCounters,
        backlog: Option<Waiting>,
        span_s: f64,
    ) -> Self {
        let rate = |earlier: u64, later: u64| match span_s > 0.0 {
            true => (later - earlier) as f64 * 8.0 / span_s,
            false => 0.0,
        };
        Self {
            offered_bit_per_s: rate(before.bytes, now.bytes),
            delivered_bit_per_s: rate(before.delivered_bytes, now.delivered_bytes),
            queue_packets: backlog.map(|of| of.packets),
            queue_bytes: backlog.map(|of| of.bytes.0),
            queue_delay_ms: backlog.map(|of| of.delay.0 as f64 / 1e6),
            counters: now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(events: &[Arc<Event>]) -> Vec<u64> {
        events.iter().map(|event| event.id).collect()
    }

    #[test]
    fn who_comes_back_gets_what_it_missed_and_who_lags_is_cut_off() {
        let mut journal = EventJournal::default();
        (0..KEPT + 5).for_each(|_| journal.note(Happening::End));
        let all = KEPT as u64 + 5;
        assert!(journal.follow(None).0.is_empty());
        assert_eq!(ids(&journal.follow(Some(all - 2)).0), [all - 1, all]);
        assert_eq!(journal.follow(Some(1)).0.len(), KEPT);
        let (_, mut reader) = journal.follow(None);
        (0..=LAG).for_each(|_| journal.note(Happening::End));
        assert!(matches!(
            reader.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(1))
        ));
    }

    #[test]
    fn round_trips_are_those_of_the_span_and_none_is_no_zero() {
        let times = |counts: &[u64], ms| {
            let mut times = RoundTripTimes {
                sum: Nanos::from_millis(ms),
                ..RoundTripTimes::default()
            };
            times.counts[..counts.len()].copy_from_slice(counts);
            times
        };
        let (before, now) = (times(&[3, 1], 100), times(&[4, 1, 1], 150));
        let seen = RoundTrip::between(&before, &now);
        let expected = RoundTrip {
            count: 2,
            mean_ms: 25.0,
        };
        assert_eq!(seen, Some(expected));
        assert_eq!(RoundTrip::between(&now, &now), None);
    }

    #[test]
    fn a_rate_is_what_came_in_the_span() {
        let before = DirectionCounters::default();
        let now = DirectionCounters {
            bytes: 1_500,
            delivered_bytes: 1_000,
            ..DirectionCounters::default()
        };
        let direction = DirectionSample::between(&before, now, None, 0.1);
        assert_eq!(direction.offered_bit_per_s, 120_000.0);
        assert_eq!(direction.delivered_bit_per_s, 80_000.0);
    }
}
