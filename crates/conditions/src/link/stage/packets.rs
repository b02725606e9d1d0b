//! Stages that copy, corrupt or refuse packets.

use crate::condition::{CorruptSpec, DuplicateSpec};

parameters! {
    /// Packets longer than an MTU are dropped, and ICMP tells their senders.
    MtuStage {
        /// The longest packet that passes, in L3 bytes; required.
        mtu: u16,
    }
}

parameters! {
    /// Some packets are followed by a copy.
    DuplicateStage {
        /// The share of packets that are followed by a copy; required.
        duplicate: DuplicateSpec,
    }
}

parameters! {
    /// Bits of some packets are flipped.
    CorruptStage {
        /// The share of packets with flipped bits; required.
        corrupt: CorruptSpec,
    }
}
