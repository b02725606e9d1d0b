//! Correlated random numbers (`get_crandom`) and the decisions made with them.

use crate::draw::Draws;
use crate::in_flight::Stream;
use crate::spec::NetemShare;
use crate::units::Probability;

/// The packet that a draw is for; packets of each stream are counted separately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) stream: Stream,
    pub(super) index: u64,
    /// Whether the same packet draws for the same purpose a second time.
    pub(super) again: bool,
}

/// The purpose of a draw; each purpose has separate draws.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Duplicate = 1,
    /// Random loss, or the transition of a chain.
    Loss,
    /// The loss of a chain whose transition is a separate draw.
    StateLoss,
    Corrupt,
    Bit,
    Reorder,
    Delay,
    Slot,
    /// The first number of a correlated sequence.
    First,
}

impl Purpose {
    /// The draws for a netem with a seed.
    pub(super) const SEEDED: u64 = 1 << 32;
    /// The draws of a packet that draws a second time.
    const AGAIN: u64 = 1 << 33;
}

/// Returns a percentage as tc passes it to the kernel: a share of 2^32 - 1, rounded to the nearest integer.
pub(super) fn scaled(share: Probability) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "0 to 2^32 - 1, and a whole number"
    )]
    let scaled = libm::rint(share.fraction() * f64::from(u32::MAX)) as u32;
    scaled
}

/// Returns the upper 32 bits of a draw.
#[inline]
pub(super) fn draw(draws: Draws, key: Key) -> u32 {
    let draws = if key.again {
        draws.stream(Purpose::AGAIN)
    } else {
        draws
    };
    u32::try_from(draws.of(key.stream).at(key.index) >> 32).unwrap_or(u32::MAX)
}

/// Random numbers, each of which repeats a part of the previous one. All packets share this memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crandom {
    draws: Draws,
    rho: u32,
    last: u32,
}

impl Crandom {
    pub(super) fn new(draws: Draws, purpose: Purpose, correlation: Option<Probability>) -> Self {
        let first = Key {
            stream: Stream::Originals,
            index: purpose as u64,
            again: false,
        };
        Self {
            draws: draws.stream(purpose as u64),
            rho: correlation.map_or(0, scaled),
            last: draw(draws.stream(Purpose::First as u64), first),
        }
    }

    #[inline]
    pub(super) fn draw(&mut self, key: Key) -> u32 {
        let value = draw(self.draws, key);
        if self.rho == 0 {
            return value;
        }
        let rho = u64::from(self.rho) + 1;
        // Both weights add up to 2^32, so the sum is below 2^64.
        let sum = u64::from(value) * ((1 << 32) - rho) + u64::from(self.last) * rho;
        self.last = u32::try_from(sum >> 32).unwrap_or(u32::MAX);
        self.last
    }
}

/// A share of packets, by default 0; nothing is drawn for a share of 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShareDraw {
    share: u32,
    random: Option<Crandom>,
}

impl ShareDraw {
    pub(super) fn new(draws: Draws, purpose: Purpose, share: Option<NetemShare>) -> Self {
        let correlation = share.and_then(|of| of.correlation);
        let random = Crandom::new(draws, purpose, correlation);
        Self::of(share.map(|of| of.share), random)
    }

    pub(super) fn of(share: Option<Probability>, random: Crandom) -> Self {
        Self {
            share: share.map_or(0, scaled),
            random: Some(random),
        }
    }

    #[inline]
    pub(super) fn hits(&mut self, key: Key) -> bool {
        match &mut self.random {
            Some(random) if self.share > 0 => self.share >= random.draw(key),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws() -> Draws {
        Draws::new(1, 0, "box.up.netem")
    }

    #[test]
    fn shares_are_scaled_to_32_bits() {
        for (text, own) in [
            ("0%", 0),
            ("100%", u32::MAX),
            ("50%", 1 << 31),
            ("0.3%", 12_884_902),
        ] {
            assert_eq!(scaled(text.parse().unwrap()), own, "{text}");
        }
    }

    #[test]
    fn a_correlated_number_repeats_its_share_of_the_previous_one() {
        let half: Probability = "50%".parse().unwrap();
        let mut own = Crandom::new(draws(), Purpose::Loss, Some(half));
        let mut plain = Crandom::new(draws(), Purpose::Loss, None);
        for index in 0..1_000 {
            let key = Key {
                stream: Stream::Originals,
                index,
                again: false,
            };
            let before = u64::from(own.last);
            let fresh = u64::from(plain.draw(key));
            let rho = (1_u64 << 31) + 1;
            let mixed = (fresh * ((1 << 32) - rho) + before * rho) >> 32;
            assert_eq!(u64::from(own.draw(key)), mixed);
        }
    }
}
