//! Whether so much arrives that waking up for each frame costs more than it gains.

use model::Nanos;

/// So many frames within that span are a load: eight a millisecond.
const FRAMES: usize = 8;
const SPAN: Nanos = Nanos(1_000_000);

/// Under load a turn of the forwarder's loop begins at most so much after the one before it, whatever arrives or is due: what
/// is due by then leaves together. With what a sleep ends late by, departures are batched by at most 100 us.
pub(crate) const TURN: Nanos = Nanos(75_000);

/// When the latest frames arrived.
#[derive(Debug, Default)]
pub(crate) struct RecentArrivals {
    arrivals: [Nanos; FRAMES],
    next: usize,
}

impl RecentArrivals {
    pub(crate) fn arrived(&mut self, at: Nanos) {
        self.arrivals[self.next] = at;
        self.next = (self.next + 1) % FRAMES;
    }

    pub(crate) fn is_high(&self, now: Nanos) -> bool {
        let oldest = self.arrivals[self.next];
        oldest > Nanos::ZERO && oldest + SPAN > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_frames_a_millisecond_are_a_load() {
        let mut load = RecentArrivals::default();
        for at in 1..8 {
            load.arrived(Nanos(at * 100_000));
            assert!(!load.is_high(Nanos(at * 100_000)));
        }
        load.arrived(Nanos(800_000));
        assert!(load.is_high(Nanos(1_099_999)));
        assert!(!load.is_high(Nanos(1_100_000)));
    }
}
