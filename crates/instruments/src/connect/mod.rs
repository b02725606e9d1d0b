//! How long a TCP handshake takes (RFC 9293 §3.5): from asking the kernel for a connection until it is there or refused.
//!
//! One connection at a time: each begins an interval after the one before it began, or when that one is over if it took
//! longer. Nothing is sent on it. The time ends when this program is woken, so waking up is part of it.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use crate::Session;
use crate::echo_stats::lines;
use crate::endpoint::{self, Local};
use crate::failure::{Blame, Failure, go_on};
use crate::instrument::{
    CommonArgs, FarEnd, Instrument, MeasureOutput, above_zero, estimated, interval,
};
use crate::measured::{MEDIAN_INTERVAL, distribution, failure, lost_percent, total};
use netio::stop::STOP_INTERVAL;
use record::lateness::Traffic;
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::profile::{Calibration, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::quantity::counted;
use record::{Measurement, Metric, Sample, Statistic};

/// Of the web, where HOST says none.
const DEFAULT_PORT: u16 = 80;

/// How long a TCP handshake takes
///
/// Every TCP server answers, and a host that refuses the connection too.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct ConnectArgs {
    /// Name or address, and the TCP port if it is not 80
    #[arg(value_name = "HOST[:PORT]")]
    #[serde(skip)]
    host: String,
    #[command(flatten)]
    #[serde(flatten)]
    plan: ConnectPlan,
    #[command(flatten)]
    #[serde(skip)]
    common: CommonArgs,
}

fn metrics() -> MetricTable {
    use Statistic::{Max, Mean, Median, Min};
    MetricTable::new([
        MetricRow::new(Metric::ConnectMs, &[Min, Mean, Median, Max]).headlines(&[Median]),
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::total(Metric::SentPackets),
        MetricRow::total(Metric::ReceivedPackets),
    ])
}

impl Instrument for ConnectArgs {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn profile(&self) -> InstrumentProfile {
        let connect = Headline::new(Metric::ConnectMs, Statistic::Median);
        let profile = metrics().profile(connect, HostLimit::RoundTrip);
        InstrumentProfile {
            samples: Some(SampleKind::Probes),
            calibration: Calibration {
                sends_again: true,
                ..profile.calibration
            },
            ..profile
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(metrics())
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(None)]
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.host = SocketAddr::new(far_end.address, far_end.http).to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan.longest())
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let round_trip = pace.map_or(0.0, |pace| pace.round_trip_s(0, 0));
        Some(self.plan.sending() + estimated(round_trip))
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, DEFAULT_PORT, family).or_bad_input()?;
        let local = self.common.bind.as_ref();
        Ok(measure(target, &self.plan, local, session).into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        lines(measurement)
    }
}

/// Which connections to ask for
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectPlan {
    /// Connections to ask for, one after the other
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// From one to the next: seconds, or 20ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,
    /// After which a connection that is neither there nor refused is lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "3s", value_parser = above_zero)]
    pub(crate) timeout: Nanos,
}

impl ConnectPlan {
    /// From the first connection's beginning to the last one's.
    pub(crate) fn sending(&self) -> Duration {
        Duration::from(self.interval) * self.count.saturating_sub(1)
    }

    /// How long it takes if every connection is lost.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from(self.interval.max(self.timeout)) * self.count
    }
}

/// Connects to `target` as `plan` says, from `local` if that is said.
pub(crate) fn measure(
    target: SocketAddr,
    plan: &ConnectPlan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let mut connector = Connector {
        target,
        plan,
        local,
        start: Instant::now(),
        probes: Vec::new(),
    };
    let ended = failure(connector.run(session));
    let mut measurement = connector.finish();
    measurement.failure = ended.or(measurement.failure);
    measurement
}

/// What became of a connection that was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Connected { ms: f64 },
    Refused { ms: f64 },
    Lost,
}

struct Connector<'a> {
    target: SocketAddr,
    plan: &'a ConnectPlan,
    local: Option<&'a Local>,
    start: Instant,
    /// When each connection was asked for, in seconds, and what became of it.
    probes: Vec<(f64, Outcome)>,
}

impl Connector<'_> {
    /// A connection that is stopped is not counted.
    fn run(&mut self, session: &Session) -> Result<()> {
        let mut progress = session.live.since(self.start);
        let mut due = Duration::ZERO;
        for _ in 0..self.plan.count {
            self.wait_until(due, session)?;
            let begun = self.start.elapsed();
            due = begun + Duration::from(self.plan.interval);
            self.probe(begun, session)?;
            progress.tell(|| {
                let (answered, sent) = (self.answers().count(), self.probes.len());
                format!("{answered} of {sent} answered")
            });
        }
        Ok(())
    }

    fn wait_until(&self, due: Duration, session: &Session) -> Result<()> {
        loop {
            go_on(&session.stop)?;
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(STOP_INTERVAL));
        }
    }

    /// Asks for one connection; what goes wrong in another way than refusal and silence counts as lost and ends it all.
    fn probe(&mut self, begun: Duration, session: &Session) -> Result<()> {
        let (target, timeout) = (self.target, Duration::from(self.plan.timeout));
        let socket = endpoint::tcp(target, self.local)?;
        let asked = Instant::now();
        let went = endpoint::attempt(&socket, target, timeout, &session.stop)?;
        let ms = asked.elapsed().as_secs_f64() * 1e3;
        let (outcome, ended) = match went {
            Ok(()) => (Outcome::Connected { ms }, Ok(())),
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => (Outcome::Refused { ms }, Ok(())),
                io::ErrorKind::TimedOut => (Outcome::Lost, Ok(())),
                _ => (Outcome::Lost, Err(Error::from(error))),
            },
        };
        self.probes.push((begun.as_secs_f64(), outcome));
        ended.with_context(|| format!("no connection to {target}"))
    }

    fn answers(&self) -> impl Iterator<Item = f64> {
        self.probes.iter().filter_map(|(_, outcome)| outcome.ms())
    }

    /// What it all adds up to; no answer at all is a failure.
    fn finish(&self) -> Measurement {
        let times: Vec<f64> = self.answers().collect();
        let (sent, received) = (self.probes.len() as u64, times.len() as u64);
        let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
        let refused = self.probes.iter().filter(|(_, o)| is_refused(o)).count();
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, received),
        ];
        figures.extend((sent > 0).then(|| lost_percent(sent - received, sent)));
        figures.extend(distribution(
            Metric::ConnectMs,
            &times,
            metrics().statistics(Metric::ConnectMs),
        ));
        let (target, timeout) = (self.target, Duration::from(self.plan.timeout));
        let failure = (received == 0)
            .then(|| counted(sent, "connection"))
            .map(|sent| format!("no answer from {target} to {sent} within {timeout:?}"));
        Measurement {
            samples: self.samples(),
            figures,
            failure,
            ..Measurement::default()
        }
        .with_fact("refused", format!("{refused} of {sent}"))
        .with_fact(
            "connect",
            "from asking the kernel for a connection until it is there or refused, as this program is told; \
             a SYN that the kernel sends again makes it longer by the wait",
        )
        .with_fact(
            "connect interval",
            format!("{MEDIAN_INTERVAL}; the hosts' own time is in it"),
        )
        .with_fact("loss", format!("neither there nor refused within {timeout:?}"))
        .with_fact(
            "loss interval",
            "Wilson's, of the probability with which a connection is lost",
        )
    }

    fn samples(&self) -> Vec<Sample> {
        let probes = self.probes.iter().zip(1..);
        let sample = |((at_s, outcome), index): (&(f64, Outcome), u64)| match outcome.ms() {
            Some(ms) => Sample::new(*at_s, Metric::ConnectMs, index, ms),
            None => Sample::new(*at_s, Metric::LostPackets, index, 1.0),
        };
        probes.map(sample).collect()
    }
}

impl Outcome {
    /// Until there was an answer, if there was.
    fn ms(&self) -> Option<f64> {
        match self {
            Self::Connected { ms } | Self::Refused { ms } => Some(*ms),
            Self::Lost => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::stop::Stop;
    use std::net::TcpListener;

    const PLAN: ConnectPlan = ConnectPlan {
        count: 6,
        interval: Nanos::from_micros(1),
        timeout: Nanos::from_secs(60),
    };

    fn measured(target: SocketAddr) -> Measurement {
        measure(target, &PLAN, None, &Session::quiet(Stop::default()))
    }

    fn totals(measurement: &Measurement) -> [Option<f64>; 3] {
        [
            measurement.figure(Metric::SentPackets, Statistic::Total),
            measurement.figure(Metric::ReceivedPackets, Statistic::Total),
            measurement.figure(Metric::LostPercent, Statistic::Mean),
        ]
    }

    #[test]
    fn every_connection_to_a_listener_is_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let measurement = measured(listener.local_addr().unwrap());
        assert_eq!(measurement.failure, None);
        assert_eq!(totals(&measurement), [Some(6.0), Some(6.0), Some(0.0)]);
        assert_eq!(measurement.facts["refused"], "0 of 6");
        let mut samples = measurement.samples.iter();
        assert!(samples.all(|sample| sample.metric == Metric::ConnectMs && sample.value > 0.0));
        let mut figures = measurement.figures.iter();
        let median = figures.find(|figure| figure.statistic == Statistic::Median);
        let median = median.unwrap();
        // Six say too little of it.
        assert!(median.interval.is_none() && median.is_of_too_few());
    }

    #[test]
    fn a_refused_connection_is_an_answer_and_is_said() {
        // Bound and not listening: nobody else gets the port, and the kernel refuses.
        let target = "127.0.0.1:0".parse().unwrap();
        let socket = endpoint::tcp(target, None).unwrap();
        socket.bind(&target.into()).unwrap();
        let closed = socket.local_addr().unwrap().as_socket().unwrap();
        let measurement = measured(closed);
        assert_eq!(measurement.failure, None);
        assert_eq!(totals(&measurement), [Some(6.0), Some(6.0), Some(0.0)]);
        assert_eq!(measurement.facts["refused"], "6 of 6");
        assert_eq!(measurement.samples.len(), 6);
    }

    #[test]
    fn a_stop_ends_it_with_its_cause_and_counts_no_connection_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stop = Stop::default().within(Duration::ZERO);
        let target = listener.local_addr().unwrap();
        let measurement = measure(target, &PLAN, None, &Session::quiet(stop));
        assert_eq!(measurement.failure.as_deref(), Some("not done within 0 s"));
        assert_eq!(totals(&measurement), [Some(0.0), Some(0.0), None]);
        assert!(measurement.samples.is_empty());
    }

    #[test]
    fn a_connection_without_an_answer_is_lost_and_all_lost_is_a_failure() {
        let connector = |probes| Connector {
            target: "192.0.2.1:80".parse().unwrap(),
            plan: &PLAN,
            local: None,
            start: Instant::now(),
            probes,
        };
        let (lost, there) = (Outcome::Lost, Outcome::Connected { ms: 2.0 });
        let measurement = connector(vec![(0.0, there), (1.0, lost)]).finish();
        assert_eq!(measurement.failure, None);
        assert_eq!(totals(&measurement), [Some(2.0), Some(1.0), Some(50.0)]);
        let metrics: Vec<Metric> = measurement.samples.iter().map(|s| s.metric).collect();
        assert_eq!(metrics, [Metric::ConnectMs, Metric::LostPackets]);
        let cause = connector(vec![(0.0, lost)]).finish().failure.unwrap();
        assert!(cause.contains("no answer from 192.0.2.1:80"), "{cause}");
    }
}
