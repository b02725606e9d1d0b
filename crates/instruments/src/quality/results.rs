//! The results of all phases as one measurement.

use std::collections::BTreeMap;

use model::Nanos;

use super::plan::{LOADED, PhasePlan};
use super::responsiveness::{self, Requests};
use crate::measured::{QUANTILE_INTERVAL, mean};
use crate::stamp::ProbeResults;
use record::metric_table::{MetricRow, MetricTable};
use record::{Direction, Figure, Measurement, Metric, Phase, Sample, Statistic};
use stats::order_statistics;

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];
/// The statistics of round trips.
const QUANTILES: &[Statistic] = &[Statistic::Median, Statistic::P95, Statistic::P99];
/// The round trips, the best first: between the kernels, and between the programs.
const ROUND_TRIPS: [Metric; 2] = [Metric::NetworkRttMs, Metric::RttMs];

/// The results of all phases.
#[derive(Debug)]
pub(super) struct QualityResults {
    plan: PhasePlan,
    /// The session on the idle path.
    pub(super) idle: ProbeResults,
    loaded: Vec<LoadedPhase>,
    /// The reason why no requests were made, if none were.
    no_web: Option<String>,
    /// Whether the queues were empty before each phase under load.
    pub(super) settled: bool,
    /// The reason why not all phases took place.
    pub(super) failure: Option<String>,
}

/// The results of a phase under load.
#[derive(Debug)]
pub(super) struct LoadedPhase {
    /// The phase.
    pub(super) phase: Phase,
    /// The session of probes. `None` if the load did not start.
    pub(super) probes: Option<ProbeResults>,
    /// The requests beside the load.
    pub(super) requests: Requests,
    /// The measurement of the load.
    pub(super) load: Measurement,
    /// The start of the load.
    pub(super) began: Nanos,
    /// The reason if something failed.
    pub(super) failure: Option<String>,
}

/// Returns the metrics of all phases.
pub(super) fn metrics() -> MetricTable {
    let of_probes = MetricTable::new([
        MetricRow::new(Metric::NetworkRttMs, QUANTILES)
            .headlines(&[Statistic::Median])
            .flent("Ping (ms) UDP"),
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::mean(Metric::LostPercent).toward(&DIRECTIONS),
        MetricRow::total(Metric::LostPackets),
        MetricRow::total(Metric::LostPackets).toward(&DIRECTIONS),
        MetricRow::total(Metric::SentPackets),
        MetricRow::total(Metric::ReceivedPackets),
        MetricRow::new(Metric::RttMs, QUANTILES),
    ]);
    let under_load = MetricTable::new([
        MetricRow::new(Metric::LatencyIncreaseMs, &[Statistic::Median]),
        MetricRow::new(Metric::LatencyIncreaseMs, &[Statistic::Median]).toward(&DIRECTIONS),
        MetricRow::mean(Metric::ResponsivenessPerMin).headline(),
    ]);
    let phases = LOADED.map(|(phase, _)| phase);
    let of_load = LOADED.into_iter().flat_map(|(phase, direction)| {
        let rows = MetricTable::new([
            MetricRow::mean(Metric::GoodputBitPerS).headline(),
            MetricRow::total(Metric::RetransmittedPackets),
        ]);
        rows.toward(direction.directions()).during(&[phase])
    });
    let all = [&[Phase::Idle][..], &phases[..]].concat();
    of_probes
        .during(&all)
        .and(under_load.during(&phases))
        .and(of_load)
}

impl QualityResults {
    /// Returns the results of the idle phase. `no_web` is the reason if no requests will be made.
    pub(super) fn new(plan: PhasePlan, idle: ProbeResults, no_web: Option<String>) -> Self {
        Self {
            plan,
            idle,
            loaded: Vec::new(),
            no_web,
            settled: true,
            failure: None,
        }
    }

    /// Adds a phase under load. Its failure is that of the measurement.
    pub(super) fn add(&mut self, phase: LoadedPhase) {
        self.failure = phase.failure.clone();
        self.loaded.push(phase);
    }

    /// Returns one measurement of all phases. Figures and samples state their phase. Samples of probes are numbered from
    /// the first phase on, and all times start at the first probe.
    pub(super) fn measurement(&self) -> Measurement {
        let start = self.idle.log.probes.first().map(|probe| probe.sent);
        let since = |moment: Nanos| {
            let span = start.map_or(0, |start| moment.0.saturating_sub(start.0));
            span as f64 / 1e9
        };
        let mut all = Measurement {
            failure: self.failure.clone(),
            ..Measurement::default()
        };
        let mut sent = self.idle.log.probes.len() as u64;
        let idle = self.idle.measurement(&self.plan.idle_probes());
        add(&mut all, Phase::Idle, idle, 0.0, 0);
        all.figures.extend(percentiles(&self.idle, Phase::Idle));
        for loaded in &self.loaded {
            if let Some(probes) = &loaded.probes {
                let began = probes
                    .log
                    .probes
                    .first()
                    .map_or(loaded.began, |one| one.sent);
                let measured = probes.measurement(&self.plan.loaded_probes());
                add(&mut all, loaded.phase, measured, since(began), sent);
                sent += probes.log.probes.len() as u64;
                all.samples.extend(loaded.request_samples(since(began)));
                all.figures.extend(percentiles(probes, loaded.phase));
                all.figures.extend(self.increases(probes, loaded.phase));
                all.figures.extend(loaded.responsiveness());
            }
            let load = Measurement {
                facts: renamed(&loaded.load.facts, "load_"),
                ..loaded.load.clone()
            };
            add(&mut all, loaded.phase, load, since(loaded.began), 0);
        }
        all.figures.retain(is_kept);
        all.facts.extend(self.facts());
        all
    }

    /// Returns by how much the median round trip and the median one-way times of a phase exceed those of the idle path.
    fn increases(&self, loaded: &ProbeResults, phase: Phase) -> Vec<Figure> {
        let between = |values: &dyn Fn(&ProbeResults) -> Vec<f64>| {
            Some(median(&values(loaded))? - median(&values(&self.idle))?)
        };
        let metric = self.round_trip();
        let increase = |added| Figure::new(Metric::LatencyIncreaseMs, Statistic::Median, added);
        let whole = between(&|results: &ProbeResults| round_trips(results, metric));
        let one_way = DIRECTIONS.map(|way| {
            // The offset between the two clocks cancels out.
            let added = between(&|results: &ProbeResults| one_way_times(results, way));
            added.map(|added| increase(added).toward(way))
        });
        let all = whole.map(increase).into_iter();
        let all = all.chain(one_way.into_iter().flatten());
        all.map(|figure| figure.during(phase)).collect()
    }

    /// Returns the best metric of round trips that all phases have.
    fn round_trip(&self) -> Metric {
        let loaded = self.loaded.iter().filter_map(|phase| phase.probes.as_ref());
        let mut all = loaded.chain([&self.idle]);
        let [network, program] = ROUND_TRIPS;
        match all.all(|results| !round_trips(results, network).is_empty()) {
            true => network,
            false => program,
        }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let metric = self.round_trip().name();
        let increase = format!(
            "{metric}: the median of the phase less that of the idle path; by direction from the differences of the two ends' clocks, \
             whose offset cancels out"
        );
        let percentiles = format!(
            "p95 and p99: of the probes of the phase, without an interval; median: its interval is {QUANTILE_INTERVAL}"
        );
        let responsiveness = match &self.no_web {
            Some(cause) => format!("not measured: {cause}"),
            None => "round trips per minute as in draft-ietf-ippm-responsiveness, with these differences: a fixed number of TCP streams of \
                     iperf3's protocol is the load; requests of one byte use HTTP/1.1 without TLS, ten a second; the round trips of the \
                     load are those of both kernels (TCP_INFO); all intervals after the warm-up count, and their stability is not \
                     checked"
                .to_owned(),
        };
        let mut facts = vec![
            ("increase".to_owned(), increase),
            ("percentiles".to_owned(), percentiles),
            ("responsiveness".to_owned(), responsiveness),
        ];
        for loaded in &self.loaded {
            if let Some(cause) = &loaded.requests.failure {
                let name = format!("{}_requests", loaded.phase.name());
                facts.push((name, format!("requests ended early: {cause}")));
            }
        }
        if !self.settled {
            let text = "queues were not empty before a phase: what an earlier load left in them is part of the results";
            facts.push(("settling".to_owned(), text.to_owned()));
        }
        facts
    }
}

impl LoadedPhase {
    /// Returns the responsiveness, if requests were answered.
    fn responsiveness(&self) -> Option<Figure> {
        let of_kernels = [Metric::TcpRttMs, Metric::TcpReceiverRttMs];
        let samples = self.load.samples.iter();
        let of_load = samples.filter(|sample| of_kernels.contains(&sample.metric));
        let of_load: Vec<f64> = of_load.map(|sample| sample.value).collect();
        let per_minute = responsiveness::round_trips_per_minute(&self.requests.answered, &of_load)?;
        Some(mean(Metric::ResponsivenessPerMin, per_minute).during(self.phase))
    }

    /// Returns the times of the requests, which began `shift_s` seconds after the first probe.
    fn request_samples(&self, shift_s: f64) -> Vec<Sample> {
        let of = |(request, index): (&responsiveness::TimedRequest, u64)| {
            let times = [
                (Metric::ConnectMs, request.times.connect),
                (Metric::FirstByteMs, request.times.exchange),
            ];
            times.map(|(metric, time)| Sample {
                phase: Some(self.phase),
                ..Sample::new(
                    shift_s + request.at_s,
                    metric,
                    index,
                    time.as_secs_f64() * 1e3,
                )
            })
        };
        let answered = self.requests.answered.iter();
        answered.zip(1..).flat_map(of).collect()
    }
}

/// Adds the results of a phase, whose times are shifted by `shift_s` seconds and whose numbers by `numbers`. A fact that
/// differs gets the name of the phase as a prefix.
fn add(all: &mut Measurement, phase: Phase, more: Measurement, shift_s: f64, numbers: u64) {
    let samples = more.samples.into_iter();
    all.samples.extend(samples.map(|sample| Sample {
        at_s: sample.at_s + shift_s,
        index: sample.index + numbers,
        phase: Some(phase),
        ..sample
    }));
    let figures = more.figures.into_iter();
    all.figures
        .extend(figures.map(|figure| figure.during(phase)));
    all.paces.extend(more.paces);
    for (fact, text) in more.facts {
        let name = match all.facts.get(&fact) {
            Some(known) if *known != text => format!("{}_{fact}", phase.name()),
            _ => fact,
        };
        all.facts.insert(name, text);
    }
}

/// Returns the facts with `prefix` in front of their names.
fn renamed(facts: &BTreeMap<String, String>, prefix: &str) -> BTreeMap<String, String> {
    let renamed = |(name, text): (&String, &String)| (format!("{prefix}{name}"), text.clone());
    facts.iter().map(renamed).collect()
}

/// Returns whether a figure is one that the instrument states.
fn is_kept(figure: &Figure) -> bool {
    let is_kept = match figure.metric {
        Metric::NetworkRttMs | Metric::RttMs => QUANTILES.contains(&figure.statistic),
        Metric::LostPercent
        | Metric::LostPackets
        | Metric::SentPackets
        | Metric::ReceivedPackets
        | Metric::GoodputBitPerS
        | Metric::RetransmittedPackets
        | Metric::LatencyIncreaseMs
        | Metric::ResponsivenessPerMin => true,
        _ => false,
    };
    // A percentile of the session's own has the number of independent probes that it would need.
    let is_estimate = figure.statistic.is_tail() && figure.effective_samples.is_some();
    is_kept && figure.stream.is_none() && !is_estimate
}

/// Returns the percentiles of a session's round trips. They describe its probes, and estimate nothing.
fn percentiles(results: &ProbeResults, phase: Phase) -> Vec<Figure> {
    let mut figures = Vec::new();
    for metric in ROUND_TRIPS {
        let sorted = order_statistics::sorted(&round_trips(results, metric));
        for (statistic, share) in [(Statistic::P95, 0.95), (Statistic::P99, 0.99)] {
            let value = order_statistics::percentile(&sorted, share);
            figures.extend(value.map(|value| Figure::new(metric, statistic, value).during(phase)));
        }
    }
    figures
}

/// Returns a session's round trips in milliseconds, in the order of sending.
fn round_trips(results: &ProbeResults, metric: Metric) -> Vec<f64> {
    let delays = results.delays.iter();
    match metric {
        Metric::NetworkRttMs => delays.filter_map(|delays| delays.network).collect(),
        _ => delays.map(|delays| delays.rtt).collect(),
    }
}

/// Returns a session's one-way times in milliseconds, as the differences of the two clocks.
fn one_way_times(results: &ProbeResults, direction: Direction) -> Vec<f64> {
    let delays = results.delays.iter();
    delays.filter_map(|delays| delays.raw(direction)).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    order_statistics::quantile(&order_statistics::sorted(values), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_figure_is_in_the_table() {
        let table = metrics();
        let goodput = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 1.0);
        let up = goodput.clone().toward(Direction::Up);
        assert!(table.has(&up.clone().during(Phase::LoadedUp)));
        assert!(table.has(&up.clone().during(Phase::LoadedBoth)));
        assert!(!table.has(&up.during(Phase::LoadedDown)));
        let p95 = Figure::new(Metric::NetworkRttMs, Statistic::P95, 1.0);
        assert!(table.has(&p95.clone().during(Phase::Idle)));
        assert!(is_kept(&p95) && !is_kept(&p95.effective_samples(9.0)));
        let mean = Figure::new(Metric::NetworkRttMs, Statistic::Mean, 1.0);
        assert!(!is_kept(&mean) && !is_kept(&goodput.stream(2)));
    }

    #[test]
    fn a_fact_that_differs_gets_the_name_of_its_phase() {
        let of = |text: &str| Measurement::default().with_fact("loss", text);
        let mut all = of("a");
        add(&mut all, Phase::LoadedUp, of("a"), 0.0, 0);
        add(&mut all, Phase::LoadedDown, of("b"), 0.0, 0);
        let names: Vec<&str> = all.facts.keys().map(String::as_str).collect();
        assert_eq!(names, ["loaded_down_loss", "loss"]);
    }
}
