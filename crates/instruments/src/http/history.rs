//! The course of a download: the variation of its goodput from second to second, its stalls, and its rate at the end.

use std::collections::VecDeque;
use std::iter;

use record::Statistic::{Max, Mean};
use record::metric_table::{MetricRow, MetricTable};
use record::{Figure, Metric};
use stats::t_interval;

use crate::measured::figures;

/// The least number of whole seconds that can show how a goodput varies.
const FEWEST_SECONDS: usize = 10;
/// The number of newest samples that the rate in wget's progress bar uses (`DLSPEED_HISTORY_SIZE` in src/progress.c of
/// GNU Wget 1.x).
const SAMPLES: usize = 20;
/// The least duration of such a sample in seconds (`DLSPEED_SAMPLE_MIN`). All samples last three seconds, or longer
/// with rare reads.
const SAMPLE_S: f64 = 0.15;

/// Returns the metrics of a download's course.
pub(super) fn metrics() -> MetricTable {
    MetricTable::new([
        MetricRow::mean(Metric::GoodputVariationPercent),
        MetricRow::mean(Metric::FinalGoodputBitPerS),
        MetricRow::new(Metric::LongestStallS, &[Max]),
    ])
}

/// The course of a download. All times are seconds since the request and never decrease.
#[derive(Debug, Default)]
pub(super) struct DownloadHistory {
    /// Payload bytes of each second, up to that of the last read.
    seconds: Vec<u64>,
    /// Time of the last payload, or `None` before the first.
    last_s: Option<f64>,
    /// The longest time between two reads of payload.
    longest_stall_s: f64,
    /// Duration in seconds and bytes of wget's newest samples.
    samples: VecDeque<(f64, u64)>,
    /// Start and bytes of the sample that is not yet long enough.
    recent: (f64, u64),
}

impl DownloadHistory {
    /// Adds a read of `bytes` of payload at `at_s`.
    pub(super) fn add(&mut self, at_s: f64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        while at_s >= self.seconds.len() as f64 {
            self.seconds.push(0);
        }
        if let Some(second) = self.seconds.last_mut() {
            *second += bytes;
        }
        let last_s = self.last_s.replace(at_s);
        self.longest_stall_s = self.longest_stall_s.max(at_s - last_s.unwrap_or(at_s));
        if last_s.is_none() {
            self.recent.0 = at_s;
        }
        self.sample(at_s, bytes);
    }

    /// Updates the samples as `update_speed_ring` of wget does. In addition, wget discards all samples after 5 s
    /// without payload.
    fn sample(&mut self, at_s: f64, bytes: u64) {
        let (since_s, earlier) = self.recent;
        self.recent.1 = earlier + bytes;
        if at_s - since_s < SAMPLE_S {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((at_s - since_s, earlier + bytes));
        self.recent = (at_s, 0);
    }

    /// Returns the figures of a download that ended at `end_s`.
    pub(super) fn figures(&self, end_s: f64) -> impl Iterator<Item = Figure> {
        let stall_s = |last_s: f64| self.longest_stall_s.max(end_s - last_s);
        figures(
            None,
            [
                (Metric::GoodputVariationPercent, Mean, self.variation(end_s)),
                (Metric::LongestStallS, Max, self.last_s.map(stall_s)),
                (Metric::FinalGoodputBitPerS, Mean, self.final_rate(end_s)),
            ],
        )
    }

    fn variation(&self, end_s: f64) -> Option<f64> {
        let bytes = self.seconds.iter().copied().chain(iter::repeat(0));
        let whole: Vec<f64> = (1_u32..)
            .zip(bytes)
            .take_while(|(end, _)| f64::from(*end) <= end_s)
            .map(|(_, bytes)| bytes as f64)
            .collect();
        let (mean, sd) = (t_interval::mean(&whole)?, t_interval::sample_sd(&whole)?);
        (whole.len() >= FEWEST_SECONDS && mean > 0.0).then(|| 100.0 * sd / mean)
    }

    /// Returns the rate that `create_image` of wget shows, or `None` before the first sample.
    fn final_rate(&self, end_s: f64) -> Option<f64> {
        let (since_s, bytes) = self.recent;
        let seconds: f64 = self.samples.iter().map(|(seconds, _)| seconds).sum();
        let sampled: u64 = self.samples.iter().map(|(_, bytes)| bytes).sum();
        let rate = (sampled + bytes) as f64 * 8.0 / (seconds + end_s - since_s);
        (!self.samples.is_empty()).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the history of these reads, each a time and a number of bytes.
    fn of(reads: impl IntoIterator<Item = (f64, u64)>) -> DownloadHistory {
        let mut history = DownloadHistory::default();
        for (at_s, bytes) in reads {
            history.add(at_s, bytes);
        }
        history
    }

    /// Returns the history of reads of 100 bytes, 64 times a second for ten seconds, and of 50 bytes each after
    /// `slower_s`.
    fn slower_after(slower_s: f64) -> DownloadHistory {
        let at_s = |read: u32| f64::from(read) / 64.0;
        let bytes = |at_s| if at_s > slower_s { 50 } else { 100 };
        of((0..=640).map(|read| (at_s(read), bytes(at_s(read)))))
    }

    fn value(history: &DownloadHistory, end_s: f64, metric: Metric) -> Option<f64> {
        let mut figures = history.figures(end_s);
        let found = figures.find(|figure| figure.metric == metric);
        found.map(|figure| figure.value)
    }

    #[test]
    fn the_variation_of_goodput_is_that_of_its_complete_seconds() {
        let variation = |history: &DownloadHistory, end_s| {
            value(history, end_s, Metric::GoodputVariationPercent)
        };
        // The seconds alternate between 1 and 3: the mean is 2, and the sample standard deviation is the root of 10/9.
        let mut uneven =
            of((0..10).map(|at| (f64::from(at) + 0.5, if at % 2 == 0 { 1 } else { 3 })));
        let expected = 50.0 * (10.0_f64 / 9.0).sqrt();
        assert!((variation(&uneven, 10.0).unwrap() - expected).abs() < 1e-9);
        assert_eq!(variation(&uneven, 9.99), None);
        // An incomplete second does not count.
        uneven.add(10.2, 1_000);
        assert_eq!(variation(&uneven, 10.9), variation(&uneven, 10.0));
        // A second without a byte counts: there are ten of 1 and one of 0.
        let mut stalled = of((0..10).map(|at| (f64::from(at), 1)));
        assert_eq!(variation(&stalled, 10.0), Some(0.0));
        let expected = 10.0 * 11.0_f64.sqrt();
        assert!((variation(&stalled, 11.0).unwrap() - expected).abs() < 1e-9);
        stalled.add(11.5, 1);
        assert_eq!(variation(&stalled, 11.9), variation(&stalled, 11.0));
    }

    #[test]
    fn a_stall_is_the_longest_time_between_two_reads_of_payload_or_to_the_end() {
        // The 1.5 s until the first byte are the server's, and a read without payload does not end a stall.
        let history = of([(1.5, 10), (1.7, 10), (2.5, 0), (3.0, 10)]);
        let stall = |end_s| value(&history, end_s, Metric::LongestStallS).unwrap();
        assert!((stall(3.1) - 1.3).abs() < 1e-9);
        assert!((stall(6.0) - 3.0).abs() < 1e-9);
        assert_eq!(value(&of([]), 3.0, Metric::LongestStallS), None);
    }

    #[test]
    fn the_final_rate_is_that_of_the_last_twenty_samples_of_150_ms_or_more() {
        let rate =
            |history: &DownloadHistory, end_s| value(history, end_s, Metric::FinalGoodputBitPerS);
        // A sample has ten reads. The samples last 3.125 s; either all 200 reads or the last 128 have 50 bytes.
        assert_eq!(rate(&slower_after(6.0), 10.0), Some(25_600.0));
        assert_eq!(rate(&slower_after(8.0), 10.0), Some(34_816.0));
        // There is a read each half second: the samples last ten seconds, and twice as much arrived in the first five.
        let seldom =
            of((0..=40).map(|at| (f64::from(at) / 2.0, if at <= 30 { 1_000 } else { 500 })));
        assert_eq!(rate(&seldom, 20.0), Some(12_000.0));
        // The rate includes bytes after the last sample and the time after the last read. Without a sample there is no
        // rate.
        let short = of([(0.0, 100), (0.25, 100), (0.375, 100)]);
        assert_eq!(rate(&short, 0.75), Some(3_200.0));
        assert_eq!(rate(&of([(0.0, 100), (0.125, 100)]), 0.125), None);
    }
}
