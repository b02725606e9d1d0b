//! Requests to stop a measurement early.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;

use crate::signals;

/// How long an instrument may wait without asking [`Stop::cause`] again.
pub const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// A time-out, a flag that signals raise, and perhaps one of something without which it is in vain; instruments ask every
/// [`STOP_INTERVAL`].
#[derive(Clone, Debug, Default)]
pub struct Stop {
    deadline: Option<(Instant, Duration)>,
    interrupted: Arc<AtomicBool>,
    in_vain: Option<(Arc<AtomicBool>, &'static str)>,
}

/// Why to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopCause {
    /// The time-out passed.
    #[error("not done within {} s", .0.as_secs_f64())]
    TimeOut(Duration),
    /// A signal arrived.
    #[error("interrupted by a signal")]
    Interrupted,
    /// Something failed without which it is in vain; says what.
    #[error("{0}")]
    InVain(&'static str),
}

impl Stop {
    /// Stops at SIGINT, SIGTERM and SIGHUP, which from now on do nothing else; a SIGHUP that was ignored stays so.
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

    /// Stops when `flag` rises.
    pub fn on(flag: Arc<AtomicBool>) -> Self {
        Self {
            interrupted: flag,
            ..Self::default()
        }
    }

    /// Stops `timeout` from now as well.
    pub fn within(&self, timeout: Duration) -> Self {
        Self {
            deadline: Some((Instant::now() + timeout, timeout)),
            ..self.clone()
        }
    }

    /// Stops also when `flag` rises, because of `why`.
    pub fn or(&self, flag: &Arc<AtomicBool>, why: &'static str) -> Self {
        Self {
            in_vain: Some((Arc::clone(flag), why)),
            ..self.clone()
        }
    }

    /// Why to stop now, if so.
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
    fn what_makes_it_vain_stops_it_also_within_a_time_out_and_is_said() {
        let failed = Arc::default();
        let stop = Stop::default().or(&failed, "the bed is gone");
        let stop = stop.within(Duration::from_secs(3600));
        assert_eq!(stop.cause(), None);
        failed.store(true, Ordering::Relaxed);
        assert_eq!(stop.cause(), Some(StopCause::InVain("the bed is gone")));
        assert_eq!(stop.cause().unwrap().to_string(), "the bed is gone");
        assert_eq!(Stop::default().cause(), None);
    }
}
