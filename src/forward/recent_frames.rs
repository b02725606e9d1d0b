//! Detects a load at which waking up for each frame costs more than it gains.

use model::Nanos;

/// This many frames within `SPAN` are a high load: eight per millisecond.
const FRAMES: usize = 8;
const SPAN: Nanos = Nanos(1_000_000);

/// Under high load, a round of the forwarder's loop begins this long after the previous one,
/// regardless of arrivals and due times. Packets that are due by then leave together. A sleep can
/// end late, so departures are delayed by at most about 100 us, and by twice as much where a rest of the forwarder begins.
pub(crate) const ROUND: Nanos = Nanos(75_000);

/// The times of the latest frames that arrived or left.
#[derive(Debug, Default)]
pub(crate) struct RecentFrames {
    times: [Nanos; FRAMES],
    next: usize,
}

impl RecentFrames {
    /// Counts a frame at this time.
    pub(crate) fn count(&mut self, at: Nanos) {
        self.times[self.next] = at;
        self.next = (self.next + 1) % FRAMES;
    }

    /// Returns whether the load at `now` is high.
    pub(crate) fn is_high(&self, now: Nanos) -> bool {
        let oldest = self.times[self.next];
        oldest > Nanos::ZERO && oldest + SPAN > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_frames_a_millisecond_are_a_load() {
        let mut load = RecentFrames::default();
        for at in 1..8 {
            load.count(Nanos(at * 100_000));
            assert!(!load.is_high(Nanos(at * 100_000)));
        }
        load.count(Nanos(800_000));
        assert!(load.is_high(Nanos(1_099_999)));
        assert!(!load.is_high(Nanos(1_100_000)));
    }
}
