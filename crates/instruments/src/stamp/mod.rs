//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), with the extensions of RFC 8972.

pub mod args;
mod csv;
mod delay;
pub(crate) mod kernel;
pub(crate) mod load;
pub(crate) mod loaded_latency;
mod loss;
mod probe_log;
pub(crate) mod reflector;
mod results;
mod sender;
pub(crate) mod tlv;
mod trains;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use netio::clock::WallClock;

pub(crate) use self::csv::write as write_csv;
use self::loaded_latency::LoadTimes;
pub(crate) use self::results::ProbeResults;
use self::sender::Sender;
pub(crate) use self::sender::{EXTENDED_SIZE, ProbePlan};
use crate::Session;
use crate::endpoint::Local;
use crate::failure::Failure;

/// Returns for how much longer than the probes beside it a load of `farwire measure probe --under` runs, on a path whose idle
/// round trip takes `round_trip`.
pub fn load_around_probes(round_trip: Duration) -> Duration {
    LoadTimes::of(Duration::ZERO, round_trip).lasting
}

/// Runs one session with the reflector at `target`. Returns its results, and the reason if it ended early.
///
/// # Errors
/// Returns a failure if the near end cannot be bound, there is no route to the target, or the kernel does not stamp
/// packets.
pub(crate) fn probe(
    target: SocketAddr,
    local: Option<&Local>,
    plan: &ProbePlan,
    session: &Session,
) -> Result<(ProbeResults, Option<String>), Failure> {
    // The session has its own thread, because that thread gets a higher scheduling priority, which its child processes
    // would inherit.
    let probing = || Sender::open(target, local, plan).map(|sender| sender.run(session));
    let (log, failure) = thread::scope(|scope| {
        let joined = scope.spawn(probing).join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let clock = WallClock::now();
    let error_ms = clock.largest_error.0 as f64 / 1e6;
    let own_error_ms = clock.synchronised.then_some(error_ms);
    Ok((ProbeResults::new(log, own_error_ms), failure))
}
