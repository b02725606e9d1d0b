//! The path MTU.

use std::fmt;

use model::Effect;
use schemars::JsonSchema;
use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{describe, refuse_out_of_range};

/// The longest packet that passes, in L3 bytes: at least 68, the smallest MTU of IPv4 (RFC 791, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(extend("type" = ["integer", "string"], "minimum" = 68, "pattern" = "^[0-9]+$"))]
pub struct PathMtuSpec(pub u16);

describe! {
    PathMtuSpec: "path_mtu" = "BYTES", as in "1400", shapes PathMtu;
    "Longest packet that passes, in bytes at L3: 1400" + "Longer packets are dropped, and ICMP tells their sender"
}

impl<'de> Deserialize<'de> for PathMtuSpec {
    /// Reads a number, or a text with a number, as flags and forms have it.
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(source)?;
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let mtu = text.parse().map_err(|_| {
            let right = "L3 bytes from 68 to 65535, as in 1400";
            de::Error::invalid_value(Unexpected::Other(&text), &right)
        })?;
        refuse_out_of_range(Effect::Mtu(mtu)).map_err(de::Error::custom)?;
        Ok(Self(mtu))
    }
}

impl fmt::Display for PathMtuSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
