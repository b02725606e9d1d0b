//! Time as the model sees it.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point or a span of time in whole nanoseconds; 0 is the origin that the caller chose.
///
/// Range: 0 to 584 years. Sums saturate, so that no input can make time run backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);
