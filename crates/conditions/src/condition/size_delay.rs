//! Delay that grows with the packet.

use model::Factor;

use super::{describe, quantity};

quantity! {
    /// Delay that grows with the packet.
    SizeDelaySpec(Factor)
}

describe! {
    SizeDelaySpec: "size_delay" = "FACTOR", as in "2", shapes Delay;
    "Delay that grows with the packet: microseconds = L2 bytes / FACTOR"
}
