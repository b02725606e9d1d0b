//! The distribution of departure errors.

use hdrhistogram::Histogram;
use model::Nanos;

/// Nanoseconds after the due time: their greatest value, and a histogram with 2 significant digits, whose
/// quantiles are too great by less than 1 %. A link without departures has no histogram, unless it was
/// prepared.
///
/// The histogram belongs to the packet path, so it is small and rarely grows. With 3 digits it takes
/// 64 KiB for departures that are 0.1 ms late and 128 KiB for those that are 20 ms late, and each packet
/// counts at another place in it. If many links are late for the first time simultaneously, the kernel
/// must then provide so much memory that all of them become later still.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness {
    histogram: Option<Histogram<u64>>,
    max: u64,
}

/// Later departures count as this late: 10 s.
const LATEST: Nanos = Nanos(10_000_000_000);

/// A histogram takes 18 KiB, and grows when a departure is later than this: 16 ms. It contains the
/// default limit of lateness.
const LATEST_WITHOUT_GROWTH: u64 = (1 << 24) - 1;

/// The significant digits of a histogram.
const DIGITS: u8 = 2;

impl Lateness {
    #[inline]
    pub(super) fn record(&mut self, error: Nanos, packets: u64) {
        let error = error.min(LATEST).0;
        self.max = self.max.max(error);
        let histogram = self.histogram.get_or_insert_with(Self::first);
        // The histogram grows up to the recorded value, which is bounded.
        let _ = histogram.record_n(error, packets);
    }

    /// Allocates room for every error, 28 KiB, if nothing was recorded before.
    pub(super) fn prepare(&mut self) {
        self.histogram.get_or_insert_with(|| empty(LATEST.0));
    }

    /// Returns the histogram of the first departure if nothing was prepared. It grows as needed.
    #[cold]
    fn first() -> Histogram<u64> {
        let mut histogram = empty(LATEST_WITHOUT_GROWTH);
        histogram.auto(true);
        histogram
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// Returns the value that this share of the packets does not exceed, or 0 without packets.
    pub(super) fn at_quantile(&self, share: f64) -> u64 {
        let histogram = self.histogram.as_ref();
        let value = histogram.map_or(0, |histogram| histogram.value_at_quantile(share));
        // The histogram returns the end of the value's bucket.
        value.min(self.max)
    }

    /// Returns the greatest value, or 0 without packets.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    #[cfg(test)]
    pub(super) fn has_histogram(&self) -> bool {
        self.histogram.is_some()
    }
}

/// Returns an empty histogram with room for errors up to `latest`, in nanoseconds.
fn empty(latest: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, latest, DIGITS)
        .expect("bounds and a precision that the library accepts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_too_great_by_less_than_one_percent_and_the_maximum_is_exact() {
        let mut lateness = Lateness::default();
        let mut error = 100;
        while error < 2 * LATEST.0 {
            let mut alone = Lateness::default();
            alone.record(Nanos(error), 1);
            let exact = error.min(LATEST.0);
            assert_eq!([alone.at_quantile(0.5), alone.max()], [exact; 2]);
            lateness.record(Nanos(error), 1);
            // A later packet does not limit the median.
            alone.record(LATEST, 1);
            let median = alone.at_quantile(0.5);
            assert!(median >= exact && median - exact <= exact / 100, "{error}");
            error += error / 7;
        }
        assert_eq!(lateness.max(), LATEST.0);
        assert_eq!(lateness.at_quantile(1.0), LATEST.0);
    }

    fn bytes(lateness: &Lateness) -> usize {
        let histogram = lateness.histogram.as_ref();
        histogram.map_or(0, |of| of.distinct_values() * size_of::<u64>())
    }

    #[test]
    fn a_prepared_histogram_records_every_error_without_growing() {
        let mut lateness = Lateness::default();
        lateness.prepare();
        for error in [0, 1_000, LATEST_WITHOUT_GROWTH + 1, 2 * LATEST.0] {
            lateness.record(Nanos(error), 1);
            assert_eq!(bytes(&lateness), 28 << 10);
        }
        assert_eq!(lateness.count(), 4);
    }

    #[test]
    fn a_histogram_does_not_grow_before_its_link_is_very_late() {
        let mut lateness = Lateness::default();
        for error in [0, 1, 100_000, 10_000_000, LATEST_WITHOUT_GROWTH] {
            lateness.record(Nanos(error), 3);
            assert_eq!(bytes(&lateness), 18 << 10);
        }
        lateness.record(Nanos::from_secs(60), 3);
        assert!(bytes(&lateness) < 32 << 10, "{}", bytes(&lateness));
        assert_eq!(lateness.count(), 18);
    }
}
