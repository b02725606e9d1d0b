//! The load's receiver: counts what comes and makes feedback of it. Pure: time is an argument.

use std::collections::VecDeque;

use model::Nanos;

use super::wire::{Action, LoadHeader, NO_DELAY, Stamp, Status, SubInterval};

/// Sequence numbers behind the highest that are remembered, to tell a late datagram from a copy.
const REMEMBERED: u32 = 4096;
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
pub(crate) struct Moment {
    /// For lengths of time.
    pub(crate) mono: Nanos,
    /// Nanoseconds since 1970, for what goes to the far end.
    pub(crate) wall: u64,
}

/// Counts load PDUs over a test.
#[derive(Debug)]
pub(crate) struct Receiver {
    sub_interval_ms: u16,
    feedback_ms: u16,
    seen: Seen,
    trial: Trial,
    /// The sub-interval under way, and the last whole one.
    open: SubInterval,
    whole: SubInterval,
    number: u32,
    /// Where the sub-interval under way began, and so the last whole one ended; none before the first feedback.
    began: Option<Moment>,
    elapsed_us: u64,
    last_arrival: Option<Moment>,
    first: Option<Moment>,
    clock_delta_min: Option<i64>,
    rtt_min_ms: Option<u32>,
    answered: Stamp,
    feedback_sent: VecDeque<Stamp>,
    sequence: u32,
    totals: Totals,
}

/// What came in the whole test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The highest sequence number: so many were sent, up to the last that came.
    pub(crate) highest: u32,
    /// Datagrams, copies left out.
    pub(crate) distinct: u64,
    /// Datagrams behind a later one.
    pub(crate) reordered: u64,
    /// Datagrams received before.
    pub(crate) duplicated: u64,
    /// Datagrams with numbers that no sender can have reached; they are nothing of the above.
    pub(crate) implausible: u64,
    /// Feedback messages that the load's sender says it missed.
    pub(crate) feedback_missed: u64,
}

/// What came since the last feedback.
#[derive(Clone, Copy, Debug)]
struct Trial {
    began: Nanos,
    status: Status,
}

/// Which sequence numbers came.
#[derive(Debug)]
struct Seen {
    highest: u32,
    /// A bit for each of the last [`REMEMBERED`] numbers, by the number's remainder.
    bits: Vec<bool>,
}

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
            seen: Seen {
                highest: 0,
                bits: vec![false; REMEMBERED as usize],
            },
            trial: Trial::new(now),
            open: SubInterval::default(),
            whole: SubInterval::default(),
            number: 0,
            began: None,
            elapsed_us: 0,
            last_arrival: None,
            first: None,
            clock_delta_min: None,
            rtt_min_ms: None,
            answered: Stamp::default(),
            feedback_sent: VecDeque::new(),
            sequence: 0,
            totals: Totals::default(),
        }
    }

    /// Takes a load PDU of `bytes` UDP payload bytes that arrived at `at`.
    pub(crate) fn load(&mut self, at: Moment, header: &LoadHeader, bytes: usize) {
        if !self.is_plausible(at, header.sequence) {
            self.totals.implausible += 1;
            return;
        }
        self.first.get_or_insert(at);
        self.last_arrival = Some(at);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let trial = &mut self.trial.status;
        trial.trial_datagrams = trial.trial_datagrams.saturating_add(1);
        trial.trial_bytes = trial.trial_bytes.saturating_add(bytes);
        self.open.datagrams = self.open.datagrams.saturating_add(1);
        self.open.bytes += u64::from(bytes);
        match self.seen.take(header.sequence) {
            Order::Next { missing } => {
                trial.lost = trial.lost.saturating_add(missing);
                self.open.lost = self.open.lost.saturating_add(missing);
                self.totals.highest = header.sequence;
                self.totals.distinct += 1;
                self.round_trip(at, header);
                self.one_way(at, header);
            }
            Order::Late => {
                trial.reordered = trial.reordered.saturating_add(1);
                trial.lost = trial.lost.saturating_sub(1);
                self.open.reordered = self.open.reordered.saturating_add(1);
                self.totals.reordered += 1;
                self.totals.distinct += 1;
                self.open.lost = self.open.lost.saturating_sub(1);
            }
            Order::Copy => {
                trial.duplicated = trial.duplicated.saturating_add(1);
                self.open.duplicated = self.open.duplicated.saturating_add(1);
                self.totals.duplicated += 1;
            }
        }
    }

    /// The feedback on the trial interval that ends now, without the rate; none before the first load PDU.
    pub(crate) fn feedback(&mut self, now: Moment, action: Action) -> Option<Status> {
        self.last_arrival?;
        self.sequence += 1;
        let mut status = self.peek(now);
        status.action = action;
        status.sequence = self.sequence;
        status.sent = Stamp::of(now.wall);
        status.sub_interval_number = self.number;
        status.sub_interval = self.whole;
        self.feedback_sent.push_back(status.sent);
        if self.feedback_sent.len() > FEEDBACK_REMEMBERED {
            self.feedback_sent.pop_front();
        }
        self.trial = Trial::new(now.mono);
        self.close_sub_interval(now);
        Some(status)
    }

    /// What the feedback on the trial interval under way would say, so that a rate can be chosen by it.
    pub(crate) fn peek(&self, now: Moment) -> Status {
        let silent = |last: Moment| now.mono > last.mono + SILENCE;
        Status {
            load_stopped: self.last_arrival.is_some_and(silent),
            clock_delta_min_ms: i32::try_from(to_ms(self.clock_delta_min.unwrap_or_default()))
                .unwrap_or(i32::MAX),
            rtt_min_ms: self.rtt_min_ms.unwrap_or(NO_DELAY),
            trial_us: to_us(now.mono.0.saturating_sub(self.trial.began.0)),
            ..self.trial.status
        }
    }

    /// Whole sub-intervals so far, the last of them, and when it ended: nanoseconds since 1970.
    pub(crate) fn last_sub_interval(&self) -> (u32, SubInterval, Option<u64>) {
        (
            self.number,
            self.whole,
            self.began.map(|moment| moment.wall),
        )
    }

    /// What came so far.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    fn is_plausible(&self, at: Moment, sequence: u32) -> bool {
        let since = self
            .first
            .map_or(0, |first| at.mono.0.saturating_sub(first.mono.0));
        sequence > 0 && f64::from(sequence) <= AHEAD_AT_ONCE + since as f64 / 1e9 * FASTEST_PER_S
    }

    /// A round trip: a feedback message's, answered by the first load PDU that carries its time.
    fn round_trip(&mut self, at: Moment, header: &LoadHeader) {
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
        let trial = &mut self.trial.status;
        let least = self.rtt_min_ms.get_or_insert(u32::MAX);
        if rtt < *least {
            *least = rtt;
            trial.minimum_updated = true;
        }
        trial.rtt_variation_ms = rtt - *least;
        self.open.rtt_min_ms = self.open.rtt_min_ms.min(trial.rtt_variation_ms);
        self.open.rtt_max_ms = self.open.rtt_max_ms.max(trial.rtt_variation_ms);
    }

    /// One-way delay above its least: the clocks' difference falls out.
    fn one_way(&mut self, at: Moment, header: &LoadHeader) {
        let delta = i128::from(at.wall) - i128::from(header.sent.nanos());
        let delta = i64::try_from(delta).unwrap_or_default();
        let trial = &mut self.trial.status;
        match self.clock_delta_min {
            None => {
                self.clock_delta_min = Some(delta);
                trial.minimum_updated = true;
                return;
            }
            Some(least) if delta < least => {
                self.clock_delta_min = Some(delta);
                trial.minimum_updated = true;
            }
            Some(_) => {}
        }
        let least = self.clock_delta_min.unwrap_or(delta);
        let above = u32::try_from(to_ms(delta - least)).unwrap_or(NO_DELAY - 1);
        trial.delay_min_ms = trial.delay_min_ms.min(above);
        trial.delay_max_ms = trial.delay_max_ms.max(above);
        trial.delay_sum_ms = trial.delay_sum_ms.saturating_add(above);
        trial.delay_count = trial.delay_count.saturating_add(1);
        let open = &mut self.open;
        open.delay_min_ms = open.delay_min_ms.min(above);
        open.delay_max_ms = open.delay_max_ms.max(above);
        open.delay_sum_ms = open.delay_sum_ms.saturating_add(above);
        open.delay_count = open.delay_count.saturating_add(1);
    }

    /// Ends the sub-interval when it is over, to the nearest feedback, as the reference does.
    ///
    /// It reaches from the last arrival before its start to its own last arrival, so that the time that this program
    /// needed to wake up is not in it.
    fn close_sub_interval(&mut self, now: Moment) {
        let recent = |last: &Moment| now.wall.saturating_sub(last.wall) <= RECENT;
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
fn span(from: Moment, to: Moment) -> u64 {
    let mono = to.mono.0.saturating_sub(from.mono.0);
    let wall = to.wall.saturating_sub(from.wall);
    if wall.abs_diff(mono) > CLOCK_STEP {
        mono
    } else {
        wall
    }
}

impl Trial {
    fn new(began: Nanos) -> Self {
        Self {
            began,
            status: Status {
                delay_min_ms: NO_DELAY,
                rtt_variation_ms: NO_DELAY,
                ..Status::default()
            },
        }
    }
}

impl Seen {
    fn take(&mut self, sequence: u32) -> Order {
        if sequence > self.highest {
            let missing = sequence - self.highest - 1;
            for passed in 0..missing.min(REMEMBERED) {
                self.mark(sequence - 1 - passed, false);
            }
            self.mark(sequence, true);
            self.highest = sequence;
            return Order::Next { missing };
        }
        let remembered = self.highest - sequence < REMEMBERED;
        if remembered && self.bits[(sequence % REMEMBERED) as usize] {
            return Order::Copy;
        }
        if remembered {
            self.mark(sequence, true);
        }
        Order::Late
    }

    fn mark(&mut self, sequence: u32, came: bool) {
        self.bits[(sequence % REMEMBERED) as usize] = came;
    }
}

fn to_ms(nanos: i64) -> i64 {
    // The reference rounds to the nearest, so that both ends agree on 0.
    (nanos + 500_000).div_euclid(1_000_000)
}

fn to_us(nanos: u64) -> u32 {
    u32::try_from((nanos + 500) / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
