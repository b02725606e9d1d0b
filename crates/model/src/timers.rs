//! The wake-up times of the stages: at most one deadline for each.

use alloc::vec::Vec;

use crate::time::Nanos;

/// The stages that are to be woken; those with equal times in the order in which they were set. Few are set at a time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    armed: Vec<Deadline>,
    /// The index of the earliest deadline.
    first: usize,
    set: u64,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Nanos,
    order: u64,
    stage: usize,
}

impl Timers {
    /// Sets or removes the deadline of `stage`; this replaces its former one.
    #[inline]
    pub(crate) fn set(&mut self, stage: usize, at: Option<Nanos>) {
        self.set += 1;
        let order = self.set;
        let place = self.armed.iter().position(|armed| armed.stage == stage);
        match (at, place) {
            (Some(at), Some(place)) => self.armed[place] = Deadline { at, order, stage },
            (Some(at), None) => self.armed.push(Deadline { at, order, stage }),
            (None, Some(place)) => {
                self.armed.swap_remove(place);
            }
            (None, None) => return,
        }
        self.first = 0;
        for (place, armed) in self.armed.iter().enumerate().skip(1) {
            let first = self.armed[self.first];
            if (armed.at, armed.order) < (first.at, first.order) {
                self.first = place;
            }
        }
    }

    /// Returns when `stage` is to be woken.
    #[inline]
    pub(crate) fn get(&self, stage: usize) -> Option<Nanos> {
        let armed = self.armed.iter().find(|armed| armed.stage == stage)?;
        Some(armed.at)
    }

    /// Returns the earliest deadline and its stage.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Nanos, usize)> {
        let first = self.armed.get(self.first)?;
        Some((first.at, first.stage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_is_first_and_equal_ones_in_the_order_of_setting() {
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
