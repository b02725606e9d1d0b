//! An experiment: scenario -> plan -> runs -> record.

pub(crate) mod baseline;
pub(crate) mod estimate;
pub(crate) mod grid;
pub(crate) mod host;
pub(crate) mod laboratory;
mod progress;
pub(crate) mod runner;
pub(crate) mod scenario;
mod stalls;
