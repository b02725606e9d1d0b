//! Decides whether a sender kept the pace that was requested.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Direction;

/// Largest accepted shortfall as a share of the schedule. On a machine that keeps up there is none, and figures under 1
/// % less load than requested are those of another experiment.
const MOST_MISSING: f64 = 0.01;
/// Largest accepted shortfall in packets, which matters for short schedules: at the moment of evaluation, up to one
/// packet may be due but not sent.
const ONE_PACKET: f64 = 1.0;

/// How closely a sender kept its requested schedule, in one direction or for round trips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// The direction; absent for round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The unit of both rates.
    pub unit: PaceUnit,
    /// The requested rate over all streams.
    pub asked_per_s: f64,
    /// The rate at which it sent.
    pub sent_per_s: f64,
    /// Number of packets or requests that were scheduled in the time but not sent; negative if more were sent.
    pub missing: f64,
    /// Seconds by which the sender was behind its schedule at the end; negative if it was ahead.
    pub behind_s: f64,
}

/// The unit that a schedule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaceUnit {
    /// Payload bits.
    Bits,
    /// Packets.
    Packets,
    /// Requests.
    Requests,
}

impl Pace {
    /// Returns the pace of a sender that was to send `asked` payload bits per second, and sent `bytes` bytes in
    /// `seconds` seconds in packets of `packet` bytes. `None` if one of the three values that divide is 0.
    pub fn of_bits(
        direction: Option<Direction>,
        asked: f64,
        bytes: u64,
        seconds: f64,
        packet: u64,
    ) -> Option<Self> {
        let bits = lossy(bytes) * 8.0;
        (asked > 0.0 && seconds > 0.0 && packet > 0).then(|| Self {
            direction,
            unit: PaceUnit::Bits,
            asked_per_s: asked,
            sent_per_s: bits / seconds,
            missing: (asked * seconds - bits) / (8.0 * lossy(packet)),
            behind_s: seconds - bits / asked,
        })
    }

    /// Returns the pace of a sender that was to send one packet or request per interval, the first immediately, and
    /// sent `sent` of them, the last at `last_s` seconds. `None` for fewer than two packets.
    pub fn of_interval(unit: PaceUnit, interval_s: f64, sent: u64, last_s: f64) -> Option<Self> {
        let gaps = lossy(sent.checked_sub(1).filter(|gaps| *gaps > 0)?);
        (interval_s > 0.0 && last_s > 0.0).then(|| Self {
            direction: None,
            unit,
            asked_per_s: 1.0 / interval_s,
            sent_per_s: gaps / last_s,
            missing: last_s / interval_s - gaps,
            behind_s: last_s - gaps * interval_s,
        })
    }

    /// Returns a message if the sender fell short of its schedule by more than 1 % and by more than one packet. A
    /// sender that is behind by no more than `allowed` did not fall short.
    pub fn shortfall(&self, allowed: Duration) -> Option<String> {
        let enough = self.asked_per_s * (1.0 - MOST_MISSING);
        let is_behind = self.behind_s > allowed.as_secs_f64();
        if self.sent_per_s >= enough || self.missing <= ONE_PACKET || !is_behind {
            return None;
        }
        let (by, unit) = self.scale();
        let way = self
            .direction
            .map(Direction::name)
            .map_or_else(String::new, |way| format!(" {way}"));
        Some(format!(
            "the sender fell short of its schedule: it sent {} of the requested {} {unit}{way}",
            shown(self.sent_per_s / by),
            shown(self.asked_per_s / by)
        ))
    }

    /// Returns the divisor and the unit of its rates for people.
    fn scale(&self) -> (f64, &'static str) {
        match self.unit {
            PaceUnit::Bits if self.asked_per_s >= 1e6 => (1e6, "Mbit/s"),
            PaceUnit::Bits => (1e3, "kbit/s"),
            PaceUnit::Packets => (1.0, "packets/s"),
            PaceUnit::Requests => (1.0, "requests/s"),
        }
    }
}

/// Formats three significant digits, so that a difference of 1 % is visible.
fn shown(value: f64) -> String {
    let places = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
fn lossy(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a sender that was to send 200 Mbit/s for two seconds, which is 40,000 datagrams of 1,250 bytes, and sent
    /// this many.
    fn sent(datagrams: u64) -> Option<String> {
        let pace = Pace::of_bits(Some(Direction::Up), 2e8, datagrams * 1250, 2.0, 1250);
        pace.unwrap().shortfall(Duration::from_millis(1))
    }

    #[test]
    fn a_sender_that_lacks_more_than_a_hundredth_of_its_schedule_fell_short() {
        assert_eq!(
            sent(11_496).unwrap(),
            "the sender fell short of its schedule: it sent 57.5 of the requested 200 Mbit/s up"
        );
        assert_eq!(sent(39_600), None);
        assert!(sent(39_500).is_some());
        assert_eq!(sent(41_000), None);
    }

    #[test]
    fn a_sender_that_lacks_one_packet_at_most_kept_its_schedule() {
        // The schedule has 3.125 datagrams: 100 kbit/s for a quarter of a second in datagrams of 1,000 bytes.
        let slow = |datagrams: u64| Pace::of_bits(None, 1e5, datagrams * 1000, 0.25, 1000).unwrap();
        let fell_short = |datagrams| slow(datagrams).shortfall(Duration::from_millis(1));
        assert_eq!(fell_short(3), None);
        let cause = fell_short(2).unwrap();
        assert!(
            cause.ends_with("it sent 64.0 of the requested 100 kbit/s"),
            "{cause}"
        );
        assert_eq!(Pace::of_bits(None, 1e5, 1000, 0.0, 1000), None);
    }

    #[test]
    fn a_sender_with_an_interval_is_judged_by_its_last_packet() {
        let sent = |sent, last_s| {
            let pace = Pace::of_interval(PaceUnit::Requests, 0.02, sent, last_s);
            pace.and_then(|pace| pace.shortfall(Duration::from_millis(1)))
        };
        // Of 100 requests, one per 20 ms, the last is due after 1.98 s.
        assert_eq!(sent(100, 1.98), None);
        assert_eq!(sent(100, 1.995), None);
        assert_eq!(
            sent(100, 2.2).unwrap(),
            "the sender fell short of its schedule: it sent 45.0 of the requested 50.0 requests/s"
        );
        // The shortfall is more than 1 % but less than one packet.
        assert_eq!(sent(10, 0.195), None);
        assert_eq!(sent(1, 5.0), None);
    }

    #[test]
    fn whoever_lets_packets_be_late_lets_the_sender_be_behind_as_much() {
        // The sender is 220 ms behind.
        let pace = Pace::of_interval(PaceUnit::Requests, 0.02, 100, 2.2).unwrap();
        let fell_short = |ms| pace.shortfall(Duration::from_millis(ms)).is_some();
        assert!(fell_short(1) && fell_short(219));
        assert!(!fell_short(221));
    }

    #[test]
    fn a_pace_survives_json() {
        let pace = Pace::of_interval(PaceUnit::Packets, 0.02, 100, 2.0).unwrap();
        let text = serde_json::to_string(&pace).unwrap();
        assert_eq!(serde_json::from_str::<Pace>(&text).unwrap(), pace);
    }
}
