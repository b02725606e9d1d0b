//! Links that run, for whoever watches and changes them: what is in force and since when, leases, counters, samples. It knows no
//! HTTP; `web` speaks that over it.
//!
//! The packet path waits for nothing here: a change is a command in the forwarder's queue, a reading its answer.

mod change;
mod counters;
mod experiment;
mod export;
mod keeper;
mod kept;
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

pub(crate) use self::change::{ChangeOrder, Conditions, Refusal, ScheduleChange};
pub(crate) use self::counters::Counters;
pub(crate) use self::experiment::{Experiment, ExperimentView, FigureRow, NumberedRun};
pub(crate) use self::keeper::Keeper;
pub(crate) use self::lease::{Grant, LeaseFor, LeaseId};
pub(crate) use self::link::LiveLink;
pub(crate) use self::meter::{Meter, WayMeter};
pub(crate) use self::sample::{Event, Happening, Sample, Way};
pub(crate) use self::view::{Change, Changed, LinkView, ScheduleView};
pub(crate) use self::words::{in_force, quoted};

/// The links that run now, by name.
#[derive(Clone, Default)]
pub(crate) struct Links(Arc<Registry>);

#[derive(Default)]
struct Registry {
    links: Mutex<Vec<Arc<LiveLink>>>,
    experiment: Experiment,
    alarm: Arc<keeper::Alarm>,
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
