//! The tests that run now: one row for each, with counters that anybody may read while the test runs.
//!
//! Counters are relaxed atomics that the thread of a test publishes a few times a second, so that neither a packet nor a
//! message waits for a reader. There are no more rows than running tests, which the limits bound, and a row has a fixed
//! size.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use netio::tcp::TcpInfo;

use crate::lock;

/// The least time between two publications of the traffic of a test.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);
/// The number that is published in place of an unknown one.
const UNKNOWN: u64 = u64::MAX;

/// The traffic of a test since its start, as far as the far end knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestTraffic {
    /// The traffic that the far end received.
    pub up: DirectionTraffic,
    /// The traffic that the far end sent.
    pub down: DirectionTraffic,
    /// The latest round-trip time. For TCP it is the kernel's smoothed one; for UDP of iperf3's and of farwire's own
    /// protocol it is that of the test's TCP connection. `None` means that the far end does not know one.
    pub round_trip: Option<Duration>,
    /// The lost packets, in the direction in which the far end learns of them. `None` means in neither.
    pub loss: Option<PacketLoss>,
}

/// The traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTraffic {
    /// Datagrams, or TCP segments with payload as the kernel counts them.
    pub packets: u64,
    /// Payload bytes.
    pub bytes: u64,
}

/// Lost packets. For TCP they are segments that the far end sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketLoss {
    /// The number of lost packets.
    pub lost: u64,
    /// The number of packets among which they were lost.
    pub sent: u64,
}

/// A running test at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRow {
    /// The name of the test that users know.
    pub test: &'static str,
    /// The number of the test, which together with its name identifies it while the far end runs.
    pub number: u64,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The time since the test began.
    pub lasted: Duration,
    /// The traffic since then.
    pub traffic: TestTraffic,
}

/// All running tests at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestSnapshot {
    /// The running tests in the order in which they began; those of STAMP come last.
    pub rows: Vec<TestRow>,
    /// The number of tests that have ended since the far end started.
    pub ended: u64,
    /// The traffic of all tests since the far end started, without a round-trip time.
    pub total: TestTraffic,
}

/// The published traffic of one test.
#[derive(Debug)]
struct TestCounters {
    up: [AtomicU64; 2],
    down: [AtomicU64; 2],
    round_trip_ns: AtomicU64,
    loss: [AtomicU64; 2],
}

/// Publishes the traffic of one test.
#[derive(Clone, Debug)]
pub(crate) struct TrafficPublisher {
    counters: Arc<TestCounters>,
    /// The next publication.
    due: Instant,
}

/// The running tests of a far end.
#[derive(Debug, Default)]
pub(crate) struct RunningTests(Mutex<RunningState>);

#[derive(Debug, Default)]
struct RunningState {
    begun: u64,
    tests: BTreeMap<u64, RunningTest>,
    /// The sessions of STAMP, which its reflector states from time to time.
    sessions: Vec<TestRow>,
    ended: u64,
    /// The traffic of the tests that have ended.
    traffic_of_ended: TestTraffic,
}

#[derive(Debug)]
struct RunningTest {
    test: &'static str,
    peer: SocketAddr,
    began: Instant,
    counters: Arc<TestCounters>,
}

/// The row of a test. Dropping it removes the row, and adds the last published traffic to that of all ended tests.
#[derive(Debug)]
pub(crate) struct TestRowGuard {
    running: Arc<RunningTests>,
    number: u64,
    counters: Arc<TestCounters>,
}

impl TestTraffic {
    /// Returns the traffic of TCP connections with these states, whose payload bytes are `[received, sent]`. Segments
    /// sent again count as lost if the far end sends.
    pub(crate) fn of_tcp(infos: &[TcpInfo], bytes: [u64; 2]) -> Self {
        let sum = |count: fn(&TcpInfo) -> u32| {
            infos.iter().map(|info| u64::from(count(info))).sum::<u64>()
        };
        let sent = sum(|info| info.data_segs_out);
        let round_trips = infos.iter().map(|info| info.rtt);
        Self {
            up: DirectionTraffic {
                packets: sum(|info| info.data_segs_in),
                bytes: bytes[0],
            },
            down: DirectionTraffic {
                packets: sent,
                bytes: bytes[1],
            },
            // The kernel states 0 before the first round trip.
            round_trip: round_trips.max().filter(|time| !time.is_zero()),
            loss: (sent > 0).then(|| PacketLoss {
                lost: sum(|info| info.total_retrans),
                sent,
            }),
        }
    }

    /// Adds the packets, bytes and losses of another test. The round-trip time of several tests is unknown.
    fn add(&mut self, other: &Self) {
        self.up.add(other.up);
        self.down.add(other.down);
        self.round_trip = None;
        if let Some(PacketLoss { lost, sent }) = other.loss {
            let own = self.loss.get_or_insert_default();
            own.lost = own.lost.saturating_add(lost);
            own.sent = own.sent.saturating_add(sent);
        }
    }

    /// Returns the traffic since an earlier moment of the same test, or of all tests.
    pub fn since(&self, before: &Self) -> Self {
        let loss = |of: PacketLoss| {
            let before = before.loss.unwrap_or_default();
            PacketLoss {
                lost: of.lost.saturating_sub(before.lost),
                sent: of.sent.saturating_sub(before.sent),
            }
        };
        Self {
            up: self.up.since(before.up),
            down: self.down.since(before.down),
            round_trip: self.round_trip,
            loss: self.loss.map(loss),
        }
    }
}

impl DirectionTraffic {
    fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

impl PacketLoss {
    /// Returns the loss in percent, or `None` if nothing was sent.
    pub fn percent(self) -> Option<f64> {
        (self.sent > 0).then(|| 100.0 * self.lost as f64 / self.sent as f64)
    }
}

impl Default for TestCounters {
    fn default() -> Self {
        let unknown = || AtomicU64::new(UNKNOWN);
        Self {
            up: Default::default(),
            down: Default::default(),
            round_trip_ns: unknown(),
            loss: [unknown(), unknown()],
        }
    }
}

impl TestCounters {
    fn publish(&self, traffic: &TestTraffic) {
        let TestTraffic {
            up,
            down,
            round_trip,
            loss,
        } = traffic;
        let nanoseconds = round_trip.map(|time| u64::try_from(time.as_nanos()).unwrap_or(UNKNOWN));
        let loss = loss.map_or([UNKNOWN; 2], |loss| [loss.lost, loss.sent]);
        let pairs = [
            (&self.up, [up.packets, up.bytes]),
            (&self.down, [down.packets, down.bytes]),
            (&self.loss, loss),
        ];
        for (cells, values) in pairs {
            for (cell, value) in cells.iter().zip(values) {
                cell.store(value, Relaxed);
            }
        }
        self.round_trip_ns
            .store(nanoseconds.unwrap_or(UNKNOWN), Relaxed);
    }

    fn read(&self) -> TestTraffic {
        let pair = |cells: &[AtomicU64; 2]| [cells[0].load(Relaxed), cells[1].load(Relaxed)];
        let direction = |cells| {
            let [packets, bytes] = pair(cells);
            DirectionTraffic { packets, bytes }
        };
        let known = |value: u64| (value != UNKNOWN).then_some(value);
        let [lost, sent] = pair(&self.loss).map(known);
        TestTraffic {
            up: direction(&self.up),
            down: direction(&self.down),
            round_trip: known(self.round_trip_ns.load(Relaxed)).map(Duration::from_nanos),
            loss: lost.zip(sent).map(|(lost, sent)| PacketLoss { lost, sent }),
        }
    }
}

impl TrafficPublisher {
    /// Publishes what `traffic` returns, unless the last publication was a moment ago.
    pub(crate) fn publish(&mut self, traffic: impl FnOnce() -> TestTraffic) {
        let now = Instant::now();
        if now >= self.due {
            self.due = now + PUBLISH_INTERVAL;
            self.counters.publish(&traffic());
        }
    }

    /// Publishes the traffic of the whole test at its end.
    pub(crate) fn finish(&self, traffic: &TestTraffic) {
        self.counters.publish(traffic);
    }
}

impl RunningTests {
    /// Adds the row of a test that begins now.
    pub(crate) fn begin(self: &Arc<Self>, test: &'static str, peer: SocketAddr) -> TestRowGuard {
        let counters = Arc::<TestCounters>::default();
        let running = RunningTest {
            test,
            peer,
            began: Instant::now(),
            counters: Arc::clone(&counters),
        };
        let mut state = lock(&self.0);
        state.begun += 1;
        let number = state.begun;
        state.tests.insert(number, running);
        TestRowGuard {
            running: Arc::clone(self),
            number,
            counters,
        }
    }

    /// Replaces the rows of STAMP's sessions, and adds the traffic of those that ended since the last call.
    pub(crate) fn set_sessions(&self, rows: Vec<TestRow>, ended: &[TestTraffic]) {
        let mut state = lock(&self.0);
        state.sessions = rows;
        ended.iter().for_each(|traffic| state.end(traffic));
    }

    /// Returns all rows at this moment.
    pub(crate) fn snapshot(&self) -> TestSnapshot {
        let state = lock(&self.0);
        let row = |(number, of): (&u64, &RunningTest)| TestRow {
            test: of.test,
            number: *number,
            peer: of.peer,
            lasted: of.began.elapsed(),
            traffic: of.counters.read(),
        };
        let mut rows: Vec<TestRow> = state.tests.iter().map(row).collect();
        rows.extend(state.sessions.iter().cloned());
        let mut total = state.traffic_of_ended;
        rows.iter().for_each(|row| total.add(&row.traffic));
        TestSnapshot {
            rows,
            ended: state.ended,
            total,
        }
    }
}

impl RunningState {
    fn end(&mut self, traffic: &TestTraffic) {
        self.ended += 1;
        self.traffic_of_ended.add(traffic);
    }
}

impl TestRowGuard {
    /// Returns a publisher of the test's traffic.
    pub(crate) fn publisher(&self) -> TrafficPublisher {
        TrafficPublisher {
            counters: Arc::clone(&self.counters),
            due: Instant::now(),
        }
    }
}

impl Drop for TestRowGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.running.0);
        if let Some(ended) = state.tests.remove(&self.number) {
            state.end(&ended.counters.read());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(packets: u64, lost: Option<u64>) -> TestTraffic {
        let direction = |packets| DirectionTraffic {
            packets,
            bytes: packets * 100,
        };
        TestTraffic {
            up: direction(packets),
            down: direction(2 * packets),
            round_trip: Some(Duration::from_micros(packets)),
            loss: lost.map(|lost| PacketLoss {
                lost,
                sent: packets,
            }),
        }
    }

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn published_traffic_reads_back() {
        let counters = TestCounters::default();
        assert_eq!(counters.read(), TestTraffic::default());
        for traffic in [traffic(7, None), traffic(9, Some(2)), traffic(3, None)] {
            counters.publish(&traffic);
            assert_eq!(counters.read(), traffic);
        }
    }

    #[test]
    fn a_test_has_a_row_until_it_ends_and_counts_in_the_total_afterwards() {
        let running = Arc::<RunningTests>::default();
        let [first, second] =
            [("tcp", 1), ("http", 2)].map(|(test, port)| running.begin(test, peer(port)));
        let mut published = first.publisher();
        published.publish(|| traffic(10, Some(1)));
        // The next publication is not due.
        published.publish(|| traffic(99, None));
        let seen = running.snapshot();
        let tests: Vec<_> = seen
            .rows
            .iter()
            .map(|row| (row.test, row.number, row.peer))
            .collect();
        assert_eq!(tests, [("tcp", 1, peer(1)), ("http", 2, peer(2))]);
        assert_eq!(seen.rows[0].traffic, traffic(10, Some(1)));
        assert_eq!((seen.ended, seen.total.up.packets), (0, 10));
        published.finish(&traffic(30, Some(2)));
        drop((first, second));
        let seen = running.snapshot();
        assert_eq!((seen.rows.len(), seen.ended), (0, 2));
        let total = TestTraffic {
            round_trip: None,
            ..traffic(30, Some(2))
        };
        assert_eq!(seen.total, total);
    }

    #[test]
    fn sessions_replace_each_other_and_leave_their_traffic() {
        let running = RunningTests::default();
        let row = |number, packets| TestRow {
            test: "probe",
            number,
            peer: peer(9),
            lasted: Duration::ZERO,
            traffic: traffic(packets, Some(0)),
        };
        running.set_sessions(vec![row(1, 5), row(2, 7)], &[]);
        assert_eq!(running.snapshot().total.up.packets, 12);
        running.set_sessions(vec![row(2, 8)], &[traffic(6, Some(1))]);
        let seen = running.snapshot();
        assert_eq!((seen.rows.len(), seen.ended), (1, 1));
        assert_eq!(seen.total.up.packets, 14);
        assert_eq!(seen.total.loss, Some(PacketLoss { lost: 1, sent: 14 }));
    }

    #[test]
    fn traffic_since_a_moment_is_the_difference_and_never_negative() {
        let since = traffic(9, Some(3)).since(&traffic(4, Some(1)));
        assert_eq!((since.up.packets, since.down.bytes), (5, 1000));
        assert_eq!(since.loss, Some(PacketLoss { lost: 2, sent: 5 }));
        assert_eq!(since.loss.unwrap().percent(), Some(40.0));
        let since = traffic(4, None).since(&traffic(9, Some(1)));
        assert_eq!((since.up.packets, since.loss), (0, None));
        assert_eq!(PacketLoss::default().percent(), None);
    }

    #[test]
    fn segments_that_a_sending_far_end_repeats_are_lost() {
        let info = |data_segs_in, data_segs_out, total_retrans, rtt_us| TcpInfo {
            data_segs_in,
            data_segs_out,
            total_retrans,
            rtt: Duration::from_micros(rtt_us),
            ..TcpInfo::default()
        };
        let sends = TestTraffic::of_tcp(&[info(1, 40, 2, 300), info(1, 60, 3, 500)], [9, 100]);
        assert_eq!(
            sends.up,
            DirectionTraffic {
                packets: 2,
                bytes: 9
            }
        );
        assert_eq!((sends.down.packets, sends.down.bytes), (100, 100));
        assert_eq!(sends.round_trip, Some(Duration::from_micros(500)));
        assert_eq!(sends.loss, Some(PacketLoss { lost: 5, sent: 100 }));
        let receives = TestTraffic::of_tcp(&[info(40, 0, 0, 0)], [100, 0]);
        assert_eq!((receives.loss, receives.round_trip), (None, None));
    }
}
