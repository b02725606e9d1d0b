//! What a machine does with nothing in the way.

use serde::{Deserialize, Serialize};

/// Ceilings and floors of the machine, in the bed of an experiment but with no conditions on link and wire. What could not
/// be measured is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Of which of the head's `hosts`, from 1; absent where the record has one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<usize>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Of the bed; another MTU has other ceilings.
    pub mtu: u32,
    /// Of the bed's ends.
    pub offloads: bool,
    /// Of one TCP stream from client to server (L7).
    pub tcp_bit_per_s: Option<f64>,
    /// Of datagrams that fill the MTU and arrived, sent as fast as it goes (L3).
    pub udp_bit_per_s: Option<f64>,
    /// Of the same datagrams.
    pub udp_packets_per_s: Option<f64>,
    /// Median of |gap - ideal gap| between datagrams paced to 10 Mbit/s.
    pub pacing_error_us: Option<f64>,
    /// Its 99th percentile.
    pub pacing_error_p99_us: Option<f64>,
    /// How late a sleeping thread wakes up, median.
    pub timer_floor_us: Option<f64>,
    /// Median round-trip time of pings: the hosts and the emulator.
    pub rtt_floor_ms: Option<f64>,
    /// Why something is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
