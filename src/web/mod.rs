//! The live API over HTTP and its page, which `--listen` opens. It reaches links only through `live`.
//!
//! One thread, "web", serves all connections. What takes longer than a moment is done on other threads: conditions are checked there,
//! and what they mean is computed. The packet path never waits for either: it is sent commands, and a reader that does not keep up is
//! disconnected.

mod access;
mod capture;
mod change;
mod client;
mod connections;
mod events;
mod far_end_metrics;
pub(crate) mod fuzzing;
mod guard;
mod history;
mod links;
mod listen;
mod metrics;
mod openapi;
mod page;
mod problem;
mod records;
mod run;
mod tls;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use tokio::sync::{Semaphore, oneshot};

pub(crate) use self::access::Access;
pub(crate) use self::guard::VERSION;
pub(crate) use self::listen::{Listen, Listening, TOKEN_FRAGMENT};
pub(crate) use self::openapi::document;
pub(crate) use self::records::{Records, path_segment};
pub(crate) use self::tls::{CertificateFiles, Pin};
use crate::live::{Keeper, Links};
use crate::notes::warn;
use far_end_metrics::FarEndCounts;
use guard::RequestGuard;
use instruments::serve::Tally;

/// How long after the end the last events may leave.
const LINGER: Duration = Duration::from_millis(50);

/// How long captures may take to end: 0.2 s until the packet path looks at them, and what it takes to send the rest.
const CAPTURES_END: Duration = Duration::from_millis(600);

/// Changes whose conditions are checked at a time.
const MOST_CHANGING: usize = 2;

/// Serves the API until it is dropped.
pub(crate) struct WebServer {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    _keeper: Option<Keeper>,
}

/// What handlers know.
#[derive(Clone)]
struct AppState {
    links: Links,
    /// One at a time: what conditions mean is computed, or a history made into a file, which takes a while.
    computing: Arc<Semaphore>,
    /// A few at a time: the conditions of changes are checked.
    changing: Arc<Semaphore>,
    /// Captures that may still begin.
    captures: Arc<Semaphore>,
}

impl WebServer {
    /// Serves `links` at sockets that are open already, so that it does not matter which network namespace this is by now.
    ///
    /// # Errors
    /// The machine lets no threads or descriptors be had.
    pub(crate) fn start(listening: Listening, links: Links) -> Result<Self> {
        let keeper = Keeper::start(links.clone())?;
        let app = AppState {
            links,
            computing: Arc::new(Semaphore::new(1)),
            changing: Arc::new(Semaphore::new(MOST_CHANGING)),
            captures: Arc::new(Semaphore::new(capture::MOST_AT_A_TIME as usize)),
        };
        let captures = Arc::clone(&app.captures);
        let router = openapi::router().0.merge(page::router());
        let router = RequestGuard::of(&listening).around(router, app);
        Self::serve(listening, router, captures, Some(keeper))
    }

    /// Serves the reports of past records.
    ///
    /// # Errors
    /// As [`WebServer::start`].
    pub(crate) fn of_records(listening: Listening, records: Records) -> Result<Self> {
        let router = RequestGuard::of(&listening).around(records::router(), records);
        let captures = Arc::new(Semaphore::new(capture::MOST_AT_A_TIME as usize));
        Self::serve(listening, router, captures, None)
    }

    /// Serves the metrics of a far end.
    ///
    /// # Errors
    /// As [`WebServer::start`].
    pub(crate) fn of_far_end(
        listening: Listening,
        counts: impl Fn() -> Tally + Send + Sync + 'static,
    ) -> Result<Self> {
        let counts = FarEndCounts(Arc::new(counts));
        let router = RequestGuard::of(&listening).around(far_end_metrics::router(), counts);
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
            .build()
            .context("starting the API")?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("web".to_owned())
            .spawn(move || {
                let served = runtime.block_on(async {
                    tokio::select! {
                        served = connections::serve(listening, router) => served,
                        _ = linger(stopped, captures) => Ok(()),
                    }
                });
                if let Err(error) = served {
                    warn(format_args!("the API has ended: {error:#}"));
                }
                runtime.shutdown_background();
            })
            .context("starting the API's thread")?;
        Ok(Self {
            thread: Some(thread),
            stop: Some(stop),
            _keeper: keeper,
        })
    }
}

/// Waits until all is over, and for what was said last to leave: that links have ended.
async fn linger(stopped: oneshot::Receiver<()>, captures: Arc<Semaphore>) {
    // The sender is dropped, never used.
    let _ = stopped.await;
    let all_ended = captures.acquire_many(capture::MOST_AT_A_TIME);
    // One whose client takes nothing is not waited for.
    let _ = tokio::time::timeout(CAPTURES_END, all_ended).await;
    tokio::time::sleep(LINGER).await;
}

impl Drop for WebServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
