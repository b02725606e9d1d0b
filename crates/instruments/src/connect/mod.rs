//! The duration of TCP handshakes (RFC 9293 §3.5), from the request to the kernel until the connection is established
//! or refused.
//!
//! Connections are made one at a time. Each begins an interval after the previous one began, or when the previous one
//! is over if that took longer. No data is sent. The measured time includes the wake-up of this program.

mod probes;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::error::{Context, Result};
use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

pub(crate) use self::probes::{ConnectProbes, ConnectionTimes, metrics, profile};
use crate::Session;
use crate::echo_stats::lines;
use crate::endpoint::{self, Local};
use crate::failure::{Blame, Failure};
use crate::instrument::{
    CommonArgs, FarEnd, Instrument, MeasureOutput, above_zero, estimated, interval, intervals,
};
use crate::measured::{self, QUANTILE_INTERVAL};
use crate::round_trip::LossTimeout;
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::InstrumentProfile;
use record::{Measurement, Metric};

/// The time after which a connection counts as lost, unless the user states one. Some round trips are added.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The port of the web, used if HOST names no port.
const DEFAULT_PORT: u16 = 80;

/// Measure the time of TCP handshakes
///
/// Any TCP server can be the far end, and also a host that refuses the connection.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct ConnectArgs {
    /// Name or address, optionally with a TCP port [default port: 80]
    #[arg(value_name = "HOST[:PORT]")]
    #[serde(skip)]
    host: String,
    #[command(flatten)]
    #[serde(flatten)]
    plan: ConnectPlan,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

/// The times that are measured of each connection.
const TIMED: [Metric; 1] = [Metric::ConnectMs];

impl Instrument for ConnectArgs {
    fn profile(&self) -> InstrumentProfile {
        profile(&TIMED)
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(metrics(&TIMED))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(None)]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
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

/// The connections to make
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectPlan {
    /// Number of connections, made one after the other
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time between connections: 20ms, or a number of seconds
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,
    /// Count a connection as lost if it is neither established nor refused after this time [default: 3s, and 4 round trips on a long path]
    #[arg(short = 'W', long, value_name = "TIME", value_parser = above_zero)]
    pub(crate) timeout: Option<Nanos>,
}

impl ConnectPlan {
    /// Returns the time from the start of the first connection to the start of the last one.
    pub(crate) fn sending(&self) -> Duration {
        intervals(self.interval.into(), self.count.saturating_sub(1))
    }

    /// Returns how long the measurement takes over a short path if every connection is lost.
    pub(crate) fn longest(&self) -> Duration {
        let timeout = self.timeout.map_or(TIMEOUT, Duration::from);
        intervals(timeout.max(self.interval.into()), self.count)
    }

    /// Returns the time-out of the first connection.
    pub(crate) fn loss_timeout(&self) -> LossTimeout {
        LossTimeout::new(self.timeout, TIMEOUT)
    }
}

/// Connects to `target` according to `plan`, from `local` if there is one. An error other than a refusal or a time-out
/// ends the measurement, and its connection counts as lost.
pub(crate) fn measure(
    target: SocketAddr,
    plan: &ConnectPlan,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let mut refused = 0;
    let mut probes = ConnectProbes::new(target, plan, &TIMED);
    let ended = probes.run(session, |timeout| {
        let socket = endpoint::tcp(target, local)?;
        let start = Instant::now();
        let outcome = endpoint::attempt(&socket, target, timeout.time(), &session.stop)?;
        let times = vec![(Metric::ConnectMs, start.elapsed().as_secs_f64() * 1e3)];
        let Err(error) = outcome else {
            return Ok((times, Ok(())));
        };
        Ok(match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                refused += 1;
                (times, Ok(()))
            }
            io::ErrorKind::TimedOut => (ConnectionTimes::new(), Ok(())),
            _ => {
                let ended = Err(error).with_context(|| format!("no connection to {target}"));
                (ConnectionTimes::new(), ended)
            }
        })
    });
    let (sent, timeout) = (probes.probes.len(), probes.timeout());
    probes
        .measurement(ended, "connection")
        .with_fact("refused", format!("{refused} of {sent}"))
        .with_fact(
            "connect",
            "from the request to the kernel until the connection is made or refused, as this program sees it; the wait before a \
             retransmitted SYN is included",
        )
        .with_fact(
            "connect interval",
            format!("{QUANTILE_INTERVAL}; the hosts' own time is included"),
        )
        .with_fact("loss", format!("neither established nor refused within {timeout:?}"))
        .with_fact("loss interval", measured::LOSS_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::stop::Stop;
    use record::Statistic;
    use std::net::TcpListener;

    const PLAN: ConnectPlan = ConnectPlan {
        count: 6,
        interval: Nanos::from_micros(1),
        timeout: Some(Nanos::from_secs(60)),
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
        let median = measurement
            .figures
            .iter()
            .find(|figure| figure.statistic == Statistic::Median)
            .unwrap();
        // Six values are too few for an interval.
        assert!(median.interval.is_none() && median.is_of_too_few());
    }

    #[test]
    fn a_refused_connection_is_an_answer_and_is_reported() {
        // The port is bound but not listening, so that nobody else gets it and the kernel refuses connections.
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
    fn a_stop_is_a_failure_and_the_current_connection_does_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stop = Stop::default().within(Duration::ZERO);
        let target = listener.local_addr().unwrap();
        let measurement = measure(target, &PLAN, None, &Session::quiet(stop));
        assert_eq!(measurement.failure.as_deref(), Some("not done within 0 s"));
        assert_eq!(totals(&measurement), [Some(0.0), Some(0.0), None]);
        assert!(measurement.samples.is_empty());
    }

    #[test]
    fn a_connection_without_an_answer_is_lost_and_a_run_without_answers_fails() {
        let measured = |probes| {
            let target = "192.0.2.1:80".parse().unwrap();
            let mut all = ConnectProbes::new(target, &PLAN, &TIMED);
            all.probes = probes;
            all.measurement(Ok(()), "connection")
        };
        let (lost, there) = (ConnectionTimes::new(), vec![(Metric::ConnectMs, 2.0)]);
        let measurement = measured(vec![(0.0, there), (1.0, lost.clone())]);
        assert_eq!(measurement.failure, None);
        assert_eq!(totals(&measurement), [Some(2.0), Some(1.0), Some(50.0)]);
        let metrics: Vec<Metric> = measurement.samples.iter().map(|s| s.metric).collect();
        assert_eq!(metrics, [Metric::ConnectMs, Metric::LostPackets]);
        let cause = measured(vec![(0.0, lost)]).failure.unwrap();
        assert!(cause.contains("no answer from 192.0.2.1:80"), "{cause}");
    }
}
