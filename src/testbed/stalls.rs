//! Detects stalls, which are times in which the host did not run the threads of a measurement
//! although they were ready. Also detects other programs that keep the processors busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use record::lateness::LateBudget;

use super::processor_time::{ProcessorShares, ProcessorTime};

/// The time for which the watching thread sleeps.
const SLEEP: Duration = Duration::from_millis(5);
/// A thread that wakes up later than this was not run in time, unless the late budget is larger.
/// Waiting for a turn on a processor that a few threads share takes less.
const STALL: Duration = Duration::from_millis(10);
/// The largest share of a run that may pass in stalls. Above it, the results say more about the
/// machine than about the link.
const MOST: f64 = 0.05;
/// The consequence of a starved host, and the advice.
const CONSEQUENCE: &str = "so the figures may show this machine instead of the network: end other programs, or use a machine that is less busy, then \
     measure again";

/// A watch for stalls. Its thread only sleeps, like those of instruments, and counts how late it is
/// woken.
///
/// A loaded machine is good enough as long as it runs an ordinary thread within 10 ms, or within
/// the late budget of packets if that is larger.
#[derive(Debug)]
pub(crate) struct StallWatch {
    began: Instant,
    limit: Duration,
    before: Option<ProcessorTime>,
    stalled_ns: Arc<AtomicU64>,
    _stop: Sender<()>,
}

/// The stalls of the host during a run.
#[derive(Clone, Copy, Debug)]
struct HostStalls {
    elapsed: Duration,
    /// The duration above which a delay counts as a stall.
    limit: Duration,
    stalled: Duration,
    /// The use of the processors, if the host reports it.
    processors: Option<ProcessorShares>,
}

impl StallWatch {
    /// Watches from now on until the value is dropped. `late_budget` is that of the experiment.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn begin(late_budget: LateBudget) -> Result<Self> {
        let limit = limit(late_budget);
        let stalled_ns = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = channel::<()>();
        let count = Arc::clone(&stalled_ns);
        let watch = move || {
            let mut asleep = Instant::now();
            while stopped.recv_timeout(SLEEP) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                let late = now.duration_since(asleep).saturating_sub(SLEEP);
                if late > limit {
                    let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
                    count.fetch_add(late, Ordering::Relaxed);
                }
                asleep = now;
            }
        };
        let thread = thread::Builder::new().name("stalls".to_owned());
        thread.spawn(watch).context("starting the stall watch")?;
        Ok(Self {
            began: Instant::now(),
            limit,
            before: ProcessorTime::now(),
            stalled_ns,
            _stop: stop,
        })
    }

    /// Returns the reason why the measurements up to now cannot be trusted, if there is one, with advice.
    /// It is the same sentence in every command.
    pub(crate) fn spoilt(&self) -> Option<String> {
        let processors = self.before.zip(ProcessorTime::now());
        let stalls = HostStalls {
            elapsed: self.began.elapsed(),
            limit: self.limit,
            stalled: Duration::from_nanos(self.stalled_ns.load(Ordering::Relaxed)),
            processors: processors.and_then(|(before, now)| now.since(before)),
        };
        stalls.in_words()
    }
}

/// Returns the limit of stalls. A late budget above [`STALL`] allows threads to be late by the same
/// time.
fn limit(late_budget: LateBudget) -> Duration {
    STALL.max(Duration::from_nanos(late_budget.time().0))
}

impl HostStalls {
    /// Returns what spoilt the run, what follows from it, and what to do.
    fn in_words(self) -> Option<String> {
        self.spoil().map(|cause| format!("{cause}, {CONSEQUENCE}"))
    }

    fn spoil(self) -> Option<String> {
        let share = self.stalled.as_secs_f64() / self.elapsed.as_secs_f64();
        if share <= MOST {
            return self.starved();
        }
        let stolen = self
            .processors
            .map(|shares| shares.stolen)
            .filter(|share| *share >= 0.001)
            .map(|share| {
                format!(
                    "; other virtual machines used {:.1} % of the processor time",
                    100.0 * share
                )
            });
        Some(format!(
            "the host was starved of CPU: a thread waited for {:.1} % of the run, in stalls of more than {} ms{}",
            100.0 * share,
            self.limit.as_nanos() as f64 / 1e6,
            stolen.unwrap_or_default()
        ))
    }

    /// Returns a sentence if other programs kept the processors busy. A thread then waits for
    /// milliseconds until its turn, which is not a stall but affects every result. A late budget
    /// above [`STALL`] allows that as well.
    fn starved(self) -> Option<String> {
        let shares = self.processors.filter(|_| self.limit <= STALL)?;
        shares.starved()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(stalled_ms: u64, stolen: Option<f64>) -> HostStalls {
        let shares = |stolen| ProcessorShares {
            idle: 0.5,
            stolen,
            others: 0.1,
        };
        HostStalls {
            elapsed: Duration::from_secs(1),
            limit: STALL,
            stalled: Duration::from_millis(stalled_ms),
            processors: stolen.map(shares),
        }
    }

    #[test]
    fn a_run_is_spoilt_by_stalls_of_more_than_a_twentieth_of_it() {
        assert_eq!(stalls(50, Some(0.9)).spoil(), None);
        let cause = stalls(71, Some(0.123)).spoil().unwrap();
        assert!(cause.contains("for 7.1 % of the run"), "{cause}");
        assert!(
            cause.contains("used 12.3 % of the processor time"),
            "{cause}"
        );
        let cause = stalls(71, None).spoil().unwrap();
        assert!(!cause.contains("virtual"), "{cause}");
    }

    #[test]
    fn a_cause_is_followed_by_what_it_means_and_what_to_do() {
        assert_eq!(stalls(50, None).in_words(), None);
        assert_eq!(
            stalls(71, None).in_words().unwrap(),
            "the host was starved of CPU: a thread waited for 7.1 % of the run, in stalls of more than 10 ms, so the figures may show \
             this machine instead of the network: end other programs, or use a machine that is less busy, then measure again"
        );
    }

    #[test]
    fn a_run_beside_other_programs_that_leave_nothing_idle_is_spoilt_without_a_stall() {
        let beside = |budget: &str| HostStalls {
            limit: limit(budget.parse().unwrap()),
            processors: Some(ProcessorShares {
                idle: 0.0,
                stolen: 0.0,
                others: 0.5,
            }),
            ..stalls(0, None)
        };
        let cause = beside("1ms").spoil().unwrap();
        assert!(
            cause.contains("other programs used 50 % of the processor time, and 0 % was idle"),
            "{cause}"
        );
        // With such a late budget, an experiment does not measure time.
        assert_eq!(beside("20ms").spoil(), None);
    }

    #[test]
    fn a_late_budget_above_10_ms_says_what_is_a_stall_and_the_cause_names_it() {
        for (budget, expected) in [
            ("1ns", "of more than 10 ms"),
            ("10ms", "of more than 10 ms"),
            ("12.5ms", "of more than 12.5 ms"),
            ("1s", "of more than 1000 ms"),
        ] {
            let stalls = HostStalls {
                limit: limit(budget.parse().unwrap()),
                ..stalls(71, None)
            };
            let cause = stalls.spoil().unwrap();
            assert!(cause.ends_with(expected), "{budget}: {cause}");
        }
    }
}
