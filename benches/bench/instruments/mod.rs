//! The instruments beside their peers, on one veth pair.

pub(crate) mod capacity;
pub(crate) mod hardening;
pub(crate) mod pacing;
pub(crate) mod pair;
mod percentile;
pub(crate) mod pingpong;
pub(crate) mod probe;
pub(crate) mod probe_rate;
pub(crate) mod tcp;
pub(crate) mod udp;
