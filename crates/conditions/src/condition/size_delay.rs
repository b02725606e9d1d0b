//! A delay that grows with the packet's length.

use model::Factor;

use super::{describe, quantity};

quantity! {
    /// A delay that grows with the packet's length.
    SizeDelaySpec(Factor)
}

describe! {
    SizeDelaySpec: "size_delay" = "FACTOR", as in "2", shapes Delay;
    "Delay that grows with the packet's size: 2" + "The delay in microseconds is the packet's L2 bytes divided by FACTOR"
}
