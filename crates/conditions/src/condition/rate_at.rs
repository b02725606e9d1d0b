//! The bytes that the rate counts.

use model::Framing;

use super::{Needs, describe, quantity};

quantity! {
    /// The bytes that the rate counts.
    RateAtSpec(Framing)
}

describe! {
    RateAtSpec: "rate_at" = "LAYER", as in "atm,overhead=18", shapes Rate needs Needs::Rate("`rate_at` says which bytes a rate counts");
    "Bytes that the rate counts: l1, docsis, ... [default: l2]"
    + "l2 counts frames without FCS, l1 counts everything on the wire. docsis, pppoe-ptm and other lines have the names of tc-cake(8). An overhead can be set too: atm,overhead=18,mpu=96"
}
