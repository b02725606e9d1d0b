//! Reports the state of farwire to the service manager that started it (sd_notify(3)). Without a
//! service manager, nothing happens.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Reports that the service has started.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports a change that an operator of the service should see.
pub(crate) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Reports that the service is about to end.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    // A service manager that cannot be reached notices the end of the process itself.
    let _ = sd_notify::notify(state);
}

/// Tells the service manager regularly that a worker is alive. Only answers of the worker itself
/// count: a worker that hangs does not answer, whatever other threads do.
pub(crate) struct Watchdog {
    /// The service manager acts after this time without a report.
    interval: Duration,
    /// The time of the last request to the worker.
    asked_at: Instant,
    answer: Option<Receiver<()>>,
    reported_dead: bool,
}

impl Watchdog {
    /// Returns `None` unless the service manager asks for a watchdog (`WATCHDOG_USEC`).
    pub(crate) fn from_environment() -> Option<Self> {
        Some(Self {
            interval: sd_notify::watchdog_enabled()?,
            asked_at: Instant::now(),
            answer: None,
            reported_dead: false,
        })
    }

    /// Asks the worker with `ask` three times per interval and passes its answers on. If an answer
    /// takes longer than an interval, tells the service manager to act immediately. The caller
    /// calls this often.
    pub(crate) fn check(&mut self, ask: impl FnOnce() -> Receiver<()>) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            None if self.asked_at.elapsed() < self.interval / 3 => {}
            None => {
                self.answer = Some(ask());
                self.asked_at = Instant::now();
            }
            Some(Ok(())) => {
                self.answer = None;
                notify(&[NotifyState::Watchdog]);
            }
            Some(Err(TryRecvError::Empty)) if self.asked_at.elapsed() > self.interval => {
                if !std::mem::replace(&mut self.reported_dead, true) {
                    notify(&[NotifyState::WatchdogTrigger]);
                }
            }
            // Another check reports a worker that has died.
            Some(Err(_)) => {}
        }
    }
}
