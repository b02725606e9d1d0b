//! The parameters of RED.

use crate::units::{Bytes, Probability};

/// Random Early Detection (Floyd and Jacobson: "Random early detection gateways for congestion avoidance", IEEE/ACM
/// Transactions on Networking 1(4), 1993), which counts the bytes that wait.
///
/// The names are those of tc-red(8). Unlike tc's RED, it is gentle by default and knows the rate of its server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// The average queue from which on packets are dropped.
    pub min: Bytes,
    /// The average queue at which [`Red::probability`] is reached; above `min`.
    pub max: Bytes,
    /// The probability of a drop at `max`, without regard to how long ago the last one was; above 0.
    pub probability: Probability,
    /// The length of a typical packet, by which `burst` and idle times are measured; above 0.
    pub avpkt: Bytes,
    /// The number of packets that may arrive together at an empty queue before the average reaches `min`: the larger it
    /// is, the more slowly the average follows. `None` is `(2 min + max) / (3 avpkt)`.
    pub burst: Option<u32>,
    /// Whether the probability grows from `max` to twice `max` until it is 1 (Floyd: "Recommendation on using the
    /// `gentle_` variant of RED", 2000). Otherwise everything is dropped from `max` on, as by tc.
    pub gentle: bool,
    /// Whether packets are marked instead of dropped, if their senders understand marks.
    pub ecn: bool,
    /// Whether packets are dropped and never marked while the average is at the value at which everything is dropped, as
    /// by tc's `harddrop`.
    pub harddrop: bool,
}

impl Red {
    /// Returns [`Red::burst`] or its default, in packets.
    #[must_use]
    pub fn burst(&self) -> u32 {
        let guideline = (2 * u128::from(self.min.0) + u128::from(self.max.0))
            .checked_div(3 * u128::from(self.avpkt.0))
            .map_or(0, |packets| u32::try_from(packets).unwrap_or(u32::MAX));
        self.burst.unwrap_or(guideline)
    }

    /// Returns the weight of each new length in the average: the largest 2^-n, n from 1 to 31, with which a burst into
    /// an empty queue leaves the average below `min`. `None` if there is none.
    ///
    /// A queue that grows by a packet at each of L arrivals has an average of L + 1 - (1 - (1 - w)^L) / w packets
    /// (equation 3 of the paper, as in iproute2's `tc_red.c`).
    #[must_use]
    pub fn weight(&self) -> Option<f64> {
        let burst = self.burst();
        let beyond = f64::from(burst) + 1.0 - self.min.0 as f64 / self.avpkt.0 as f64;
        let mut weight = 1.0;
        let fits = |weight: &f64| beyond <= (1.0 - power(1.0 - weight, u64::from(burst))) / weight;
        let mut weights = core::iter::repeat_with(|| {
            weight /= 2.0;
            weight
        });
        weights
            .by_ref()
            .take(31)
            .find(fits)
            .filter(|_| beyond >= 1.0)
    }
}

impl Default for Red {
    /// Returns 30 and 90 kB, 2 %, and packets of 1,000 bytes, as in the example of tc-red(8), with gentle drops.
    fn default() -> Self {
        Self {
            min: Bytes(30_000),
            max: Bytes(90_000),
            probability: Probability::from_percent(2.0).expect("2 lies between 0 and 100"),
            avpkt: Bytes(1_000),
            burst: None,
            gentle: true,
            ecn: false,
            harddrop: true,
        }
    }
}

/// Returns `base`^`exponent`, by squaring.
pub(crate) fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result *= base;
        }
        base *= base;
        exponent /= 2;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_is_what_tc_computes() {
        // By hand, after tc_red.c: of 50 packets, 21 lie beyond min. (1 - (31/32)^50) * 32 is 25.5, and the same with
        // 1/16 is 15.4.
        assert_eq!(Red::default().burst(), 50);
        assert_eq!(Red::default().weight(), Some(1.0 / 32.0));
        let slow = Red {
            burst: Some(400),
            ..Red::default()
        };
        // 371 packets lie beyond min: (1 - (1 - w)^400) / w is 371.0 or more from 2^-12 on.
        let share = |n: i32| (1.0 - (1.0 - 0.5_f64.powi(n)).powi(400)) / 0.5_f64.powi(n);
        let n = (1..=31).find(|n| share(*n) >= 371.0).unwrap();
        assert_eq!(slow.weight(), Some(0.5_f64.powi(n)));
    }

    #[test]
    fn a_burst_that_does_not_reach_min_has_no_weight() {
        let short = Red {
            burst: Some(29),
            ..Red::default()
        };
        assert_eq!(short.weight(), None);
        let none = Red {
            avpkt: Bytes(0),
            ..Red::default()
        };
        assert_eq!(none.weight(), None);
    }
}
