//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), with the extensions of RFC 8972.

mod delay;
mod journal;
pub(crate) mod kernel;
mod loss;
pub(crate) mod sender;
mod statistics;
pub(crate) mod tlv;
pub(crate) mod wire;
