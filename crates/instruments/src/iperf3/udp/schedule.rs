//! The departures of trains of datagrams, and statistics of the sender's punctuality. The schedule is absolute, so that
//! a late wake-up does not shift it.

use std::time::Duration;

use hdrhistogram::Histogram;
use model::Nanos;

/// The least gap between trains, if shorter trains would keep the rate as well. It means single datagrams up to about
/// 580 Mbit/s with 1,448 bytes.
const LEAST_GAP: Nanos = Nanos(20_000);
/// The approximate time within which a delay is made up for. The longer it is, the less the gaps are shortened.
const CATCH_UP_TIME: Nanos = Nanos(50_000_000);
/// The least share of a gap by which it is shortened (a fiftieth), so that small delays do not persist.
const LEAST_SHORTENING: u64 = 50;
/// The delay above which a sender skips what it missed.
const MOST_BEHIND: Nanos = Nanos(100_000_000);

/// The delay after the earliest possible time from which on a train counts as delayed by the sender.
const HELD_UP_DELAY: Nanos = Nanos(5_000);
/// The time for which a sender must delay every train before its trains become longer.
const OVERLOAD_TIME: Nanos = Nanos(100_000_000);
/// The gap between trains above which longer trains would not help a late sender.
const FREQUENT_GAP: Nanos = Nanos(100_000);

/// The delay from which on a train counts as late.
pub(super) const LATE: Nanos = Nanos(50_000);

/// The schedule of one stream.
///
/// A sender that cannot keep up with the number of trains per second doubles their length, repeatedly if necessary. It
/// then keeps the rate with longer bursts.
///
/// A late train does not shift later trains for long: the delay is spread over the gaps of the next [`CATCH_UP_TIME`].
/// Each gap is shortened by at least a fiftieth and at most a half. A sender that is 100 ms late skips what it missed.
#[derive(Clone, Debug)]
pub(super) struct TrainSchedule {
    start: Nanos,
    pace: Option<DatagramRate>,
    train: u64,
    /// Datagrams that have left since the start.
    left: u64,
    /// Time of the last train, and its number of datagrams.
    last: Option<(Nanos, u64)>,
    /// The time since which every train was delayed.
    held_up: Option<Nanos>,
    /// The most datagrams in a train.
    most: u64,
    /// The delay of the last train.
    late: Nanos,
}

/// A rate in datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramRate {
    /// Payload bits of a datagram.
    pub(super) bits: u64,
    /// Payload bits per second, above 0.
    pub(super) rate: u64,
}

/// The punctuality of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainTiming {
    /// The delay of its departure.
    pub(super) late: Nanos,
    /// The difference between its gap to the previous train and the ideal gap, or `None` for the first train.
    pub(super) gap_error: Option<Nanos>,
    /// Time that the schedule skipped because of it.
    pub(super) given_up: Nanos,
}

impl DatagramRate {
    /// Returns how long `datagrams` take.
    fn span(self, datagrams: u64) -> Nanos {
        let bits = u128::from(datagrams) * u128::from(self.bits);
        let nanos = bits * 1_000_000_000 / u128::from(self.rate);
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns how many datagrams are due within `time`, the first one at its start.
    pub(super) fn due_within(self, time: Duration) -> u64 {
        let work = u128::from(self.rate) * time.as_nanos();
        let one = u128::from(self.bits) * 1_000_000_000;
        u64::try_from(work.div_ceil(one)).unwrap_or(u64::MAX)
    }

    /// Returns the datagrams of a train: as few as keep trains [`LEAST_GAP`] apart when `streams` share a thread, and
    /// at most `most`.
    fn train(self, streams: u64, most: u64) -> u64 {
        let wanted = LEAST_GAP.0 * streams;
        let one = self.span(1).0.max(1);
        wanted.div_ceil(one).clamp(1, most)
    }
}

impl TrainSchedule {
    /// Returns the schedule of stream `index` of `streams` from `start` on, as fast as possible without a pace. Trains
    /// have at most `most` datagrams. Streams of the same rate take turns.
    pub(super) fn new(
        start: Nanos,
        pace: Option<DatagramRate>,
        (index, streams): (u64, u64),
        most: u64,
    ) -> Self {
        let train = pace.map_or(most, |pace| pace.train(streams, most));
        let turn = pace.map_or(0, |pace| pace.span(train).0 / streams * index);
        Self {
            start: Nanos(start.0.saturating_add(turn)),
            pace,
            train,
            left: 0,
            last: None,
            held_up: None,
            most,
            late: Nanos::ZERO,
        }
    }

    /// Returns the datagrams of a full train.
    pub(super) fn train(&self) -> u64 {
        self.train
    }

    /// Limits trains to `most` datagrams from now on.
    pub(super) fn limit_trains(&mut self, most: u64) {
        self.most = self.most.min(most);
        self.train = self.train.min(self.most);
    }

    /// Returns the time between two trains, or `None` without a pace.
    pub(super) fn gap(&self) -> Option<Nanos> {
        self.pace.map(|pace| pace.span(self.train))
    }

    /// Returns the earliest time at which the next train may leave.
    pub(super) fn next(&self) -> Nanos {
        let Some(pace) = self.pace else {
            // Streams without a pace take turns by the amount that they have sent.
            return Nanos(self.left);
        };
        let gap = pace.span(self.train).0;
        let shorter = u128::from(gap) * u128::from(self.late.0) / u128::from(CATCH_UP_TIME.0);
        let shorter = u64::try_from(shorter).unwrap_or(gap);
        let gap = gap - shorter.clamp(gap / LEAST_SHORTENING, gap / 2);
        let after_last = self.last.map_or(0, |(at, _)| at.0.saturating_add(gap));
        Nanos(self.due(pace).0.max(after_last))
    }

    /// Records that a train of `datagrams` left at `at`, and returns its punctuality, if there is a pace.
    pub(super) fn record_departure(&mut self, at: Nanos, datagrams: u64) -> Option<TrainTiming> {
        let Some(pace) = self.pace else {
            self.left += datagrams;
            return None;
        };
        let held_up = at.0.saturating_sub(self.next().0) > HELD_UP_DELAY.0;
        let late = Nanos(at.0.saturating_sub(self.due(pace).0));
        let given_up = if late > MOST_BEHIND {
            late
        } else {
            Nanos::ZERO
        };
        self.start += given_up;
        let gap_error = self.last.map(|(last, datagrams)| {
            let ideal = pace.span(datagrams).0;
            Nanos(at.0.saturating_sub(last.0).abs_diff(ideal))
        });
        self.left += datagrams;
        self.last = Some((at, datagrams));
        self.late = late;
        self.lengthen(pace, at, held_up);
        Some(TrainTiming {
            late,
            gap_error,
            given_up,
        })
    }

    /// Makes trains longer if every one of them has been delayed for a long time.
    fn lengthen(&mut self, pace: DatagramRate, at: Nanos, held_up: bool) {
        if !held_up || pace.span(self.train) > FREQUENT_GAP {
            self.held_up = None;
            return;
        }
        let since = *self.held_up.get_or_insert(at);
        if at.0 - since.0 > OVERLOAD_TIME.0 {
            self.train = (2 * self.train).min(self.most);
            self.held_up = None;
        }
    }

    /// Returns when the next train is due.
    fn due(&self, pace: DatagramRate) -> Nanos {
        Nanos(self.start.0.saturating_add(pace.span(self.left).0))
    }
}

/// Statistics of the departures of a stream, or of several.
#[derive(Clone, Debug)]
pub(super) struct PacingStats {
    /// |gap - ideal gap| between two trains in nanoseconds.
    gap_errors: Histogram<u64>,
    /// Trains that left.
    pub(super) trains: u64,
    /// Of these, the trains that left more than [`LATE`] after their time.
    pub(super) late: u64,
    /// Datagrams of a full train.
    pub(super) burst: u64,
    /// Time that the schedule skipped because the sender was too late.
    pub(super) given_up: Nanos,
}

impl PacingStats {
    /// Returns statistics without departures, with trains of at most `burst` datagrams.
    pub(super) fn new(burst: u64) -> Self {
        let mut gap_errors = Histogram::new(3).expect("three digits can be had");
        gap_errors.auto(true);
        Self {
            gap_errors,
            trains: 0,
            late: 0,
            burst,
            given_up: Nanos::ZERO,
        }
    }

    pub(super) fn add(&mut self, departure: TrainTiming) {
        self.trains += 1;
        self.late += u64::from(departure.late > LATE);
        self.given_up += departure.given_up;
        if let Some(error) = departure.gap_error {
            // Only a gap of more than 2^63 ns is too large.
            let _ = self.gap_errors.record(error.0);
        }
    }

    /// Returns the deviations of gaps from the ideal one in nanoseconds: median, 99th percentile, largest. `None` means
    /// fewer than two departures.
    pub(super) fn gap_errors_ns(&self) -> Option<[u64; 3]> {
        let errors = &self.gap_errors;
        (!errors.is_empty()).then(|| [0.5, 0.99, 1.0].map(|share| errors.value_at_quantile(share)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACE: DatagramRate = DatagramRate {
        bits: 11_584,
        rate: 50_000_000,
    };
    const GAP: u64 = 231_680;

    fn alone(pace: DatagramRate) -> TrainSchedule {
        TrainSchedule::new(Nanos(1_000), Some(pace), (0, 1), 45)
    }

    #[test]
    fn trains_are_as_short_as_the_rate_allows() {
        let train = |rate| alone(DatagramRate { rate, ..PACE }).train();
        assert_eq!(train(50_000_000), 1);
        assert_eq!(train(500_000_000), 1);
        assert_eq!(train(1_000_000_000), 2);
        assert_eq!(train(10_000_000_000), 18);
        assert_eq!(train(100_000_000_000), 45);
    }

    #[test]
    fn the_datagrams_of_a_time_are_those_that_are_due_before_its_end() {
        let within = |bytes: u64, rate, ms| {
            let pace = DatagramRate {
                bits: bytes * 8,
                rate,
            };
            pace.due_within(Duration::from_millis(ms))
        };
        // One datagram a second is due at 0 s, 1 s and 2 s.
        assert_eq!(within(1_000, 8_000, 3_000), 3);
        assert_eq!(within(1_000, 8_000, 2_001), 3);
        assert_eq!(within(1_000, 8_000, 2_000), 2);
        assert_eq!(within(1_460, 1_000_000, 10_000), 857);
        assert_eq!(within(65_507, 1, 1), 1);
        let fastest = DatagramRate {
            bits: 8,
            rate: u64::MAX,
        };
        assert_eq!(fastest.due_within(Duration::from_secs(87_000)), u64::MAX);
    }

    #[test]
    fn trains_become_shorter_when_the_kernel_refuses_them() {
        let mut schedule = alone(DatagramRate {
            rate: 10_000_000_000,
            ..PACE
        });
        assert_eq!(schedule.train(), 18);
        schedule.limit_trains(1);
        assert_eq!(schedule.train(), 1);
        assert_eq!(schedule.gap(), Some(Nanos(1_158)));
    }

    #[test]
    fn a_delay_is_made_up_for_by_shorter_gaps() {
        let mut schedule = alone(PACE);
        assert_eq!(schedule.next(), Nanos(1_000));
        schedule.record_departure(Nanos(1_000), 1);
        assert_eq!(schedule.next(), Nanos(1_000 + GAP));
        let mut at = Nanos(1_000 + 3 * GAP);
        let departure = schedule.record_departure(at, 1).unwrap();
        assert_eq!(departure.late, Nanos(2 * GAP));
        assert_eq!(departure.gap_error, Some(Nanos(2 * GAP)));
        for _ in 0..100 {
            assert_eq!(schedule.next(), Nanos(at.0 + GAP - GAP / LEAST_SHORTENING));
            at = schedule.next();
            schedule.record_departure(at, 1);
        }
        assert_eq!(schedule.next(), Nanos(1_000 + GAP * 102));
    }

    #[test]
    fn a_longer_delay_shortens_gaps_more() {
        let gap_after = |late| {
            let mut schedule = alone(PACE);
            schedule.record_departure(Nanos(1_000 + late), 1);
            schedule.next().0 - 1_000 - late
        };
        assert_eq!(gap_after(10_000_000), GAP - GAP / 5);
        assert_eq!(gap_after(40_000_000), GAP - GAP / 2);
    }

    #[test]
    fn a_delay_of_100_ms_is_skipped() {
        let mut schedule = alone(PACE);
        let late = Nanos(1_000 + MOST_BEHIND.0 + 1);
        let departure = schedule.record_departure(late, 1).unwrap();
        assert_eq!(departure.given_up, Nanos(MOST_BEHIND.0 + 1));
        assert_eq!(schedule.next(), Nanos(late.0 + GAP));
        let departure = schedule.record_departure(schedule.next(), 1).unwrap();
        assert_eq!(departure.given_up, Nanos::ZERO);
    }

    #[test]
    fn a_sender_that_is_always_late_sends_longer_trains_until_it_keeps_up() {
        let mut schedule = alone(DatagramRate {
            rate: 1_000_000_000,
            ..PACE
        });
        // Each sending takes 30 us, in which 2.6 datagrams are due.
        let mut now = Nanos(1_000);
        for _ in 0..60_000 {
            now = Nanos(schedule.next().0.max(now.0 + 30_000));
            schedule.record_departure(now, schedule.train());
        }
        assert_eq!(schedule.train(), 4);
        assert!(now.0 - schedule.due(schedule.pace.unwrap()).0.min(now.0) < 50_000);
    }

    #[test]
    fn occasional_delays_do_not_lengthen_trains() {
        let mut schedule = alone(DatagramRate {
            rate: 1_000_000_000,
            ..PACE
        });
        for round in 0..20_000 {
            let late = if round % 1_000 == 0 { 5_000_000 } else { 0 };
            let at = Nanos(schedule.next().0 + late);
            schedule.record_departure(at, schedule.train());
        }
        assert_eq!(schedule.train(), 2);
    }

    #[test]
    fn streams_take_turns() {
        let next = |index| TrainSchedule::new(Nanos(0), Some(PACE), (index, 4), 45).next();
        assert_eq!(
            [next(0), next(1), next(3)].map(|n| n.0),
            [0, GAP / 4, GAP / 4 * 3]
        );
    }

    proptest! {
        #[test]
        fn the_schedule_never_drifts(
            lateness in proptest::collection::vec(0..20_000_000u64, 1..500),
            rate in 1_000..100_000_000_000u64,
        ) {
            let pace = DatagramRate { rate, ..PACE };
            let mut schedule = alone(pace);
            let (mut now, mut left, mut given_up) = (0, 0, 0);
            for late in lateness {
                now = schedule.next().0.max(now) + late;
                left += schedule.train();
                let departure = schedule.record_departure(Nanos(now), schedule.train());
                given_up += departure.unwrap().given_up.0;
                prop_assert_eq!(
                    schedule.due(pace),
                    Nanos(1_000 + given_up + pace.span(left).0)
                );
            }
        }
    }
}
