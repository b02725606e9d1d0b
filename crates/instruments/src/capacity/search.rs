//! The search for the capacity: from one feedback to the next, a row of the sending rates up or down.
//!
//! Algorithm B is RFC 9097's (§8.1; TR-471 5.2.1, Y.1540 Annex B); C is TR-471's "multiply and retry". Both are
//! pure: fed with feedback, they name the row to send at.

use serde::{Deserialize, Serialize};

/// Fast steps back are so many times the fast step forward.
const BACK_OFF: usize = 3;
/// C: slow steps before it first tries to be fast again; more by as many after each success.
const RETRY: u32 = 5;

/// How the rate follows the feedback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Algorithm {
    /// Ten rows a clean feedback until congestion has been seen, then one.
    #[default]
    #[value(name = "B", alias = "b")]
    B,
    /// Doubles the row on every second clean feedback, and tries again after a while.
    #[value(name = "C", alias = "c")]
    C,
}

/// What makes a feedback clean or congested, and how far steps go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thresholds {
    /// More sequence errors in a feedback are congestion.
    pub(crate) sequence_errors: u16,
    /// Less delay variation, in milliseconds, is clean.
    pub(crate) low_ms: u16,
    /// More delay variation, in milliseconds, is congestion.
    pub(crate) upper_ms: u16,
    /// The congested feedback in a row of them on which the fast step back is taken; fast steps end with it.
    pub(crate) slow: u16,
    /// Rows of a fast step.
    pub(crate) high_speed_delta: u8,
}

/// What one feedback says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Feedback {
    /// Datagrams lost, and where they count reordered and duplicated ones.
    pub(crate) sequence_errors: u32,
    /// Delay above its least, in milliseconds; absent when nothing was measured.
    pub(crate) delay_variation_ms: Option<u32>,
}

/// A search under way.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    algorithm: Algorithm,
    thresholds: Thresholds,
    row: usize,
    last: usize,
    high_speed: usize,
    congested: u32,
    /// C: the last clean feedback did not double, so the next one does.
    doubles_next: bool,
    /// C: slow steps since the last fast one, and how many there must be.
    waited: u32,
    wait: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Clean,
    Between,
    Congested,
}

impl Default for Thresholds {
    /// RFC 9097's.
    fn default() -> Self {
        Self {
            sequence_errors: 10,
            low_ms: 30,
            upper_ms: 90,
            slow: 3,
            high_speed_delta: 10,
        }
    }
}

impl Thresholds {
    fn judge(&self, feedback: Feedback) -> Verdict {
        // Without a delay nothing changes, unless datagrams are missing.
        let delay = feedback.delay_variation_ms.unwrap_or(self.low_ms.into());
        let many_errors = feedback.sequence_errors > self.sequence_errors.into();
        if !many_errors && delay < self.low_ms.into() {
            Verdict::Clean
        } else if many_errors || delay > self.upper_ms.into() {
            Verdict::Congested
        } else {
            Verdict::Between
        }
    }
}

impl Search {
    /// Starts at `row` of a table whose last row is `last` and that has fast steps below `high_speed`.
    pub(crate) fn new(
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

    /// Where to send.
    pub(crate) fn row(&self) -> usize {
        self.row
    }

    /// Takes the next feedback; returns the row to send at from now on.
    pub(crate) fn feed(&mut self, feedback: Feedback) -> usize {
        match self.thresholds.judge(feedback) {
            Verdict::Clean => self.rise(),
            Verdict::Between => {}
            Verdict::Congested => self.fall(),
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
            let step = usize::from(self.thresholds.high_speed_delta) * BACK_OFF;
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
    fn b_takes_fast_steps_while_it_is_clean_and_slow_ones_above_a_gigabit() {
        let mut search = search(Algorithm::B);
        assert_eq!(rows(&mut search, CLEAN, 3), [10, 20, 30]);
        rows(&mut search, CLEAN, 97);
        assert_eq!(search.row(), 1000);
        assert_eq!(rows(&mut search, CLEAN, 2), [1001, 1002]);
    }

    #[test]
    fn b_backs_off_once_after_three_congested_feedbacks_and_is_slow_from_then_on() {
        let mut search = search(Algorithm::B);
        rows(&mut search, CLEAN, 10);
        assert_eq!(rows(&mut search, LOSSY, 4), [99, 98, 68, 67]);
        assert_eq!(rows(&mut search, CLEAN, 2), [68, 69]);
    }

    #[test]
    fn b_forgets_congestion_that_did_not_last() {
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
        assert!(search.row() >= 1000);
    }

    #[test]
    fn c_tries_to_be_fast_again_after_some_slow_steps() {
        let mut search = search(Algorithm::C);
        rows(&mut search, CLEAN, 12);
        let top = search.row();
        rows(&mut search, LOSSY, 3);
        assert!(search.row() < top);
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

    /// A bottleneck fed at constant rates, in virtual time: what is above its rate queues, what is above the queue
    /// is lost, and the feedback comes a round-trip time later.
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

    /// The highest second of ten that a search gets through the bottleneck, in Mbit/s.
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
            // Above 1 Gb/s a row is 100 Mbit/s, with these sizes.
            let row = search.row() as f64;
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

    /// The worst share of a bottleneck's rate that is found, over short and long queues and round trips.
    fn worst(algorithm: Algorithm, mbit: f64) -> f64 {
        let queues = [5.0, 40.0, 100.0, 300.0];
        let found = queues.iter().flat_map(|queue_ms| {
            [0, 1, 4].map(|delay_trials| found(algorithm, mbit, *queue_ms, delay_trials) / mbit)
        });
        let found: Vec<f64> = found.collect();
        assert!(found.iter().all(|share| *share < 1.0001), "{found:?}");
        found.into_iter().fold(1.0, f64::min)
    }

    #[test]
    fn both_find_the_capacity_of_a_bottleneck_in_ten_seconds() {
        for mbit in [48.0, 300.0, 950.0] {
            for algorithm in [Algorithm::B, Algorithm::C] {
                let share = worst(algorithm, mbit);
                assert!(share > 0.99, "{algorithm:?} {mbit} Mbit/s: {share}");
            }
        }
    }

    /// A row is 1 Mbit/s and a step back 30 rows: what the documentation says of slow paths.
    #[test]
    fn slow_paths_are_found_to_some_rows() {
        assert!(worst(Algorithm::B, 5.0) > 0.88);
        assert!(worst(Algorithm::C, 5.0) > 0.7);
        assert!(worst(Algorithm::B, 20.0) > 0.99);
        assert!(worst(Algorithm::C, 20.0) > 0.93);
    }

    proptest! {
        #[test]
        fn no_feedback_leads_off_the_table(
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
}
