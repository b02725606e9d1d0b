//! A series of connections, each started at its time, and the figures computed from them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::Session;
use crate::connect::ConnectPlan;
use crate::error::Result;
use crate::failure::check_stop;
use crate::measured::{distribution, failure, lost_percent, total};
use crate::round_trip::LossTimeout;
use netio::stop::STOP_INTERVAL;
use record::metric_table::{MetricRow, MetricTable};
use record::profile::{Calibration, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::quantity::counted;
use record::{Measurement, Metric, Sample, Statistic};
use stats::losses::Losses;

/// The times of one connection in milliseconds, by metric. The list is empty if the connection was lost.
pub(crate) type ConnectionTimes = Vec<(Metric, f64)>;

/// The connections of a plan.
pub(crate) struct ConnectProbes<'a> {
    pub(super) target: SocketAddr,
    pub(super) plan: &'a ConnectPlan,
    /// The times that are measured of each connection, the most important first.
    pub(super) timed: &'a [Metric],
    /// The start of each connection in seconds, and its times.
    pub(super) probes: Vec<(f64, ConnectionTimes)>,
    timeout: LossTimeout,
}

/// Returns the metrics of connections with these times.
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

/// Returns the profile that reports read.
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
    /// Returns the connections of `plan` to `target`, none of which is made yet.
    pub(crate) fn new(target: SocketAddr, plan: &'a ConnectPlan, timed: &'a [Metric]) -> Self {
        Self {
            target,
            plan,
            timed,
            probes: Vec::new(),
            timeout: plan.loss_timeout(),
        }
    }

    /// Returns the present time-out of a connection.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.time()
    }

    /// Calls `probe` with the present time-out for each connection when it is due. `probe` returns the connection's
    /// times, and an error if no further connection is to be made. If `probe` itself fails, for example because it is
    /// stopped, the connection is not counted.
    ///
    /// # Errors
    /// Returns an error if the measurement is stopped, or an error of `probe`.
    pub(crate) fn run(
        &mut self,
        session: &Session,
        mut probe: impl FnMut(LossTimeout) -> Result<(ConnectionTimes, Result<()>)>,
    ) -> Result<()> {
        let start = Instant::now();
        let mut progress = session.live.since(start);
        let mut due = Duration::ZERO;
        for _ in 0..self.plan.count {
            loop {
                check_stop(&session.stop)?;
                let left = due.saturating_sub(start.elapsed());
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(STOP_INTERVAL));
            }
            let begun = start.elapsed();
            due = begun + Duration::from(self.plan.interval);
            let (times, ended) = probe(self.timeout)?;
            self.follow(&times);
            self.probes.push((begun.as_secs_f64(), times));
            ended?;
            progress.print(|| {
                let (answered, sent) = (self.answered(), self.probes.len());
                format!("{answered} of {sent} answered")
            });
        }
        Ok(())
    }

    /// Makes the time-out follow the round trip that a connection took.
    fn follow(&mut self, times: &[(Metric, f64)]) {
        let connected = times
            .iter()
            .find(|(metric, _)| *metric == Metric::ConnectMs)
            .and_then(|(_, ms)| Duration::try_from_secs_f64(ms / 1e3).ok());
        match connected {
            Some(round_trip) => self.timeout.add(round_trip),
            None => self.timeout.give_up_first(),
        }
    }

    /// Returns the number of connections that were not lost.
    pub(crate) fn answered(&self) -> usize {
        let lost = self.probes.iter().filter(|(_, times)| times.is_empty());
        self.probes.len() - lost.count()
    }

    /// Computes the measurement. An error in `ended` makes it a failure; so does the absence of any answer, which the
    /// message counts in `unit`.
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
            let times: Vec<f64> = self
                .probes
                .iter()
                .flat_map(|(_, times)| times)
                .filter(|(timed, _)| timed == metric)
                .map(|(_, ms)| *ms)
                .collect();
            let statistics = metrics(self.timed).statistics(*metric);
            figures.extend(distribution(*metric, &times, statistics));
        }
        let (target, timeout) = (self.target, self.timeout());
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
        let of_probe = |((at_s, times), index): (&(f64, ConnectionTimes), u64)| {
            let lost = times.is_empty().then_some((Metric::LostPackets, 1.0));
            let values = times.iter().copied().chain(lost);
            let sample = |(metric, value)| Sample::new(*at_s, metric, index, value);
            values.map(sample).collect::<Vec<_>>()
        };
        self.probes.iter().zip(1..).flat_map(of_probe).collect()
    }
}
