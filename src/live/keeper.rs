//! The thread that maintains running links: it ends leases and samples links that have observers.

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use netio::clock;

use super::{Links, lock};

/// The time for which the thread sleeps when it has nothing to do.
const IDLE: Duration = Duration::from_secs(3600);

/// Wakes the keeper's thread, because there may be something to do earlier than it knows.
#[derive(Debug, Default)]
pub(super) struct ExpiryAlarm {
    state: Mutex<AlarmState>,
    wakeup: Condvar,
}

#[derive(Debug, Default)]
struct AlarmState {
    is_woken: bool,
    must_end: bool,
}

/// The handle of the thread, which runs until the handle is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    thread: Option<JoinHandle<()>>,
    alarm: Arc<ExpiryAlarm>,
}

impl ExpiryAlarm {
    pub(super) fn ring(&self) {
        lock(&self.state).is_woken = true;
        self.wakeup.notify_one();
    }

    /// Waits at most `at_most` for a wakeup. Returns true if the keeper must end.
    fn wait(&self, at_most: Duration) -> bool {
        let is_quiet = |state: &mut AlarmState| !state.is_woken && !state.must_end;
        let waited = self
            .wakeup
            .wait_timeout_while(lock(&self.state), at_most, is_quiet);
        let (mut state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        state.is_woken = false;
        state.must_end
    }
}

impl Keeper {
    /// Starts to maintain `links`, including those that are added later.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn start(links: Links) -> Result<Self> {
        let alarm = Arc::clone(&links.0.alarm);
        let thread = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keep(&links))
            .context("starting the thread that looks after links")?;
        Ok(Self {
            thread: Some(thread),
            alarm,
        })
    }
}

fn keep(links: &Links) {
    loop {
        let now = clock::now();
        let next = links.all().iter().filter_map(|link| link.keep(now)).min();
        let passed = Duration::from_nanos(clock::now().0 - now.0);
        let sleep = next.unwrap_or(IDLE).saturating_sub(passed);
        if links.0.alarm.wait(sleep) {
            return;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        lock(&self.alarm.state).must_end = true;
        self.alarm.wakeup.notify_one();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic has already been printed.
            let _ = thread.join();
        }
    }
}
