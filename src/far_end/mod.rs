//! A far end that serves, as people and programs see it: its running tests, its counts, and the names of its clients.

mod progress;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use instruments::serve::{FarEndServer, PeerNames, Tally, TestRow, TestSnapshot, TestTraffic};

pub(crate) use self::progress::ProgressLines;

/// A source of what a far end does.
#[derive(Clone)]
pub(crate) struct WatchedFarEnd {
    tests: Arc<dyn Fn() -> TestSnapshot + Send + Sync>,
    tally: Arc<dyn Fn() -> Tally + Send + Sync>,
    names: Option<Arc<dyn PeerNames>>,
}

/// The identity of a test while the far end runs.
pub(crate) type TestKey = (&'static str, u64);

/// The payload rates of tests between two moments, in bits per second: up and down.
#[derive(Debug, Default)]
pub(crate) struct TrafficRates {
    last: HashMap<TestKey, (Instant, TestTraffic)>,
}

impl WatchedFarEnd {
    /// Returns the source for `server`, whose clients have these names.
    pub(crate) fn of(server: &FarEndServer, names: Option<Arc<dyn PeerNames>>) -> Self {
        Self {
            tests: Arc::new(server.running_tests()),
            tally: Arc::new(server.counts()),
            names,
        }
    }

    /// Returns a source with the given tests and counts.
    #[cfg(test)]
    pub(crate) fn with(
        tests: impl Fn() -> TestSnapshot + Send + Sync + 'static,
        tally: impl Fn() -> Tally + Send + Sync + 'static,
    ) -> Self {
        Self {
            tests: Arc::new(tests),
            tally: Arc::new(tally),
            names: None,
        }
    }

    /// Returns the tests that run now.
    pub(crate) fn tests(&self) -> TestSnapshot {
        (self.tests)()
    }

    /// Returns the counts since the start.
    pub(crate) fn tally(&self) -> Tally {
        (self.tally)()
    }

    /// Returns the name of a client if it is known.
    pub(crate) fn name_of(&self, peer: SocketAddr) -> Option<String> {
        self.names.as_ref()?.name_of(peer.ip())
    }
}

/// Returns the identity of a test.
pub(crate) fn key(row: &TestRow) -> TestKey {
    (row.test, row.number)
}

impl TrafficRates {
    /// Returns the rates of a test since the last call, or since its start; `None` if no time has passed.
    pub(crate) fn of(&mut self, row: &TestRow, now: Instant) -> Option<[f64; 2]> {
        let last = self.last.insert(key(row), (now, row.traffic));
        let (lasted, since) = match last {
            Some((at, before)) => (
                now.saturating_duration_since(at),
                row.traffic.since(&before),
            ),
            None => (row.lasted, row.traffic),
        };
        let rate = |bytes: u64| bytes as f64 * 8.0 / lasted.as_secs_f64();
        (lasted > Duration::ZERO).then(|| [rate(since.up.bytes), rate(since.down.bytes)])
    }

    /// Forgets the tests that have ended.
    pub(crate) fn keep(&mut self, rows: &[TestRow]) {
        let running: HashSet<TestKey> = rows.iter().map(key).collect();
        self.last.retain(|key, _| running.contains(key));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use instruments::serve::{DirectionTraffic, PacketLoss};

    /// Returns a test that received this number of bytes in packets of 1,000 and sent twice as many.
    pub(crate) fn row(test: &'static str, number: u64, bytes: u64) -> TestRow {
        let direction = |bytes| DirectionTraffic {
            packets: bytes / 1_000,
            bytes,
        };
        TestRow {
            test,
            number,
            peer: ([192, 0, 2, 1], 40_000).into(),
            lasted: Duration::from_secs(2),
            traffic: TestTraffic {
                up: direction(bytes),
                down: direction(2 * bytes),
                round_trip: Some(Duration::from_micros(1_500)),
                loss: Some(PacketLoss {
                    lost: 1,
                    sent: bytes / 1_000,
                }),
            },
        }
    }

    #[test]
    fn a_rate_is_that_since_the_last_look_and_at_first_since_the_start() {
        let (mut rates, start) = (TrafficRates::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(rates.of(&row("tcp", 1, 1_000_000), at(0)), Some([4e6, 8e6]));
        assert_eq!(rates.of(&row("tcp", 1, 1_500_000), at(4)), Some([1e6, 2e6]));
        assert_eq!(rates.of(&row("tcp", 1, 1_500_000), at(4)), None);
        // Another test has its own rate.
        assert_eq!(rates.of(&row("udp", 1, 1_000_000), at(4)), Some([4e6, 8e6]));
        rates.keep(&[row("udp", 1, 0)]);
        assert_eq!(rates.last.len(), 1);
    }
}
