//! The units of a link's conditions, checked where they are made, written as tc and iperf write them.

/// A number of bytes; decimal unless written KiB or MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate in bits a second, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitsPerSec(core::num::NonZeroU64);

/// A probability from 0 to 1, kept as a 64-bit threshold so that a draw is one integer comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability(f64);

/// A divisor above 0, as TOFFEE's dynamic delay takes it: microseconds = bytes / factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor(f64);

/// Which bytes of a packet a rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// The L2 frame without FCS, as tc counts.
    #[default]
    L2,
    /// The wire: `max(64, L2 + 4 FCS) + 8 preamble + 12 gap`.
    L1,
}

/// A value that is no unit of this kind, or out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(alloc::string::String);
