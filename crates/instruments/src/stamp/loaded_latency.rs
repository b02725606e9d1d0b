//! Latency under load: a session on the idle path, then a session while a load runs.

use std::thread;
use std::time::{Duration, Instant};

use model::Nanos;
use netio::clock;

use super::{ProbePlan, ProbeResults};
use crate::Session;
use crate::instrument::intervals;
use netio::stop::STOP_INTERVAL;
use record::{Measurement, Phase, Sample};

/// The time from the start of the load to the first probe, in which TCP finds its rate.
pub(crate) const WARM_UP: Duration = Duration::from_secs(2);
/// The time for which the load continues after the last probe, so that the probe's answer returns under load.
pub(crate) const LEAD_OUT: Duration = Duration::from_secs(1);

/// A load that runs for the given time and returns its measurement.
pub(crate) type BackgroundLoad<'a> = Box<dyn FnOnce(Duration, &Session) -> Measurement + Send + 'a>;

/// The two sessions, and the measurement of the load.
#[derive(Debug)]
pub(crate) struct LoadedLatency {
    /// The results of the first session.
    pub(crate) idle: ProbeResults,
    /// The results of the second session. `None` if the load did not start, or the first session failed.
    pub(crate) loaded: Option<ProbeResults>,
    load: Option<(Nanos, Measurement)>,
    failure: Option<String>,
}

/// Runs `probe` once on the idle path, and once while `load` runs.
///
/// # Errors
/// Returns the errors of `probe`.
pub(crate) fn measure<E>(
    plan: &ProbePlan,
    load: BackgroundLoad<'_>,
    session: &Session,
    probe: impl Fn() -> Result<(ProbeResults, Option<String>), E>,
) -> Result<LoadedLatency, E> {
    let (idle, failure) = probe()?;
    if failure.is_some() {
        return Ok(LoadedLatency {
            idle,
            loaded: None,
            load: None,
            failure,
        });
    }
    let lasting = duration_of_load(intervals(plan.interval(), plan.count));
    let BesideLoad {
        probed,
        began,
        load,
    } = beside_load(load, lasting, session, probe)?;
    let (loaded, probing) = probed.unzip();
    let failure = load
        .failure
        .as_ref()
        .map(|cause| format!("the load: {cause}"));
    Ok(LoadedLatency {
        idle,
        loaded,
        failure: probing.flatten().or(failure),
        load: Some((began, load)),
    })
}

/// The result of probing beside a load, and the measurement of the load.
#[derive(Debug)]
pub(crate) struct BesideLoad<P> {
    /// The result of probing. `None` if the load ended before its warm-up did.
    pub(crate) probed: Option<P>,
    /// The start of the load.
    pub(crate) began: Nanos,
    /// The measurement of the load.
    pub(crate) load: Measurement,
}

/// Returns how long a load lasts beside which probes are sent for `probing`.
pub(crate) fn duration_of_load(probing: Duration) -> Duration {
    WARM_UP + probing + LEAD_OUT
}

/// Starts `load` for `lasting`, runs `probe` once the load is warm, and waits for the end of both.
///
/// # Errors
/// Returns the error of `probe`.
pub(crate) fn beside_load<P, E>(
    load: BackgroundLoad<'_>,
    lasting: Duration,
    session: &Session,
    probe: impl FnOnce() -> Result<P, E>,
) -> Result<BesideLoad<P>, E> {
    let began = clock::now();
    thread::scope(|scope| {
        let load = scope.spawn(|| load(lasting, session));
        let warm = Instant::now() + WARM_UP;
        while Instant::now() < warm && !load.is_finished() && session.stop.cause().is_none() {
            thread::sleep(STOP_INTERVAL);
        }
        let probed = (!load.is_finished()).then(probe).transpose()?;
        let load = load
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(BesideLoad {
            probed,
            began,
            load,
        })
    })
}

impl LoadedLatency {
    /// Returns one measurement of both sessions. Each figure states its phase. Samples of the second session continue
    /// the numbers of the first one's, and all times start at the first probe of the first session.
    pub(crate) fn measurement(self, plan: &ProbePlan) -> Measurement {
        let mut all = self.idle.measurement(plan);
        for figure in &mut all.figures {
            figure.phase = Some(Phase::Idle);
        }
        for sample in &mut all.samples {
            sample.phase = Some(Phase::Idle);
        }
        let first = |results: &ProbeResults| results.log.probes.first().map(|probe| probe.sent);
        let start = first(&self.idle);
        let later = |moment: Option<Nanos>| {
            let span = start
                .zip(moment)
                .map(|(start, moment)| moment.0.saturating_sub(start.0));
            span.unwrap_or_default() as f64 / 1e9
        };
        if let Some(loaded) = &self.loaded {
            let began = first(loaded);
            let mut measured = loaded.measurement(plan);
            for sample in &mut measured.samples {
                sample.index += self.idle.log.probes.len() as u64;
            }
            add(&mut all, measured, later(began), "loaded");
        }
        if let Some((began, load)) = self.load {
            add(&mut all, load, later(Some(began)), "load");
        }
        all.failure = self.failure;
        all
    }
}

/// Adds the results under load, whose times are shifted by `shift_s` seconds. A fact that differs gets `name` as a
/// prefix.
fn add(all: &mut Measurement, more: Measurement, shift_s: f64, name: &str) {
    all.samples
        .extend(more.samples.into_iter().map(|sample| Sample {
            at_s: sample.at_s + shift_s,
            phase: Some(Phase::Loaded),
            ..sample
        }));
    all.paces.extend(more.paces);
    let figures = more.figures.into_iter();
    all.figures
        .extend(figures.map(|figure| figure.during(Phase::Loaded)));
    for (fact, text) in more.facts {
        if all.facts.get(&fact) != Some(&text) {
            all.facts.insert(format!("{name}_{fact}"), text);
        }
    }
}
