//! What the emulator did, in the form that is printed and kept in a record.

mod shares;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use model::{Counters, DropCause, StageReport};
use serde::{Deserialize, Serialize};

pub use self::shares::ShareSummary;
use crate::crossing::CrossedFlow;
use crate::quantity::{counted, size};

/// The link's counters by direction, and how far the emulator can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// From client to server, `IF_A` to `IF_B`.
    pub up: DirectionSummary,
    /// From server to client, `IF_B` to `IF_A`.
    pub down: DirectionSummary,
    /// What each stage came to that loses or copies at random.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareSummary>,
    /// What each delay came to that varies at random.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<DelaySummary>,
    /// Time of handing each packet to the kernel, minus its due time.
    pub departure_error: DepartureSummary,
    /// The machine's own stand-stills, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallSummary>,
    /// Frames that found a receive ring full which several links share: of any of them, so all their summaries say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings_full: Vec<OwnLoss>,
    /// The most bytes held at a time, book-keeping included, by all links that share the memory.
    pub peak_held_bytes: usize,
    /// The most that may be held.
    pub held_limit_bytes: usize,
    /// The receive rings, of a fixed size; several links may share them.
    pub ring_bytes: usize,
    /// How late a sleeping thread of this machine wakes up, median, measured at start.
    pub wake_up_latency_ns: u64,
    /// How long before a departure the forwarder spins at most, as it learned by the end; 0 if it never does.
    pub spin_ns: u64,
    /// Whether the forwarder ran before every ordinary thread (`SCHED_FIFO`, which needs CAP_SYS_NICE).
    pub real_time: bool,
    /// The first error of sending, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_error: Option<String>,
    /// What was kept of the log of every packet, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_log: Option<PacketLogSummary>,
    /// What was kept of a capture, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureSummary>,
    /// What happened to the interfaces of `farwire emulate` that anything happened to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceSummary>,
}

/// What happened to an interface while a box stood on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSummary {
    /// Its name.
    pub name: String,
    /// How often it lost its carrier by itself.
    pub carrier_losses: u64,
    /// How often its MTU changed.
    pub mtu_changes: u64,
    /// How often it went away: unplugged, deleted, or moved to another namespace.
    pub gone: u64,
    /// How often it came back, and the box went on with it.
    pub back: u64,
}

/// One direction. Packets are the segments that the model saw, bytes are L2 without FCS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSummary {
    /// Offered to the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sent on their way by the egress interface.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Copies that the emulated network made of them.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub copies: u64,
    /// Packets and copies that the emulated network dropped, by [`DropCause::name`]; a cause that never was may be absent.
    pub dropped: BTreeMap<String, u64>,
    /// Of those delivered, with a congestion mark that they did not come with.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub marked: u64,
    /// Of those delivered, with bytes that the emulated network changed.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub edited: u64,
    /// Senders who were told by ICMP why a packet of theirs was dropped; packets of nobody's, counted nowhere else.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub replies: u64,
    /// On their way when the emulator stopped: packets + copies = delivered + dropped + failed sends + these.
    pub held_at_end: u64,
    /// How long those delivered were delayed.
    pub delay: DelaySum,
    /// What each class of packets met, in their order; the rest was of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassSummary>,
    /// Arrivals older than model time, taken as if they came at it.
    pub late_arrivals: u64,
    /// ARP, discovery and the like: passed unimpaired, not counted above.
    pub link_control: u64,
    /// Lost by the emulator itself, by cause: frames for which the receive ring had no room, and packets
    /// dropped for want of memory, because a train could not be cut, as too long, or by a failed send.
    pub emulator_lost: Vec<OwnLoss>,
}

/// One class of a direction's packets, as the model counted them: delivered is what it let through, whether or not the
/// egress interface then took it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSummary {
    /// The class's name.
    pub name: String,
    /// Offered to the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Copies made of them.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub copies: u64,
    /// Packets and copies that were let through.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets and copies that were dropped, by [`DropCause::name`].
    pub dropped: BTreeMap<String, u64>,
    /// Of those delivered, with a congestion mark that they did not come with.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub marked: u64,
    /// Of those delivered, with changed bytes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub edited: u64,
    /// How long those that were sent were delayed.
    pub delay: DelaySum,
}

/// How long packets were delayed, added up: from their arrival to when they were due, whatever delayed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaySum {
    /// Those that were sent.
    pub packets: u64,
    /// All their delays together, in microseconds.
    pub sum_us: u64,
}

/// What a delay that varies at random came to, as the model gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaySummary {
    /// The stage's name: "box.up.delay".
    pub stage: String,
    /// Packets and copies that it gave a delay.
    pub packets: u64,
    /// The mean of their delays, what order added included.
    pub mean_ns: u64,
    /// Their standard deviation.
    pub deviation_ns: u64,
    /// Those whose own delay would have been below 0, and was 0.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub clamped: u64,
}

impl InterfaceSummary {
    /// Whether nothing happened to it.
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
    /// How many.
    pub count: u64,
}

/// The error of departures in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepartureSummary {
    /// Packets that left.
    pub count: u64,
    /// Half of them left no later than this after their due time.
    pub p50_ns: u64,
    /// 99 of 100 did.
    pub p99_ns: u64,
    /// All of them did.
    pub max_ns: u64,
    /// The part of it before the calls that sent the packets. What follows is the kernel's: it carries the frame to the
    /// other end of a veth, and may have that end's work done, before the call returns.
    pub hand_over: HandOverSummary,
    /// Packets that left later than the budget.
    pub over_budget: u64,
    /// The budget.
    pub budget_ns: u64,
}

/// How long after the due times of packets the calls began that sent them, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOverSummary {
    /// Half of them began no later than this.
    pub p50_ns: u64,
    /// 99 of 100 did.
    pub p99_ns: u64,
    /// All of them did.
    pub max_ns: u64,
}

/// Times at which the forwarder did nothing but read the clock, and the machine did not run it: its host took the
/// processor, or an interrupt did. What happened while it slept is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallSummary {
    /// How many, of more than 30 us each.
    pub count: u64,
    /// All together.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Packets that were due in one: they are in the departure error, and are not the forwarder's.
    pub departures: u64,
}

/// What was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketLogSummary {
    /// Lines in the file.
    pub lines: u64,
    /// Lines that could not be kept: the writer fell behind, or could not write.
    pub not_kept: u64,
    /// Why the writer ended before the emulator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What each flow added up to, in the place of a file, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<CrossedFlow>,
}

/// What a capture kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureSummary {
    /// Packets written of those that came in or left at A.
    pub a: u64,
    /// Packets written of those that came in or left at B.
    pub b: u64,
    /// Packets that could not be kept: captures had taken their share of the forwarder's time, or the writer fell behind or had ended.
    pub not_kept: u64,
    /// Why the writer ended before the emulator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where it is, from the folder of the record that this is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl Summary {
    /// That the emulator itself lost packets, if so, and what would help.
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

    /// Why what crossed this link, taken together, cannot be trusted, if so.
    pub fn invalid(&self) -> Option<String> {
        if let Some(lost) = self.own_loss() {
            return Some(lost);
        }
        let error = &self.departure_error;
        // One departure in twenty may be late before the bulk of a measurement is touched.
        (error.over_budget * 20 > error.count).then(|| {
            format!(
                "{} of {} left more than {} ms late",
                error.over_budget,
                counted(error.count, "packet"),
                milliseconds(error.budget_ns)
            )
        })
    }
}

impl OwnLoss {
    /// What would have helped, where that is known.
    fn help(&self) -> Option<&'static str> {
        match self.cause.as_str() {
            "memory limit" => Some("increase --held-memory"),
            cause if cause.starts_with("receive ring of") => Some(
                "it did not run for longer than its receive rings last: give it its own core, or real-time priority (as root)",
            ),
            _ => None,
        }
    }
}

impl DirectionSummary {
    /// Dropped by random loss.
    pub fn lost(&self) -> u64 {
        self.dropped_for(DropCause::Loss)
    }

    /// Dropped by a full queue.
    pub fn queue_full(&self) -> u64 {
        self.dropped_for(DropCause::QueueFull)
    }

    /// Dropped for this cause.
    pub fn dropped_for(&self, cause: DropCause) -> u64 {
        self.dropped.get(cause.name()).copied().unwrap_or(0)
    }

    /// Dropped by the emulated network for any cause.
    pub fn dropped_all(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// What was dropped, by cause in words, and what was done otherwise; random loss and full queues come first, and are
    /// there though they never were.
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
        ];
        let done = done.map(|(what, count)| (what.to_owned(), count));
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
    /// What the model says of the stages whose delays vary at random and that packets came to.
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

impl ClassSummary {
    /// What the model counted of the class of this name, and how long its packets were delayed.
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

/// What was dropped, by cause: random loss and full queues always, others where they occurred.
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
            "memory: {} held at most (limit {}), receive rings {}",
            size(self.peak_held_bytes),
            size(self.held_limit_bytes),
            size(self.ring_bytes)
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
        for class in &self.classes {
            let dropped: u64 = class.dropped.values().sum();
            let (name, delivered) = (&class.name, class.delivered);
            write!(
                f,
                "; class {name}: {}, {delivered} delivered, {dropped} dropped",
                counted(class.packets, "packet")
            )?;
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
                "; {clamped} of {} would have been negative and are 0",
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
        let why = "captures reached their share of the emulator's time, or the writer was too slow";
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

/// What a writer beside the packet path did not keep, and why.
fn write_missing(f: &mut fmt::Formatter<'_>, not_kept: u64, why: &str) -> fmt::Result {
    if not_kept > 0 {
        write!(f, "; {not_kept} not written: {why}")?;
    }
    Ok(())
}
