//! The bottleneck: a queue and the server behind it.

pub(crate) mod fifo;
pub(crate) mod fluctuating;
pub(crate) mod server;
pub(crate) mod service;
