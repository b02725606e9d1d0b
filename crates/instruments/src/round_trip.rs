//! Time-outs that follow the round-trip time of the path.
//!
//! Before anything has arrived, the path may be as long as [`FIRST_ANSWER`]. Then the measured round trip counts.

use std::os::fd::AsFd;
use std::time::Duration;

use model::Nanos;
use netio::tcp::TcpInfo;

/// The longest wait for the first sign of the far end. It is longer than a round trip of 20 s, which is 10 s in each
/// direction, with the first request repeated once or twice.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// Round trips below this do not extend a time-out, because every time-out has room for them.
const NEGLIGIBLE: Duration = Duration::from_millis(100);
/// The longest round trip that counts. A peer that answers late makes the round trip look longer, and must not make
/// this end wait for ever.
const LONGEST: Duration = Duration::from_secs(30);
/// The round trips that extend the time-out of a message: two until a new connection carries it, three for TCP's first
/// retransmission (RFC 6298, section 2: the time-out is three round trips then), and one in reserve.
const OF_A_MESSAGE: u32 = 6;
/// The round trips that extend the time-out of a probe: three for a connection with a handshake of TLS 1.2, and one in
/// reserve.
const OF_A_PROBE: u32 = 4;

/// The time after which a probe without an answer counts as lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossTimeout {
    stated: Option<Duration>,
    /// The time on a path whose round trips are short, unless a time is stated.
    usual: Duration,
    /// The least round trip so far.
    least: Option<Duration>,
}

/// Returns the smoothed round-trip time of a TCP connection, as its kernel has measured it. 0 means that it is not
/// known.
pub(crate) fn of(socket: impl AsFd) -> Duration {
    TcpInfo::of(socket).map_or(Duration::ZERO, |info| info.rtt)
}

/// Returns the time-out of a message, or of the silence of a peer, that takes `time` on a short path.
pub(crate) fn extended(time: Duration, round_trip: Duration) -> Duration {
    time + several(OF_A_MESSAGE, round_trip)
}

/// Returns `count` round trips in whole seconds, rounded up; 0 if they are negligible.
pub(crate) fn several(count: u32, round_trip: Duration) -> Duration {
    if round_trip < NEGLIGIBLE {
        return Duration::ZERO;
    }
    let all = count * round_trip.min(LONGEST);
    Duration::from_secs(all.as_secs() + u64::from(all.subsec_nanos() > 0))
}

/// Returns a round trip that was measured in milliseconds. Values that are no time are 0.
pub(crate) fn milliseconds(round_trip: f64) -> Duration {
    Duration::try_from_secs_f64(round_trip / 1e3).unwrap_or_default()
}

impl LossTimeout {
    /// Returns the time-out that the user stated, or else `usual`, which follows the round trips.
    pub(crate) fn new(stated: Option<Nanos>, usual: Duration) -> Self {
        Self {
            stated: stated.map(Duration::from),
            usual,
            least: None,
        }
    }

    /// Takes the round trip of an answer into account.
    pub(crate) fn add(&mut self, round_trip: Duration) {
        let least = self.least.map_or(round_trip, |least| least.min(round_trip));
        self.least = Some(least);
    }

    /// Notes that the first request had no answer within this time. The far end is then taken as absent and not as far
    /// away.
    pub(crate) fn give_up_first(&mut self) {
        self.least.get_or_insert(Duration::ZERO);
    }

    /// Returns the present time-out.
    pub(crate) fn time(&self) -> Duration {
        match (self.stated, self.least) {
            (Some(stated), _) => stated,
            (None, Some(least)) => self.usual + several(OF_A_PROBE, least),
            (None, None) => FIRST_ANSWER.max(self.usual),
        }
    }

    /// Returns until when answers are awaited to probes of which the first left at `first` and the last one at `last`.
    /// If there is no answer yet, the first probe has the time of a first answer and the last one the usual time.
    pub(crate) fn deadline(&self, first: Duration, last: Duration) -> Duration {
        match (self.stated, self.least) {
            (None, None) => (first + self.time()).max(last + self.usual),
            _ => last + self.time(),
        }
    }
}

impl From<Duration> for LossTimeout {
    /// Returns the time-out that the user stated.
    fn from(stated: Duration) -> Self {
        Self {
            stated: Some(stated),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_secs(3);

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_time_out_is_extended_by_round_trips_that_count_in_whole_seconds() {
        for (round_trip, extended_s) in [
            (0.0, 10),
            (0.099, 10),
            (0.1, 11),
            (0.6, 14),
            (2.6, 26),
            (20.0, 130),
            (3600.0, 190),
        ] {
            let extended = extended(seconds(10.0), seconds(round_trip));
            assert_eq!(
                extended.as_secs_f64(),
                f64::from(extended_s),
                "{round_trip}"
            );
        }
    }

    #[test]
    fn a_stated_time_out_does_not_follow_the_path() {
        let mut timeout = LossTimeout::new(Some(Nanos::from_millis(50)), USUAL);
        timeout.add(seconds(20.0));
        assert_eq!(timeout.time(), seconds(0.05));
        assert_eq!(timeout.deadline(seconds(0.0), seconds(7.0)), seconds(7.05));
    }

    #[test]
    fn the_usual_time_out_follows_the_least_round_trip() {
        let mut timeout = LossTimeout::new(None, USUAL);
        assert_eq!(timeout.time(), FIRST_ANSWER);
        for (round_trip, expected_s) in [(20.0, 83.0), (25.0, 83.0), (2.6, 14.0), (0.02, 3.0)] {
            timeout.add(seconds(round_trip));
            assert_eq!(timeout.time(), seconds(expected_s), "{round_trip}");
        }
    }

    #[test]
    fn without_an_answer_the_first_probe_has_more_time_than_the_others() {
        let mut timeout = LossTimeout::new(None, USUAL);
        assert_eq!(timeout.deadline(seconds(1.0), seconds(10.0)), seconds(31.0));
        assert_eq!(timeout.deadline(seconds(1.0), seconds(50.0)), seconds(53.0));
        timeout.give_up_first();
        assert_eq!(timeout.time(), USUAL);
        timeout.add(seconds(0.5));
        assert_eq!(timeout.time(), USUAL);
    }
}
