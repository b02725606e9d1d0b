//! Impairments: what may happen to a packet besides waiting in a queue, one effect a file.

pub(crate) mod delay;
pub(crate) mod loss;
