//! The values of a link that a scrape reads: counters since its start and current values. The
//! labels do not depend on the traffic.

use std::collections::HashMap;

use model::{Bytes, Waiting};

use super::counters::DirectionCounters;
use crate::forward::round_trips::RoundTripTimes;
use crate::forward::stats::LatenessBuckets;
use crate::forward::thread::LinkReading;

/// The state of a link at one instant, or of all links together.
#[derive(Debug, Default)]
pub(crate) struct LinkMeter {
    /// The name of the link; empty for all links together.
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
    /// The forwarder of the link, as a number by which links of the same one are found.
    pub(crate) forwarder: usize,
    /// The bytes of frames that all links of the forwarder hold, bookkeeping included.
    pub(crate) held_bytes: u64,
    /// The frames that were lost because a receive ring was full that the links of the forwarder share.
    pub(crate) shared_rings_lost: u64,
    /// True if the results of the whole link can be trusted: the emulator lost nothing and few
    /// packets were late.
    pub(crate) is_valid: bool,
}

/// The values of one direction.
#[derive(Debug, Default)]
pub(crate) struct DirectionMeter {
    /// The counters since the link's start.
    pub(crate) counters: DirectionCounters,
    /// The backlog at the bottleneck; `None` without a rate.
    pub(crate) backlog: Option<Waiting>,
}

impl LinkMeter {
    pub(super) fn of(
        link: String,
        ends: [String; 2],
        revision: u64,
        forwarder: usize,
        now: &LinkReading,
    ) -> Self {
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
            forwarder,
            held_bytes: now.held_bytes as u64,
            shared_rings_lost: summary.rings_full.iter().map(|lost| lost.count).sum(),
            is_valid: summary.invalid().is_none(),
        }
    }

    /// Returns the sums over all links. The waiting time for a bottleneck is the longest one, and the whole is valid if
    /// every link is.
    pub(crate) fn total(links: &[Self]) -> Self {
        let mut total = Self {
            is_valid: links.iter().all(|link| link.is_valid),
            late: links.iter().map(|link| link.late).sum(),
            ..Self::default()
        };
        // Every link has these values of its forwarder, and the last one has the newest.
        let of_forwarders: HashMap<usize, &Self> =
            links.iter().map(|link| (link.forwarder, link)).collect();
        for link in of_forwarders.into_values() {
            total.held_bytes += link.held_bytes;
            total.shared_rings_lost += link.shared_rings_lost;
        }
        for link in links {
            for (sum, direction) in total.directions.iter_mut().zip(&link.directions) {
                sum.counters.add(&direction.counters);
                sum.backlog = match (sum.backlog, direction.backlog) {
                    (Some(a), Some(b)) => Some(Waiting {
                        packets: a.packets + b.packets,
                        bytes: Bytes(a.bytes.0 + b.bytes.0),
                        delay: a.delay.max(b.delay),
                    }),
                    (a, b) => a.or(b),
                };
            }
            total.lateness.add(&link.lateness);
            for (sum, times) in total.round_trips.iter_mut().zip(&link.round_trips) {
                sum.add(times);
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use model::Nanos;
    use record::summary::{OwnLoss, Summary};

    use super::*;

    #[test]
    fn frames_lost_by_shared_rings_are_counted_for_each_link() {
        let lost = |cause: &str, count| OwnLoss {
            cause: cause.to_owned(),
            count,
        };
        let reading = LinkReading {
            at: Nanos::ZERO,
            summary: Summary {
                rings_full: vec![lost("packets", 3), lost("trains", 4)],
                ..Summary::default()
            },
            lateness: LatenessBuckets::default(),
            round_trips: Default::default(),
            backlogs: [None; 2],
            held_bytes: 0,
        };
        let ends = ["a", "b"].map(str::to_owned);
        let meter = LinkMeter::of("a-b".to_owned(), ends, 1, 0, &reading);
        assert_eq!((meter.shared_rings_lost, meter.is_valid), (7, false));
    }

    #[test]
    fn the_total_counts_each_forwarder_once_and_is_as_valid_as_its_worst_link() {
        let link = |forwarder, held_bytes, is_valid| LinkMeter {
            forwarder,
            held_bytes,
            shared_rings_lost: held_bytes / 5,
            is_valid,
            late: 2,
            ..LinkMeter::default()
        };
        let mut links = [link(7, 100, true), link(7, 100, true), link(8, 5, true)];
        let backlog = |bytes, delay| {
            Some(Waiting {
                packets: 1,
                bytes: Bytes(bytes),
                delay: Nanos(delay),
            })
        };
        links[0].directions[0].backlog = backlog(1_500, 30);
        links[2].directions[0].backlog = backlog(60, 40);
        for link in &mut links {
            link.directions[1].counters.packets = 4;
            link.lateness.counts[0] = 3;
        }
        let total = LinkMeter::total(&links);
        assert_eq!(
            (total.held_bytes, total.late, total.is_valid),
            (105, 6, true)
        );
        assert_eq!(total.shared_rings_lost, 21);
        let waiting = total.directions[0].backlog.unwrap();
        assert_eq!((waiting.bytes, waiting.delay), (Bytes(1_560), Nanos(40)));
        assert_eq!(total.directions[1].backlog, None);
        assert_eq!(total.directions[1].counters.packets, 12);
        assert_eq!(total.lateness.counts[0], 9);
        links[1].is_valid = false;
        assert!(!LinkMeter::total(&links).is_valid);
    }
}
