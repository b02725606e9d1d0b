//! Random loss, and the result for a packet that any loss hits.

use crate::behaviour::{Behaviour, LossLaw};
use crate::draw::{Chance, Draws};
use crate::in_flight::InFlight;
use crate::packet::DropCause;
use crate::spec::{Effect, RandomLoss};
use crate::stage::{EntryResult, Out, Stage};
use crate::time::Nanos;

/// Bernoulli loss: every packet is lost with the same probability, independently of the others.
#[derive(Debug)]
pub(crate) struct Loss {
    chance: Chance,
    ecn: bool,
    draws: Draws,
}

/// Returns the result at `at` for a packet that a loss hits: it is dropped, or marked if `ecn` is set and its sender
/// understands marks (as in Linux, `net/sched/sch_netem.c`, `netem_enqueue`).
pub(crate) fn lose_or_mark(at: Nanos, t: &mut InFlight, ecn: bool) -> EntryResult {
    if ecn && t.mark() {
        EntryResult::Passes(at)
    } else {
        EntryResult::Dropped(DropCause::Loss)
    }
}

impl Loss {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            chance: Chance::NEVER,
            ecn: false,
            draws,
        }
    }
}

impl RandomLoss {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            loss: LossLaw::Random(self.share.into()),
            marks: self.ecn,
            ..Behaviour::default()
        }
    }
}

impl Stage for Loss {
    #[inline]
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        if self.chance.hits(self.draws.of(t.stream()).at(index)) {
            lose_or_mark(at, t, self.ecn)
        } else {
            EntryResult::Passes(at)
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        let law = match effect {
            Effect::Loss(law) => *law,
            _ => RandomLoss::default(),
        };
        self.chance = Chance::of(law.share);
        self.ecn = law.ecn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::Stream;

    /// Returns a function that tells whether a packet is lost under this loss.
    fn verdicts(text: &str) -> impl Fn(u64) -> bool {
        let draws = Draws::new(1, 0, "box.up.loss");
        let chance = Chance::of(text.parse().unwrap());
        move |index| chance.hits(draws.of(Stream::Originals).at(index))
    }

    fn hits(text: &str, packets: u64) -> usize {
        let lost = verdicts(text);
        (0..packets).filter(|&index| lost(index)).count()
    }

    #[test]
    fn none_and_all_are_exact() {
        assert_eq!(hits("0%", 10_000), 0);
        assert_eq!(hits("100%", 10_000), 10_000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn the_share_lost_lies_in_its_interval() {
        // The bounds are np +- 3.29 sqrt(np(1-p)), the 99.9 % interval of 10^6 packets.
        for (text, low, high) in [
            ("0.1%", 896, 1_104),
            ("1%", 9_673, 10_327),
            ("10%", 99_013, 100_987),
            ("50%", 498_355, 501_645),
        ] {
            let hits = hits(text, 1_000_000);
            assert!((low..=high).contains(&hits), "{text}: {hits}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn losses_come_in_bursts_no_more_often_than_chance() {
        let lost = verdicts("10%");
        let pairs = (0..1_000_000)
            .filter(|&index| lost(index) && lost(index + 1))
            .count();
        // The mean is 10,000. Neighbouring pairs share a packet, so the variance is np^2(1 + 2p - 3p^2).
        assert!((9_642..=10_358).contains(&pairs), "{pairs}");
    }
}
