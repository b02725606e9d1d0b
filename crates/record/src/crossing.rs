//! Counts and times of each flow that crossed a link, from the emulator's packet log. They are the reference with which
//! a calibration compares an instrument's figures, and derive from the emulator's own timestamps and counters alone.

use serde::{Deserialize, Serialize};

use crate::Direction;

/// One flow in one direction. Bytes are counted at L2 without FCS, and times are in nanoseconds since the first packet
/// of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossedFlow {
    /// The direction of the flow.
    pub direction: Direction,
    /// The IP protocol number.
    pub protocol: u8,
    /// The client's port and the server's; 0 for a protocol without ports.
    pub ports: [u16; 2],
    /// Number of packets that were delivered.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// The most bytes that were due within one second and were delivered, over all such seconds; absent if the flow
    /// took less than a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_second_bytes: Option<u64>,
    /// The packets of the flow's usual length, without those that open, negotiate and close it.
    pub data: CrossedData,
}

/// Counts and times of the packets that are at least three quarters as long as the longest packet of the flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossedData {
    /// Number of packets that arrived at the link.
    pub packets: u64,
    /// Number of them that the emulated network dropped.
    pub lost: u64,
    /// Arrival of the first packet.
    pub first_arrival_ns: u64,
    /// Departure of the first packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_departure_ns: Option<u64>,
    /// Departure of the last packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_departure_ns: Option<u64>,
    /// Median time between arrival and departure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_delay_ns: Option<u64>,
}
