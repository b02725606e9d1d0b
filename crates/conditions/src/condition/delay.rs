//! Propagation delay, one way.

use model::Nanos;

use super::{ConditionType, Shapes, quantity};

quantity! {
    /// Propagation delay, one way.
    DelaySpec(Nanos)
}

impl ConditionType for DelaySpec {
    const KEY: &'static str = "delay";
    const VALUE_NAME: &'static str = "TIME";
    const HELP: &'static str = "Propagation delay, one way: 20ms, 500us";
    const EXAMPLE: &'static str = "20ms";
    const STAGE: Shapes = Shapes::Delay;
}
