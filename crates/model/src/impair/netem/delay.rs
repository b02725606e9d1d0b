//! The offset of a packet's delay from its mean (`tabledist`).

use alloc::boxed::Box;

use crate::spec::NetemDistribution;
use crate::time::Nanos;

use super::crandom::{Crandom, Key};
use super::tables::{self, SCALE};

/// The largest jitter of the kernel; a larger one counts as this.
const LARGEST_JITTER: i64 = (1 << 31) - 1;

/// A random delay about a mean.
#[derive(Debug, Default)]
pub(super) struct DelayDraw {
    mean: i64,
    /// The jitter, at most [`LARGEST_JITTER`].
    jitter: i64,
    law: Option<NetemDistribution>,
    /// The table of that law.
    table: Box<[i16]>,
    random: Option<Crandom>,
}

impl DelayDraw {
    /// Draws with these parameters from now on; the table is kept if the law stays the same.
    pub(super) fn set(
        &mut self,
        [mean, jitter]: [Nanos; 2],
        law: Option<NetemDistribution>,
        random: Crandom,
    ) {
        self.mean = i64::try_from(mean.0).unwrap_or(i64::MAX);
        self.jitter = i64::try_from(jitter.0).map_or(LARGEST_JITTER, |own| own.min(LARGEST_JITTER));
        if law != self.law {
            self.table = law.map_or_else(Box::default, tables::of);
            self.law = law;
        }
        self.random = Some(random);
    }

    /// Returns the next delay in nanoseconds; it is below 0 if the jitter exceeds the mean.
    #[inline]
    pub(super) fn draw(&mut self, key: Key) -> i64 {
        match &mut self.random {
            Some(random) if self.jitter > 0 => {
                let random = random.draw(key);
                self.mean + self.offset(random)
            }
            _ => self.mean,
        }
    }

    /// Returns the offset for 32 random bits. The remainder keeps their low bits, while a correlation affects the high
    /// bits.
    #[inline]
    fn offset(&self, random: u32) -> i64 {
        if self.table.is_empty() {
            return i64::from(random) % (2 * self.jitter) - self.jitter;
        }
        let entry = i64::from(self.table[random as usize % self.table.len()]);
        let part = self.jitter % SCALE * entry;
        let rounded = part + if part >= 0 { SCALE / 2 } else { -SCALE / 2 };
        rounded / SCALE + self.jitter / SCALE * entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draws;
    use crate::impair::netem::crandom::Purpose;

    fn of(jitter: u64, law: Option<NetemDistribution>) -> DelayDraw {
        let draws = Draws::new(1, 0, "box.up.netem");
        let mut delay = DelayDraw::default();
        let random = Crandom::new(draws, Purpose::Delay, None);
        delay.set([Nanos(0), Nanos(jitter)], law, random);
        delay
    }

    #[test]
    fn without_a_table_the_offset_is_the_remainder_of_the_draw() {
        let delay = of(10_000_000, None);
        assert_eq!(delay.offset(0), -10_000_000);
        assert_eq!(delay.offset(19_999_999), 9_999_999);
        assert_eq!(delay.offset(20_000_000), -10_000_000);
        // 2^32 - 1 modulo 20,000,000 is 14,967,295.
        assert_eq!(delay.offset(u32::MAX), 4_967_295);
    }

    #[test]
    fn with_a_table_the_offset_is_the_entry_at_the_remainder_times_the_jitter() {
        let delay = of(10_000_000, Some(NetemDistribution::Normal));
        // The first entry is -32768, which is -4 jitters; 4,096 entries later it comes again.
        assert_eq!(delay.offset(0), -40_000_000);
        assert_eq!(delay.offset(4_096), -40_000_000);
        // The second entry is -28307: 28307/8192 of 10 ms is 34554443.359375 ns.
        assert_eq!(delay.offset(1), -34_554_443);
    }

    #[test]
    fn a_jitter_is_limited_to_31_bits() {
        assert_eq!(of(10_000_000_000, None).offset(0), -2_147_483_647);
    }
}
