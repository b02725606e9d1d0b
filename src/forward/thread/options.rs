//! The settings of a forwarder.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::Nanos;
use netio::{CpuUse, RingSlots};
use record::lateness::LateBudget;

use crate::forward::capture::Capture;
use crate::forward::overload::LateLimit;
use crate::forward::packet_log::PacketLog;

/// The slots of the receive rings of a set of ports, which take 32 and 64 MiB. They hold the frames
/// that arrive while all cores are busy elsewhere, for 50 ms at 300,000 packets per second or 30 ms
/// at 16 Gb/s in trains.
pub(crate) const RING_SLOTS: RingSlots = RingSlots {
    small: 16 << 10,
    large: 960,
};

/// The default limit of bytes of frames held.
pub(crate) const HELD_MEMORY: usize = 1 << 30;

/// The settings of a forwarder.
#[derive(Debug)]
pub(crate) struct ForwarderOptions {
    /// Says whether the forwarder may spin.
    pub(crate) cpu: CpuUse,
    /// The time after the due time beyond which a departure is late.
    pub(crate) late_budget: LateBudget,
    /// The lateness at which packets are dropped if the forwarder cannot keep up.
    pub(crate) late_limit: LateLimit,
    /// The limit of bytes of frames held.
    pub(crate) memory: usize,
    /// The bytes that the conditions of each link need of this, in the order of the links, or none.
    pub(crate) needs: Vec<usize>,
    /// The number of this forwarder among those of the process.
    pub(crate) number: usize,
    /// The number of forwarders of the process.
    pub(crate) forwarders: usize,
    /// The processors on which the forwarders run, each on the next one; without any, on all.
    pub(crate) cpus: Vec<usize>,
    /// The instant at which the links' time begins, the same for all forwarders whose links belong
    /// together. Without one, it begins when the forwarder is started.
    pub(crate) start: Option<Nanos>,
    /// The packet logs of the first links, in the order of the links: one per link, fewer, or none.
    pub(crate) packet_logs: Vec<PacketLog>,
    /// The captures in the order of the links, one per link, or none.
    pub(crate) captures: Vec<Capture>,
    /// A flag that is set when the forwarder dies and nothing passes any more.
    pub(crate) died: Arc<AtomicBool>,
}

impl Default for ForwarderOptions {
    fn default() -> Self {
        Self {
            cpu: CpuUse::Spin,
            late_budget: LateBudget::DEFAULT,
            late_limit: LateLimit::DEFAULT,
            memory: HELD_MEMORY,
            needs: Vec::new(),
            number: 0,
            forwarders: 1,
            cpus: Vec::new(),
            start: None,
            packet_logs: Vec::new(),
            captures: Vec::new(),
            died: Arc::default(),
        }
    }
}

impl From<CpuUse> for ForwarderOptions {
    fn from(cpu: CpuUse) -> Self {
        Self {
            cpu,
            ..Self::default()
        }
    }
}

impl ForwarderOptions {
    /// Divides these options among forwarders with these links each. Each forwarder gets the packet
    /// logs and captures of its links, the memory that the conditions of its links need, and an equal
    /// part of the rest.
    pub(in crate::forward) fn divide(self, links: &[Range<usize>]) -> Vec<Self> {
        let Self {
            cpu,
            late_budget,
            late_limit,
            memory,
            needs,
            number: _,
            forwarders: _,
            cpus,
            start,
            packet_logs,
            captures,
            died,
        } = self;
        let need = |of: &[usize]| {
            of.iter()
                .fold(0_usize, |sum, need| sum.saturating_add(*need))
        };
        let forwarders = links.len();
        let rest = memory.saturating_sub(need(&needs)) / forwarders.max(1);
        let (mut packet_logs, mut captures) = (packet_logs.into_iter(), captures.into_iter());
        let part = |(number, links): (usize, &Range<usize>)| {
            let needs = needs.get(links.clone()).unwrap_or_default().to_vec();
            Self {
                cpu,
                late_budget,
                late_limit,
                memory: need(&needs) + rest,
                needs,
                number,
                forwarders,
                cpus: cpus.clone(),
                start,
                packet_logs: packet_logs.by_ref().take(links.len()).collect(),
                captures: captures.by_ref().take(links.len()).collect(),
                died: Arc::clone(&died),
            }
        };
        links.iter().enumerate().map(part).collect()
    }
}
