//! What holds a transfer up: every limit on its goodput, and which of them binds.

use std::fmt;

use serde::Serialize;

use super::loss::{self, LossLaw};
use super::{Impossible, PathConditions};
use crate::layers::TransportProtocol;

/// Something that a goodput cannot pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// What it is.
    pub cause: Cause,
    /// Payload (L4) that it lets through.
    pub bit_per_s: f64,
}

/// What the limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The Ethernet's rate, less headers, FCS, preamble and gap.
    Line,
    /// The shaper's rate, less headers.
    Shaper,
    /// The receiver's window once a round trip (RFC 6349 §3.3.2).
    Window,
    /// The congestion control's answer to loss.
    Loss(LossLaw),
    /// What random loss behind line and shaper leaves of them: 1 - p.
    Delivered,
}

/// All limits of one path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoodputLimits {
    /// From the wire to the sender; the line's is always there.
    pub all: Vec<Limit>,
    /// The least of those that nothing can pass.
    pub binding: Limit,
    /// The average that a law of loss expects of long transfers, where that is less than the limit that binds. A transfer can exceed it.
    pub expected: Option<Limit>,
}

impl GoodputLimits {
    /// Of `conditions`.
    ///
    /// # Errors
    /// PathConditions that cannot be.
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
        let expected = laws.into_iter().reduce(least);
        let expected = expected.filter(|law| law.bit_per_s < binding.bit_per_s);
        Ok(Self {
            all,
            binding,
            expected,
        })
    }

    /// The least of all: what binds, or what a law of loss expects below it.
    pub fn least(&self) -> Limit {
        self.expected.unwrap_or(self.binding)
    }

    /// The most that the path itself carries, line and shaper, whoever sends.
    pub fn of_path(conditions: &PathConditions) -> f64 {
        let shaper = shaper(conditions).map_or(f64::INFINITY, |limit| limit.bit_per_s);
        line(conditions).bit_per_s.min(shaper)
    }

    /// A measured goodput beside the limit that binds.
    pub fn explain(&self, measured_bit_per_s: f64) -> Explained {
        Explained {
            measured_bit_per_s,
            percent: 100.0 * measured_bit_per_s / self.least().bit_per_s,
            least: self.least(),
            binding: self.binding,
        }
    }
}

/// A measured goodput and what held it up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The goodput measured.
    pub measured_bit_per_s: f64,
    /// Of the least limit or law; above 100 of a line or a shaper, the measured value counts something else than payload
    /// delivered. A law of loss is an average over long runs, which a run can pass.
    pub percent: f64,
    /// What it is compared with: the limit that binds, or what a law of loss expects below it.
    pub least: Limit,
    /// The least limit that nothing can pass.
    pub binding: Limit,
}

impl Explained {
    /// Whether more was measured than the wire or the shaper can carry, by more than the measurement's rounding.
    fn is_impossible(&self) -> bool {
        const ROUNDING_PERCENT: f64 = 0.1;
        let hard = matches!(self.binding.cause, Cause::Line | Cause::Shaper);
        let percent = 100.0 * self.measured_bit_per_s / self.binding.bit_per_s;
        hard && percent > 100.0 + ROUNDING_PERCENT
    }
}

impl fmt::Display for Explained {
    /// In words: "6.500 Mbit/s is 91.6 % of 7.094 Mbit/s (Reno-friendly CUBIC's law of loss)".
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

/// The unit of rates for people, of which the greatest is this many bit/s, and how many bit/s it is: below 1 Mbit/s it is kbit/s.
pub fn rate_unit(greatest: f64) -> (f64, &'static str) {
    match greatest != 0.0 && greatest.abs() < 1e6 {
        true => (1e3, "kbit/s"),
        false => (1e6, "Mbit/s"),
    }
}

/// A rate in bit/s for people: "7.094 Mbit/s", "50.312 kbit/s".
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

/// What a TCP receiver and a TCP sender add.
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
    let laws = loss::laws(conditions.congestion, loss, rtt_s).into_iter();
    let laws = laws.map(|(law, segments)| Limit::new(Cause::Loss(law), segments * segment));
    window.into_iter().chain(laws).collect()
}

impl Limit {
    fn new(cause: Cause, bit_per_s: f64) -> Self {
        Self { cause, bit_per_s }
    }
}

impl Cause {
    /// Whether it is the mean that a model expects, which one transfer can pass, and no limit.
    pub fn is_average(self) -> bool {
        matches!(self, Self::Loss(_))
    }

    /// In words: "line rate", "receiver's window", "CUBIC's law of loss".
    pub fn name(self) -> String {
        match self {
            Self::Line => "line rate".to_owned(),
            Self::Shaper => "shaper".to_owned(),
            Self::Window => "receiver's window".to_owned(),
            Self::Loss(law) => format!("{} loss model", law.whose()),
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
    fn a_plain_line_is_held_up_by_itself() {
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
    fn a_window_is_carried_once_a_round_trip() {
        let mut conditions = wan();
        conditions.window = Some("64KiB".parse().unwrap());
        let (cause, megabit) = binding(&conditions);
        assert_eq!(cause, Cause::Window);
        assert!((megabit - 26.2144).abs() < 1e-9);
        // No window holds datagrams up.
        assert_eq!(binding(&conditions.with_udp()).0, Cause::Line);
    }

    #[test]
    fn loss_holds_up_whom_its_law_says() {
        let mut conditions = wan();
        conditions.loss = Some("1%".parse().unwrap());
        let (cause, megabit) = binding(&conditions);
        assert_eq!(cause, Cause::Loss(LossLaw::RenoFriendlyCubic));
        // 12.247 segments of 1448 bytes in 20 ms.
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
    fn what_the_documents_measured_stands_beside_its_ceiling() {
        let mut conditions = gigabit();
        conditions.rate = "100mbit".parse().unwrap();
        let limits = GoodputLimits::of(&conditions).unwrap();
        // The best blast of "Experiment on Oct 10", in bytes a second.
        let blast = limits.explain(11_762_481.72 * 8.0);
        assert!((blast.percent - 99.949).abs() < 1e-3);
        assert!(!blast.is_impossible());
        // The iperf client of "bc10-router", which counts what it has buffered.
        assert!(limits.explain(94.4e6).is_impossible());
    }
}
