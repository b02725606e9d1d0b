//! The figures of a link while its forwarder runs.

use model::{Nanos, Waiting};
use record::summary::Summary;

use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;

/// The state of a link at one instant.
#[derive(Clone, Debug)]
pub(crate) struct LinkReading {
    /// The time of the reading, on the clock of [`netio::clock::now`].
    pub(crate) at: Nanos,
    /// The counters up to then, without the packet log. Packets counted as held at the end are on
    /// their way now.
    pub(crate) summary: Summary,
    /// The departure errors in buckets.
    pub(crate) lateness: LatenessBuckets,
    /// The round trips since their measurement began, by side.
    pub(crate) round_trips: [RoundTripTimes; 2],
    /// The backlog at the bottleneck of each direction, by ingress side.
    pub(crate) backlogs: [Option<Waiting>; 2],
    /// The bytes of frames that all links of the forwarder hold, bookkeeping included.
    pub(crate) held_bytes: usize,
}
