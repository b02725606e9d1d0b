//! The rate, delay and loss that conditions state over a time, without any packet.

mod served;
#[cfg(test)]
mod tests;

use model::{Behaviour, Bottleneck, Effect, Holding, Nanos, Schedule, StageSpec, Stall};
use serde::Serialize;

use crate::error::Error;
use crate::in_effect::ms;
use crate::link::LinkSpec;
use crate::link::hop::{Stages, route};
use crate::route::{FULL_FRAME, PathStages, Route};

/// The figures that a link's conditions state for packets of no class, from the link's start on.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The figures from client to server, in order of time and without gaps.
    pub up: Vec<OutlinePeriod>,
    /// The figures from server to client, likewise.
    pub down: Vec<OutlinePeriod>,
}

/// The figures of one direction between two changes of its conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlinePeriod {
    /// The time from which on they hold, counted from the link's start.
    pub from: Nanos,
    /// The time at which they end.
    pub until: Nanos,
    /// The slowest rate, in bit/s of the L2 bytes of full frames; the average of one that fluctuates, and of one that
    /// serves at given times. 0 while nothing passes, and `None` without a limit.
    pub rate: Option<u64>,
    /// The largest deviation from that rate, as a share of it: 0 to 1.
    pub fluctuation: f64,
    /// The time for which each drawn rate lasts; 0 if the rate does not fluctuate.
    pub hold: Nanos,
    /// The propagation delay of all stages; the mean of delays that vary.
    pub delay: Nanos,
    /// The greatest spread of a delay among all stages, as its law defines it.
    pub jitter: Nanos,
    /// The share of packets that are lost at random: 0 to 1.
    pub loss: f64,
    /// The share of the time for which the link stalls while packets wait: 0 to 1.
    pub stalled: f64,
}

/// The averages of one direction over the time of an outline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Averages {
    /// The rate while packets pass, in bit/s of the L2 bytes of full frames; absent if there is a time without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<f64>,
    /// The propagation delay, in ms.
    pub delay_ms: f64,
    /// The greatest spread of the delay, in ms.
    pub jitter_ms: f64,
    /// The share of packets that are lost at random, in percent.
    pub loss_percent: f64,
    /// The share of the time in which nothing passes, in percent: closed gates, rates of 0, stalls.
    pub outage_percent: f64,
}

/// Conditions from which the figures at any time follow, for packets of no class.
#[derive(Clone, Debug)]
pub struct OverTime {
    stages: Stages,
}

impl Outline {
    /// Derives the figures of the first `length` of a link.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::all_hops`].
    pub fn of(spec: &LinkSpec, length: Nanos) -> Result<Self, Error> {
        let all = OverTime::of(spec)?;
        Ok(all.between(Nanos::ZERO, length, usize::MAX))
    }
}

impl OverTime {
    /// Derives the stages of these conditions.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::all_hops`].
    pub fn of(spec: &LinkSpec) -> Result<Self, Error> {
        let Route { up, down, .. } = route(&spec.all_hops("box")?);
        let stages = Stages {
            up: up.0,
            down: down.0,
        };
        Ok(Self { stages })
    }

    /// Returns the figures from one time to a later one, both counted from the link's start. If the conditions change more
    /// than `most` times, there are that many periods of equal length, each with the figures at its beginning.
    pub fn between(&self, from: Nanos, until: Nanos, most: usize) -> Outline {
        let Stages { up, down } = &self.stages;
        let [up, down] = [up, down].map(|stages| stated(stages, from, until, most));
        Outline { up, down }
    }

    /// Returns the figures at a time since the link's start, up and down. Their period has no length.
    pub fn at(&self, time: Nanos) -> [OutlinePeriod; 2] {
        let Stages { up, down } = &self.stages;
        [up, down].map(|stages| figures(&then(stages, time), time, time))
    }
}

impl OutlinePeriod {
    /// Returns whether no packet passes.
    pub fn is_closed(&self) -> bool {
        self.rate == Some(0)
    }

    /// Returns its length in seconds.
    pub fn seconds(&self) -> f64 {
        (self.until.0 - self.from.0) as f64 / 1e9
    }
}

impl Averages {
    /// Averages the figures of a direction over time.
    pub fn of(all: &[OutlinePeriod]) -> Self {
        let over = |which: &dyn Fn(&OutlinePeriod) -> bool,
                    value: &dyn Fn(&OutlinePeriod) -> f64| {
            let all = all.iter().filter(|one| which(one));
            let (sum, time) = all.fold((0.0, 0.0), |(sum, time), one| {
                (sum + value(one) * one.seconds(), time + one.seconds())
            });
            if time > 0.0 { sum / time } else { 0.0 }
        };
        let always = |_: &OutlinePeriod| true;
        let passes = |one: &OutlinePeriod| !one.is_closed();
        let is_limited = all.iter().all(|one| one.rate.is_some());
        let closed = over(&always, &|one| f64::from(u8::from(one.is_closed())));
        let stalled = over(&passes, &|one| one.stalled);
        Self {
            rate_bit_per_s: is_limited
                .then(|| over(&passes, &|one| one.rate.unwrap_or_default() as f64)),
            delay_ms: over(&always, &|one| ms(one.delay)),
            jitter_ms: all.iter().map(|one| ms(one.jitter)).fold(0.0, f64::max),
            loss_percent: 100.0 * over(&passes, &|one| one.loss),
            outage_percent: 100.0 * (closed + (1.0 - closed) * stalled),
        }
    }
}

/// Returns the figures of these stages, one for each time at which any of them changes, or at `most` times if there are
/// more. If `most` limits them and a stage serves at given times, there is one for each window in which those times are
/// counted, but at most `most`.
fn stated(stages: &[StageSpec], from: Nanos, until: Nanos, most: usize) -> Vec<OutlinePeriod> {
    if until <= from {
        return Vec::new();
    }
    let mut times = vec![from];
    for stage in stages {
        // One more than there may be shows that there are too many.
        let own = times_of(&stage.schedule, from, until).take(most.saturating_add(1));
        times.extend(own);
    }
    times.sort_unstable();
    times.dedup();
    let is_shortened = most < usize::MAX && served::is_any_traced(stages);
    if times.len() > most || is_shortened {
        let most = (most as u64).max(1);
        let parts = match is_shortened {
            true => served::windows(until - from).min(most),
            false => most,
        };
        let length = u128::from((until - from).0);
        let at = |part: u64| {
            let since = length * u128::from(part) / u128::from(parts);
            from + Nanos(u64::try_from(since).unwrap_or(u64::MAX))
        };
        times = (0..parts).map(at).collect();
        times.dedup();
    }
    let ends = times.iter().copied().skip(1).chain([until]);
    let spans = times.iter().copied().zip(ends);
    spans
        .map(|(from, until)| figures(&then(stages, from), from, until))
        .collect()
}

/// Returns the times of the steps of a schedule within a span.
fn times_of(
    schedule: &Schedule,
    from: Nanos,
    until: Nanos,
) -> Box<dyn Iterator<Item = Nanos> + '_> {
    match schedule {
        Schedule::List(list) => {
            let first = list.partition_point(|(at, _)| *at < from);
            let times = list[first..].iter().map(|(at, _)| *at);
            Box::new(times.take_while(move |at| *at < until))
        }
        Schedule::Computed(steps) => {
            let later = (steps.count_until(from)..).map_while(move |index| steps.step(index));
            let times = later.map(|(at, _)| at);
            Box::new(times.take_while(move |at| *at < until))
        }
    }
}

/// Returns the stages with the effects that are in force at a time.
fn then(stages: &[StageSpec], time: Nanos) -> PathStages {
    let stages = stages.iter().map(|stage| {
        let last = match &stage.schedule {
            Schedule::List(list) => list.iter().rev().find(|(at, _)| *at <= time).cloned(),
            Schedule::Computed(steps) => {
                let last = steps.count_until(time).checked_sub(1);
                last.and_then(|index| steps.step(index))
            }
        };
        let effect = last.map_or_else(|| stage.effect.clone(), |(_, effect)| effect);
        StageSpec::new(stage.name.clone(), effect)
    });
    PathStages(stages.collect())
}

fn figures(stages: &PathStages, from: Nanos, until: Nanos) -> OutlinePeriod {
    let is_closed = |stage: Behaviour<'_>| {
        let has_no_rate = match stage.bottleneck {
            Some(Bottleneck::Rate(rate)) => rate.rate.is_none(),
            Some(Bottleneck::Netem(_) | Bottleneck::Trace(_) | Bottleneck::Toffee(_)) | None => {
                false
            }
        };
        has_no_rate || stage.holds == Holding::UntilChanged
    };
    let rate = if stages.behaviours().any(is_closed) {
        Some(0)
    } else {
        let stated = stages.slowest(FULL_FRAME).map(|(rate, _)| rate.get());
        let served = served::rate(stages, from, until);
        stated.into_iter().chain(served).min()
    };
    let fluctuation = stages
        .bottlenecks()
        .find_map(|bottleneck| match bottleneck {
            Bottleneck::Rate(rate) => rate.fluctuation,
            Bottleneck::Netem(_) | Bottleneck::Trace(_) | Bottleneck::Toffee(_) => None,
        });
    let stalls = stages.0.iter().filter_map(|stage| {
        let Effect::Stall(Stall { every, lasts }) = stage.effect else {
            return None;
        };
        (every.0 > 0).then(|| (lasts.0 as f64 / every.0 as f64).min(1.0))
    });
    let spreads = stages
        .behaviours()
        .filter_map(|stage| Some(stage.delay?.jitter.as_ref()?.spread));
    OutlinePeriod {
        from,
        until,
        rate,
        fluctuation: fluctuation.map_or(0.0, |one| one.spread.fraction()),
        hold: fluctuation.map_or(Nanos::ZERO, |one| one.hold),
        delay: stages.propagation(),
        jitter: spreads.max().unwrap_or_default(),
        loss: stages.loss_percent() / 100.0,
        stalled: 1.0 - stalls.fold(1.0, |passes, stalled| passes * (1.0 - stalled)),
    }
}
