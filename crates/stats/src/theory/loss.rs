//! The goodput of a TCP sender under random loss.

use clap::ValueEnum;
use serde::Serialize;

/// A sender's congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// CUBIC (RFC 9438)
    Cubic,
    /// Reno (RFC 5681), which halves its window at a loss
    Reno,
    /// BBR, for which there is no formula for the effect of loss
    Bbr,
}

/// A formula for the effect of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossLaw {
    /// Reno without time-outs (M. Mathis, J. Semke, J. Mahdavi and T. Ott, 1997).
    Mathis,
    /// Reno with time-outs (J. Padhye, V. Firoiu, D. Towsley and J. Kurose, 1998).
    Padhye,
    /// CUBIC (RFC 9438 §5.1).
    Cubic,
    /// CUBIC where it is not faster than Reno.
    RenoFriendlyCubic,
}

/// The loss from which on time-outs are frequent, so that laws of the window alone give too high a rate.
const FREQUENT_TIMEOUTS: f64 = 0.02;
/// The time that Linux adds to the smoothed RTT of a steady path for the time-out (TCP_RTO_MIN).
const MIN_TIMEOUT_S: f64 = 0.2;

/// Returns the laws that apply, each with its rate in segments per second, at a `loss` of 0 to 1 and an RTT of `rtt_s`
/// seconds; none without loss or for BBR. The lowest rate applies.
pub fn laws(congestion: Congestion, loss: f64, rtt_s: f64) -> Vec<(LossLaw, f64)> {
    if loss <= 0.0 || congestion == Congestion::Bbr {
        return Vec::new();
    }
    let padhye = (LossLaw::Padhye, padhye(loss, rtt_s));
    match (congestion, loss < FREQUENT_TIMEOUTS) {
        (Congestion::Cubic, true) => vec![cubic(loss, rtt_s)],
        (Congestion::Cubic, false) => vec![cubic(loss, rtt_s), padhye],
        (_, true) => vec![(LossLaw::Mathis, mathis(loss, rtt_s))],
        (_, false) => vec![padhye],
    }
}

/// Returns sqrt(3/2) / (RTT sqrt(p)) (M. Mathis, J. Semke, J. Mahdavi and T. Ott, "The macroscopic behavior of the TCP
/// congestion avoidance algorithm", 1997, for periodic loss). Every segment counts as acknowledged, because Linux grows
/// the window by acknowledged segments, however many acknowledgements there are; otherwise the numerator would be
/// sqrt(3/4).
fn mathis(loss: f64, rtt_s: f64) -> f64 {
    (1.5 / loss).sqrt() / rtt_s
}

/// Returns 1 / (RTT sqrt(2p/3) + T0 min(1, 3 sqrt(3p/8)) p (1 + 32 p^2)) (J. Padhye, V. Firoiu, D. Towsley and J.
/// Kurose, "Modeling TCP throughput", 1998, equation 30 with b = 1), with Linux's time-out on a steady path, T0 = RTT +
/// 200 ms.
fn padhye(loss: f64, rtt_s: f64) -> f64 {
    let timeout_s = rtt_s + MIN_TIMEOUT_S;
    let halving = rtt_s * (2.0 * loss / 3.0).sqrt();
    let timing_out = (3.0 * (3.0 * loss / 8.0).sqrt()).min(1.0);
    1.0 / (halving + timeout_s * timing_out * loss * (1.0 + 32.0 * loss * loss))
}

/// Returns the greater of CUBIC's window, (C (3 + b) / (4 (1 - b)))^(1/4) (RTT/p)^(3/4) with C = 0.4 and b = 0.7, and
/// the Reno-friendly one, sqrt(3/2) / sqrt(p), each divided by the RTT (RFC 9438 §4.3, §5.1).
fn cubic(loss: f64, rtt_s: f64) -> (LossLaw, f64) {
    const C: f64 = 0.4;
    const BETA: f64 = 0.7;
    let factor = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    let window = factor * (rtt_s / loss).powf(0.75);
    let reno = (1.5 / loss).sqrt();
    if window > reno {
        (LossLaw::Cubic, window / rtt_s)
    } else {
        (LossLaw::RenoFriendlyCubic, reno / rtt_s)
    }
}

impl LossLaw {
    /// Returns the possessive of its name: "Padhye's".
    pub fn possessive(self) -> &'static str {
        match self {
            Self::Mathis => "Mathis's",
            Self::Padhye => "Padhye's",
            Self::Cubic => "CUBIC's",
            Self::RenoFriendlyCubic => "Reno-friendly CUBIC's",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(congestion: Congestion, loss: f64, rtt_s: f64) -> (LossLaw, f64) {
        let laws = laws(congestion, loss, rtt_s);
        assert_eq!(laws.len(), 1);
        laws[0]
    }

    #[test]
    fn reno_follows_mathis_and_with_time_outs_padhye() {
        let (law, segments) = one(Congestion::Reno, 0.01, 0.1);
        assert_eq!(law, LossLaw::Mathis);
        assert!((segments - 122.474).abs() < 1e-3);
        let (law, segments) = one(Congestion::Reno, 0.02, 0.1);
        assert_eq!(law, LossLaw::Padhye);
        // This is 0.1 * 0.115470 + 0.3 * 0.259808 * 0.02 * 1.0128 = 0.0115470 + 0.0015788.
        assert!((segments - 76.186).abs() < 1e-2, "{segments}");
    }

    #[test]
    fn cubics_window_is_that_of_rfc_9438() {
        // The windows are max(1.054 (RTT/p)^0.75, 1.2247 / sqrt(p)).
        for (rtt_s, loss, window, law) in [
            (0.1, 1e-2, 12.247, LossLaw::RenoFriendlyCubic),
            (0.1, 1e-4, 187.43, LossLaw::Cubic),
            (0.1, 1e-6, 5927.0, LossLaw::Cubic),
            (0.01, 1e-4, 122.47, LossLaw::RenoFriendlyCubic),
            (0.01, 1e-8, 33_330.0, LossLaw::Cubic),
        ] {
            let (found, segments) = one(Congestion::Cubic, loss, rtt_s);
            assert_eq!(found, law, "{rtt_s} {loss}");
            let ratio = segments * rtt_s / window;
            assert!((0.999..1.001).contains(&ratio), "{rtt_s} {loss}: {ratio}");
        }
    }

    #[test]
    fn time_outs_limit_cubic_too() {
        let both = laws(Congestion::Cubic, 0.05, 0.02);
        let (cubic, padhye) = (both[0], both[1]);
        assert_eq!(cubic.0, LossLaw::RenoFriendlyCubic);
        assert_eq!(padhye.0, LossLaw::Padhye);
        assert!(padhye.1 < cubic.1);
    }

    #[test]
    fn without_loss_and_for_bbr_there_is_no_law() {
        assert!(laws(Congestion::Cubic, 0.0, 0.1).is_empty());
        assert!(laws(Congestion::Bbr, 0.1, 0.1).is_empty());
    }
}
