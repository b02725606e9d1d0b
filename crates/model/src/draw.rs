//! Counter-based randomness: a draw depends on the seed, the link, the stage, the stream and the packet's index, and
//! never on other draws.

use crate::in_flight::Stream;
use crate::units::Probability;

/// The odd 64-bit fraction of the golden ratio, by which splitmix64 advances its counter.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The draws of one stage of one link. Each is found by its index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Draws {
    inner: u64,
    outer: u64,
}

impl Draws {
    /// Creates the draws of the stage called `stage` in link number `link` under `seed`.
    ///
    /// They depend on the stage's name and not on its place, so adding or removing another stage does not change them.
    pub(crate) fn new(seed: u64, link: u64, stage: &str) -> Self {
        let root = absorb(absorb(mix(seed), link), stage.len() as u64);
        let inner = stage
            .bytes()
            .fold(root, |key, byte| absorb(key, u64::from(byte)));
        Self {
            inner,
            outer: absorb(inner, GOLDEN),
        }
    }

    /// Returns the draws for another purpose, or for other packets, at the same stage; stream 0 is `self`.
    pub(crate) fn stream(self, stream: u64) -> Self {
        if stream == 0 {
            return self;
        }
        let inner = absorb(self.outer, stream);
        Self {
            inner,
            outer: absorb(inner, GOLDEN),
        }
    }

    /// Returns the draws for packets of `stream`; for originals, this is `self`.
    #[inline]
    pub(crate) fn of(self, stream: Stream) -> Self {
        match stream {
            Stream::Originals => self,
            Stream::Copies => self.stream(u64::MAX),
        }
    }

    /// Returns the draw of packet number `index` as a fraction, at least 0 and below 1.
    pub(crate) fn share(self, index: u64) -> f64 {
        // A float represents 53 bits exactly.
        (self.at(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the draw of packet number `index`, uniform over all 64-bit values.
    ///
    /// It takes two rounds, with a key before each: with one round, the draws of two stages would be the same sequence
    /// with different starting points.
    #[inline]
    pub(crate) fn at(self, index: u64) -> u64 {
        mix(self.outer ^ mix(self.inner.wrapping_add(index.wrapping_mul(GOLDEN))))
    }
}

/// A probability, as a threshold of draws; by default it is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chance {
    threshold: u128,
}

impl Chance {
    pub(crate) const NEVER: Self = Self { threshold: 0 };

    pub(crate) fn of(probability: Probability) -> Self {
        Self {
            threshold: probability.threshold(),
        }
    }

    /// Returns the chance that one of two mutually exclusive events happens; a sum above 100 % counts as 100 %.
    pub(crate) fn of_either(one: Probability, other: Probability) -> Self {
        let threshold = one.threshold() + other.threshold();
        Self {
            threshold: threshold.min(1 << 64),
        }
    }

    /// Returns whether `draw` is a hit.
    #[inline]
    pub(crate) fn hits(self, draw: u64) -> bool {
        u128::from(draw) < self.threshold
    }
}

/// Returns a key that depends on all bits of `key` and `word`.
fn absorb(key: u64, word: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN) ^ mix(word.wrapping_add(GOLDEN)))
}

/// Maps 64 bits one to one, so that every input bit flips every output bit half of the time.
///
/// It is the finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA
/// 2014), David Stafford's variant 13 of the finaliser of `MurmurHash3`.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: u64 = 1 << 18;

    /// Returns Pearson's chi-square statistic of `cells` over 256 cells of equal probability.
    fn chi_square(cells: impl Iterator<Item = u64>) -> f64 {
        let mut counts = [0_u32; 256];
        for cell in cells {
            counts[usize::try_from(cell).unwrap()] += 1;
        }
        let expected = f64::from(counts.iter().sum::<u32>()) / 256.0;
        counts
            .iter()
            .map(|&count| (f64::from(count) - expected).powi(2) / expected)
            .sum()
    }

    /// Asserts that the statistic lies between the 0.05 % and 99.95 % quantiles of chi-square with 255 degrees of
    /// freedom.
    fn assert_uniform(cells: impl Iterator<Item = u64>) {
        let statistic = chi_square(cells);
        assert!((187.0..=337.0).contains(&statistic), "{statistic}");
    }

    #[test]
    fn splitmix64_gives_its_published_first_value() {
        // The reference implementation (Vigna, splitmix64.c) seeded with 0.
        assert_eq!(mix(GOLDEN), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(GOLDEN.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn every_byte_of_a_draw_is_uniform() {
        let draws = Draws::new(1, 0, "box.up.loss");
        for byte in 0..8 {
            assert_uniform((0..DRAWN).map(|i| draws.at(i) >> (8 * byte) & 0xff));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn consecutive_draws_are_independent() {
        let draws = Draws::new(1, 0, "box.up.loss");
        assert_uniform((0..DRAWN).map(|i| draws.at(i) >> 60 << 4 | draws.at(i + 1) >> 60));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn neighbouring_keys_draw_independently() {
        let draws = Draws::new(1, 0, "box.up.loss");
        for other in [
            Draws::new(2, 0, "box.up.loss"),
            Draws::new(1, 1, "box.up.loss"),
            Draws::new(0, 1, "box.up.loss"),
            Draws::new(1, 0, "box.down.loss"),
            Draws::new(1, 0, "bow.up.loss"),
            Draws::new(1, 0, "bo"),
            draws.stream(1),
            draws.stream(2),
        ] {
            for shift in 0..3 {
                assert_uniform(
                    (0..DRAWN).map(|i| draws.at(i) >> 60 << 4 | other.at(i + shift) >> 60),
                );
            }
        }
    }
}
