//! `/metrics` of `serve`: tests, bytes and refusals of the far end, for Prometheus. No label has
//! values from the traffic.

use std::collections::BTreeMap;
use std::fmt;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use instruments::serve::{RefusalCause, TESTS, Tally};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::Counter;
use record::Direction;

use super::far_end_tests;
use super::metrics::{BUILD, Family, Format, begin, sample};
use crate::far_end::WatchedFarEnd;

/// Returns the metrics and the running tests at their paths.
pub(super) fn router() -> Router<WatchedFarEnd> {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/v1/tests", get(far_end_tests::list))
}

async fn scrape(State(far_end): State<WatchedFarEnd>, headers: HeaderMap) -> Response {
    Format::negotiate(&headers).answer(FarEndCollector(far_end.tally()))
}

#[derive(Debug)]
struct FarEndCollector(Tally);

impl Collector for FarEndCollector {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let Tally {
            tests,
            bytes,
            refusals,
        } = &self.0;
        begin(&mut page, BUILD)?.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        // Counts of 0 are listed too, because a rate needs an initial value.
        let known = TESTS.iter().flat_map(|(protocol, test)| {
            [false, true].map(|has_failed| ((*protocol, *test, has_failed), 0))
        });
        let mut metric = begin(&mut page, TESTS_ENDED)?;
        for ((protocol, test, has_failed), count) in with_zeros(known, tests) {
            let result = if has_failed { "failed" } else { "done" };
            let labels = [("protocol", protocol), ("test", test), ("result", result)];
            sample(&mut metric, Counter, &labels, count as f64)?;
        }
        let protocols: BTreeMap<&str, ()> = TESTS.iter().map(|(of, _)| (*of, ())).collect();
        let mut metric = begin(&mut page, BYTES)?;
        for ((protocol, direction), count) in bytes {
            let direction = match direction {
                Direction::Up => "up",
                Direction::Down => "down",
            };
            let labels = [("protocol", *protocol), ("direction", direction)];
            sample(&mut metric, Counter, &labels, *count)?;
        }
        let known = protocols
            .keys()
            .flat_map(|protocol| RefusalCause::ALL.map(|cause| ((*protocol, cause), 0)));
        let mut metric = begin(&mut page, REFUSALS)?;
        for ((protocol, cause), count) in with_zeros(known, refusals) {
            let labels = [("protocol", protocol), ("cause", cause.name())];
            sample(&mut metric, Counter, &labels, count as f64)?;
        }
        Ok(())
    }
}

/// Adds zeros for the known keys without a count.
fn with_zeros<K: Ord + Copy>(
    known: impl Iterator<Item = (K, u64)>,
    counts: &BTreeMap<K, u64>,
) -> BTreeMap<K, u64> {
    let counts = counts.iter().map(|(key, count)| (*key, *count));
    known.chain(counts).collect()
}

const TESTS_ENDED: Family = (
    "farwire_tests",
    Counter,
    "Finished tests of the far end, by protocol, by test as the log names it, and by outcome (done or failed).",
);
const BYTES: Family = (
    "farwire_test_bytes",
    Counter,
    "Payload bytes of tests that the far end received (up) or sent (down). Capacity and STAMP tests report no bytes.",
);
const REFUSALS: Family = (
    "farwire_refusals",
    Counter,
    "Refused connections and tests: the server is full (busy), the address is outside of --allow, the test exceeds a limit \
     (over-limit), or the host does not have or allow the congestion control.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_refusal_is_listed_before_it_happens_and_counted_then() {
        let mut tally = Tally::default();
        tally.refusals.insert(("http", RefusalCause::Busy), 3);
        tally.tests.insert(("iperf3", "tcp", false), 2);
        tally.bytes.insert(("iperf3", Direction::Up), 1e6);
        let page = Format::OpenMetrics.text(FarEndCollector(tally));
        for line in [
            r#"farwire_refusals_total{protocol="http",cause="busy"} 3"#,
            r#"farwire_refusals_total{protocol="stamp",cause="outside-allow"} 0"#,
            r#"farwire_tests_total{protocol="iperf3",test="tcp",result="done"} 2"#,
            r#"farwire_tests_total{protocol="http",test="http",result="failed"} 0"#,
            r#"farwire_test_bytes_total{protocol="iperf3",direction="up"} 1000000"#,
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }
}
