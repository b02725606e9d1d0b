//! The counters of a link, from its start or since a revision came into force.

use std::collections::BTreeMap;

use record::summary::{DelaySum, DirectionSummary, HopSummary, RuleSummary};
use serde::Serialize;
use utoipa::ToSchema;

/// The counters of a link since a revision came into force, or since the link's start.
///
/// Packets that were on their way at that instant count only when they leave or are dropped. The sum of these can therefore exceed the
/// packets that arrived.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LinkCounters {
    /// The revision from which counting starts; 1 is the link's start.
    pub(crate) since_revision: u64,
    /// The instant at which that revision came into force: RFC 3339.
    pub(crate) since: String,
    /// The instant of the reading: RFC 3339.
    pub(crate) at: String,
    /// The time between the two instants in seconds.
    pub(crate) span_s: f64,
    /// The direction from the client's side to the server's.
    pub(crate) up: DirectionCounters,
    /// The direction from the server's side to the client's.
    pub(crate) down: DirectionCounters,
}

/// Counters of one direction. Packets count as in the network, each segment of a train separately. Bytes are L2 without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct DirectionCounters {
    /// Packets offered to the link.
    pub(crate) packets: u64,
    /// The bytes of the offered packets.
    pub(crate) bytes: u64,
    /// Packets that were delivered.
    pub(crate) delivered: u64,
    /// The bytes of the delivered packets.
    pub(crate) delivered_bytes: u64,
    /// Copies that the link made.
    pub(crate) copies: u64,
    /// Delivered packets that the link marked for congestion.
    pub(crate) marked: u64,
    /// Delivered packets whose bytes the link changed.
    pub(crate) edited: u64,
    /// Packets and copies that the emulated network dropped, by cause: `loss` (random), `queue_full`, `aqm`, `too_big` (for the path's MTU),
    /// `policed`. The first two are always there, the others only if they occurred.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Packets that the emulator itself lost, by cause in words, such as `memory limit`; empty if it lost none. The emulated network does not
    /// cause these losses.
    pub(crate) emulator_lost: BTreeMap<String, u64>,
    /// The delays of the delivered packets.
    pub(crate) delay: DelayCount,
    /// Packets that are on their way now.
    pub(crate) in_flight: u64,
    /// The counters of the packets of each rule. Packets that match no rule count only in the totals.
    pub(crate) rules: Vec<RuleCounters>,
    /// The packets that each further hop of the link dropped, hops that were removed included. The link's own conditions dropped the rest of
    /// `dropped`.
    pub(crate) hops: Vec<HopDrops>,
}

/// The packets that one hop dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct HopDrops {
    /// The name of the hop.
    pub(crate) name: String,
    /// Dropped packets, by cause, for the causes that occurred.
    pub(crate) dropped: BTreeMap<String, u64>,
}

/// Counters of the packets of one rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct RuleCounters {
    /// The name of the rule.
    pub(crate) name: String,
    /// Packets offered to the link.
    pub(crate) packets: u64,
    /// The bytes of the offered packets.
    pub(crate) bytes: u64,
    /// Packets that the link let through.
    pub(crate) delivered: u64,
    /// The bytes of these packets.
    pub(crate) delivered_bytes: u64,
    /// Packets among these that the link marked for congestion.
    pub(crate) marked: u64,
    /// Packets among these whose bytes the link changed.
    pub(crate) edited: u64,
    /// Dropped packets, by cause, as those of the direction.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// The delays of the packets that were sent.
    pub(crate) delay: DelayCount,
}

/// The delays of sent packets from their arrival until they were due, queues included. The emulator's own lateness is excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct DelayCount {
    /// The number of packets.
    pub(crate) packets: u64,
    /// The sum of their delays in milliseconds.
    pub(crate) sum_ms: f64,
    /// The mean delay in milliseconds; null without packets.
    pub(crate) mean_ms: Option<f64>,
    #[serde(skip)]
    sum_us: u64,
}

impl DelayCount {
    fn of(delay: DelaySum) -> Self {
        let sum_ms = delay.sum_us as f64 / 1e3;
        Self {
            packets: delay.packets,
            sum_ms,
            mean_ms: (delay.packets > 0).then(|| sum_ms / delay.packets as f64),
            sum_us: delay.sum_us,
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self::of(DelaySum {
            packets: self.packets - earlier.packets,
            sum_us: self.sum_us - earlier.sum_us,
        })
    }
}

/// Returns the memory of counters by cause in bytes, including the overhead of the map.
fn memory_of(causes: &BTreeMap<String, u64>) -> usize {
    // A node of the map has room for 11 entries. If there are several, each except the first has at least 5.
    const ROOM: usize = 11;
    let nodes = match causes.len() {
        0 => 0,
        1..=ROOM => 1,
        several => several.div_ceil(5),
    };
    // Beside its entries, a node has its length and pointers to other nodes.
    let node = ROOM * size_of::<(String, u64)>() + (ROOM + 3) * size_of::<usize>();
    let names: usize = causes.keys().map(String::capacity).sum();
    names + nodes * node
}

impl DirectionCounters {
    /// Returns the heap memory of the counters in bytes.
    pub(super) fn memory(&self) -> usize {
        let rules = self
            .rules
            .iter()
            .map(|rule| rule.name.capacity() + memory_of(&rule.dropped));
        let hops = self
            .hops
            .iter()
            .map(|hop| hop.name.capacity() + memory_of(&hop.dropped));
        memory_of(&self.dropped)
            + memory_of(&self.emulator_lost)
            + self.rules.capacity() * size_of::<RuleCounters>()
            + self.hops.capacity() * size_of::<HopDrops>()
            + rules.chain(hops).sum::<usize>()
    }

    /// Reads the counters of a direction from its summary.
    pub(super) fn of(direction: &DirectionSummary) -> Self {
        let lost = direction.emulator_lost.iter();
        Self {
            packets: direction.packets,
            bytes: direction.bytes,
            delivered: direction.delivered,
            delivered_bytes: direction.delivered_bytes,
            copies: direction.copies,
            marked: direction.marked,
            edited: direction.edited,
            dropped: direction.dropped.clone(),
            emulator_lost: lost.map(|loss| (loss.cause.clone(), loss.count)).collect(),
            delay: DelayCount::of(direction.delay),
            in_flight: direction.held_at_end,
            rules: direction.rules.iter().map(RuleCounters::of).collect(),
            hops: direction.hops.iter().map(HopDrops::of).collect(),
        }
    }

    /// Adds the counts of another link's direction, except those of its rules and hops, which mean something else there.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.copies += other.copies;
        self.marked += other.marked;
        self.edited += other.edited;
        add_causes(&mut self.dropped, &other.dropped);
        add_causes(&mut self.emulator_lost, &other.emulator_lost);
        self.delay = DelayCount::of(DelaySum {
            packets: self.delay.packets + other.delay.packets,
            sum_us: self.delay.sum_us + other.delay.sum_us,
        });
        self.in_flight += other.in_flight;
    }

    /// Returns the counts since the `earlier` counters. The number of packets on their way is the
    /// current one.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let of_rule = |rule: &RuleCounters| {
            let before = earlier.rules.iter().find(|other| other.name == rule.name);
            before.map_or_else(|| rule.clone(), |before| rule.since(before))
        };
        let of_hop = |hop: &HopDrops| {
            let before = earlier.hops.iter().find(|other| other.name == hop.name);
            before.map_or_else(|| hop.clone(), |before| hop.since(before))
        };
        Self {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            delivered: self.delivered - earlier.delivered,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            copies: self.copies - earlier.copies,
            marked: self.marked - earlier.marked,
            edited: self.edited - earlier.edited,
            dropped: causes_since(&self.dropped, &earlier.dropped),
            emulator_lost: causes_since(&self.emulator_lost, &earlier.emulator_lost),
            delay: self.delay.since(earlier.delay),
            in_flight: self.in_flight,
            rules: self.rules.iter().map(of_rule).collect(),
            hops: self.hops.iter().map(of_hop).collect(),
        }
    }
}

impl HopDrops {
    fn of(hop: &HopSummary) -> Self {
        Self {
            name: hop.name.clone(),
            dropped: hop.dropped.clone(),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        let mut dropped = causes_since(&self.dropped, &earlier.dropped);
        dropped.retain(|_, count| *count > 0);
        Self {
            name: self.name.clone(),
            dropped,
        }
    }
}

impl RuleCounters {
    fn of(rule: &RuleSummary) -> Self {
        Self {
            name: rule.name.clone(),
            packets: rule.packets,
            bytes: rule.bytes,
            delivered: rule.delivered,
            delivered_bytes: rule.delivered_bytes,
            marked: rule.marked,
            edited: rule.edited,
            dropped: rule.dropped.clone(),
            delay: DelayCount::of(rule.delay),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            name: self.name.clone(),
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            delivered: self.delivered - earlier.delivered,
            delivered_bytes: self.delivered_bytes - earlier.delivered_bytes,
            marked: self.marked - earlier.marked,
            edited: self.edited - earlier.edited,
            dropped: causes_since(&self.dropped, &earlier.dropped),
            delay: self.delay.since(earlier.delay),
        }
    }
}

/// Adds counts by cause.
fn add_causes(to: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (cause, count) in more {
        *to.entry(cause.clone()).or_default() += count;
    }
}

/// Returns the counts since the `earlier` ones, by cause.
fn causes_since(
    now: &BTreeMap<String, u64>,
    earlier: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let since = |(cause, count): (&String, &u64)| {
        let before = earlier.get(cause).copied().unwrap_or(0);
        (cause.clone(), count - before)
    };
    now.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_since_a_reading_are_by_cause_and_rule() {
        let causes = |all: &[(&str, u64)]| -> BTreeMap<String, u64> {
            all.iter()
                .map(|(cause, count)| ((*cause).to_owned(), *count))
                .collect()
        };
        let delay = |packets, sum_us| DelayCount::of(DelaySum { packets, sum_us });
        let rule = |name: &str, packets| RuleCounters {
            name: name.to_owned(),
            packets,
            delay: delay(packets, 1_000 * packets),
            ..RuleCounters::default()
        };
        let earlier = DirectionCounters {
            packets: 10,
            delivered: 6,
            in_flight: 4,
            delay: delay(6, 6_000),
            dropped: causes(&[("loss", 2)]),
            rules: vec![rule("web", 3)],
            ..DirectionCounters::default()
        };
        let now = DirectionCounters {
            packets: 15,
            delivered: 12,
            in_flight: 1,
            delay: delay(12, 126_000),
            dropped: causes(&[("loss", 3), ("queue full", 5)]),
            rules: vec![rule("web", 4), rule("voice", 2)],
            ..DirectionCounters::default()
        };
        let since = now.since(&earlier);
        assert_eq!((since.packets, since.delivered, since.in_flight), (5, 6, 1));
        assert_eq!(since.delay.mean_ms, Some(20.0));
        assert_eq!(now.since(&now).delay.mean_ms, None);
        assert_eq!(since.dropped, causes(&[("loss", 1), ("queue full", 5)]));
        assert_eq!(since.rules, [rule("web", 1), rule("voice", 2)]);
    }
}
