//! A delay that grows with the packet's length.

use model::Factor;

use super::{describe, quantity};

quantity! {
    /// A delay that grows with the packet's length.
    SizeDelaySpec(Factor)
}

describe! {
    SizeDelaySpec: "size_delay" = "FACTOR", as in "2", shapes Delay;
    "Delay that grows with the packet: microseconds = L2 bytes / FACTOR"
}
