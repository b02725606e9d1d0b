//! The limits on a transfer's goodput, and the one that binds.

use std::fmt;

use serde::Serialize;

use super::loss::{self, LossLaw};
use super::{Impossible, PathConditions};
use crate::layers::TransportProtocol;

/// A limit that a goodput cannot exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Its cause.
    pub cause: Cause,
    /// The largest rate of payload (L7).
    pub bit_per_s: f64,
}

/// The cause of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The Ethernet's rate, minus headers, FCS, preamble and gap.
    Line,
    /// The shaper's rate, minus headers.
    Shaper,
    /// One receiver's window per round trip (RFC 6349 §3.3.2).
    Window,
    /// The response of the congestion control to loss.
    Loss(LossLaw),
    /// The share of line and shaper that random loss behind them leaves: 1 - p.
    Delivered,
}

/// All limits on one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoodputLimits {
    /// The limits from the wire to the sender; the line's limit is always present.
    pub all: Vec<Limit>,
    /// The least limit that cannot be exceeded.
    pub binding: Limit,
    /// The average of long transfers by a law of loss, if it is below the binding limit. A single transfer can exceed
    /// it.
    pub expected: Option<Limit>,
}

impl GoodputLimits {
    /// Computes the limits of `conditions`.
    ///
    /// # Errors
    /// Returns an error for conditions that cannot exist.
    pub fn of(conditions: &PathConditions) -> Result<Self, Impossible> {
        conditions.check()?;
        let line = line(conditions);
        let own = match conditions.stack.protocol {
            TransportProtocol::Tcp { .. } => of_tcp(conditions),
            TransportProtocol::Udp => Vec::new(),
        };
        let all: Vec<Limit> = std::iter::once(line)
            .chain(shaper(conditions))
            .chain(delivered(conditions))
            .chain(own)
            .collect();
        let least = |a: Limit, b: Limit| if b.bit_per_s < a.bit_per_s { b } else { a };
        let (laws, hard): (Vec<Limit>, Vec<Limit>) =
            all.iter().partition(|limit| limit.cause.is_average());
        let binding = hard.into_iter().fold(line, least);
        let expected = laws
            .into_iter()
            .reduce(least)
            .filter(|law| law.bit_per_s < binding.bit_per_s);
        Ok(Self {
            all,
            binding,
            expected,
        })
    }

    /// Returns the least of all: the binding limit, or the average by a law of loss below it.
    pub fn least(&self) -> Limit {
        self.expected.unwrap_or(self.binding)
    }

    /// Returns the largest goodput that line and shaper carry, whoever sends.
    pub fn of_path(conditions: &PathConditions) -> f64 {
        let shaper = shaper(conditions).map_or(f64::INFINITY, |limit| limit.bit_per_s);
        line(conditions).bit_per_s.min(shaper)
    }

    /// Compares a measured goodput with the least limit.
    pub fn explain(&self, measured_bit_per_s: f64) -> Explained {
        Explained {
            measured_bit_per_s,
            percent: 100.0 * measured_bit_per_s / self.least().bit_per_s,
            least: self.least(),
            binding: self.binding,
        }
    }
}

/// A measured goodput, compared with the limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The goodput measured.
    pub measured_bit_per_s: f64,
    /// The goodput in percent of the least limit or law. Above 100 % of a line or a shaper, the measured value counts
    /// something other than delivered payload. A law of loss is an average over long runs, which a run can exceed.
    pub percent: f64,
    /// The value of the comparison: the binding limit, or the average by a law of loss below it.
    pub least: Limit,
    /// The least limit that cannot be exceeded.
    pub binding: Limit,
}

impl Explained {
    /// Returns whether the measured value exceeds the wire or the shaper by more than rounding.
    fn is_impossible(&self) -> bool {
        const ROUNDING_PERCENT: f64 = 0.1;
        let hard = matches!(self.binding.cause, Cause::Line | Cause::Shaper);
        let percent = 100.0 * self.measured_bit_per_s / self.binding.bit_per_s;
        hard && percent > 100.0 + ROUNDING_PERCENT
    }
}

impl fmt::Display for Explained {
    /// Writes it in words: "6.500 Mbit/s is 91.6 % of 7.094 Mbit/s (Reno-friendly CUBIC's law of loss)".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [measured, most] = [self.measured_bit_per_s, self.least.bit_per_s].map(rate_in_words);
        let (percent, name) = (self.percent, self.least.cause.name());
        write!(f, "{measured} is {percent:.1} % of {most} ({name})")?;
        if self.is_impossible() {
            f.write_str(
                ", more than can be delivered: it probably counts bytes handed to a buffer, or bytes of another layer",
            )?;
        } else if self.least.cause.is_average() {
            write!(
                f,
                ", which is the model's average and not a limit; the limit is {} ({})",
                rate_in_words(self.binding.bit_per_s),
                self.binding.cause.name()
            )?;
        }
        Ok(())
    }
}

/// Returns the display unit for rates of which the greatest is this many bit/s, as its size in bit/s and its name:
/// kbit/s below 1 Mbit/s, otherwise Mbit/s.
pub fn rate_unit(greatest: f64) -> (f64, &'static str) {
    if greatest != 0.0 && greatest.abs() < 1e6 {
        (1e3, "kbit/s")
    } else {
        (1e6, "Mbit/s")
    }
}

/// Writes a rate in bit/s with its display unit: "7.094 Mbit/s", "50.312 kbit/s".
pub fn rate_in_words(bit_per_s: f64) -> String {
    let (by, unit) = rate_unit(bit_per_s);
    format!("{:.3} {unit}", bit_per_s / by)
}

fn line(conditions: &PathConditions) -> Limit {
    let full = conditions.stack.full_packet(conditions.mtu);
    let rate = conditions.rate.get() as f64;
    Limit::new(Cause::Line, rate * full.efficiency())
}

fn shaper(conditions: &PathConditions) -> Option<Limit> {
    let full = conditions.stack.full_packet(conditions.mtu);
    let share = full.payload as f64 / full.l2 as f64;
    let rate = conditions.shaper?.get() as f64;
    Some(Limit::new(Cause::Shaper, rate * share))
}

fn delivered(conditions: &PathConditions) -> Option<Limit> {
    let lost = conditions.loss.map(|loss| loss.fraction())?;
    let rate = GoodputLimits::of_path(conditions) * (1.0 - lost);
    (lost > 0.0).then(|| Limit::new(Cause::Delivered, rate))
}

/// Returns the limits that a TCP receiver and a TCP sender add.
fn of_tcp(conditions: &PathConditions) -> Vec<Limit> {
    let Some(rtt_s) = conditions.rtt_s() else {
        return Vec::new();
    };
    let window = conditions.window.map(|window| {
        let bits = window.0 as f64 * 8.0;
        Limit::new(Cause::Window, bits / rtt_s)
    });
    let loss = conditions.loss.map_or(0.0, |loss| loss.fraction());
    let segment = conditions.stack.most_payload(conditions.mtu) as f64 * 8.0;
    let laws = loss::laws(conditions.congestion, loss, rtt_s)
        .into_iter()
        .map(|(law, segments)| Limit::new(Cause::Loss(law), segments * segment));
    window.into_iter().chain(laws).collect()
}

impl Limit {
    fn new(cause: Cause, bit_per_s: f64) -> Self {
        Self { cause, bit_per_s }
    }
}

impl Cause {
    /// Returns whether it is an average by a model, which one transfer can exceed, and not a limit.
    pub fn is_average(self) -> bool {
        matches!(self, Self::Loss(_))
    }

    /// Returns its name: "line rate", "receiver's window", "CUBIC's law of loss".
    pub fn name(self) -> String {
        match self {
            Self::Line => "line rate".to_owned(),
            Self::Shaper => "shaper".to_owned(),
            Self::Window => "receiver's window".to_owned(),
            Self::Loss(law) => format!("{} loss model", law.possessive()),
            Self::Delivered => "packets not lost".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::loss::Congestion;
    use crate::theory::tests::gigabit;

    fn wan() -> PathConditions {
        PathConditions {
            rtt: Some("20ms".parse().unwrap()),
            ..gigabit()
        }
    }

    fn binding(conditions: &PathConditions) -> (Cause, f64) {
        let limit = GoodputLimits::of(conditions).unwrap().least();
        (limit.cause, limit.bit_per_s / 1e6)
    }

    #[test]
    fn a_plain_line_is_limited_by_its_rate() {
        let (cause, megabit) = binding(&gigabit());
        assert_eq!(cause, Cause::Line);
        assert!((megabit - 941.482).abs() < 1e-3);
    }

    #[test]
    fn a_shaper_counts_frames_without_fcs() {
        let mut conditions = gigabit();
        conditions.shaper = Some("50mbit".parse().unwrap());
        let (cause, megabit) = binding(&conditions);
        assert_eq!(cause, Cause::Shaper);
        assert!((megabit - 50.0 * 1448.0 / 1514.0).abs() < 1e-9);
        let (_, megabit) = binding(&conditions.with_udp());
        assert!((megabit / 50.0 - 0.972).abs() < 5e-4);
    }

    #[test]
    fn a_window_is_sent_once_per_round_trip() {
        let mut conditions = wan();
        conditions.window = Some("64KiB".parse().unwrap());
        let (cause, megabit) = binding(&conditions);
        assert_eq!(cause, Cause::Window);
        assert!((megabit - 26.2144).abs() < 1e-9);
        // A window does not limit datagrams.
        assert_eq!(binding(&conditions.with_udp()).0, Cause::Line);
    }

    #[test]
    fn loss_limits_each_congestion_control_by_its_law() {
        let mut conditions = wan();
        conditions.loss = Some("1%".parse().unwrap());
        let (cause, megabit) = binding(&conditions);
        assert_eq!(cause, Cause::Loss(LossLaw::RenoFriendlyCubic));
        // These are 12.247 segments of 1448 bytes in 20 ms.
        assert!((megabit - 7.0937).abs() < 1e-3, "{megabit}");
        conditions.congestion = Congestion::Reno;
        assert_eq!(binding(&conditions).0, Cause::Loss(LossLaw::Mathis));
        conditions.congestion = Congestion::Bbr;
        let (cause, megabit) = binding(&conditions);
        assert_eq!(cause, Cause::Delivered);
        assert!((megabit - 0.99 * 941.482).abs() < 1e-3);
        let (cause, megabit) = binding(&conditions.with_udp());
        assert_eq!(cause, Cause::Delivered);
        assert!((megabit - 0.99 * 957.087).abs() < 1e-3);
        conditions.congestion = Congestion::Cubic;
        conditions.loss = Some("5%".parse().unwrap());
        assert_eq!(binding(&conditions).0, Cause::Loss(LossLaw::Padhye));
    }

    #[test]
    fn every_limit_is_listed_from_the_wire_up() {
        let mut conditions = wan();
        conditions.shaper = Some("500mbit".parse().unwrap());
        conditions.window = Some("4MiB".parse().unwrap());
        conditions.loss = Some("3%".parse().unwrap());
        let limits = GoodputLimits::of(&conditions).unwrap();
        let causes: Vec<Cause> = limits.all.iter().map(|limit| limit.cause).collect();
        let laws = [LossLaw::RenoFriendlyCubic, LossLaw::Padhye].map(Cause::Loss);
        let path = [Cause::Line, Cause::Shaper, Cause::Delivered, Cause::Window];
        assert_eq!(causes, [&path[..], &laws].concat());
    }

    #[test]
    fn published_measurements_are_compared_with_their_ceiling() {
        let mut conditions = gigabit();
        conditions.rate = "100mbit".parse().unwrap();
        let limits = GoodputLimits::of(&conditions).unwrap();
        // This is the fastest blast of "Experiment on Oct 10", in bytes per second.
        let blast = limits.explain(11_762_481.72 * 8.0);
        assert!((blast.percent - 99.949).abs() < 1e-3);
        assert!(!blast.is_impossible());
        // The iperf client of "bc10-router" counts the bytes that it has buffered.
        assert!(limits.explain(94.4e6).is_impossible());
    }
}
