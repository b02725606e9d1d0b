//! The commands: each file turns arguments into a plan and runs it.

pub(crate) mod link;
