//! The instruments: each acts in the calling thread's network namespace and hands back one [`Measurement`](record::Measurement).
#![forbid(unsafe_code)]

pub mod capacity;
mod codec;
pub mod connect;
mod echo_stats;
pub mod endpoint;
pub mod error;
pub mod external;
pub mod failure;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod http;
mod instrument;
pub mod iperf3;
pub mod live;
pub mod measure;
mod measured;
pub mod messages;
mod meter;
pub mod output;
pub mod ping;
mod seen_numbers;
pub mod serve;
mod service;
pub mod stamp;
pub mod tls;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netio::netns::NetNs;
use netio::stop::Stop;

use external::Launcher;
pub use live::Live;
use output::Prepared;

/// What an instrument is used within: when to end, and who looks on.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Asked for at least every [`netio::stop::STOP_INTERVAL`].
    pub stop: Stop,
    /// Told a line an interval.
    pub live: Live,
    /// Whether external tools run in a test bed, contained.
    pub in_bed: bool,
    /// The far end's network namespace, where this program may enter it: what its sockets dropped is read there.
    pub far: Option<Arc<NetNs>>,
    /// Whether somebody is shown more than the measurement: each interval in words, and another tool's JSON.
    pub details: bool,
    /// Where an instrument with a CSV of its own writes it, unless its arguments say where.
    pub csv: Option<Arc<Prepared>>,
}

/// Locks `mutex`; what a thread did until it panicked stands.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Without an onlooker, until `stop`.
    pub fn quiet(stop: Stop) -> Self {
        Self {
            stop,
            live: Live::quiet(),
            in_bed: false,
            far: None,
            details: false,
            csv: None,
        }
    }

    /// What starts external tools.
    pub fn launcher(&self) -> Launcher {
        if self.in_bed {
            Launcher::InTestBed
        } else {
            Launcher::OnHost
        }
    }
}
