//! The bottleneck: a waiting room and the server behind it.

pub(crate) mod fifo;
pub(crate) mod fluctuating;
pub(crate) mod server;
