//! The attempts at the runs of a case or of a whole record.

use record::quantity::counted;
use record::{Run, RunOutcome};
use serde::Serialize;

/// The share of unsuccessful attempts from which on a result is not shown as good, as a reciprocal.
const POOR: usize = 3;

/// The numbers of attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Attempts {
    /// All attempts.
    pub(crate) all: usize,
    /// Those that failed or that the machine spoilt.
    pub(crate) unsuccessful: usize,
    /// Those that were repeated because the machine had spoilt them.
    pub(crate) repeated: usize,
}

impl Attempts {
    /// Counts the attempts at runs, of each of which the last attempt is given.
    pub(super) fn at<'r>(runs: impl Iterator<Item = &'r Run>) -> Self {
        let of_run = |run: &Run| {
            let repeated = run.attempt.saturating_sub(1) as usize;
            Self {
                all: repeated + 1,
                unsuccessful: repeated + usize::from(run.outcome != RunOutcome::Ok),
                repeated,
            }
        };
        Self::sum(runs.map(of_run))
    }

    /// Returns the attempts of several cases together.
    pub(crate) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, more| Self {
            all: sum.all + more.all,
            unsuccessful: sum.unsuccessful + more.unsuccessful,
            repeated: sum.repeated + more.repeated,
        })
    }

    /// Returns whether at least a third of the attempts were unsuccessful.
    pub(crate) fn are_poor(self) -> bool {
        self.unsuccessful > 0 && POOR * self.unsuccessful >= self.all
    }

    /// Describes unsuccessful attempts; `None` if there were none.
    pub(crate) fn in_words(self) -> Option<String> {
        let Self {
            all,
            unsuccessful,
            repeated,
        } = self;
        let were = |count: usize| if count == 1 { "was" } else { "were" };
        let again = match repeated {
            0 => "none was repeated".to_owned(),
            count => format!("{count} {} repeated", were(count)),
        };
        (unsuccessful > 0).then(|| {
            format!(
                "{unsuccessful} of {} failed or {} invalid, and {again}",
                counted(all, "attempt"),
                were(unsuccessful)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{record, spoil};

    #[test]
    fn every_attempt_before_the_last_one_was_unsuccessful_and_repeated() {
        let mut record = record();
        record.runs[0].attempt = 3;
        spoil(&mut record.runs[1], "the ring dropped 3");
        let attempts = Attempts::at(record.runs.iter());
        let expected = Attempts {
            all: 5,
            unsuccessful: 3,
            repeated: 2,
        };
        assert_eq!(attempts, expected);
        assert_eq!(
            attempts.in_words().unwrap(),
            "3 of 5 attempts failed or were invalid, and 2 were repeated"
        );
        // A damaged record may have a run without a number.
        record.runs[0].attempt = 0;
        assert_eq!(Attempts::at(record.runs.iter()).all, 3);
    }

    #[test]
    fn a_third_of_unsuccessful_attempts_is_poor() {
        let of = |unsuccessful, all| Attempts {
            all,
            unsuccessful,
            repeated: unsuccessful,
        };
        assert!(of(1, 3).are_poor() && of(4, 6).are_poor());
        assert!(!of(1, 4).are_poor() && !of(0, 0).are_poor() && !of(0, 9).are_poor());
        assert_eq!(of(0, 9).in_words(), None);
        assert_eq!(
            of(1, 4).in_words().unwrap(),
            "1 of 4 attempts failed or was invalid, and 1 was repeated"
        );
    }
}
