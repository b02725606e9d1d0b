//! Delay that grows with the packet.

use model::Factor;

use super::{ConditionType, Shapes, quantity};

quantity! {
    /// Delay that grows with the packet.
    SizeDelaySpec(Factor)
}

impl ConditionType for SizeDelaySpec {
    const KEY: &'static str = "size_delay";
    const VALUE_NAME: &'static str = "FACTOR";
    const HELP: &'static str = "Delay that grows with the packet: microseconds = L2 bytes / FACTOR";
    const EXAMPLE: &'static str = "2";
    const STAGE: Shapes = Shapes::Delay;
}
