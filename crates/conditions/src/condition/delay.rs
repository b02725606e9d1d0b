//! Propagation delay, one way.

use model::Nanos;

use super::{describe, quantity};

quantity! {
    /// Propagation delay, one way.
    DelaySpec(Nanos)
}

describe! {
    DelaySpec: "delay" = "TIME", as in "20ms", shapes Delay;
    "Propagation delay, one way: 20ms, 500us"
}
