//! The time at which each link must run next. A step costs time only for the links that have
//! something to do, not for all links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::Nanos;

/// One appointment per link, by the link's number.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// All appointments, including those that were moved or cancelled later. An appointment is
    /// valid if `of_link` has the same time.
    appointments: BinaryHeap<Reverse<(Nanos, u32)>>,
    of_link: Vec<Option<Nanos>>,
}

impl Agenda {
    /// Moves the appointment of `link` to `at`, or cancels it.
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
            self.drop_invalid();
        }
    }

    /// Makes the appointment of `link` not later than `at`. One that is not later already stays, so
    /// that the link keeps its place among the others.
    pub(crate) fn at_latest(&mut self, link: u32, at: Nanos) {
        let present = self.of_link.get(link as usize).copied().flatten();
        if present.is_none_or(|present| present > at) {
            self.set(link, Some(at));
        }
    }

    /// Returns the time of the earliest appointment.
    pub(crate) fn next(&mut self) -> Option<Nanos> {
        while let Some(Reverse((at, link))) = self.appointments.peek() {
            if self.of_link[*link as usize] == Some(*at) {
                return Some(*at);
            }
            self.appointments.pop();
        }
        None
    }

    /// Removes the earliest appointment if its time is `now` or earlier, and returns it with its link.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(Nanos, u32)> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((at, link)) = self.appointments.pop()?;
        self.of_link[link as usize] = None;
        Some((at, link))
    }

    #[cold]
    fn drop_invalid(&mut self) {
        let valid = (0..)
            .zip(&self.of_link)
            .filter_map(|(link, at)| Some(Reverse(((*at)?, link))));
        self.appointments = valid.collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn links_are_taken_in_the_order_of_their_last_appointments(
            ops in prop::collection::vec((0u32..20, prop::option::weighted(0.9, 0u64..100), any::<bool>()), 1..2000),
            until in 0u64..100,
        ) {
            let mut agenda = Agenda::default();
            let mut last = [None; 20];
            for (link, at, at_latest) in ops {
                let last_of = &mut last[link as usize];
                match at.filter(|_| at_latest) {
                    Some(at) => {
                        agenda.at_latest(link, Nanos(at));
                        *last_of = Some(last_of.map_or(at, |last: u64| last.min(at)));
                    }
                    None => {
                        agenda.set(link, at.map(Nanos));
                        *last_of = at;
                    }
                }
                prop_assert_eq!(agenda.next(), last.iter().flatten().min().copied().map(Nanos));
            }
            prop_assert!(agenda.appointments.len() <= 64 + 4 * 20);
            let taken = std::iter::from_fn(|| agenda.take(Nanos(until)));
            let taken: Vec<u64> = taken
                .map(|(at, link)| {
                    prop_assert_eq!(Some(at.0), last[link as usize]);
                    Ok(at.0)
                })
                .collect::<Result<_, TestCaseError>>()?;
            let mut expected: Vec<u64> = last.into_iter().flatten().filter(|at| *at <= until).collect();
            expected.sort_unstable();
            prop_assert_eq!(taken, expected);
        }
    }
}
