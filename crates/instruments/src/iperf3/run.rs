//! The running part of a test, the same at both ends: intervals, the omitted start, silence.

use std::time::{Duration, Instant};

use super::control::{Broken, Step};
use super::plan::{CpuTime, Plan, Streams, Until};

/// How often the streams are looked at, whatever the interval.
const LOOK: Duration = Duration::from_millis(100);
/// How often they are looked at in a test of so many bytes, whose end has to be found.
const LOOK_FOR_BYTES: Duration = Duration::from_millis(5);

/// Where a test stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Whether the omitted start is over.
    pub(crate) counting: bool,
    /// For how long.
    pub(crate) counted: Duration,
    /// Whether an interval has just ended.
    pub(crate) ticked: bool,
}

/// How the running part ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// How long it ran.
    pub(crate) lasted: Duration,
    /// Why it ended before its time, if so.
    pub(crate) outcome: Step<()>,
}

/// Starts the streams and lets them run until `turn` says that the test is over. It is called again and again, and
/// waits for the other end until the moment that it is given.
///
/// When nothing moves on any stream for `silence`, the test is broken.
pub(crate) fn run<S: Streams>(
    plan: &Plan,
    streams: &mut S,
    silence: Duration,
    turn: impl FnMut(&mut S, Moment, Instant) -> Step<bool>,
) -> Ended {
    let start = Instant::now();
    let mut running = Running {
        plan,
        start,
        counted_from: plan.omit.is_zero().then_some(start),
        next_tick: start + plan.interval,
        moved: (start, 0),
        silence,
    };
    let outcome = streams
        .start(start)
        .map_err(|error| Broken::Gone(format!("{error:#}")))
        .and_then(|()| running.turns(streams, turn));
    Ended {
        lasted: start.elapsed(),
        outcome,
    }
}

/// CPU time in percent of `lasted`: total, user, system.
pub(crate) fn percent(cpu: CpuTime, lasted: Duration) -> [f64; 3] {
    let of = |time: Duration| 100.0 * time.as_secs_f64() / lasted.as_secs_f64().max(f64::EPSILON);
    [of(cpu.total()), of(cpu.user), of(cpu.system)]
}

struct Running<'a> {
    plan: &'a Plan,
    start: Instant,
    counted_from: Option<Instant>,
    next_tick: Instant,
    /// When something moved last, and how much had by then.
    moved: (Instant, u64),
    silence: Duration,
}

impl Running<'_> {
    fn turns<S: Streams>(
        &mut self,
        streams: &mut S,
        mut turn: impl FnMut(&mut S, Moment, Instant) -> Step<bool>,
    ) -> Step<()> {
        loop {
            let now = Instant::now();
            let ticked = self.advance(streams, now);
            let wait_until = self.next_event(now);
            if turn(streams, self.moment(now, ticked), wait_until)? {
                return Ok(());
            }
            self.check_silence(streams, now)?;
        }
    }

    /// Does what is due by `now`; whether an interval ended.
    fn advance(&mut self, streams: &mut impl Streams, now: Instant) -> bool {
        if self.counted_from.is_none() && now >= self.start + self.plan.omit {
            streams.tick(now);
            streams.end_omission(now);
            self.counted_from = Some(now);
            self.next_tick = now + self.plan.interval;
            return true;
        }
        let ticked = now >= self.next_tick;
        if ticked {
            streams.tick(now);
            // One that came late shortens the next; one that came much too late is longer itself.
            while self.next_tick <= now {
                self.next_tick += self.plan.interval;
            }
        }
        ticked
    }

    fn next_event(&self, now: Instant) -> Instant {
        let next = self.next_tick.min(now + LOOK);
        match (self.counted_from, self.plan.until) {
            (None, _) => next.min(self.start + self.plan.omit),
            // The server goes on until it is told of the end.
            (Some(from), Until::For(time)) if now < from + time => next.min(from + time),
            (Some(_), Until::For(_)) => next,
            (Some(_), Until::Bytes(_)) => next.min(now + LOOK_FOR_BYTES),
        }
    }

    fn moment(&self, now: Instant, ticked: bool) -> Moment {
        Moment {
            counting: self.counted_from.is_some(),
            counted: self
                .counted_from
                .map_or(Duration::ZERO, |from| now.saturating_duration_since(from)),
            ticked,
        }
    }

    fn check_silence(&mut self, streams: &impl Streams, now: Instant) -> Step<()> {
        let moved = streams.progress().moved;
        let (since, before) = self.moved;
        if moved != before {
            self.moved = (now, moved);
        } else if now.saturating_duration_since(since) >= self.silence {
            return Err(Broken::Silent(format!(
                "nothing moved on any stream for {} s",
                self.silence.as_secs_f64()
            )));
        }
        Ok(())
    }
}
