//! Changes of the conditions of a link that runs.

use core::mem;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::checked::{CheckedPath, CheckedPaths, CheckedStage};
use crate::counters::{Counters, HopCounters};
use crate::draw::Draws;
use crate::limits::{MOST_NAMES_OF_HOPS, MOST_STAGES_IN_ALL};
use crate::link::Link;
use crate::named::NamedStage;
use crate::packet::Side;
use crate::path::Path;
use crate::schedule::{ScheduleClock, ScheduleOrder};
use crate::spec::{ConfigError, LinkConfig, PathSpec};
use crate::stage::{Entries, Timing};
use crate::time::Nanos;

impl Link {
    /// Puts the conditions `paths` into force in all paths at one instant, or refuses them and changes nothing.
    ///
    /// It returns the instant: `at`, or the time of the latest arrival or event if that is later. Outcomes that are
    /// decided stay. A packet that is undecided meets the new conditions at the stages of the path by which it came; a
    /// packet in service keeps the part of its service that is done. A stage that is no longer named does nothing from
    /// now on, and leaves when nothing that it passed can be overtaken; until then it keeps its place. To keep a
    /// stage's place for longer, name it with [`Nothing`](crate::Effect::Nothing). Schedules count from the link's
    /// start.
    ///
    /// # Errors
    /// Returns the errors of [`Link::new`]. Also refuses a name that becomes another kind of stage, stages that change
    /// places, a stage that leaves only some of its paths, too many stages that leave while packets are on their way,
    /// and any change of a link that was stopped.
    pub fn change(&mut self, at: Nanos, paths: &[PathSpec]) -> Result<Nanos, ConfigError> {
        self.change_to(at, CheckedPaths::new(paths.to_vec())?)
    }

    /// Changes the conditions as [`Link::change`] does, to conditions that were checked before. Their schedules and traces
    /// do not count from the link's start but follow `clock`, after `order` was carried out on it at the same instant.
    ///
    /// # Errors
    /// Returns those errors of [`Link::change`] that depend on the conditions in force.
    pub fn change_by_clock(
        &mut self,
        at: Nanos,
        mut paths: CheckedPaths,
        clock: ScheduleClock,
        order: ScheduleOrder,
    ) -> Result<Nanos, ConfigError> {
        let at = self.instant_of_change(at);
        paths.on_clock(clock.ordered(at - self.start, order));
        self.change_to(at, paths)
    }

    fn change_to(&mut self, at: Nanos, new: CheckedPaths) -> Result<Nanos, ConfigError> {
        let places = self.places(&new);
        self.check_change(&new, &places)?;
        if let Some(waiting) = &mut self.waiting {
            **waiting = new.clone();
        }
        let at = self.instant_of_change(at);
        // Events at this instant happen under the new conditions.
        while at > Nanos::ZERO && self.step(Nanos(at.0 - 1)) {}
        self.clocks = [at; 2];
        let CheckedPaths { stages, mut paths } = new;
        let stages = self.set_stages(at, stages, places);
        // A side that has no path any more still needs one for the stages that are leaving its old path.
        for side in Side::BOTH {
            if paths.iter().all(|path| path.side != side) {
                paths.insert(
                    0,
                    CheckedPath {
                        side,
                        class: 0,
                        stages: Vec::new(),
                    },
                );
            }
        }
        let merged = paths
            .iter()
            .map(|path| self.merge_leaving(path, &stages))
            .collect();
        self.replace_paths(merged);
        self.retire_settled(at);
        self.settle_order();
        Ok(at)
    }

    /// Begins at `at` with the conditions in force, if it waits for its first packet, which arrives then.
    #[cold]
    pub(crate) fn begin(&mut self, at: Nanos) {
        let Some(paths) = self.waiting.take().filter(|_| !self.is_stopped) else {
            return;
        };
        let config = LinkConfig {
            seed: self.seed,
            link: self.link,
            start: at,
            ..LinkConfig::default()
        };
        let begun = Self::new(&config).and_then(|mut begun| {
            // The numbers of hops stay.
            begun.hops.clone_from(&self.hops);
            begun.change_to(Nanos::ZERO, *paths)?;
            Ok(begun)
        });
        // The conditions were accepted before, when they came into force.
        debug_assert!(begun.is_ok(), "{begun:?}");
        if let Ok(mut begun) = begun {
            // Rules that were removed meanwhile keep their counters, as in a link that does not wait.
            for (new, old) in begun.counters.iter_mut().zip(&self.counters) {
                new.resize(new.len().max(old.len()), Counters::default());
            }
            *self = begun;
        }
    }

    fn instant_of_change(&self, at: Nanos) -> Nanos {
        at.max(self.clocks[0]).max(self.clocks[1])
    }

    /// Returns, for each new stage, the index of the link's stage with the same name.
    fn places(&self, new: &CheckedPaths) -> Vec<Option<usize>> {
        let own: BTreeMap<&str, usize> = self
            .stages
            .iter()
            .zip(0..)
            .filter(|(stage, _)| !stage.is_retired())
            .map(|(stage, at)| (stage.name(), at))
            .collect();
        let names = new.stages.iter().map(|stage| stage.name.as_str());
        names.map(|name| own.get(name).copied()).collect()
    }

    fn check_change(
        &self,
        new: &CheckedPaths,
        places: &[Option<usize>],
    ) -> Result<(), ConfigError> {
        if self.is_stopped {
            return Err(ConfigError::Stopped);
        }
        let stays = places.iter().flatten().count();
        let live = self.stages.iter().filter(|stage| !stage.is_retired());
        let leaving = live.count() - stays;
        if leaving > MOST_STAGES_IN_ALL {
            return Err(ConfigError::TooManyLeave { stages: leaving });
        }
        let stages: Vec<_> = self
            .stages
            .iter()
            .map(|stage| (stage.name(), stage.kind()))
            .collect();
        new.check_follows(&stages, places, |path| {
            let old = self.current[path.side.index()].get(usize::from(path.class));
            old.map_or_else(Vec::new, |old| self.paths[*old as usize].stages().collect())
        })
    }

    /// Creates or changes every new stage, makes the others leave, and returns the indexes of the new stages.
    fn set_stages(
        &mut self,
        at: Nanos,
        new: Vec<CheckedStage>,
        places: Vec<Option<usize>>,
    ) -> Vec<usize> {
        let mut is_named = vec![false; self.stages.len()];
        for place in places.iter().flatten() {
            is_named[*place] = true;
        }
        for (stage, is_named) in self.stages.iter_mut().zip(is_named) {
            if !is_named && !stage.is_leaving && !stage.is_retired() {
                stage.leave(at);
                self.leaving += 1;
            }
        }
        let mut free = self.free_stages().into_iter();
        let set = |(stage, place): (CheckedStage, Option<usize>)| {
            let draws = Draws::new(self.seed, self.link, &stage.name);
            let hop = self.hop_number(&stage.hop);
            let place = place.unwrap_or_else(|| {
                let new = NamedStage::new(&stage.name);
                let Some(free) = free.next() else {
                    self.stages.push(new);
                    return self.stages.len() - 1;
                };
                self.stages[free] = new;
                free
            });
            self.leaving -= usize::from(self.stages[place].is_leaving);
            self.stages[place].set(stage, self.start, at, draws);
            self.stages[place].hop = hop;
            place
        };
        new.into_iter().zip(places).map(set).collect()
    }

    /// Returns the number of the hop with this name, which the hop keeps while the link exists, even if no stage names it
    /// any more. Returns 0 for an empty name, and for a new one if there are too many.
    fn hop_number(&mut self, name: &str) -> u16 {
        let known = self.hops.iter().position(|hop| hop.name() == name);
        let place = match known {
            Some(place) => place,
            None if name.is_empty() || self.hops.len() == MOST_NAMES_OF_HOPS => return 0,
            None => {
                self.hops.push(HopCounters::new(name));
                self.hops.len() - 1
            }
        };
        u16::try_from(place + 1).unwrap_or(0)
    }

    /// Makes the path of `new`, in which leaving stages keep their places. `stages` are the indexes of the new stages.
    fn merge_leaving(&self, new: &CheckedPath, stages: &[usize]) -> Path {
        let mut indexes: Vec<usize> = new.stages.iter().map(|number| stages[*number]).collect();
        let old = self.current[new.side.index()]
            .get(usize::from(new.class))
            .map_or(&[][..], |old| &self.paths[*old as usize].steps);
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
        Path::new(new.side, new.class, indexes)
    }

    /// Makes packets that arrive from now on take the paths `new`, whose classes come in order. An unchanged path
    /// stays.
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

    /// Puts `path` into a free place or a new one, and returns its index.
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

    /// Removes leaving stages from the paths when nothing depends on their order any more at `at`.
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

    /// Determines again where packets wait, whether the directions share a stage, how many packets can result from one,
    /// and when every stage is to be woken.
    fn settle_order(&mut self) {
        // The number of paths of each side that contain each stage.
        let mut users = vec![[0_u32; 2]; self.stages.len()];
        self.most_copies = 1;
        for path in self.current.iter().flatten() {
            let path = &self.paths[*path as usize];
            let mut copies = 1_u32;
            for stage in path.stages() {
                users[stage][path.side.index()] += 1;
                let factor = 1 + u32::from(self.stages[stage].copies());
                copies = copies.saturating_mul(factor);
            }
            self.most_copies = self.most_copies.max(copies);
        }
        let timings: Vec<Timing> = users
            .iter()
            .zip(&self.stages)
            .map(|([a, b], stage)| {
                let own = stage.timing();
                let entries = if a + b > 1 { Entries::Now } else { own.entries };
                Timing { entries, ..own }
            })
            .collect();
        self.shared = users.iter().any(|[a, b]| *a > 0 && *b > 0);
        for path in self.paths.iter_mut().filter(|path| !path.is_free()) {
            path.find_waits(|stage| timings[stage]);
        }
        for stage in 0..self.stages.len() {
            self.rewake(stage, self.stages[stage].next());
        }
        self.check_held();
    }

    /// Returns the indexes of stages that can be reused: they have retired, and no packet will meet them any more.
    fn free_stages(&self) -> Vec<usize> {
        let mut is_met = vec![false; self.stages.len()];
        let paths = self.paths.iter().filter(|path| !path.is_free());
        for stage in paths.flat_map(Path::stages) {
            is_met[stage] = true;
        }
        let free = |stage: &usize| self.stages[*stage].is_retired() && !is_met[*stage];
        (0..self.stages.len()).filter(free).collect()
    }
}
