//! The effects of a trace on the stages of a link, computed when their time comes.

use std::fmt;
use std::sync::Arc;

use model::{
    Bytes, Delay, Duplication, Effect, Jitter, LIGHT_OPPORTUNITY, Law, Nanos, Opportunities, Queue,
    QueueLimit, Rate, Steps,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::packed::Reader;
use super::{Line, Series, Trace};
use crate::stalled::stalled_limit;

/// The conditions that follow when a trace is over.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TraceEnd {
    /// The trace starts again.
    #[default]
    Loop,
    /// The conditions of the last line stay.
    Hold,
    /// The conditions of the trace no longer apply.
    Clear,
}

/// The lines of a trace as a link meets them, with a line number that goes on where the trace repeats.
#[derive(Debug)]
struct Player {
    reader: Reader,
    length: Nanos,
    repeats: bool,
}

impl Player {
    fn new(series: &Series, end: TraceEnd) -> Self {
        Self {
            reader: series.reader(),
            length: series.length,
            repeats: end == TraceEnd::Loop,
        }
    }

    /// Returns the number of the round of line number `index`, and its number within the round.
    fn round(&self, index: u64) -> Option<(u64, u64)> {
        let lines = self.reader.lines();
        let round = (index / lines, index % lines);
        (self.repeats || round.0 == 0).then_some(round)
    }

    fn at(&self, index: u64) -> Option<Nanos> {
        let (round, within) = self.round(index)?;
        Some(self.length.saturating_mul(round) + self.reader.at(within)?)
    }

    fn line(&self, index: u64) -> Option<Line> {
        let (round, within) = self.round(index)?;
        let line = self.reader.line(within)?;
        let at = self.length.saturating_mul(round) + line.at;
        Some(Line { at, ..line })
    }

    /// Returns the number of lines up to `time`, inclusive. Every line comes before the end of its round.
    fn count_until(&self, time: Nanos) -> u64 {
        if !self.repeats {
            return self.reader.count_until(time);
        }
        let rounds = time.0 / self.length.0;
        let within = self.reader.count_until(Nanos(time.0 % self.length.0));
        rounds * self.reader.lines() + within
    }
}

impl Opportunities for Player {
    fn at(&self, index: u64) -> Nanos {
        Self::at(self, index).unwrap_or(Nanos::MAX)
    }
}

/// The opportunities of a full load beside a light one, which have its size.
#[derive(Debug)]
struct FullLoad(Player);

impl Opportunities for FullLoad {
    fn at(&self, index: u64) -> Nanos {
        Opportunities::at(&self.0, index)
    }

    fn bytes(&self) -> Bytes {
        LIGHT_OPPORTUNITY
    }
}

impl Trace {
    /// Returns its opportunities for a bottleneck, if it has any.
    pub(crate) fn opportunities_until(&self, end: TraceEnd) -> Option<Arc<dyn Opportunities>> {
        let player = Player::new(self.opportunities.as_ref()?, end);
        Some(match self.light {
            Some(_) => Arc::new(FullLoad(player)),
            None => Arc::new(player),
        })
    }

    /// Returns the line that is in force at a time of its steps, if it has any.
    pub fn line_at(&self, time: Nanos, end: TraceEnd) -> Option<Line> {
        let player = Player::new(self.steps.as_ref()?, end);
        player.line(player.count_until(time).checked_sub(1)?)
    }
}

/// The effect of a line of a trace on one stage: the conditions that the trace does not state are part of it.
#[derive(Clone, Debug)]
pub(crate) enum Overlay {
    /// The line sets the rate, and the size of the queue if `queue` is true. The rate that is there is the first one of
    /// the trace.
    Rate {
        /// The other parameters.
        rate: Rate,
        /// Whether the trace states the size of the queue.
        queue: bool,
    },
    /// The line sets the delay, the jitter, or both.
    Delay {
        /// The other parameters, and the law of the jitter.
        delay: Delay,
        /// Whether the trace states the delay.
        time: bool,
        /// The jitter with the law that the line's spread gets, if the trace states the spread.
        jitter: Option<Jitter>,
    },
    /// The line sets the loss.
    Loss,
    /// The line sets the duplication.
    Duplicate,
}

impl Overlay {
    /// Returns the effect of a line.
    pub(crate) fn effect(&self, line: &Line) -> Effect {
        match self {
            Self::Rate { rate, queue } => rate_of(*rate, *queue, line),
            Self::Delay {
                delay,
                time,
                jitter,
            } => {
                let mut delay = delay.clone();
                if *time {
                    delay.time = line.delay;
                }
                if let Some(jitter) = jitter {
                    let spread = line.jitter;
                    let varied = || Jitter {
                        spread,
                        ..jitter.clone()
                    };
                    delay.jitter = (spread > Nanos::ZERO).then(varied);
                }
                if delay == Delay::default() {
                    Effect::Nothing
                } else {
                    Effect::Delay(delay)
                }
            }
            Self::Loss if line.loss.percent() > 0.0 => Effect::Loss(line.loss.into()),
            Self::Duplicate if line.copies.percent() > 0.0 => Effect::Duplicate(Duplication {
                delay: line.copies_after,
                ..Duplication::from(line.copies)
            }),
            Self::Loss | Self::Duplicate => Effect::Nothing,
        }
    }

    /// Returns the effects between which all effects of a trace lie.
    pub(crate) fn extremes(&self, trace: &Trace) -> Vec<Effect> {
        let super::Extremes {
            least,
            greatest,
            stalls,
            is_unlimited,
        } = &trace.extremes;
        let mut lines = vec![*least, *greatest];
        let with = |rate: u64, is_stalled: bool| Line {
            rate,
            is_stalled,
            ..*greatest
        };
        let first = trace.first_rate.unwrap_or(0);
        lines.extend(stalls.then(|| with(first, true)));
        lines.extend(is_unlimited.then(|| with(Line::UNLIMITED, false)));
        // The first line comes first, because the kind of the stage is that of its first effect.
        lines.iter().map(|line| self.effect(line)).collect()
    }

    /// Returns a jitter whose spread a trace sets.
    pub(crate) fn uniform() -> Jitter {
        Jitter {
            spread: Nanos::ZERO,
            law: Law::Uniform,
            half_life: None,
        }
    }
}

fn rate_of(rate: Rate, has_queue: bool, line: &Line) -> Effect {
    let limit = if has_queue {
        QueueLimit::Packets(line.queue.max(1))
    } else {
        rate.queue.limit
    };
    let known = model::BitsPerSec::new(line.rate).ok();
    let known = known.filter(|_| line.rate != Line::UNLIMITED);
    let (served, limit) = match line.served() {
        Some(served) => (Some(served), limit),
        None if line.is_stalled => (None, stalled_limit(limit, known.or(rate.rate))),
        None => return Effect::Nothing,
    };
    Effect::Rate(Rate {
        rate: served,
        queue: Queue {
            limit,
            ..rate.queue
        },
        ..rate
    })
}

/// The effects of a stage from a time on.
#[derive(Debug)]
pub(crate) struct Segment {
    at: Nanos,
    /// The number of its first step among all steps.
    first_step: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Fixed(Effect),
    Stepped {
        steps: Box<dyn StageSteps>,
        /// The number of the step that is in force when the segment begins.
        first: u64,
    },
}

/// Steps of a stage, the first of which is at 0. They never run backwards.
pub(crate) trait StageSteps: fmt::Debug + Send + Sync {
    /// Returns step number `index` (from 0), if there is one.
    fn step(&self, index: u64) -> Option<(Nanos, Effect)>;

    /// Returns the number of steps up to `time`, inclusive.
    fn count_until(&self, time: Nanos) -> u64;
}

/// The steps of a stage that follows a trace.
#[derive(Debug)]
struct Played {
    overlay: Overlay,
    player: Player,
}

impl StageSteps for Played {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        let line = self.player.line(index)?;
        Some((line.at, self.overlay.effect(&line)))
    }

    fn count_until(&self, time: Nanos) -> u64 {
        self.player.count_until(time)
    }
}

impl Segment {
    /// Has one effect from `at` on.
    pub(crate) fn fixed(at: Nanos, effect: Effect) -> Self {
        Self {
            at,
            first_step: 0,
            source: Source::Fixed(effect),
        }
    }

    /// Has the effects of the steps of a trace from `at` on; `None` if the trace has no steps.
    pub(crate) fn played(
        at: Nanos,
        trace: &Trace,
        end: TraceEnd,
        overlay: Overlay,
    ) -> Option<Self> {
        let player = Player::new(trace.steps.as_ref()?, end);
        Some(Self::stepped(at, Box::new(Played { overlay, player })))
    }

    /// Has the effects of these steps from `at` on.
    pub(crate) fn stepped(at: Nanos, steps: Box<dyn StageSteps>) -> Self {
        Self {
            at,
            first_step: 0,
            source: Source::Stepped {
                first: steps.count_until(at).saturating_sub(1),
                steps,
            },
        }
    }

    /// Returns the number of its steps up to `time`, which is not before it begins.
    fn count_until(&self, time: Nanos) -> u64 {
        match &self.source {
            Source::Fixed(_) => 1,
            Source::Stepped { steps, first } => steps.count_until(time).saturating_sub(*first),
        }
    }

    /// Returns step number `index` (from 0) of it.
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        match &self.source {
            Source::Fixed(effect) => (index == 0).then(|| (self.at, effect.clone())),
            Source::Stepped { steps, first } => {
                let (at, effect) = steps.step(first + index)?;
                Some((at.max(self.at), effect))
            }
        }
    }
}

/// The schedule of a stage whose steps are computed for a part of the time or always.
#[derive(Debug)]
pub(crate) struct PlayedSchedule {
    segments: Vec<Segment>,
    extremes: Vec<Effect>,
}

impl PlayedSchedule {
    /// Creates the schedule of these segments, which are in order of time and begin at 0. `extremes` describe their
    /// effects.
    pub(crate) fn new(mut segments: Vec<Segment>, extremes: Vec<Effect>) -> Self {
        let mut steps = 0;
        for place in 0..segments.len() {
            segments[place].first_step = steps;
            if let Some(next) = segments.get(place + 1) {
                // A line at the time of the next segment belongs to that one.
                let last = Nanos(next.at.0.saturating_sub(1));
                steps += segments[place].count_until(last).max(1);
            }
        }
        Self { segments, extremes }
    }

    /// Returns the first effect.
    pub(crate) fn first(&self) -> Effect {
        self.step(0).map_or(Effect::Nothing, |(_, effect)| effect)
    }
}

impl Steps for PlayedSchedule {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        let begun = |segment: &Segment| segment.first_step <= index;
        let segment = self.segments.partition_point(begun).checked_sub(1)?;
        let segment = &self.segments[segment];
        segment.step(index - segment.first_step)
    }

    fn count_until(&self, time: Nanos) -> u64 {
        let begun = |segment: &Segment| segment.at <= time;
        let segment = self.segments.partition_point(begun).checked_sub(1);
        segment.map_or(0, |segment| {
            let segment = &self.segments[segment];
            segment.first_step + segment.count_until(time)
        })
    }

    fn extremes(&self) -> &[Effect] {
        &self.extremes
    }
}
