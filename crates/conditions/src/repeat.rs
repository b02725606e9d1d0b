//! Steps of a schedule that come again after each period.

use std::borrow::Cow;

use model::{Nanos, ScheduleClock};

use crate::condition::{ConditionKind, HandoverSpec, Shapes, TraceSpec};
use crate::error::{At, Error};
use crate::layer::{ConditionSet, Layer, ScheduleStep};
use crate::require;

/// The shortest period. Each step costs time when it comes.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The most steps of several layers, until all of them repeat.
const MOST_UNTIL_THEN: u64 = 2_048;

/// The part of several schedules that repeats for ever, the same in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repetition {
    /// The beginning of the first such period. Also during the period before it, nothing differs.
    pub(crate) from: Nanos,
    /// The length of the period.
    pub(crate) every: Nanos,
}

impl Repetition {
    /// Returns the part of these layers' schedules that repeats, if any step does.
    pub(crate) fn of(layers: &[&Layer]) -> Option<Self> {
        let steps = || layers.iter().flat_map(|layer| &layer.schedule);
        let every = steps()
            .map(|step| step.every)
            .find(|every| *every > Nanos::ZERO)?;
        // In the second round, every step follows what the others set.
        let settled = steps().map(|step| step.end() + step.every).max()?;
        Some(Self {
            from: settled + every.saturating_mul(2),
            every,
        })
    }

    /// Returns the end of the first such period.
    pub(crate) fn until(self) -> Nanos {
        self.from + self.every
    }

    /// Returns the number of steps until the schedules of `layers` repeat, or 0 if they never do.
    ///
    /// # Errors
    /// It refuses schedules that do not repeat together, or take too many steps until they do.
    pub(crate) fn check(layers: &[&Layer]) -> Result<u64, Error> {
        let Some(all) = Self::of(layers) else {
            return Ok(0);
        };
        let steps = || layers.iter().flat_map(|layer| &layer.schedule);
        let repeating = || steps().filter(|step| step.every > Nanos::ZERO);
        if let Some(other) = repeating().find(|step| step.every != all.every) {
            require!(
                false,
                "schedule": "steps repeat every {} and every {}: all steps that the same packets meet repeat with one period",
                all.every, other.every
            );
        }
        let rounds = |step: &ScheduleStep| (all.until() - step.at).0 / all.every.0 + 1;
        let count = repeating()
            .map(|step| rounds(step).saturating_mul(step.changes_count()))
            .fold(0, u64::saturating_add);
        require!(
            count <= MOST_UNTIL_THEN,
            "schedule": "it takes {count} steps until everything repeats: at most {MOST_UNTIL_THEN} are allowed, so use a longer `every`, or let \
             the last step that comes once come earlier"
        );
        let ever = layers.iter().map(|layer| layer.ever());
        let ever = ever.fold(ConditionSet::default(), ConditionSet::or);
        require!(
            !ever.has::<TraceSpec>(),
            "trace": "a trace repeats by itself: put the changes that repeat into it, or leave `every` out of the schedule"
        );
        let changes = |is_one: &dyn Fn(&ConditionKind) -> bool| {
            let mut kinds = steps().flat_map(ScheduleStep::kinds);
            kinds.find(|&kind| is_one(kind)).map(|kind| kind.key)
        };
        if let Some(key) = changes(&|kind| matches!(kind.stage, Shapes::Outage | Shapes::Handover))
        {
            require!(
                false,
                "schedule": "{key} repeats by itself, and cannot change beside steps that repeat: set it outside the schedule"
            );
        }
        let handover = ever.get::<HandoverSpec>();
        if handover.is_some_and(|one| one.delay.is_some())
            && let Some(key) = changes(&|kind| kind.stage == Shapes::Delay)
        {
            require!(
                false,
                "schedule": "{key} cannot change beside steps that repeat where a handover moves the delay: leave its `delay` out"
            );
        }
        Ok(count)
    }
}

impl Layer {
    /// Returns whether any of its steps comes again.
    pub(crate) fn repeats(&self) -> bool {
        self.schedule.iter().any(|step| step.every > Nanos::ZERO)
    }

    /// Refuses steps that repeat unless they are the last ones, repeat with one period, and are over when it is.
    pub(crate) fn check_repeats(&self) -> Result<(), Error> {
        let mut first: Option<&ScheduleStep> = None;
        for (number, step) in self.schedule.iter().enumerate() {
            let check = || {
                let Some(first) = first else {
                    return Ok(());
                };
                require!(
                    step.every == first.every,
                    "every": "an earlier step repeats every {}: give all steps behind it the same `every`, and put those that come once \
                     before it",
                    first.every
                );
                require!(
                    step.at < first.at + first.every && step.end() <= first.at + first.every,
                    "at": "the step is not over before the one at {} comes again, at {}: let it come earlier, or use a longer `every`",
                    first.at, first.at + first.every
                );
                Ok::<_, Error>(())
            };
            check().at_item("schedule", number, None)?;
            if first.is_none() && step.every > Nanos::ZERO {
                let Nanos(most) = Nanos::MAX;
                let is_in_range = step.every >= SHORTEST
                    && step.every.0 < most / 16
                    && step.end().0 < most / 16
                    && step.over <= step.every;
                let check = || {
                    require!(
                        is_in_range,
                        "every": "{} is out of range: it is at least {SHORTEST} and not below `over`", step.every
                    );
                    Ok::<_, Error>(())
                };
                check().at_item("schedule", number, None)?;
                first = Some(step);
            }
        }
        Ok(())
    }

    /// Returns its schedule with each repetition before `until` as a separate step. Steps that come once are all there.
    pub(crate) fn written_out(&self, until: Nanos) -> Cow<'_, [ScheduleStep]> {
        let is_repeating = |step: &ScheduleStep| step.every > Nanos::ZERO;
        let Some(first) = self.schedule.iter().position(is_repeating) else {
            return Cow::Borrowed(&self.schedule);
        };
        let (once, again) = self.schedule.split_at(first);
        let mut all = once.to_vec();
        for round in 0.. {
            let begun = again.iter().map(|step| step.in_round(round));
            let before = all.len();
            all.extend(begun.take_while(|step| step.at < until));
            if all.len() < before + again.len() {
                break;
            }
        }
        Cow::Owned(all)
    }

    /// Returns a time in the first rounds at which the same conditions hold as at `time`.
    pub(crate) fn in_first_rounds(&self, time: Nanos) -> Nanos {
        let first = self.schedule.iter().find(|step| step.every > Nanos::ZERO);
        match first {
            Some(ScheduleStep { at, every, .. }) if time >= *at + *every => {
                let second = *at + *every;
                second + Nanos((time - second).0 % every.0)
            }
            _ => time,
        }
    }

    /// Returns its schedule as steps at the link's times, where the schedule's own times follow `clock`. Steps that are
    /// over come at 0.
    pub(crate) fn schedule_on(&self, clock: ScheduleClock) -> Vec<ScheduleStep> {
        if !self.repeats() {
            // A gradual step may take longer on this clock, or be left in the middle.
            let mut all = self.plain_schedule(Nanos::MAX).into_owned();
            for step in &mut all {
                step.at = clock.link_time(step.at);
            }
            return all;
        }
        if clock == ScheduleClock::default() {
            return self.schedule.clone();
        }
        let now = match clock {
            ScheduleClock::Running { from, .. } => from,
            ScheduleClock::Stopped { at } => at,
        };
        let then = self.in_first_rounds(now);
        let mut all = self.plain_schedule(then + Nanos(1)).into_owned();
        for step in &mut all {
            // The rest of a gradual step follows at the same distance.
            step.at = if step.at <= then {
                Nanos::ZERO
            } else {
                clock.link_time(now + (step.at - then))
            };
        }
        if clock.is_running() {
            let repeating = self.schedule.iter().filter(|step| step.every > Nanos::ZERO);
            let mut later: Vec<ScheduleStep> = repeating.map(|step| step.next_after(now)).collect();
            later.sort_by_key(|step| step.at);
            for step in &mut later {
                step.at = clock.link_time(step.at);
            }
            all.extend(later);
        }
        all
    }
}

impl ScheduleStep {
    /// Returns the step that it is in a round (from 0).
    fn in_round(&self, round: u64) -> Self {
        Self {
            at: self.at + self.every.saturating_mul(round),
            every: Nanos::ZERO,
            ..self.clone()
        }
    }

    /// Returns the same repeating step with its first time after `now`.
    fn next_after(&self, now: Nanos) -> Self {
        let rounds = if self.at > now {
            0
        } else {
            (now - self.at).0 / self.every.0 + 1
        };
        Self {
            at: self.at + self.every.saturating_mul(rounds),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Effect, Nanos, Schedule, ScheduleClock, StageSpec};

    use crate::LinkSpec;

    fn spec(text: &str) -> LinkSpec {
        crate::read::toml_text(text).unwrap()
    }

    fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    /// The delays of a satellite's terminal: 20 ms at first, then 40 ms and 30 ms in turn.
    const EPOCHS: &str = "delay = '20ms'\nschedule = [{ at = '15s', every = '30s', delay = '40ms' }, \
                          { at = '30s', every = '30s', delay = '30ms' }]";

    fn stage(link: &LinkSpec, name: &str) -> StageSpec {
        let hop = link.hop("box").unwrap();
        let mut all = hop.rest.up.into_iter().chain(hop.rest.down);
        all.find(|stage| stage.name == name).unwrap()
    }

    /// Returns the delay that is in force at each of these times.
    fn delays(stage: &StageSpec, times: &[u64]) -> Vec<u64> {
        let Schedule::Computed(steps) = &stage.schedule else {
            panic!("{stage:?}");
        };
        let delay = |time: &u64| {
            let last = steps.count_until(ms(*time)) - 1;
            match steps.step(last) {
                Some((_, Effect::Delay(delay))) => delay.time.0 / 1_000_000,
                Some((_, Effect::Nothing)) => 0,
                other => panic!("{other:?}"),
            }
        };
        times.iter().map(delay).collect()
    }

    #[test]
    fn steps_repeat_for_ever() {
        let link = spec(EPOCHS);
        link.check().unwrap();
        let stage = stage(&link, "box.up.delay");
        let times = [0, 14_999, 15_000, 29_999, 30_000, 44_999, 45_000, 60_000];
        let right = [20, 20, 40, 40, 30, 30, 40, 30];
        assert_eq!(delays(&stage, &times), right);
        for round in [1, 2, 7, 1_000_000] {
            let times = [15_000, 29_999, 30_000, 44_999].map(|time| time + 30_000 * round);
            assert_eq!(delays(&stage, &times), [40, 40, 30, 30], "{round}");
        }
        for (time, delay) in times.into_iter().zip(right) {
            let then = link.clone().then(ms(time));
            assert_eq!(then, spec(&format!("delay = '{delay}ms'")), "{time}");
        }
        let then = link.clone().then(ms(3_600_000 * 24 * 365 + 16_000));
        assert_eq!(then, spec("delay = '40ms'"));
    }

    #[test]
    fn each_step_of_a_repeating_schedule_is_counted_once() {
        let link = spec(EPOCHS);
        let stage = stage(&link, "box.up.delay");
        let Schedule::Computed(steps) = &stage.schedule else {
            panic!("{stage:?}");
        };
        for index in 0..100 {
            let (at, _) = steps.step(index).unwrap();
            assert_eq!(at, Nanos::from_secs(15 * index));
            assert_eq!(steps.count_until(at), index + 1);
        }
    }

    #[test]
    fn steps_that_come_once_precede_those_that_repeat() {
        let link = spec(
            "delay = '1ms'\nloss = '1%'\n\
             schedule = [{ at = '1s', loss = '2%' }, { at = '2s', every = '1s', delay = '3ms' }, { at = '2500ms', every = '1s', delay = '2ms' }]\n\
             [up]\nschedule = [{ at = '7s', delay = '9ms' }, { at = '8s', without = ['delay'] }]",
        );
        link.check().unwrap();
        let up = stage(&link, "box.up.delay");
        let times = [0, 2_000, 2_500, 7_000, 7_999, 8_000, 8_500, 90_000, 90_500];
        assert_eq!(delays(&up, &times), [1, 3, 2, 9, 9, 3, 2, 3, 2]);
        let loss = stage(&link, "box.up.loss");
        assert_eq!(loss.schedule.list().unwrap().len(), 1);
    }

    #[test]
    fn a_gradual_step_repeats() {
        let link = spec(
            "delay = '0ms'\nschedule = [{ at = '1s', every = '10s', over = '4s', delay = '40ms' }, { at = '8s', every = '10s', delay = '0ms' }]",
        );
        link.check().unwrap();
        let stage = stage(&link, "box.up.delay");
        for round in [0, 1, 2, 3, 5, 1_000] {
            let times = [0, 1_000, 2_000, 3_000, 5_000, 7_999, 8_000].map(|at| at + 10_000 * round);
            assert_eq!(delays(&stage, &times), [0, 0, 10, 20, 40, 40, 0], "{round}");
        }
    }

    #[test]
    fn a_moved_clock_continues_the_rounds() {
        let link = spec(EPOCHS);
        let clock = ScheduleClock::Running {
            since: ms(5_000),
            from: ms(100_000),
        };
        let moved = link.clone().on_clock(clock);
        moved.check().unwrap();
        let stage = stage(&moved, "box.up.delay");
        // 100 s are 10 s behind 90 s, at which a delay of 30 ms began.
        let times = [
            0,
            5_000,
            9_999,
            10_000,
            24_999,
            25_000,
            40_000,
            3_000_010_000,
        ];
        assert_eq!(delays(&stage, &times), [30, 30, 30, 40, 40, 30, 40, 40]);
        let stopped = link.on_clock(ScheduleClock::Stopped { at: ms(106_000) });
        assert_eq!(stopped.then(ms(900_000)), spec("delay = '40ms'"));
    }

    #[test]
    fn an_outage_repeats_beside_steps_that_repeat() {
        let link = spec(&format!("outage = '200ms/7s'\n{EPOCHS}"));
        link.check().unwrap();
        let stage = stage(&link, "box.up.outage");
        let Schedule::Computed(steps) = &stage.schedule else {
            panic!("{stage:?}");
        };
        for number in [1, 2, 5, 100] {
            let (at, _) = steps.step(2 * number - 1).unwrap();
            assert_eq!(at, Nanos::from_secs(7 * number));
        }
    }

    #[test]
    fn steps_that_cannot_repeat_are_refused_with_their_key() {
        let two = "{ at = '1s', every = '5s', delay = '5ms' }";
        for (steps, words) in [
            (
                "{ at = '1s', every = '1us', delay = '5ms' }".to_owned(),
                "schedule 1: every: 1us is out of range",
            ),
            (
                "{ at = '1s', every = '1s', over = '2s', delay = '5ms' }".to_owned(),
                "schedule 1: every: 1s is out of range",
            ),
            (
                format!("{two}, {{ at = '2s', delay = '6ms' }}"),
                "schedule 2: every: an earlier step repeats every 5s",
            ),
            (
                format!("{two}, {{ at = '2s', every = '6s', delay = '6ms' }}"),
                "schedule 2: every: an earlier step repeats every 5s",
            ),
            (
                format!("{two}, {{ at = '6s', every = '5s', delay = '6ms' }}"),
                "schedule 2: at: the step is not over before the one at 1s comes again, at 6s",
            ),
            (
                format!("{two}]\n[up]\nschedule = [{{ at = '1s', every = '6s', delay = '1ms' }}"),
                "schedule: steps repeat every 6s and every 5s",
            ),
            (
                format!("{two}]\n[up]\nschedule = [{{ at = '10h', delay = '1ms' }}"),
                "schedule: it takes 7203 steps until everything repeats",
            ),
            (
                format!("{two}, {{ at = '2s', every = '5s', outage = '1s/3s' }}"),
                "schedule: outage repeats by itself",
            ),
        ] {
            let link = spec(&format!("delay = '1ms'\nschedule = [{steps}]"));
            let refused = link.hop("box").unwrap_err().to_string();
            assert!(refused.starts_with(words), "{steps}: {refused}");
        }
        let handover = "delay = '9ms'\nhandover = 'every=15s,hold=60ms,delay=5ms'\nschedule = [";
        let refused = spec(&format!("{handover}{two}]")).hop("box").unwrap_err();
        assert!(
            refused.to_string().contains("where a handover moves"),
            "{refused}"
        );
        let trace = "trace = { file = 'x', content = \"t,loss\\n0s,1%\\n1s,2%\\n\" }";
        let refused = spec(&format!("{trace}\ndelay = '1ms'\nschedule = [{two}]"));
        let refused = refused.hop("box").unwrap_err().to_string();
        assert!(refused.starts_with("trace: a trace repeats"), "{refused}");
    }
}
