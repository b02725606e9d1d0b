//! The bit error rate.

use model::BitErrorRate;

use super::{describe, quantity};

quantity! {
    /// The share of bits that are wrong.
    BerSpec(BitErrorRate)
}

describe! {
    BerSpec: "ber" = "RATE", as in "1e-6", shapes Ber;
    "The share of bits that are wrong, with which longer packets are lost more often: 1e-6"
}
