//! The numbers of expectations of each kind, and how many of them are met.

use record::expectation::ExpectationKind;
use record::quantity::counted;
use serde::Serialize;

use super::verdict::{ExpectationCheck, Verdict};

/// The numbers for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ExpectationCounts {
    pub(crate) tested: MetCount,
    pub(crate) loose: MetCount,
    pub(crate) fitted: MetCount,
}

/// The number of expectations, and how many of them are met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MetCount {
    pub(crate) met: usize,
    pub(crate) all: usize,
}

impl ExpectationCounts {
    pub(crate) fn of<'c>(checks: impl Iterator<Item = &'c ExpectationCheck>) -> Self {
        let mut counts = Self::default();
        for check in checks {
            let count = match check.kind {
                ExpectationKind::Tested => &mut counts.tested,
                ExpectationKind::Loose => &mut counts.loose,
                ExpectationKind::Fitted => &mut counts.fitted,
            };
            count.all += 1;
            count.met += usize::from(check.verdict == Verdict::Met);
        }
        counts
    }

    /// Returns each kind that occurs, with its numbers.
    pub(crate) fn by_kind(&self) -> impl Iterator<Item = (ExpectationKind, MetCount)> {
        let all = [
            (ExpectationKind::Tested, self.tested),
            (ExpectationKind::Loose, self.loose),
            (ExpectationKind::Fitted, self.fitted),
        ];
        all.into_iter().filter(|(_, count)| count.all > 0)
    }

    /// Formats the numbers: "4 of 4 expectations met" if all were tested, otherwise "3 of 3 tested expectations met,
    /// 1 of 1 loose, 2 of 2 fitted". `None` without expectations.
    pub(crate) fn in_words(&self) -> Option<String> {
        let mut parts = Vec::new();
        for (kind, MetCount { met, all }) in self.by_kind() {
            let are_all_tested = self.tested.all > 0 && self.tested.all == self.all();
            parts.push(if are_all_tested {
                format!("{met} of {} met", counted(all, "expectation"))
            } else if parts.is_empty() {
                let one = format!("{} expectation", kind.name());
                format!("{met} of {} met", counted(all, &one))
            } else {
                format!("{met} of {all} {}", kind.name())
            });
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn all(&self) -> usize {
        self.tested.all + self.loose.all + self.fitted.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts([tested, loose, fitted]: [usize; 3]) -> ExpectationCounts {
        let met = |all| MetCount { met: all, all };
        ExpectationCounts {
            tested: met(tested),
            loose: met(loose),
            fitted: met(fitted),
        }
    }

    #[test]
    fn kinds_are_counted_separately_unless_all_are_tested() {
        for (numbers, words) in [
            ([4, 0, 0], "4 of 4 expectations met"),
            ([1, 0, 0], "1 of 1 expectation met"),
            (
                [3, 1, 2],
                "3 of 3 tested expectations met, 1 of 1 loose, 2 of 2 fitted",
            ),
            ([0, 2, 0], "2 of 2 loose expectations met"),
            ([0, 1, 1], "1 of 1 loose expectation met, 1 of 1 fitted"),
        ] {
            assert_eq!(counts(numbers).in_words().unwrap(), words);
        }
        assert_eq!(counts([0, 0, 0]).in_words(), None);
    }

    #[test]
    fn an_unmet_expectation_counts_only_among_all() {
        let check = |kind, verdict| ExpectationCheck {
            expected: String::new(),
            measured: String::new(),
            verdict,
            kind,
            is_reliable: true,
        };
        let checks = [
            check(ExpectationKind::Tested, Verdict::Met),
            check(ExpectationKind::Tested, Verdict::NotMet),
            check(ExpectationKind::Fitted, Verdict::Invalid),
        ];
        let counts = ExpectationCounts::of(checks.iter());
        assert_eq!(counts.tested, MetCount { met: 1, all: 2 });
        assert_eq!(counts.fitted, MetCount { met: 0, all: 1 });
        assert_eq!(
            counts.in_words().unwrap(),
            "1 of 2 tested expectations met, 0 of 1 fitted"
        );
    }
}
