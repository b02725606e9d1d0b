//! Requests to stop a measurement early.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;

use crate::signals;

/// The longest time for which an instrument may wait between two calls of [`Stop::cause`].
pub const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// A request to stop: a time-out, a flag that signals set, and optionally a flag that makes the measurement useless.
/// Instruments check it every [`STOP_INTERVAL`].
#[derive(Clone, Debug, Default)]
pub struct Stop {
    deadline: Option<(Instant, Duration)>,
    interrupted: Arc<AtomicBool>,
    in_vain: Option<(Arc<AtomicBool>, &'static str)>,
}

/// The reason to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopCause {
    /// The time-out has passed.
    #[error("not done within {} s", .0.as_secs_f64())]
    TimeOut(Duration),
    /// A signal has arrived.
    #[error("interrupted by a signal")]
    Interrupted,
    /// Something failed that the measurement depends on; the text says what.
    #[error("{0}")]
    InVain(&'static str),
}

impl Stop {
    /// Creates a request that SIGINT, SIGTERM and SIGHUP set. From now on these signals do nothing else; a SIGHUP that
    /// was ignored remains so.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn on_signals() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [vec![SIGINT], signals::terminating()].concat() {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self::on(flag))
    }

    /// Creates a request that `flag` sets.
    pub fn on(flag: Arc<AtomicBool>) -> Self {
        Self {
            interrupted: flag,
            ..Self::default()
        }
    }

    /// Adds a time-out, which starts now.
    pub fn within(&self, timeout: Duration) -> Self {
        Self {
            deadline: Some((Instant::now() + timeout, timeout)),
            ..self.clone()
        }
    }

    /// Adds `flag`, which stops the measurement for the reason `why`.
    pub fn or(&self, flag: &Arc<AtomicBool>, why: &'static str) -> Self {
        Self {
            in_vain: Some((Arc::clone(flag), why)),
            ..self.clone()
        }
    }

    /// Returns the reason to stop now, if there is one.
    pub fn cause(&self) -> Option<StopCause> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Some(StopCause::Interrupted);
        }
        if let Some((failed, why)) = &self.in_vain
            && failed.load(Ordering::Relaxed)
        {
            return Some(StopCause::InVain(why));
        }
        let (deadline, timeout) = self.deadline?;
        (Instant::now() >= deadline).then_some(StopCause::TimeOut(timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_dependency_stops_it_before_the_time_out_with_its_reason() {
        let failed = Arc::default();
        let stop = Stop::default()
            .or(&failed, "the bed is gone")
            .within(Duration::from_secs(3600));
        assert_eq!(stop.cause(), None);
        failed.store(true, Ordering::Relaxed);
        assert_eq!(stop.cause(), Some(StopCause::InVain("the bed is gone")));
        assert_eq!(stop.cause().unwrap().to_string(), "the bed is gone");
        assert_eq!(Stop::default().cause(), None);
    }
}
