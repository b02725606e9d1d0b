//! When each link is to be looked at next: what a turn costs goes by the links that have something to do, not by all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::Nanos;

/// Appointments of links, by number, one each.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Some of them were moved or called off since: an appointment holds if it is its link's.
    appointments: BinaryHeap<Reverse<(Nanos, u32)>>,
    of_link: Vec<Option<Nanos>>,
}

impl Agenda {
    /// Moves the appointment of `link` to `at`, or calls it off.
    pub(crate) fn set(&mut self, link: u32, at: Option<Nanos>) {
        let place = link as usize;
        if self.of_link.len() <= place {
            self.of_link.resize(place + 1, None);
        }
        if self.of_link[place] == at {
            return;
        }
        self.of_link[place] = at;
        if let Some(at) = at {
            self.appointments.push(Reverse((at, link)));
        }
        if self.appointments.len() > 64 + 4 * self.of_link.len() {
            self.forget_what_does_not_hold();
        }
    }

    /// The first appointment of all.
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        while let Some(Reverse((at, link))) = self.appointments.peek() {
            if self.of_link[*link as usize] == Some(*at) {
                return Some(*at);
            }
            self.appointments.pop();
        }
        None
    }

    /// Takes the link out whose appointment is first, if that is by `now`.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<u32> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, link)) = self.appointments.pop()?;
        self.of_link[link as usize] = None;
        Some(link)
    }

    #[cold]
    fn forget_what_does_not_hold(&mut self) {
        let holding = (0..).zip(&self.of_link);
        let holding = holding.filter_map(|(link, at)| Some(Reverse(((*at)?, link))));
        self.appointments = holding.collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn links_are_taken_in_the_order_of_their_last_appointments(
            ops in prop::collection::vec((0u32..20, prop::option::weighted(0.9, 0u64..100)), 1..2000),
            until in 0u64..100,
        ) {
            let mut agenda = Agenda::default();
            let mut last = [None; 20];
            for (link, at) in ops {
                agenda.set(link, at.map(Nanos));
                last[link as usize] = at;
                prop_assert_eq!(agenda.next(), last.iter().flatten().min().copied().map(Nanos));
            }
            prop_assert!(agenda.appointments.len() <= 64 + 4 * 20);
            let taken: Vec<u64> = std::iter::from_fn(|| agenda.take(Nanos(until)))
                .map(|link| last[link as usize].unwrap())
                .collect();
            let mut expected: Vec<u64> = last.into_iter().flatten().filter(|at| *at <= until).collect();
            expected.sort_unstable();
            prop_assert_eq!(taken, expected);
        }
    }
}
