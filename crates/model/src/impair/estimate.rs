//! Estimates of a delay that varies.

use crate::draw::Draws;
use crate::impair::delay::DelayLaw;
use crate::impair::delay_accumulator::DelayAccumulator;
use crate::in_flight::InFlight;
use crate::packet::{Packet, PacketId, Side};
use crate::spec::{Delay, Effect, Ordering};
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;
use crate::units::Bytes;

/// The number of packets that an estimate is made of.
const PACKETS: u64 = 1 << 17;

/// The smallest number of packets that pass in a row before time jumps ahead.
const LEAST_IN_ROW: u64 = 2_048;

/// An estimate of a delay that varies at random, for packets at regular intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayEstimate {
    /// The time that keeping the order adds to the mean.
    pub added: Nanos,
    /// The standard deviation of the delay.
    pub deviation: Nanos,
    /// The share of packets whose own delay would be below 0 and is set to 0, from 0 to 1.
    pub clamped: f64,
}

impl Delay {
    /// Estimates this delay for packets `gap` apart, by passing 131,072 packets of 1,514 bytes in virtual time; `None`
    /// without jitter. If order is kept, the mean grows, because a late packet holds up those behind it. The error of
    /// the mean is some hundredths of the spread.
    #[must_use]
    pub fn estimate(&self, gap: Nanos) -> Option<DelayEstimate> {
        let jitter = self.jitter.as_ref()?;
        let gap = Nanos(gap.0.max(1));
        // A late packet may hold up others for ten spreads. As many packets pass again and are counted.
        let reach = (jitter.spread.saturating_mul(10).0 / gap.0).min(PACKETS / 8);
        let in_row = (2 * reach).max(LEAST_IN_ROW);
        // After a pause of this length, the score does not depend on the one before.
        let half_life = jitter.half_life.unwrap_or_default();
        let pause = half_life.saturating_mul(20) + jitter.spread.saturating_mul(100);
        let mut kept = DelayRun::of(self.clone());
        let mut free = DelayRun::of(Self {
            ordering: Ordering::Free,
            ..self.clone()
        });
        let mut at = Nanos::ZERO;
        for index in 0..PACKETS {
            let place = index % in_row;
            at += if place == 0 { pause } else { gap };
            let is_counted = place >= reach;
            kept.pass(at, index, is_counted);
            free.pass(at, index, is_counted);
        }
        let (in_order, alone) = (kept.counted.statistics()?, free.counted.statistics()?);
        Some(DelayEstimate {
            added: in_order.mean - alone.mean,
            deviation: in_order.deviation,
            clamped: free.clamped(),
        })
    }
}

/// Packets that pass a delay, and the statistics of those that count.
struct DelayRun {
    delay: DelayLaw,
    counted: DelayAccumulator,
}

impl DelayRun {
    fn of(delay: Delay) -> Self {
        let mut law = DelayLaw::new(Nanos::ZERO, Draws::new(1, 0, "estimate"));
        law.set(Nanos::ZERO, &Effect::Delay(delay));
        Self {
            delay: law,
            counted: DelayAccumulator::default(),
        }
    }

    fn pass(&mut self, at: Nanos, index: u64, is_counted: bool) {
        let mut t = InFlight::of(Packet::new(PacketId(index), Bytes(1_514)), Side::A, at);
        let entered = self.delay.enter(at, index, &mut t, &mut Out::default());
        if let (EntryResult::Passes(leaves), true) = (entered, is_counted) {
            self.counted.add(leaves - at, false);
        }
    }

    fn clamped(&self) -> f64 {
        let all = self.delay.delays();
        all.map_or(0.0, |all| all.clamped as f64 / all.packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Jitter, Law};

    fn delay(jitter: Jitter, ordering: Ordering) -> Delay {
        Delay {
            time: Nanos::from_millis(50),
            jitter: Some(jitter),
            ordering,
            ..Delay::default()
        }
    }

    const MS: f64 = 1e6;

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn normal_jitter_in_order_raises_the_mean_and_lowers_the_deviation() {
        let normal = Jitter::new(Nanos::from_millis(5), Law::Normal);
        let at = |gap| delay(normal.clone(), Ordering::Fifo).estimate(gap).unwrap();
        let thousand = at(Nanos::from_millis(1));
        let [added, deviation] =
            [thousand.added, thousand.deviation].map(|time| time.0 as f64 / MS);
        assert!((4.3..4.7).contains(&added), "{added}");
        assert!((3.1..3.3).contains(&deviation), "{deviation}");
        // At this distance, no packet holds up another.
        let alone = at(Nanos::from_secs(1));
        assert_eq!(alone.added, Nanos::ZERO);
        assert!((4.95..5.05).contains(&(alone.deviation.0 as f64 / MS)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn free_order_and_a_long_half_life_keep_the_law() {
        let normal = Jitter::new(Nanos::from_millis(5), Law::Normal);
        let free = delay(normal.clone(), Ordering::Free)
            .estimate(Nanos::from_millis(1))
            .unwrap();
        assert_eq!(free.added, Nanos::ZERO);
        assert!((4.95..5.05).contains(&(free.deviation.0 as f64 / MS)));
        let slow_jitter = Jitter {
            half_life: Some(Nanos::from_secs(10)),
            ..normal
        };
        let slow = delay(slow_jitter, Ordering::Fifo)
            .estimate(Nanos::from_millis(1))
            .unwrap();
        assert!(slow.added.0 as f64 / MS < 0.1, "{slow:?}");
        assert_eq!(Delay::default().estimate(Nanos::from_millis(1)), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn the_clamped_share_follows_from_the_law() {
        let wide = Jitter::new(Nanos::from_millis(50), Law::Normal);
        let estimate = delay(wide, Ordering::Free).estimate(Nanos::from_millis(1));
        let clamped = estimate.unwrap().clamped;
        // The share is Phi(-1), within four standard errors.
        assert!((clamped - 0.158_655).abs() < 0.004, "{clamped}");
    }
}
