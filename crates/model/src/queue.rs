//! The bottleneck: a server, and the queue before it, one discipline a file.

mod constant;
pub(crate) mod discipline;
mod fifo;
mod fluctuating;
pub(crate) mod server;
mod service;
mod trace;
