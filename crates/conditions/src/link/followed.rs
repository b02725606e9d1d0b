//! The stages of conditions over time, some of which follow traces or come again and again.

use std::sync::Arc;

use model::{
    BitsPerSec, CellReplay, Delay, Effect, LightLoad, Nanos, Opportunities, Queue, Schedule,
    StageSpec, Trace,
};

use super::stage::DEFAULT_QUEUE;
use crate::condition::{
    AqmSpec, HandoverSpec, JitterSpec, OutageSpec, QueueSpec, RateSpec, Shapes, TraceSpec,
};
use crate::layer::{ConditionSet, Layer};
use crate::repeat::Repetition;
use crate::trace::{self, Columns, Overlay, PlayedSchedule, Segment, StageSteps, TraceEnd};

/// The stages that conditions make, in order, with the ends of their names.
pub(super) const STAGES: [(Shapes, &str); 18] = [
    (Shapes::PathMtu, "path-mtu"),
    (Shapes::Police, "police"),
    (Shapes::Outage, "outage-hold"),
    (Shapes::Handover, "handover-loss"),
    (Shapes::Handover, "handover"),
    (Shapes::Netem, "netem-first"),
    (Shapes::Pps, "pps"),
    (Shapes::Rate, "rate"),
    (Shapes::Trace, "trace"),
    (Shapes::Trace, CELL_REPLAY),
    (Shapes::Netem, "netem"),
    (Shapes::Loss, "loss"),
    (Shapes::Loss, "burst-loss"),
    (Shapes::Outage, "outage"),
    (Shapes::Ber, "ber"),
    (Shapes::Duplicate, "duplicate"),
    (Shapes::Corrupt, "corrupt"),
    (Shapes::Delay, "delay"),
];

/// The end of the name of the stage of traces with a light load.
const CELL_REPLAY: &str = "cell-replay";

/// The conditions from a time on, and the trace that they follow then.
pub(super) struct Moment {
    at: Nanos,
    conditions: ConditionSet,
    follows: Option<Followed>,
}

/// A trace that conditions follow.
struct Followed {
    trace: Arc<trace::Trace>,
    end: TraceEnd,
    /// The columns that count.
    columns: Columns,
    /// Whether the bottleneck serves at its times.
    has_opportunities: bool,
    /// The light load beside these times.
    light: Option<Arc<LightLoad>>,
    /// Whether the light load has delays, in place of the one that the conditions state.
    has_light_delays: bool,
    /// The part of these delays that the stage of the delay has in their place, from which jitter may take away.
    moved: Nanos,
}

/// Returns the times at which traces of a layer end and their conditions no longer hold.
pub(super) fn ends(layer: &Layer) -> impl Iterator<Item = Nanos> {
    let steps = layer.schedule.iter().map(|step| &step.conditions);
    let sets = [&layer.at_first].into_iter().chain(steps);
    let traces = sets.filter_map(ConditionSet::get::<TraceSpec>);
    let clears = traces.filter(|spec| spec.end == TraceEnd::Clear);
    clears.filter_map(|spec| Some(spec.trace()?.length()))
}

impl Moment {
    /// Has these conditions from `at` on.
    pub(super) fn new(at: Nanos, conditions: ConditionSet) -> Self {
        Self {
            at,
            follows: conditions
                .get()
                .and_then(|spec| Followed::new(at, spec, &conditions)),
            conditions,
        }
    }

    /// Returns the rate that it states, if that is above 0.
    fn rate(&self) -> Option<BitsPerSec> {
        self.conditions.get::<RateSpec>().and_then(|line| line.rate)
    }
}

impl Followed {
    fn new(at: Nanos, spec: &TraceSpec, conditions: &ConditionSet) -> Option<Self> {
        let trace = spec.trace()?;
        if spec.end == TraceEnd::Clear && at >= trace.length() {
            return None;
        }
        let has_light_delays = spec.has_light_delays();
        let Delay {
            jitter, reorder, ..
        } = conditions.delay();
        let varies = has_light_delays && (jitter.is_some() || reorder.is_some());
        let moved = trace.light().filter(|_| varies);
        let moved = moved.map_or(Nanos::ZERO, LightLoad::least_delay);
        let shorter_by = if has_light_delays { moved } else { Nanos::MAX };
        Some(Self {
            trace: Arc::clone(trace),
            end: spec.end,
            columns: spec.columns(),
            has_opportunities: spec.has_opportunities(),
            light: trace.light.as_ref().map(|light| match shorter_by {
                Nanos::ZERO => Arc::clone(&light.load),
                by => Arc::new(light.load.with_shorter_delays(by)),
            }),
            has_light_delays,
            moved,
        })
    }

    /// Returns the effect of its lines on a stage under these conditions; `None` if the conditions alone determine it.
    fn overlay(&self, stage: Shapes, conditions: &ConditionSet) -> Option<Overlay> {
        let Columns {
            rate,
            delay,
            jitter,
            loss,
            queue,
            duplicate,
        } = self.columns;
        match stage {
            Shapes::Rate if rate => {
                let first = self
                    .trace
                    .first_rate
                    .and_then(|rate| BitsPerSec::new(rate).ok());
                let mut with_rate = conditions.clone();
                with_rate.set(RateSpec {
                    // A trace without a rate has no limit at any time, so this rate is never in force.
                    rate: first.or(BitsPerSec::new(u64::MAX).ok()),
                    burst: None,
                });
                match with_rate.rate(first) {
                    Effect::Rate(rate) => Some(Overlay::Rate { rate, queue }),
                    _ => None,
                }
            }
            Shapes::Delay if delay || jitter => {
                let own = conditions.get::<JitterSpec>();
                // Without a spread, a jitter has no law and no order.
                let with_spread = own.cloned().map(|own| JitterSpec {
                    spread: own.spread.max(Nanos(1)),
                    ..own
                });
                let law = with_spread.as_ref().and_then(JitterSpec::to_model);
                let mut all = conditions.delay();
                if let Some(own) = own {
                    all.ordering = own.ordering;
                }
                Some(Overlay::Delay {
                    delay: all,
                    time: delay,
                    jitter: jitter.then(|| law.unwrap_or_else(Overlay::uniform)),
                })
            }
            Shapes::Loss if loss => Some(Overlay::Loss),
            Shapes::Duplicate if duplicate => Some(Overlay::Duplicate),
            _ => None,
        }
    }
}

/// Creates the stages of conditions over time, with names that begin with `prefix`. The moments are in order and begin
/// at 0; those of a repetition end with its first period. `seed` determines the times and delays that are drawn.
pub(super) fn stages(
    moments: &[Moment],
    prefix: &str,
    seed: u64,
    repeats: Option<Repetition>,
) -> [StageSpec; STAGES.len()] {
    let mut rate = moments.iter().find_map(Moment::rate);
    let mut stages = STAGES.map(|(_, name)| Timeline::new(format!("{prefix}.{name}")));
    let mut bottlenecks = Vec::new();
    for moment in moments {
        rate = moment.rate().or(rate);
        let effects = moment.conditions.effects(rate);
        for ((stage, (shapes, name)), effect) in stages.iter_mut().zip(STAGES).zip(effects) {
            let part = moment
                .trace_part(shapes, name, &mut bottlenecks)
                .or_else(|| moment.recurring_part(shapes, name, seed));
            stage.add(part.unwrap_or(Part::Fixed(moment.at, effect)));
        }
    }
    stages.map(|stage| stage.finish(repeats))
}

impl Moment {
    /// Returns the effects of its trace on a stage; `None` if the trace does not determine the stage.
    fn trace_part(&self, stage: Shapes, name: &str, bottlenecks: &mut Bottlenecks) -> Option<Part> {
        let followed = self.follows.as_ref()?;
        let nothing = Some(Part::Fixed(self.at, Effect::Nothing));
        match (stage, followed.overlay(stage, &self.conditions)) {
            // Independent loss replaces loss in bursts.
            (_, Some(_)) if name == "burst-loss" => nothing,
            (_, Some(overlay)) => {
                let extremes = overlay.extremes(&followed.trace);
                let segment = Segment::played(self.at, &followed.trace, followed.end, overlay)?;
                Some(Part::Stepped(segment, extremes))
            }
            (Shapes::Trace, None) if (name == CELL_REPLAY) != followed.light.is_some() => nothing,
            (Shapes::Trace, None) => {
                let effect = followed.bottleneck(&self.conditions, bottlenecks);
                Some(Part::Fixed(self.at, effect))
            }
            (Shapes::Rate, None) if followed.has_opportunities => nothing,
            (Shapes::Delay, None) if followed.has_light_delays => {
                let delay = Delay {
                    time: followed.moved,
                    ..self.conditions.delay()
                };
                let effect = if delay == Delay::default() {
                    Effect::Nothing
                } else {
                    Effect::Delay(delay)
                };
                Some(Part::Fixed(self.at, effect))
            }
            (_, None) => None,
        }
    }

    /// Returns the effects of outages and handovers on a stage, if they have any.
    fn recurring_part(&self, stage: Shapes, name: &str, seed: u64) -> Option<Part> {
        let outage = self.conditions.get::<OutageSpec>();
        let handover = self.conditions.get::<HandoverSpec>();
        let (steps, extremes) = match stage {
            Shapes::Outage => outage?.steps(name, seed),
            Shapes::Handover => handover?.steps(name),
            Shapes::Delay => handover?.moved(self.conditions.delay(), seed),
            _ => None,
        }?;
        Some(Part::Stepped(Segment::stepped(self.at, steps), extremes))
    }
}

/// The times of traces that bottlenecks serve at. Several effects of a stage share one object, so that the service goes
/// on where only the queue changes.
type Bottlenecks = Vec<(Arc<trace::Trace>, TraceEnd, Arc<dyn Opportunities>)>;

impl Followed {
    /// Returns the bottleneck that serves at its times, or [`Effect::Nothing`].
    fn bottleneck(&self, conditions: &ConditionSet, known: &mut Bottlenecks) -> Effect {
        if !self.has_opportunities {
            return Effect::Nothing;
        }
        let is_same = |(trace, end, _): &&(Arc<trace::Trace>, TraceEnd, Arc<dyn Opportunities>)| {
            Arc::ptr_eq(trace, &self.trace) && *end == self.end
        };
        let opportunities = match known.iter().find(is_same) {
            Some((.., opportunities)) => Some(Arc::clone(opportunities)),
            None => self.trace.opportunities_until(self.end).inspect(|new| {
                known.push((Arc::clone(&self.trace), self.end, Arc::clone(new)));
            }),
        };
        let aqm = conditions.get::<AqmSpec>().copied();
        let usual = aqm.and_then(AqmSpec::usual_limit).unwrap_or(DEFAULT_QUEUE);
        let served = opportunities.map(|opportunities| Trace {
            opportunities,
            queue: Queue {
                limit: conditions.get().map_or(usual, |QueueSpec(queue)| *queue),
                discipline: aqm.map(|aqm| aqm.0).unwrap_or_default(),
            },
        });
        match (served, &self.light) {
            (None, _) => Effect::Nothing,
            (Some(full), Some(light)) => Effect::CellReplay(CellReplay {
                light: Arc::clone(light),
                full,
            }),
            (Some(served), None) => Effect::Trace(served),
        }
    }
}

/// The effects of one stage over time.
struct Timeline {
    name: String,
    parts: Vec<Part>,
}

enum Part {
    Fixed(Nanos, Effect),
    /// Steps, and effects that describe them.
    Stepped(Segment, Vec<Effect>),
}

impl Timeline {
    fn new(name: String) -> Self {
        Self {
            name,
            parts: Vec::new(),
        }
    }

    /// Adds a part, unless it is the same fixed effect as the last one.
    fn add(&mut self, part: Part) {
        let is_same = match (self.parts.last(), &part) {
            (Some(Part::Fixed(_, before)), Part::Fixed(_, now)) => before == now,
            _ => false,
        };
        if !is_same {
            self.parts.push(part);
        }
    }

    fn finish(mut self, repeats: Option<Repetition>) -> StageSpec {
        let is_stepped = |part: &Part| matches!(part, Part::Stepped(..));
        let has_steps = self.parts.iter().any(is_stepped);
        if has_steps && repeats.is_some() {
            // Its conditions do not change beside steps that repeat.
            self.parts.truncate(1);
        }
        if !has_steps {
            let all = self.parts.into_iter().filter_map(|part| match part {
                Part::Fixed(at, effect) => Some((at, effect)),
                Part::Stepped(..) => None,
            });
            let all: Vec<(Nanos, Effect)> = all.collect();
            let again =
                |repeats: &Repetition| all.last().is_some_and(|(at, _)| *at >= repeats.from);
            if let Some(repeats) = repeats.filter(again) {
                let extremes = all.iter().map(|(_, effect)| effect.clone()).collect();
                let steps = Repeated::new(all, repeats);
                return computed(
                    self.name,
                    vec![Segment::stepped(Nanos::ZERO, steps)],
                    extremes,
                );
            }
            let mut all = all.into_iter();
            let first = all.next().map_or(Effect::Nothing, |(_, effect)| effect);
            return StageSpec {
                schedule: all.collect::<Vec<_>>().into(),
                ..StageSpec::new(self.name, first)
            };
        }
        let mut extremes = Vec::new();
        let segments = self.parts.into_iter().map(|part| match part {
            Part::Fixed(at, effect) => {
                extremes.push(effect.clone());
                Segment::fixed(at, effect)
            }
            Part::Stepped(segment, of_steps) => {
                extremes.extend(of_steps);
                segment
            }
        });
        let segments = segments.collect();
        computed(self.name, segments, extremes)
    }
}

/// Creates a stage whose steps are computed.
fn computed(name: String, segments: Vec<Segment>, extremes: Vec<Effect>) -> StageSpec {
    let played = PlayedSchedule::new(segments, extremes);
    let first = StageSpec::new(name, played.first());
    StageSpec {
        schedule: Schedule::Computed(Arc::new(played)),
        ..first
    }
}

/// Effects of which the last ones repeat for ever.
#[derive(Debug)]
struct Repeated {
    once: Vec<(Nanos, Effect)>,
    again: Vec<(Nanos, Effect)>,
    repetition: Repetition,
}

impl Repeated {
    /// Repeats the effects that begin with the repetition or later, of which there is at least one. The first effect of
    /// `all` is at 0.
    fn new(mut all: Vec<(Nanos, Effect)>, repetition: Repetition) -> Box<Self> {
        let first = all.partition_point(|(at, _)| *at < repetition.from);
        let again = all.split_off(first);
        Box::new(Self {
            once: all,
            again,
            repetition,
        })
    }
}

impl StageSteps for Repeated {
    fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        let once = self.once.len() as u64;
        let Some(behind) = index.checked_sub(once) else {
            return self.once.get(usize::try_from(index).ok()?).cloned();
        };
        let each = self.again.len() as u64;
        let place = usize::try_from(behind % each).ok()?;
        let (first, effect) = self.again.get(place)?;
        let at = *first + self.repetition.every.saturating_mul(behind / each);
        (at < Nanos::MAX).then(|| (at, effect.clone()))
    }

    fn count_until(&self, time: Nanos) -> u64 {
        let Repetition { from, every } = self.repetition;
        if time < from {
            return count_of(&self.once, time);
        }
        let since = time - from;
        let rounds = since.0 / every.0 * self.again.len() as u64;
        let within = from + Nanos(since.0 % every.0);
        self.once.len() as u64 + rounds + count_of(&self.again, within)
    }
}

/// Returns the number of effects up to `time`, inclusive.
fn count_of(all: &[(Nanos, Effect)], time: Nanos) -> u64 {
    all.partition_point(|(at, _)| *at <= time) as u64
}
