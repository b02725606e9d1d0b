//! Propagation delay in each direction.

use model::Nanos;

use super::{describe, quantity};

quantity! {
    /// Propagation delay, one way.
    DelaySpec(Nanos)
}

describe! {
    DelaySpec: "delay" = "TIME", as in "20ms", shapes Delay;
    "Propagation delay in each direction: 20ms, 500us"
}
