//! Random loss.

use crate::draw::Draws;
use crate::units::Probability;

/// Bernoulli loss: every packet is lost with the same probability, independently of the others.
#[derive(Debug)]
pub(crate) struct Loss {
    threshold: u128,
    draws: Draws,
}

impl Loss {
    pub(crate) fn new(probability: Probability, draws: Draws) -> Self {
        Self {
            threshold: probability.threshold(),
            draws,
        }
    }

    /// Whether packet number `index` of this stage is lost.
    #[inline]
    pub(crate) fn hits(&self, index: u64) -> bool {
        u128::from(self.draws.at(index)) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(text: &str, packets: u64) -> usize {
        let draws = Draws::new(1, 0, "box.up.loss");
        let loss = Loss::new(text.parse().unwrap(), draws);
        (0..packets).filter(|&index| loss.hits(index)).count()
    }

    #[test]
    fn none_and_all_are_exact() {
        assert_eq!(hits("0%", 10_000), 0);
        assert_eq!(hits("100%", 10_000), 10_000);
    }

    #[test]
    fn the_share_lost_lies_in_its_interval() {
        // np +- 3.29 sqrt(np(1-p)): the 99.9 % interval of 10^6 packets.
        for (text, low, high) in [
            ("0.1%", 896, 1_104),
            ("1%", 9_673, 10_327),
            ("10%", 99_013, 100_987),
            ("50%", 498_355, 501_645),
        ] {
            let hits = hits(text, 1_000_000);
            assert!((low..=high).contains(&hits), "{text}: {hits}");
        }
    }

    #[test]
    fn losses_come_in_bursts_no_more_often_than_chance() {
        let loss = Loss::new("10%".parse().unwrap(), Draws::new(1, 0, "box.up.loss"));
        let pairs = (0..1_000_000)
            .filter(|&index| loss.hits(index) && loss.hits(index + 1))
            .count();
        // Mean 10,000; neighbours share a packet, so the variance is np^2(1 + 2p - 3p^2).
        assert!((9_642..=10_358).contains(&pairs), "{pairs}");
    }
}
