//! The phases of the measurement: probes on the idle path, and probes beside each load.

use std::thread;
use std::time::{Duration, Instant};

use model::Nanos;

use super::args::QualityPlan;
use super::responsiveness::{self, Requests};
use super::results::{LoadedPhase, QualityResults};
use super::services::FarServices;
use crate::Session;
use crate::endpoint::Local;
use crate::error::Result;
use crate::failure::{Failure, check_stop};
use crate::iperf3::plan::{Iperf3Test, TestDirection};
use crate::stamp::load::{self, Load};
use crate::stamp::loaded_latency::{BesideLoad, LEAD_OUT, WARM_UP, beside_load, duration_of_load};
use crate::stamp::{self, EXTENDED_SIZE, ProbePlan, ProbeResults};
use record::Phase;
use stats::order_statistics;

/// The phases under load in their order, each with the direction of its load.
pub(super) const LOADED: [(Phase, TestDirection); 3] = [
    (Phase::LoadedDown, TestDirection::Down),
    (Phase::LoadedUp, TestDirection::Up),
    (Phase::LoadedBoth, TestDirection::Both),
];
/// The part of the time that the idle phase takes.
const IDLE_SHARE: u32 = 8;
/// The time after which a probe is lost. It is longer than the queues of a bloated path in both directions together.
const PROBE_TIMEOUT: Nanos = Nanos::from_secs(5);
/// The time between two readings of the load's kernel state.
const READING_INTERVAL: Duration = Duration::from_millis(500);
/// The queues count as empty after a load when the median round trip is at most this much above the idle one.
const SETTLED_MS: f64 = 10.0;
/// The longest wait for empty queues.
const LONGEST_SETTLING: Duration = Duration::from_secs(20);

/// The probes and loads of all phases.
#[derive(Clone, Debug)]
pub(super) struct PhasePlan {
    /// The time between two probes.
    interval: Nanos,
    /// The time in which the idle path is probed.
    idle: Duration,
    /// The time in which the path is probed beside each load.
    loaded: Duration,
    parallel: u32,
    congestion: Option<String>,
}

impl PhasePlan {
    /// Divides the time of `plan` among the phases.
    pub(super) fn of(plan: &QualityPlan) -> Self {
        let time = plan.time();
        let idle = time / IDLE_SHARE;
        let phases = u32::try_from(LOADED.len()).unwrap_or(u32::MAX);
        Self {
            interval: plan.interval,
            idle,
            loaded: ((time - idle) / phases).saturating_sub(WARM_UP + LEAD_OUT),
            parallel: plan.parallel,
            congestion: plan.congestion.clone(),
        }
    }

    /// Checks that this end may use the congestion control, if the plan names one.
    ///
    /// # Errors
    /// Returns an error that lists the names that may be used.
    pub(super) fn check(&self) -> Result<()> {
        self.load(TestDirection::Both).check()
    }

    /// Returns the probes on the idle path.
    pub(super) fn idle_probes(&self) -> ProbePlan {
        self.probes(self.idle)
    }

    /// Returns the probes beside each load.
    pub(super) fn loaded_probes(&self) -> ProbePlan {
        self.probes(self.loaded)
    }

    /// Returns the probes of a phase in which the path is probed for `lasting`.
    fn probes(&self, lasting: Duration) -> ProbePlan {
        let interval = Duration::from(self.interval).as_nanos().max(1);
        let count = lasting.as_nanos() / interval;
        ProbePlan {
            size: EXTENDED_SIZE,
            // The bounds of the time and of the interval's grammar allow more probes than anybody needs.
            count: u32::try_from(count).unwrap_or(u32::MAX).clamp(1, 1_000_000),
            interval: self.interval,
            timeout: PROBE_TIMEOUT,
        }
    }

    fn load(&self, direction: TestDirection) -> Load {
        Load::tcp(self.parallel, direction, self.congestion.clone())
    }

    /// Returns the load as a test whose warm-up is not in its figures.
    fn test(&self, direction: TestDirection) -> Iperf3Test {
        Iperf3Test {
            omit: WARM_UP,
            interval: READING_INTERVAL,
            ..self.load(direction).plan()
        }
    }
}

/// Runs all phases. A failure ends the measurement, which keeps the phases before it.
///
/// # Errors
/// Returns a failure if the near end cannot be bound, or the kernel does not stamp packets.
pub(super) fn measure(
    plan: &PhasePlan,
    services: &FarServices,
    local: Option<&Local>,
    session: &Session,
) -> Result<QualityResults, Failure> {
    session.live.line(format_args!("idle"));
    let probes = plan.idle_probes();
    let (idle, failure) = stamp::probe(services.stamp, local, &probes, session)?;
    let mut results = QualityResults::new(plan.clone(), idle, services.web.as_ref().err().cloned());
    results.failure = failure;
    for (number, (phase, direction)) in LOADED.into_iter().enumerate() {
        if results.failure.is_some() {
            break;
        }
        if number > 0 {
            results.settled &= settle(plan, services, local, session, &results.idle)?;
        }
        session.live.line(format_args!("{}", in_words(phase)));
        let loaded = loaded_phase(plan, services, local, session, phase, direction)?;
        results.add(loaded);
    }
    Ok(results)
}

/// Returns the name of a phase for people.
pub(super) fn in_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Loaded => "under load",
        Phase::LoadedDown => "load down",
        Phase::LoadedUp => "load up",
        Phase::LoadedBoth => "load both ways",
    }
}

fn loaded_phase(
    plan: &PhasePlan,
    services: &FarServices,
    local: Option<&Local>,
    session: &Session,
    phase: Phase,
    direction: TestDirection,
) -> Result<LoadedPhase, Failure> {
    let load = load::background(plan.test(direction), services.iperf3, local.cloned());
    let lasting = duration_of_load(plan.loaded);
    let BesideLoad {
        probed,
        began,
        load,
    } = beside_load(load, lasting, session, || {
        probe_and_request(plan, services, local, session)
    })?;
    let mut failure = load
        .failure
        .clone()
        .map(|cause| format!("the load: {cause}"));
    let (mut probes, mut requests) = (None, Requests::default());
    if let Some(((found, cause), made)) = probed {
        failure = cause.or(failure);
        probes = Some(found);
        requests = made;
    }
    Ok(LoadedPhase {
        phase,
        probes,
        requests,
        load,
        began,
        failure: failure.map(|cause| format!("{}: {cause}", in_words(phase))),
    })
}

/// A session of probes, with the reason if it ended early, and the requests that were made meanwhile.
type Probed = ((ProbeResults, Option<String>), Requests);

/// Sends the probes of a phase under load, and makes requests of one byte meanwhile.
fn probe_and_request(
    plan: &PhasePlan,
    services: &FarServices,
    local: Option<&Local>,
    session: &Session,
) -> Result<Probed, Failure> {
    thread::scope(|scope| {
        let web = services.web.as_ref().ok();
        let requests = web.map(|target| {
            scope.spawn(move || responsiveness::request(target, local, plan.loaded, session))
        });
        let probes = plan.loaded_probes();
        let probed = stamp::probe(services.stamp, local, &probes, session);
        let requests = requests.map(|requests| {
            let joined = requests.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Ok((probed?, requests.unwrap_or_default()))
    })
}

/// Waits until the queues that a load filled are empty. Returns whether they are.
///
/// # Errors
/// Returns the errors of probing, or an error if the measurement is stopped.
fn settle(
    plan: &PhasePlan,
    services: &FarServices,
    local: Option<&Local>,
    session: &Session,
    idle: &ProbeResults,
) -> Result<bool, Failure> {
    let few = ProbePlan {
        count: 3,
        ..plan.probes(Duration::ZERO)
    };
    let Some(most) = median_rtt(idle).map(|idle| idle + SETTLED_MS) else {
        return Ok(true);
    };
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_SETTLING {
        check_stop(&session.stop)?;
        let (found, _) = stamp::probe(services.stamp, local, &few, session)?;
        if median_rtt(&found).is_some_and(|rtt| rtt <= most) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the median round trip of a session as a program sees it, in milliseconds.
fn median_rtt(results: &ProbeResults) -> Option<f64> {
    let rtts: Vec<f64> = results.delays.iter().map(|delays| delays.rtt).collect();
    order_statistics::quantile(&order_statistics::sorted(&rtts), 0.5)
}
