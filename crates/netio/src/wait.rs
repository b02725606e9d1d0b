//! Waiting for a moment: sleep until shortly before it, then spin.

use std::os::fd::{AsFd, BorrowedFd};

use model::Nanos;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::SocketError;
use nix::sys::time::TimeSpec;

use crate::clock;

/// Whether a thread may spin to be on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuUse {
    /// Spins through the last stretch before a moment: late by well under a microsecond.
    Spin,
    /// Never spins: late by as much as this machine wakes up late.
    Gentle,
}

/// Sleeps with a guard that this machine's own wake-ups were measured to need.
///
/// A real-time thread must not stay awake for good. On two cores it takes the ends' threads their time: after 3 ms it is
/// an ordinary one until it sleeps again. With more cores it rests for half a millisecond every 10: to one that takes more
/// than 95 % of a second the kernel gives a break of 50 ms, in which a receive ring overflows (`sched_rt_runtime_us`;
/// kernel/sched/deadline.c, the fair server).
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    guard: Nanos,
    median: Nanos,
    real_time: bool,
    /// Whether no core is left for it alone.
    crowded: bool,
    /// Whether it is an ordinary thread for now.
    stepped_back: bool,
    /// Since when the thread has not slept.
    awake: Nanos,
}

const PROBES: usize = 60;
const PROBE: Nanos = Nanos(100_000);
/// How long a thread on two cores is a real-time one without sleeping.
const STINT: Nanos = Nanos(3_000_000);
/// How long a real-time thread stays awake on more, and how long it then rests.
const LONGEST_AWAKE: Nanos = Nanos(10_000_000);
const REST: Nanos = Nanos(550_000);
/// Spinning longer than this before each departure costs the machine more than it gains.
const LONGEST_GUARD: Nanos = Nanos(100_000);

impl Waiter {
    /// Measures how late this thread wakes up; takes about 10 ms.
    #[must_use]
    pub fn measure(cpu: CpuUse) -> Self {
        wake_up_soon();
        let real_time = cpu == CpuUse::Spin && run_in_real_time();
        let mut late: Vec<Nanos> = (0..PROBES).map(|_| overshoot(PROBE)).collect();
        late.sort_unstable();
        let guard = match cpu {
            CpuUse::Spin => late[PROBES * 9 / 10].min(LONGEST_GUARD),
            CpuUse::Gentle => Nanos(0),
        };
        Self {
            guard,
            median: late[PROBES / 2],
            real_time,
            crowded: std::thread::available_parallelism().is_ok_and(|cores| cores.get() <= 2),
            stepped_back: false,
            awake: clock::now(),
        }
    }

    /// How long before a moment it stops sleeping.
    #[must_use]
    pub fn guard(&self) -> Nanos {
        self.guard
    }

    /// How late a plain sleep ended, in the median.
    #[must_use]
    pub fn wake_up_latency(&self) -> Nanos {
        self.median
    }

    /// Whether this thread runs before every ordinary one of the machine.
    #[must_use]
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

    /// Whether there is time to sleep before `until`; if not, the caller's loop is the spin.
    #[must_use]
    pub fn sleeps(&self, now: Nanos, until: Option<Nanos>) -> bool {
        until.is_none_or(|until| until > now + self.guard)
    }

    /// Sleeps until shortly before `until` (for good without one) or until one of `ports` has something.
    pub fn sleep(&mut self, ports: &[BorrowedFd<'_>], now: Nanos, until: Option<Nanos>) {
        if self.stepped_back {
            self.stepped_back = !run_in_real_time();
        }
        let timeout = until.map(|t| t.0.saturating_sub(now.0).saturating_sub(self.guard.0));
        let mut fds: Vec<PollFd<'_>> = ports
            .iter()
            .map(|fd| PollFd::new(*fd, PollFlags::POLLIN))
            .collect();
        // An interrupted sleep is a short one: the caller looks at its clock and comes back.
        let _: Result<_, Errno> = ppoll(&mut fds, timeout.map(span), None);
        let failed = |fd: &PollFd<'_>| fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
        for (_, port) in fds.iter().zip(ports).filter(|(fd, _)| failed(fd)) {
            // The interface went down. Reading the error clears it, so that the next sleep is one.
            let _ = getsockopt(port, SocketError);
        }
        self.awake = clock::now();
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
