//! The load's receiver: counts what comes and makes feedback of it. Pure: time is an argument.

use std::collections::VecDeque;

use model::Nanos;

use super::wire::{
    ArrivalCounts, FeedbackMessage, LoadHeader, NO_DELAY, Stamp, SubInterval, TestAction,
};
use crate::seen_numbers::{SeenNumbers, SequenceVerdict};

/// Sequence numbers behind the highest that are remembered, to tell a late datagram from a copy.
const REMEMBERED: u64 = 4096;
/// No sender is faster than the table's last rows, 100 datagrams each 100 us; a number further ahead is a wrong one.
const FASTEST_PER_S: f64 = 1_000_000.0;
const AHEAD_AT_ONCE: f64 = 200_000.0;
/// Feedback messages whose sending times are remembered, to know the one that a load PDU answers.
const FEEDBACK_REMEMBERED: usize = 1024;
/// After so long without load, feedback says so.
const SILENCE: Nanos = Nanos(1_000_000_000);
/// A sub-interval ends with its last datagram if that is so recent, else with its feedback: a stall counts.
const RECENT: u64 = 2_000_000;
/// Stamps of the kernel that differ so much from this program's time are of a clock that was set.
const CLOCK_STEP: u64 = 50_000_000;

/// When something happened: on the one clock and on the wall's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrivalTime {
    /// For lengths of time.
    pub(crate) mono: Nanos,
    /// Nanoseconds since 1970, for what goes to the far end.
    pub(crate) wall: u64,
}

/// Counts load PDUs over a test.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    sub_interval_ms: u16,
    feedback_ms: u16,
    seen: SeenNumbers<REMEMBERED>,
    /// When the trial interval under way began, and what came in it.
    trial_began: Nanos,
    trial: FeedbackMessage,
    /// The sub-interval under way, and the last whole one.
    open: SubInterval,
    whole: SubInterval,
    number: u32,
    /// Where the sub-interval under way began, and so the last whole one ended; none before the first feedback.
    began: Option<ArrivalTime>,
    elapsed_us: u64,
    first_arrival: Option<ArrivalTime>,
    last_arrival: Option<ArrivalTime>,
    clock_delta_min: Option<i64>,
    rtt_min_ms: Option<u32>,
    answered: Stamp,
    feedback_sent: VecDeque<Stamp>,
    sequence: u32,
    /// Of the whole test.
    pub(super) totals: LoadTotals,
}

/// What came in the whole test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadTotals {
    /// The highest sequence number: so many were sent, up to the last that came.
    pub(crate) highest: u32,
    /// Datagrams, copies left out.
    pub(crate) distinct: u64,
    /// Datagrams behind a later one.
    pub(crate) reordered: u64,
    /// Datagrams received before.
    pub(crate) duplicated: u64,
    /// Datagrams with numbers that no sender can have reached; they are in none of the counts above.
    pub(crate) implausible: u64,
    /// Feedback messages that the load's sender says it missed.
    pub(crate) feedback_missed: u64,
}

#[derive(Clone, Copy)]
enum Order {
    /// Ahead, after so many that did not come yet.
    Next {
        missing: u32,
    },
    Late,
    Copy,
}

impl Receiver {
    /// Waits for load from `now` on, with feedback and sub-intervals of these lengths.
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

    /// Takes a load PDU of `bytes` UDP payload bytes that arrived at `at`.
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
        let order = Order::of(header.sequence, &mut self.seen);
        self.trial.counts.add(order);
        self.open.counts.add(order);
        match order {
            Order::Next { .. } => {
                self.totals.highest = header.sequence;
                self.totals.distinct += 1;
                self.round_trip(at, header);
                self.one_way(at, header);
            }
            Order::Late => {
                self.totals.reordered += 1;
                self.totals.distinct += 1;
            }
            Order::Copy => self.totals.duplicated += 1,
        }
    }

    /// The feedback on the trial interval that ends now, without the rate; none before the first load PDU.
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

    /// What the feedback on the trial interval under way would say, so that a rate can be chosen by it.
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

    /// Whole sub-intervals so far, the last of them, and when it ended: nanoseconds since 1970.
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

    /// A round trip: a feedback message's, answered by the first load PDU that carries its time.
    fn round_trip(&mut self, at: ArrivalTime, header: &LoadHeader) {
        let stamp = header.feedback_stamp;
        if stamp.is_unset() || stamp == self.answered || !self.feedback_sent.contains(&stamp) {
            return;
        }
        self.answered = stamp;
        // The sender marks feedback that came out of order with the largest number.
        let missed = Some(header.feedback_missed).filter(|missed| *missed != u16::MAX);
        self.totals.feedback_missed += u64::from(missed.unwrap_or_default());
        let Some(there_and_back) = at.wall.checked_sub(stamp.nanos()) else {
            return; // The clock was set back.
        };
        let whole = u32::try_from(to_ms(i64::try_from(there_and_back).unwrap_or(i64::MAX)))
            .unwrap_or(u32::MAX);
        // Both ends round to milliseconds, so that the answer's delay can exceed the whole by one.
        let rtt = whole.saturating_sub(header.response_delay_ms.into());
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

    /// One-way delay above its least: the clocks' difference falls out.
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

    /// Ends the sub-interval when it is over, to the nearest feedback, as the reference does.
    ///
    /// It reaches from the last arrival before its start to its own last arrival, so that the time that this program
    /// needed to wake up is not in it.
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

/// From one moment to a later one, in nanoseconds: by the kernel's stamps, unless the clock was set in between.
fn span(from: ArrivalTime, to: ArrivalTime) -> u64 {
    let mono = to.mono.0.saturating_sub(from.mono.0);
    let wall = to.wall.saturating_sub(from.wall);
    if wall.abs_diff(mono) > CLOCK_STEP {
        mono
    } else {
        wall
    }
}

/// A trial interval in which nothing came yet.
fn empty_trial() -> FeedbackMessage {
    FeedbackMessage {
        rtt_variation_ms: NO_DELAY,
        ..FeedbackMessage::default()
    }
}

impl ArrivalCounts {
    /// Counts one more datagram; a late one is no longer lost.
    fn add(&mut self, order: Order) {
        match order {
            Order::Next { missing } => self.lost = self.lost.saturating_add(missing),
            Order::Late => {
                self.reordered = self.reordered.saturating_add(1);
                self.lost = self.lost.saturating_sub(1);
            }
            Order::Copy => self.duplicated = self.duplicated.saturating_add(1),
        }
    }
}

impl Order {
    /// Of the datagram with this number; what is too long ago to be remembered is late.
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
    // The reference rounds to the nearest, so that both ends agree on 0.
    (nanos + 500_000).div_euclid(1_000_000)
}

/// As the protocol carries it and the reference makes it: 32 bits that wrap.
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

    /// A PDU sent 5 ms before `ms` by a clock that is 2 s ahead.
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
    fn nothing_is_fed_back_before_the_first_load() {
        assert!(
            receiver()
                .feedback(at_ms(50), TestAction::Testing)
                .is_none()
        );
    }

    #[test]
    fn loss_reordering_and_copies_are_told_apart() {
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
    fn delay_variation_is_above_the_least_delay_whatever_the_clocks() {
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
    fn a_round_trip_is_taken_once_and_only_of_feedback_that_was_sent() {
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
    fn a_sub_interval_reaches_from_arrival_to_arrival() {
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
    fn numbers_that_no_sender_can_have_reached_are_not_counted() {
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
    fn silence_of_the_load_is_said() {
        let mut receiver = receiver();
        receiver.load(at_ms(1), &header(1, 1), 100);
        assert!(!receiver.peek(at_ms(900)).load_stopped);
        assert!(receiver.peek(at_ms(1_100)).load_stopped);
    }
}
