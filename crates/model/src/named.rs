//! A stage of a link, with everything that the link keeps for it.

use alloc::string::String;

use crate::checked::CheckedStage;
use crate::counters::{StageReport, Waiting};
use crate::draw::Draws;
use crate::impair::AnyStage;
use crate::in_flight::{InFlight, Stream};
use crate::schedule::ScheduleClock;
use crate::spec::{Effect, Schedule};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;
use crate::timed_queue::TimedQueue;

/// A stage with its name, its schedule, its counters, and the packets that passed it with a time that lies ahead.
#[derive(Debug, Default)]
pub(crate) struct NamedStage {
    name: String,
    /// The number of its hop in [`Link::hops`](crate::Link::hops), from 1; 0 for none.
    pub(crate) hop: u16,
    /// The kind of its effects.
    kind: Effect,
    stage: AnyStage,
    timing: Timing,
    /// A lower bound of its delay.
    least_delay: Nanos,
    copies: bool,
    /// Its later effects.
    schedule: Schedule,
    /// The clock of the schedule's times.
    clock: ScheduleClock,
    /// The time of the model from which on that clock counts: the link's start.
    start: Nanos,
    /// The number of steps of the schedule that have taken effect.
    applied: u64,
    /// The effect of the next step.
    next_effect: Effect,
    /// The time of the next step.
    pub(crate) changes_at: Nanos,
    pub(crate) delayed: TimedQueue,
    /// Whether the conditions no longer name it, so that paths contain it only until nothing that it passed can be
    /// overtaken.
    pub(crate) is_leaving: bool,
    /// Whether it has left for good: only packets that came earlier still meet it, and it does nothing to them.
    is_retired: bool,
    entered: [u64; 2],
    pub(crate) dropped: u64,
    pub(crate) copied: u64,
    /// Runs of consecutive packets that it dropped as they entered, and whether it dropped the last one.
    runs: u64,
    is_dropping: bool,
    /// Its effect, if that has never changed.
    effect: Option<Effect>,
    is_set: bool,
}

impl NamedStage {
    /// Creates a stage that does nothing yet and has no kind.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            changes_at: Nanos::MAX,
            ..Self::default()
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind(&self) -> &Effect {
        &self.kind
    }

    /// Takes over the effects of `new` from `at` on, which are of its kind if it has one. The schedule counts from
    /// `start`.
    pub(crate) fn set(&mut self, new: CheckedStage, start: Nanos, at: Nanos, draws: Draws) {
        if self.kind == Effect::Nothing {
            self.kind = new.kind;
            self.stage = AnyStage::of_kind(&self.kind, start, draws);
        }
        // Even if it does nothing now, it may hold packets that it took in before.
        self.timing = new.timing.and(self.kind.behaviour().timing);
        self.least_delay = new.least_delay;
        self.copies |= new.copies;
        self.is_leaving = false;
        self.schedule = new.schedule;
        self.clock = new.clock;
        self.start = start;
        self.stage.follow(at, new.clock);
        // Steps that are over by now are skipped: an effect that was in force for no time would change what the stage
        // holds.
        self.applied = self.steps_until(at);
        let last = self.applied.checked_sub(1);
        match last.and_then(|last| self.schedule.step(last)) {
            Some((_, effect)) => self.stage.set(at, &effect),
            None => self.stage.set(at, &new.effect),
        }
        self.effect = (!self.is_set && self.schedule.is_empty()).then_some(new.effect);
        self.is_set = true;
        self.prepare_next_step();
    }

    /// Returns whether it copies packets, or did so under former conditions; false while it is leaving.
    pub(crate) fn copies(&self) -> bool {
        !self.is_leaving && self.copies
    }

    /// Returns the number of steps of the schedule up to `at`, a time of the model.
    fn steps_until(&self, at: Nanos) -> u64 {
        if at < self.start {
            return 0;
        }
        self.schedule.count_until(self.clock.at(at - self.start))
    }

    fn prepare_next_step(&mut self) {
        self.changes_at = Nanos::MAX;
        if let Some((time, effect)) = self.schedule.step(self.applied) {
            self.changes_at = self.start + self.clock.link_time(time);
            self.next_effect = effect;
        }
    }

    /// Does nothing from `at` on, except that it keeps the order of the packets that it passed.
    pub(crate) fn leave(&mut self, at: Nanos) {
        self.is_leaving = true;
        self.least_delay = Nanos::ZERO;
        self.changes_at = Nanos::MAX;
        self.effect = None;
        self.stage.set(at, &Effect::Nothing);
    }

    /// Leaves for good; another stage may then have its name.
    pub(crate) fn retire(&mut self) {
        self.is_leaving = false;
        self.is_retired = true;
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// Returns whether nothing that it passed can be overtaken any more.
    pub(crate) fn is_settled(&self, at: Nanos) -> bool {
        self.delayed.len() == 0 && self.stage.settled(at)
    }

    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns a lower bound of its delay; 0 for most kinds, because nothing is known of them.
    pub(crate) fn least_delay(&self) -> Nanos {
        self.least_delay
    }

    /// Takes `t` in at `at`.
    #[inline(always)]
    pub(crate) fn enter(&mut self, at: Nanos, t: &mut InFlight, out: &mut Out) -> EntryResult {
        if at >= self.changes_at {
            self.apply_schedule(at);
        }
        let count = &mut self.entered[usize::from(t.stream() == Stream::Copies)];
        let index = *count;
        *count += 1;
        let entered = self.stage.enter(at, index, t, out);
        debug_assert!(!matches!(entered, EntryResult::Passes(later) if later < at));
        let is_dropped = matches!(entered, EntryResult::Dropped(_) | EntryResult::Refused(..));
        self.runs += u64::from(is_dropped && !self.is_dropping);
        self.is_dropping = is_dropped;
        entered
    }

    /// Does what is due at `at`. Returns the packet that leaves then, if any, which leaves before everything that is
    /// reported through `out`.
    #[inline]
    pub(crate) fn wake(&mut self, at: Nanos, out: &mut Out) -> Option<InFlight> {
        if at >= self.changes_at {
            self.apply_schedule(at);
            if self.next().is_none_or(|due| due > at) {
                return None;
            }
        }
        if self.delayed.next().is_some_and(|due| due <= at) {
            return self.delayed.pop().map(|(_, t)| t);
        }
        self.stage.wake(at, out)
    }

    /// Returns when it is to be woken next.
    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        let held = match (self.delayed.next(), self.stage.next()) {
            (Some(delayed), Some(stage)) => Some(delayed.min(stage)),
            (delayed, stage) => delayed.or(stage),
        };
        if self.changes_at != Nanos::MAX && self.stage.held() > 0 {
            return held.map_or(Some(self.changes_at), |held| {
                Some(held.min(self.changes_at))
            });
        }
        held
    }

    /// Releases everything that it holds, at the end of the link. Its report still shows the effect that it had until
    /// then.
    pub(crate) fn empty(&mut self, at: Nanos, out: &mut Out) {
        while let Some((_, t)) = self.delayed.pop() {
            out.pass(at, t);
        }
        let effect = self.effect.take();
        self.leave(at);
        self.effect = effect;
        while self.stage.held() > 0 {
            if let Some(t) = self.stage.wake(at, out) {
                out.pass(at, t);
            }
        }
    }

    pub(crate) fn report(&self) -> StageReport<'_> {
        StageReport {
            name: &self.name,
            packets: self.entered.iter().sum(),
            effect: self.effect.as_ref(),
            dropped: self.dropped,
            runs: self.runs,
            copied: self.copied,
            held: (self.stage.held() + self.delayed.len()) as u64,
            longest_queue: self.stage.longest_queue() as u64,
            delays: self.stage.delays(),
        }
    }

    /// Returns what waits in it at `at`, if it is a server.
    pub(crate) fn backlog(&self, at: Nanos) -> Option<Waiting> {
        self.stage.backlog(at)
    }

    /// Applies the steps of the schedule up to `at`, each at its own time. While it holds no packet, only the last of
    /// them matters: the others were in force for nobody.
    #[cold]
    fn apply_schedule(&mut self, at: Nanos) {
        if self.stage.held() == 0 && self.schedule.list().is_none() {
            let last = self.steps_until(at).saturating_sub(1);
            if last > self.applied {
                self.applied = last;
                self.prepare_next_step();
            }
        }
        while self.changes_at <= at && self.changes_at != Nanos::MAX {
            self.stage.set(self.changes_at, &self.next_effect);
            self.applied += 1;
            self.prepare_next_step();
        }
    }
}
