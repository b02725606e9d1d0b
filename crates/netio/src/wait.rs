//! Waits for a deadline: sleeps until shortly before it, sleeps again if that ended early enough, and then spins.

use std::hint;
use std::os::fd::{AsFd, BorrowedFd};

use arrayvec::ArrayVec;
use model::Nanos;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::SocketError;
use nix::sys::time::TimeSpec;

use crate::clock;
use crate::cpu;
use crate::sleep_margin::SleepMargin;

/// Whether a thread may spin to be on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuUse {
    /// The thread spins for the last part of a wait, and is late by well under a microsecond.
    Spin,
    /// The thread never spins, and is late by as much as this machine wakes up late.
    Gentle,
}

/// Sources of events that can wake a thread.
pub trait Wakes {
    /// Returns the descriptors of which one is readable when there is work to do.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;
}

/// Sleeps with margins that are adapted to this thread's sleeps. A long sleep ends later than a short one, after a
/// deeper idle state of the processor. Therefore short and long sleeps have separate margins, and the last part of a
/// long wait is a short sleep, which needs less spinning.
///
/// A real-time thread must not stay awake permanently. If it and the other threads of the process that wait in this way
/// leave at most one core, they would starve the threads of the ends, so after 3 ms it becomes an ordinary thread until it
/// sleeps again. On more cores it rests for half a millisecond every 10 ms, because a thread that uses more than 95 % of a
/// second is suspended by the kernel for 50 ms, in which a receive ring overflows (`sched_rt_runtime_us`;
/// kernel/sched/deadline.c, the fair server). A caller that has work to put off can avoid both: it rests when
/// [`Waiter::must_rest`] says so, and sleeps between what it cannot put off.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    cpu: CpuUse,
    /// Margins of sleeps shorter than [`SHORT`] and of longer ones.
    short: SleepMargin,
    long: SleepMargin,
    median: Nanos,
    real_time: bool,
    /// Whether the threads that wait in this way leave at most one core.
    has_few_cores: bool,
    /// Whether it is an ordinary thread at present.
    has_left_real_time: bool,
    /// The longest time for which it stays awake if its caller can rest.
    longest_stint: Nanos,
    /// The time since which the thread has not slept.
    awake: Nanos,
    /// The end of the latest rest.
    rested: Nanos,
}

/// A time in which a thread that did nothing but read the clock did not run, although no other thread took its place:
/// the machine itself stalled, because its hypervisor or an interrupt took the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The last reading of the clock before it.
    pub from: Nanos,
    /// The first reading after it.
    pub to: Nanos,
}

const PROBES: usize = 60;
const PROBE: Nanos = Nanos(100_000);
/// Time after which a thread stops being a real-time thread if it has not slept and there are few cores.
const LONGEST_STINT: Nanos = Nanos(3_000_000);
/// Time for which a real-time thread on more cores stays awake, and time for which it then rests.
const LONGEST_AWAKE: Nanos = Nanos(10_000_000);
const REST: Nanos = Nanos(550_000);
/// The rest of a thread that serves what cannot wait in it. It is short, because the rest of the work waits.
const SHORT_REST: Nanos = Nanos(150_000);
/// Spinning longer than this before each departure would cost the machine more than it gains.
const LONGEST_SPUN: Nanos = Nanos(100_000);
/// A shorter sleep is a short one. A longer one ends early by at most `LONGEST_MARGIN`, and another one follows.
const SHORT: Nanos = Nanos(500_000);
const LONGEST_MARGIN: Nanos = Nanos(400_000);
/// Numbers of sleeps of which one ends too late. The margin of a short sleep is spun, so it is chosen to leave 99
/// departures of 100 on time; that of a long sleep is slept.
const SHORT_SLEEPS_PER_LATE_ONE: u64 = 200;
const LONG_SLEEPS_PER_LATE_ONE: u64 = 400;
/// A shorter time is spun, because a sleep would cost more than it saves.
const LEAST_SLEEP: Nanos = Nanos(15_000);
/// The sockets of two ports, and an alarm.
const MOST_WAKERS: usize = 5;
/// Readings of the clock that are further apart than this are reported as a stall.
const STALL: Nanos = Nanos(30_000);

impl Waiter {
    /// Measures how late this thread wakes up, which takes about 10 ms. `threads` is the number of threads of this process
    /// that wait in this way, including this one.
    pub fn measure(cpu: CpuUse, threads: usize) -> Self {
        reduce_wake_up_delay();
        let real_time = cpu == CpuUse::Spin && run_in_real_time();
        let mut late: Vec<Nanos> = (0..PROBES).map(|_| overshoot(PROBE)).collect();
        late.sort_unstable();
        Self {
            cpu,
            short: SleepMargin::up_to(LONGEST_SPUN, SHORT_SLEEPS_PER_LATE_ONE),
            long: SleepMargin::up_to(LONGEST_MARGIN, LONG_SLEEPS_PER_LATE_ONE),
            median: late[PROBES / 2],
            real_time,
            has_few_cores: are_few(cpu::available(), threads),
            has_left_real_time: false,
            longest_stint: longest_stint(cpu::available(), threads),
            awake: clock::now(),
            rested: Nanos::ZERO,
        }
    }

    /// Returns the longest time before a deadline for which it spins.
    pub fn spins(&self) -> Nanos {
        match self.cpu {
            CpuUse::Spin => self.short.time(),
            CpuUse::Gentle => Nanos::ZERO,
        }
    }

    /// Returns the median time by which a plain sleep ended late.
    pub fn wake_up_latency(&self) -> Nanos {
        self.median
    }

    /// Returns whether this thread has real-time priority.
    pub fn real_time(&self) -> bool {
        self.real_time
    }

    /// Returns the time, after a rest if this thread has been awake for too long. Call it in every iteration of the
    /// caller's loop.
    pub fn now(&mut self) -> Nanos {
        let now = clock::now();
        if !self.real_time || self.has_left_real_time {
            return now;
        }
        if self.has_few_cores && now > self.awake + LONGEST_STINT {
            leave_real_time();
            self.has_left_real_time = true;
        }
        if now > self.awake + LONGEST_AWAKE {
            let _: Result<_, Errno> = ppoll(&mut [], Some(span(REST.0)), None);
            self.awake = clock::now();
            return self.awake;
        }
        now
    }

    /// Returns the end of the rest that a real-time thread must begin at `now`, because it has been awake for as long as
    /// it may. One that has become an ordinary thread is a real-time thread again when it sleeps. In a rest, it sleeps between those parts of its work that cannot wait.
    pub fn must_rest(&self, now: Nanos) -> Option<Nanos> {
        let is_long = now > self.awake.max(self.rested) + self.longest_stint;
        (is_long && self.real_time).then(|| now + SHORT_REST)
    }

    /// Notes that a rest lasts until `until`. If there is no time to sleep in it, the thread counts as awake all the same.
    pub fn rest(&mut self, until: Nanos) {
        self.rested = until;
    }

    /// Returns whether there is time to sleep before `until`; if not, the caller must spin.
    pub fn sleeps(&self, now: Nanos, until: Option<Nanos>) -> bool {
        until.is_none_or(|until| match self.cpu {
            CpuUse::Spin => until > now + self.short.time() + LEAST_SLEEP,
            CpuUse::Gentle => until > now,
        })
    }

    /// Sleeps until shortly before `until`, or without limit if there is none, or until one of `wakers` is readable.
    /// There may be time for another sleep afterwards; call [`Waiter::sleeps`] again.
    pub fn sleep<'f>(
        &mut self,
        wakers: impl Iterator<Item = BorrowedFd<'f>>,
        now: Nanos,
        until: Option<Nanos>,
    ) {
        self.resume_real_time();
        let left = until.map(|until| Nanos(until.0.saturating_sub(now.0)));
        let margin = left.map(|left| {
            if left < SHORT {
                &mut self.short
            } else {
                &mut self.long
            }
        });
        let early = match (&margin, self.cpu) {
            (Some(margin), CpuUse::Spin) => margin.time(),
            _ => Nanos::ZERO,
        };
        let timeout = left.map(|left| span(left.0.saturating_sub(early.0)));
        let mut fds: ArrayVec<PollFd<'f>, MOST_WAKERS> = wakers
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // An interrupted sleep is short; the caller reads its clock and calls again.
        let woken_by = ppoll(&mut fds, timeout, None);
        self.awake = clock::now();
        if let (Some(margin), Some(until), Ok(0)) = (margin, until, woken_by) {
            margin.learn(self.awake > until);
        }
        let failed =
            |fd: &&PollFd<'f>| fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
        for fd in fds.iter().filter(failed) {
            // The interface went down. Reading the error clears it, so that the next sleep does not end immediately.
            let _ = getsockopt(&fd.as_fd(), SocketError);
        }
    }

    /// Sleeps until about `until`, regardless of arrivals; returns immediately if that is too soon.
    pub fn coarse_sleep(&mut self, until: Nanos) {
        let now = clock::now();
        if until < now + LEAST_SLEEP {
            return;
        }
        self.resume_real_time();
        let _: Result<_, Errno> = ppoll(&mut [], Some(span(until.0.saturating_sub(now.0))), None);
        self.awake = clock::now();
    }

    /// Reads the clock until it reaches `until` or `is_due` returns true. Returns the last stall of the machine in that
    /// time, if there was one and no other thread took this one's place.
    pub fn spin(&mut self, until: Nanos, mut is_due: impl FnMut() -> bool) -> Option<Stall> {
        let before = times_interrupted();
        let (mut last, mut stall) = (clock::now(), None);
        while last < until && !is_due() {
            hint::spin_loop();
            let now = clock::now();
            if now > last + STALL {
                stall = Some(Stall {
                    from: last,
                    to: now,
                });
            }
            last = now;
        }
        stall.filter(|_| times_interrupted() == before)
    }

    fn resume_real_time(&mut self) {
        if self.has_left_real_time {
            self.has_left_real_time = !run_in_real_time();
        }
    }
}

/// Returns whether this number of threads that stay awake leaves at most one of the cores.
fn are_few(cores: usize, threads: usize) -> bool {
    cores <= threads + 1
}

/// Returns the longest time for which each of `threads` real-time threads stays awake between two rests. All of them
/// leave the time of one core to others, and each leaves the part of a second for which the kernel would suspend it.
fn longest_stint(cores: usize, threads: usize) -> Nanos {
    let each = if are_few(cores, threads) { 82 } else { 94 };
    let busy = (100 * cores.saturating_sub(1) / threads.max(1)).clamp(10, each) as u64;
    Nanos(SHORT_REST.0 * busy / (100 - busy))
}

/// Makes the calling thread wake up with as little delay as an ordinary thread can have.
pub(crate) fn reduce_wake_up_delay() {
    // The timer slack is set to one nanosecond, because the kernel's default delays every wake-up by up to 50 us.
    let _ = nix::sys::prctl::set_timerslack(1);
    ask_for_short_slices();
}

/// Gives the calling thread real-time priority (`SCHED_FIFO`), if that is allowed and another core is left for other
/// threads. Otherwise a box would forward late whenever the machine is busy. Returns whether it did.
pub(crate) fn run_in_real_time() -> bool {
    cpu::available() > 1 && set_policy(libc::SCHED_FIFO, 1)
}

/// Undoes [`run_in_real_time`].
fn leave_real_time() {
    set_policy(libc::SCHED_OTHER, 0);
    ask_for_short_slices();
}

/// Sets the scheduling policy and the priority of the calling thread. Returns whether the kernel did. The function
/// `sched_setscheduler` of musl always fails, because POSIX means processes and Linux threads.
fn set_policy(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: the kernel's sched_param is the priority alone, also where that of the C library is longer; thread 0 is the
    // calling one.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

/// Makes the calling thread preempt others when it wakes up, as far as that needs no privilege.
///
/// It requests slices of 0.1 ms from the scheduler: a thread that wakes with a shorter slice than the running one's
/// preempts it, and would otherwise wait some milliseconds for the end of that slice. Kernels before 6.12 ignore it
/// (kernel/sched/fair.c, PREEMPT_SHORT).
pub fn ask_for_short_slices() {
    // SAFETY: an all-zero sched_attr is valid, and the next call fills it in.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = libc::c_uint::try_from(size_of::<libc::sched_attr>()).expect("a small struct");
    // SAFETY: `attr` has room for `size` bytes; thread 0 is the calling one.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if read == 0 {
        attr.sched_runtime = 100_000;
        // SAFETY: `attr` is complete, as the kernel filled it in.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// Returns how often another thread took this one's place.
fn times_interrupted() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches())
}

fn overshoot(span_asked: Nanos) -> Nanos {
    let asked = clock::now() + span_asked;
    let _: Result<_, Errno> = ppoll(&mut [], Some(span(span_asked.0)), None);
    Nanos(clock::now().0.saturating_sub(asked.0))
}

fn span(nanos: u64) -> TimeSpec {
    TimeSpec::from_duration(std::time::Duration::from_nanos(nanos))
}

/// Wakes a sleeping [`Waiter`] from another thread.
#[derive(Debug)]
pub struct Alarm(EventFd);

impl Alarm {
    /// Creates an alarm that does not ring.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> Result<Self, Errno> {
        EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map(Self)
    }

    /// Makes the alarm ring until it is acknowledged.
    pub fn ring(&self) {
        let _ = self.0.write(1);
    }

    /// Stops the ringing, and returns whether the alarm rang. Acknowledge it before looking for the cause.
    pub fn acknowledge(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_few_if_the_threads_that_stay_awake_leave_at_most_one() {
        for (threads, most) in [(1, 2), (4, 5), (16, 17)] {
            assert!(are_few(1, threads) && are_few(most, threads), "{threads}");
            assert!(!are_few(most + 1, threads), "{threads}");
        }
    }

    #[test]
    fn real_time_threads_leave_the_time_of_one_core_and_the_kernels_share_of_a_second() {
        let busy = |cores, threads| {
            let stint = longest_stint(cores, threads).0 as f64;
            stint / (stint + SHORT_REST.0 as f64)
        };
        for (cores, threads) in [(2, 1), (2, 2), (4, 4), (16, 16), (64, 16)] {
            let all = busy(cores, threads) * threads as f64;
            assert!(all <= cores as f64 - 1.0 + 1e-6, "{cores} {threads} {all}");
            assert!(busy(cores, threads) < 0.95, "{cores} {threads}");
        }
        // They never stay awake for as long as they would without rests.
        assert!(longest_stint(2, 1) > Nanos(600_000) && longest_stint(2, 1) < LONGEST_STINT);
        assert!(longest_stint(8, 1) > Nanos(2_000_000) && longest_stint(8, 1) < LONGEST_AWAKE);
    }

    #[test]
    fn an_alarm_rings_until_it_is_acknowledged_and_then_again() {
        let alarm = Alarm::new().unwrap();
        assert!(!alarm.acknowledge());
        for _ in 0..2 {
            alarm.ring();
            alarm.ring();
            assert!(alarm.acknowledge());
            assert!(!alarm.acknowledge());
        }
    }
}
