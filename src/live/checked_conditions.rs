//! Conditions that were checked for a running link.

use std::sync::Arc;

use conditions::outline::OverTime;
use conditions::{Error, LinkSpec, Rules};
use model::{CheckedPaths, ConfigError};

use super::BuildLink;
use super::words::in_force;

/// Conditions, together with their form for the forwarder.
#[derive(Debug, Default)]
pub(super) struct CheckedConditions {
    pub(super) spec: Arc<LinkSpec>,
    /// A description of the conditions in one line.
    pub(super) description: Arc<str>,
    /// The form for the forwarder; `None` if the link's conditions cannot be changed.
    pub(super) built: Option<(CheckedPaths, Rules)>,
    /// Their figures at any time; `None` if no schedule, trace, outage or handover changes them.
    pub(super) over_time: Option<OverTime>,
}

impl CheckedConditions {
    /// Checks `spec` as the model does, and builds its form for the forwarder if the link can be
    /// changed.
    ///
    /// # Errors
    /// Fails if the model refuses the conditions.
    pub(super) fn of(spec: Arc<LinkSpec>, build: Option<&BuildLink>) -> Result<Self, Error> {
        let built = |build: &BuildLink| {
            let link = build(&spec)?;
            let paths = CheckedPaths::new(link.config.paths);
            Ok::<_, Error>((paths.map_err(|error| spec.located(error))?, link.rules))
        };
        let changes = spec.has_schedule() || spec.has_own_times();
        // Conditions that have no stages are refused when they are built, here or at the start of the link.
        let over_time = changes.then(|| OverTime::of(&spec).ok()).flatten();
        Ok(Self {
            over_time,
            built: build.map(built).transpose()?,
            description: in_force(&spec).into(),
            spec,
        })
    }

    /// Checks whether `next` can follow these conditions, on a link that can be changed.
    ///
    /// # Errors
    /// Fails if the model refuses the change.
    pub(super) fn check_successor(&self, next: &Self) -> Result<(), ConfigError> {
        match (&self.built, &next.built) {
            (Some((before, _)), Some((after, _))) => before.check_successor(after),
            _ => Ok(()),
        }
    }
}
