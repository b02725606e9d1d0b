//! The later effects of a stage: a list, or steps that are computed when their time comes.

use core::fmt;

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Effect;
use crate::time::Nanos;

/// The later effects of a stage, each with its time since the link's start.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// A list, in order of time.
    List(Vec<(Nanos, Effect)>),
    /// Steps that are computed one by one, because there are too many for a list, or no end of them.
    Computed(Arc<dyn Steps>),
}

/// Steps of a schedule that are computed when they are needed. The model reads no files, so a long trace comes from an
/// implementation of this trait.
///
/// The steps' times never run backwards, and a finite number of steps reaches every time.
pub trait Steps: fmt::Debug + Send + Sync {
    /// Returns step number `index` (from 0): its time since the link's start, and the effect from then on; `None` if
    /// there is no such step.
    fn step(&self, index: u64) -> Option<(Nanos, Effect)>;

    /// Returns the number of steps up to `time`, inclusive.
    fn count_until(&self, time: Nanos) -> u64;

    /// Returns effects that describe all steps: every effect that occurs lies between two of them in each parameter.
    fn extremes(&self) -> &[Effect];
}

impl Schedule {
    /// Returns whether there are no later effects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::List(list) if list.is_empty())
    }

    /// Returns the list; `None` if the steps are computed.
    #[must_use]
    pub fn list(&self) -> Option<&[(Nanos, Effect)]> {
        match self {
            Self::List(list) => Some(list),
            Self::Computed(_) => None,
        }
    }

    /// Adds a step behind those of a list. Computed steps have all of theirs, so nothing is added to them.
    pub fn push(&mut self, at: Nanos, effect: Effect) {
        match self {
            Self::List(list) => list.push((at, effect)),
            Self::Computed(_) => {}
        }
    }

    /// Returns the effects of a list, or those that describe computed steps.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        let (list, extremes) = match self {
            Self::List(list) => (&list[..], &[][..]),
            Self::Computed(steps) => (&[][..], steps.extremes()),
        };
        list.iter().map(|(_, effect)| effect).chain(extremes)
    }

    /// Returns step number `index` (from 0), if there is one.
    pub(crate) fn step(&self, index: u64) -> Option<(Nanos, Effect)> {
        match self {
            Self::List(list) => list.get(usize::try_from(index).ok()?).cloned(),
            Self::Computed(steps) => steps.step(index),
        }
    }

    /// Returns the number of steps up to `time`, inclusive.
    pub(crate) fn count_until(&self, time: Nanos) -> u64 {
        match self {
            Self::List(list) => list.partition_point(|(at, _)| *at <= time) as u64,
            Self::Computed(steps) => steps.count_until(time),
        }
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl From<Vec<(Nanos, Effect)>> for Schedule {
    fn from(list: Vec<(Nanos, Effect)>) -> Self {
        Self::List(list)
    }
}

impl PartialEq for Schedule {
    /// Compares computed steps themselves: two objects with the same steps are not equal.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Computed(one), Self::Computed(other)) => Arc::ptr_eq(one, other),
            (Self::List(_), Self::Computed(_)) | (Self::Computed(_), Self::List(_)) => false,
        }
    }
}
