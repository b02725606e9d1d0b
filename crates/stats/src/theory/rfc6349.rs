//! TCP metrics of RFC 6349.

use model::Bytes;
use serde::Serialize;

use super::PathConditions;
use super::limits::GoodputLimits;

/// The window that keeps a path full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NeededWindow {
    /// The bandwidth-delay product (RFC 6349 §3.3.1): the payload that the path carries in one RTT, in bytes.
    pub bytes: f64,
    /// The same in full segments.
    pub segments: f64,
    /// The least window scale with which 16 bits can express the window (RFC 7323 §2.2); `None` above 14, the largest
    /// scale.
    pub scale: Option<u32>,
}

/// Returns the window that `conditions` need; `None` without an RTT.
pub fn needed_window(conditions: &PathConditions) -> Option<NeededWindow> {
    const LARGEST_UNSCALED: f64 = 65_535.0;
    const LARGEST_SCALE: u32 = 14;
    let bytes = GoodputLimits::of_path(conditions) / 8.0 * conditions.rtt_s()?;
    let scale =
        (0..=LARGEST_SCALE).find(|scale| LARGEST_UNSCALED * f64::from(1_u32 << scale) >= bytes);
    Some(NeededWindow {
        bytes,
        segments: bytes / conditions.stack.most_payload(conditions.mtu) as f64,
        scale,
    })
}

/// Returns the ideal transfer time in seconds (RFC 6349 §4.1): the time of `size` of payload at the rate of line and
/// shaper, without the sender's start and the round trips.
pub fn ideal_transfer_s(conditions: &PathConditions, size: Bytes) -> f64 {
    size.0 as f64 * 8.0 / GoodputLimits::of_path(conditions)
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
        // This is 941.482 Mb/s for 20 ms.
        assert!((needed.bytes - 2_353_706.0).abs() < 1.0);
        assert!((needed.segments - 1625.5).abs() < 0.1);
        assert_eq!(needed.scale, Some(6));
        conditions.rtt = Some("1us".parse().unwrap());
        assert_eq!(needed_window(&conditions).unwrap().scale, Some(0));
        conditions.rtt = Some("60s".parse().unwrap());
        assert_eq!(needed_window(&conditions).unwrap().scale, None);
    }

    #[test]
    fn a_transfer_takes_the_time_of_line_and_shaper() {
        let mut conditions = gigabit();
        conditions.shaper = Some("100mbit".parse().unwrap());
        let ideal = ideal_transfer_s(&conditions, Bytes(500_000_000));
        assert!((ideal - 41.823).abs() < 1e-3);
    }
}
