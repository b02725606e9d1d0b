//! The bit error rate.

use model::BitErrorRate;

use super::{describe, quantity};

quantity! {
    /// The share of bits that are wrong.
    BerSpec(BitErrorRate)
}

describe! {
    BerSpec: "ber" = "RATE", as in "1e-6", shapes Ber;
    "Bit error rate, which hits longer packets more often: 1e-6" + "A packet with a wrong bit is lost"
}
