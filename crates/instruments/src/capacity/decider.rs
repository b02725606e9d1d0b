//! Which rate to send at, chosen by the feedback.

use super::rates::RateTable;
use super::search::{Algorithm, Feedback, Search, Thresholds};
use super::wire::{NO_DELAY, SendingRate, StartRow, Status, TestParameters};

/// Chooses the row of the sending rates by the feedback: the server for real, the client to retrace it.
#[derive(Debug)]
pub(crate) struct Decider {
    table: RateTable,
    search: Search,
    /// Stays at the row where it began.
    fixed: bool,
    one_way: bool,
    ignore_reordering: bool,
}

impl Decider {
    /// Chooses rows of `table` by these parameters.
    pub(crate) fn new(table: RateTable, parameters: &TestParameters) -> Self {
        let (row, fixed) = match parameters.start {
            StartRow::Lowest => (0, false),
            StartRow::At(row) => (row, false),
            StartRow::Fixed(row) => (row, true),
        };
        let thresholds = Thresholds {
            sequence_errors: parameters.sequence_errors,
            low_ms: parameters.low_ms,
            upper_ms: parameters.upper_ms,
            slow: parameters.slow_threshold,
            high_speed_delta: parameters.high_speed_delta,
        };
        let algorithm = if parameters.algorithm == 1 {
            Algorithm::C
        } else {
            Algorithm::B
        };
        let (last, high_speed) = (table.last(), table.high_speed());
        Self {
            search: Search::new(algorithm, thresholds, row.into(), last, high_speed),
            table,
            fixed,
            one_way: parameters.one_way,
            ignore_reordering: parameters.ignore_reordering,
        }
    }

    /// The row to send at now.
    pub(super) fn row(&self) -> usize {
        self.search.row()
    }

    /// How to send now.
    pub(crate) fn rate(&self) -> SendingRate {
        self.table.rate(self.row())
    }

    /// The row whose rate this is, if it is one of the table.
    pub(super) fn row_of(&self, rate: &SendingRate) -> Option<usize> {
        self.table.row_of(rate)
    }

    /// Takes the next feedback.
    pub(super) fn decide(&mut self, status: &Status) {
        if self.fixed {
            return;
        }
        let others = if self.ignore_reordering {
            0
        } else {
            status.reordered.saturating_add(status.duplicated)
        };
        self.search.feed(Feedback {
            sequence_errors: status.lost.saturating_add(others),
            delay_variation_ms: if self.one_way {
                status.delay_mean_ms()
            } else {
                Some(status.rtt_variation_ms).filter(|ms| *ms != NO_DELAY)
            },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Sizes;
    use super::*;

    const PARAMETERS: TestParameters = TestParameters {
        low_ms: 30,
        upper_ms: 90,
        feedback_ms: 50,
        duration_s: 10,
        dscp_ecn: 0,
        start: StartRow::At(100),
        one_way: false,
        high_speed_delta: 10,
        slow_threshold: 3,
        sequence_errors: 10,
        ignore_reordering: true,
        random_payload: false,
        algorithm: 0,
        ecn_threshold: 0,
        sub_interval_ms: 1000,
        suppressed: 0,
    };

    fn row_after(parameters: TestParameters, status: Status) -> usize {
        let mut decider = Decider::new(RateTable::new(Sizes::default()), &parameters);
        decider.decide(&status);
        decider.row()
    }

    /// Much delay one way, none of the round trip's variation, and reordering.
    fn status() -> Status {
        Status {
            delay_sum_ms: 500,
            delay_count: 5,
            reordered: 11,
            ..Status::default()
        }
    }

    #[test]
    fn the_round_trip_decides_unless_one_way_delay_is_asked_for() {
        assert_eq!(row_after(PARAMETERS, status()), 110);
        let one_way = TestParameters {
            one_way: true,
            ..PARAMETERS
        };
        assert_eq!(row_after(one_way, status()), 99);
    }

    #[test]
    fn reordering_counts_only_when_it_is_not_ignored() {
        let counted = TestParameters {
            ignore_reordering: false,
            ..PARAMETERS
        };
        assert_eq!(row_after(counted, status()), 99);
    }

    #[test]
    fn a_fixed_row_stays() {
        let fixed = TestParameters {
            start: StartRow::Fixed(7),
            ..PARAMETERS
        };
        assert_eq!(row_after(fixed, status()), 7);
    }
}
