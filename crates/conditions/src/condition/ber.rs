//! The share of bits that are wrong.

use model::BitErrorRate;

use super::{ConditionType, Shapes, quantity};

quantity! {
    /// The share of bits that are wrong.
    BerSpec(BitErrorRate)
}

impl ConditionType for BerSpec {
    const KEY: &'static str = "ber";
    const VALUE_NAME: &'static str = "RATE";
    const HELP: &'static str =
        "The share of bits that are wrong, with which longer packets are lost more often: 1e-6";
    const EXAMPLE: &'static str = "1e-6";
    const STAGE: Shapes = Shapes::Ber;
}
