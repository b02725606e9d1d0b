//! The outcomes of packets in model time.

use crate::error::Error;
use model::{
    Behaviour, Bytes, Effect, Link, LinkConfig, LossLaw, Nanos, Outcome, Packet, PacketId, Side,
};
use serde::Serialize;

use super::ms;
use crate::Direction;

/// The number of packets that are passed, if that costs little.
const PACKETS: u64 = 10_000;
/// The least number of packets.
const LEAST_PACKETS: u64 = 500;
/// The most passages of packets and their copies through stages, unless the least number of packets needs more.
const MOST_PASSAGES: u64 = 200_000;
/// The longest model time, in which a rate may change every millisecond, unless the least number of packets needs more.
const LONGEST: Nanos = Nanos::from_secs(10_000_000);
/// The L2 bytes of each.
const LENGTH: Bytes = Bytes(1_000);
/// The time between two packets, unless a server would then be busy for more than half of the time.
const GAP: Nanos = Nanos::from_millis(1);

/// The outcomes of packets of 1,000 bytes that arrived at regular intervals in model time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tried {
    /// The number of packets.
    pub packets: u64,
    /// The time between two packets, in ms.
    pub gap_ms: f64,
    /// The share of packets that were dropped, in percent.
    pub dropped_percent: f64,
    /// The share of packets that never left, as behind a closed gate, in percent.
    pub held_percent: f64,
    /// The average number of packets that were dropped in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_packets: Option<f64>,
    /// The number of copies, in percent of the packets.
    pub copied_percent: f64,
    /// The share of packets with changed bits, in percent.
    pub corrupted_percent: f64,
    /// The share of delivered packets that arrived behind one that was sent later (RFC 4737), in percent.
    pub reordered_percent: f64,
    /// The delays of the delivered packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<Delays>,
}

/// Statistics of delays, in ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Delays {
    /// The shortest.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
    /// The longest.
    pub most: f64,
}

/// Passes packets in one direction, in model time, under the link's first conditions.
pub(super) fn pass(config: &LinkConfig, direction: Direction) -> Result<Tried, Error> {
    let side = direction.choose(Side::A, Side::B);
    let mut config = config.clone();
    config.paths.retain(|path| path.class == 0);
    let mut gap = GAP;
    // The packets that one packet becomes, and the stages that they pass.
    let (mut copies, mut passages) = (1, 1);
    for path in &mut config.paths {
        for stage in &mut path.stages {
            stage.schedule = model::Schedule::default();
            if path.side == side {
                gap = gap.max(time_for(&stage.effect).saturating_mul(2));
                passages += copies;
                copies <<= u32::from(stage.effect.behaviour().copies.is_some());
            }
        }
    }
    let packets = (MOST_PASSAGES / passages).min(LONGEST.0 / gap.0);
    let packets = packets.clamp(LEAST_PACKETS, PACKETS);
    let mut link = Link::new(&config)?;
    let mut outcomes = PacketOutcomes::default();
    for id in 0..packets {
        let at = gap.saturating_mul(id);
        link.offer(at, side, Packet::new(PacketId(id), LENGTH));
        while let Some(outcome) = link.poll(at) {
            outcomes.take(&outcome);
        }
    }
    while let Some(outcome) = link.poll(Nanos::MAX) {
        outcomes.take(&outcome);
    }
    Ok(outcomes.tried(packets, gap))
}

/// Returns the approximate time that a stage serves a packet, or that its policer's bucket takes to fill for one.
fn time_for(effect: &Effect) -> Nanos {
    let Behaviour {
        bottleneck, loss, ..
    } = effect.behaviour();
    match (bottleneck, loss) {
        (Some(bottleneck), _) => bottleneck.time_for(LENGTH),
        (None, LossLaw::FasterThan(rate)) => rate.time_for(LENGTH),
        (None, _) => Nanos::ZERO,
    }
}

/// The outcomes of packets so far.
#[derive(Default)]
struct PacketOutcomes {
    dropped: Vec<u64>,
    copies: u64,
    corrupted: u64,
    /// The time and the number of each packet that was delivered.
    came: Vec<(Nanos, u64)>,
}

impl PacketOutcomes {
    fn take(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Copied { .. } => self.copies += 1,
            Outcome::Drop { id, copy: 0, .. } => self.dropped.push(id.0),
            Outcome::Deliver {
                id,
                copy: 0,
                due,
                edit,
                ..
            } => {
                self.came.push((*due, id.0));
                self.corrupted += u64::from(edit.is_some());
            }
            Outcome::Drop { .. } | Outcome::Deliver { .. } => {}
        }
    }

    fn tried(mut self, packets: u64, gap: Nanos) -> Tried {
        self.dropped.sort_unstable();
        // Nearly all are in order already, which this kind of sorting uses.
        self.came.sort();
        let dropped = self.dropped.len() as u64;
        let follows = |pair: &&[u64]| pair[0] + 1 == pair[1];
        let runs = dropped - self.dropped.windows(2).filter(follows).count() as u64;
        let mut next = 0;
        let mut reordered = 0_u64;
        for (_, id) in &self.came {
            reordered += u64::from(*id < next);
            next = next.max(id + 1);
        }
        let took = |(due, id): &(Nanos, u64)| ms(*due - gap.saturating_mul(*id));
        let of = |count: u64, all: u64| 100.0 * count as f64 / all.max(1) as f64;
        Tried {
            packets,
            gap_ms: ms(gap),
            dropped_percent: of(dropped, packets),
            held_percent: of(packets - dropped - self.came.len() as u64, packets),
            burst_packets: (runs > 0).then(|| dropped as f64 / runs as f64),
            copied_percent: of(self.copies, packets),
            corrupted_percent: of(self.corrupted, packets),
            reordered_percent: of(reordered, self.came.len() as u64),
            delay_ms: Delays::of(self.came.iter().map(took)),
        }
    }
}

impl Delays {
    fn of(all: impl Iterator<Item = f64>) -> Option<Self> {
        let all: Vec<f64> = all.collect();
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
        (count > 0.0).then(|| Self {
            least: all.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            deviation: (squares / count).sqrt(),
            most: all.iter().copied().fold(0.0, f64::max),
        })
    }
}
