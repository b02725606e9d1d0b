//! The load's receiver, which counts arrivals and makes feedback from them. It is pure, and takes the time as an
//! argument.

use std::collections::VecDeque;

use model::Nanos;

use super::wire::{
    ArrivalCounts, FeedbackMessage, LoadHeader, NO_DELAY, Stamp, SubInterval, TestAction,
};
use crate::seen_numbers::{SeenNumbers, SequenceVerdict};

/// The number of sequence numbers up to the highest that are remembered, to distinguish a late datagram from a
/// duplicate.
const REMEMBERED: u64 = 4096;
/// The rate of the fastest sender: the table's last rows send 100 datagrams every 100 us. A number further ahead is
/// wrong.
const FASTEST_PER_S: f64 = 1_000_000.0;
const AHEAD_AT_ONCE: f64 = 200_000.0;
/// The number of feedback messages whose sending times are remembered, to recognise the one that a load PDU answers.
const FEEDBACK_REMEMBERED: usize = 1024;
/// The time without load after which feedback reports it.
const SILENCE: Nanos = Nanos(1_000_000_000);
/// A sub-interval ends with its last datagram if that is this recent, otherwise with its feedback, so that a stall
/// counts.
const RECENT: u64 = 2_000_000;
/// The difference between kernel timestamps and this program's clock that means that the wall clock was set.
const CLOCK_STEP: u64 = 50_000_000;

/// The time of an event on two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrivalTime {
    /// The monotonic clock, for durations.
    pub(crate) mono: Nanos,
    /// The wall clock in nanoseconds since 1970, for messages to the far end.
    pub(crate) wall: u64,
}

/// A counter of the load PDUs of a test.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    sub_interval_ms: u16,
    feedback_ms: u16,
    seen: SeenNumbers<REMEMBERED>,
    /// The start of the current trial interval, and its counts.
    trial_began: Nanos,
    trial: FeedbackMessage,
    /// The counts of the current sub-interval, and of the last complete one.
    open: SubInterval,
    whole: SubInterval,
    number: u32,
    /// The start of the current sub-interval, which is the end of the last complete one. `None` before the first
    /// feedback.
    began: Option<ArrivalTime>,
    elapsed_us: u64,
    first_arrival: Option<ArrivalTime>,
    last_arrival: Option<ArrivalTime>,
    clock_delta_min: Option<i64>,
    rtt_min_ms: Option<u32>,
    answered: Stamp,
    feedback_sent: VecDeque<Stamp>,
    sequence: u32,
    /// The counts of the whole test.
    pub(super) totals: LoadTotals,
}

/// The counts of a whole test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadTotals {
    /// The highest sequence number, which is the number of PDUs sent up to the last that arrived.
    pub(crate) highest: u32,
    /// Datagrams without duplicates.
    pub(crate) distinct: u64,
    /// UDP payload of all datagrams in bytes.
    pub(crate) bytes: u64,
    /// The latest round-trip time in milliseconds.
    pub(crate) rtt_ms: Option<u32>,
    /// Datagrams that arrived after a later one.
    pub(crate) reordered: u64,
    /// Datagrams that arrived before.
    pub(crate) duplicated: u64,
    /// Datagrams with numbers that no sender can have reached. They are in none of the other counts.
    pub(crate) implausible: u64,
    /// Feedback messages that the load's sender reports as missed.
    pub(crate) feedback_missed: u64,
}

#[derive(Clone, Copy)]
enum ArrivalOrder {
    /// The number is ahead; `missing` numbers before it have not arrived yet.
    Next {
        missing: u32,
    },
    Late,
    Copy,
}

impl Receiver {
    /// Returns a receiver that waits for load from `now` on, with feedback and sub-intervals of these lengths.
    pub(crate) fn new(now: Nanos, feedback_ms: u16, sub_interval_ms: u16) -> Self {
        Self {
            sub_interval_ms,
            feedback_ms,
            seen: SeenNumbers::new(),
            trial_began: now,
            trial: empty_trial(),
            ..Self::default()
        }
    }

    /// Counts a load PDU of `bytes` UDP payload bytes that arrived at `at`.
    pub(crate) fn load(&mut self, at: ArrivalTime, header: &LoadHeader, bytes: usize) {
        if !self.is_plausible(at, header.sequence) {
            self.totals.implausible += 1;
            return;
        }
        self.first_arrival.get_or_insert(at);
        self.last_arrival = Some(at);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.trial.trial_datagrams = self.trial.trial_datagrams.saturating_add(1);
        self.trial.trial_bytes = self.trial.trial_bytes.saturating_add(bytes);
        self.open.datagrams = self.open.datagrams.saturating_add(1);
        self.open.bytes += u64::from(bytes);
        self.totals.bytes += u64::from(bytes);
        let order = ArrivalOrder::of(header.sequence, &mut self.seen);
        self.trial.counts.add(order);
        self.open.counts.add(order);
        match order {
            ArrivalOrder::Next { .. } => {
                self.totals.highest = header.sequence;
                self.totals.distinct += 1;
                self.round_trip(at, header);
                self.one_way(at, header);
            }
            ArrivalOrder::Late => {
                self.totals.reordered += 1;
                self.totals.distinct += 1;
            }
            ArrivalOrder::Copy => self.totals.duplicated += 1,
        }
    }

    /// Returns the feedback on the trial interval that ends now, without the rate. `None` before the first load PDU.
    pub(crate) fn feedback(
        &mut self,
        now: ArrivalTime,
        action: TestAction,
    ) -> Option<FeedbackMessage> {
        self.last_arrival?;
        self.sequence += 1;
        let status = FeedbackMessage {
            action,
            sequence: self.sequence,
            sent: Stamp::of(now.wall),
            sub_interval_number: self.number,
            sub_interval: self.whole,
            ..self.peek(now)
        };
        self.feedback_sent.push_back(status.sent);
        if self.feedback_sent.len() > FEEDBACK_REMEMBERED {
            self.feedback_sent.pop_front();
        }
        self.trial_began = now.mono;
        self.trial = empty_trial();
        self.close_sub_interval(now);
        Some(status)
    }

    /// Returns the feedback on the current trial interval without ending it, so that a rate can be chosen.
    pub(crate) fn peek(&self, now: ArrivalTime) -> FeedbackMessage {
        let silent = |last: ArrivalTime| now.mono > last.mono + SILENCE;
        FeedbackMessage {
            load_stopped: self.last_arrival.is_some_and(silent),
            clock_delta_min_ms: wrapped(to_ms(self.clock_delta_min.unwrap_or_default())),
            rtt_min_ms: self.rtt_min_ms.unwrap_or(NO_DELAY),
            trial_us: to_us(now.mono.0.saturating_sub(self.trial_began.0)),
            ..self.trial
        }
    }

    /// Returns the number of complete sub-intervals, the last of them, and its end in nanoseconds since 1970.
    pub(crate) fn last_sub_interval(&self) -> (u32, SubInterval, Option<u64>) {
        let ended = self.began.map(|moment| moment.wall);
        (self.number, self.whole, ended)
    }

    fn is_plausible(&self, at: ArrivalTime, sequence: u32) -> bool {
        let since = self
            .first_arrival
            .map_or(0, |first| at.mono.0.saturating_sub(first.mono.0));
        sequence > 0 && f64::from(sequence) <= AHEAD_AT_ONCE + since as f64 / 1e9 * FASTEST_PER_S
    }

    /// Records a round trip: of a feedback message and the first load PDU that carries its sending time.
    fn round_trip(&mut self, at: ArrivalTime, header: &LoadHeader) {
        let stamp = header.feedback_stamp;
        if stamp.is_unset() || stamp == self.answered || !self.feedback_sent.contains(&stamp) {
            return;
        }
        self.answered = stamp;
        // The sender reports feedback that arrived out of order with the largest number.
        let missed = Some(header.feedback_missed).filter(|missed| *missed != u16::MAX);
        self.totals.feedback_missed += u64::from(missed.unwrap_or_default());
        let Some(there_and_back) = at.wall.checked_sub(stamp.nanos()) else {
            return; // The clock was set back.
        };
        let whole = u32::try_from(to_ms(i64::try_from(there_and_back).unwrap_or(i64::MAX)))
            .unwrap_or(u32::MAX);
        // Both ends round to milliseconds, so that the answer's delay can exceed the round trip by one.
        let rtt = whole.saturating_sub(header.response_delay_ms.into());
        self.totals.rtt_ms = Some(rtt);
        let least = self.rtt_min_ms.get_or_insert(u32::MAX);
        if rtt < *least {
            *least = rtt;
            self.trial.minimum_updated = true;
        }
        let above = rtt - *least;
        self.trial.rtt_variation_ms = above;
        self.open.rtt_min_ms = self.open.rtt_min_ms.min(above);
        self.open.rtt_max_ms = self.open.rtt_max_ms.max(above);
    }

    /// Records the one-way delay above its least, in which the difference of the clocks cancels out.
    fn one_way(&mut self, at: ArrivalTime, header: &LoadHeader) {
        let delta = i128::from(at.wall) - i128::from(header.sent.nanos());
        let delta = i64::try_from(delta).unwrap_or_default();
        let before = self.clock_delta_min;
        let least = before.map_or(delta, |least| least.min(delta));
        self.clock_delta_min = Some(least);
        self.trial.minimum_updated |= before != Some(least);
        if before.is_some() {
            let above = u32::try_from(to_ms(delta - least)).unwrap_or(NO_DELAY - 1);
            self.trial.delays.add(above);
            self.open.delays.add(above);
        }
    }

    /// Ends the sub-interval if it is over, to the nearest feedback, as the reference does.
    ///
    /// It lasts from the last arrival before its start to its own last arrival, so that this program's wake-up time is
    /// not included.
    fn close_sub_interval(&mut self, now: ArrivalTime) {
        let recent = |last: &ArrivalTime| now.wall.saturating_sub(last.wall) <= RECENT;
        let end = self.last_arrival.filter(recent).unwrap_or(now);
        let Some(began) = self.began else {
            self.began = Some(end);
            self.open = SubInterval::default();
            return;
        };
        let length_ms = now.mono.0.saturating_sub(began.mono.0) / 1_000_000;
        let enough =
            u64::from(self.sub_interval_ms).saturating_sub(u64::from(self.feedback_ms) / 2);
        if length_ms <= enough {
            return;
        }
        let span = span(began, end);
        self.elapsed_us += span / 1_000;
        self.open.span_us = to_us(span);
        self.open.elapsed_ms = u32::try_from(self.elapsed_us / 1_000).unwrap_or(u32::MAX);
        self.whole = std::mem::take(&mut self.open);
        self.number += 1;
        self.began = Some(end);
    }
}

/// Returns the time between two moments in nanoseconds, by the kernel's timestamps unless the clock was set in between.
fn span(from: ArrivalTime, to: ArrivalTime) -> u64 {
    let mono = to.mono.0.saturating_sub(from.mono.0);
    let wall = to.wall.saturating_sub(from.wall);
    if wall.abs_diff(mono) > CLOCK_STEP {
        mono
    } else {
        wall
    }
}

/// Returns a trial interval without arrivals.
fn empty_trial() -> FeedbackMessage {
    FeedbackMessage {
        rtt_variation_ms: NO_DELAY,
        ..FeedbackMessage::default()
    }
}

impl ArrivalCounts {
    /// Counts one datagram. A late one is no longer lost.
    fn add(&mut self, order: ArrivalOrder) {
        match order {
            ArrivalOrder::Next { missing } => self.lost = self.lost.saturating_add(missing),
            ArrivalOrder::Late => {
                self.reordered = self.reordered.saturating_add(1);
                self.lost = self.lost.saturating_sub(1);
            }
            ArrivalOrder::Copy => self.duplicated = self.duplicated.saturating_add(1),
        }
    }
}

impl ArrivalOrder {
    /// Classifies the datagram with this number. One that is too old to be remembered counts as late.
    fn of(sequence: u32, seen: &mut SeenNumbers<REMEMBERED>) -> Self {
        let ahead = u64::from(sequence).checked_sub(seen.highest + 1);
        match (ahead, seen.insert(sequence.into())) {
            (Some(missing), _) => Self::Next {
                missing: u32::try_from(missing).unwrap_or(u32::MAX),
            },
            (None, SequenceVerdict::Again) => Self::Copy,
            (None, SequenceVerdict::New | SequenceVerdict::TooLate) => Self::Late,
        }
    }
}

fn to_ms(nanos: i64) -> i64 {
    // As in the reference, the result is rounded to the nearest millisecond, so that both ends agree on 0.
    (nanos + 500_000).div_euclid(1_000_000)
}

/// Returns a clock difference in the form of the protocol and the reference, 32 bits that wrap.
fn wrapped(ms: i64) -> i32 {
    u32::try_from(ms.rem_euclid(1 << 32))
        .unwrap_or_default()
        .cast_signed()
}

fn to_us(nanos: u64) -> u32 {
    u32::try_from((nanos + 500) / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u64 = 1_700_000_000_000_000_000;

    fn at_ms(ms: u64) -> ArrivalTime {
        ArrivalTime {
            mono: Nanos(ms * 1_000_000),
            wall: WALL + ms * 1_000_000,
        }
    }

    /// Returns a PDU that was sent 5 ms before `ms` by a clock that is 2 s ahead.
    fn header(sequence: u32, ms: u64) -> LoadHeader {
        LoadHeader {
            sequence,
            sent: Stamp::of(WALL + (ms + 2_000 - 5) * 1_000_000),
            ..LoadHeader::default()
        }
    }

    fn receiver() -> Receiver {
        Receiver::new(Nanos(0), 50, 1000)
    }

    #[test]
    fn there_is_no_feedback_before_the_first_load() {
        assert!(
            receiver()
                .feedback(at_ms(50), TestAction::Testing)
                .is_none()
        );
    }

    #[test]
    fn loss_reordering_and_duplicates_are_distinguished() {
        let mut receiver = receiver();
        for sequence in [1, 2, 5, 4, 4, 5, 6] {
            receiver.load(at_ms(1), &header(sequence, 1), 100);
        }
        let status = receiver.feedback(at_ms(50), TestAction::Testing).unwrap();
        assert_eq!(status.counts.lost, 1);
        assert_eq!(status.counts.reordered, 1);
        assert_eq!(status.counts.duplicated, 2);
        assert_eq!((status.trial_datagrams, status.trial_bytes), (7, 700));
        let totals = receiver.totals;
        assert_eq!((totals.highest, totals.distinct), (6, 5));
        assert_eq!(status.trial_us, 50_000);
        let next = receiver.feedback(at_ms(100), TestAction::Testing).unwrap();
        assert_eq!(next.sequence, 2);
        assert_eq!(next.counts.lost, 0);
        assert_eq!(next.trial_datagrams, 0);
    }

    #[test]
    fn delay_variation_is_relative_to_the_least_delay_with_any_clocks() {
        let mut receiver = receiver();
        receiver.load(at_ms(10), &header(1, 10), 100);
        receiver.load(at_ms(20), &header(2, 13), 100);
        receiver.load(at_ms(21), &header(3, 20), 100);
        let status = receiver.feedback(at_ms(50), TestAction::Testing).unwrap();
        assert_eq!(status.clock_delta_min_ms, -1995);
        assert_eq!((status.delays.min_ms, status.delays.max_ms), (1, 7));
        assert_eq!((status.delays.sum_ms, status.delays.count), (8, 2));
    }

    #[test]
    fn a_round_trip_is_measured_once_per_sent_feedback() {
        let mut receiver = receiver();
        receiver.load(at_ms(1), &header(1, 1), 100);
        let first = receiver.feedback(at_ms(50), TestAction::Testing).unwrap();
        assert_eq!(first.rtt_variation_ms, NO_DELAY);
        let answer = |sequence, ms, stamp, response_delay_ms| LoadHeader {
            feedback_stamp: stamp,
            response_delay_ms,
            ..header(sequence, ms)
        };
        receiver.load(at_ms(80), &answer(2, 80, first.sent, 10), 100);
        receiver.load(at_ms(90), &answer(3, 90, first.sent, 0), 100);
        receiver.load(at_ms(95), &answer(4, 95, Stamp::of(77), 0), 100);
        let second = receiver.feedback(at_ms(100), TestAction::Testing).unwrap();
        assert_eq!((second.rtt_min_ms, second.rtt_variation_ms), (20, 0));
        receiver.load(at_ms(145), &answer(5, 145, second.sent, 0), 100);
        let third = receiver.feedback(at_ms(150), TestAction::Testing).unwrap();
        assert_eq!((third.rtt_min_ms, third.rtt_variation_ms), (20, 25));
    }

    #[test]
    fn a_sub_interval_lasts_from_arrival_to_arrival() {
        let mut receiver = receiver();
        let (mut last, mut sequence) = (None, 0);
        for ms in 1..=2_200 {
            sequence += 1;
            receiver.load(at_ms(ms), &header(sequence, ms), 1000);
            if ms % 50 == 0 {
                // Feedback is late by 0.7 ms, which must not count.
                let mut late = at_ms(ms);
                late.mono.0 += 700_000;
                last = receiver.feedback(late, TestAction::Testing);
            }
        }
        let status = last.unwrap();
        assert_eq!(status.sub_interval_number, 2);
        assert_eq!(status.sub_interval.bytes, 1_000_000);
        assert_eq!(status.sub_interval.span_us, 1_000_000);
        assert_eq!(status.sub_interval.elapsed_ms, 2_000);
        let (number, _, ended) = receiver.last_sub_interval();
        assert_eq!((number, ended), (2, Some(at_ms(2_050).wall)));
    }

    #[test]
    fn implausible_numbers_are_not_counted() {
        let mut receiver = receiver();
        receiver.load(at_ms(1), &header(1, 1), 100);
        for sequence in [u32::MAX, 300_000, 0] {
            receiver.load(at_ms(2), &header(sequence, 2), 100);
        }
        receiver.load(at_ms(3), &header(2, 3), 100);
        assert_eq!(receiver.totals.implausible, 3);
        let status = receiver.feedback(at_ms(50), TestAction::Testing).unwrap();
        assert_eq!((status.trial_datagrams, status.counts.lost), (2, 0));
    }

    #[test]
    fn feedback_reports_a_silence_of_the_load() {
        let mut receiver = receiver();
        receiver.load(at_ms(1), &header(1, 1), 100);
        assert!(!receiver.peek(at_ms(900)).load_stopped);
        assert!(receiver.peek(at_ms(1_100)).load_stopped);
    }
}
