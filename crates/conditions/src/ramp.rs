//! Steps of a schedule that move numbers gradually.

use std::borrow::Cow;

use model::{BitsPerSec, Nanos, Probability};

use crate::condition::{Condition, DelaySpec, JitterSpec, LossSpec, RateSpec};
use crate::error::{At, Error};
use crate::layer::{ConditionSet, Layer, ScheduleStep};
use crate::require;

/// The most gradual steps of a link. Each becomes many changes, which take memory and time.
pub(crate) const MOST_RAMPS: usize = 100;

/// The shortest gradual step.
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The time between two of its changes, where that makes 10 to 1,000 of them.
const USUAL_GAP: Nanos = Nanos::from_millis(10);

impl Layer {
    /// Returns the steps of its schedule, with a step for each change of a gradual one, and for each repetition that begins
    /// before `until`.
    pub(crate) fn plain_schedule(&self, until: Nanos) -> Cow<'_, [ScheduleStep]> {
        let all = self.written_out(until);
        if all.iter().all(|step| step.over == Nanos::ZERO) {
            return all;
        }
        let mut now = self.at_first.clone();
        let mut plain = Vec::new();
        for step in all.iter() {
            match step.over {
                Nanos::ZERO => plain.push(step.clone()),
                _ => plain.extend(step.changes(&now)),
            }
            now = step.applied_to(now);
        }
        Cow::Owned(plain)
    }

    /// Returns the number of its gradual steps.
    pub(crate) fn ramps(&self) -> usize {
        let gradual = self.schedule.iter().filter(|step| step.over > Nanos::ZERO);
        gradual.count()
    }

    /// Refuses a gradual step that is too short, that lasts beyond the next step, or that has nothing to begin with.
    pub(crate) fn check_ramps(&self) -> Result<(), Error> {
        let mut now = self.at_first.clone();
        for (number, step) in self.schedule.iter().enumerate() {
            let next = self.schedule.get(number + 1);
            let checked = step.check_ramp(&now, next);
            checked.at_item("schedule", number, None)?;
            now = step.applied_to(now);
        }
        Ok(())
    }
}

impl ScheduleStep {
    fn check_ramp(&self, before: &ConditionSet, next: Option<&Self>) -> Result<(), Error> {
        let Self { at, over, .. } = *self;
        if over == Nanos::ZERO {
            return Ok(());
        }
        require!(over >= SHORTEST, "over": "{over} is out of range: a gradual step lasts {SHORTEST} or longer");
        require!(
            self.without.is_empty(),
            "without": "a condition cannot be removed gradually: leave `over` or `without` out"
        );
        if let Some(next) = next {
            require!(
                at + over <= next.at,
                "over": "the step ends at {}, after the next one begins at {}: make it shorter, or begin the next one later",
                at + over, next.at
            );
        }
        for condition in self.conditions.iter() {
            check_number(condition, before).at(condition.kind().key)?;
        }
        Ok(())
    }

    /// Returns the end of the step.
    pub(crate) fn end(&self) -> Nanos {
        self.at + self.over
    }

    /// Returns the number of plain steps that it consists of.
    pub(crate) fn changes_count(&self) -> u64 {
        match self.over {
            Nanos::ZERO => 1,
            over => (over.0 / USUAL_GAP.0).clamp(10, 1_000),
        }
    }

    /// Returns a plain step for each of its changes, after `before`.
    fn changes(&self, before: &ConditionSet) -> impl Iterator<Item = Self> {
        let count = self.changes_count();
        (1..=count).map(move |number| {
            let way = RampPart { number, count };
            let moved = |to: &Condition| way.moved(before, to);
            Self {
                at: self.at + Nanos(way.between(0, self.over.0)),
                over: Nanos::ZERO,
                every: Nanos::ZERO,
                without: Vec::new(),
                conditions: self.conditions.iter().map(moved).collect(),
            }
        })
    }
}

/// Refuses a condition that has no number, or none to begin with.
fn check_number(condition: &Condition, before: &ConditionSet) -> Result<(), Error> {
    let moves = matches!(
        condition,
        Condition::Rate(_) | Condition::Delay(_) | Condition::Jitter(_) | Condition::Loss(_)
    );
    require!(
        moves,
        "only rate, delay, jitter and loss change gradually: put the others into a separate step, without `over`"
    );
    require!(
        before.contains(condition.kind().key),
        "it has no earlier value from which it could move: set one in the same table"
    );
    if let (Condition::Loss(to), Some(from)) = (condition, before.get::<LossSpec>()) {
        require!(
            from.burst == to.burst,
            "bursts cannot change gradually: set the same `burst` as before"
        );
    }
    Ok(())
}

/// A part of the way from one number to another.
#[derive(Clone, Copy)]
struct RampPart {
    number: u64,
    count: u64,
}

impl RampPart {
    /// Returns the number that is reached between `from` and `to`.
    fn between(self, from: u64, to: u64) -> u64 {
        let [from, to, number, count] = [from, to, self.number, self.count].map(i128::from);
        u64::try_from(from + (to - from) * number / count).unwrap_or_default()
    }

    /// Returns the condition that is in force then.
    fn moved(self, before: &ConditionSet, to: &Condition) -> Condition {
        let rate = |one: &RateSpec| one.rate.map_or(0, BitsPerSec::get);
        match to {
            Condition::Rate(to) => {
                let from = before.get().map_or(0, rate);
                let rate = BitsPerSec::new(self.between(from, rate(to))).ok();
                let burst = to.burst.filter(|_| rate.is_some());
                RateSpec { rate, burst }.into()
            }
            Condition::Delay(to) => {
                let from = before.get().map_or(Nanos::ZERO, |DelaySpec(time)| *time);
                DelaySpec(Nanos(self.between(from.0, to.0.0))).into()
            }
            Condition::Jitter(to) => {
                let from = before
                    .get()
                    .map_or(Nanos::ZERO, |one: &JitterSpec| one.spread);
                let spread = Nanos(self.between(from.0, to.spread.0));
                JitterSpec {
                    spread,
                    ..to.clone()
                }
                .into()
            }
            Condition::Loss(to) => {
                let from = before
                    .get()
                    .map_or(0.0, |one: &LossSpec| one.share.percent());
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "there are at most 1,000 changes"
                )]
                let part = self.number as f64 / self.count as f64;
                let percent = from + (to.share.percent() - from) * part;
                let share = Probability::from_percent(percent).unwrap_or(to.share);
                LossSpec { share, ..*to }.into()
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Effect, Nanos};

    use crate::LinkSpec;

    fn spec(text: &str) -> LinkSpec {
        crate::read::toml_text(text).unwrap()
    }

    #[test]
    fn rate_delay_and_loss_move_in_equal_parts_and_end_at_what_is_stated() {
        let link = spec(
            "rate = '20mbit'\ndelay = '10ms'\nloss = '0%'\n\
             schedule = [{ at = '1s', over = '5s', rate = '2mbit', delay = '60ms', loss = '1%' }, { at = '6s', rate = '8mbit' }]",
        );
        let at = |ms| link.clone().then(Nanos::from_millis(ms)).both;
        assert_eq!(
            at(1_009),
            spec("rate = '20mbit'\ndelay = '10ms'\nloss = '0%'").both
        );
        assert_eq!(
            at(1_010),
            spec("rate = '19964000bit'\ndelay = '10.1ms'\nloss = '0.002%'").both
        );
        assert_eq!(
            at(3_500),
            spec("rate = '11mbit'\ndelay = '35ms'\nloss = '0.5%'").both
        );
        assert_eq!(
            at(5_999),
            spec("rate = '2036000bit'\ndelay = '59.9ms'\nloss = '0.998%'").both
        );
        assert_eq!(
            at(6_000),
            spec("rate = '8mbit'\ndelay = '60ms'\nloss = '1%'").both
        );
        assert_eq!(link.last_step(), Some(Nanos::from_millis(6_000)));
    }

    #[test]
    fn the_stages_of_a_gradual_step_are_those_of_its_changes() {
        let link = spec(
            "delay = '1ms'\n[up]\nrate = '0bit'\nschedule = [{ at = '2s', over = '1s', rate = '10mbit' }]",
        );
        let hop = link.hop("box").unwrap();
        let rate = hop
            .rest
            .up
            .iter()
            .find(|stage| stage.name == "box.up.rate")
            .unwrap();
        let steps = rate.schedule.list().unwrap();
        assert_eq!(steps.len(), 100);
        let (at, Effect::Rate(half)) = &steps[49] else {
            panic!("{:?}", steps[49])
        };
        assert_eq!(
            (*at, half.rate.unwrap().get()),
            (Nanos::from_millis(2_500), 5_000_000)
        );
        assert!(hop.rest.down.iter().all(|stage| stage.schedule.is_empty()));
    }

    #[test]
    fn a_moved_clock_and_the_history_have_the_changes_of_a_gradual_step() {
        let link = spec("delay = '0ms'\nschedule = [{ at = '0s', over = '1s', delay = '100ms' }]");
        let clock = model::ScheduleClock::Running {
            since: Nanos::from_millis(5_000),
            from: Nanos::from_millis(500),
        };
        let moved = link.clone().on_clock(clock);
        let delay = |link: &LinkSpec, ms| link.clone().then(Nanos::from_millis(ms)).both;
        assert_eq!(delay(&moved, 5_000), spec("delay = '50ms'").both);
        assert_eq!(delay(&moved, 5_250), spec("delay = '75ms'").both);
        let ran = crate::over_time(&[
            (Nanos::ZERO, link),
            (Nanos::from_millis(300), spec("delay = '7ms'")),
        ])
        .unwrap();
        assert_eq!(delay(&ran, 200), spec("delay = '20ms'").both);
        assert_eq!(delay(&ran, 300), spec("delay = '7ms'").both);
    }

    #[test]
    fn a_gradual_step_that_cannot_be_is_refused_with_its_key() {
        for (step, words) in [
            (
                "{ at = '1s', over = '1s', delay = '5ms' }",
                "schedule 1: delay: it has no earlier value",
            ),
            (
                "{ at = '1s', over = '1us', rate = '5mbit' }",
                "schedule 1: over: 1us is out of range",
            ),
            (
                "{ at = '1s', over = '1s', queue = '5pkt' }",
                "schedule 1: queue: only rate, delay, jitter and loss",
            ),
            (
                "{ at = '1s', over = '1s', loss = '1%,burst=4' }",
                "schedule 1: loss: bursts cannot change",
            ),
            (
                "{ at = '1s', over = '1s', without = ['loss'] }",
                "schedule 1: without: a condition cannot be removed",
            ),
            (
                "{ at = '1s', over = '2s', rate = '5mbit' }, { at = '2s', rate = '1mbit' }",
                "schedule 1: over: the step ends at 3s, after the next one begins at 2s",
            ),
        ] {
            let text = format!("rate = '1mbit'\nloss = '1%'\nschedule = [{step}]");
            let refused = spec(&text).hop("box").unwrap_err().to_string();
            assert!(refused.starts_with(words), "{refused}");
        }
        let many =
            (0..101).map(|number| format!("{{ at = '{number}s', over = '1s', rate = '5mbit' }}"));
        let text = format!(
            "rate = '1mbit'\nschedule = [{}]",
            many.collect::<Vec<_>>().join(", ")
        );
        let refused = spec(&text).hop("box").unwrap_err().to_string();
        assert!(refused.contains("at most 100"), "{refused}");
    }
}
