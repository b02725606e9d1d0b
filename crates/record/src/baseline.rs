//! The machine's own limits, measured without emulated conditions.

use serde::{Deserialize, Serialize};

/// Upper and lower limits of the machine, measured in the test bed of an experiment, but without conditions on link and
/// wire. A value that could not be measured is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The number of the host, counted from 1 in the record header's `hosts`; absent if the record has only one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<usize>,
    /// Start of the measurement (RFC 3339, UTC).
    pub started_at: String,
    /// MTU of the test bed in bytes; the limits depend on it.
    pub mtu: u32,
    /// Whether the offloads of the bed's end hosts were on.
    pub offloads: bool,
    /// Goodput of one TCP stream from client to server (L7).
    pub tcp_bit_per_s: Option<f64>,
    /// Received rate of MTU-sized datagrams that are sent as fast as possible (L3).
    pub udp_bit_per_s: Option<f64>,
    /// Received packets per second of the same datagrams.
    pub udp_packets_per_s: Option<f64>,
    /// Median of |gap - ideal gap| between datagrams paced to 10 Mbit/s.
    pub pacing_error_us: Option<f64>,
    /// 99th percentile of the same differences.
    pub pacing_error_p99_us: Option<f64>,
    /// Median delay between the time at which a sleeping thread should wake up and the time at which it does.
    pub timer_floor_us: Option<f64>,
    /// Median round-trip time of pings through the hosts and the emulator.
    pub rtt_floor_ms: Option<f64>,
    /// The reason why a value is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
