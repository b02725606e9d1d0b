//! The forwarder's counters, which let a user judge its results.

use std::io;

use super::departures_by_kind::DeparturesByKind;
use super::lateness_histogram::Lateness;
use conditions::Rules;
use model::{Counters, HopCounters, Nanos, Side, Waiting};
use netio::{Missed, SendTimes, Stall, Waiter};
use record::lateness::LateBudget;
use record::summary::{
    DelaySum, DelaySummary, DepartureSummary, DirectionSummary, HandOverSummary, HopSummary,
    OwnLoss, RuleSummary, ShareSummary, StallSummary, Summary, dropped_by_cause,
};

/// The causes of losses by the emulator itself. The emulated network causes none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmulatorLoss {
    /// The limit on held bytes was reached.
    Memory,
    /// The GSO frame cannot be split into its segments.
    UnsupportedGso,
    /// The frame is longer than the ring's slots.
    TooLong,
    /// The egress interface refused the packet.
    Send,
    /// The forwarder could not keep up, and the packet would have left later than its limit allows.
    Overload,
    /// The forwarder could not keep up with its rings, and the link had used up its share of the
    /// intake. The packet never reached the link.
    IntakeOverload,
}

impl EmulatorLoss {
    pub(crate) const ALL: [Self; 6] = [
        Self::Memory,
        Self::UnsupportedGso,
        Self::TooLong,
        Self::Send,
        Self::Overload,
        Self::IntakeOverload,
    ];

    /// Returns the cause in words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory limit",
            Self::UnsupportedGso => "unsupported GSO",
            Self::TooLong => "frame too long",
            Self::Send => "send failed",
            Self::Overload => "overload",
            Self::IntakeOverload => "intake overload",
        }
    }
}

/// Counters by ingress side (A, B), and the error of every departure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    /// The model's counters, by class.
    pub(crate) link: [Vec<Counters>; 2],
    /// The model's counters, by hop.
    pub(crate) hops: Vec<HopCounters>,
    /// The achieved shares of the model's random losses and copies.
    pub(crate) shares: Vec<ShareSummary>,
    /// The achieved averages of the model's random delays.
    pub(crate) delays: Vec<DelaySummary>,
    /// ARP, discovery protocols and other link-control frames, which pass unimpaired.
    pub(crate) control: [u64; 2],
    /// The frames that found a receive ring full, by the port of the ring.
    pub(crate) missed: [Missed; 2],
    /// The frames that found a ring full that several links share. They may belong to any of these
    /// links.
    pub(crate) missed_by_any: Missed,
    /// The packets that the egress interface accepted.
    pub(crate) sent: [u64; 2],
    /// The L2 bytes of these packets.
    pub(crate) sent_bytes: [u64; 2],
    /// The ICMP replies that told a sender why its packet was dropped.
    pub(crate) replies: [u64; 2],
    /// The delays of sent packets, by class.
    delay_totals: [Vec<DelayTotal>; 2],
    lost: [[u64; EmulatorLoss::ALL.len()]; 2],
    /// The first error of a send call.
    pub(crate) send_error: Option<String>,
    /// The actual minus the due departure time of every packet.
    pub(crate) departure: DepartureErrors,
    /// The part of this error before the call that sent the packet.
    hand_over: Lateness,
    /// The stalls of the forwarder until the link's latest turn or reading. They are recorded once for
    /// all links.
    pub(crate) stalls: StallStats,
    /// The packets that were due during a stall.
    stall_departures: u64,
    /// The departures by kind of packets.
    pub(crate) flows: DeparturesByKind,
    /// The most bytes held at any time.
    pub(crate) peak_bytes: usize,
}

impl Stats {
    /// Creates empty counters. Departures later than `budget` after their due time will count as
    /// late.
    pub(crate) fn with_budget(budget: LateBudget) -> Self {
        Self {
            departure: DepartureErrors::with_budget(budget),
            ..Self::default()
        }
    }

    /// Allocates what departures of this number of classes need, mainly 56 KiB for two histograms, so
    /// that counting them on the packet path allocates nothing.
    pub(crate) fn prepare(&mut self, classes: usize) {
        self.departure.lateness.prepare();
        self.hand_over.prepare();
        for totals in &mut self.delay_totals {
            totals.reserve(classes);
        }
    }

    pub(crate) fn lose(&mut self, ingress: Side, cause: EmulatorLoss, packets: u32) {
        self.lost[ingress.index()][cause as usize] += u64::from(packets);
    }

    /// Counts packets that the egress interface refused, and keeps the first error.
    pub(crate) fn send_failed(&mut self, ingress: Side, packets: u32, error: &io::Error) {
        self.lose(ingress, EmulatorLoss::Send, packets);
        self.send_error.get_or_insert_with(|| error.to_string());
    }

    /// Takes back the count of a reply that the interface refused.
    pub(crate) fn reply_failed(&mut self, ingress: Side, error: &io::Error) {
        self.replies[ingress.index()] -= 1;
        self.send_error.get_or_insert_with(|| error.to_string());
    }

    /// Counts packets that the egress interface accepted.
    pub(crate) fn left(&mut self, ingress: Side, packets: u32, bytes: u64) {
        self.sent[ingress.index()] += u64::from(packets);
        self.sent_bytes[ingress.index()] += bytes;
    }

    /// Counts the delays of sent packets of one class and arrival, up to their due times.
    pub(crate) fn record_delays(
        &mut self,
        ingress: Side,
        (class, arrival): (u16, Nanos),
        due: &[Nanos],
    ) {
        let (classes, class) = (&mut self.delay_totals[ingress.index()], usize::from(class));
        if class >= classes.len() {
            classes.resize(class + 1, DelayTotal::default());
        }
        let each = due
            .iter()
            .map(|due| u128::from(due.0.saturating_sub(arrival.0)));
        classes[class].packets += due.len() as u64;
        classes[class].nanos += each.sum::<u128>();
    }

    /// Counts packets of a kind that were due at `due`. `clamped` is the delay of their intake, by
    /// which they should have been due earlier.
    pub(crate) fn departed(
        &mut self,
        ingress: Side,
        (flow, clamped): (u8, Nanos),
        due: Nanos,
        sending: SendTimes,
        packets: u64,
    ) {
        if self.stalls.latest_includes(due) {
            self.stall_departures += packets;
        }
        let late = |at: Nanos| Nanos(at.0.saturating_sub(due.0)) + clamped;
        let are_late = self.departure.record(late(sending.ended), packets);
        self.hand_over.record(late(sending.begun), packets);
        self.flows.left(flow, ingress, packets, are_late);
    }

    /// Returns the distribution of departure errors.
    pub(crate) fn departure_error(&self) -> DepartureSummary {
        self.departure.summary(&self.hand_over)
    }

    /// Returns the stalls, if there was one, and the packets of the link that were due during them.
    pub(super) fn stall_summary(&self) -> Option<StallSummary> {
        let stalls = self.stalls;
        (stalls.count > 0).then_some(StallSummary {
            count: stalls.count,
            total_ns: stalls.total.0,
            longest_ns: stalls.longest.0,
            departures: self.stall_departures,
        })
    }

    /// Returns the departure errors in buckets.
    pub(crate) fn lateness(&self) -> LatenessBuckets {
        self.departure.buckets
    }

    /// Returns the model's counters, summed over all classes.
    pub(crate) fn counters(&self, ingress: Side) -> Counters {
        let classes = self.link[ingress.index()].iter();
        classes.fold(Counters::default(), |sum, one| sum + *one)
    }

    pub(crate) fn lost(&self, ingress: Side, cause: EmulatorLoss) -> u64 {
        self.lost[ingress.index()][cause as usize]
    }
}

/// Packets that left, and the sum of the times from their arrivals to their due times.
#[derive(Clone, Copy, Debug, Default)]
struct DelayTotal {
    packets: u64,
    nanos: u128,
}

impl DelayTotal {
    fn summary(self) -> DelaySum {
        DelaySum {
            packets: self.packets,
            sum_us: u64::try_from(self.nanos / 1_000).unwrap_or(u64::MAX),
        }
    }
}

impl std::ops::Add for DelayTotal {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            nanos: self.nanos + other.nanos,
        }
    }
}

/// The error of every departure, and the number of late departures.
#[derive(Clone, Debug, Default)]
pub(crate) struct DepartureErrors {
    lateness: Lateness,
    buckets: LatenessBuckets,
    late: u64,
    /// The time after the due time beyond which a departure is late.
    budget: LateBudget,
}

impl DepartureErrors {
    /// Creates empty statistics. Departures later than `budget` will count as late.
    pub(crate) fn with_budget(budget: LateBudget) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// Counts packets that left `error` after they were due. Returns true if they are late.
    fn record(&mut self, error: Nanos, packets: u64) -> bool {
        self.lateness.record(error, packets);
        self.buckets.record(error, packets);
        let are_late = error > self.budget.time();
        self.late += if are_late { packets } else { 0 };
        are_late
    }

    fn summary(&self, hand_over: &Lateness) -> DepartureSummary {
        DepartureSummary {
            count: self.lateness.count(),
            p50_ns: self.lateness.at_quantile(0.5),
            p99_ns: self.lateness.at_quantile(0.99),
            max_ns: self.lateness.max(),
            hand_over: HandOverSummary {
                p50_ns: hand_over.at_quantile(0.5),
                p99_ns: hand_over.at_quantile(0.99),
                max_ns: hand_over.max(),
            },
            over_budget: self.late,
            budget_ns: self.budget.time().0,
        }
    }
}

/// Departure errors in a few fixed buckets, so that reading them does not traverse a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LatenessBuckets {
    /// Bucket n counts errors above bound n - 1 and up to bound n; the last bucket counts errors
    /// above all bounds.
    pub(crate) counts: [u64; Self::BOUNDS.len() + 1],
    /// The sum of all errors.
    pub(crate) sum: Nanos,
}

impl LatenessBuckets {
    /// The upper bounds of the buckets, from the error of a spinning forwarder to that of a stalled
    /// host: 1 us to 1 s.
    pub(crate) const BOUNDS: [Nanos; 14] = [
        Nanos(1_000),
        Nanos(2_000),
        Nanos(5_000),
        Nanos(10_000),
        Nanos(20_000),
        Nanos(50_000),
        Nanos(100_000),
        Nanos(200_000),
        Nanos(500_000),
        Nanos(1_000_000),
        Nanos(2_000_000),
        Nanos(10_000_000),
        Nanos(100_000_000),
        Nanos(1_000_000_000),
    ];

    /// Adds the errors of other packets.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum.0 = self.sum.0.saturating_add(other.sum.0);
    }

    fn record(&mut self, error: Nanos, packets: u64) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < error);
        self.counts[bucket] += packets;
        self.sum.0 = self.sum.0.saturating_add(error.0.saturating_mul(packets));
    }
}

/// Stalls: times in which a thread that only read the clock did not run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StallStats {
    count: u64,
    total: Nanos,
    longest: Nanos,
    latest: Option<Stall>,
}

impl StallStats {
    /// Counts a stall.
    pub(crate) fn note(&mut self, stall: Stall) {
        let took = Nanos(stall.to.0 - stall.from.0);
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
        self.latest = Some(stall);
    }

    /// Returns true if the latest stall includes this time.
    fn latest_includes(&self, time: Nanos) -> bool {
        self.latest
            .is_some_and(|stall| time > stall.from && time <= stall.to)
    }
}

/// The queue and the drops of a link at one instant, by ingress side. They are cheap to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueState {
    /// The backlog at the bottleneck of each direction.
    pub(crate) backlogs: [Option<Waiting>; 2],
    /// The model's counters of each direction.
    pub(crate) counters: [Counters; 2],
}

/// Returns the summary of a link: its counters by class, the wake-up latency of the host, and the
/// memory limits of frames and rings. The packet log is added later.
pub(super) fn summary(
    stats: &Stats,
    waiter: &Waiter,
    held_limit_bytes: usize,
    ring_bytes: usize,
    rules: &Rules,
) -> Summary {
    Summary {
        up: direction(stats, Side::A, rules),
        down: direction(stats, Side::B, rules),
        shares: stats.shares.clone(),
        delays: stats.delays.clone(),
        departure_error: stats.departure_error(),
        stalls: stats.stall_summary(),
        rings_full: rings_full(stats.missed_by_any).collect(),
        peak_held_bytes: stats.peak_bytes,
        held_limit_bytes,
        ring_bytes,
        wake_up_latency_ns: waiter.wake_up_latency().0,
        spin_ns: waiter.spins().0,
        real_time: waiter.real_time(),
        send_error: stats.send_error.clone(),
        packet_log: None,
        capture: None,
        interfaces: Vec::new(),
        notes: Vec::new(),
    }
}

fn direction(stats: &Stats, ingress: Side, rules: &Rules) -> DirectionSummary {
    let counters = stats.counters(ingress);
    let lost = EmulatorLoss::ALL.map(|cause| (cause.name(), stats.lost(ingress, cause)));
    let refused = stats.missed[ingress.other().index()].refused;
    let emulator_lost = own_losses(lost)
        .chain(rings_full(stats.missed[ingress.index()]))
        .chain(own_losses([("tunnel train refused", refused)]));
    let delayed = &stats.delay_totals[ingress.index()];
    let others = stats.link[ingress.index()].iter().enumerate().skip(1);
    let of_rules = rules.names().zip(others).map(|(name, (class, counters))| {
        let delay = delayed.get(class).copied().unwrap_or_default();
        RuleSummary::new(name, counters, delay.summary())
    });
    let hops = stats.hops.iter();
    let delay = delayed
        .iter()
        .fold(DelayTotal::default(), |sum, of| sum + *of);
    DirectionSummary {
        packets: counters.packets,
        bytes: counters.bytes,
        delivered: stats.sent[ingress.index()],
        delivered_bytes: stats.sent_bytes[ingress.index()],
        copies: counters.copies,
        dropped: dropped_by_cause(&counters),
        marked: counters.marked,
        edited: counters.edited,
        replies: stats.replies[ingress.index()],
        held_at_end: held_at_end(stats, ingress, &counters),
        delay: delay.summary(),
        rules: of_rules.collect(),
        hops: hops.map(|hop| HopSummary::new(hop, ingress)).collect(),
        late_arrivals: counters.late,
        late_departures: stats.flows.late(ingress),
        link_control: stats.control[ingress.index()],
        emulator_lost: emulator_lost.collect(),
    }
}

fn rings_full(Missed { small, large, .. }: Missed) -> impl Iterator<Item = OwnLoss> {
    own_losses([
        ("receive ring of packets full", small),
        ("receive ring of trains full", large),
    ])
}

/// Returns the losses with a count above 0.
fn own_losses<const N: usize>(counts: [(&'static str, u64); N]) -> impl Iterator<Item = OwnLoss> {
    let occurred = counts.into_iter().filter(|(_, count)| *count > 0);
    occurred.map(|(cause, count)| OwnLoss {
        cause: cause.to_owned(),
        count,
    })
}

/// Returns the number of packets that were offered or copied and have neither left nor been
/// dropped.
fn held_at_end(stats: &Stats, ingress: Side, counters: &Counters) -> u64 {
    let gone = stats.sent[ingress.index()]
        + stats.lost(ingress, EmulatorLoss::Send)
        + stats.lost(ingress, EmulatorLoss::Overload)
        + counters.all_dropped();
    (counters.packets + counters.copies).saturating_sub(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_histograms_from_its_first_departure_on() {
        let mut stats = Stats::default();
        assert_eq!(stats.departure_error().count, 0);
        assert_eq!(stats.departure_error().max_ns, 0);
        assert!(!stats.departure.lateness.has_histogram() && !stats.hand_over.has_histogram());
        let sending = SendTimes {
            begun: Nanos(1_500),
            ended: Nanos(3_000),
        };
        stats.departed(Side::A, (0, Nanos::ZERO), Nanos(1_000), sending, 7);
        let error = stats.departure_error();
        assert_eq!([error.count, error.max_ns], [7, 2_000]);
        assert_eq!(error.hand_over.max_ns, 500);
    }

    #[test]
    fn prepared_histograms_record_every_error() {
        let mut stats = Stats::default();
        stats.prepare(1);
        let empty = stats.departure_error();
        assert_eq!([empty.count, empty.p50_ns, empty.max_ns], [0; 3]);
        assert!(stats.departure.lateness.has_histogram() && stats.hand_over.has_histogram());
        for late in [0, 1_000, 20_000_000_000] {
            let sending = SendTimes {
                begun: Nanos(late),
                ended: Nanos(late),
            };
            stats.departed(Side::A, (0, Nanos::ZERO), Nanos::ZERO, sending, 1);
        }
        let error = stats.departure_error();
        assert_eq!(error.count, 3);
        assert_eq!(error.max_ns, 10_000_000_000);
    }
}
