//! TCP metrics of RFC 6349.

use model::{Bytes, Nanos};
use serde::Serialize;

use super::PathConditions;
use super::limits::Limits;

/// The window that keeps a path full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NeededWindow {
    /// Bandwidth-delay product (RFC 6349 §3.3.1): payload that the path carries in one RTT.
    pub bytes: f64,
    /// The same in full segments.
    pub segments: f64,
    /// RFC 7323 §2.2: the shift without which a window of 16 bits cannot say so much; nothing above 14, the largest.
    pub scale: Option<u32>,
}

/// The window that `conditions` need; nothing without an RTT.
pub fn needed_window(conditions: &PathConditions) -> Option<NeededWindow> {
    const LARGEST_UNSCALED: f64 = 65_535.0;
    const LARGEST_SCALE: u32 = 14;
    let bytes = Limits::of_path(conditions) / 8.0 * conditions.rtt_s()?;
    let scale =
        (0..=LARGEST_SCALE).find(|scale| LARGEST_UNSCALED * f64::from(1_u32 << scale) >= bytes);
    Some(NeededWindow {
        bytes,
        segments: bytes / conditions.stack.most_payload(conditions.mtu) as f64,
        scale,
    })
}

/// The ideal transfer time in seconds (RFC 6349 §4.1): `size` of payload at what line and shaper carry, the sender's start and
/// the round trips left out.
pub fn ideal_transfer_s(conditions: &PathConditions, size: Bytes) -> f64 {
    size.0 as f64 * 8.0 / Limits::of_path(conditions)
}

/// The transfer-time ratio (RFC 6349 §4.1): how many times as long as the ideal it took, 1 at best.
pub fn transfer_time_ratio(took: Nanos, ideal_s: f64) -> f64 {
    took.0 as f64 / 1e9 / ideal_s
}

/// TCP efficiency in percent (RFC 6349 §4.2): of the bytes sent, those that were not sent again.
pub fn efficiency_percent(sent: Bytes, retransmitted: Bytes) -> Option<f64> {
    let (sent, again) = (sent.0 as f64, retransmitted.0 as f64);
    (sent > 0.0).then(|| 100.0 * (sent - again) / sent)
}

/// The buffer delay in percent (RFC 6349 §4.3): by how much the mean RTT during the transfer is above that of the idle path.
pub fn buffer_delay_percent(mean_rtt_s: f64, idle_rtt_s: f64) -> Option<f64> {
    (idle_rtt_s > 0.0).then(|| 100.0 * (mean_rtt_s - idle_rtt_s) / idle_rtt_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::tests::gigabit;

    #[test]
    fn a_window_covers_the_round_trip() {
        assert_eq!(needed_window(&gigabit()), None);
        let mut conditions = gigabit();
        conditions.rtt = Some("20ms".parse().unwrap());
        let needed = needed_window(&conditions).unwrap();
        // 941.482 Mb/s for 20 ms.
        assert!((needed.bytes - 2_353_706.0).abs() < 1.0);
        assert!((needed.segments - 1625.5).abs() < 0.1);
        assert_eq!(needed.scale, Some(6));
        conditions.rtt = Some("1us".parse().unwrap());
        assert_eq!(needed_window(&conditions).unwrap().scale, Some(0));
        conditions.rtt = Some("60s".parse().unwrap());
        assert_eq!(needed_window(&conditions).unwrap().scale, None);
    }

    #[test]
    fn a_transfer_is_held_against_the_ideal_one() {
        let mut conditions = gigabit();
        conditions.shaper = Some("100mbit".parse().unwrap());
        let ideal = ideal_transfer_s(&conditions, Bytes(500_000_000));
        assert!((ideal - 41.823).abs() < 1e-3);
        let ratio = transfer_time_ratio(Nanos::from_millis(83_646), ideal);
        assert!((ratio - 2.0).abs() < 1e-4);
    }

    #[test]
    fn efficiency_and_buffer_delay_are_those_of_the_rfc() {
        // RFC 6349's examples: 2,000 of 102,000 bytes sent again; 32 ms over 25 ms.
        let efficiency = efficiency_percent(Bytes(102_000), Bytes(2_000)).unwrap();
        assert!((efficiency - 98.039).abs() < 1e-3);
        assert!((buffer_delay_percent(0.032, 0.025).unwrap() - 28.0).abs() < 1e-9);
        assert_eq!(efficiency_percent(Bytes(0), Bytes(0)), None);
        assert_eq!(buffer_delay_percent(1.0, 0.0), None);
    }
}
