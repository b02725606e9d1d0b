//! The smallest of the least delays of many links. A change of one link does not visit the others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;

use model::Nanos;

/// The least time from arrival to due time on each link, by the link's number.
#[derive(Debug, Default)]
pub(super) struct LeastDelays {
    of_link: Vec<Nanos>,
    /// The number of links with each delay.
    counts: BTreeMap<Nanos, usize>,
}

impl LeastDelays {
    /// Adds the next link.
    pub(super) fn push(&mut self, delay: Nanos) {
        self.of_link.push(delay);
        *self.counts.entry(delay).or_default() += 1;
    }

    /// Gives a link another delay.
    pub(super) fn set(&mut self, link: usize, delay: Nanos) {
        let former = mem::replace(&mut self.of_link[link], delay);
        *self.counts.entry(delay).or_default() += 1;
        if let Entry::Occupied(mut count) = self.counts.entry(former) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Returns the smallest delay, or `None` without a link.
    pub(super) fn least(&self) -> Option<Nanos> {
        Some(*self.counts.first_key_value()?.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_least_delay_is_that_of_the_present_conditions_of_all_links(
            first in prop::collection::vec(0_u64..5, 1..20),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..5), 0..50),
        ) {
            let mut delays = LeastDelays::default();
            prop_assert_eq!(delays.least(), None);
            let mut present = Vec::new();
            for delay in first {
                delays.push(Nanos(delay));
                present.push(delay);
                prop_assert_eq!(delays.least(), present.iter().min().copied().map(Nanos));
            }
            for (link, delay) in changes {
                let link = link.index(present.len());
                delays.set(link, Nanos(delay));
                present[link] = delay;
                prop_assert_eq!(delays.least(), present.iter().min().copied().map(Nanos));
            }
            prop_assert!(delays.counts.values().all(|count| *count > 0));
        }
    }
}
