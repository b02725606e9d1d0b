//! The measurement that [`LinkFit`](crate::LinkFit) needs: its phases, their times, and the rates of its loads.

use crate::loss::LossFit;

/// The rates in bit/s that are tried one after another until one exceeds the path.
pub const SEARCH_RATES: [f64; 6] = [2e6, 8e6, 32e6, 128e6, 512e6, 2048e6];
/// The time for which each of them is sent, in seconds, on a path without a long delay.
const SEARCH_S: f64 = 0.5;
/// The share of what was sent below which the path carries less than was sent.
const FULL_BELOW: f64 = 0.85;
/// A strong load as a multiple of the rate. A queue of this many seconds is full after the same time.
const STRONG: f64 = 2.0;
/// The packets per second by which a gentle load exceeds the rate. CoDel's queue is short again after 2.4 s of it; see
/// [`QueueKind`](crate::QueueKind).
const GENTLE_PACKETS: f64 = 60.0;
/// The least and the largest share by which a gentle load exceeds the rate.
const GENTLE_SHARE: [f64; 2] = [0.015, 0.3];
/// The parts of the whole time of a strong load and of a gentle load, in each direction.
const LOADED_PARTS: [f64; 2] = [0.13, 0.2];

/// The times of the phases in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitTimes {
    /// Probes on the idle path.
    pub idle_s: f64,
    /// The strong load in each direction.
    pub strong_s: f64,
    /// The gentle load in each direction.
    pub gentle_s: f64,
}

impl FitTimes {
    /// Divides a time among the phases; about a tenth is left for finding the rate.
    pub fn of(total_s: f64) -> Self {
        let [strong, gentle] = LOADED_PARTS;
        Self {
            idle_s: (1.0 - 2.0 * (strong + gentle) - 0.1) * total_s,
            strong_s: strong * total_s,
            gentle_s: gentle * total_s,
        }
    }

    /// Returns the times with shorter loads.
    pub fn with_loads(self, share: f64) -> Self {
        Self {
            strong_s: share * self.strong_s,
            gentle_s: share * self.gentle_s,
            ..self
        }
    }

    /// Returns the bytes that the loads of a direction with this rate, in bit/s, send.
    pub fn bytes(self, rate: f64) -> f64 {
        (STRONG * self.strong_s + (1.0 + GENTLE_SHARE[0]) * self.gentle_s) * rate / 8.0
    }
}

/// Returns for how long a rate is sent to find that of the path, in seconds. On a long path, the first datagrams need a
/// part of it.
pub fn search_s(round_trip_ms: f64) -> f64 {
    SEARCH_S + 2e-3 * round_trip_ms
}

/// Returns whether a path that passed `received` of `sent` (in the same unit) carries less than was sent. Random loss is
/// no sign of it.
pub fn is_full(sent: f64, received: f64, random: &LossFit) -> bool {
    received < FULL_BELOW * sent * (1.0 - random.percent.value / 100.0)
}

/// Returns the rate of a strong load on a path of this rate, in the same unit.
pub fn strong(rate: f64) -> f64 {
    STRONG * rate
}

/// Returns the rate of a gentle load of datagrams with this number of bytes on a path of this rate, in bit/s.
pub fn gentle(rate: f64, wire_bytes: u32) -> f64 {
    let excess = GENTLE_PACKETS * 8.0 * f64::from(wire_bytes) / rate;
    rate * (1.0 + excess.clamp(GENTLE_SHARE[0], GENTLE_SHARE[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_phases_fit_into_the_time() {
        let times = FitTimes::of(30.0);
        let loads = 2.0 * (times.strong_s + times.gentle_s);
        assert!(times.idle_s > 5.0 && times.idle_s + loads < 28.0, "{times:?}");
        assert!((times.with_loads(0.5).bytes(8e6) * 2.0 - times.bytes(8e6)).abs() < 1.0);
    }

    #[test]
    fn a_gentle_load_exceeds_the_rate_by_a_few_packets() {
        assert!((gentle(20e6, 1442) / 20e6 - 1.0346).abs() < 0.001);
        assert!((gentle(200e6, 1442) / 200e6 - 1.015).abs() < 1e-6);
        assert!((gentle(1e6, 1442) / 1e6 - 1.3).abs() < 1e-6);
    }
}
