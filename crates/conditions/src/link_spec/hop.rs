//! The stages that conditions ask for, in the order in which packets meet them.

use anyhow::{Context, Result};
use model::{
    BitErrorRate, BitsPerSec, Bytes, ConfigError, Delay, Effect, LinkConfig, Nanos, PathSpec,
    Probability, Queue, QueueLimit, Rate, Side, StageSpec, Toffee,
};

use super::classes;
use super::rules::{EmulatedLink, Rule};
use super::shares::ReorderSpec;
use super::stages::Place;
use super::values::{AqmSpec, LineRate};
use super::{
    DEFAULT_QUEUE, DEFAULT_TOFFEE_QUEUE, DirectionSpec, FluctuationSpec, LinkSpec, Moving,
    NetemSpec, ToffeeSpec, loss_of,
};
use crate::Direction;
use crate::route::{PathStages, Route};

/// The waiting room of a rate that is 0 all along, of which no time can be made one.
const STALLED_QUEUE: QueueLimit = QueueLimit::Packets(1_000);

/// One hop's stages in either direction. A hop is what its name stands for in those of its stages: "wire", "box".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hop {
    /// What packets that no rule takes meet.
    pub rest: Stages,
    /// What packets of each class meet.
    pub classes: Vec<(Rule, Stages)>,
}

/// The stages that some packets meet in a hop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages {
    /// From client to server.
    pub up: Vec<StageSpec>,
    /// From server to client.
    pub down: Vec<StageSpec>,
}

impl Hop {
    /// Its two directions the other way round.
    pub fn reversed(mut self) -> Self {
        let all = self.classes.iter_mut().map(|(_, stages)| stages);
        for stages in all.chain([&mut self.rest]) {
            std::mem::swap(&mut stages.up, &mut stages.down);
        }
        self
    }

    /// What packets of this class meet.
    fn stages(&self, class: usize) -> &Stages {
        let own = class
            .checked_sub(1)
            .and_then(|index| self.classes.get(index));
        own.map_or(&self.rest, |(_, stages)| stages)
    }
}

/// The model's link number `link` of hops in the order in which a packet going up meets them; one going down meets them
/// in reverse. The classes are those of the hop that has any.
pub fn emulated_link(hops: &[Hop], seed: u64, link: u64) -> EmulatedLink {
    let rules = hops.iter().flat_map(|hop| &hop.classes);
    let rules: Vec<Rule> = rules.map(|(rule, _)| rule.clone()).collect();
    let paths = (0..).zip(0..=rules.len()).flat_map(|(class, index)| {
        let (up, down) = ways(hops, index);
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

/// What packets that no rule takes meet on such hops.
pub fn route(hops: &[Hop]) -> Route {
    let (up, down) = ways(hops, 0);
    let mut all = up.iter().chain(&down);
    Route {
        is_steady: all.all(|stage| stage.schedule.is_empty())
            && hops.iter().all(|hop| hop.classes.is_empty()),
        up: PathStages(up),
        down: PathStages(down),
    }
}

/// What packets of a class meet up and down.
fn ways(hops: &[Hop], class: usize) -> (Vec<StageSpec>, Vec<StageSpec>) {
    let up = hops.iter().flat_map(|hop| &hop.stages(class).up);
    let down = hops.iter().rev().flat_map(|hop| &hop.stages(class).down);
    (up.cloned().collect(), down.cloned().collect())
}

impl LinkSpec {
    /// The stages that these conditions ask for in a hop of this name.
    ///
    /// # Errors
    /// What needs a rate or a delay where there is none; a drop factor below 1; a schedule out of order; a stage or class that is wrong.
    pub fn hop(&self, name: &str) -> Result<Hop> {
        self.check_layers()?;
        classes::check(&self.classes)?;
        let up = self.direction(name, Direction::Up)?;
        let down = self.direction(name, Direction::Down)?;
        let of_class = |number: usize| Stages {
            up: up.of_class(self, name, number),
            down: down.of_class(self, name, number),
        };
        let rules = self.classes.iter().enumerate();
        let classes = rules.map(|(number, class)| (class.rule.clone(), of_class(number)));
        Ok(Hop {
            classes: classes.collect(),
            rest: Stages {
                up: up.stages(),
                down: down.stages(),
            },
        })
    }

    /// Refuses schedules out of order, and what needs a rate or a delay where there never is one.
    fn check_layers(&self) -> Result<()> {
        let has_rate =
            |layers: &[&DirectionSpec]| layers.iter().any(|one| one.ever().rate.is_some());
        let has_delay = |layers: &[&DirectionSpec]| layers.iter().any(|one| one.ever().has_delay());
        let has = |layers: &[&DirectionSpec]| [has_rate(layers), has_delay(layers)];
        let check = |own: &DirectionSpec, [rates, delays]: [bool; 2]| -> Result<()> {
            own.check_schedule()?;
            if !rates {
                own.ever().refuse_rateless()?;
            }
            if !delays {
                own.ever().refuse_undelayed()?;
            }
            Ok(())
        };
        let either = |one: [bool; 2], other: [bool; 2]| [one[0] || other[0], one[1] || other[1]];
        let up = has(&[&self.up, &self.both]);
        let down = has(&[&self.down, &self.both]);
        check(&self.up, up).context("up")?;
        check(&self.down, down).context("down")?;
        check(&self.both, either(up, down))?;
        for class in &self.classes {
            let up = either(up, has(&[&class.up, &class.both]));
            let down = either(down, has(&[&class.down, &class.both]));
            let all = || {
                check(&class.up, up).context("up")?;
                check(&class.down, down).context("down")?;
                check(&class.both, either(up, down))
            };
            all().with_context(|| format!("classes: {}", class.rule.name))?;
        }
        Ok(())
    }

    /// What packets that no rule takes meet in one direction of a hop.
    fn direction(&self, hop: &str, direction: Direction) -> Result<OneWay> {
        let toffee = self.toffee.clone().unwrap_or_default();
        let prefix = format!("{hop}.{}", direction.name());
        let extra = |place| {
            let all = self.stages.iter();
            let here = all.filter(move |stage| stage.is_in(direction, place));
            let here = here.map(|stage| stage.to_model(&prefix));
            here.collect::<Result<Vec<_>>>()
        };
        let mut first = extra(Place::First)?;
        first.push(StageSpec::new(format!("{hop}.toffee"), toffee.server()));
        let drop = or_nothing(toffee.loss(hop)?, Probability::ZERO, |share| {
            Effect::Loss(share.into())
        });
        first.push(StageSpec::new(format!("{prefix}.drop"), drop));
        Ok(OneWay {
            direction,
            first,
            own: over_time(&[self.layer(direction), &self.both], &prefix),
            last: extra(Place::Last)?,
        })
    }

    fn layer(&self, direction: Direction) -> &DirectionSpec {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

/// One direction of a hop; stages that do nothing are among them.
struct OneWay {
    direction: Direction,
    first: Vec<StageSpec>,
    /// As [`DirectionSpec::effects`] has them.
    own: [StageSpec; SLOTS],
    last: Vec<StageSpec>,
}

impl OneWay {
    fn stages(&self) -> Vec<StageSpec> {
        self.with(self.own.iter())
    }

    /// With other stages of the class of this number, where it says something of them.
    fn of_class(&self, link: &LinkSpec, hop: &str, number: usize) -> Vec<StageSpec> {
        let class = &link.classes[number];
        let own = match self.direction {
            Direction::Up => &class.up,
            Direction::Down => &class.down,
        };
        let layers = [own, &class.both, link.layer(self.direction), &link.both];
        let prefix = format!("{hop}.{}.{}", class.rule.name, self.direction.name());
        let differing = over_time(&layers, &prefix);
        let said = own.ever().or(class.both.ever()).says();
        let pairs = said.iter().zip(self.own.iter().zip(&differing));
        let own = pairs.map(|(says, (shared, own))| if *says { own } else { shared });
        self.with(own)
    }

    fn with<'a>(&'a self, own: impl Iterator<Item = &'a StageSpec>) -> Vec<StageSpec> {
        let all = self.first.iter().chain(own).chain(&self.last);
        let all = all.filter(|stage| stage.effects().any(|effect| *effect != Effect::Nothing));
        all.cloned().collect()
    }
}

/// The stages that conditions alone ask for.
const SLOTS: usize = 9;

/// The stages that layers of conditions ask for, of which the first that says something of a condition has it, with what
/// their schedules change.
fn over_time(layers: &[&DirectionSpec], prefix: &str) -> [StageSpec; SLOTS] {
    let steps = layers.iter().flat_map(|layer| &layer.schedule);
    let mut times: Vec<Nanos> = steps.map(|step| step.at).collect();
    times.sort_unstable();
    times.dedup();
    let mut moving: Vec<Moving<'_>> = layers.iter().map(|layer| Moving::of(layer)).collect();
    let all = |said: &mut dyn Iterator<Item = &DirectionSpec>| {
        said.cloned()
            .fold(DirectionSpec::default(), DirectionSpec::or)
    };
    let first = all(&mut moving.iter().map(|layer| &layer.now));
    let moments: Vec<(Nanos, DirectionSpec)> = times
        .into_iter()
        .map(|time| {
            (
                time,
                all(&mut moving.iter_mut().map(|layer| layer.go_to(time))),
            )
        })
        .collect();
    let rate_of = |all: &DirectionSpec| all.rate.and_then(|line| line.rate);
    let all = [&first]
        .into_iter()
        .chain(moments.iter().map(|(_, all)| all));
    let mut rate = all.clone().find_map(rate_of);
    let mut stages = first
        .effects(rate)
        .map(|(kind, effect)| StageSpec::new(format!("{prefix}.{kind}"), effect));
    for (at, all) in &moments {
        rate = rate_of(all).or(rate);
        for (stage, (_, effect)) in stages.iter_mut().zip(all.effects(rate)) {
            if stage.effects().last() != Some(&effect) {
                stage.schedule.push((*at, effect));
            }
        }
    }
    stages
}

impl DirectionSpec {
    /// What every stage does under these conditions, and what its name ends in, in order. `rate` is the last one that
    /// served.
    fn effects(&self, rate: Option<BitsPerSec>) -> [(&'static str, Effect); SLOTS] {
        let nothing = Effect::Nothing;
        let [loss, bursts] = self
            .loss
            .map_or([nothing.clone(), nothing], |loss| loss.effects());
        [
            (
                "police",
                self.police
                    .map_or(Effect::Nothing, |police| Effect::Police(police.0)),
            ),
            ("rate", self.rate(rate)),
            (
                "netem",
                self.netem.map_or(Effect::Nothing, |NetemSpec(netem)| {
                    Effect::Netem(Box::new(netem))
                }),
            ),
            ("loss", loss),
            ("burst-loss", bursts),
            (
                "ber",
                or_nothing(
                    self.ber.unwrap_or_default(),
                    BitErrorRate::ZERO,
                    Effect::BitErrors,
                ),
            ),
            (
                "duplicate",
                self.duplicate
                    .filter(|copies| copies.0.share > Probability::ZERO)
                    .map_or(Effect::Nothing, |copies| Effect::Duplicate(copies.0)),
            ),
            (
                "corrupt",
                self.corrupt
                    .filter(|flips| flips.0.share > Probability::ZERO)
                    .map_or(Effect::Nothing, |flips| Effect::Corrupt(flips.0)),
            ),
            (
                "delay",
                or_nothing(self.delay(), Delay::default(), Effect::Delay),
            ),
        ]
    }

    /// Of which of these stages it says something.
    fn says(&self) -> [bool; SLOTS] {
        let queue = self.queue.is_some() || self.aqm.is_some();
        let varies = self.fluctuation.is_some() || self.rate_at.is_some();
        let rate = self.rate.is_some() || varies || queue;
        let delay = self.has_delay() || self.reorder.is_some();
        [
            self.police.is_some(),
            rate,
            self.netem.is_some(),
            self.loss.is_some(),
            self.loss.is_some(),
            self.ber.is_some(),
            self.duplicate.is_some(),
            self.corrupt.is_some(),
            delay,
        ]
    }

    fn rate(&self, known: Option<BitsPerSec>) -> Effect {
        let Some(LineRate { rate, burst }) = self.rate else {
            return Effect::Nothing;
        };
        let usual = self.aqm.and_then(AqmSpec::usual_limit);
        let usual = usual.unwrap_or(DEFAULT_QUEUE);
        let limit = match (rate, self.queue.unwrap_or(usual)) {
            // A time needs a rate: that which served before, or will serve.
            (None, QueueLimit::Time(time)) => known.map_or(STALLED_QUEUE, |rate| {
                QueueLimit::Bytes(bytes_in(rate, time))
            }),
            (_, limit) => limit,
        };
        Effect::Rate(Rate {
            rate,
            fluctuation: self.fluctuation.map(FluctuationSpec::to_model),
            burst,
            framing: self.rate_at.unwrap_or_default(),
            queue: Queue {
                limit,
                discipline: self.aqm.map(|aqm| aqm.0).unwrap_or_default(),
            },
        })
    }

    /// Propagation with all that belongs to it.
    pub(super) fn delay(&self) -> Delay {
        let jitter = self.jitter.as_ref();
        let jitter = jitter.filter(|spec| spec.jitter.spread > Nanos::ZERO);
        Delay {
            time: self.delay.unwrap_or_default(),
            by_size: self.size_delay,
            jitter: jitter.map(|spec| spec.jitter.clone()),
            ordering: jitter.map(|spec| spec.ordering).unwrap_or_default(),
            reorder: self.reorder.and_then(ReorderSpec::to_model),
        }
    }
}

/// What a rate serves in a time, at least one byte.
fn bytes_in(rate: BitsPerSec, time: Nanos) -> Bytes {
    let bytes = u128::from(rate.get()) * u128::from(time.0) / 8_000_000_000;
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).max(1))
}

/// Conditions that do nothing get no stage.
fn or_nothing<T: PartialEq>(value: T, nothing: T, effect: impl Fn(T) -> Effect) -> Effect {
    if value == nothing {
        Effect::Nothing
    } else {
        effect(value)
    }
}

impl ToffeeSpec {
    fn server(&self) -> Effect {
        if self.delay.unwrap_or_default().0 == 0 && self.dynamic.is_none() {
            return Effect::Nothing;
        }
        let queue: QueueLimit = self.queue.unwrap_or(DEFAULT_TOFFEE_QUEUE);
        Effect::Toffee(Toffee {
            delay: self.delay.unwrap_or_default(),
            dynamic: self.dynamic,
            queue: queue.into(),
        })
    }

    fn loss(&self, hop: &str) -> Result<Probability, ConfigError> {
        let Some(k) = self.drop else {
            return Ok(Probability::ZERO);
        };
        loss_of(k).ok_or_else(|| ConfigError::OutOfRange {
            stage: format!("{hop}.toffee"),
            field: "drop",
            value: k.to_string(),
            right: "a drop factor is at least 1",
        })
    }
}
