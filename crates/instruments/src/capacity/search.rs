//! The search for the capacity, which moves up or down the rows of sending rates with each feedback.
//!
//! Algorithm B is RFC 9097's (section 8.1; TR-471 5.2.1, Y.1540 Annex B). Algorithm C is TR-471's "multiply and retry".
//! Both are pure: they take feedback and return the row to send at.

use super::rates::{HIGH_SPEED_ROW, RateTable};
use super::wire::{
    Algorithm, FeedbackMessage, NO_DELAY, SendingRate, Sizes, StartRow, TestParameters, Thresholds,
};

/// The highest row before a round trip is known. It keeps a client from requesting load immediately that the path
/// cannot carry.
const FIRST_ROW: usize = 10;
/// The length of a fast step back, as a multiple of the fast step forward.
const BACK_OFF_FACTOR: usize = 3;
/// Algorithm C: the slow steps before the first return to fast steps, and the increase of their number after each
/// return.
const RETRY: u32 = 5;

/// The relevant part of a feedback message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Feedback {
    /// Datagrams lost, plus reordered and duplicated ones if those count.
    sequence_errors: u32,
    /// Delay above its least in milliseconds, or `None` if nothing was measured.
    delay_variation_ms: Option<u32>,
}

/// The state of a search.
#[derive(Debug)]
struct Search {
    algorithm: Algorithm,
    thresholds: Thresholds,
    row: usize,
    last: usize,
    high_speed: usize,
    congested: u32,
    /// Algorithm C: the last clean feedback did not double the row, so that the next one does.
    doubles_next: bool,
    /// Algorithm C: the slow steps since the last fast one, and the number that is required.
    waited: u32,
    wait: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathState {
    Clean,
    Between,
    Congested,
}

/// The choice of the sending rate by feedback. The server chooses for both ends; the client traces the server's choice.
#[derive(Debug)]
pub(crate) struct RateControl {
    table: RateTable,
    search: Search,
    /// The requested first row, until the search goes to it.
    asked: Option<usize>,
    /// Whether the rate stays at the first row.
    fixed: bool,
    one_way: bool,
    ignore_reordering: bool,
}

impl RateControl {
    /// Returns a control that chooses from the rates of these sizes, with these parameters.
    pub(crate) fn new(sizes: Sizes, parameters: &TestParameters) -> Self {
        let table = RateTable::new(sizes);
        let (row, fixed) = match parameters.start {
            StartRow::Lowest => (0, false),
            StartRow::At(row) => (usize::from(row), false),
            StartRow::Fixed(row) => (usize::from(row), true),
        };
        Self {
            search: Search::new(
                parameters.algorithm,
                parameters.thresholds,
                row.min(FIRST_ROW),
                table.last(),
                HIGH_SPEED_ROW,
            ),
            asked: (row > FIRST_ROW).then_some(row.min(table.last())),
            table,
            fixed,
            one_way: parameters.one_way,
            ignore_reordering: parameters.ignore_reordering,
        }
    }

    /// Returns the current row.
    pub(super) fn row(&self) -> usize {
        self.search.row
    }

    /// Returns the current rate.
    pub(crate) fn rate(&self) -> SendingRate {
        self.table.rate(self.row())
    }

    /// Returns the row with this rate, if it is one of the table.
    pub(super) fn row_of(&self, rate: &SendingRate) -> Option<usize> {
        self.table.row_of(rate)
    }

    /// Chooses the rate by the next feedback.
    pub(super) fn decide(&mut self, status: &FeedbackMessage) {
        if let Some(row) = self.asked {
            if status.rtt_ms().is_some() {
                self.asked = None;
                self.search.row = row;
            }
            return;
        }
        if self.fixed {
            return;
        }
        let counts = status.counts;
        let others = if self.ignore_reordering {
            0
        } else {
            counts.reordered.saturating_add(counts.duplicated)
        };
        self.search.feed(Feedback {
            sequence_errors: counts.lost.saturating_add(others),
            delay_variation_ms: if self.one_way {
                status.delays.mean_ms()
            } else {
                Some(status.rtt_variation_ms).filter(|ms| *ms != NO_DELAY)
            },
        });
    }
}

impl Thresholds {
    fn classify(&self, feedback: Feedback) -> PathState {
        // Without a delay the rate stays the same, unless datagrams are missing.
        let delay = feedback.delay_variation_ms.unwrap_or(self.low_ms.into());
        let many_errors = feedback.sequence_errors > self.sequence_errors.into();
        if !many_errors && delay < self.low_ms.into() {
            PathState::Clean
        } else if many_errors || delay > self.upper_ms.into() {
            PathState::Congested
        } else {
            PathState::Between
        }
    }
}

impl Search {
    /// Starts at `row` of a table whose last row is `last` and that has fast steps below `high_speed`.
    fn new(
        algorithm: Algorithm,
        thresholds: Thresholds,
        row: usize,
        last: usize,
        high_speed: usize,
    ) -> Self {
        Self {
            algorithm,
            thresholds,
            row: row.min(last),
            last,
            high_speed,
            congested: 0,
            doubles_next: false,
            waited: 0,
            wait: RETRY,
        }
    }

    /// Processes the next feedback and returns the row to send at from now on.
    fn feed(&mut self, feedback: Feedback) -> usize {
        match self.thresholds.classify(feedback) {
            PathState::Clean => self.rise(),
            PathState::Between => {}
            PathState::Congested => self.fall(),
        }
        self.row
    }

    fn rise(&mut self) {
        let fast = self.row < self.high_speed && self.congested < self.thresholds.slow.into();
        match (fast, self.algorithm) {
            (true, Algorithm::B) => {
                let risen = self.row + usize::from(self.thresholds.high_speed_delta);
                self.row = risen.min(self.high_speed);
                self.congested = 0;
            }
            (true, Algorithm::C) => {
                self.double();
                self.congested = 0;
            }
            (false, Algorithm::B) => self.row = (self.row + 1).min(self.last),
            (false, Algorithm::C) => {
                if self.row < self.last {
                    self.row += 1;
                    self.waited += 1;
                }
                if self.waited >= self.wait {
                    self.congested = 0;
                    self.waited = 0;
                    self.wait += RETRY;
                }
            }
        }
    }

    fn double(&mut self) {
        if self.row * 2 > self.high_speed {
            self.row = self.high_speed;
            return;
        }
        self.row = self.row.max(1);
        if self.doubles_next {
            self.row *= 2;
        }
        self.doubles_next = !self.doubles_next;
    }

    fn fall(&mut self) {
        self.congested = self.congested.saturating_add(1);
        if self.row < self.high_speed && self.congested == u32::from(self.thresholds.slow) {
            let step = usize::from(self.thresholds.high_speed_delta) * BACK_OFF_FACTOR;
            self.row = self.row.saturating_sub(step);
            return;
        }
        if self.row == 0 {
            return;
        }
        self.row -= 1;
        if self.algorithm == Algorithm::C {
            self.waited += 1;
            if self.waited >= self.wait {
                self.congested = 0;
                self.waited = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLEAN: Feedback = Feedback {
        sequence_errors: 0,
        delay_variation_ms: Some(0),
    };
    const LOSSY: Feedback = Feedback {
        sequence_errors: 11,
        delay_variation_ms: Some(0),
    };
    const SILENT: Feedback = Feedback {
        sequence_errors: 0,
        delay_variation_ms: None,
    };

    fn search(algorithm: Algorithm) -> Search {
        Search::new(algorithm, Thresholds::default(), 0, 1152, 1000)
    }

    fn rows(search: &mut Search, feedback: Feedback, times: usize) -> Vec<usize> {
        (0..times).map(|_| search.feed(feedback)).collect()
    }

    #[test]
    fn b_takes_fast_steps_on_clean_feedback_and_slow_ones_above_a_gigabit() {
        let mut search = search(Algorithm::B);
        assert_eq!(rows(&mut search, CLEAN, 3), [10, 20, 30]);
        rows(&mut search, CLEAN, 97);
        assert_eq!(search.row, 1000);
        assert_eq!(rows(&mut search, CLEAN, 2), [1001, 1002]);
    }

    #[test]
    fn b_backs_off_once_after_three_congested_feedbacks_and_then_takes_slow_steps() {
        let mut search = search(Algorithm::B);
        rows(&mut search, CLEAN, 10);
        assert_eq!(rows(&mut search, LOSSY, 4), [99, 98, 68, 67]);
        assert_eq!(rows(&mut search, CLEAN, 2), [68, 69]);
    }

    #[test]
    fn b_forgets_short_congestion() {
        let mut search = search(Algorithm::B);
        rows(&mut search, CLEAN, 10);
        rows(&mut search, LOSSY, 2);
        assert_eq!(rows(&mut search, CLEAN, 1), [108]);
        assert_eq!(rows(&mut search, LOSSY, 3), [107, 106, 76]);
    }

    #[test]
    fn c_doubles_on_every_second_clean_feedback() {
        let mut search = search(Algorithm::C);
        assert_eq!(rows(&mut search, CLEAN, 6), [1, 2, 2, 4, 4, 8]);
        rows(&mut search, CLEAN, 30);
        assert!(search.row >= 1000);
    }

    #[test]
    fn c_returns_to_fast_steps_after_some_slow_steps() {
        let mut search = search(Algorithm::C);
        rows(&mut search, CLEAN, 12);
        let top = search.row;
        rows(&mut search, LOSSY, 3);
        assert!(search.row < top);
        let slow = rows(&mut search, CLEAN, 3);
        assert_eq!(slow[2], slow[0] + 2);
        let again = rows(&mut search, CLEAN, 4);
        assert!(again[3] > again[0] + 3, "{slow:?} {again:?}");
    }

    #[test]
    fn delays_between_the_thresholds_and_no_delay_hold_the_rate() {
        for feedback in [
            SILENT,
            Feedback {
                delay_variation_ms: Some(30),
                ..CLEAN
            },
            Feedback {
                delay_variation_ms: Some(90),
                ..CLEAN
            },
        ] {
            let mut search = search(Algorithm::B);
            rows(&mut search, CLEAN, 5);
            assert_eq!(rows(&mut search, feedback, 2), [50, 50]);
        }
        let late = Feedback {
            delay_variation_ms: Some(91),
            ..CLEAN
        };
        let mut search = search(Algorithm::B);
        rows(&mut search, CLEAN, 5);
        assert_eq!(search.feed(late), 49);
    }

    /// A bottleneck with constant rates in virtual time. Load above its rate queues, and load above its queue is lost.
    struct Bottleneck {
        mbit: f64,
        queue_ms: f64,
        backlog_ms: f64,
    }

    impl Bottleneck {
        #[allow(clippy::cast_possible_truncation, reason = "small counts")]
        fn trial(&mut self, sent_mbit: f64) -> (f64, Feedback) {
            const TRIAL_MS: f64 = 50.0;
            const PACKET_BITS: f64 = 10_000.0;
            let before = self.backlog_ms;
            let grown = before + TRIAL_MS * (sent_mbit / self.mbit - 1.0);
            self.backlog_ms = grown.clamp(0.0, self.queue_ms);
            let over_ms = (grown - self.queue_ms).max(0.0);
            let lost = over_ms * self.mbit * 1e3 / PACKET_BITS;
            let delivered =
                (before + TRIAL_MS * sent_mbit / self.mbit - over_ms - self.backlog_ms) / TRIAL_MS;
            let feedback = Feedback {
                sequence_errors: lost as u32,
                delay_variation_ms: Some(self.backlog_ms as u32),
            };
            (delivered * self.mbit, feedback)
        }
    }

    /// Returns the best second of ten that a search gets through the bottleneck, in Mbit/s.
    fn found(algorithm: Algorithm, mbit: f64, queue_ms: f64, delay_trials: usize) -> f64 {
        let mut bottleneck = Bottleneck {
            mbit,
            queue_ms,
            backlog_ms: 0.0,
        };
        let mut search = search(algorithm);
        let mut on_its_way: std::collections::VecDeque<_> =
            (0..delay_trials).map(|_| SILENT).collect();
        let mut delivered = Vec::new();
        for _ in 0..200 {
            // With these sizes, a row above 1 Gbit/s adds 100 Mbit/s.
            let row = search.row as f64;
            let sent = if row > 1000.0 {
                1000.0 + (row - 1000.0) * 100.0
            } else {
                row.max(0.1)
            };
            let (rate, feedback) = bottleneck.trial(sent);
            delivered.push(rate);
            on_its_way.push_back(feedback);
            search.feed(on_its_way.pop_front().unwrap());
        }
        let seconds = delivered
            .chunks(20)
            .map(|second| second.iter().sum::<f64>() / 20.0);
        seconds.fold(0.0, f64::max)
    }

    /// Returns the lowest share of a bottleneck's rate that a search finds, over short and long queues and round trips.
    fn worst(algorithm: Algorithm, mbit: f64) -> f64 {
        let queues = [5.0, 40.0, 100.0, 300.0];
        let found: Vec<f64> = queues
            .iter()
            .flat_map(|queue_ms| {
                [0, 1, 4].map(|delay_trials| found(algorithm, mbit, *queue_ms, delay_trials) / mbit)
            })
            .collect();
        assert!(found.iter().all(|share| *share < 1.0001), "{found:?}");
        found.into_iter().fold(1.0, f64::min)
    }

    #[test]
    fn both_algorithms_find_the_capacity_of_a_bottleneck_in_ten_seconds() {
        for mbit in [48.0, 300.0, 950.0] {
            for algorithm in [Algorithm::B, Algorithm::C] {
                let share = worst(algorithm, mbit);
                assert!(share > 0.99, "{algorithm:?} {mbit} Mbit/s: {share}");
            }
        }
    }

    /// A row is 1 Mbit/s and a step back is 30 rows, as the documentation states for slow paths.
    #[test]
    fn slow_paths_are_found_within_a_few_rows() {
        assert!(worst(Algorithm::B, 5.0) > 0.88);
        assert!(worst(Algorithm::C, 5.0) > 0.7);
        assert!(worst(Algorithm::B, 20.0) > 0.99);
        assert!(worst(Algorithm::C, 20.0) > 0.93);
    }

    proptest! {
        #[test]
        fn no_feedback_leaves_the_table(
            algorithm in prop_oneof![Just(Algorithm::B), Just(Algorithm::C)],
            start in 0usize..3000,
            slow in any::<u16>(),
            high_speed_delta in any::<u8>(),
            feedback in prop::collection::vec((any::<u32>(), any::<Option<u32>>()), 0..400),
        ) {
            let thresholds = Thresholds { slow, high_speed_delta, ..Thresholds::default() };
            let mut search = Search::new(algorithm, thresholds, start, 1152, 1000);
            for (sequence_errors, delay_variation_ms) in feedback {
                let row = search.feed(Feedback { sequence_errors, delay_variation_ms });
                prop_assert!(row <= 1152);
            }
        }
    }

    const PARAMETERS: TestParameters = TestParameters {
        thresholds: Thresholds {
            sequence_errors: 10,
            low_ms: 30,
            upper_ms: 90,
            slow: 3,
            high_speed_delta: 10,
        },
        algorithm: Algorithm::B,
        feedback_ms: 50,
        duration_s: 10,
        sub_interval_ms: 1000,
        start: StartRow::At(100),
        one_way: false,
        ignore_reordering: true,
        random_payload: false,
    };

    fn row_after(parameters: TestParameters, status: FeedbackMessage) -> usize {
        let mut control = RateControl::new(Sizes::default(), &parameters);
        // The first feedback with a round trip leads to the requested row.
        control.decide(&status);
        control.decide(&status);
        control.row()
    }

    /// Returns feedback with a long one-way delay, no variation of the round-trip time, and reordering.
    fn status() -> FeedbackMessage {
        let mut status = FeedbackMessage::default();
        (status.delays.sum_ms, status.delays.count) = (500, 5);
        status.counts.reordered = 11;
        status
    }

    #[test]
    fn the_round_trip_decides_unless_one_way_delay_is_requested() {
        assert_eq!(row_after(PARAMETERS, status()), 110);
        let one_way = TestParameters {
            one_way: true,
            ..PARAMETERS
        };
        assert_eq!(row_after(one_way, status()), 99);
    }

    #[test]
    fn reordering_counts_unless_it_is_ignored() {
        let counted = TestParameters {
            ignore_reordering: false,
            ..PARAMETERS
        };
        assert_eq!(row_after(counted, status()), 99);
    }

    #[test]
    fn a_fixed_row_stays() {
        for row in [7, 700] {
            let fixed = TestParameters {
                start: StartRow::Fixed(row),
                ..PARAMETERS
            };
            assert_eq!(row_after(fixed, status()), usize::from(row));
        }
    }

    #[test]
    fn the_first_row_is_capped_until_a_round_trip_is_known() {
        for start in [StartRow::At(1152), StartRow::Fixed(1152)] {
            let parameters = TestParameters {
                start,
                ..PARAMETERS
            };
            let mut control = RateControl::new(Sizes::default(), &parameters);
            let unknown = FeedbackMessage {
                rtt_variation_ms: NO_DELAY,
                ..status()
            };
            for _ in 0..3 {
                assert_eq!(control.row(), FIRST_ROW);
                control.decide(&unknown);
            }
            control.decide(&status());
            assert_eq!(control.row(), 1152);
        }
    }
}
