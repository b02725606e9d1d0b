//! Processors: the CPU time of threads, and the processors on which they run.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};

/// Returns the CPU time of the calling thread since it started: in user space, and in the kernel on its behalf.
///
/// The kernel scales the two parts so that their sum is exact (cputime_adjust in kernel/sched/cputime.c).
pub fn of_this_thread() -> (Duration, Duration) {
    getrusage(UsageWho::RUSAGE_THREAD).map_or_else(
        |_| Default::default(),
        |usage| (duration(usage.user_time()), duration(usage.system_time())),
    )
}

/// The number of processors that were available to this process before any thread was bound to one.
static AVAILABLE: OnceLock<usize> = OnceLock::new();

/// Returns the number of processors that this process may use, at least 1. Binding a thread to one of them
/// ([`run_on`]) does not change it.
pub fn available() -> usize {
    *AVAILABLE.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the numbers of the processors on which the calling thread may run, in ascending order.
///
/// # Errors
/// The kernel refuses, for which no cause is known.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    let is_allowed = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    Ok((0..CpuSet::count()).filter(is_allowed).collect())
}

/// Makes the calling thread run on one processor only.
///
/// # Errors
/// There is no such processor, or this process may not use it.
pub fn run_on(cpu: usize) -> io::Result<()> {
    // The number is needed later, when this thread would see only one.
    available();
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// The clock of one thread's CPU time, which other threads can read while it runs.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(ClockId);

impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub fn of_this_thread() -> Self {
        // The number is CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK, as in pthread_getcpuclockid(3).
        Self(ClockId::from_raw((!gettid().as_raw() << 3) | 6))
    }

    /// Returns the CPU time that the thread has used; `None` if it has ended.
    pub fn elapsed(self) -> Option<Duration> {
        clock_gettime(self.0).ok().map(Duration::from)
    }
}

fn duration(time: TimeVal) -> Duration {
    let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
    Duration::from_micros(micros.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_cpu_time_of_another_thread_can_be_read_until_it_ends() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(ThreadClock::of_this_thread()).unwrap();
            let _ = ended.recv();
        });
        let clock = told.recv().unwrap();
        assert!(clock.elapsed().is_some());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_runs_on_the_processor_that_it_is_bound_to_and_the_number_of_processors_stays() {
        let before = available();
        let all = allowed().unwrap();
        // A control group may allow less time than all these processors have.
        assert!((1..=all.len()).contains(&before));
        let last = *all.last().unwrap();
        let thread = std::thread::spawn(move || {
            run_on(last).unwrap();
            (allowed().unwrap(), available())
        });
        assert_eq!(thread.join().unwrap(), (vec![last], before));
        assert!(run_on(CpuSet::count()).is_err());
    }

    #[test]
    fn work_takes_cpu_time() {
        let clock = ThreadClock::of_this_thread();
        let before = clock.elapsed().unwrap();
        let sum: u64 = (0..100_000_u64).map(std::hint::black_box).sum();
        assert!(sum > 0 && clock.elapsed().unwrap() > before);
        let (user, system) = of_this_thread();
        assert!(user + system > Duration::ZERO);
    }
}
