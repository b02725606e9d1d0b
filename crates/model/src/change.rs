//! Other conditions for a link that runs.

use core::mem;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::check::{check, is_of_kind};
use crate::counters::Counters;
use crate::draw::Draws;
use crate::link::Link;
use crate::named::NamedStage;
use crate::packet::Side;
use crate::path::Path;
use crate::schedule::{ScheduleClock, ScheduleOrder};
use crate::spec::{ConfigError, Effect, PathSpec, StageSpec};
use crate::stage::{Entries, Timing};
use crate::time::Nanos;

impl Link {
    /// Puts the conditions `paths` into force at `at`, in all paths at one instant; or refuses them, and changes nothing.
    ///
    /// The instant is the answer: `at`, or the latest arrival or event, if that was later. What is decided keeps its outcome.
    /// What is not meets the new conditions at the stages of the path by which it came; a packet in service keeps what was
    /// served of it. A stage that is not named any more does nothing from now on, and goes when nothing that it passed can be
    /// overtaken; until then it keeps its place (to keep a stage's place for longer, name it with [`Nothing`](crate::Effect::Nothing)).
    /// Schedules count from the link's start.
    ///
    /// # Errors
    /// What [`Link::new`] refuses; a name that becomes another kind of stage; stages that change places; a stage that leaves
    /// some of its paths only; a link that was stopped.
    pub fn change(&mut self, at: Nanos, paths: &[PathSpec]) -> Result<Nanos, ConfigError> {
        check(paths)?;
        self.check_change(paths)?;
        let at = self.instant_of_change(at);
        // What happens at this instant happens under the new conditions.
        while at > Nanos::ZERO && self.step(Nanos(at.0 - 1)) {}
        self.clocks = [at; 2];
        let stages = self.set_stages(at, paths);
        // A side that has no path any more still has what leaves its old one.
        let is_bare = |side: &Side| paths.iter().all(|path| path.side != *side);
        let bare: Vec<PathSpec> = Side::BOTH
            .into_iter()
            .filter(is_bare)
            .map(|side| PathSpec {
                side,
                class: 0,
                stages: Vec::new(),
            })
            .collect();
        let new = self.merge_leaving(paths.iter().chain(&bare), &stages);
        self.replace_paths(new);
        self.retire_settled(at);
        self.settle_order();
        Ok(at)
    }

    /// As [`Link::change`], where the schedules of `paths` do not count from the link's start but by a clock of their own, once
    /// `order` is carried out on it at the same instant.
    ///
    /// # Errors
    /// As [`Link::change`].
    pub fn change_by_clock(
        &mut self,
        at: Nanos,
        mut paths: Vec<PathSpec>,
        clock: ScheduleClock,
        order: ScheduleOrder,
    ) -> Result<Nanos, ConfigError> {
        let at = self.instant_of_change(at);
        clock.ordered(at - self.start, order).apply(&mut paths);
        self.change(at, &paths)
    }

    fn instant_of_change(&self, at: Nanos) -> Nanos {
        at.max(self.clocks[0]).max(self.clocks[1])
    }

    fn check_change(&self, paths: &[PathSpec]) -> Result<(), ConfigError> {
        if self.is_stopped {
            return Err(ConfigError::Stopped);
        }
        let kind = |name: &str| Some(self.stages[self.find(name)?].kind());
        let passed = |path: &PathSpec| {
            let old = self.current[path.side.index()].get(usize::from(path.class))?;
            let steps = self.paths[*old as usize].steps.iter();
            Some(steps.map(|step| self.stages[step.stage].name()).collect())
        };
        check_successor(paths, kind, passed)
    }

    /// Makes or changes every stage that `paths` names, and has the others leave; their indexes by name.
    fn set_stages<'s>(&mut self, at: Nanos, paths: &'s [PathSpec]) -> BTreeMap<&'s str, usize> {
        let mut known = BTreeMap::new();
        for spec in paths.iter().flat_map(|path| &path.stages) {
            if !known.contains_key(spec.name.as_str()) {
                known.insert(spec.name.as_str(), self.set_stage(at, spec));
            }
        }
        for stage in &mut self.stages {
            if !known.contains_key(stage.name()) && !stage.is_leaving && !stage.is_retired() {
                stage.leave(at);
                self.leaving += 1;
            }
        }
        known
    }

    fn set_stage(&mut self, at: Nanos, spec: &StageSpec) -> usize {
        let draws = Draws::new(self.seed, self.link, &spec.name);
        if let Some(index) = self.find(&spec.name) {
            let stage = &mut self.stages[index];
            self.leaving -= usize::from(stage.is_leaving);
            stage.set(spec, self.start, at, draws);
            return index;
        }
        let mut new = NamedStage::new(&spec.name);
        new.set(spec, self.start, at, draws);
        match (0..self.stages.len()).find(|stage| self.is_free(*stage)) {
            Some(free) => {
                self.stages[free] = new;
                free
            }
            None => {
                self.stages.push(new);
                self.stages.len() - 1
            }
        }
    }

    /// The new paths; in each, what leaves stands where it stood.
    fn merge_leaving<'p>(
        &self,
        paths: impl Iterator<Item = &'p PathSpec>,
        stages: &BTreeMap<&str, usize>,
    ) -> Vec<Path> {
        let merged = |path: &PathSpec| {
            let mut indexes: Vec<usize> = path
                .stages
                .iter()
                .map(|spec| stages[spec.name.as_str()])
                .collect();
            let old = self.current[path.side.index()].get(usize::from(path.class));
            let old = old.map_or(&[][..], |old| &self.paths[*old as usize].steps);
            let mut place = 0;
            for step in old {
                match indexes.iter().position(|index| *index == step.stage) {
                    Some(stays) => place = stays + 1,
                    None => {
                        indexes.insert(place, step.stage);
                        place += 1;
                    }
                }
            }
            Path::new(path.side, path.class, indexes)
        };
        let mut paths: Vec<&PathSpec> = paths.collect();
        paths.sort_by_key(|path| path.class);
        paths.into_iter().map(merged).collect()
    }

    /// Has packets that arrive from now on take the paths `new`, whose classes come in order. One that is as before stays.
    fn replace_paths(&mut self, new: Vec<Path>) {
        let old = mem::take(&mut self.current);
        for path in old.iter().flatten() {
            self.paths[*path as usize].is_old = true;
        }
        for path in new {
            let (side, class) = (path.side.index(), usize::from(path.class));
            let before = old[side].get(class).copied();
            let is_same = |before: &u32| self.paths[*before as usize].stages().eq(path.stages());
            let place = match before.filter(is_same) {
                Some(place) => {
                    self.paths[place as usize].is_old = false;
                    place
                }
                None => self.install(path),
            };
            self.current[side].push(place);
        }
        for side in Side::BOTH {
            let classes = self.current[side.index()].len();
            let counters = &mut self.counters[side.index()];
            counters.resize(classes.max(counters.len()), Counters::default());
        }
    }

    /// Puts `path` where there is room.
    fn install(&mut self, path: Path) -> u32 {
        let place = match self.paths.iter().position(Path::is_free) {
            Some(free) => {
                self.paths[free] = path;
                free
            }
            None => {
                self.paths.push(path);
                self.paths.len() - 1
            }
        };
        u32::try_from(place).expect("fewer paths than packets in flight")
    }

    /// Takes stages out of the paths that are leaving and whose order nothing depends on any more at `at`.
    pub(crate) fn retire_settled(&mut self, at: Nanos) {
        let settled: Vec<usize> = (0..self.stages.len())
            .filter(|stage| self.stages[*stage].is_leaving && self.stages[*stage].is_settled(at))
            .collect();
        if settled.is_empty() {
            return;
        }
        for side in Side::BOTH {
            for class in 0..self.current[side.index()].len() {
                let before = self.current[side.index()][class] as usize;
                let path = &mut self.paths[before];
                if path.stages().any(|stage| settled.contains(&stage)) {
                    path.is_old = true;
                    let stays = path.stages().filter(|stage| !settled.contains(stage));
                    let without = Path::new(side, path.class, stays);
                    self.current[side.index()][class] = self.install(without);
                }
            }
        }
        for stage in settled {
            self.stages[stage].retire();
            self.leaving -= 1;
        }
        self.settle_order();
    }

    /// Finds out anew where packets wait, which directions share a stage, and when every stage is to be woken.
    fn settle_order(&mut self) {
        let users = |stage: usize, side: Option<Side>| {
            let paths = self
                .current
                .iter()
                .flatten()
                .map(|path| &self.paths[*path as usize]);
            let of_side = paths.filter(|path| side.is_none_or(|side| path.side == side));
            of_side
                .filter(|path| path.stages().any(|met| met == stage))
                .count()
        };
        let timings: Vec<Timing> = (0..self.stages.len())
            .map(|stage| {
                let own = self.stages[stage].timing();
                let entries = if users(stage, None) > 1 {
                    Entries::Now
                } else {
                    own.entries
                };
                Timing { entries, ..own }
            })
            .collect();
        self.shared = (0..self.stages.len())
            .any(|stage| Side::BOTH.iter().all(|side| users(stage, Some(*side)) > 0));
        for path in self.paths.iter_mut().filter(|path| !path.is_free()) {
            path.find_waits(|stage| timings[stage]);
        }
        for stage in 0..self.stages.len() {
            self.rewake(stage, self.stages[stage].next());
        }
        self.check_held();
    }

    fn find(&self, name: &str) -> Option<usize> {
        let is_it = |stage: &NamedStage| !stage.is_retired() && stage.name() == name;
        self.stages.iter().position(is_it)
    }

    /// Whether a stage's place may be another's: it has retired, and no packet will meet it any more.
    fn is_free(&self, stage: usize) -> bool {
        let meets = |path: &Path| !path.is_free() && path.stages().any(|met| met == stage);
        self.stages[stage].is_retired() && !self.paths.iter().any(meets)
    }
}

/// Whether a link that has the conditions `now` in force, with nothing of others before them on its way, takes `next`.
///
/// # Errors
/// As [`Link::change`] for what can be on its own.
pub fn check_change(now: &[PathSpec], next: &[PathSpec]) -> Result<(), ConfigError> {
    let kind = |name: &str| {
        let stages = now.iter().flat_map(|path| &path.stages);
        let mut kinds = stages.filter(|spec| spec.name == name).map(StageSpec::kind);
        kinds.next()
    };
    let passed = |path: &PathSpec| {
        let of = |old: &&PathSpec| (old.side, old.class) == (path.side, path.class);
        let old = now.iter().find(of)?;
        Some(old.stages.iter().map(|spec| spec.name.as_str()).collect())
    };
    check_successor(next, kind, passed)
}

/// Refuses paths that cannot follow those whose stages are of these kinds, and pass them in this order.
fn check_successor<'n>(
    paths: &[PathSpec],
    kind: impl Fn(&str) -> Option<&'n Effect>,
    passed: impl Fn(&PathSpec) -> Option<Vec<&'n str>>,
) -> Result<(), ConfigError> {
    for path in paths {
        for spec in &path.stages {
            if kind(&spec.name).is_some_and(|kind| !is_of_kind(spec.kind(), kind)) {
                return Err(ConfigError::OtherKind(spec.name.clone()));
            }
        }
        let mut last = 0;
        for name in passed(path).unwrap_or_default() {
            match path.stages.iter().position(|spec| spec.name == name) {
                Some(place) if place < last => {
                    return Err(ConfigError::Reordered(name.into()));
                }
                Some(place) => last = place,
                None if is_named(paths, name) => {
                    return Err(ConfigError::LeavesHalf(name.into()));
                }
                None => {}
            }
        }
    }
    Ok(())
}

fn is_named(paths: &[PathSpec], name: &str) -> bool {
    paths
        .iter()
        .flat_map(|path| &path.stages)
        .any(|spec| spec.name == name)
}
