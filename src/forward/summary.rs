//! What the emulator did, in the form that is printed and kept in a record.

use std::fmt;

use model::Side;
use serde::{Deserialize, Serialize};

use super::stats::BUDGET;
use super::truth::TruthSummary;
use super::{Loss, Stats, thread::Report};

/// The link's counters by direction, and how far the emulator can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Summary {
    /// From client to server, `IF_A` to `IF_B`.
    pub(crate) up: DirectionSummary,
    /// From server to client, `IF_B` to `IF_A`.
    pub(crate) down: DirectionSummary,
    /// Time of handing each packet to the kernel, minus its due time.
    pub(crate) departure_error: DepartureSummary,
    /// The most bytes held at a time, book-keeping included.
    pub(crate) peak_held_bytes: usize,
    /// The most that may be held.
    pub(crate) held_limit_bytes: usize,
    /// The receive rings of both ports, of a fixed size.
    pub(crate) ring_bytes: usize,
    /// How late a sleeping thread of this machine wakes up, median, measured at start.
    pub(crate) wake_up_latency_ns: u64,
    /// How long before each departure the forwarder spins; 0 if it never does.
    pub(crate) spin_ns: u64,
    /// Whether the forwarder ran before every ordinary thread (`SCHED_FIFO`, which needs CAP_SYS_NICE).
    pub(crate) real_time: bool,
    /// The first error of sending, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) send_error: Option<String>,
    /// What was kept of the truth of every packet, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) truth: Option<TruthSummary>,
}

/// One direction. Packets are the segments that the model saw, bytes are L2 without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectionSummary {
    /// Offered to the link.
    pub(crate) packets: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Sent on their way by the egress interface.
    pub(crate) delivered: u64,
    /// Their bytes.
    pub(crate) delivered_bytes: u64,
    /// Dropped by random loss: the emulated network's doing.
    pub(crate) lost: u64,
    /// Dropped by a full queue: the emulated network's doing.
    pub(crate) queue_full: u64,
    /// On their way when the emulator stopped: packets = delivered + lost + queue full + failed sends + these.
    pub(crate) held_at_end: u64,
    /// Arrivals older than model time, taken as if they came at it.
    pub(crate) late_arrivals: u64,
    /// ARP, discovery and the like: passed unimpaired, not counted above.
    pub(crate) link_control: u64,
    /// Lost by the emulator itself, by cause: frames for which the receive ring had no room, and packets
    /// dropped for want of memory, because a train could not be cut, as too long, or by a failed send.
    pub(crate) emulator_lost: Vec<OwnLoss>,
}

/// Packets that the emulator itself lost for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OwnLoss {
    /// The cause in words.
    pub(crate) cause: String,
    /// How many.
    pub(crate) count: u64,
}

/// The error of departures in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DepartureSummary {
    /// Packets that left.
    pub(crate) count: u64,
    /// Half of them left no later than this after their due time.
    pub(crate) p50_ns: u64,
    /// 99 of 100 did.
    pub(crate) p99_ns: u64,
    /// All of them did.
    pub(crate) max_ns: u64,
    /// Packets that left later than the budget.
    pub(crate) over_budget: u64,
    /// The budget.
    pub(crate) budget_ns: u64,
}

impl Summary {
    /// The summary of a forwarder's report.
    pub(crate) fn of(report: &Report) -> Self {
        let stats = &report.stats;
        let error = &stats.departure;
        Self {
            up: DirectionSummary::of(stats, Side::A),
            down: DirectionSummary::of(stats, Side::B),
            departure_error: DepartureSummary {
                count: error.count(),
                p50_ns: error.at(0.5).0,
                p99_ns: error.at(0.99).0,
                max_ns: error.max().0,
                over_budget: error.late(),
                budget_ns: BUDGET.0,
            },
            peak_held_bytes: stats.peak_bytes,
            held_limit_bytes: report.memory,
            ring_bytes: report.ring_bytes,
            wake_up_latency_ns: report.waiter.wake_up_latency().0,
            spin_ns: report.waiter.guard().0,
            real_time: report.waiter.real_time(),
            send_error: stats.send_error.clone(),
            truth: report.truth.clone(),
        }
    }

    /// Why what was measured through this link cannot be trusted, if so.
    pub(crate) fn invalid(&self) -> Option<String> {
        let own: Vec<String> = [("up", &self.up), ("down", &self.down)]
            .iter()
            .flat_map(|(way, d)| d.emulator_lost.iter().map(move |l| format!("{way}: {l}")))
            .collect();
        if !own.is_empty() {
            return Some(format!(
                "the emulator itself lost packets ({})",
                own.join(", ")
            ));
        }
        let error = &self.departure_error;
        // One departure in twenty may be late before the bulk of a measurement is touched.
        (error.over_budget * 20 > error.count).then(|| {
            format!(
                "{} of {} departures were more than {} late",
                error.over_budget,
                error.count,
                Micros(error.budget_ns)
            )
        })
    }
}

impl DirectionSummary {
    fn of(stats: &Stats, ingress: Side) -> Self {
        let counters = stats.link[ingress.index()];
        let missed = ("receive ring full", stats.missed[ingress.index()]);
        let emulator_lost = Loss::ALL
            .map(|cause| (cause.name(), stats.lost(ingress, cause)))
            .into_iter()
            .chain([missed])
            .filter(|(_, count)| *count > 0)
            .map(|(cause, count)| OwnLoss {
                cause: cause.to_owned(),
                count,
            })
            .collect();
        Self {
            packets: counters.packets,
            bytes: counters.bytes,
            delivered: stats.sent[ingress.index()],
            delivered_bytes: stats.sent_bytes[ingress.index()],
            lost: counters.lost,
            queue_full: counters.queue_full,
            held_at_end: held_at_end(stats, ingress),
            late_arrivals: counters.late,
            link_control: stats.control[ingress.index()],
            emulator_lost,
        }
    }

    fn loss_percent(&self) -> f64 {
        let dropped = self.lost + self.queue_full;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        let share = |n: u64| n as f64;
        100.0 * share(dropped) / share(self.packets.max(1))
    }
}

/// What was offered and neither left nor was dropped.
fn held_at_end(stats: &Stats, ingress: Side) -> u64 {
    let counters = stats.link[ingress.index()];
    let gone = stats.sent[ingress.index()]
        + stats.lost(ingress, Loss::Send)
        + counters.lost
        + counters.queue_full;
    counters.packets.saturating_sub(gone)
}

impl fmt::Display for OwnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.count, self.cause)
    }
}

/// Nanoseconds, to be read as microseconds.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "three digits are read")]
        let micros = self.0 as f64 / 1e3;
        let digits = if micros < 10.0 { 2 } else { 0 };
        write!(f, "{micros:.digits$} us")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silent = self.up.packets + self.down.packets == 0;
        if silent && self.invalid().is_none() && self.truth.is_none() {
            return f.write_str("nothing crossed the link");
        }
        writeln!(f, "what crossed the link")?;
        writeln!(f, "up   {}", self.up)?;
        writeln!(f, "down {}", self.down)?;
        let error = &self.departure_error;
        writeln!(
            f,
            "departures: {} packets, late by {} (median), {} (p99), {} (max); {} later than {}",
            error.count,
            Micros(error.p50_ns),
            Micros(error.p99_ns),
            Micros(error.max_ns),
            error.over_budget,
            Micros(error.budget_ns),
        )?;
        write!(
            f,
            "held: at most {} bytes of {} allowed, and receive rings of {} bytes",
            self.peak_held_bytes, self.held_limit_bytes, self.ring_bytes
        )?;
        if let Some(cause) = self.invalid() {
            write!(f, "\nINVALID: {cause}")?;
        }
        if let Some(error) = &self.send_error {
            write!(f, "\nfirst send error: {error}")?;
        }
        if let Some(truth) = &self.truth {
            write!(f, "\ntruth: {truth}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DirectionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} packets, {} bytes (L2 without FCS): {} delivered, {} lost, {} dropped by a full queue ({:.3} % in all)",
            self.packets,
            self.bytes,
            self.delivered,
            self.lost,
            self.queue_full,
            self.loss_percent(),
        )?;
        let asides = [
            (self.held_at_end, "still on their way"),
            (self.late_arrivals, "taken in late"),
        ];
        for (count, what) in asides.iter().filter(|(count, _)| *count > 0) {
            write!(f, "; {count} {what}")?;
        }
        for own in &self.emulator_lost {
            write!(f, "; emulator: {own}")?;
        }
        Ok(())
    }
}
