//! How well a sender kept to its schedule.

use hdrhistogram::Histogram;
use model::Nanos;

use super::schedule::Departure;

/// A train that left later than this after its time counts as late.
pub(crate) const LATE: Nanos = Nanos(50_000);

/// The departures of a stream, or of several.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    /// |gap - ideal gap| between one train and the next, in nanoseconds.
    gap_errors: Histogram<u64>,
    /// Trains that left.
    pub(crate) trains: u64,
    /// Those of them that left more than [`LATE`] after their time.
    pub(crate) late: u64,
    /// Datagrams of a full train.
    pub(crate) burst: u64,
    /// Time that the schedule gave up, being too far behind.
    pub(crate) given_up: Nanos,
}

impl Pacing {
    /// Of no departures yet, in trains of at most `burst` datagrams.
    pub(super) fn new(burst: u64) -> Self {
        let mut gap_errors = Histogram::new(3).expect("three digits can be had");
        gap_errors.auto(true);
        Self {
            gap_errors,
            trains: 0,
            late: 0,
            burst,
            given_up: Nanos::ZERO,
        }
    }

    pub(super) fn add(&mut self, departure: Departure) {
        self.trains += 1;
        self.late += u64::from(departure.late > LATE);
        self.given_up += departure.given_up;
        if let Some(error) = departure.gap_error {
            // Only a gap of more than 2^63 ns is too large.
            let _ = self.gap_errors.record(error.0);
        }
    }

    /// What the share `quantile` (0 to 1) of all gaps was off the ideal one at most; absent without two departures.
    pub(crate) fn gap_error(&self, quantile: f64) -> Option<Nanos> {
        let known = !self.gap_errors.is_empty();
        known.then(|| Nanos(self.gap_errors.value_at_quantile(quantile)))
    }
}
