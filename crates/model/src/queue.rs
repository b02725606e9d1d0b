//! The bottleneck: a server, and the queue before it, one discipline a file.

mod codel;
mod constant;
pub(crate) mod discipline;
mod dual_pi2;
mod fifo;
mod fluctuating;
mod fq_codel;
pub(crate) mod server;
mod service;
mod trace;
