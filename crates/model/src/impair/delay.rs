//! Propagation delay, which keeps the order of packets.

use alloc::collections::VecDeque;

use crate::in_flight::{Entered, InFlight};
use crate::time::Nanos;
use crate::units::{Bytes, Factor};

/// Propagation: a constant, and perhaps a part that grows with the packet.
///
/// A later packet never leaves before an earlier one: due = max(own, the previous packet's).
#[derive(Debug, Default)]
pub(crate) struct Delay {
    constant: Nanos,
    per_size: Option<Factor>,
    last: Nanos,
}

impl Delay {
    pub(crate) fn new(constant: Nanos, per_size: Option<Factor>) -> Self {
        Self {
            constant,
            per_size,
            last: Nanos::ZERO,
        }
    }

    /// When a packet of `len` that enters at `at` leaves.
    #[inline]
    pub(crate) fn due(&mut self, at: Nanos, len: Bytes) -> Nanos {
        let growing = self
            .per_size
            .map_or(Nanos::ZERO, |factor| factor.time_for(len));
        self.last = self.last.max(at + self.constant + growing);
        self.last
    }
}

/// A delay before a stage whose decision depends on when packets reach it: it holds them until they are due.
#[derive(Debug)]
pub(crate) struct DelayLine {
    delay: Delay,
    held: VecDeque<(Nanos, InFlight)>,
}

impl DelayLine {
    pub(crate) fn new(delay: Delay) -> Self {
        Self {
            delay,
            held: VecDeque::new(),
        }
    }

    /// Takes `in_flight` in at `at`; asks to be woken if no packet was held before.
    #[inline]
    pub(crate) fn enter(&mut self, at: Nanos, in_flight: InFlight) -> Entered {
        let due = self.delay.due(at, in_flight.packet.len);
        self.held.push_back((due, in_flight));
        Entered::Held((self.held.len() == 1).then_some(due))
    }

    /// The packet that is due, and when the next one is.
    pub(crate) fn release(&mut self) -> Option<(InFlight, Option<Nanos>)> {
        let (_, in_flight) = self.held.pop_front()?;
        Some((in_flight, self.held.front().map(|&(due, _)| due)))
    }

    /// Packets held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_packet_does_not_overtake_a_long_one() {
        let mut delay = Delay::new(Nanos(100), Factor::new(1.0).ok());
        assert_eq!(delay.due(Nanos(0), Bytes(10)), Nanos(10_100));
        assert_eq!(delay.due(Nanos(50), Bytes(1)), Nanos(10_100));
        assert_eq!(delay.due(Nanos(20_000), Bytes(1)), Nanos(21_100));
    }
}
