//! Stages that copy, corrupt or refuse packets.

use model::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{CorruptSpec, DuplicateSpec};
use crate::error::Error;

/// What is longer than an MTU is dropped, and its sender told by ICMP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MtuStage {
    /// The longest packet that passes, in L3 bytes; it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// Copies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DuplicateStage {
    /// How many packets are followed by a copy; it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<DuplicateSpec>,
}

/// Flipped bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorruptStage {
    /// How many packets have bits flipped; it is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<CorruptSpec>,
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
