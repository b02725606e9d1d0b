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

/// Outages that begin at random times: the number in each period follows Poisson's law with a mean of 1, and each time
/// within the period is equally likely.
#[derive(Debug)]
struct RandomOutages {
    every: Nanos,
    /// The length of an outage, which is below `every`. Therefore only outages of a period and of the one before it
    /// matter in a period.
    lasts: Nanos,
    seed: u64,
    during: Effect,
    between: Effect,
}

/// The most outages that begin in one period. The probability of more is 1.1 in a million.
const MOST_IN_PERIOD: u64 = 8;

/// The steps of each period: 8 beginnings of outages, their ends, and the end of one that began before the period. Those
/// that do not occur are at the end of the period and change nothing.
const STEPS_IN_PERIOD: u64 = 2 * MOST_IN_PERIOD + 1;

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
        let (every, lasts) = (self.time.every, self.time.lasts);
        let seed = seed ^ 0x006f_7574_6167_6521;
        if self.random {
            let extremes = vec![between.clone(), during.clone()];
            let random = RandomOutages {
                every,
                lasts,
                seed,
                during,
                between,
            };
            return Some((Box::new(random), extremes));
        }
        let times = Times {
            every,
            lasts,
            jitter: self.jitter,
            seed,
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

impl RandomOutages {
    /// Adds the beginnings of the outages in a period (from 0), in order.
    fn add_begins(&self, period: u64, begins: &mut Vec<Nanos>) {
        let mut left = draw(self.seed, period);
        let mut probability = (-1.0_f64).exp();
        let mut count = 0;
        while left >= probability && count < MOST_IN_PERIOD {
            left -= probability;
            count += 1;
            probability /= count as f64;
        }
        let first = begins.len();
        let places = self.seed ^ 0x7261_6e64_6f6d_2121;
        let all = (0..count).map(|number| {
            let place = draw(places, period.wrapping_mul(MOST_IN_PERIOD) + number);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a part of a time is below that time"
            )]
            let within = (place * self.every.0 as f64) as u64;
            self.every.saturating_mul(period) + Nanos(within.min(self.every.0 - 1))
        });
        begins.extend(all);
        begins[first..].sort_unstable();
    }

    /// Returns the steps within a period, in order: their times, and whether an outage begins then.
    fn steps_of(&self, period: u64) -> Vec<(Nanos, bool)> {
        let mut begins = Vec::new();
        if let Some(before) = period.checked_sub(1) {
            self.add_begins(before, &mut begins);
        }
        self.add_begins(period, &mut begins);
        let mut outages: Vec<(Nanos, Nanos)> = Vec::new();
        for begin in begins {
            let end = begin + self.lasts;
            match outages.last_mut() {
                Some((_, last)) if begin <= *last => *last = end,
                _ => outages.push((begin, end)),
            }
        }
        let from = self.every.saturating_mul(period);
        let until = from + self.every;
        let both = outages
            .into_iter()
            .flat_map(|(begin, end)| [(begin, true), (end, false)]);
        both.filter(|(at, _)| (from..until).contains(at)).collect()
    }

    /// Returns whether an outage is in force at the beginning of a period.
    fn is_out_at_first(&self, period: u64) -> bool {
        let Some(before) = period.checked_sub(1) else {
            return false;
        };
        let mut begins = Vec::new();
        self.add_begins(before, &mut begins);
        let from = self.every.saturating_mul(period);
        begins
            .last()
            .is_some_and(|begin| *begin + self.lasts > from)
    }

    fn effect(&self, is_out: bool) -> Effect {
        if is_out {
            self.during.clone()
        } else {
            self.between.clone()
        }
    }
}

impl StageSteps for RandomOutages {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        let Some(index) = index.checked_sub(1) else {
            return Some((Nanos::ZERO, self.between.clone()));
        };
        let period = index / STEPS_IN_PERIOD;
        let last = self.every.saturating_mul(period) + Nanos(self.every.0 - 1);
        if last == Nanos::MAX {
            return None;
        }
        let steps = self.steps_of(period);
        let place = usize::try_from(index % STEPS_IN_PERIOD).ok()?;
        let (at, is_out) = match (steps.get(place), steps.last()) {
            (Some(step), _) => *step,
            (None, Some((_, is_out))) => (last, *is_out),
            (None, None) => (last, self.is_out_at_first(period)),
        };
        Some((at, self.effect(is_out)))
    }

    fn count_until(&self, time: Nanos) -> u64 {
        let period = time.0 / self.every.0;
        let last = self.every.saturating_mul(period) + Nanos(self.every.0 - 1);
        let within = if time >= last {
            STEPS_IN_PERIOD
        } else {
            let steps = self.steps_of(period);
            steps.iter().filter(|(at, _)| *at <= time).count() as u64
        };
        1 + period.saturating_mul(STEPS_IN_PERIOD) + within
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

    /// 10,000 periods have 10,000 outages, with a standard deviation of 100. Outages of 200 ms that begin at random every
    /// second overlap: the share of time without one is exp(-0.2), 81.9 %.
    #[test]
    fn random_outages_begin_independently_and_prolong_each_other() {
        let outage: OutageSpec = "200ms/1s,random".parse().unwrap();
        let (steps, _) = outage.steps("outage", 7).unwrap();
        assert_counts(&*steps, ms(20_000));
        let random = RandomOutages {
            every: ms(1_000),
            lasts: ms(200),
            seed: 7,
            during: Effect::Nothing,
            between: Effect::Nothing,
        };
        let mut begins = Vec::new();
        for period in 0..10_000 {
            random.add_begins(period, &mut begins);
        }
        assert!(begins.is_sorted());
        assert!((9_500..10_500).contains(&begins.len()), "{}", begins.len());
        // The time to the next one is above its mean with a probability of exp(-1), 36.8 %.
        let long = begins
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > ms(1_000));
        let share = long.count() as f64 / begins.len() as f64;
        assert!((0.34..0.40).contains(&share), "{share}");
        let (mut last, mut is_out, mut out) = (Nanos::ZERO, false, 0);
        for (at, effect) in (0..4_000 * STEPS_IN_PERIOD).map_while(|index| steps.step(index)) {
            assert!(at >= last);
            out += if is_out { (at - last).0 } else { 0 };
            (last, is_out) = (at, effect != Effect::Nothing);
        }
        let share = 1.0 - out as f64 / last.0 as f64;
        assert!((0.79..0.85).contains(&share), "{share}");
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
