//! Conditions that were checked for a link that runs.

use std::sync::Arc;

use conditions::{Error, LinkSpec, Rules};
use model::{CheckedPaths, ConfigError};

use super::BuildLink;
use super::words::in_force;

/// Conditions, and what the forwarder takes for them.
#[derive(Debug, Default)]
pub(super) struct CheckedConditions {
    pub(super) spec: Arc<LinkSpec>,
    /// The conditions in one line.
    pub(super) said: Arc<str>,
    /// `None` on a link whose conditions stay as they are.
    pub(super) built: Option<(CheckedPaths, Rules)>,
}

impl CheckedConditions {
    /// Checks what the model would refuse of `spec`, and prepares it for the forwarder of a link that can be changed.
    ///
    /// # Errors
    /// What the model refuses.
    pub(super) fn of(spec: Arc<LinkSpec>, build: Option<&BuildLink>) -> Result<Self, Error> {
        let built = |build: &BuildLink| {
            let link = build(&spec)?;
            let paths = CheckedPaths::new(link.config.paths);
            Ok::<_, Error>((paths.map_err(|error| spec.located(error))?, link.rules))
        };
        Ok(Self {
            built: build.map(built).transpose()?,
            said: in_force(&spec).into(),
            spec,
        })
    }

    /// Refuses conditions that could not follow these, on a link that can be changed.
    ///
    /// # Errors
    /// What the model refuses of the change.
    pub(super) fn check_successor(&self, next: &Self) -> Result<(), ConfigError> {
        match (&self.built, &next.built) {
            (Some((before, _)), Some((after, _))) => before.check_successor(after),
            _ => Ok(()),
        }
    }
}
