//! Compares the statistics with those of NumPy and SciPy in tests/fixtures/statistics.json, which
//! scripts/statistics_fixtures.py wrote.

use serde::Deserialize;

use super::hodges_lehmann::{Shift, ShiftEstimate};
use super::mann_whitney::{self, AT_95};
use super::{sample_summary::SampleSummary, steady};

#[derive(Deserialize)]
struct Fixtures {
    summaries: Vec<SummaryFixture>,
    ranks: Vec<RankFixture>,
    shifts: Vec<ShiftFixture>,
    warm_ups: Vec<WarmUpFixture>,
}

#[derive(Deserialize)]
struct SummaryFixture {
    values: Vec<f64>,
    mean: f64,
    sd: f64,
    interval: [f64; 2],
    shares: Vec<f64>,
    quantiles: Vec<f64>,
    fences: [f64; 2],
}

#[derive(Deserialize)]
struct RankFixture {
    m: usize,
    n: usize,
    rank: usize,
}

#[derive(Deserialize)]
struct ShiftFixture {
    reference: Vec<f64>,
    sample: Vec<f64>,
    absolute: f64,
    absolute_interval: [f64; 2],
    percent: f64,
    percent_interval: [f64; 2],
}

#[derive(Deserialize)]
struct WarmUpFixture {
    values: Vec<f64>,
    cut: usize,
}

fn fixtures() -> Fixtures {
    serde_json::from_str(include_str!("../../../tests/fixtures/statistics.json")).unwrap()
}

/// Asserts equality within 10^-9 of the number, or of 1 if the number is smaller.
#[track_caller]
fn assert_close(found: f64, expected: f64) {
    let apart = (found - expected).abs();
    assert!(
        apart <= 1e-9 * expected.abs().max(1.0),
        "{found}: {expected}"
    );
}

#[track_caller]
fn assert_all_close(found: [f64; 2], expected: [f64; 2]) {
    assert_close(found[0], expected[0]);
    assert_close(found[1], expected[1]);
}

#[test]
fn summaries_equal_those_of_numpy_and_scipy() {
    for fixture in fixtures().summaries {
        let summary = SampleSummary::of(&fixture.values).unwrap();
        assert_close(summary.mean, fixture.mean);
        assert_close(summary.sd.unwrap(), fixture.sd);
        assert_all_close(summary.interval.unwrap(), fixture.interval);
        for (share, expected) in fixture.shares.iter().zip(fixture.quantiles) {
            assert_close(summary.quantile(*share), expected);
        }
        assert_all_close(summary.fences(), fixture.fences);
    }
}

#[test]
fn ranks_equal_those_of_scipys_mann_whitney_test() {
    for RankFixture { m, n, rank } in fixtures().ranks {
        assert_eq!(
            mann_whitney::interval_rank(m, n, AT_95),
            Some(rank),
            "{m} {n}"
        );
        assert_eq!(
            mann_whitney::interval_rank(n, m, AT_95),
            Some(rank),
            "{n} {m}"
        );
    }
}

#[test]
fn shifts_equal_those_of_all_pairs() {
    let check = |found: ShiftEstimate, value, interval| {
        assert_close(found.value, value);
        assert_all_close(found.interval.unwrap(), interval);
    };
    for fixture in fixtures().shifts {
        let shift = Shift::of(&fixture.reference, &fixture.sample).unwrap();
        check(shift.absolute, fixture.absolute, fixture.absolute_interval);
        let percent = shift.percent.unwrap();
        check(percent, fixture.percent, fixture.percent_interval);
    }
}

#[test]
fn warm_ups_equal_those_of_mser_5() {
    for fixture in fixtures().warm_ups {
        let found = steady::warm_up(&fixture.values).unwrap();
        assert_eq!(found.values, fixture.cut);
    }
}
