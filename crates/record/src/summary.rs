//! Counters of the emulator, in the form that is printed and kept in a record.

mod shares;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use model::{Counters, DropCause, HopCounters, Side, StageReport};
use serde::{Deserialize, Serialize};

pub use self::shares::ShareSummary;
use crate::crossing::CrossedFlow;
use crate::lateness::{self, Departed};
use crate::quantity::{counted, size};

/// The link's counters by direction, and data on how far the emulator can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// The direction from client to server, `IF_A` to `IF_B`.
    pub up: DirectionSummary,
    /// The direction from server to client, `IF_B` to `IF_A`.
    pub down: DirectionSummary,
    /// Packets that each stage lost or copied at random, for all stages that do so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareSummary>,
    /// Delays that each stage added, for all stages with a random delay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<DelaySummary>,
    /// Time at which each packet was handed to the kernel, minus its due time.
    pub departure_error: DepartureSummary,
    /// Stalls of the machine; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallSummary>,
    /// Frames that were lost because a receive ring was full that several links share. They may belong to any of those
    /// links, so the summaries of all of them include the count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings_full: Vec<OwnLoss>,
    /// Most bytes held at a time, including book-keeping, by all links that share the memory.
    pub peak_held_bytes: usize,
    /// Most bytes that may be held.
    pub held_limit_bytes: usize,
    /// Bytes of the receive rings, whose size is fixed; several links may share them.
    pub ring_bytes: usize,
    /// Median delay between the time at which a sleeping thread should wake up and the time at which it does, in
    /// nanoseconds, measured at start.
    pub wake_up_latency_ns: u64,
    /// Longest time before a departure during which the forwarder spins, in nanoseconds, as it had adapted by the end;
    /// 0 if it never spins.
    pub spin_ns: u64,
    /// Whether the forwarder ran before every ordinary thread (`SCHED_FIFO`, which needs CAP_SYS_NICE).
    pub real_time: bool,
    /// The first error of sending, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_error: Option<String>,
    /// The log of every packet, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_log: Option<PacketLogSummary>,
    /// The capture, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureSummary>,
    /// Events on the interfaces of `farwire emulate`, for those that had any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceSummary>,
    /// Reasons to doubt what other programs measured behind the link, each with advice, in the words that `farwire exec`
    /// prints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Events on an interface during emulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSummary {
    /// Name of the interface.
    pub name: String,
    /// Number of times that it lost its carrier without farwire's doing.
    pub carrier_losses: u64,
    /// Number of changes of its MTU.
    pub mtu_changes: u64,
    /// Number of times that it disappeared: it was unplugged, deleted, or moved to another namespace.
    pub gone: u64,
    /// Number of times that it reappeared and the emulation continued.
    pub back: u64,
}

/// Counters of one direction. Packets are the segments that the model saw; bytes are L2 without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSummary {
    /// Packets offered to the link.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that the egress interface sent.
    pub delivered: u64,
    /// Bytes of these packets.
    pub delivered_bytes: u64,
    /// Copies that the emulated network made of packets.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub copies: u64,
    /// Packets and copies that the emulated network dropped, by [`DropCause::name`]. A cause that did not occur may be
    /// absent.
    pub dropped: BTreeMap<String, u64>,
    /// Delivered packets with a congestion mark that they did not have on arrival.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub marked: u64,
    /// Delivered packets with bytes that the emulated network changed.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub edited: u64,
    /// ICMP messages that told a sender why its packet was dropped. They are counted nowhere else.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub replies: u64,
    /// Packets in flight when the emulator stopped: packets + copies = delivered + dropped + failed sends + packets lost
    /// by overload + this.
    pub held_at_end: u64,
    /// Delays of the delivered packets.
    pub delay: DelaySum,
    /// Counters of the packets of each rule, in order. Packets that match no rule are in none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSummary>,
    /// Packets and copies that each further hop of the link dropped, also of hops that were removed while it ran. The
    /// link's own conditions dropped the rest of `dropped`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<HopSummary>,
    /// Packets whose arrival was older than model time and which were treated as if they had arrived at model time.
    pub late_arrivals: u64,
    /// Delivered packets that left later than the budget allows.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub late_departures: u64,
    /// ARP, discovery and similar packets, which pass unimpaired and are not counted above.
    pub link_control: u64,
    /// Losses in the emulator itself, by cause: frames for which the receive ring had no room, and packets that were
    /// dropped for lack of memory, because a train could not be segmented, because they were too long, because sending
    /// failed, or because the emulator could not keep up (overload).
    pub emulator_lost: Vec<OwnLoss>,
}

/// Counters of the packets of one rule in one direction, as the model has them. A delivered packet is one that the model
/// let through, whether or not the egress interface accepted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSummary {
    /// Name of the rule.
    pub name: String,
    /// Packets offered to the link.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Copies that were made of packets.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub copies: u64,
    /// Packets and copies that were let through.
    pub delivered: u64,
    /// Bytes of these packets.
    pub delivered_bytes: u64,
    /// Packets and copies that were dropped, by [`DropCause::name`].
    pub dropped: BTreeMap<String, u64>,
    /// Delivered packets with a congestion mark that they did not have on arrival.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub marked: u64,
    /// Delivered packets with changed bytes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub edited: u64,
    /// Delays of the packets that were sent.
    pub delay: DelaySum,
}

/// Packets and copies that one hop dropped in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopSummary {
    /// Name of the hop.
    pub name: String,
    /// Their number by [`DropCause::name`], for the causes that occurred.
    pub dropped: BTreeMap<String, u64>,
}

/// The sum of packets' delays from arrival to due time, whatever the cause of the delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaySum {
    /// Number of packets that were sent.
    pub packets: u64,
    /// Sum of their delays in microseconds.
    pub sum_us: u64,
}

/// Delays of a stage with a random delay, as the model computed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaySummary {
    /// Name of the stage: "box.up.delay".
    pub stage: String,
    /// Packets and copies that the stage delayed.
    pub packets: u64,
    /// Mean of their delays in nanoseconds, including any delay added to keep packets in order.
    pub mean_ns: u64,
    /// Standard deviation of their delays in nanoseconds.
    pub deviation_ns: u64,
    /// Packets whose drawn delay was negative and was set to 0.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub clamped: u64,
}

impl InterfaceSummary {
    /// Returns whether there were no events.
    pub fn is_quiet(&self) -> bool {
        self.carrier_losses + self.mtu_changes + self.gone == 0
    }
}

/// Packets that the emulator itself lost for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnLoss {
    /// The cause in words.
    pub cause: String,
    /// Number of packets.
    pub count: u64,
}

/// Distribution of the departure error in nanoseconds: the time at which a packet left, minus its due time. The median
/// and the percentile are too great by less than 1 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepartureSummary {
    /// Packets that left.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// The part of the error before the calls that sent the packets. The rest is spent in the kernel, which carries the
    /// frame to the other end of a veth and may do that end's work before the call returns.
    pub hand_over: HandOverSummary,
    /// Packets that left later than the budget allows.
    pub over_budget: u64,
    /// The budget in nanoseconds.
    pub budget_ns: u64,
}

/// Distribution of the time between the due times of packets and the start of the calls that sent them, in nanoseconds.
/// The median and the percentile are too great by less than 1 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOverSummary {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// Intervals in which the forwarder did nothing but read the clock and the machine did not run it, because the
/// hypervisor or an interrupt took the processor. Stalls while it slept are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallSummary {
    /// Number of stalls, each longer than 30 us.
    pub count: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// Duration of the longest in nanoseconds.
    pub longest_ns: u64,
    /// Packets that were due during a stall. They are part of the departure error but not caused by the forwarder.
    pub departures: u64,
}

/// Counts of the packet log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketLogSummary {
    /// Lines in the file.
    pub lines: u64,
    /// Lines that could not be kept because the writer fell behind or could not write.
    pub not_kept: u64,
    /// The reason why the writer ended before the emulator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Counts of each flow, kept instead of a file on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<CrossedFlow>,
}

/// Counts of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureSummary {
    /// Packets written that arrived or left at A.
    pub a: u64,
    /// Packets written that arrived or left at B.
    pub b: u64,
    /// Packets that could not be kept, because captures had used up their share of the forwarder's time, or because the
    /// writer fell behind or had ended.
    pub not_kept: u64,
    /// The reason why the writer ended before the emulator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Path of the file, relative to the directory of the record that this is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl Summary {
    /// Returns the names of the rules that no packet matched in either direction.
    pub fn rules_without_hits(&self) -> Vec<&str> {
        let pairs = self.up.rules.iter().zip(&self.down.rules);
        let without = pairs.filter(|(up, down)| up.packets + down.packets == 0);
        without.map(|(up, _)| up.name.as_str()).collect()
    }

    /// Returns a message if the emulator itself lost packets, with advice if there is any.
    pub fn own_loss(&self) -> Option<String> {
        let ways = [("up: ", &self.up), ("down: ", &self.down)];
        let of_ways = ways
            .iter()
            .flat_map(|(way, of)| of.emulator_lost.iter().map(move |lost| (*way, lost)));
        let all: Vec<_> = of_ways
            .chain(self.rings_full.iter().map(|lost| ("", lost)))
            .collect();
        let own: Vec<String> = all
            .iter()
            .map(|(way, lost)| format!("{way}{lost}"))
            .collect();
        let mut help: Vec<&str> = all.iter().filter_map(|(_, lost)| lost.help()).collect();
        help.dedup();
        let help: String = help.iter().map(|help| format!("; {help}")).collect();
        (!own.is_empty()).then(|| {
            format!(
                "the emulator itself lost packets ({}){help}",
                own.join(", ")
            )
        })
    }

    /// Returns a message if the emulator itself has lost packets since `before`, an earlier summary of the same link, with
    /// advice if there is any.
    pub fn own_loss_since(&self, before: &Self) -> Option<String> {
        let direction = |now: &DirectionSummary, before: &DirectionSummary| DirectionSummary {
            emulator_lost: losses_since(&now.emulator_lost, &before.emulator_lost),
            ..DirectionSummary::default()
        };
        let since = Self {
            up: direction(&self.up, &before.up),
            down: direction(&self.down, &before.down),
            rings_full: losses_since(&self.rings_full, &before.rings_full),
            ..Self::default()
        };
        since.own_loss()
    }

    /// Returns the reason why the traffic of this link as a whole cannot be trusted, if there is one.
    pub fn invalid(&self) -> Option<String> {
        if let Some(lost) = self.own_loss() {
            return Some(lost);
        }
        let departed = |way: &DirectionSummary| Departed {
            packets: way.delivered,
            late: way.late_departures,
        };
        lateness::invalid_link(
            departed(&self.up),
            departed(&self.down),
            self.departure_error.budget_ns,
        )
    }
}

/// Returns the losses that have come since those of `before`.
fn losses_since(now: &[OwnLoss], before: &[OwnLoss]) -> Vec<OwnLoss> {
    let since = |lost: &OwnLoss| {
        let former = before.iter().find(|former| former.cause == lost.cause);
        let count = lost
            .count
            .saturating_sub(former.map_or(0, |former| former.count));
        (count > 0).then(|| OwnLoss {
            cause: lost.cause.clone(),
            count,
        })
    };
    now.iter().filter_map(since).collect()
}

impl OwnLoss {
    /// Returns advice that would have prevented the loss, if there is any.
    fn help(&self) -> Option<&'static str> {
        match self.cause.as_str() {
            "memory limit" => Some("increase --held-memory"),
            "overload" | "intake overload" => Some(
                "it could not keep up with its packets and dropped those that waited longer than --late-limit allows: \
                 give the link a rate (--rate), or use less traffic or a faster processor",
            ),
            cause if cause.starts_with("receive ring of") => Some(
                "it got no processor until its receive rings were full: give it its own core, or real-time priority (as root)",
            ),
            _ => None,
        }
    }
}

impl DirectionSummary {
    /// Returns the number of packets dropped by random loss.
    pub fn lost(&self) -> u64 {
        self.dropped_for(DropCause::Loss)
    }

    /// Returns the number of packets dropped by full queues.
    pub fn queue_full(&self) -> u64 {
        self.dropped_for(DropCause::QueueFull)
    }

    /// Returns the number of packets dropped for this cause.
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped.get(cause.name()).copied().unwrap_or(0)
    }

    /// Returns the number of packets that the emulated network dropped for any cause.
    pub fn dropped_all(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns the counts of dropped packets, by cause in words, and of packets with other effects. Random loss and
    /// full queues come first, even if they did not occur.
    pub fn in_words(&self) -> Vec<(String, u64)> {
        let usual = [DropCause::Loss, DropCause::QueueFull];
        let first = usual.map(|cause| (dropped_in_words(cause.name()), self.dropped_for(cause)));
        let is_other = |name: &str| usual.iter().all(|usual| usual.name() != name);
        let dropped = self.dropped.iter().filter(|(name, _)| is_other(name));
        let others = dropped.map(|(name, count)| (dropped_in_words(name), *count));
        let done = [
            ("duplicated", self.copies),
            ("marked", self.marked),
            ("corrupted", self.edited),
        ]
        .map(|(what, count)| (what.to_owned(), count));
        let occurred = others.chain(done).filter(|(_, count)| *count > 0);
        first.into_iter().chain(occurred).collect()
    }

    fn loss_percent(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        let share = |n: u64| n as f64;
        100.0 * share(self.dropped_all()) / share((self.packets + self.copies).max(1))
    }
}

impl DelaySummary {
    /// Returns the delays of all stages with a random delay that received packets.
    pub fn of<'s>(stages: impl Iterator<Item = StageReport<'s>>) -> Vec<Self> {
        let of = |stage: StageReport<'s>| {
            stage.delays.map(|delays| Self {
                stage: stage.name.to_owned(),
                packets: delays.packets,
                mean_ns: delays.mean.0,
                deviation_ns: delays.deviation.0,
                clamped: delays.clamped,
            })
        };
        stages.filter_map(of).collect()
    }
}

impl RuleSummary {
    /// Creates the counters of the rule with this name from the model's counters and the sum of its delays.
    pub fn new(name: &str, counters: &Counters, delay: DelaySum) -> Self {
        Self {
            name: name.to_owned(),
            packets: counters.packets,
            bytes: counters.bytes,
            copies: counters.copies,
            delivered: counters.delivered,
            delivered_bytes: counters.delivered_bytes,
            dropped: dropped_by_cause(counters),
            marked: counters.marked,
            edited: counters.edited,
            delay,
        }
    }
}

impl HopSummary {
    /// Creates the counters of a hop for packets from `ingress` from those of the model.
    pub fn new(hop: &HopCounters, ingress: Side) -> Self {
        let all = DropCause::ALL.map(|cause| (cause, hop.dropped(ingress, cause)));
        let occurred = all.into_iter().filter(|(_, count)| *count > 0);
        Self {
            name: hop.name().to_owned(),
            dropped: occurred
                .map(|(cause, count)| (cause.name().to_owned(), count))
                .collect(),
        }
    }
}

/// Returns the counts of dropped packets by cause: random loss and full queues always, and other causes if they
/// occurred.
pub fn dropped_by_cause(counters: &Counters) -> BTreeMap<String, u64> {
    let all = DropCause::ALL.map(|cause| (cause, counters.dropped(cause)));
    let is_there = |(cause, count): &(DropCause, u64)| {
        *count > 0 || matches!(cause, DropCause::Loss | DropCause::QueueFull)
    };
    let there = all.into_iter().filter(is_there);
    let named = there.map(|(cause, count)| (cause.name().to_owned(), count));
    named.collect()
}

fn dropped_in_words(cause: &str) -> String {
    match cause {
        "loss" => "lost".to_owned(),
        "queue_full" => "dropped by a full queue".to_owned(),
        "aqm" => "dropped by AQM".to_owned(),
        "policed" => "dropped by the policer".to_owned(),
        "too_big" => "dropped as too big".to_owned(),
        other => format!("dropped ({other})"),
    }
}

impl fmt::Display for OwnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.count, self.cause)
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are read")]
fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Nanoseconds, written in microseconds, or in milliseconds and seconds from 10 of them on.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "three digits are read")]
        let micros = self.0 as f64 / 1e3;
        match micros {
            ..10.0 => write!(f, "{micros:.2} us"),
            ..10e3 => write!(f, "{micros:.0} us"),
            ..10e6 => write!(f, "{:.1} ms", micros / 1e3),
            _ => write!(f, "{:.1} s", micros / 1e6),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silent = self.up.packets + self.down.packets == 0;
        let is_told =
            self.packet_log.is_some() || self.capture.is_some() || !self.interfaces.is_empty();
        if silent && self.invalid().is_none() && !is_told {
            return f.write_str("link counters: no packet crossed the link");
        }
        writeln!(f, "link counters")?;
        writeln!(f, "up   {}", self.up)?;
        writeln!(f, "down {}", self.down)?;
        for share in &self.shares {
            writeln!(f, "{share}")?;
        }
        for delay in &self.delays {
            writeln!(f, "{delay}")?;
        }
        let error = &self.departure_error;
        writeln!(
            f,
            "departure error: median {}, p99 {}, max {}; {} of {} left more than {} ms late",
            Micros(error.p50_ns),
            Micros(error.p99_ns),
            Micros(error.max_ns),
            error.over_budget,
            counted(error.count, "packet"),
            milliseconds(error.budget_ns),
        )?;
        if error.count > 0 {
            let before = &error.hand_over;
            writeln!(
                f,
                "before the send call: median {}, p99 {}, max {}",
                Micros(before.p50_ns),
                Micros(before.p99_ns),
                Micros(before.max_ns),
            )?;
        }
        if let Some(stalls) = &self.stalls {
            writeln!(
                f,
                "host stalls: {}, longest {}, affecting {}",
                stalls.count,
                Micros(stalls.longest_ns),
                counted(stalls.departures, "packet"),
            )?;
        }
        write!(
            f,
            "memory: frames {} at most (limit {}), receive rings {}",
            size(self.peak_held_bytes as u64),
            size(self.held_limit_bytes as u64),
            size(self.ring_bytes as u64)
        )?;
        if let Some(cause) = self.invalid() {
            write!(f, "\nINVALID: {cause}")?;
        }
        if let Some(error) = &self.send_error {
            write!(f, "\nfirst send error: {error}")?;
        }
        if let Some(log) = &self.packet_log {
            write!(f, "\npacket log: {log}")?;
        }
        if let Some(capture) = &self.capture {
            write!(f, "\ncapture: {capture}")?;
        }
        for interface in &self.interfaces {
            write!(f, "\n{interface}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DirectionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} (L2 without FCS): {} delivered",
            counted(self.packets, "packet"),
            counted(self.bytes, "byte"),
            self.delivered,
        )?;
        for (what, count) in self.in_words() {
            write!(f, ", {count} {what}")?;
        }
        write!(f, " ({:.3} % dropped in all)", self.loss_percent())?;
        let asides = [
            (self.held_at_end, "still in flight"),
            (self.late_arrivals, "received late"),
        ];
        for (count, what) in asides.iter().filter(|(count, _)| *count > 0) {
            write!(f, "; {count} {what}")?;
        }
        for own in &self.emulator_lost {
            write!(f, "; lost by the emulator: {own}")?;
        }
        for rule in &self.rules {
            let dropped: u64 = rule.dropped.values().sum();
            let (name, delivered) = (&rule.name, rule.delivered);
            write!(
                f,
                "; rule {name}: {}, {delivered} delivered, {dropped} dropped",
                counted(rule.packets, "packet")
            )?;
        }
        if !self.rules.is_empty() {
            let matched: u64 = self.rules.iter().map(|rule| rule.packets).sum();
            let rest = self.packets.saturating_sub(matched);
            write!(f, "; no rule: {}", counted(rest, "packet"))?;
        }
        for hop in &self.hops {
            let dropped: u64 = hop.dropped.values().sum();
            write!(f, "; hop {}: {dropped} dropped", hop.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for DelaySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: delay mean {:.3} ms, standard deviation {:.3} ms",
            self.stage,
            milliseconds(self.mean_ns),
            milliseconds(self.deviation_ns)
        )?;
        match self.clamped {
            0 => Ok(()),
            clamped => write!(
                f,
                "; {clamped} of {} delays would have been negative and were set to 0",
                self.packets
            ),
        }
    }
}

impl fmt::Display for InterfaceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: carrier lost {}, MTU changed {}, gone {} and back {}",
            self.name,
            times(self.carrier_losses),
            times(self.mtu_changes),
            times(self.gone),
            times(self.back)
        )
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

impl fmt::Display for CaptureSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = [self.a, self.b].map(|of| counted(of, "packet"));
        write!(f, "{a} at side a, {b} at side b")?;
        let why =
            "the captures used up their share of the emulator's time, or the writer was too slow";
        write_missing(f, self.not_kept, self.error.as_deref().unwrap_or(why))
    }
}

impl fmt::Display for PacketLogSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.lines, "line"))?;
        let why = "the writer was too slow";
        write_missing(f, self.not_kept, self.error.as_deref().unwrap_or(why))
    }
}

/// Writes how many packets a writer beside the packet path did not keep, and why.
fn write_missing(f: &mut fmt::Formatter<'_>, not_kept: u64, why: &str) -> fmt::Result {
    if not_kept > 0 {
        write!(f, "; {not_kept} not written: {why}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_that_the_emulator_has_lost_since_an_earlier_summary_count() {
        let lost = |cause: &str, count| OwnLoss {
            cause: cause.to_owned(),
            count,
        };
        let summary = |up: Vec<OwnLoss>| Summary {
            up: DirectionSummary {
                emulator_lost: up,
                ..DirectionSummary::default()
            },
            ..Summary::default()
        };
        let before = summary(vec![lost("overload", 3)]);
        assert_eq!(before.own_loss_since(&before), None);
        let now = summary(vec![lost("memory limit", 2), lost("overload", 10)]);
        let words = now.own_loss_since(&before).unwrap();
        let start = "the emulator itself lost packets (up: 2 x memory limit, up: 7 x overload)";
        assert!(words.starts_with(start), "{words}");
    }
}
