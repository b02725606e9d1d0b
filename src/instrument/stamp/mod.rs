//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), with the extensions of RFC 8972.

pub(crate) mod kernel;
pub(crate) mod tlv;
pub(crate) mod wire;
