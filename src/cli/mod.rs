//! The commands: each file turns arguments into a plan and runs it.

pub(crate) mod link;
pub(crate) mod measure;
mod output;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
