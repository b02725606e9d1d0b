//! The quality of a path: round trips on the idle path, then beside loads down, up and in both directions; loss,
//! throughput and responsiveness of each phase; and one verdict about the latency that a load adds.

pub mod args;
mod phases;
mod plan;
mod responsiveness;
mod results;
mod services;
mod verdict;
