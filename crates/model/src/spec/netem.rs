//! Linux's netem as one stage, in tc's own words (tc-netem(8); `net/sched/sch_netem.c`).

use crate::spec::{FourState, GilbertElliott};
use crate::time::Nanos;
use crate::units::{Bytes, Probability};

/// What one netem does, with its defaults.
///
/// A packet meets the parts in the order of the kernel's `netem_enqueue`: duplication, loss (or a mark), corruption, the limit,
/// then either it leaves at once (reordering) or it is delayed, behind the packets before it where there is a rate, and
/// perhaps until a slot comes. Correlations and shares are taken to the kernel's 32 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Netem {
    /// Packets that it may hold, those in flight through the delay among them; what comes then is dropped.
    pub limit: u32,
    /// The delay.
    pub delay: Nanos,
    /// How far the delay varies: half the width where there is no distribution, else what 8192 in its table stands for; above
    /// 2^31 - 1 ns it is that.
    pub jitter: Nanos,
    /// How much a delay's draw repeats the one before. The remainder that the kernel takes of a draw keeps its low bits, so
    /// that this does nothing where twice the jitter, or the length of the table, is far below 2^32.
    pub delay_correlation: Option<Probability>,
    /// The law of the jitter; uniform when absent.
    pub distribution: Option<NetemDistribution>,
    /// Which packets are lost.
    pub loss: NetemLoss,
    /// Whether what would be lost is marked instead, where it allows that.
    pub ecn: bool,
    /// Which packets have one bit flipped.
    pub corrupt: Option<NetemShare>,
    /// Which packets are followed by a copy, which is lost, corrupted and delayed by itself, and is not copied again.
    pub duplicate: Option<NetemShare>,
    /// Which packets pass without any delay.
    pub reorder: Option<NetemShare>,
    /// Only every so many-th packet may pass without delay; 0 where nothing is said, which is 1.
    pub gap: u32,
    /// A bottleneck, as part of the delay.
    pub rate: Option<NetemRate>,
    /// When packets leave in groups.
    pub slot: Option<NetemSlot>,
    /// Makes its draws others than those of the link's seed alone.
    pub seed: Option<u64>,
}

/// A share of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetemShare {
    /// How many, if there is no correlation.
    pub share: Probability,
    /// How much each draw repeats the one before: x = (1 - c) u + c x'. It narrows what is drawn, so it changes how many hit.
    pub correlation: Option<Probability>,
}

/// Which packets are lost. Marks are netem's own to say: those of the chains say nothing here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum NetemLoss {
    /// None.
    #[default]
    Nothing,
    /// A share.
    Random(NetemShare),
    /// By a chain of four states.
    State(FourState),
    /// By a chain of two states.
    Gemodel(GilbertElliott),
}

/// A distribution that iproute2 has a table of: 4,096 quantiles, scaled by 8192.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetemDistribution {
    /// Normal; the jitter is its standard deviation.
    Normal,
    /// 4/3 (v - 3/2) for a Pareto law v with shape 3, from 1 on, cut at 4 jitters: 0.82 jitters is its standard deviation.
    Pareto,
    /// A quarter of the first and three quarters of the second.
    ParetoNormal,
}

/// A bottleneck without a queue of its own: a packet leaves as if it followed the last one that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetemRate {
    /// Bytes a second, as tc rounds rates down.
    pub bytes_per_s: u64,
    /// What each packet counts for beside its L2 bytes, or is taken from them.
    pub packet_overhead: i32,
    /// The bytes that a packet is rounded up to a multiple of; 0 for none.
    pub cell_size: u32,
    /// What each of these counts for besides.
    pub cell_overhead: i32,
}

/// When packets leave in groups: what is due waits for the next slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetemSlot {
    /// How long a slot comes after the one before is used up, or was found over.
    pub delay: NetemSlotDelay,
    /// Packets that leave in one; 0 for no limit.
    pub packets: u32,
    /// L2 bytes that leave in one, the packet that exceeds them included; 0 for no limit.
    pub bytes: u32,
}

/// The law of the time between slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NetemSlotDelay {
    /// Every time from the first to the second is equally likely.
    Uniform(Nanos, Nanos),
    /// A table's, about the first, with the second as its jitter.
    Table(NetemDistribution, Nanos, Nanos),
}

impl Netem {
    /// What netem does without an option: 1,000 packets fit, and nothing happens to them.
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

    /// How much duplication's draws repeat each other: tc tells the kernel only where another correlation is stated too.
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
    /// What a packet of so many L2 bytes counts for. What the overheads leave nothing of counts for nothing; the kernel would
    /// take it for 2^64 bytes less what is missing.
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

    /// How long it takes (`packet_time_ns`).
    #[must_use]
    pub fn time_for(&self, len: Bytes) -> Nanos {
        let bytes = self.bytes_counted(len).0;
        // Up to 18 GB this is exact.
        Nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_s.max(1))
    }
}
