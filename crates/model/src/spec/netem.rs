//! Linux's netem as one stage, with tc's names (tc-netem(8); `net/sched/sch_netem.c`).

use crate::spec::{FourState, GilbertElliott};
use crate::time::Nanos;
use crate::units::{Bytes, Probability};

/// The options of one netem, with its defaults.
///
/// A packet meets the parts in the order of the kernel's `netem_enqueue`: duplication, loss (or a mark), corruption,
/// and the limit. Then it either leaves immediately (reordering) or is delayed: behind the packets before it if there
/// is a rate, and until a slot comes if there are slots. Correlations and shares have the kernel's 32 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Netem {
    /// The number of packets that it may hold, including those in flight through the delay; a packet beyond it is
    /// dropped.
    pub limit: u32,
    /// The delay.
    pub delay: Nanos,
    /// The variation of the delay: half the width if there is no distribution, otherwise the scale of its table (an
    /// entry of 8192). More than 2^31 - 1 ns counts as 2^31 - 1 ns.
    pub jitter: Nanos,
    /// The correlation of a delay's draw with the previous one. The remainder that the kernel takes of a draw keeps its
    /// low bits, so the correlation has no effect if twice the jitter, or the length of the table, is far below 2^32.
    pub delay_correlation: Option<Probability>,
    /// The law of the jitter; `None` is uniform.
    pub distribution: Option<NetemDistribution>,
    /// The law of loss.
    pub loss: NetemLoss,
    /// Whether a packet is marked instead of lost, if its sender understands marks.
    pub ecn: bool,
    /// The share of packets in which one bit is flipped.
    pub corrupt: Option<NetemShare>,
    /// The share of packets that are followed by a copy. The copy is lost, corrupted and delayed independently, and is
    /// not copied again.
    pub duplicate: Option<NetemShare>,
    /// The share of packets that pass without any delay.
    pub reorder: Option<NetemShare>,
    /// The distance in packets between those that may pass without delay; 0 means not stated and counts as 1.
    pub gap: u32,
    /// A bottleneck, as part of the delay.
    pub rate: Option<NetemRate>,
    /// The slots, if packets leave in groups.
    pub slot: Option<NetemSlot>,
    /// A seed that makes its draws differ from those of the link's seed alone.
    pub seed: Option<u64>,
}

/// A share of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetemShare {
    /// The share that is hit without a correlation.
    pub share: Probability,
    /// The correlation c of each draw with the previous one: x = (1 - c) u + c x'. It narrows the distribution of
    /// draws, so it changes the share that is hit.
    pub correlation: Option<Probability>,
}

/// The law of loss. The chains' own settings for marks have no effect, because [`Netem::ecn`] decides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum NetemLoss {
    /// No loss.
    #[default]
    Nothing,
    /// Random loss of a share.
    Random(NetemShare),
    /// Loss by a chain of four states.
    State(FourState),
    /// Loss by a chain of two states.
    Gemodel(GilbertElliott),
}

/// A distribution for which iproute2 has a table: 4,096 quantiles, scaled by 8192.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetemDistribution {
    /// Normal; the jitter is its standard deviation.
    Normal,
    /// 4/3 (v - 3/2) jitters for a Pareto law v of shape 3, from 1 on, limited to 4 jitters. The standard deviation is
    /// 0.82 jitters.
    Pareto,
    /// A quarter of the normal law plus three quarters of the Pareto law.
    ParetoNormal,
}

/// A bottleneck without a separate queue: a packet leaves as if it followed the last one that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetemRate {
    /// Bytes per second; tc rounds rates down to them.
    pub bytes_per_s: u64,
    /// The bytes that each packet counts for in addition to its L2 bytes; may be negative.
    pub packet_overhead: i32,
    /// The cell size in bytes: a packet is rounded up to whole cells; 0 for none.
    pub cell_size: u32,
    /// The bytes that each cell counts for in addition to its size; may be negative.
    pub cell_overhead: i32,
}

/// Slots in which packets leave in groups: a packet that is due waits for the next slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetemSlot {
    /// The time from when a slot is used up, or found to be over, to the next slot.
    pub delay: NetemSlotDelay,
    /// The number of packets that leave in one slot; 0 is unlimited.
    pub packets: u32,
    /// The L2 bytes that leave in one slot, including the packet that exceeds them; 0 is unlimited.
    pub bytes: u32,
}

/// The law of the time between slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NetemSlotDelay {
    /// Every time from the first to the second is equally likely.
    Uniform(Nanos, Nanos),
    /// The law of a table, with the first time as the mean and the second as the jitter.
    Table(NetemDistribution, Nanos, Nanos),
}

impl Netem {
    /// netem without options: 1,000 packets fit, and nothing happens to them.
    pub const PLAIN: Self = Self {
        limit: 1_000,
        delay: Nanos::ZERO,
        jitter: Nanos::ZERO,
        delay_correlation: None,
        distribution: None,
        loss: NetemLoss::Nothing,
        ecn: false,
        corrupt: None,
        duplicate: None,
        reorder: None,
        gap: 0,
        rate: None,
        slot: None,
        seed: None,
    };

    /// Returns the correlation of duplication's draws: tc passes it to the kernel only if another correlation is
    /// stated, too.
    #[must_use]
    pub fn duplicate_correlation(&self) -> Option<Probability> {
        let of = |share: Option<NetemShare>| share.and_then(|share| share.correlation);
        let loss = match self.loss {
            NetemLoss::Random(share) => share.correlation,
            _ => None,
        };
        let others = [
            self.delay_correlation,
            loss,
            of(self.reorder),
            of(self.corrupt),
        ];
        of(self.duplicate).filter(|_| others.iter().any(Option::is_some))
    }
}

impl Default for Netem {
    fn default() -> Self {
        Self::PLAIN
    }
}

impl NetemRate {
    /// Returns the number of bytes that a packet of `len` L2 bytes counts for. If the overheads would make it negative,
    /// it is 0; the kernel would take 2^64 bytes less the missing ones.
    #[must_use]
    pub fn bytes_counted(&self, len: Bytes) -> Bytes {
        let bytes = len.0.saturating_add_signed(i64::from(self.packet_overhead));
        Bytes(match u64::from(self.cell_size) {
            0 => bytes,
            size => {
                let cell = size.saturating_add_signed(i64::from(self.cell_overhead));
                bytes.div_ceil(size).saturating_mul(cell)
            }
        })
    }

    /// Returns the time that a packet of `len` L2 bytes takes (`packet_time_ns`).
    #[must_use]
    pub fn time_for(&self, len: Bytes) -> Nanos {
        let bytes = self.bytes_counted(len).0;
        // This is exact up to 18 GB.
        Nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_s.max(1))
    }
}
