//! The values of a link that a scrape reads: counters since its start and current values. The
//! labels do not depend on the traffic.

use model::Waiting;

use super::counters::DirectionCounters;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;
use crate::forward::thread::LinkReading;

/// The state of a link at one instant.
#[derive(Debug)]
pub(crate) struct LinkMeter {
    /// The name of the link.
    pub(crate) link: String,
    /// The client's side and the server's.
    pub(crate) ends: [String; 2],
    /// The revision in force.
    pub(crate) revision: u64,
    /// The direction from the client's side to the server's, and the other one.
    pub(crate) directions: [DirectionMeter; 2],
    /// The departure errors in buckets.
    pub(crate) lateness: LatenessBuckets,
    /// The number of packets that left later than the budget.
    pub(crate) late: u64,
    /// The round trips measured at the client's side and at the server's.
    pub(crate) round_trips: [RoundTripTimes; 2],
    /// The bytes of frames that all links of the forwarder hold, bookkeeping included.
    pub(crate) held_bytes: u64,
    /// True if the results of the whole link can be trusted: the emulator lost nothing and few
    /// packets were late.
    pub(crate) is_valid: bool,
}

/// The values of one direction.
#[derive(Debug)]
pub(crate) struct DirectionMeter {
    /// The counters since the link's start.
    pub(crate) counters: DirectionCounters,
    /// The backlog at the bottleneck; `None` without a rate.
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
