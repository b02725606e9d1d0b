//! The round-trip times of one message size.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use record::{Figure, Metric, Sample, Statistic};
use stats::order_statistics;

/// Four digits: 0.01 %.
const DIGITS: u8 = 4;
const LONGEST_RTT: Duration = Duration::from_secs(3600);

/// Takes round-trip times without allocating, unless every one is kept.
pub(super) struct Recorder {
    /// In nanoseconds.
    histogram: Histogram<u64>,
    /// When each answer came and its round-trip time, in seconds; empty when there are too many.
    kept: Vec<(f64, f64)>,
    keep: bool,
    began: Instant,
    sum: Duration,
    answered: u64,
}

impl Recorder {
    /// Nothing yet; times count from `began`. `keep` keeps every message.
    pub(super) fn new(keep: bool, began: Instant) -> Self {
        let longest = u64::try_from(LONGEST_RTT.as_nanos()).unwrap_or(u64::MAX);
        Self {
            histogram: Histogram::new_with_bounds(1, longest, DIGITS).expect("bounds in order"),
            kept: Vec::new(),
            keep,
            began,
            sum: Duration::ZERO,
            answered: 0,
        }
    }

    /// One message's answer came at `now`.
    pub(super) fn add(&mut self, rtt: Duration, now: Instant) {
        self.sum += rtt;
        self.answered += 1;
        let nanos = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        if self.keep {
            let at = now - self.began;
            self.kept.push((at.as_secs_f64(), rtt.as_secs_f64()));
        }
    }

    /// Seconds since the instrument began.
    pub(super) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The sum of all round-trip times, and of how many.
    pub(super) fn sum(&self) -> (Duration, u64) {
        (self.sum, self.answered)
    }

    /// Every message that was kept.
    pub(super) fn samples(&self) -> impl Iterator<Item = Sample> {
        let kept = self.kept.iter().zip(1..);
        kept.map(|((at_s, rtt_s), index)| Sample::new(*at_s, Metric::RttMs, index, rtt_s * 1e3))
    }

    /// Of single messages; the median lies within its interval, its lower end less `hosts_ms`, if that is known.
    pub(super) fn figures(&self, hosts_ms: Option<f64>) -> Vec<Figure> {
        if self.answered == 0 {
            return Vec::new();
        }
        let figure = |statistic, share| Figure::new(Metric::RttMs, statistic, self.at_ms(share));
        let interval = self.median_interval_ms();
        vec![
            figure(Statistic::Min, 0.0),
            network(figure(Statistic::Median, 0.5), interval, hosts_ms),
            figure(Statistic::P99, 0.99),
            figure(Statistic::Max, 1.0),
        ]
    }

    /// The median round-trip time; 0 without an answer.
    pub(super) fn median(&self) -> Duration {
        Duration::from_nanos(self.histogram.value_at_quantile(0.5))
    }

    /// What a share (0 to 1) of the round-trip times is not above, in milliseconds.
    fn at_ms(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share.clamp(0.0, 1.0)) as f64 / 1e6
    }

    /// Between which round-trip times the median lies at 95 %, messages taken as independent.
    fn median_interval_ms(&self) -> Option<[f64; 2]> {
        let ranks = order_statistics::median_ranks(self.answered)?;
        // Half a rank less: no rounding leads to the next value.
        Some(ranks.map(|rank| self.at_ms((rank - 0.5) / self.answered as f64)))
    }
}

/// A round-trip time with the interval of the network's own, which lies below by up to `hosts_ms`.
pub(super) fn network(figure: Figure, interval: Option<[f64; 2]>, hosts_ms: Option<f64>) -> Figure {
    match (interval, hosts_ms) {
        (Some([low, high]), Some(hosts)) => figure.within((low - hosts).max(0.0), high),
        _ => figure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_s_interval_has_the_ranks_of_the_binomial_distribution_less_the_hosts_part() {
        let began = Instant::now();
        let mut recorder = Recorder::new(true, began);
        for ms in 1..=100 {
            recorder.add(Duration::from_millis(ms), began);
        }
        assert_eq!(recorder.samples().count(), 100);
        let figures = recorder.figures(Some(5.0));
        let median = figures.iter().find(|f| f.statistic == Statistic::Median);
        let [low, high] = median.unwrap().interval.unwrap();
        assert!(
            (low - 35.0).abs() < 0.01 && (high - 61.0).abs() < 0.01,
            "{low} {high}"
        );
        let without = recorder.figures(None);
        assert!(without.iter().all(|figure| figure.interval.is_none()));
    }
}
