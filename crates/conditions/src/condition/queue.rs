//! The waiting room of the bottleneck.

use model::QueueLimit;

use super::{ConditionType, Needs, Shapes, quantity};

quantity! {
    /// The waiting room of the bottleneck.
    QueueSpec(QueueLimit)
}

impl ConditionType for QueueSpec {
    const KEY: &'static str = "queue";
    const VALUE_NAME: &'static str = "LIMIT";
    const HELP: &'static str = "Waiting room of the bottleneck: 100pkt, 64KiB, 50ms [default: 100ms at the rate; with AQM, as many packets as tc]";
    const EXAMPLE: &'static str = "100pkt";
    const STAGE: Shapes = Shapes::Rate;
    const NEEDS: Option<Needs> = Some(Needs::Rate("a queue needs a rate that fills it"));
}
