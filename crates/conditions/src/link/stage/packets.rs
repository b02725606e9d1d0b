//! Stages that copy, corrupt or refuse packets.

use crate::condition::{CorruptSpec, DuplicateSpec};
use crate::error::Error;
use model::Effect;

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

impl MtuStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let missing = || Error::missing("mtu", "mtu = 1400");
        self.mtu.map(Effect::Mtu).ok_or_else(missing)
    }
}

impl DuplicateStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let missing = || Error::missing("duplicate", "duplicate = \"1%\"");
        self.duplicate
            .map(DuplicateSpec::effect)
            .ok_or_else(missing)
    }
}

impl CorruptStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let missing = || Error::missing("corrupt", "corrupt = \"0.1%\"");
        self.corrupt.map(CorruptSpec::effect).ok_or_else(missing)
    }
}
