//! The arguments of `farwire measure probe`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::codec::as_text;
use crate::error::{Error, Result, ensure};
use clap::Args;
use model::BitsPerSec;

use crate::failure::{Blame, Failure};
use crate::instrument::{
    CommonArgs, FarEnd, Instrument, MeasureOutput, OUTPUT, estimated, intervals,
};
use crate::iperf3::client::Iperf3Server;
use crate::iperf3::plan::{Iperf3Test, MOST_STREAMS, Transport, Until};
use crate::iperf3::{self, tcp, udp};
use crate::output::Prepared;
use crate::stamp::loaded_latency::{self, BackgroundLoad};
use crate::stamp::{self, ProbePlan, ProbeResults, wire};
use crate::{Session, endpoint};
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::{Headline, HostLimit, InstrumentProfile, SampleKind};
use record::{Figure, Measurement, Metric, Phase, Statistic};
use serde::{Deserialize, Serialize};

/// Measure the delay, delay variation, loss and reordering of packets in each direction, with STAMP
///
/// The far end is `farwire serve`, or any STAMP (RFC 8762) or TWAMP Light reflector without authentication.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct ProbeArgs {
    /// Name or address of the reflector, optionally with its port
    #[arg(value_name = "HOST[:PORT]")]
    #[serde(skip)]
    host: String,
    /// UDP port of the reflector, unless HOST contains it
    #[arg(short, long, default_value_t = wire::PORT)]
    port: u16,
    #[command(flatten)]
    #[serde(flatten)]
    plan: ProbePlan,
    /// Then probe again under load: three TCP streams (tcp:3) or a UDP stream (udp:10mbit) to the same far end
    #[arg(long, value_name = "LOAD")]
    under: Option<LoadKind>,
    /// Port of the far end for the load
    #[arg(long, value_name = "PORT", default_value_t = 5201, requires = "under")]
    under_port: u16,
    /// Write a CSV line for every probe to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    #[serde(skip)]
    csv: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

/// A load that runs during the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadKind {
    /// This number of TCP streams, as fast as they go.
    Tcp(u32),
    /// A UDP stream with this rate of payload.
    Udp(BitsPerSec),
}

impl Instrument for ProbeArgs {
    fn profile(&self) -> InstrumentProfile {
        let rtt = Headline::new(Metric::NetworkRttMs, Statistic::Median);
        InstrumentProfile {
            samples: Some(SampleKind::Probes),
            ..stamp::results::metrics().profile(rtt, HostLimit::RoundTrip)
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        let metrics = stamp::results::metrics();
        let Some(load_kind) = self.under else {
            return Ok(metrics);
        };
        let load = iperf3::metrics::metrics(None, &load_kind.plan());
        Ok(metrics
            .during(&[Phase::Idle, Phase::Loaded])
            .and(load.during(&[Phase::Loaded])))
    }

    fn traffic(&self) -> Vec<Traffic> {
        let load = self.under.map(|load_kind| match load_kind {
            LoadKind::Tcp(_) => Traffic::Tcp(Some(self.under_port)),
            LoadKind::Udp(_) => Traffic::Udp(Some(self.under_port)),
        });
        [Traffic::Udp(Some(self.port))]
            .into_iter()
            .chain(load)
            .collect()
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn writes_csv(&self) -> bool {
        true
    }

    fn expected(&self) -> Option<Duration> {
        let once = intervals(self.plan.interval(), self.plan.count) + self.plan.timeout();
        Some(if self.under.is_some() { 2 * once } else { once })
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let size = self.plan.size.into();
        let round_trip = pace.map_or(0.0, |pace| pace.round_trip_s(size, size));
        let sent = intervals(self.plan.interval(), self.plan.count.saturating_sub(1));
        let once = sent + estimated(round_trip);
        Some(if self.under.is_some() { 2 * once } else { once })
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, self.port, family).or_bad_input()?;
        let plan = &self.plan;
        plan.check().or_bad_input()?;
        let csv = match (&self.csv, &session.csv) {
            (Some(path), _) => Some(Prepared::open(path).or_bad_input()?),
            (None, Some(open)) => Some(open.try_clone()?),
            (None, None) => None,
        };
        let local = self.common.bind.as_ref();
        let probe = || stamp::probe(target, local, plan, session);
        let Some(load_kind) = self.under else {
            let (outcome, failure) = probe()?;
            let written = write_csv(csv, &[("", &outcome)]);
            let mut measurement = outcome.measurement(plan);
            measurement.failure = failure.or(written);
            return Ok(measurement.into());
        };
        let load = self.load(load_kind, target);
        let found = loaded_latency::measure(plan, load, session, probe)?;
        let loaded = found
            .loaded
            .as_ref()
            .map(|loaded| (Phase::Loaded.name(), loaded));
        let idle = (Phase::Idle.name(), &found.idle);
        let phases: Vec<_> = [idle].into_iter().chain(loaded).collect();
        let written = write_csv(csv, &phases);
        let mut measurement = found.measurement(plan);
        measurement.failure = measurement.failure.or(written);
        Ok(measurement.into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        idle_and_loaded(measurement)
    }
}

impl ProbeArgs {
    fn load(&self, load_kind: LoadKind, target: SocketAddr) -> BackgroundLoad<'_> {
        let server = Iperf3Server {
            local: self.common.bind.clone(),
            ..Iperf3Server::at(SocketAddr::new(target.ip(), self.under_port))
        };
        let plan = load_kind.plan();
        Box::new(move |lasting, session| {
            let plan = Iperf3Test {
                until: Until::For(lasting),
                ..plan
            };
            match plan.protocol {
                Transport::Tcp => tcp::measure::measure(&server, &plan, session).measurement,
                Transport::Udp => udp::measure(&server, &plan, session).measurement,
            }
        })
    }
}

as_text!(LoadKind);

impl LoadKind {
    fn plan(self) -> Iperf3Test {
        match self {
            Self::Tcp(streams) => Iperf3Test {
                parallel: streams,
                ..Iperf3Test::new(Transport::Tcp)
            },
            Self::Udp(rate) => Iperf3Test {
                bitrate: Some(rate.get()),
                ..Iperf3Test::new(Transport::Udp)
            },
        }
    }
}

impl fmt::Display for LoadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(streams) => write!(f, "tcp:{streams}"),
            Self::Udp(rate) => write!(f, "udp:{rate}"),
        }
    }
}

impl FromStr for LoadKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, amount) = text.split_once(':').unwrap_or((text, "1"));
        match kind {
            "tcp" => {
                let streams: u32 = amount
                    .parse()
                    .map_err(|_| Error::Input(format!("`{amount}` is not a number of streams")))?;
                let most = MOST_STREAMS;
                ensure!(
                    Input,
                    (1..=most).contains(&streams),
                    "a load has 1 to {most} streams, not {streams}"
                );
                Ok(Self::Tcp(streams))
            }
            "udp" => amount.parse().map(Self::Udp).map_err(Into::into),
            _ => Err(Error::Input(format!(
                "`{kind}` is not a load: write tcp:3 for three TCP streams, or udp:10mbit for a UDP stream"
            ))),
        }
    }
}

/// Writes the probes to the file, if there is one. Returns the error as text, if there is one.
fn write_csv(file: Option<Prepared>, phases: &[(&str, &ProbeResults)]) -> Option<String> {
    let written = file?.replace(|file| stamp::write_csv(file, phases));
    written.err().map(|error| format!("{error:#}"))
}

/// Returns a line per figure that compares the idle path with the loaded one.
fn idle_and_loaded(measurement: &Measurement) -> String {
    let figures = &measurement.figures;
    let value = |metric, statistic, phase| {
        let of = |f: &&Figure| {
            (f.metric, f.statistic, f.phase, f.direction, f.stream)
                == (metric, statistic, Some(phase), None, None)
        };
        figures.iter().find(of).map(|figure| figure.value)
    };
    let line = |(metric, statistic): (Metric, Statistic)| {
        let idle = value(metric, statistic, Phase::Idle)?;
        let loaded = value(metric, statistic, Phase::Loaded)?;
        Some(format!(
            "{} {}: {} idle, {} under load\n",
            metric.title(),
            statistic.name(),
            record::quantity(metric, idle),
            record::quantity(metric, loaded)
        ))
    };
    [
        (Metric::NetworkRttMs, Statistic::Median),
        (Metric::NetworkRttMs, Statistic::P99),
        (Metric::HostMs, Statistic::Median),
        (Metric::LostPercent, Statistic::Mean),
    ]
    .into_iter()
    .filter_map(line)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_named_with_its_amount() {
        assert_eq!("tcp:3".parse::<LoadKind>().unwrap(), LoadKind::Tcp(3));
        let udp: LoadKind = "udp:10mbit".parse().unwrap();
        assert_eq!(udp, LoadKind::Udp(BitsPerSec::new(10_000_000).unwrap()));
        assert_eq!("tcp".parse::<LoadKind>().unwrap(), LoadKind::Tcp(1));
        for (wrong, cause) in [
            ("tcp:0", "1 to 128 streams, not 0"),
            ("tcp:x", "`x` is not a number of streams"),
            ("udp:fast", "fast"),
            ("quic:1", "`quic` is not a load"),
        ] {
            let error = wrong.parse::<LoadKind>().unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
