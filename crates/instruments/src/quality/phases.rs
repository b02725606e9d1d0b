//! The phases of the measurement: probes on the idle path, and probes beside each load.

use std::thread;
use std::time::{Duration, Instant};

use super::plan::{LOADED, PhasePlan, in_words};
use super::responsiveness::{self, Requests};
use super::results::{LoadedPhase, QualityResults};
use super::services::FarServices;
use crate::Session;
use crate::endpoint::Local;
use crate::failure::Failure;
use crate::iperf3::plan::TestDirection;
use crate::stamp::loaded_latency::{BesideLoad, beside_load};
use crate::stamp::{self, ProbePlan, ProbeResults, load};
use record::Phase;

/// The queues count as empty after a load when the median round trip is at most this much above the idle one.
const SETTLED_MS: f64 = 10.0;
/// The longest wait for empty queues.
const LONGEST_SETTLING: Duration = Duration::from_secs(20);

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
    let plan = &plan.on_path(idle.median_rtt_ms().unwrap_or_default());
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

fn loaded_phase(
    plan: &PhasePlan,
    services: &FarServices,
    local: Option<&Local>,
    session: &Session,
    phase: Phase,
    direction: TestDirection,
) -> Result<LoadedPhase, Failure> {
    let load = load::background(plan.test(direction), services.iperf3, local.cloned());
    let BesideLoad {
        probed,
        began,
        load,
    } = beside_load(load, plan.load_times(), session, || {
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
/// Returns the errors of probing.
fn settle(
    plan: &PhasePlan,
    services: &FarServices,
    local: Option<&Local>,
    session: &Session,
    idle: &ProbeResults,
) -> Result<bool, Failure> {
    let few = ProbePlan {
        count: 3,
        ..plan.idle_probes()
    };
    let Some(most) = idle.median_rtt_ms().map(|idle| idle + SETTLED_MS) else {
        return Ok(true);
    };
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_SETTLING && session.stop.cause().is_none() {
        let (found, _) = stamp::probe(services.stamp, local, &few, session)?;
        if found.median_rtt_ms().is_some_and(|rtt| rtt <= most) {
            return Ok(true);
        }
    }
    Ok(false)
}
