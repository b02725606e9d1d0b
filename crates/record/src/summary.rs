//! What the emulator did, in the form that is printed and kept in a record.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The link's counters by direction, and how far the emulator can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// From client to server, `IF_A` to `IF_B`.
    pub up: DirectionSummary,
    /// From server to client, `IF_B` to `IF_A`.
    pub down: DirectionSummary,
    /// Time of handing each packet to the kernel, minus its due time.
    pub departure_error: DepartureSummary,
    /// The most bytes held at a time, book-keeping included.
    pub peak_held_bytes: usize,
    /// The most that may be held.
    pub held_limit_bytes: usize,
    /// The receive rings of both ports, of a fixed size.
    pub ring_bytes: usize,
    /// How late a sleeping thread of this machine wakes up, median, measured at start.
    pub wake_up_latency_ns: u64,
    /// How long before each departure the forwarder spins; 0 if it never does.
    pub spin_ns: u64,
    /// Whether the forwarder ran before every ordinary thread (`SCHED_FIFO`, which needs CAP_SYS_NICE).
    pub real_time: bool,
    /// The first error of sending, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_error: Option<String>,
    /// What was kept of the log of every packet, where that was asked for.
    #[serde(default, alias = "truth", skip_serializing_if = "Option::is_none")]
    pub packet_log: Option<PacketLogSummary>,
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
    /// Dropped by random loss: the emulated network's doing.
    pub lost: u64,
    /// Dropped by a full queue: the emulated network's doing.
    pub queue_full: u64,
    /// On their way when the emulator stopped: packets = delivered + lost + queue full + failed sends + these.
    pub held_at_end: u64,
    /// Arrivals older than model time, taken as if they came at it.
    pub late_arrivals: u64,
    /// ARP, discovery and the like: passed unimpaired, not counted above.
    pub link_control: u64,
    /// Lost by the emulator itself, by cause: frames for which the receive ring had no room, and packets
    /// dropped for want of memory, because a train could not be cut, as too long, or by a failed send.
    pub emulator_lost: Vec<OwnLoss>,
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
    /// Packets that left later than the budget.
    pub over_budget: u64,
    /// The budget.
    pub budget_ns: u64,
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
}

impl Summary {
    /// Why what was measured through this link cannot be trusted, if so.
    pub fn invalid(&self) -> Option<String> {
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
    fn loss_percent(&self) -> f64 {
        let dropped = self.lost + self.queue_full;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        let share = |n: u64| n as f64;
        100.0 * share(dropped) / share(self.packets.max(1))
    }
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
        if silent && self.invalid().is_none() && self.packet_log.is_none() {
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
        if let Some(log) = &self.packet_log {
            write!(f, "\npacket log: {log}")?;
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

impl fmt::Display for PacketLogSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines", self.lines)?;
        if self.not_kept > 0 {
            write!(f, "; {} could not be kept: ", self.not_kept)?;
            f.write_str(self.error.as_deref().unwrap_or("the writer fell behind"))?;
        }
        Ok(())
    }
}
