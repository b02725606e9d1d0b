//! What the packet log of a link says of each flow: the truth that an instrument's figures are held against, made of
//! the emulator's own stamps and counts alone.

use serde::{Deserialize, Serialize};

use crate::Direction;

/// One flow in one direction. Bytes are L2 without FCS, times nanoseconds since the first packet of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossedFlow {
    /// Which way it went.
    pub direction: Direction,
    /// The IP protocol number.
    pub protocol: u8,
    /// The client's port and the server's; 0 where there are none.
    pub ports: [u16; 2],
    /// Packets that left.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// The most bytes that were due within one second, and left, over all such seconds; absent of what took less than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_second_bytes: Option<u64>,
    /// The packets of the flow's usual length, which leaves out how it was opened, agreed on and closed.
    pub data: CrossedData,
}

/// Of the packets that are at least three quarters as long as the flow's longest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossedData {
    /// Those that came to the link.
    pub packets: u64,
    /// Those of them that the emulated network dropped.
    pub lost: u64,
    /// When the first one came.
    pub first_arrival_ns: u64,
    /// When the first one left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_departure_ns: Option<u64>,
    /// When the last one left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_departure_ns: Option<u64>,
    /// From arrival to departure, in the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_delay_ns: Option<u64>,
}
