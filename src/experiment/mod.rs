//! An experiment: scenario -> plan -> runs -> record.

pub(crate) mod baseline;
pub(crate) mod bed;
pub(crate) mod expectation;
pub(crate) mod figure_name;
pub(crate) mod grid;
pub(crate) mod host;
pub(crate) mod laboratory;
pub(crate) mod plan;
mod progress;
pub(crate) mod record;
pub(crate) mod runner;
pub(crate) mod scenario;
mod stalls;
