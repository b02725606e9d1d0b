//! The measuring instruments. Each one runs in the calling thread's network namespace and returns one
//! [`Measurement`](record::Measurement).
#![forbid(unsafe_code)]

pub mod capacity;
mod codec;
pub mod connect;
mod echo_stats;
pub mod endpoint;
pub mod error;
pub mod external;
pub mod failure;
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
pub mod quality;
mod round_trip;
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

/// The surroundings of a measurement: when it stops, and where its progress and additional output go.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Ends the measurement early. Instruments check it at least every [`netio::stop::STOP_INTERVAL`].
    pub stop: Stop,
    /// Prints a line of progress per interval.
    pub live: Live,
    /// Whether the measurement runs in a test bed, where external tools run in their own process namespace.
    pub in_bed: bool,
    /// The far end's network namespace, if this program may enter it. Instruments read there what the far sockets
    /// dropped.
    pub far: Option<Arc<NetNs>>,
    /// Whether to produce more than the measurement: text for each interval, and another tool's JSON.
    pub details: bool,
    /// The file for the CSV of an instrument that writes one. A file named in the instrument's arguments takes
    /// precedence.
    pub csv: Option<Arc<Prepared>>,
}

/// Locks `mutex`, even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Returns a session that runs until `stop` and prints no progress.
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

    /// Returns the launcher for external tools.
    pub fn launcher(&self) -> Launcher {
        if self.in_bed {
            Launcher::InTestBed
        } else {
            Launcher::OnHost
        }
    }
}
