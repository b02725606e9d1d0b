//! Waits for a deadline: sleep until shortly before it, sleep again if that ended early enough, then spin.

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
use crate::sleep_margin::SleepMargin;

/// Whether a thread may spin to be on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuUse {
    /// Spins through the last stretch before a moment: late by well under a microsecond.
    Spin,
    /// Never spins: late by as much as this machine wakes up late.
    Gentle,
}

/// What a thread can be woken by.
pub trait Wakes {
    /// Descriptors of which one is readable when there is something to do.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;
}

/// Sleeps with guards that this thread's own sleeps were seen to need. A long sleep ends later than a short one, after a
/// deeper rest of the processor: so each length has its own, and the last stretch of a long one is a short one, which takes less spinning.
///
/// A real-time thread must not stay awake for good. On two cores it takes the ends' threads their time: after 3 ms it is
/// an ordinary one until it sleeps again. With more cores it rests for half a millisecond every 10: to one that takes more
/// than 95 % of a second the kernel gives a break of 50 ms, in which a receive ring overflows (`sched_rt_runtime_us`;
/// kernel/sched/deadline.c, the fair server).
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    cpu: CpuUse,
    /// Of sleeps shorter than [`SHORT`], and of others.
    short: SleepMargin,
    long: SleepMargin,
    median: Nanos,
    real_time: bool,
    /// Whether no core is left for it alone.
    crowded: bool,
    /// Whether it is an ordinary thread for now.
    stepped_back: bool,
    /// Since when the thread has not slept.
    awake: Nanos,
}

/// A stretch of time in which a thread that did nothing but read the clock did not run, and no other thread took its place:
/// the machine itself stood still (its host took the processor, or an interrupt did).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The last reading before.
    pub from: Nanos,
    /// The first one after.
    pub to: Nanos,
}

const PROBES: usize = 60;
const PROBE: Nanos = Nanos(100_000);
/// How long a thread on two cores is a real-time one without sleeping.
const STINT: Nanos = Nanos(3_000_000);
/// How long a real-time thread stays awake on more, and how long it then rests.
const LONGEST_AWAKE: Nanos = Nanos(10_000_000);
const REST: Nanos = Nanos(550_000);
/// Spinning longer than this before each departure costs the machine more than it gains.
const LONGEST_SPUN: Nanos = Nanos(100_000);
/// A sleep below this is short; a longer one ends at most so much early, and another follows.
const SHORT: Nanos = Nanos(500_000);
const LONGEST_GUARD: Nanos = Nanos(400_000);
/// One sleep in so many ends too late. What a short one's guard saves is spun, so it is as large as leaves 99 departures of 100
/// on time; what a long one's saves is slept.
const SHORT_ON_TIME: u64 = 200;
const LONG_ON_TIME: u64 = 400;
/// A sleep shorter than this is spun: what it saves is less than what it costs.
const LEAST_SLEEP: Nanos = Nanos(15_000);
/// The sockets of two ports, and an alarm.
const MOST_WAKERS: usize = 5;
/// Readings of the clock further apart than this are worth a word.
const STALL: Nanos = Nanos(30_000);

impl Waiter {
    /// Measures how late this thread wakes up; takes about 10 ms.
    pub fn measure(cpu: CpuUse) -> Self {
        wake_up_soon();
        let real_time = cpu == CpuUse::Spin && run_in_real_time();
        let mut late: Vec<Nanos> = (0..PROBES).map(|_| overshoot(PROBE)).collect();
        late.sort_unstable();
        Self {
            cpu,
            short: SleepMargin::up_to(LONGEST_SPUN, SHORT_ON_TIME),
            long: SleepMargin::up_to(LONGEST_GUARD, LONG_ON_TIME),
            median: late[PROBES / 2],
            real_time,
            crowded: std::thread::available_parallelism().is_ok_and(|cores| cores.get() <= 2),
            stepped_back: false,
            awake: clock::now(),
        }
    }

    /// How long before a moment it spins at most.
    pub fn spins(&self) -> Nanos {
        match self.cpu {
            CpuUse::Spin => self.short.time(),
            CpuUse::Gentle => Nanos::ZERO,
        }
    }

    /// How late a plain sleep ended, in the median.
    pub fn wake_up_latency(&self) -> Nanos {
        self.median
    }

    /// Whether this thread runs before every ordinary one of the machine.
    pub fn real_time(&self) -> bool {
        self.real_time
    }

    /// The time, after a rest if this thread has been awake for too long; to be called at every turn of the caller's loop.
    pub fn now(&mut self) -> Nanos {
        let now = clock::now();
        if !self.real_time || self.stepped_back {
            return now;
        }
        if self.crowded && now > self.awake + STINT {
            run_in_turn();
            self.stepped_back = true;
        }
        if now > self.awake + LONGEST_AWAKE {
            let _: Result<_, Errno> = ppoll(&mut [], Some(span(REST.0)), None);
            self.awake = clock::now();
            return self.awake;
        }
        now
    }

    /// Whether there is time to sleep before `until`; if not, the rest is to be spun.
    pub fn sleeps(&self, now: Nanos, until: Option<Nanos>) -> bool {
        until.is_none_or(|until| match self.cpu {
            CpuUse::Spin => until > now + self.short.time() + LEAST_SLEEP,
            CpuUse::Gentle => until > now,
        })
    }

    /// Sleeps until shortly before `until` (for good without one) or until one of `wakers` is readable. One sleep may end
    /// early enough for another: ask again whether there is time.
    pub fn sleep<'f>(
        &mut self,
        wakers: impl Iterator<Item = BorrowedFd<'f>>,
        now: Nanos,
        until: Option<Nanos>,
    ) {
        self.step_forward();
        let left = until.map(|until| Nanos(until.0.saturating_sub(now.0)));
        let guard = left.map(|left| {
            if left < SHORT {
                &mut self.short
            } else {
                &mut self.long
            }
        });
        let early = match (&guard, self.cpu) {
            (Some(guard), CpuUse::Spin) => guard.time(),
            _ => Nanos::ZERO,
        };
        let timeout = left.map(|left| span(left.0.saturating_sub(early.0)));
        let mut fds: ArrayVec<PollFd<'f>, MOST_WAKERS> = wakers
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // An interrupted sleep is a short one: the caller looks at its clock and comes back.
        let woken_by = ppoll(&mut fds, timeout, None);
        self.awake = clock::now();
        if let (Some(guard), Some(until), Ok(0)) = (guard, until, woken_by) {
            guard.learn(self.awake > until);
        }
        let failed =
            |fd: &&PollFd<'f>| fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
        for fd in fds.iter().filter(failed) {
            // The interface went down. Reading the error clears it, so that the next sleep is one.
            let _ = getsockopt(&fd.as_fd(), SocketError);
        }
    }

    /// Sleeps until about `until`, whatever arrives; not at all if that is too soon.
    pub fn coarse_sleep(&mut self, until: Nanos) {
        let now = clock::now();
        if until < now + LEAST_SLEEP {
            return;
        }
        self.step_forward();
        let _: Result<_, Errno> = ppoll(&mut [], Some(span(until.0.saturating_sub(now.0))), None);
        self.awake = clock::now();
    }

    /// Reads the clock until it says `until`, or until there is something to do; in which stretch of that, the last of them,
    /// the machine stood still, if it did.
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

    fn step_forward(&mut self) {
        if self.stepped_back {
            self.stepped_back = !run_in_real_time();
        }
    }
}

/// Has the calling thread woken as soon after its time as an ordinary thread can be.
pub(crate) fn wake_up_soon() {
    // One nanosecond of slack: the kernel's default delays every wake-up by up to 50 us.
    let _ = nix::sys::prctl::set_timerslack(1);
    ask_for_short_slices();
}

/// Puts the calling thread before every ordinary one (`SCHED_FIFO`), where that is allowed and another core is
/// left for the rest: a box that forwards late because the machine compiles something is no network.
pub(crate) fn run_in_real_time() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: `priority` is complete; thread 0 is the calling one.
    cores > 1 && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } == 0
}

/// Takes back what [`run_in_real_time`] did.
fn run_in_turn() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: `none` is complete; thread 0 is the calling one.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) };
    ask_for_short_slices();
}

/// Has the calling thread preempt others when it wakes up, as far as that needs no privilege.
///
/// Asks the scheduler for slices of 0.1 ms: a thread that wakes with a shorter slice than the running one's
/// preempts it, where it would otherwise wait for the end of that slice, some milliseconds. Needs no privilege;
/// kernels before 6.12 ignore it (kernel/sched/fair.c, PREEMPT_SHORT).
pub fn ask_for_short_slices() {
    // SAFETY: an all-zero sched_attr is valid, and is filled in by the next call.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = libc::c_uint::try_from(size_of::<libc::sched_attr>()).expect("a small struct");
    // SAFETY: `attr` has room for `size` bytes; thread 0 is the calling one.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if read == 0 {
        attr.sched_runtime = 100_000;
        // SAFETY: `attr` is complete, as the kernel gave it.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// How often another thread took this one's place.
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
    /// An alarm that has not rung.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn new() -> Result<Self, Errno> {
        EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map(Self)
    }

    /// Rings until it is acknowledged.
    pub fn ring(&self) {
        let _ = self.0.write(1);
    }

    /// Stops ringing; whether it rang. Acknowledge before looking at what it may have rung for.
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
