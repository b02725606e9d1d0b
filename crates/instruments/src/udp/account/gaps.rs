//! When each missing number was passed: what a reordering extent is counted from.

use std::collections::VecDeque;

/// Gaps remembered; older ones are forgotten, and extents that would need them are not known.
const MOST: usize = 1024;

/// The latest gaps in the numbers, ascending.
#[derive(Debug)]
pub(super) struct Gaps(VecDeque<Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The numbers on either side, which came.
    below: u64,
    above: u64,
    /// As how manieth datagram the one above came.
    passed_at: u64,
}

impl Gaps {
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MOST))
    }

    /// Notes that number `above` was the `arrival`th to come, next to `below`.
    pub(super) fn open(&mut self, below: u64, above: u64, arrival: u64) {
        if above - below > 1 {
            if self.0.len() == MOST {
                self.0.pop_front();
            }
            self.0.push_back(Gap {
                below,
                above,
                passed_at: arrival,
            });
        }
    }

    /// How many datagrams came from the first one that passed `number` until `number` itself, the `arrival`th to come
    /// (RFC 4737 section 4.2.1: i - j for the earliest j with s\[j\] > s\[i\]).
    pub(super) fn extent(&self, number: u64, arrival: u64) -> Option<u64> {
        let behind = self.0.partition_point(|gap| gap.below < number);
        let gap = self.0.get(behind.checked_sub(1)?)?;
        (number < gap.above).then(|| arrival - gap.passed_at)
    }
}
