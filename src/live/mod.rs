//! Running links for clients that observe and change them: conditions in force, leases, counters
//! and samples. HTTP is in `web`.
//!
//! The packet path never waits for this module: a change is a command in the forwarder's queue, and
//! a reading is its answer.

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

use crate::end_names::EndNames;
use crate::forward::thread::ForwarderHandle;

pub(crate) use self::change::{
    CHANGE_LIMIT, ChangeOrder, ChangeRefusal, NO_SCHEDULE, Origin, RequestedConditions,
    ScheduleChange,
};
pub(crate) use self::counters::LinkCounters;
pub(crate) use self::experiment::{Experiment, ExperimentView, FigureRow, NumberedRun};
pub(crate) use self::keeper::Keeper;
pub(crate) use self::lease::{LeaseFor, LeaseGrant, LeaseId};
pub(crate) use self::link::LiveLink;
pub(crate) use self::meter::{DirectionMeter, LinkMeter};
pub(crate) use self::sample::{ConditionsSample, DirectionSample, Event, EventKind, LinkSample};
pub(crate) use self::view::{ChangeResult, ChangeView, LinkView, ScheduleView};
pub(crate) use self::words::{in_force, quoted};

/// The running links, by name.
#[derive(Clone, Default)]
pub(crate) struct Links(Arc<Registry>);

#[derive(Default)]
struct Registry {
    links: Mutex<Vec<Arc<LiveLink>>>,
    experiment: Experiment,
    alarm: Arc<keeper::ExpiryAlarm>,
}

/// A link that has started.
pub(crate) struct NewLink {
    /// The name of the link.
    pub(crate) name: String,
    /// The client's side and the server's, as names of nodes or interfaces.
    pub(crate) ends: EndNames,
    /// The forwarder of the link.
    pub(crate) forwarder: ForwarderHandle,
    /// The number of the link in its forwarder.
    pub(crate) number: usize,
    /// The conditions at the start.
    pub(crate) spec: LinkSpec,
    /// A function that builds conditions for the forwarder, or the reason why the conditions cannot
    /// be changed.
    pub(crate) build: Result<BuildLink, String>,
}

/// A function that builds a link for the forwarder from conditions, with the same names of stages
/// and the same random draws.
pub(crate) type BuildLink =
    Box<dyn Fn(&LinkSpec) -> Result<EmulatedLink, conditions::Error> + Send + Sync>;

impl Links {
    /// Adds a link that has started.
    pub(crate) fn put(&self, new: NewLink) {
        let link = LiveLink::new(new, Arc::clone(&self.0.alarm));
        lock(&self.0.links).push(Arc::new(link));
    }

    /// Removes all links, because they are about to end.
    pub(crate) fn clear(&self) {
        let ended = std::mem::take(&mut *lock(&self.0.links));
        ended.iter().for_each(|link| link.end());
    }

    /// Returns the state of the experiment to which the links belong, if any.
    pub(crate) fn experiment(&self) -> &Experiment {
        &self.0.experiment
    }

    /// Returns all running links in the order in which they were added.
    pub(crate) fn all(&self) -> Vec<Arc<LiveLink>> {
        lock(&self.0.links).clone()
    }

    /// Returns the link with this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<LiveLink>> {
        let links = lock(&self.0.links);
        links.iter().find(|link| link.name() == name).cloned()
    }
}

/// Locks a mutex even if it is poisoned. No code in this module leaves the guarded data incomplete,
/// so a panic does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
