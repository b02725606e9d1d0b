//! Echo requests, their answers, and the figures computed from both.

use std::time::Duration;

use record::metric_table::{MetricRow, MetricTable};
use record::schedule::{Pace, PaceUnit};
use record::{Figure, Measurement, Metric, Sample, Statistic};
use stats::losses::Losses;
use stats::t_interval;

use crate::measured::{LOSS_INTERVAL, distribution, lost_percent, total};
use crate::round_trip::LossTimeout;

/// Returns how many answers to this number of probes a network can cause. A far end that sends more floods its client.
pub(crate) fn max_answers(probes: usize) -> usize {
    const EACH: usize = 4;
    EACH * probes + 1000
}

/// The probes, numbered from 1 in the order of sending, and their answers.
#[derive(Debug, Default)]
pub(crate) struct EchoStats {
    timeout: LossTimeout,
    probes: Vec<Probe>,
    extra: Vec<Sample>,
}

#[derive(Debug)]
struct Probe {
    sent_s: f64,
    rtt_ms: Option<f64>,
    late: bool,
    /// The largest part of the round trip that the hosts can cause, in milliseconds; 0 if it is unknown.
    hosts_ms: f64,
}

impl EchoStats {
    /// Returns statistics without probes. An answer after more than `timeout` is late.
    pub(crate) fn new(timeout: impl Into<LossTimeout>) -> Self {
        Self {
            timeout: timeout.into(),
            ..Self::default()
        }
    }

    /// Returns the time after which an answer is late.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.time()
    }

    /// Returns until when answers are awaited if there is no further probe.
    pub(crate) fn deadline(&self) -> Duration {
        let left = |probe: Option<&Probe>| Duration::from_secs_f64(probe.map_or(0.0, |p| p.sent_s));
        let (first, last) = (self.probes.first(), self.probes.last());
        self.timeout.deadline(left(first), left(last))
    }

    /// Adds a probe that left at `at_s` seconds.
    pub(crate) fn sent(&mut self, at_s: f64) {
        self.probes.push(Probe {
            sent_s: at_s,
            rtt_ms: None,
            late: false,
            hosts_ms: 0.0,
        });
    }

    /// Sets the largest part of the last probe's round trip that the hosts can cause, in milliseconds.
    pub(crate) fn hosts_took(&mut self, hosts_ms: f64) {
        if let Some(probe) = self.probes.last_mut() {
            probe.hosts_ms = hosts_ms;
        }
    }

    /// Returns the number of probes that left.
    pub(crate) fn count(&self) -> u64 {
        self.probes.len() as u64
    }

    /// Returns the number of probes that were answered in time.
    pub(crate) fn answers(&self) -> u64 {
        self.probes.iter().filter(|p| p.rtt_ms.is_some()).count() as u64
    }

    /// Returns when probe `index` left, in seconds, or `None` if it did not leave.
    pub(crate) fn sent_at(&self, index: u64) -> Option<f64> {
        let probe = self.probes.get(position(index)?)?;
        Some(probe.sent_s)
    }

    /// Adds an answer to probe `index`. An answer to a probe that never left is ignored.
    pub(crate) fn answered(&mut self, index: u64, rtt_ms: f64) {
        let Some(probe) = position(index).and_then(|at| self.probes.get_mut(at)) else {
            return;
        };
        if let Ok(round_trip) = Duration::try_from_secs_f64(rtt_ms / 1e3) {
            self.timeout.add(round_trip);
        }
        let timeout_ms = self.timeout.time().as_secs_f64() * 1e3;
        let extra = if probe.rtt_ms.is_some() || probe.late {
            Metric::DuplicateRttMs
        } else if rtt_ms > timeout_ms {
            probe.late = true;
            Metric::LateRttMs
        } else {
            probe.rtt_ms = Some(rtt_ms);
            return;
        };
        self.extra
            .push(Sample::new(probe.sent_s, extra, index, rtt_ms));
    }

    /// Compares the time at which the last probe left with a schedule of one probe per `interval`.
    fn pace(&self, interval: Duration) -> Option<Pace> {
        let sent = self.count();
        let last_s = self.sent_at(sent)? - self.sent_at(1)?;
        Pace::of_interval(PaceUnit::Requests, interval.as_secs_f64(), sent, last_s)
    }

    /// Returns whether there are more late and duplicate answers than a network can cause.
    pub(crate) fn flooded(&self) -> bool {
        self.extra.len() > max_answers(self.probes.len())
    }

    /// Returns whether every probe has an answer, in time or late.
    pub(crate) fn complete(&self) -> bool {
        self.probes
            .iter()
            .all(|probe| probe.rtt_ms.is_some() || probe.late)
    }

    /// Computes the measurement. `interval` is the schedule of a sender that keeps one. The intervals of the round trips
    /// are for the network: they begin where those of the round trips without the hosts' parts begin. A measurement
    /// without any answer is a failure.
    pub(crate) fn finish(self, interval: Option<Duration>) -> Measurement {
        let pace = interval.and_then(|interval| self.pace(interval));
        let rtts: Vec<f64> = self.probes.iter().filter_map(|p| p.rtt_ms).collect();
        let network = |probe: &Probe| Some((probe.rtt_ms? - probe.hosts_ms).max(0.0));
        let of_network: Vec<f64> = self.probes.iter().filter_map(network).collect();
        let count = |metric| self.extra.iter().filter(|s| s.metric == metric).count() as u64;
        let (sent, received) = (self.probes.len() as u64, rtts.len() as u64);
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, received),
            lost_percent(Losses::in_order(
                self.probes.iter().map(|probe| probe.rtt_ms.is_none()),
            )),
            total(Metric::LatePackets, count(Metric::LateRttMs)),
            total(Metric::DuplicatePackets, count(Metric::DuplicateRttMs)),
        ];
        let both = round_trips(&rtts).into_iter().zip(round_trips(&of_network));
        figures.extend(both.map(|(figure, of_network)| {
            let ends = figure.interval.zip(of_network.interval);
            let interval = ends.map(|([_, high], [low, _])| [low, high]);
            Figure { interval, ..figure }
        }));
        let failure = (received == 0).then(|| {
            format!(
                "no answer to {sent} echo requests within {:?}",
                self.timeout()
            )
        });
        Measurement {
            samples: self.into_samples(),
            figures,
            failure,
            paces: pace.into_iter().collect(),
            ..Measurement::default()
        }
        .with_fact("loss interval", LOSS_INTERVAL)
    }

    fn into_samples(self) -> Vec<Sample> {
        let mut samples = self.extra;
        samples.extend(self.probes.iter().zip(1..).map(|(probe, index)| {
            let (metric, value) = match probe.rtt_ms {
                Some(rtt_ms) => (Metric::RttMs, rtt_ms),
                None => (Metric::LostPackets, 1.0),
            };
            Sample::new(probe.sent_s, metric, index, value)
        }));
        samples.sort_by_key(|sample| (sample.index, sample.metric));
        samples
    }
}

/// Returns the metrics of echo requests and their answers.
pub(crate) fn metrics() -> MetricTable {
    use Statistic::{Max, Mdev, Mean, Median, Min};
    MetricTable::new([
        MetricRow::new(Metric::RttMs, &[Min, Mean, Median, Max, Mdev])
            .headlines(&[Median])
            .flent("Ping (ms) ICMP"),
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::total(Metric::SentPackets),
        MetricRow::total(Metric::ReceivedPackets),
        MetricRow::total(Metric::LatePackets),
        MetricRow::total(Metric::DuplicatePackets),
    ])
}

/// Returns a line of text for each probe.
pub(crate) fn lines(measurement: &Measurement) -> String {
    let line = |sample: &Sample| {
        let (index, value) = (sample.index, sample.value);
        Some(match sample.metric {
            Metric::RttMs | Metric::ConnectMs => format!("{index}: {value:.3} ms\n"),
            Metric::LostPackets => format!("{index}: lost\n"),
            Metric::LateRttMs => format!("{index}: late, {value:.3} ms\n"),
            Metric::DuplicateRttMs => format!("{index}: duplicate, {value:.3} ms\n"),
            _ => return None,
        })
    };
    measurement.samples.iter().filter_map(line).collect()
}

/// Returns the position of the probe with this number in the list.
fn position(index: u64) -> Option<usize> {
    usize::try_from(index).ok()?.checked_sub(1)
}

/// Returns the statistics that ping(8) prints of round-trip times, and the median. Without values there are none.
fn round_trips(values: &[f64]) -> Vec<Figure> {
    let squares: Vec<f64> = values.iter().map(|v| v * v).collect();
    let statistics = metrics().statistics(Metric::RttMs);
    let mut figures = distribution(Metric::RttMs, values, statistics);
    // The deviation is the square root of the mean square minus the squared mean, as in ping(8).
    let means = t_interval::mean(&squares).zip(t_interval::mean(values));
    let mdev = means.map(|(s, m)| (s - m * m).max(0.0).sqrt());
    figures.extend(mdev.map(|mdev| Figure::new(Metric::RttMs, Statistic::Mdev, mdev)));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(probes: u32) -> EchoStats {
        let mut stats = EchoStats::new(Duration::from_secs(1));
        (0..probes).for_each(|i| stats.sent(f64::from(i)));
        stats
    }

    #[test]
    fn a_sender_that_is_behind_at_the_last_probe_fell_short() {
        // The probes left once a second.
        let fell_short = |interval: Option<u64>| {
            let measurement = stats(100).finish(interval.map(Duration::from_millis));
            measurement.shortfall(Duration::from_millis(1))
        };
        assert_eq!(fell_short(Some(1000)), None);
        let cause = fell_short(Some(900)).unwrap();
        assert!(
            cause.ends_with("it sent 1.00 of the requested 1.11 requests/s"),
            "{cause}"
        );
        assert_eq!(fell_short(None), None);
        assert_eq!(stats(1).pace(Duration::from_secs(1)), None);
    }

    #[test]
    fn lost_late_and_duplicate_answers_are_counted_separately() {
        let mut stats = stats(4);
        stats.answered(1, 2.0);
        stats.answered(1, 3.0);
        stats.answered(2, 1500.0);
        stats.answered(4, 4.0);
        assert!(!stats.complete());
        let measurement = stats.finish(None);
        for (metric, statistic, value) in [
            (Metric::SentPackets, Statistic::Total, 4.0),
            (Metric::ReceivedPackets, Statistic::Total, 2.0),
            (Metric::LatePackets, Statistic::Total, 1.0),
            (Metric::DuplicatePackets, Statistic::Total, 1.0),
            (Metric::LostPercent, Statistic::Mean, 50.0),
            (Metric::RttMs, Statistic::Mean, 3.0),
        ] {
            assert_eq!(measurement.figure(metric, statistic), Some(value));
        }
    }

    #[test]
    fn an_interval_begins_where_the_round_trips_begin_without_the_hosts_own_parts() {
        let mut stats = EchoStats::new(Duration::from_secs(1));
        for index in 1..=100_u32 {
            stats.sent(f64::from(index));
            // One send call in five was interrupted.
            stats.hosts_took(if index % 5 == 0 { 5.0 } else { 0.02 });
            stats.answered(index.into(), 10.0 + f64::from(index % 3) * 0.001);
        }
        let measurement = stats.finish(None);
        let is_median = |figure: &&Figure| figure.statistic == Statistic::Median;
        let median = measurement.figures.iter().find(is_median).unwrap();
        let [low, high] = median.interval.unwrap();
        assert!((9.979..9.983).contains(&low), "{low}");
        assert!((10.0..10.003).contains(&high), "{high}");
    }

    #[test]
    fn duplicates_by_the_network_are_no_flood() {
        let mut stats = stats(2);
        (0..1000).for_each(|_| stats.answered(1, 2.0));
        assert!(!stats.flooded());
        (0..1000).for_each(|_| stats.answered(1, 2.0));
        assert!(stats.flooded());
    }

    #[test]
    fn samples_are_in_the_order_of_sending() {
        let mut stats = stats(2);
        stats.answered(2, 1.0);
        let metrics: Vec<_> = stats
            .finish(None)
            .samples
            .iter()
            .map(|s| (s.index, s.metric))
            .collect();
        assert_eq!(metrics, [(1, Metric::LostPackets), (2, Metric::RttMs)]);
    }

    #[test]
    fn round_trips_have_the_mdev_of_ping_and_a_median() {
        let value = |values: &[f64], statistic| {
            round_trips(values)
                .into_iter()
                .find(|f| f.statistic == statistic)
                .unwrap()
                .value
        };
        // A run of ping(8) printed rtt min/avg/max/mdev = 0.034/0.326/0.907/0.410 ms
        let three = [0.907, 0.038, 0.034];
        assert!((value(&three, Statistic::Mean) - 0.326).abs() < 0.001);
        assert!((value(&three, Statistic::Mdev) - 0.410).abs() < 0.001);
        assert!((value(&three, Statistic::Median) - 0.038).abs() < 1e-12);
        assert!((value(&[1.0, 2.0], Statistic::Median) - 1.5).abs() < 1e-12);
        assert!(round_trips(&[]).is_empty());
    }

    #[test]
    fn an_answer_without_a_probe_is_not_counted() {
        let mut stats = stats(1);
        stats.answered(0, 1.0);
        stats.answered(9, 1.0);
        let measurement = stats.finish(None);
        assert!(
            measurement
                .failure
                .unwrap()
                .contains("no answer to 1 echo request")
        );
    }
}
