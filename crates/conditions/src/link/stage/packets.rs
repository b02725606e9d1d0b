//! Stages that copy, corrupt or refuse packets.

use crate::condition::{CorruptSpec, DuplicateSpec};

parameters! {
    /// What is longer than an MTU is dropped, and its sender told by ICMP.
    MtuStage {
        /// The longest packet that passes, in L3 bytes; it is needed.
        mtu: u16,
    }
}

parameters! {
    /// Copies.
    DuplicateStage {
        /// How many packets are followed by a copy; it is needed.
        duplicate: DuplicateSpec,
    }
}

parameters! {
    /// Flipped bits.
    CorruptStage {
        /// How many packets have bits flipped; it is needed.
        corrupt: CorruptSpec,
    }
}
