//! Counts of the far end's tests, their bytes and refusals. Repeated refusals are logged together.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use record::{Direction, Measurement, Metric};

use super::Log;
use super::log::Refusal;
use crate::lock;

/// After a refusal is logged, further refusals of the same protocol and cause are counted for this long and then logged
/// as one line.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts since the start, for `--metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The number of tests that ended, by protocol, by the test as its log entry names it, and by whether it failed.
    pub tests: BTreeMap<(&'static str, &'static str, bool), u64>,
    /// Payload bytes of these tests that the far end itself received (up) or sent (down), by protocol. The tests of
    /// `capacity` and `stamp` count packets and no bytes.
    pub bytes: BTreeMap<(&'static str, Direction), f64>,
    /// The number of refused connections and tests, by protocol and cause.
    pub refusals: BTreeMap<(&'static str, RefusalCause), u64>,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalCause {
    /// All places are taken, or all that one client may have.
    Busy,
    /// The client's address is outside of `--allow`.
    OutsideAllow,
    /// The test asked for more than any test may have.
    OverLimit,
    /// The test asked for a congestion control that it may not have.
    Congestion,
}

/// The counts, and the refusals that are not yet in the log.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<TallyState>);

#[derive(Debug, Default)]
struct TallyState {
    tally: Tally,
    unlogged: BTreeMap<(&'static str, RefusalCause), UnloggedRefusals>,
}

/// The refusals since the last one that was logged.
#[derive(Debug)]
struct UnloggedRefusals {
    logged: Instant,
    count: u64,
    /// The client and the reason of the latest refusal.
    last: Option<(SocketAddr, String)>,
}

impl RefusalCause {
    /// All causes.
    pub const ALL: [Self; 4] = [
        Self::Busy,
        Self::OutsideAllow,
        Self::OverLimit,
        Self::Congestion,
    ];

    /// Returns the cause as one word: a label of the metrics, and a value in the JSON log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::OutsideAllow => "outside-allow",
            Self::OverLimit => "over-limit",
            Self::Congestion => "congestion-control",
        }
    }
}

/// The protocol of each test, and the name of the test that users know.
pub const TESTS: [(&str, &str); 8] = [
    ("http", "http"),
    ("messages", "pingpong"),
    ("messages", "blast"),
    ("messages", "transfer"),
    ("iperf3", "tcp"),
    ("iperf3", "udp"),
    ("capacity", "capacity"),
    ("stamp", "probe"),
];

/// Returns the protocol of a test. A name that is not a test's is the protocol itself.
fn protocol_of(test: &'static str) -> &'static str {
    let found = TESTS.iter().find(|(_, known)| *known == test);
    found.map_or(test, |(protocol, _)| protocol)
}

impl Counts {
    /// Counts a test that ended.
    pub(super) fn test(&self, test: &'static str, measurement: &Measurement) {
        let protocol = protocol_of(test);
        let tally = &mut lock(&self.0).tally;
        let ended = (protocol, test, measurement.failure.is_some());
        *tally.tests.entry(ended).or_default() += 1;
        for figure in &measurement.figures {
            let direction = match (figure.metric, figure.direction) {
                (Metric::ReceivedBytes, Some(Direction::Up)) => Direction::Up,
                (Metric::SentBytes, Some(Direction::Down)) => Direction::Down,
                _ => continue,
            };
            if figure.stream.is_none() {
                *tally.bytes.entry((protocol, direction)).or_default() += figure.value;
            }
        }
    }

    /// Counts a refusal, and logs it unless one of the same protocol and cause was logged a short time before.
    pub(super) fn refusal(
        &self,
        log: &Log,
        test: &'static str,
        peer: SocketAddr,
        (cause, why): (RefusalCause, &dyn fmt::Display),
    ) {
        let protocol = protocol_of(test);
        let counted = &mut *lock(&self.0);
        let key = (protocol, cause);
        *counted.tally.refusals.entry(key).or_default() += 1;
        let now = Instant::now();
        let is_new = !counted.unlogged.contains_key(&key);
        let unlogged = counted.unlogged.entry(key).or_insert(UnloggedRefusals {
            logged: now,
            count: 0,
            last: None,
        });
        unlogged.count += 1;
        unlogged.last = Some((peer, why.to_string()));
        if is_new {
            unlogged.log(log, key);
        }
    }

    /// Logs refusals that were only counted, if the last entry is at least [`LOG_INTERVAL`] ago, or at the end in any
    /// case.
    pub(super) fn log_refusals(&self, log: &Log, is_end: bool) {
        let counted = &mut *lock(&self.0);
        for (key, unlogged) in &mut counted.unlogged {
            if is_end || unlogged.logged.elapsed() >= LOG_INTERVAL {
                unlogged.log(log, *key);
            }
        }
        // The next refusal of this protocol and cause is logged individually again.
        let is_recent = |of: &UnloggedRefusals| of.logged.elapsed() < LOG_INTERVAL;
        counted.unlogged.retain(|_, unlogged| is_recent(unlogged));
    }

    pub(super) fn tally(&self) -> Tally {
        lock(&self.0).tally.clone()
    }
}

impl UnloggedRefusals {
    fn log(&mut self, log: &Log, (protocol, cause): (&'static str, RefusalCause)) {
        let Some((peer, why)) = self.last.take() else {
            return;
        };
        log.refusal(&Refusal {
            protocol,
            peer,
            cause: cause.name(),
            why: &why,
            count: self.count,
        });
        (self.logged, self.count) = (Instant::now(), 0);
    }
}

#[cfg(test)]
mod tests {
    use record::{Figure, Statistic};

    use super::*;

    #[test]
    fn refusals_are_counted_by_protocol_and_cause_and_logged_together() {
        let (counts, log) = (Counts::default(), Log::default());
        let peer = "192.0.2.1:9".parse().unwrap();
        for _ in 0..1_000 {
            counts.refusal(&log, "tcp", peer, (RefusalCause::Busy, &"busy"));
        }
        counts.refusal(
            &log,
            "http",
            peer,
            (RefusalCause::OutsideAllow, &"not here"),
        );
        let refusals = counts.tally().refusals;
        assert_eq!(refusals[&("iperf3", RefusalCause::Busy)], 1_000);
        assert_eq!(refusals[&("http", RefusalCause::OutsideAllow)], 1);
        let left = |counts: &Counts| {
            let counted = lock(&counts.0);
            counted.unlogged.values().map(|of| of.count).sum::<u64>()
        };
        assert_eq!(left(&counts), 999);
        counts.log_refusals(&log, true);
        assert_eq!(left(&counts), 0);
    }

    #[test]
    fn bytes_are_counted_by_the_far_end_itself() {
        let counts = Counts::default();
        let bytes =
            |metric, direction| Figure::new(metric, Statistic::Total, 7.0).toward(direction);
        let measurement = Measurement {
            figures: vec![
                bytes(Metric::SentBytes, Direction::Up),
                bytes(Metric::ReceivedBytes, Direction::Up),
                bytes(Metric::SentBytes, Direction::Down),
            ],
            ..Measurement::default()
        };
        counts.test("udp", &measurement);
        counts.test("udp", &measurement);
        let tally = counts.tally();
        assert_eq!(tally.tests[&("iperf3", "udp", false)], 2);
        for direction in [Direction::Up, Direction::Down] {
            assert_eq!(tally.bytes[&("iperf3", direction)], 14.0);
        }
    }
}
