//! The stages that conditions make, in the order in which packets meet them.

use model::{
    BitErrorRate, BitsPerSec, Delay, Discipline, Effect, LinkConfig, MOST_STAGES, Nanos, PathSpec,
    Probability, Queue, QueueLimit, Rate, Side, StageSpec, Weights,
};

use super::followed::{self, Moment, STAGES};
use super::rule::{self, RuleSpec};
use crate::Direction;
use crate::condition::{
    AqmSpec, BerSpec, ConditionKind, ConditionValue, CorruptSpec, DelaySpec, DuplicateSpec,
    FluctuationSpec, HandoverSpec, JitterSpec, LossSpec, NetemAtSpec, NetemSpec, PathMtuSpec,
    PoliceSpec, PpsSpec, QueueSpec, RateAtSpec, RateSpec, ReorderSpec, Shapes, SizeDelaySpec,
    TraceSpec,
};
use crate::error::{At, Error};
use crate::layer::{ConditionSet, Layer, Provided, ScheduleCursor, ScheduleStep};
use crate::link::LinkSpec;
use crate::link::stage::Place;
use crate::ramp::MOST_RAMPS;
use crate::repeat::Repetition;
use crate::require;
use crate::route::{PathStages, Route};
use crate::rules::{EmulatedLink, Rule};
use crate::stalled::stalled_limit;

/// The most steps of all schedules, counted in each direction and again for each rule, which follows them too.
const MOST_STEPS_OF_RULES: u64 = 1 << 15;

/// The queue of a rate for which none was stated: 100 ms at that rate, and at least 20 packets, because TCP's first
/// window of ten packets would not fit into the queue of a slow line.
pub(crate) const DEFAULT_QUEUE: QueueLimit = QueueLimit::TimeOrPackets(Nanos(100_000_000), 20);

/// The stages of one hop in both directions. The names of its stages begin with its name: "wire", "box".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hop {
    /// The stages for packets that match no rule.
    pub rest: Stages,
    /// The rules, and the stages for the packets of each.
    pub rules: Vec<(Rule, Stages)>,
}

/// The stages of some packets in a hop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages {
    /// The stages from client to server.
    pub up: Vec<StageSpec>,
    /// The stages from server to client.
    pub down: Vec<StageSpec>,
}

impl Hop {
    /// Returns it with its two directions exchanged.
    pub fn reversed(mut self) -> Self {
        let all = self.rules.iter_mut().map(|(_, stages)| stages);
        for stages in all.chain([&mut self.rest]) {
            std::mem::swap(&mut stages.up, &mut stages.down);
        }
        self
    }

    /// Returns the stages for packets of this class.
    fn stages(&self, class: usize) -> &Stages {
        let own = class.checked_sub(1).and_then(|index| self.rules.get(index));
        own.map_or(&self.rest, |(_, stages)| stages)
    }
}

/// Creates the model's link number `link` from hops in the order in which packets meet them on the way up; on the way
/// down, they meet them in reverse. Hops that have rules have the same ones.
pub fn emulated_link(hops: &[Hop], seed: u64, link: u64) -> EmulatedLink {
    let mut rules = hops.iter().map(|hop| &hop.rules);
    let rules = rules.find(|rules| !rules.is_empty()).into_iter().flatten();
    let rules: Vec<Rule> = rules.map(|(rule, _)| rule.clone()).collect();
    let paths = (0..).zip(0..=rules.len()).flat_map(|(class, index)| {
        let (up, down) = stages_of_class(hops, index);
        let path = |side, stages| PathSpec {
            side,
            class,
            stages,
        };
        [path(Side::A, up), path(Side::B, down)]
    });
    let config = LinkConfig {
        seed,
        link,
        paths: paths.collect(),
        ..LinkConfig::default()
    };
    EmulatedLink {
        config,
        rules: rules.into_iter().collect(),
    }
}

/// Returns the stages that packets that match no rule meet on these hops.
pub fn route(hops: &[Hop]) -> Route {
    let (up, down) = stages_of_class(hops, 0);
    let mut all = up.iter().chain(&down);
    Route {
        is_steady: all.all(|stage| stage.schedule.is_empty())
            && hops.iter().all(|hop| hop.rules.is_empty()),
        up: PathStages(up),
        down: PathStages(down),
    }
}

/// Returns the stages that packets of a class meet up and down.
fn stages_of_class(hops: &[Hop], class: usize) -> (Vec<StageSpec>, Vec<StageSpec>) {
    let up = hops.iter().flat_map(|hop| &hop.stages(class).up);
    let down = hops.iter().rev().flat_map(|hop| &hop.stages(class).down);
    (up.cloned().collect(), down.cloned().collect())
}

impl LinkSpec {
    /// Creates the stages of the conditions of the link itself, without those of its `hops`, in a hop with this name.
    ///
    /// # Errors
    /// Returns an error for conditions that need a rate or a delay if there is none, for a drop factor below 1, for a
    /// schedule that is out of order, and for a stage or a rule that is not valid.
    pub fn hop(&self, name: &str) -> Result<Hop, Error> {
        check_steps(self.check_own()?)?;
        self.build(name)
    }

    /// Refuses conditions of the link itself that are not valid, before any stage is built. Returns the number of steps
    /// of its schedules, which [`check_steps`] limits.
    pub(super) fn check_own(&self) -> Result<u64, Error> {
        let steps = self.check_layers()?;
        rule::check(&self.rules)?;
        let (count, most) = (self.stages.len(), 2 * MOST_STAGES);
        require!(count <= most, "stages": "there are {count}: at most {most} are allowed, {MOST_STAGES} each way");
        Ok(steps)
    }

    /// Creates the stages of conditions that were checked.
    pub(super) fn build(&self, name: &str) -> Result<Hop, Error> {
        let up = self.direction(name, Direction::Up)?;
        let down = self.direction(name, Direction::Down)?;
        let rest = Stages {
            up: up.stages(),
            down: down.stages(),
        };
        let of_class = |(number, one): (usize, &RuleSpec)| {
            let stages = match one.hop {
                Some(_) => rest.clone(),
                None => Stages {
                    up: up.of_class(self, name, number),
                    down: down.of_class(self, name, number),
                },
            };
            (one.rule.clone(), stages)
        };
        let rules = self.rules.iter().enumerate().map(of_class).collect();
        Ok(Hop { rest, rules })
    }

    /// Refuses schedules that are out of order, and conditions that need another one if there never is one. Returns the
    /// number of steps of all schedules, counted in each direction and again for each rule.
    fn check_layers(&self) -> Result<u64, Error> {
        let ramps: usize = self.layers().map(Layer::ramps).sum();
        require!(
            ramps <= MOST_RAMPS,
            "schedule": "there are {ramps} steps with `over`: at most {MOST_RAMPS} are allowed; a trace has no such limit"
        );
        let check = |own: &Layer, provided: Provided| {
            own.check_schedule()?;
            own.check_repeats()?;
            own.check_ramps()?;
            own.check_traces()?;
            own.at_first.check_needs(provided)?;
            for (number, step) in own.schedule.iter().enumerate() {
                let checked = step.conditions.check_needs(provided);
                checked.at_item("schedule", number, None)?;
            }
            Ok::<_, Error>(())
        };
        let up = Provided::by([&self.up, &self.both]);
        let down = Provided::by([&self.down, &self.both]);
        check(&self.up, up).at("up")?;
        check(&self.down, down).at("down")?;
        check(&self.both, up.or(down))?;
        let mut steps: u64 = 0;
        for own in [&self.up, &self.down] {
            own.ever().or(self.both.ever()).check_handover()?;
            steps += steps_of(&[own, &self.both])?;
        }
        let has_aqm = |layer: &&Layer| layer.ever().has::<AqmSpec>();
        require!(
            self.weights().is_none() || ![&self.both, &self.up, &self.down].iter().any(has_aqm),
            "aqm": "rules share the rate by weight, from queues that no AQM manages: leave aqm out, or the weights of the rules"
        );
        let of_rest = steps;
        for (number, class) in self.rules.iter().enumerate() {
            if class.hop.is_some() {
                // Its packets follow the same steps here as those that match no rule.
                steps = steps.saturating_add(of_rest);
                continue;
            }
            let up = up.or(Provided::by([&class.up, &class.both]));
            let down = down.or(Provided::by([&class.down, &class.both]));
            let all = || {
                check(&class.up, up).at("up")?;
                check(&class.down, down).at("down")?;
                check(&class.both, up.or(down))
            };
            all().at_item("rules", number, Some(&class.rule.name))?;
            let weight = class.check_weight(number, up.rate || down.rate);
            weight.at_item("rules", number, Some(&class.rule.name))?;
            for (own, link) in [(&class.up, &self.up), (&class.down, &self.down)] {
                let together = steps_of(&[own, &class.both, link, &self.both]);
                let together = together.at_item("rules", number, Some(&class.rule.name))?;
                steps = steps.saturating_add(together);
            }
        }
        Ok(steps)
    }

    /// Returns the weights by which classes share the bottleneck, if any rule has one.
    fn weights(&self) -> Option<Weights> {
        let own = (1..).zip(&self.rules);
        let own = own.filter(|(_, rule)| rule.hop.is_none());
        let stated = own.filter_map(|(class, rule)| Some((class, rule.weight?)));
        let mut weights: Option<Weights> = None;
        for (class, weight) in stated {
            weights.get_or_insert_default().set(class, weight);
        }
        weights
    }

    /// Creates the stages for packets that match no rule in one direction of a hop.
    fn direction(&self, hop: &str, direction: Direction) -> Result<HopDirection, Error> {
        let toffee = self.toffee.clone().unwrap_or_default();
        let prefix = format!("{hop}.{}", direction.name());
        let extra = |place| {
            self.stages
                .iter()
                .enumerate()
                .filter(|(_, stage)| stage.is_in(direction, place))
                .map(|(number, stage)| {
                    let made = stage.to_model(&prefix);
                    made.at_item("stages", number, Some(stage.name()))
                })
                .collect::<Result<Vec<_>, Error>>()
        };
        let mut first = extra(Place::First)?;
        first.push(StageSpec::new(format!("{hop}.toffee"), toffee.server()));
        let drop = or_nothing(toffee.loss()?, Probability::ZERO, |share| {
            Effect::Loss(share.into())
        });
        first.push(StageSpec::new(format!("{prefix}.drop"), drop));
        Ok(HopDirection {
            direction,
            first,
            own: over_time(
                &[self.layer(direction), &self.both],
                &prefix,
                self.seed(),
                self.weights(),
                |_| true,
            ),
            last: extra(Place::Last)?,
        })
    }
}

impl RuleSpec {
    /// Refuses a weight of a rule that shares no rate. `number` is the number of the rule, from 0.
    fn check_weight(&self, number: usize, has_rate: bool) -> Result<(), Error> {
        if self.weight.is_none() {
            return Ok(());
        }
        require!(
            has_rate,
            "weight": "packets share a rate by weight: set rate for the link too, or leave weight out"
        );
        let own = self.up.ever().or(self.down.ever()).or(self.both.ever());
        require!(
            !own.shapes(Shapes::Rate) && !own.shapes(Shapes::Trace),
            "weight": "the rule has a separate bottleneck, which it does not share: leave weight out, or its rate and queue"
        );
        // The packets that match no rule are a class, too.
        let most = Weights::CLASSES - 1;
        require!(number < most, "weight": "only the first {most} rules can have a weight: put the rule before others");
        Ok(())
    }
}

/// One direction of a hop, including stages that do nothing.
struct HopDirection {
    direction: Direction,
    first: Vec<StageSpec>,
    /// The stages of conditions, in the order of [`ConditionSet::effects`].
    own: [StageSpec; STAGES.len()],
    last: Vec<StageSpec>,
}

impl HopDirection {
    fn stages(&self) -> Vec<StageSpec> {
        self.with(self.own.iter())
    }

    /// Returns the stages for the class with this number, which replace those that its conditions shape.
    fn of_class(&self, link: &LinkSpec, hop: &str, number: usize) -> Vec<StageSpec> {
        let class = &link.rules[number];
        let own = self.direction.choose(&class.up, &class.down);
        let layers = [own, &class.both, link.layer(self.direction), &link.both];
        let prefix = format!("{hop}.{}.{}", class.rule.name, self.direction.name());
        let conditions = own.ever().or(class.both.ever());
        // A class with its own rate or queue has its own bottleneck, also where the others follow a trace.
        let differs = |stage: Shapes| {
            conditions.shapes(stage) || stage == Shapes::Trace && conditions.shapes(Shapes::Rate)
        };
        let differing = over_time(&layers, &prefix, link.seed(), None, |stage| {
            differs(stage) || stage == Shapes::Trace
        });
        let pairs = STAGES.iter().zip(self.own.iter().zip(&differing));
        let own = pairs.map(
            |((stage, _), (shared, own))| {
                if differs(*stage) { own } else { shared }
            },
        );
        self.with(own)
    }

    fn with<'a>(&'a self, own: impl Iterator<Item = &'a StageSpec>) -> Vec<StageSpec> {
        self.first
            .iter()
            .chain(own)
            .chain(&self.last)
            .filter(|stage| stage.effects().any(|effect| *effect != Effect::Nothing))
            .cloned()
            .collect()
    }
}

/// Refuses more steps of all schedules together than a link may have.
pub(super) fn check_steps(steps: u64) -> Result<(), Error> {
    require!(
        steps <= MOST_STEPS_OF_RULES,
        "schedule": "there are {steps} steps, counted in each direction and again for each rule: at most {MOST_STEPS_OF_RULES} are allowed, \
         so use fewer steps or rules, or a trace"
    );
    Ok(())
}

/// Returns the number of steps that the schedules of `layers` take together, until they repeat if they do.
fn steps_of(layers: &[&Layer]) -> Result<u64, Error> {
    let repeated = Repetition::check(layers)?;
    let all = layers.iter().flat_map(|layer| &layer.schedule);
    let stated = all.map(ScheduleStep::changes_count);
    Ok(stated.fold(repeated, u64::saturating_add))
}

/// Creates the stages of layers of conditions, with their schedules. The first layer that states a condition determines
/// it, and `seed` the times that are drawn. Classes share the bottleneck by `weights`, if there are any. Only the stages
/// for which `is_wanted` is true follow the schedules, because each of many classes may differ in one stage only.
fn over_time(
    layers: &[&Layer],
    prefix: &str,
    seed: u64,
    weights: Option<Weights>,
    is_wanted: impl Fn(Shapes) -> bool,
) -> [StageSpec; STAGES.len()] {
    let repeats = Repetition::of(layers);
    let until = repeats.map_or(Nanos::MAX, Repetition::until);
    let mut cursors: Vec<ScheduleCursor<'_>> = Vec::new();
    let mut decided: Vec<&str> = Vec::new();
    for layer in layers {
        let counts = |kind: &ConditionKind| is_wanted(kind.stage) && !decided.contains(&kind.key);
        cursors.push(ScheduleCursor::with_steps(layer, until, |step| {
            step.kinds().any(counts)
        }));
        decided.extend(layer.always());
    }
    let scheduled = cursors.iter().flat_map(ScheduleCursor::times);
    let ends = layers.iter().copied().flat_map(followed::ends);
    let mut times: Vec<Nanos> = scheduled.chain(ends).chain([Nanos::ZERO]).collect();
    times.retain(|time| repeats.is_none() || *time < until);
    times.sort_unstable();
    times.dedup();
    let mut moments = Vec::new();
    for time in times {
        let now = cursors.iter_mut().map(|cursor| cursor.advance_to(time));
        let mut now = now.cloned().fold(ConditionSet::default(), ConditionSet::or);
        if let Some(weights) = weights {
            now.set(AqmSpec(Discipline::Weighted(weights)));
        }
        moments.push(Moment::new(time, now));
    }
    followed::stages(&moments, prefix, seed, repeats)
}

impl ConditionSet {
    /// Refuses a handover that moves the delay further than it can.
    fn check_handover(&self) -> Result<(), Error> {
        let Some(by) = self.get::<HandoverSpec>().and_then(|own| own.delay) else {
            return Ok(());
        };
        let trace = self.get::<TraceSpec>();
        require!(
            !trace.is_some_and(|trace| trace.shapes(Shapes::Delay) || trace.has_light_delays()),
            "handover": "delay: the trace states the delay, which a handover cannot move: leave delay={by} out"
        );
        let base = self.get().map(|DelaySpec(time)| *time).unwrap_or_default();
        require!(
            by <= base,
            "handover": "delay: it moves the delay by up to {by} down, and the delay is {base}: set a delay of at least {by}"
        );
        Ok(())
    }

    /// Returns the effect of each of [`STAGES`] under these conditions. `rate` is the last rate that was not 0.
    pub(super) fn effects(&self, rate: Option<BitsPerSec>) -> [Effect; STAGES.len()] {
        let [loss, bursts] = match self.get::<LossSpec>() {
            Some(loss) => loss.effects(),
            None => [Effect::Nothing, Effect::Nothing],
        };
        let happens = |share: Probability| share > Probability::ZERO;
        let [netem_first, netem] = self.netem();
        [
            self.effect_of(|PathMtuSpec(mtu)| Some(Effect::Mtu(*mtu))),
            self.effect_of(|police: &PoliceSpec| Some(Effect::Police(police.to_model()))),
            // The stages whose effects are steps of a trace, of outages or of handovers have none beside them.
            Effect::Nothing,
            Effect::Nothing,
            Effect::Nothing,
            netem_first,
            self.effect_of(|pps: &PpsSpec| Some(Effect::Rate(pps.to_model(DEFAULT_QUEUE)))),
            self.rate(rate),
            Effect::Nothing,
            Effect::Nothing,
            netem,
            loss,
            bursts,
            Effect::Nothing,
            self.effect_of(|BerSpec(ber)| {
                (*ber > BitErrorRate::ZERO).then_some(Effect::BitErrors(*ber))
            }),
            self.effect_of(|copies: &DuplicateSpec| happens(copies.share).then(|| copies.effect())),
            self.effect_of(|flips: &CorruptSpec| happens(flips.share).then(|| flips.effect())),
            or_nothing(self.delay(), Delay::default(), Effect::Delay),
        ]
    }

    /// Returns the effect of a condition on its stage, or [`Effect::Nothing`].
    fn effect_of<T: ConditionValue>(&self, effect: impl Fn(&T) -> Option<Effect>) -> Effect {
        self.get().and_then(effect).unwrap_or(Effect::Nothing)
    }

    /// Returns the effect of netem before the rate and behind it.
    fn netem(&self) -> [Effect; 2] {
        let netem = self.effect_of(|NetemSpec(netem)| Some(Effect::Netem(Box::new(*netem))));
        match self.get::<NetemAtSpec>().copied().unwrap_or_default() {
            NetemAtSpec::BeforeRate => [netem, Effect::Nothing],
            NetemAtSpec::AfterRate => [Effect::Nothing, netem],
        }
    }

    pub(super) fn rate(&self, known: Option<BitsPerSec>) -> Effect {
        let Some(&RateSpec { rate, burst }) = self.get() else {
            return Effect::Nothing;
        };
        let aqm = self.get::<AqmSpec>().copied();
        let usual = aqm.and_then(AqmSpec::usual_limit).unwrap_or(DEFAULT_QUEUE);
        let asked = self.get().map_or(usual, |QueueSpec(queue)| *queue);
        let limit = match (rate, asked) {
            (None, limit) => stalled_limit(limit, known),
            (Some(_), limit) => limit,
        };
        Effect::Rate(Rate {
            rate,
            fluctuation: self.get().map(|own: &FluctuationSpec| own.to_model()),
            burst,
            framing: self.get().map(|RateAtSpec(at)| *at).unwrap_or_default(),
            queue: Queue {
                limit,
                discipline: aqm.map(|aqm| aqm.0).unwrap_or_default(),
            },
        })
    }

    /// Returns the propagation delay with its jitter, its part by size, and its reordering.
    pub(crate) fn delay(&self) -> Delay {
        let spec = self.get::<JitterSpec>();
        let jitter = spec.and_then(JitterSpec::to_model);
        let ordering = spec.filter(|_| jitter.is_some()).map(|spec| spec.ordering);
        Delay {
            time: self.get().map(|DelaySpec(time)| *time).unwrap_or_default(),
            by_size: self.get().map(|SizeDelaySpec(factor)| *factor),
            jitter,
            ordering: ordering.unwrap_or_default(),
            reorder: self
                .get()
                .and_then(|reorder: &ReorderSpec| reorder.to_model()),
        }
    }
}

/// Returns the effect of a condition, or [`Effect::Nothing`] if its value does nothing.
fn or_nothing<T: PartialEq>(value: T, nothing: T, effect: impl Fn(T) -> Effect) -> Effect {
    if value == nothing {
        Effect::Nothing
    } else {
        effect(value)
    }
}
