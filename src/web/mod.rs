//! The live API over HTTP and its web page, which `--listen` opens. It reaches links only through
//! `live`.
//!
//! One thread, "web", serves all connections. Longer work is done on other threads: checking
//! conditions and computing their effects. The packet path never waits for either: it receives
//! commands, and a reader that does not keep up is disconnected.

mod access;
mod capture;
mod change;
mod client;
mod compression;
mod connections;
mod events;
mod far_end_metrics;
mod far_end_tests;
pub(crate) mod fuzzing;
mod guard;
mod history;
mod links;
mod listen;
mod metrics;
mod openapi;
mod own_profiles;
mod page;
mod problem;
mod records;
mod run;
pub(crate) mod tls;

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use netio::heap::{self, FREE_PAGES_INTERVAL};
use tokio::sync::{Semaphore, oneshot};

pub(crate) use self::access::Access;
pub(crate) use self::guard::VERSION;
pub(crate) use self::listen::{LISTEN, Listen, Listening, TOKEN_FRAGMENT};
pub(crate) use self::openapi::document;
pub(crate) use self::records::{Records, path_segment};
pub(crate) use self::tls::{CertificateFiles, Pin};
use crate::far_end::WatchedFarEnd;
use crate::live::{Keeper, Links};
use crate::notes::warn;
use guard::RequestGuard;
use own_profiles::OwnProfile;

/// The time after the end within which the last events may leave.
const LINGER: Duration = Duration::from_millis(50);

/// The time that captures may take to end: 0.2 s until the packet path notices it, and the time to
/// send the rest.
const CAPTURES_END: Duration = Duration::from_millis(600);

/// The time after which a thread without work ends. It is shorter than [`FREE_PAGES_INTERVAL`], so that an idle link has
/// no such thread most of the time.
const IDLE_THREAD: Duration = Duration::from_secs(1);

/// The largest number of changes whose conditions are checked simultaneously.
const MOST_CHANGING: usize = 2;

/// Serves the API until this value is dropped.
pub(crate) struct WebServer {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    _keeper: Option<Keeper>,
}

/// The state that request handlers share.
#[derive(Clone)]
struct AppState {
    links: Links,
    /// The user's own profiles.
    own_profiles: Arc<[OwnProfile]>,
    /// Allows one long computation at a time: the effects of conditions, or the export of a
    /// history.
    computing: Arc<Semaphore>,
    /// Allows a few simultaneous checks of conditions.
    changing: Arc<Semaphore>,
    /// Allows the captures that may still start.
    captures: Arc<Semaphore>,
}

impl AppState {
    fn new(links: Links, captures: usize) -> Self {
        Self {
            links,
            own_profiles: Arc::default(),
            computing: Arc::new(Semaphore::new(1)),
            changing: Arc::new(Semaphore::new(MOST_CHANGING)),
            captures: Arc::new(Semaphore::new(captures)),
        }
    }
}

impl WebServer {
    /// Serves `links` at an open socket. The current network namespace therefore does not matter.
    ///
    /// # Errors
    /// Fails if no thread or descriptor is available.
    pub(crate) fn start(listening: Listening, links: Links) -> Result<Self> {
        let keeper = Keeper::start(links.clone())?;
        let app = AppState {
            own_profiles: Arc::clone(&listening.own_profiles),
            ..AppState::new(links, capture::MOST_AT_A_TIME as usize)
        };
        let captures = Arc::clone(&app.captures);
        let router = openapi::router().0.merge(page::router());
        let router = RequestGuard::of(&listening).around(router, app);
        Self::serve(listening, router, captures, Some(keeper))
    }

    /// Serves the reports of existing records.
    ///
    /// # Errors
    /// Fails as [`WebServer::start`] does.
    pub(crate) fn of_records(listening: Listening, records: Records) -> Result<Self> {
        let router = RequestGuard::of(&listening).around(records::router(), records);
        let captures = Arc::new(Semaphore::new(capture::MOST_AT_A_TIME as usize));
        Self::serve(listening, router, captures, None)
    }

    /// Serves the metrics and the running tests of a far end.
    ///
    /// # Errors
    /// Fails as [`WebServer::start`] does.
    pub(crate) fn of_far_end(listening: Listening, far_end: WatchedFarEnd) -> Result<Self> {
        let router = RequestGuard::of(&listening).around(far_end_metrics::router(), far_end);
        let captures = Arc::new(Semaphore::new(capture::MOST_AT_A_TIME as usize));
        Self::serve(listening, router, captures, None)
    }

    fn serve(
        listening: Listening,
        router: Router,
        captures: Arc<Semaphore>,
        keeper: Option<Keeper>,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1 + MOST_CHANGING)
            .thread_keep_alive(IDLE_THREAD)
            .build()
            .context("cannot start the API")?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("web".to_owned())
            .spawn(move || {
                let served = runtime.block_on(async {
                    tokio::select! {
                        served = connections::serve(listening, router) => served,
                        _ = linger(stopped, captures) => Ok(()),
                        never = tidy() => match never {},
                    }
                });
                if let Err(error) = served {
                    warn(format_args!("the API has stopped: {error:#}"));
                }
                runtime.shutdown_background();
            })
            .context("cannot start the thread of the API")?;
        Ok(Self {
            thread: Some(thread),
            stop: Some(stop),
            _keeper: keeper,
        })
    }
}

/// Returns free memory to the kernel again and again. Changes that the history keeps lie between the memory of requests that
/// have ended, and would hold it for hours.
async fn tidy() -> Infallible {
    loop {
        tokio::time::sleep(FREE_PAGES_INTERVAL).await;
        // It fails only while the runtime ends.
        let _ = tokio::task::spawn_blocking(heap::give_back_free_pages).await;
    }
}

/// Waits for the end of the server, and then until the last messages have left, which say that
/// links have ended.
async fn linger(stopped: oneshot::Receiver<()>, captures: Arc<Semaphore>) {
    // The sender is only dropped, never used.
    let _ = stopped.await;
    let all_ended = captures.acquire_many(capture::MOST_AT_A_TIME);
    // A client that reads nothing is not waited for.
    let _ = tokio::time::timeout(CAPTURES_END, all_ended).await;
    tokio::time::sleep(LINGER).await;
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // The thread may have ended by itself.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
