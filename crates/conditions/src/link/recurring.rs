//! Outages and handovers: effects that come again and again, for ever.

use model::{Delay, Effect, Gate, Nanos, Probability, QueueLimit};

use crate::condition::{HandoverSpec, OutageSpec};
use crate::trace::StageSteps;

/// Something that begins after each period and lasts a while.
#[derive(Clone, Copy, Debug)]
struct Times {
    every: Nanos,
    lasts: Nanos,
    jitter: Nanos,
    seed: u64,
}

/// A stage with one effect while something lasts, and another one between.
#[derive(Debug)]
struct Alternating {
    times: Times,
    during: Effect,
    between: Effect,
}

/// A delay that moves at regular times.
#[derive(Debug)]
struct Moving {
    every: Nanos,
    by: Nanos,
    seed: u64,
    base: Delay,
}

/// The steps of a stage, and effects that describe them.
pub(super) type Recurring = (Box<dyn StageSteps>, Vec<Effect>);

impl OutageSpec {
    /// Returns the steps of the stage that loses packets, or of the one that holds them.
    pub(super) fn steps(&self, stage: &str, seed: u64) -> Option<Recurring> {
        let (during, between) = match (stage, self.hold) {
            ("outage", false) => (
                lost(Probability::from_percent(100.0).ok()?),
                Effect::Nothing,
            ),
            ("outage-hold", true) => (gate(false), gate(true)),
            _ => return None,
        };
        let times = Times {
            every: self.time.every,
            lasts: self.time.lasts,
            jitter: self.jitter,
            seed: seed ^ 0x006f_7574_6167_6521,
        };
        Some(alternating(times, during, between))
    }
}

impl HandoverSpec {
    /// Returns the steps of the stage that loses packets, or of the one that holds them.
    pub(super) fn steps(&self, stage: &str) -> Option<Recurring> {
        let (during, between) = match stage {
            "handover" => (gate(false), gate(true)),
            "handover-loss" => (
                lost(self.loss.filter(|loss| loss.percent() > 0.0)?),
                Effect::Nothing,
            ),
            _ => return None,
        };
        let times = Times {
            every: self.every,
            lasts: self.hold,
            jitter: Nanos::ZERO,
            seed: 0,
        };
        Some(alternating(times, during, between))
    }

    /// Returns the steps of a delay that its handovers move.
    pub(super) fn moved(&self, base: Delay, seed: u64) -> Option<Recurring> {
        let by = self.delay.filter(|by| *by > Nanos::ZERO)?;
        let at = |time: Nanos| {
            Effect::Delay(Delay {
                time,
                ..base.clone()
            })
        };
        let extremes = vec![at(base.time - by), at(base.time + by)];
        let moving = Moving {
            every: self.every,
            by,
            seed: seed ^ 0x6861_6e64_6f76_6572,
            base,
        };
        Some((Box::new(moving), extremes))
    }
}

fn alternating(times: Times, during: Effect, between: Effect) -> Recurring {
    let extremes = vec![between.clone(), during.clone()];
    let steps = Alternating {
        times,
        during,
        between,
    };
    (Box::new(steps), extremes)
}

fn lost(share: Probability) -> Effect {
    Effect::Loss(share.into())
}

fn gate(open: bool) -> Effect {
    Effect::Gate(Gate {
        open,
        queue: QueueLimit::Packets(u32::MAX),
    })
}

impl Times {
    /// Returns the beginning of number `number`, from 1.
    fn begin(&self, number: u64) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a part of a time is at most that time"
        )]
        let late = (draw(self.seed, number) * self.jitter.0 as f64) as u64;
        self.every.saturating_mul(number) + Nanos(late)
    }
}

impl StageSteps for Alternating {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        if index == 0 {
            return Some((Nanos::ZERO, self.between.clone()));
        }
        let begin = self.times.begin(index.div_ceil(2));
        let step = match index.is_multiple_of(2) {
            false => (begin, self.during.clone()),
            true => (begin + self.times.lasts, self.between.clone()),
        };
        (step.0 < Nanos::MAX).then_some(step)
    }

    /// Every one is over before the next period begins.
    fn count_until(&self, time: Nanos) -> u64 {
        let periods = time.0 / self.times.every.0;
        if periods == 0 {
            return 1;
        }
        let begin = self.times.begin(periods);
        let now = [begin, begin + self.times.lasts];
        let now = now.into_iter().filter(|at| *at <= time).count() as u64;
        1 + 2 * (periods - 1) + now
    }
}

impl StageSteps for Moving {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        let by = self.by.0 as f64;
        let offset = match index {
            0 => 0.0,
            number => (2.0 * draw(self.seed, number) - 1.0) * by,
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an offset is at most an hour"
        )]
        let by = offset.abs().round() as u64;
        let time = self.base.time;
        let time = if offset < 0.0 {
            time - Nanos(by)
        } else {
            time + Nanos(by)
        };
        let at = self.every.saturating_mul(index);
        let delay = Delay {
            time,
            ..self.base.clone()
        };
        (at < Nanos::MAX).then_some((at, Effect::Delay(delay)))
    }

    fn count_until(&self, time: Nanos) -> u64 {
        time.0 / self.every.0 + 1
    }
}

/// Returns a number from 0 to below 1 that a seed and a number determine (SplitMix64, Steele et al. 2014).
fn draw(seed: u64, number: u64) -> f64 {
    let mut bits = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    /// Checks that the number of steps up to each time is that of the steps themselves.
    fn assert_counts(steps: &dyn StageSteps, until: Nanos) {
        let all = (0..).map_while(|index| steps.step(index)).map(|(at, _)| at);
        let all: Vec<Nanos> = all.take_while(|at| *at <= until).collect();
        assert!(all.is_sorted() && all.len() > 10);
        for time in (0..until.0).step_by(777_777) {
            let time = Nanos(time);
            let right = all.iter().filter(|at| **at <= time).count();
            assert_eq!(steps.count_until(time), right as u64, "{time}");
        }
    }

    #[test]
    fn outages_begin_after_each_period_and_up_to_their_jitter_later() {
        let outage: OutageSpec = "200ms/1s,jitter=300ms".parse().unwrap();
        let (steps, _) = outage.steps("outage", 7).unwrap();
        assert_counts(&*steps, ms(20_000));
        let begins: Vec<u64> = (1..200)
            .map(|number| (steps.step(2 * number - 1).unwrap().0 - ms(1_000 * number)).0)
            .collect();
        assert!(begins.iter().all(|late| *late < ms(300).0));
        assert!(begins.iter().any(|late| *late > ms(200).0));
        assert!(begins.iter().any(|late| *late < ms(100).0));
        let (other, _) = outage.steps("outage", 8).unwrap();
        assert_ne!(steps.step(1), other.step(1));
        assert!(outage.steps("outage-hold", 7).is_none());
    }

    #[test]
    fn handovers_hold_lose_and_move_the_delay_within_their_bounds() {
        let handover: HandoverSpec = "every=15s,hold=60ms,loss=1%,delay=5ms".parse().unwrap();
        let (held, _) = handover.steps("handover").unwrap();
        assert_eq!(held.step(0), Some((Nanos::ZERO, gate(true))));
        assert_eq!(held.step(1), Some((ms(15_000), gate(false))));
        assert_eq!(held.step(2), Some((ms(15_060), gate(true))));
        assert_counts(&*held, ms(200_000));
        assert!(handover.steps("handover-loss").is_some());
        let base = Delay {
            time: ms(30),
            ..Delay::default()
        };
        let (moved, extremes) = handover.moved(base, 1).unwrap();
        assert_counts(&*moved, ms(400_000));
        assert_eq!(extremes.len(), 2);
        let delays: Vec<u64> = (0..100)
            .map(|index| match moved.step(index).unwrap().1 {
                Effect::Delay(delay) => delay.time.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(delays[0], ms(30).0);
        assert!(
            delays
                .iter()
                .all(|delay| (ms(25).0..=ms(35).0).contains(delay))
        );
        assert!(delays.iter().any(|delay| *delay > ms(33).0));
        assert!(delays.iter().any(|delay| *delay < ms(27).0));
    }
}
