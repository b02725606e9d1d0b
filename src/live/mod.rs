//! Running links, for clients that watch and change them: conditions in force, leases, counters, samples. HTTP is in `web`.
//!
//! The packet path never waits for this module: a change is a command in the forwarder's queue, and a reading is its answer.

mod bounded_history;
mod change;
mod checked_conditions;
mod counters;
mod experiment;
mod export;
mod keeper;
mod lease;
mod link;
mod meter;
mod moment;
mod sample;
mod view;
mod words;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conditions::{EmulatedLink, LinkSpec};

use crate::forward::thread::ForwarderHandle;

pub(crate) use self::change::{
    CHANGE_LIMIT, ChangeOrder, ChangeRefusal, Origin, RequestedConditions, ScheduleChange,
};
pub(crate) use self::counters::LinkCounters;
pub(crate) use self::experiment::{Experiment, ExperimentView, FigureRow, NumberedRun};
pub(crate) use self::keeper::Keeper;
pub(crate) use self::lease::{LeaseFor, LeaseGrant, LeaseId};
pub(crate) use self::link::LiveLink;
pub(crate) use self::meter::{DirectionMeter, LinkMeter};
pub(crate) use self::sample::{DirectionSample, Event, Happening, LinkSample};
pub(crate) use self::view::{ChangeView, Changed, LinkView, ScheduleView};
pub(crate) use self::words::{in_force, quoted};

/// The links that run now, by name.
#[derive(Clone, Default)]
pub(crate) struct Links(Arc<Registry>);

#[derive(Default)]
struct Registry {
    links: Mutex<Vec<Arc<LiveLink>>>,
    experiment: Experiment,
    alarm: Arc<keeper::ExpiryAlarm>,
}

/// A link that has begun to run.
pub(crate) struct NewLink {
    /// As users name it.
    pub(crate) name: String,
    /// The client's side and the server's, by the names of nodes or interfaces.
    pub(crate) ends: [String; 2],
    /// What forwards it.
    pub(crate) forwarder: ForwarderHandle,
    /// Its number there.
    pub(crate) number: usize,
    /// The conditions that it began with.
    pub(crate) spec: LinkSpec,
    /// Makes conditions into what the forwarder takes; where they stay as they are, why.
    pub(crate) build: Result<BuildLink, String>,
}

/// Makes conditions into a link as the forwarder takes it: with the names of its stages, and with its draws.
pub(crate) type BuildLink =
    Box<dyn Fn(&LinkSpec) -> Result<EmulatedLink, conditions::Error> + Send + Sync>;

impl Links {
    /// Adds a link that has begun to run.
    pub(crate) fn put(&self, new: NewLink) {
        let link = LiveLink::new(new, Arc::clone(&self.0.alarm));
        lock(&self.0.links).push(Arc::new(link));
    }

    /// Takes all links out: they are about to end.
    pub(crate) fn clear(&self) {
        let ended = std::mem::take(&mut *lock(&self.0.links));
        ended.iter().for_each(|link| link.end());
    }

    /// The experiment whose links these are, if they are one's.
    pub(crate) fn experiment(&self) -> &Experiment {
        &self.0.experiment
    }

    /// All that run, in the order in which they were put in.
    pub(crate) fn all(&self) -> Vec<Arc<LiveLink>> {
        lock(&self.0.links).clone()
    }

    /// The one of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<LiveLink>> {
        let links = lock(&self.0.links);
        links.iter().find(|link| link.name() == name).cloned()
    }
}

/// Nothing that holds a lock here leaves what it guards half done, so that a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
