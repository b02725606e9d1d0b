//! Which probe was answered when: the bookkeeping that both pings share.

use std::time::Duration;

use super::Spread;
use record::{Figure, Measurement, Metric, Sample, Statistic};
use stats::proportion;

/// More answers than this to so many probes are not those of a network.
pub(crate) fn most_answers(probes: usize) -> usize {
    const EACH: usize = 4;
    EACH * probes + 1000
}

/// Probes numbered from 1 in the order of sending, and their answers.
#[derive(Debug)]
pub(crate) struct Tally {
    timeout: Duration,
    probes: Vec<Probe>,
    extra: Vec<Sample>,
}

#[derive(Debug)]
struct Probe {
    sent_s: f64,
    rtt_ms: Option<f64>,
    late: bool,
}

impl Tally {
    /// No probe yet; an answer after `timeout` is late.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            probes: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// One more probe left at `at_s`.
    pub(crate) fn sent(&mut self, at_s: f64) {
        self.probes.push(Probe {
            sent_s: at_s,
            rtt_ms: None,
            late: false,
        });
    }

    /// How many probes left.
    pub(crate) fn count(&self) -> u64 {
        self.probes.len() as u64
    }

    /// How many probes were answered in time.
    pub(crate) fn answers(&self) -> u64 {
        self.probes.iter().filter(|p| p.rtt_ms.is_some()).count() as u64
    }

    /// When probe `index` left, if it did.
    pub(crate) fn sent_at(&self, index: u64) -> Option<f64> {
        self.probe(index).map(|probe| probe.sent_s)
    }

    /// An answer to probe `index`; one to a probe that never left is not counted.
    pub(crate) fn answered(&mut self, index: u64, rtt_ms: f64) {
        let timeout_ms = self.timeout.as_secs_f64() * 1e3;
        let Some(at) = usize::try_from(index).ok().and_then(|i| i.checked_sub(1)) else {
            return;
        };
        let Some(probe) = self.probes.get_mut(at) else {
            return;
        };
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

    /// Whether the far end sends more than any network makes of answers.
    pub(crate) fn flooded(&self) -> bool {
        self.extra.len() > most_answers(self.probes.len())
    }

    /// Whether nothing more is awaited: every probe has its answer.
    pub(crate) fn complete(&self) -> bool {
        self.probes
            .iter()
            .all(|probe| probe.rtt_ms.is_some() || probe.late)
    }

    /// What it all adds up to; no answer at all is a failure.
    pub(crate) fn finish(self) -> Measurement {
        let rtts: Vec<f64> = self.probes.iter().filter_map(|p| p.rtt_ms).collect();
        let count = |metric| self.extra.iter().filter(|s| s.metric == metric).count() as u64;
        let (sent, received) = (self.probes.len() as u64, rtts.len() as u64);
        let total = |metric, count: u64| Figure::new(metric, Statistic::Total, count as f64);
        let lost_percent = 100.0 * (sent - received) as f64 / sent.max(1) as f64;
        let lost = Figure::new(Metric::LostPercent, Statistic::Mean, lost_percent);
        let lost = match proportion::wilson(sent - received, sent) {
            Some([low, high]) => lost.within(100.0 * low, 100.0 * high),
            None => lost,
        };
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, received),
            lost,
            total(Metric::LatePackets, count(Metric::LateRttMs)),
            total(Metric::DuplicatePackets, count(Metric::DuplicateRttMs)),
        ];
        let spread = Spread::of(&rtts);
        figures.extend(
            spread
                .map(|spread| spread.figures(Metric::RttMs))
                .into_iter()
                .flatten(),
        );
        let failure = (received == 0).then(|| {
            format!(
                "no answer to {sent} echo requests within {:?}",
                self.timeout
            )
        });
        Measurement {
            samples: self.into_samples(),
            figures,
            failure,
            ..Measurement::default()
        }
        .with_fact(
            "loss interval",
            "Wilson's, of the probability with which a round trip is lost",
        )
    }

    fn probe(&self, index: u64) -> Option<&Probe> {
        self.probes
            .get(usize::try_from(index).ok()?.checked_sub(1)?)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(probes: u32) -> Tally {
        let mut tally = Tally::new(Duration::from_secs(1));
        (0..probes).for_each(|i| tally.sent(f64::from(i)));
        tally
    }

    #[test]
    fn loss_lateness_and_duplicates_are_counted_apart() {
        let mut tally = tally(4);
        tally.answered(1, 2.0);
        tally.answered(1, 3.0);
        tally.answered(2, 1500.0);
        tally.answered(4, 4.0);
        assert!(!tally.complete());
        let measurement = tally.finish();
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
    fn a_network_s_duplicates_are_no_flood() {
        let mut tally = tally(2);
        (0..1000).for_each(|_| tally.answered(1, 2.0));
        assert!(!tally.flooded());
        (0..1000).for_each(|_| tally.answered(1, 2.0));
        assert!(tally.flooded());
    }

    #[test]
    fn samples_come_in_the_order_of_sending() {
        let mut tally = tally(2);
        tally.answered(2, 1.0);
        let metrics: Vec<_> = tally
            .finish()
            .samples
            .iter()
            .map(|s| (s.index, s.metric))
            .collect();
        assert_eq!(metrics, [(1, Metric::LostPackets), (2, Metric::RttMs)]);
    }

    #[test]
    fn an_answer_to_nothing_sent_is_not_counted() {
        let mut tally = tally(1);
        tally.answered(0, 1.0);
        tally.answered(9, 1.0);
        let measurement = tally.finish();
        assert!(
            measurement
                .failure
                .unwrap()
                .contains("no answer to 1 echo request")
        );
    }
}
