//! The largest rate of each layer.

use serde::Serialize;

use super::PathConditions;
use crate::layers::Counted;

/// The ceiling of one layer if every packet is as long as the MTU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// The layer, "L1", "L2", "L3" or "L7".
    pub layer: &'static str,
    /// The part of a packet that the layer counts.
    pub counts: &'static str,
    /// The bytes of a packet that it counts.
    pub packet_bytes: u64,
    /// The largest rate of these bytes.
    pub bit_per_s: f64,
    /// The share of the line rate, in percent.
    pub percent: f64,
}

/// Returns the ceilings from the wire up to the goodput of TCP and of UDP.
pub fn ceilings(conditions: &PathConditions) -> Vec<Ceiling> {
    let (tcp, udp) = (full(conditions), full(&conditions.with_udp()));
    [
        ("L1", "frame, preamble and gap", tcp.l1),
        ("L2", "frame with FCS", tcp.l2_with_fcs),
        ("L2", "frame without FCS (tc, tbf)", tcp.l2),
        ("L3", "IP packet", tcp.l3),
        ("L7", "TCP payload (goodput)", tcp.payload),
        ("L7", "UDP payload (goodput)", udp.payload),
    ]
    .map(|(layer, counts, packet_bytes)| {
        let share = packet_bytes as f64 / tcp.l1 as f64;
        Ceiling {
            layer,
            counts,
            packet_bytes,
            bit_per_s: conditions.rate.get() as f64 * share,
            percent: 100.0 * share,
        }
    })
    .into()
}

/// Returns the number of full packets per second: the maximum frames per second of RFC 6349 §4.1.
pub fn packets_per_s(conditions: &PathConditions) -> f64 {
    conditions.rate.get() as f64 / 8.0 / full(conditions).l1 as f64
}

fn full(conditions: &PathConditions) -> Counted {
    conditions.stack.full_packet(conditions.mtu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::tests::gigabit;

    #[test]
    fn every_layer_has_its_ceiling() {
        let found = ceilings(&gigabit());
        let bytes: Vec<u64> = found.iter().map(|c| c.packet_bytes).collect();
        assert_eq!(bytes, [1538, 1518, 1514, 1500, 1448, 1472]);
        assert!((found[0].bit_per_s - 1e9).abs() < 1e-3);
        assert!((found[4].percent - 94.148).abs() < 5e-4);
        assert!((found[5].bit_per_s / 1e6 - 957.087).abs() < 5e-4);
        // This is RFC 2544's well-known figure for 1518-byte frames.
        assert!((packets_per_s(&gigabit()) - 81_274.4).abs() < 0.1);
    }
}
