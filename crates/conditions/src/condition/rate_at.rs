//! The bytes that the rate counts.

use model::Framing;

use super::{Needs, describe, quantity};

quantity! {
    /// The bytes that the rate counts.
    RateAtSpec(Framing)
}

describe! {
    RateAtSpec: "rate_at" = "LAYER", as in "atm,overhead=18", shapes Rate needs Needs::Rate("it says what a rate counts");
    "What the rate counts: l2 (frames without FCS), l1 (the wire), docsis, pppoe-ptm, or atm,overhead=18,mpu=96 [default: l2]"
}
