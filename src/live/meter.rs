//! What a scrape reads of a link: counters since its start, and current values. No label depends on traffic.

use model::Waiting;

use super::counters::DirectionCounters;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;
use crate::forward::thread::LinkReading;

/// A link at one instant.
#[derive(Debug)]
pub(crate) struct LinkMeter {
    /// Its name.
    pub(crate) link: String,
    /// The client's side and the server's.
    pub(crate) ends: [String; 2],
    /// The revision in force.
    pub(crate) revision: u64,
    /// From the client's side to the server's, and the other way.
    pub(crate) directions: [DirectionMeter; 2],
    /// How long after their due times packets left.
    pub(crate) lateness: LatenessBuckets,
    /// Of those, how many left later than the budget.
    pub(crate) late: u64,
    /// How long round trips took, as seen at the client's side and at the server's.
    pub(crate) round_trips: [RoundTripTimes; 2],
    /// Bytes of frames held by all links of its forwarder, book-keeping included.
    pub(crate) held_bytes: u64,
    /// Whether what crossed the link, taken together, can be trusted: the emulator lost nothing, and few packets were late.
    pub(crate) is_valid: bool,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct DirectionMeter {
    /// Since the link's start.
    pub(crate) counters: DirectionCounters,
    /// What waits for the bottleneck; nothing without a rate.
    pub(crate) backlog: Option<Waiting>,
}

impl LinkMeter {
    pub(super) fn of(link: String, ends: [String; 2], revision: u64, now: &LinkReading) -> Self {
        let summary = &now.summary;
        let direction = |side: usize| DirectionMeter {
            counters: DirectionCounters::of([&summary.up, &summary.down][side]),
            backlog: now.backlogs[side],
        };
        Self {
            link,
            ends,
            revision,
            directions: [direction(0), direction(1)],
            lateness: now.lateness,
            late: summary.departure_error.over_budget,
            round_trips: now.round_trips,
            held_bytes: now.held_bytes as u64,
            is_valid: summary.invalid().is_none(),
        }
    }
}
