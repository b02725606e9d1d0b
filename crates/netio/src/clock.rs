//! The clock of the packet path, and the conversion of the kernel's timestamps to it.

use model::Nanos;

/// Returns the time of `CLOCK_MONOTONIC`.
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Reads `CLOCK_MONOTONIC` until it has reached `until`, and returns the last reading.
pub(crate) fn spin_until(until: Nanos) -> Nanos {
    loop {
        let now = now();
        if now >= until {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Returns the time of `CLOCK_REALTIME`: nanoseconds since 1970, UTC, without leap seconds.
pub fn wall() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// The accuracy of `CLOCK_REALTIME`, as the program that adjusts it (an NTP or PTP client) reports it to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Whether a program keeps it synchronised with UTC.
    pub synchronised: bool,
    /// Largest error against UTC. Without synchronisation the error grows without bound, but this value only to 16 s.
    pub largest_error: Nanos,
}

impl WallClock {
    /// Reads the state from the kernel: adjtimex(2), `STA_UNSYNC` and `maxerror`.
    pub fn now() -> Self {
        // SAFETY: an all-zero timex is valid and requests no change.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: `state` is a valid timex that the call may write.
        let result = unsafe { libc::adjtimex(&raw mut state) };
        let running = (0..libc::TIME_ERROR).contains(&result);
        let microseconds = u64::try_from(state.maxerror).unwrap_or(0);
        Self {
            synchronised: running && state.status & libc::STA_UNSYNC == 0,
            largest_error: Nanos(microseconds.saturating_mul(1_000)),
        }
    }
}

fn read(clock: libc::clockid_t) -> Nanos {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid timespec that the call may write.
    unsafe { libc::clock_gettime(clock, &raw mut ts) };
    Nanos(ts.tv_sec.unsigned_abs() * 1_000_000_000 + ts.tv_nsec.unsigned_abs())
}

/// Converts the kernel's receive timestamps (`CLOCK_REALTIME`) to the monotonic clock.
///
/// The age of a frame is the difference between two readings of one clock. A step of the wall clock between them would
/// move the packet in time, so the result is limited: it is not after the conversion, and not before the port was last
/// seen empty, minus the time that the kernel may take to publish a frame.
#[derive(Clone, Copy, Debug)]
pub struct StampConverter {
    mono: Nanos,
    real: Nanos,
    earliest: Nanos,
}

/// Time between the kernel's timestamp of a frame and its publication. The kernel copies the frame in between, and may
/// be preempted on a busy machine.
const PUBLISH_ALLOWANCE: Nanos = Nanos(1_000_000);

impl StampConverter {
    /// Reads both clocks. `last_empty` is when the port was last seen without frames.
    pub fn sample(last_empty: Nanos) -> Self {
        // In this order, an interruption between the two readings makes a packet late, never early.
        let real = wall();
        Self::at(now(), real, last_empty)
    }

    fn at(mono: Nanos, real: Nanos, last_empty: Nanos) -> Self {
        let earliest = Nanos(last_empty.0.saturating_sub(PUBLISH_ALLOWANCE.0));
        Self {
            mono,
            real,
            earliest,
        }
    }

    /// Returns whether a frame with the timestamp `real` arrived after the clocks were read, so that its age is
    /// unknown.
    pub fn precedes(&self, real: Nanos) -> bool {
        self.real < real
    }

    /// Returns the arrival of a frame with the timestamp `real` on the monotonic clock. The timestamp must not be after
    /// the reading of the clocks.
    pub fn convert(&self, real: Nanos) -> Nanos {
        let age = self.real.0.saturating_sub(real.0);
        let arrival = self.mono.0.saturating_sub(age);
        Nanos(arrival.clamp(self.earliest.0.min(self.mono.0), self.mono.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn a_converted_timestamp_keeps_its_age() {
        let c = StampConverter::at(Nanos(5_000_000), Nanos(HOUR), Nanos(0));
        assert_eq!(c.convert(Nanos(HOUR - 300)), Nanos(5_000_000 - 300));
    }

    #[test]
    fn a_frame_after_the_reading_needs_another_reading() {
        let c = StampConverter::at(Nanos(5_000_000), Nanos(HOUR), Nanos(0));
        assert!(c.precedes(Nanos(HOUR + 1)));
        assert!(!c.precedes(Nanos(HOUR)));
    }

    #[test]
    fn a_clock_step_forward_moves_no_packet_before_the_port_was_empty() {
        let c = StampConverter::at(Nanos(9_000_000), Nanos(2 * HOUR), Nanos(8_000_000));
        assert_eq!(c.convert(Nanos(HOUR)), Nanos(7_000_000));
    }

    #[test]
    fn a_clock_step_back_moves_no_packet_into_the_future() {
        let c = StampConverter::at(Nanos(9_000_000), Nanos(HOUR), Nanos(8_000_000));
        assert_eq!(c.convert(Nanos(2 * HOUR)), Nanos(9_000_000));
    }
}
