//! Latency under load: a session on the idle path, then a session while a load runs.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use model::Nanos;
use netio::clock;

use super::{ProbePlan, ProbeResults};
use crate::Session;
use crate::instrument::intervals;
use crate::round_trip::{milliseconds, several};
use netio::stop::STOP_INTERVAL;
use record::{Measurement, Phase, Sample};

/// The time on a short path from the start of the load's streams to the first probe, in which TCP finds its rate.
const WARM_UP: Duration = Duration::from_secs(2);
/// The round trips by which the warm-up is longer on a long path, because TCP's window doubles in each of them.
const WARM_UP_ROUND_TRIPS: u32 = 4;
/// The time on a short path for which the load continues after the last probe, so that the probe's answer returns under
/// load.
const LEAD_OUT: Duration = Duration::from_secs(1);
/// The round trips by which the load continues longer on a long path.
const LEAD_OUT_ROUND_TRIPS: u32 = 1;

/// A load that runs for the given time and returns its measurement. It sends the moment at which its streams start to
/// run. It drops the sender without a message if they never do.
pub(crate) type BackgroundLoad<'a> =
    Box<dyn FnOnce(Duration, &Session, Sender<Nanos>) -> Measurement + Send + 'a>;

/// The times of a load beside which probes are sent. They begin when the streams of the load run: to connect them takes
/// many round trips of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadTimes {
    /// The time before the first probe, in whole seconds.
    pub(crate) warm_up: Duration,
    /// The time for which the load runs.
    pub(crate) lasting: Duration,
}

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
    let probing = intervals(plan.interval(), plan.trains());
    let round_trip = idle.median_rtt_ms().unwrap_or_default();
    let times = LoadTimes::of(probing, milliseconds(round_trip));
    let BesideLoad {
        probed,
        began,
        load,
    } = beside_load(load, times, session, probe)?;
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
    /// The result of probing. `None` if the load did not start, or ended before its warm-up did.
    pub(crate) probed: Option<P>,
    /// The start of the load's streams, or of the load if they did not start.
    pub(crate) began: Nanos,
    /// The measurement of the load.
    pub(crate) load: Measurement,
}

impl LoadTimes {
    /// Returns the times of a load beside which probes are sent for `probing`, on a path whose idle round trip takes
    /// `round_trip`.
    pub(crate) fn of(probing: Duration, round_trip: Duration) -> Self {
        let warm_up = WARM_UP + several(WARM_UP_ROUND_TRIPS, round_trip);
        let lead_out = LEAD_OUT + several(LEAD_OUT_ROUND_TRIPS, round_trip);
        Self {
            warm_up,
            lasting: warm_up + probing + lead_out,
        }
    }
}

/// Starts `load`, runs `probe` once the load is warm, and waits for the end of both.
///
/// # Errors
/// Returns the error of `probe`.
pub(crate) fn beside_load<P, E>(
    load: BackgroundLoad<'_>,
    times: LoadTimes,
    session: &Session,
    probe: impl FnOnce() -> Result<P, E>,
) -> Result<BesideLoad<P>, E> {
    let called = clock::now();
    let (sender, started) = mpsc::channel();
    thread::scope(|scope| {
        let load = scope.spawn(move || load(times.lasting, session, sender));
        let began = await_start(&started, session);
        let warm = Instant::now() + times.warm_up;
        while began.is_some()
            && Instant::now() < warm
            && !load.is_finished()
            && session.stop.cause().is_none()
        {
            thread::sleep(STOP_INTERVAL);
        }
        let is_loaded = began.is_some() && !load.is_finished();
        let probed = is_loaded.then(probe).transpose()?;
        let load = load
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(BesideLoad {
            probed,
            began: began.unwrap_or(called),
            load,
        })
    })
}

/// Waits until the load's streams run, and returns the moment. `None` means that the load failed before, or that the
/// measurement must stop. The time-outs of the load's connections and messages limit the wait.
fn await_start(started: &Receiver<Nanos>, session: &Session) -> Option<Nanos> {
    while session.stop.cause().is_none() {
        match started.recv_timeout(STOP_INTERVAL) {
            Ok(began) => return Some(began),
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    const IMMEDIATELY: LoadTimes = LoadTimes {
        warm_up: Duration::ZERO,
        lasting: Duration::ZERO,
    };

    #[test]
    fn a_load_on_a_long_path_has_round_trips_to_fill_it() {
        for (round_trip_ms, warm_up_s, lasting_s) in
            [(0, 2, 6), (20, 2, 6), (600, 5, 10), (2_600, 13, 20)]
        {
            let round_trip = Duration::from_millis(round_trip_ms);
            let expected = LoadTimes {
                warm_up: Duration::from_secs(warm_up_s),
                lasting: Duration::from_secs(lasting_s),
            };
            let times = LoadTimes::of(Duration::from_secs(3), round_trip);
            assert_eq!(times, expected, "{round_trip_ms} ms");
        }
    }

    #[test]
    fn probes_wait_for_the_streams_of_the_load() {
        let runs = &AtomicBool::new(false);
        let (probing, probed) = mpsc::channel();
        let load: BackgroundLoad<'_> = Box::new(move |_, _, started| {
            runs.store(true, Ordering::SeqCst);
            started.send(Nanos(7)).unwrap();
            probed.recv().unwrap();
            Measurement::default()
        });
        let beside = beside_load(load, IMMEDIATELY, &Session::default(), move || {
            probing.send(()).unwrap();
            Ok::<_, Infallible>(runs.load(Ordering::SeqCst))
        });
        let beside = beside.unwrap();
        assert_eq!(beside.probed, Some(true));
        assert_eq!(beside.began, Nanos(7));
    }

    #[test]
    fn no_probe_is_sent_if_the_load_fails_before_its_streams_run() {
        let load: BackgroundLoad<'_> = Box::new(|_, _, _| Measurement::failed("refused"));
        let probe = || Ok::<_, Infallible>(());
        let beside = beside_load(load, IMMEDIATELY, &Session::default(), probe).unwrap();
        assert!(beside.probed.is_none());
        assert_eq!(beside.load.failure.as_deref(), Some("refused"));
    }
}
