//! STAMP, the Simple Two-way Active Measurement Protocol (RFC 8762), with the extensions of RFC 8972.

pub mod args;
mod csv;
mod delay;
pub(crate) mod kernel;
pub(crate) mod loaded_latency;
mod loss;
mod probe_log;
pub(crate) mod reflector;
mod results;
mod sender;
pub(crate) mod tlv;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::thread;

use netio::clock::WallClock;

pub(crate) use self::csv::write as write_csv;
pub(crate) use self::results::ProbeResults;
pub(crate) use self::sender::ProbePlan;
use self::sender::Sender;
use crate::Session;
use crate::endpoint::Local;
use crate::failure::Failure;

/// One session with the reflector at `target`: what came of it, and why it ended early if it did.
///
/// # Errors
/// The near end cannot be bound, there is no way to the target, or this machine's kernel stamps no packets.
pub(crate) fn probe(
    target: SocketAddr,
    local: Option<&Local>,
    plan: &ProbePlan,
    session: &Session,
) -> Result<(ProbeResults, Option<String>), Failure> {
    // In a thread of its own: it is scheduled before others, and what it starts would be, too.
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
