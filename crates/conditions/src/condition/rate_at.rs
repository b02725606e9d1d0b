//! What the rate counts.

use model::Framing;

use super::{ConditionType, Needs, Shapes, quantity};

quantity! {
    /// What the rate counts.
    RateAtSpec(Framing)
}

impl ConditionType for RateAtSpec {
    const KEY: &'static str = "rate_at";
    const VALUE_NAME: &'static str = "LAYER";
    const HELP: &'static str = "What the rate counts: l2 (frames without FCS), l1 (the wire), docsis, pppoe-ptm, or atm,overhead=18,mpu=96 [default: l2]";
    const EXAMPLE: &'static str = "atm,overhead=18";
    const STAGE: Shapes = Shapes::Rate;
    const NEEDS: Option<Needs> = Some(Needs::Rate("it says what a rate counts"));
}
