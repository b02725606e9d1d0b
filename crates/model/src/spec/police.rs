//! The parameters of a policer.

use crate::units::{BitsPerSec, Bytes};

/// A policer: drops what comes faster than a rate, but for bursts (tc's police action, with one rate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Police {
    /// The rate that may pass, of L2 bytes without FCS.
    pub rate: BitsPerSec,
    /// How much may pass at once after a time without packets; at least 1,514 bytes, a full frame of an MTU of 1,500.
    pub burst: Bytes,
}
