//! `/v1/tests` of `serve`: the rows of `--tui` as JSON. Counters begin with the far end, whatever keys reset on a screen.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use instruments::serve::{DirectionTraffic, TestRow, TestTraffic};
use serde::Serialize;

use crate::far_end::WatchedFarEnd;

/// The tests of a far end.
#[derive(Debug, Serialize)]
pub(super) struct TestsView {
    /// The tests that run now, in the order in which they began; those of STAMP come last.
    running: Vec<TestView>,
    /// The traffic of all tests since the far end started.
    total: TrafficView,
    /// The number of tests that have ended since then.
    ended: u64,
}

/// A running test.
#[derive(Debug, Serialize)]
struct TestView {
    /// The kind of the test; with `number`, it identifies the test.
    test: &'static str,
    number: u64,
    peer: SocketAddr,
    /// The name of the client, with `--names` and as soon as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_name: Option<String>,
    /// The time since the test began.
    running_s: f64,
    #[serde(flatten)]
    traffic: TrafficView,
    /// The latest round-trip time; null if the far end does not know one.
    rtt_ms: Option<f64>,
}

/// Counts in both directions.
#[derive(Debug, Serialize)]
struct TrafficView {
    up: DirectionView,
    down: DirectionView,
    /// Lost packets; null if the far end does not learn of losses.
    lost_packets: Option<u64>,
    /// Lost packets in percent of those sent; null if none was sent.
    lost_percent: Option<f64>,
}

#[derive(Debug, Serialize)]
struct DirectionView {
    packets: u64,
    bytes: u64,
}

/// Returns the tests as JSON.
pub(super) async fn list(State(far_end): State<WatchedFarEnd>) -> Json<TestsView> {
    Json(view(&far_end))
}

fn view(far_end: &WatchedFarEnd) -> TestsView {
    let seen = far_end.tests();
    let row = |row: &TestRow| TestView {
        test: row.test,
        number: row.number,
        peer: row.peer,
        peer_name: far_end.name_of(row.peer),
        running_s: row.lasted.as_secs_f64(),
        traffic: traffic(&row.traffic),
        rtt_ms: row.traffic.round_trip.map(|time| time.as_secs_f64() * 1e3),
    };
    TestsView {
        running: seen.rows.iter().map(row).collect(),
        total: traffic(&seen.total),
        ended: seen.ended,
    }
}

fn traffic(of: &TestTraffic) -> TrafficView {
    let direction = |of: DirectionTraffic| DirectionView {
        packets: of.packets,
        bytes: of.bytes,
    };
    TrafficView {
        up: direction(of.up),
        down: direction(of.down),
        lost_packets: of.loss.map(|loss| loss.lost),
        lost_percent: of.loss.and_then(|loss| loss.percent()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far_end::tests::row;
    use instruments::serve::{Tally, TestSnapshot};
    use serde_json::json;

    #[test]
    fn every_test_is_an_object_with_its_traffic() {
        let snapshot = || {
            let silent = TestRow {
                traffic: TestTraffic::default(),
                ..row("probe", 1, 0)
            };
            let rows = vec![row("transfer", 1, 10_000), silent];
            TestSnapshot {
                ended: 3,
                total: rows[0].traffic,
                rows,
            }
        };
        let far_end = WatchedFarEnd::with(snapshot, Tally::default);
        let seen = serde_json::to_value(view(&far_end)).unwrap();
        let traffic = json!({
            "up": { "packets": 10, "bytes": 10_000 },
            "down": { "packets": 20, "bytes": 20_000 },
            "lost_packets": 1,
            "lost_percent": 10.0,
        });
        assert_eq!((&seen["ended"], &seen["total"]), (&json!(3), &traffic));
        let mut transfer = json!({
            "test": "transfer",
            "number": 1,
            "peer": "192.0.2.1:40000",
            "running_s": 2.0,
            "rtt_ms": 1.5,
        });
        for (key, value) in traffic.as_object().unwrap() {
            transfer[key] = value.clone();
        }
        assert_eq!(seen["running"][0], transfer);
        let probe = &seen["running"][1];
        for key in ["rtt_ms", "lost_packets", "lost_percent"] {
            assert!(probe[key].is_null(), "{probe}");
        }
    }
}
