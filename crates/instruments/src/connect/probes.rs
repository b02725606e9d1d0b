//! Connections asked for one after the other, each at its time, and what they add up to.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::Session;
use crate::connect::ConnectPlan;
use crate::error::Result;
use crate::failure::go_on;
use crate::measured::{distribution, failure, lost_percent, total};
use netio::stop::STOP_INTERVAL;
use record::metric_table::{MetricRow, MetricTable};
use record::profile::{Calibration, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::quantity::counted;
use record::{Measurement, Metric, Sample, Statistic};
use stats::losses::Losses;

/// What a connection took, in milliseconds, by what was timed; nothing of one that was lost.
pub(crate) type Times = Vec<(Metric, f64)>;

/// The connections that a plan asks for.
pub(crate) struct ConnectProbes<'a> {
    pub(super) target: SocketAddr,
    pub(super) plan: &'a ConnectPlan,
    /// The times that are measured of each, the most important first.
    pub(super) timed: &'a [Metric],
    /// When each was asked for, in seconds, and what it took.
    pub(super) probes: Vec<(f64, Times)>,
}

/// The metrics of connections of which these are timed.
pub(crate) fn metrics(timed: &[Metric]) -> MetricTable {
    use Statistic::{Max, Mean, Median, Min};
    let times =
        |metric: &Metric| MetricRow::new(*metric, &[Min, Mean, Median, Max]).headlines(&[Median]);
    MetricTable::new(timed.iter().map(times)).and([
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::total(Metric::SentPackets),
        MetricRow::total(Metric::ReceivedPackets),
    ])
}

/// The profile that reports read.
pub(crate) fn profile(timed: &[Metric]) -> InstrumentProfile {
    let connect = Headline::new(Metric::ConnectMs, Statistic::Median);
    let profile = metrics(timed).profile(connect, HostLimit::RoundTrip);
    InstrumentProfile {
        samples: Some(SampleKind::Probes),
        calibration: Calibration {
            sends_again: true,
            ..profile.calibration
        },
        ..profile
    }
}

impl<'a> ConnectProbes<'a> {
    /// None yet of those that `plan` asks `target` for.
    pub(crate) fn new(target: SocketAddr, plan: &'a ConnectPlan, timed: &'a [Metric]) -> Self {
        Self {
            target,
            plan,
            timed,
            probes: Vec::new(),
        }
    }

    /// Has `probe` ask for each connection at its time. Beside what it took, `probe` says why no other is asked for; where it
    /// fails itself, as when it is stopped, the connection is not counted.
    ///
    /// # Errors
    /// Stopped, or what `probe` says.
    pub(crate) fn run(
        &mut self,
        session: &Session,
        mut probe: impl FnMut() -> Result<(Times, Result<()>)>,
    ) -> Result<()> {
        let start = Instant::now();
        let mut progress = session.live.since(start);
        let mut due = Duration::ZERO;
        for _ in 0..self.plan.count {
            loop {
                go_on(&session.stop)?;
                let left = due.saturating_sub(start.elapsed());
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(STOP_INTERVAL));
            }
            let begun = start.elapsed();
            due = begun + Duration::from(self.plan.interval);
            let (times, ended) = probe()?;
            self.probes.push((begun.as_secs_f64(), times));
            ended?;
            progress.tell(|| {
                let (answered, sent) = (self.answered(), self.probes.len());
                format!("{answered} of {sent} answered")
            });
        }
        Ok(())
    }

    /// The number of connections that were not lost.
    pub(crate) fn answered(&self) -> usize {
        let lost = self.probes.iter().filter(|(_, times)| times.is_empty());
        self.probes.len() - lost.count()
    }

    /// What they add up to; why it `ended` early is a failure, and so is no answer at all to what is called `unit`.
    pub(crate) fn measurement(&self, ended: Result<()>, unit: &str) -> Measurement {
        let (sent, received) = (self.probes.len() as u64, self.answered() as u64);
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, received),
        ];
        figures.extend((sent > 0).then(|| {
            lost_percent(Losses::in_order(
                self.probes.iter().map(|(_, times)| times.is_empty()),
            ))
        }));
        for metric in self.timed {
            let times = self.probes.iter().flat_map(|(_, times)| times);
            let times = times.filter(|(timed, _)| timed == metric);
            let times: Vec<f64> = times.map(|(_, ms)| *ms).collect();
            let statistics = metrics(self.timed).statistics(*metric);
            figures.extend(distribution(*metric, &times, statistics));
        }
        let (target, timeout) = (self.target, Duration::from(self.plan.timeout));
        let silence = (received == 0)
            .then(|| counted(sent, unit))
            .map(|sent| format!("no answer from {target} to {sent} within {timeout:?}"));
        Measurement {
            samples: self.samples(),
            figures,
            failure: failure(ended).or(silence),
            ..Measurement::default()
        }
    }

    fn samples(&self) -> Vec<Sample> {
        let of_probe = |((at_s, times), index): (&(f64, Times), u64)| {
            let lost = times.is_empty().then_some((Metric::LostPackets, 1.0));
            let values = times.iter().copied().chain(lost);
            let sample = |(metric, value)| Sample::new(*at_s, metric, index, value);
            values.map(sample).collect::<Vec<_>>()
        };
        self.probes.iter().zip(1..).flat_map(of_probe).collect()
    }
}
