//! Checks of the kernel, the clock, wake-up latency, processors and sandboxes.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use netio::kernel::KernelVersion;
use netio::sandbox;
use netio::{CpuUse, Waiter};

use super::{Check, CheckState, Lack};
use record::lateness::LateBudget;

/// Clock sources that can be read without a system call, on the processors that farwire supports.
const QUICK_CLOCKS: [&str; 5] = [
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "riscv_clocksource",
];

const SLEEPS: usize = 400;
const SLEEP: Duration = Duration::from_micros(200);
/// The greatest usual median. The forwarder busy-waits for no longer than this.
const TYPICAL_LATENESS: Duration = Duration::from_micros(100);

pub(super) const KERNEL: &str = "kernel";

pub(super) fn kernel() -> Check {
    let (running, oldest) = (KernelVersion::running(), KernelVersion::OLDEST);
    let found = format!("{running}; the oldest supported kernel is {oldest}");
    let lack = Lack {
        cost: "farwire may not work at all",
        remedy: "use a newer kernel",
    };
    let found = if running >= oldest {
        Ok(found)
    } else {
        Err(found)
    };
    Check::tried(KERNEL, found, CheckState::Missing, lack)
}

pub(super) fn clock() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(path).unwrap_or_else(|error| format!("unknown: {error}"));
    let source = source.trim();
    let found = match QUICK_CLOCKS.contains(&source) {
        true => Ok(source.to_owned()),
        false => Err(source.to_owned()),
    };
    let lack = Lack {
        cost: "reading the clock may be slow, which reduces the packet rate",
        remedy: "boot with tsc=reliable, if the processor's counter is stable",
    };
    Check::tried("clock source", found, CheckState::Degraded, lack)
}

/// Measures how late a sleeping thread wakes up that is scheduled like the forwarder's. It takes about 0.1 s.
pub(super) fn wake_up() -> Check {
    // The thread keeps its real-time schedule, so it must not be this one.
    let measured = thread::spawn(|| {
        let waiter = Waiter::measure(CpuUse::Spin, 1);
        let mut late: Vec<Duration> = (0..SLEEPS).map(|_| lateness()).collect();
        late.sort_unstable();
        let (median, p99) = (late[SLEEPS / 2], late[SLEEPS * 99 / 100]);
        judge_lateness(median, p99, waiter.real_time())
    });
    measured.join().expect("measuring does not panic")
}

pub(super) fn processors() -> Check {
    let found = match thread::available_parallelism().map_or(1, usize::from) {
        1 => Err("1".to_owned()),
        several => Ok(several.to_string()),
    };
    let lack = Lack {
        cost: "the emulator and the traffic compete for processor time",
        remedy: "use --cpu gentle and low rates, or a machine with two processors",
    };
    Check::tried("processors", found, CheckState::Degraded, lack)
}

/// Checks whether the system calls of `serve` and `emulate` can be filtered.
pub(super) fn seccomp() -> Check {
    let found = match sandbox::seccomp::is_available() {
        true => Ok("system call filters work".to_owned()),
        false => Err("the kernel refuses filters".to_owned()),
    };
    let lack = Lack {
        cost: "`serve` and `emulate` run without a system call filter",
        remedy: "use a kernel with CONFIG_SECCOMP_FILTER and a container that allows seccomp(2)",
    };
    Check::tried("seccomp", found, CheckState::Degraded, lack)
}

/// Checks whether their access to files can be restricted.
pub(super) fn landlock() -> Check {
    let version = sandbox::landlock::version().map(|version| format!("version {version}"));
    let found =
        version.ok_or_else(|| "the kernel has no Landlock, or it is switched off".to_owned());
    let lack = Lack {
        cost: "`serve` and `emulate` can access all files of their user",
        remedy: "use a kernel with CONFIG_SECURITY_LANDLOCK and `landlock` in its lsm=",
    };
    Check::tried("Landlock", found, CheckState::Degraded, lack)
}

fn lateness() -> Duration {
    let start = Instant::now();
    thread::sleep(SLEEP);
    start.elapsed().saturating_sub(SLEEP)
}

fn judge_lateness(median: Duration, p99: Duration, real_time: bool) -> Check {
    let schedule = if real_time { "real-time" } else { "ordinary" };
    let found = format!(
        "median {median:.1?}, p99 {p99:.1?} for {SLEEPS} sleeps of {SLEEP:?}, with {schedule} scheduling"
    );
    let late = Duration::from(LateBudget::DEFAULT.time());
    let found = match median <= TYPICAL_LATENESS && p99 <= late {
        true => Ok(found),
        false => Err(found),
    };
    let lack = Lack {
        cost: "packets may leave late; each run counts them",
        remedy: "stop other programs, or run as root on two processors, for real-time scheduling",
    };
    Check::tried("wake-up latency", found, CheckState::Degraded, lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_up_latency_below_the_busy_wait_is_ok() {
        let check = judge_lateness(Duration::from_micros(31), Duration::from_micros(95), true);
        assert_eq!(
            check,
            Check::ok(
                "wake-up latency",
                "median 31.0µs, p99 95.0µs for 400 sleeps of 200µs, with real-time scheduling"
            )
        );
    }

    #[test]
    fn rare_wake_ups_beyond_the_budget_are_degraded() {
        let check = judge_lateness(Duration::from_micros(31), Duration::from_millis(4), false);
        assert!(check.to_string().starts_with("degraded"), "{check}");
    }
}
