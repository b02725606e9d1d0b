//! When each stage is to be woken: one deadline for each.

use alloc::vec::Vec;

use crate::time::Nanos;

/// A table of deadlines, at most one for each stage; equal deadlines expire in the order in which they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: Vec<Option<Deadline>>,
    /// The index of the earliest, kept because it is asked for more often than it changes.
    first: Option<usize>,
    set: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Deadline {
    at: Nanos,
    order: u64,
}

impl Timers {
    /// Wakes `stage` at `at`, or not at all; replaces what it asked for before.
    pub(crate) fn set(&mut self, stage: usize, at: Option<Nanos>) {
        self.set += 1;
        let order = self.set;
        if stage >= self.deadlines.len() {
            self.deadlines.resize(stage + 1, None);
        }
        self.deadlines[stage] = at.map(|at| Deadline { at, order });
        self.first = self
            .deadlines
            .iter()
            .enumerate()
            .filter_map(|(stage, deadline)| deadline.map(|deadline| (deadline, stage)))
            .min()
            .map(|(_, stage)| stage);
    }

    /// When `stage` is to be woken.
    #[inline]
    pub(crate) fn get(&self, stage: usize) -> Option<Nanos> {
        self.deadlines.get(stage)?.map(|deadline| deadline.at)
    }

    /// The earliest deadline and its stage.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Nanos, usize)> {
        let stage = self.first?;
        self.deadlines[stage].map(|deadline| (deadline.at, stage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equals_in_the_order_they_were_set() {
        let mut timers = Timers::default();
        assert_eq!(timers.first(), None);
        timers.set(2, Some(Nanos(5)));
        timers.set(0, Some(Nanos(5)));
        timers.set(1, Some(Nanos(7)));
        assert_eq!(timers.first(), Some((Nanos(5), 2)));
        timers.set(2, Some(Nanos(6)));
        assert_eq!(timers.first(), Some((Nanos(5), 0)));
        timers.set(0, None);
        assert_eq!(timers.first(), Some((Nanos(6), 2)));
    }
}
