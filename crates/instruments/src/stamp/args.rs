//! The arguments of `farwire measure probe`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Result, ensure};
use clap::Args;
use model::Nanos;

use crate::failure::{Blame, Failure};
use crate::instrument::{
    CommonArgs, FarEnd, Instrument, MeasureOutput, OUTPUT, ROUND_TRIPS, estimated, intervals,
};
use crate::iperf3;
use crate::iperf3::plan::Iperf3Test;
use crate::output::Prepared;
use crate::stamp::load::{self, Load};
use crate::stamp::{self, ProbePlan, ProbeResults, loaded_latency, wire};
use crate::{Session, endpoint};
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::{Headline, HostLimit, InstrumentProfile, SampleKind};
use record::quantity::value_in_words;
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
    /// Then probe again under load: tcp:3 (three TCP streams) or udp:10mbit, with ,down or ,both for other directions than up
    ///
    /// Then probe again under load, to and from the same far end: tcp:3 is three TCP streams up, udp:10mbit a UDP stream up.
    /// Directions follow a comma: tcp:4,down, udp:10mbit,both. So does the congestion control: tcp:4,both,congestion=bbr
    #[arg(long, value_name = "LOAD", conflicts_with = "train")]
    under: Option<Load>,
    /// Port of the far end for the load
    #[arg(long, value_name = "PORT", default_value_t = 5201, requires = "under")]
    under_port: u16,
    /// Time between two samples of the load [default: 1s]
    ///
    /// Time between two samples of the load [default: 1s]. With UDP, a far end that is farwire then also says what arrived in each
    #[arg(long, value_name = "TIME", requires = "under", value_parser = under_interval)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    under_interval: Option<Nanos>,
    /// Write a CSV line for every probe to FILE
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    #[serde(skip)]
    csv: Option<PathBuf>,
    /// Print every figure, and how each one was measured
    #[arg(long, help_heading = OUTPUT)]
    #[serde(skip)]
    details: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
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
        let Some(load) = &self.under else {
            let trains = self.plan.has_trains().then(stamp::results::train_metric);
            return Ok(metrics.and(trains));
        };
        let load = iperf3::metrics::metrics(None, &load.plan());
        Ok(metrics
            .during(&[Phase::Idle, Phase::Loaded])
            .and(load.during(&[Phase::Loaded])))
    }

    fn traffic(&self) -> Vec<Traffic> {
        let port = Some(self.under_port);
        let load = self.under.as_ref().map(|load| match load.is_tcp() {
            true => Traffic::Tcp(port),
            false => Traffic::Udp(port),
        });
        [Traffic::Udp(Some(self.port))]
            .into_iter()
            .chain(load)
            .collect()
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn use_congestion(&mut self, name: &str) {
        if let Some(load) = &mut self.under {
            load.use_congestion(name);
        }
    }

    fn writes_csv(&self) -> bool {
        true
    }

    fn expected(&self) -> Option<Duration> {
        let once = intervals(self.plan.interval(), self.plan.trains()) + self.plan.timeout();
        Some(if self.under.is_some() { 2 * once } else { once })
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let size = self.plan.size.into();
        let round_trip = pace.map_or(0.0, |pace| pace.round_trip_s(size, size));
        let sent = intervals(self.plan.interval(), self.plan.trains().saturating_sub(1));
        let once = sent + estimated(round_trip);
        Some(if self.under.is_some() { 2 * once } else { once })
    }

    fn round_trips(&self) -> u32 {
        let of_load = |load: &Load| load.plan().round_trips();
        ROUND_TRIPS + self.under.as_ref().map_or(0, of_load)
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, self.port, family).or_bad_input()?;
        let plan = &self.plan;
        plan.check().or_bad_input()?;
        if let Some(load) = &self.under {
            load.check().or_bad_input()?;
        }
        let csv = match (&self.csv, &session.csv) {
            (Some(path), _) => Some(Prepared::open(path).or_bad_input()?),
            (None, Some(open)) => Some(open.try_clone()?),
            (None, None) => None,
        };
        let local = self.common.bind.as_ref();
        let probe = || stamp::probe(target, local, plan, session);
        let Some(load) = &self.under else {
            let (outcome, failure) = probe()?;
            let written = write_csv(csv, &[("", &outcome)]);
            let mut measurement = outcome.measurement(plan);
            measurement.failure = failure.or(written);
            return Ok(measurement.into());
        };
        let server = SocketAddr::new(target.ip(), self.under_port);
        let load = load::background(self.load_plan(load), server, local.cloned());
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

    fn summary(&self) -> Option<fn(&Figure) -> bool> {
        match self.details {
            true => None,
            false => Some(is_in_summary),
        }
    }
}

impl ProbeArgs {
    /// Returns a load as an iperf3 test of unspecified duration.
    fn load_plan(&self, load: &Load) -> Iperf3Test {
        let plan = load.plan();
        Iperf3Test {
            interval: self.under_interval.map_or(plan.interval, Duration::from),
            arrivals: self.under_interval.is_some() && !load.is_tcp(),
            ..plan
        }
    }
}

fn under_interval(text: &str) -> Result<Nanos> {
    let time: Nanos = text.parse()?;
    let [least, most] = [Nanos::from_millis(10), Nanos::from_secs(60)];
    ensure!(
        Input,
        (least..=most).contains(&time),
        "must be from 10ms to 60s"
    );
    Ok(time)
}

/// Returns whether the figure is one of those that fit one screen.
fn is_in_summary(figure: &Figure) -> bool {
    let (metric, statistic) = (figure.metric, figure.statistic);
    let is_known = match metric {
        Metric::NetworkRttMs => matches!(statistic, Statistic::Median | Statistic::P99),
        Metric::RttMs | Metric::OneWayDelayMs | Metric::InTrainMs => statistic == Statistic::Median,
        // Beside a load, there are twice as many figures.
        Metric::LostPercent | Metric::ReorderedPackets => {
            figure.phase.is_none() || (metric == Metric::LostPercent && figure.direction.is_none())
        }
        // The probes of late answers count as lost, although the path delivered them.
        Metric::LatePackets => figure.value > 0.0,
        Metric::GoodputBitPerS => statistic == Statistic::Mean,
        _ => false,
    };
    is_known && figure.stream.is_none()
}

/// Writes the probes to the file, if there is one. Returns the error as text, if there is one.
fn write_csv(file: Option<Prepared>, phases: &[(&str, &ProbeResults)]) -> Option<String> {
    let written = file?.replace(|file| stamp::write_csv(file, phases));
    written.err().map(|error| format!("{error:#}"))
}

/// Returns a line per figure that compares the idle path with the loaded one.
fn idle_and_loaded(measurement: &Measurement) -> String {
    let value = |metric, statistic, phase| {
        let of = |f: &&Figure| {
            (f.metric, f.statistic, f.phase, f.direction, f.stream)
                == (metric, statistic, Some(phase), None, None)
        };
        measurement.figures.iter().find(of).map(value_in_words)
    };
    let line = |(metric, statistic): (Metric, Statistic)| {
        let idle = value(metric, statistic, Phase::Idle)?;
        let loaded = value(metric, statistic, Phase::Loaded)?;
        let (title, name) = (metric.title(), statistic.name());
        Some(format!(
            "{title} {name}: {idle} idle, {loaded} under load\n"
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
    use clap::{Command, FromArgMatches as _};
    use record::Direction;

    /// Returns the arguments of a command line, with a host.
    fn args(words: &[&str]) -> Result<ProbeArgs, clap::Error> {
        let command = ProbeArgs::augment_args(Command::new("probe"));
        let words = [&["probe"][..], words, &["127.0.0.1"]].concat();
        let matches = command.try_get_matches_from(words)?;
        ProbeArgs::from_arg_matches(&matches)
    }

    #[test]
    fn trains_are_measured_on_the_idle_path_only() {
        let refused = args(&["--train=10", "--under=tcp:1"]).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::ArgumentConflict);
        assert!(args(&["--under=tcp:1"]).is_ok());
        assert!(args(&["--train=0"]).is_err() && args(&["--train=65"]).is_err());
    }

    #[test]
    fn trains_have_figures_and_take_an_interval_each() {
        let median = Figure::new(Metric::InTrainMs, Statistic::Median, 1.0);
        let median = median.toward(Direction::Down);
        assert!(is_in_summary(&median));
        for (train, has_figures, lasts_s) in [("--train=1", false, 23), ("--train=8", true, 6)] {
            let args = args(&["-c20", "-i1s", "-W3s", train]).unwrap();
            let metrics = args.metrics().unwrap();
            assert_eq!(metrics.has(&median), has_figures, "{train}");
            let lasts = Duration::from_secs(lasts_s);
            assert_eq!(args.expected(), Some(lasts), "{train}");
        }
    }

    #[test]
    fn a_load_of_udp_that_is_sampled_more_often_asks_for_its_arrivals() {
        let plan = |under: &str, interval: Option<&str>| {
            let under = format!("--under={under}");
            let interval = interval.map(|time| format!("--under-interval={time}"));
            let words = ["probe".to_owned(), under, "127.0.0.1".to_owned()];
            let words = words.into_iter().chain(interval);
            let command = ProbeArgs::augment_args(Command::new("probe"));
            let matches = command.try_get_matches_from(words).unwrap();
            let args = ProbeArgs::from_arg_matches(&matches).unwrap();
            let plan = args.load_plan(args.under.as_ref().unwrap());
            (plan.interval.as_millis(), plan.arrivals)
        };
        assert_eq!(plan("udp:1mbit", None), (1000, false));
        assert_eq!(plan("udp:1mbit", Some("100ms")), (100, true));
        assert_eq!(plan("tcp:1", Some("100ms")), (100, false));
    }

    #[test]
    fn the_summary_has_no_percentile_of_too_few_probes() {
        let p99 = |phase, effective_samples| {
            let figure = Figure::new(Metric::NetworkRttMs, Statistic::P99, 71.983);
            figure.effective_samples(effective_samples).during(phase)
        };
        let measurement = Measurement {
            figures: vec![p99(Phase::Idle, 500.0), p99(Phase::Loaded, 30.0)],
            ..Measurement::default()
        };
        assert_eq!(
            idle_and_loaded(&measurement),
            "network rtt p99: 71.98 ms idle, n/a under load\n"
        );
    }

    #[test]
    fn the_summary_has_late_answers_if_there_are_any() {
        let late = |count| Figure::new(Metric::LatePackets, Statistic::Total, count);
        assert!(is_in_summary(&late(3.0)));
        assert!(is_in_summary(&late(1.0).during(Phase::Loaded)));
        assert!(!is_in_summary(&late(0.0)));
    }

    #[test]
    fn the_summary_of_two_sessions_and_a_load_fits_a_screen() {
        let (up, down) = (Some(Direction::Up), Some(Direction::Down));
        let stated: [(Metric, &[Option<Direction>]); 8] = [
            (Metric::NetworkRttMs, &[None]),
            (Metric::RttMs, &[None]),
            (Metric::HostMs, &[None]),
            (Metric::OneWayDelayMs, &[up, down]),
            (Metric::PdvMs, &[up, down]),
            (Metric::LostPercent, &[None, up, down]),
            (Metric::LostPackets, &[None, up, down]),
            (Metric::ReorderedPackets, &[up, down]),
        ];
        let table = stamp::results::metrics();
        let mut rows = 0;
        for phase in [Phase::Idle, Phase::Loaded] {
            for (metric, directions) in stated {
                for statistic in table.statistics(metric) {
                    let figure = Figure::new(metric, *statistic, 1.0).during(phase);
                    let each = directions.iter().map(|direction| Figure {
                        direction: *direction,
                        ..figure.clone()
                    });
                    rows += each.filter(is_in_summary).count();
                }
            }
        }
        // Beside them are a goodput in each direction, four lines that compare the phases, four around the table, and one
        // that names --details.
        assert!(rows > 8 && rows + 11 <= 24, "{rows}");
    }
}
