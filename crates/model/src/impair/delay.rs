//! Propagation delay.

use crate::draw::Draws;
use crate::impair::jitter::Offsets;
use crate::in_flight::InFlight;
use crate::spec::{Delay, Effect, Ordering};
use crate::stage::{Entered, Gives, Nature, Needs, Out, Stage};
use crate::time::Nanos;
use crate::units::Bytes;

/// Propagation: a constant, perhaps a part that grows with the packet, perhaps a random one.
///
/// In order, a later packet never leaves before an earlier one: due = max(own, the previous packet's).
#[derive(Debug)]
pub(crate) struct DelayLaw {
    law: Delay,
    offsets: Offsets,
    draws: Draws,
    /// When the last of all that entered leaves.
    last: Nanos,
}

impl DelayLaw {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            law: Delay::default(),
            offsets: Offsets::default(),
            draws,
            last: Nanos::ZERO,
        }
    }

    /// How long a packet of `len` takes by itself, apart from jitter.
    #[inline]
    fn mean(&self, len: Bytes) -> Nanos {
        let growing = self
            .law
            .by_size
            .map_or(Nanos::ZERO, |factor| factor.time_for(len));
        self.law.time + growing
    }
}

impl Stage for DelayLaw {
    fn nature(effect: &Effect) -> Nature {
        let (needs, gives) = match effect {
            Effect::Delay(delay) if delay.ordering == Ordering::Free => {
                (Needs::Nothing, Gives::AnyOrder)
            }
            _ => (Needs::Order, Gives::LaterInOrder),
        };
        Nature { needs, gives }
    }

    #[inline]
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> Entered {
        let draw = || self.draws.of(t.stream()).at(index);
        let own = at + self.offsets.apply(self.mean(t.packet.len), draw);
        self.last = self.last.max(own);
        Entered::Passes(match self.law.ordering {
            Ordering::Fifo => self.last,
            Ordering::Free => own,
        })
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        self.law = match effect {
            Effect::Delay(delay) => *delay,
            _ => Delay::default(),
        };
        self.offsets.set(self.law.jitter);
    }

    fn settled(&self, at: Nanos) -> bool {
        self.last <= at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Factor;

    #[test]
    fn a_short_packet_does_not_overtake_a_long_one() {
        let mut delay = DelayLaw::new(Nanos::ZERO, Draws::new(1, 0, "box.up.delay"));
        delay.set(
            Nanos::ZERO,
            &Effect::Delay(Delay {
                time: Nanos(100),
                by_size: Factor::new(1.0).ok(),
                ..Delay::default()
            }),
        );
        let mut due = |at, len| {
            let mut t = InFlight::for_test(len);
            delay.enter(Nanos(at), 0, &mut t, &mut Out::default())
        };
        assert_eq!(due(0, 10), Entered::Passes(Nanos(10_100)));
        assert_eq!(due(50, 1), Entered::Passes(Nanos(10_100)));
        assert_eq!(due(20_000, 1), Entered::Passes(Nanos(21_100)));
    }
}
