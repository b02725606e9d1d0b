//! What the service manager that started farwire is told (sd_notify(3)); without one, nothing happens.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// What is to be done is being done.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Something has changed that whoever looks after the service should see.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// It comes to its end.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    // A service manager that cannot be told will find out.
    let _ = sd_notify::notify(state);
}

/// Tells the service manager time and again that a worker is alive, by the worker's own answers: one that hangs
/// answers nothing, whatever other threads do.
pub(crate) struct Watchdog {
    /// After so long without word the service manager acts.
    interval: Duration,
    /// When the worker was last asked, and where its answer comes.
    asked: Instant,
    answer: Option<Receiver<()>>,
    given_up: bool,
}

impl Watchdog {
    /// None unless the service manager asks for it (`WATCHDOG_USEC`).
    pub(crate) fn asked_for() -> Option<Self> {
        Some(Self {
            interval: sd_notify::watchdog_enabled()?,
            asked: Instant::now(),
            answer: None,
            given_up: false,
        })
    }

    /// To be called often: asks the worker by `ask` three times an interval and passes its answers on. When none comes for an
    /// interval the service manager is told to act at once.
    pub(crate) fn look(&mut self, ask: impl FnOnce() -> Receiver<()>) {
        match self.answer.as_ref().map(Receiver::try_recv) {
            None if self.asked.elapsed() < self.interval / 3 => {}
            None => {
                self.answer = Some(ask());
                self.asked = Instant::now();
            }
            Some(Ok(())) => {
                self.answer = None;
                tell(&[NotifyState::Watchdog]);
            }
            Some(Err(TryRecvError::Empty)) if self.asked.elapsed() > self.interval => {
                if !std::mem::replace(&mut self.given_up, true) {
                    tell(&[NotifyState::WatchdogTrigger]);
                }
            }
            // One that has died is told of elsewhere.
            Some(Err(_)) => {}
        }
    }
}
