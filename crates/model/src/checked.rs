//! Conditions that were checked and prepared before a link takes them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::check::{check, is_of_kind};
use crate::packet::Side;
use crate::schedule::ScheduleClock;
use crate::spec::{ConfigError, Effect, PathSpec, Schedule, StageSpec};
use crate::stage::{Entries, Timing};
use crate::time::Nanos;

/// The paths of a link, checked and prepared.
///
/// Checking and preparing conditions takes time that grows with the conditions. A program whose packets must not wait
/// does it on another thread and hands the result to the link
/// ([`Link::change_by_clock`](crate::Link::change_by_clock)).
#[derive(Clone, Debug, Default)]
pub struct CheckedPaths {
    /// All stages, each once, in the order in which the paths name them.
    pub(crate) stages: Vec<CheckedStage>,
    /// The paths, in the order of their classes.
    pub(crate) paths: Vec<CheckedPath>,
}

/// A stage, and the properties that follow from its parameters.
#[derive(Clone, Debug)]
pub(crate) struct CheckedStage {
    pub(crate) name: String,
    pub(crate) hop: String,
    pub(crate) effect: Effect,
    /// Its later effects.
    pub(crate) schedule: Schedule,
    /// The clock of the times of its later effects.
    pub(crate) clock: ScheduleClock,
    pub(crate) kind: Effect,
    pub(crate) timing: Timing,
    /// A lower bound of its delay.
    pub(crate) least_delay: Nanos,
    /// Whether any of its effects copies packets.
    pub(crate) copies: bool,
}

/// A path, given by the indexes of its stages.
#[derive(Clone, Debug)]
pub(crate) struct CheckedPath {
    pub(crate) side: Side,
    pub(crate) class: u16,
    pub(crate) stages: Vec<usize>,
}

impl CheckedPaths {
    /// Checks and prepares `paths`.
    ///
    /// # Errors
    /// Returns the errors of [`Link::new`](crate::Link::new).
    pub fn new(paths: Vec<PathSpec>) -> Result<Self, ConfigError> {
        check(&paths)?;
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut all = Self::default();
        for PathSpec {
            side,
            class,
            stages,
        } in paths
        {
            let mut path = Vec::with_capacity(stages.len());
            for spec in stages {
                let number = numbers.get(&spec.name).copied();
                path.push(number.unwrap_or_else(|| {
                    numbers.insert(spec.name.clone(), all.stages.len());
                    all.stages.push(spec.into());
                    all.stages.len() - 1
                }));
            }
            all.paths.push(CheckedPath {
                side,
                class,
                stages: path,
            });
        }
        all.paths.sort_by_key(|path| path.class);
        Ok(all)
    }

    /// Checks whether a link with these conditions in force, and no stages of former ones that are still leaving, would
    /// take `next`.
    ///
    /// # Errors
    /// Returns those errors of [`Link::change`](crate::Link::change) that depend only on these two sets of conditions.
    pub fn check_successor(&self, next: &Self) -> Result<(), ConfigError> {
        let own: BTreeMap<&str, usize> = self
            .stages
            .iter()
            .zip(0..)
            .map(|(stage, at)| (stage.name.as_str(), at))
            .collect();
        let places: Vec<Option<usize>> = next
            .stages
            .iter()
            .map(|stage| own.get(stage.name.as_str()).copied())
            .collect();
        let stages: Vec<_> = self
            .stages
            .iter()
            .map(|stage| (stage.name.as_str(), &stage.kind))
            .collect();
        next.check_follows(&stages, &places, |path| {
            let is_it = |old: &&CheckedPath| (old.side, old.class) == (path.side, path.class);
            let old = self.paths.iter().find(is_it);
            old.map_or_else(Vec::new, |old| old.stages.clone())
        })
    }

    /// Checks whether these conditions may follow others that have the stages `stages`. `places` gives, for each stage
    /// here, its index in `stages`, if it has one. `passed` returns the indexes of the stages that packets of a path
    /// met before, in order.
    pub(crate) fn check_follows(
        &self,
        stages: &[(&str, &Effect)],
        places: &[Option<usize>],
        passed: impl Fn(&CheckedPath) -> Vec<usize>,
    ) -> Result<(), ConfigError> {
        let mut numbers = alloc::vec![None; stages.len()];
        for (number, (stage, place)) in self.stages.iter().zip(places).enumerate() {
            let Some(place) = *place else { continue };
            if !is_of_kind(&stage.kind, stages[place].1) {
                return Err(ConfigError::OtherKind(stage.name.clone()));
            }
            numbers[place] = Some(number);
        }
        for path in &self.paths {
            let mut last = 0;
            for place in passed(path) {
                // A stage that is no longer named leaves all paths.
                let Some(number) = numbers[place] else {
                    continue;
                };
                let name = || String::from(stages[place].0);
                match path.stages.iter().position(|stage| *stage == number) {
                    Some(now) if now < last => return Err(ConfigError::Reordered(name())),
                    Some(now) => last = now,
                    None => return Err(ConfigError::LeavesHalf(name())),
                }
            }
        }
        Ok(())
    }

    /// Makes the schedules follow `clock`.
    pub(crate) fn on_clock(&mut self, clock: ScheduleClock) {
        for stage in &mut self.stages {
            stage.clock = clock;
        }
    }
}

impl From<StageSpec> for CheckedStage {
    fn from(spec: StageSpec) -> Self {
        let behaviours = spec.effects().map(Effect::behaviour);
        let (mut timing, mut least) = (Timing::NONE, None::<Nanos>);
        for behaviour in behaviours {
            timing = timing.and(behaviour.timing);
            let delay = behaviour.least_delay;
            least = Some(least.map_or(delay, |least| least.min(delay)));
        }
        if !spec.schedule.is_empty() {
            // Between two packets the schedule may move on, so packets must enter in order.
            timing.entries = timing.entries.max(Entries::InOrder);
        }
        Self {
            kind: spec.kind().clone(),
            timing,
            least_delay: least.unwrap_or(Nanos::ZERO),
            copies: spec.copies(),
            name: spec.name,
            hop: spec.hop,
            effect: spec.effect,
            schedule: spec.schedule,
            clock: ScheduleClock::default(),
        }
    }
}
