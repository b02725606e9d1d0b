//! Loss in bursts: a chain of two states.

use crate::behaviour::{Behaviour, LossLaw};
use crate::decimal::UnitError;
use crate::draw::{Chance, Draws};
use crate::impair::loss::lose_or_mark;
use crate::in_flight::{InFlight, Stream};
use crate::spec::{Effect, GilbertElliott};
use crate::stage::{EntryResult, Out, Stage, Timing};
use crate::time::Nanos;
use crate::units::Probability;

/// The model of Gilbert (1960) and Elliott (1963) in the order of tc's `gemodel` (Linux, `net/sched/sch_netem.c`,
/// `loss_gilb_ell`): the state changes first, then the state that was left decides.
///
/// Originals and copies have separate chains, so that duplication changes nothing for originals.
#[derive(Debug, Default)]
pub(crate) struct BurstLoss {
    to_bad: Chance,
    to_good: Chance,
    bad_loss: Chance,
    good_loss: Chance,
    ecn: bool,
    /// Whether the originals' chain and the copies' chain are in the bad state.
    is_bad: [bool; 2],
    transitions: Draws,
    losses: Draws,
}

impl BurstLoss {
    pub(crate) fn new(_start: Nanos, draws: Draws) -> Self {
        Self {
            transitions: draws,
            losses: draws.stream(1),
            ..Self::default()
        }
    }
}

impl GilbertElliott {
    pub(crate) fn behaviour(&self) -> Behaviour<'static> {
        Behaviour {
            loss: LossLaw::Bursts(self.long_run()),
            marks: self.ecn,
            timing: Timing::IN_ORDER,
            ..Behaviour::default()
        }
    }
}

impl Stage for BurstLoss {
    fn enter(&mut self, at: Nanos, index: u64, t: &mut InFlight, _: &mut Out) -> EntryResult {
        let stream = t.stream();
        let is_bad = &mut self.is_bad[usize::from(stream == Stream::Copies)];
        let (change, loss) = if *is_bad {
            (self.to_good, self.bad_loss)
        } else {
            (self.to_bad, self.good_loss)
        };
        *is_bad ^= change.hits(self.transitions.of(stream).at(index));
        if loss.hits(self.losses.of(stream).at(index)) {
            lose_or_mark(at, t, self.ecn)
        } else {
            EntryResult::Passes(at)
        }
    }

    fn set(&mut self, _at: Nanos, effect: &Effect) {
        let nothing = GilbertElliott::default();
        let law = match effect {
            Effect::GilbertElliott(law) => law,
            _ => &nothing,
        };
        self.to_bad = Chance::of(law.to_bad);
        self.to_good = Chance::of(law.to_good);
        self.bad_loss = Chance::of(law.bad_loss);
        self.good_loss = Chance::of(law.good_loss);
        self.ecn = law.ecn;
    }
}

impl GilbertElliott {
    /// Creates the chain that loses a share `loss` of all packets, in runs of `burst` packets on average. It is
    /// Gilbert's: all packets are lost in the bad state and none in the good one. The probability of a change to good
    /// is r = 1/B, to bad p = r L / (1 - L).
    ///
    /// # Errors
    /// Returns an error for a burst below one packet, and for one so short that the good state would last less than a
    /// packet.
    pub fn of_bursts(loss: Probability, burst: f64) -> Result<Self, UnitError> {
        let share = loss.fraction();
        let to_good = Probability::from_percent(100.0 / burst)?;
        let to_bad = Probability::from_percent(to_good.percent() * share / (1.0 - share))?;
        Ok(Self {
            to_bad,
            to_good,
            bad_loss: Probability::from_percent(100.0)?,
            good_loss: Probability::ZERO,
            ecn: false,
        })
    }

    /// Returns the average number of packets lost in a row; 0 if none is lost, infinite if a run never ends.
    #[must_use]
    pub fn mean_burst(&self) -> f64 {
        let [p, r, bad_loss, good_loss] =
            [self.to_bad, self.to_good, self.bad_loss, self.good_loss].map(Probability::fraction);
        let bad = if p > 0.0 { p / (p + r) } else { 0.0 };
        let lost = self.stationary_loss();
        // A run continues if a loss follows another one, in either state: the state that was left decides.
        let pairs = bad * bad_loss * ((1.0 - r) * bad_loss + r * good_loss)
            + (1.0 - bad) * good_loss * ((1.0 - p) * good_loss + p * bad_loss);
        match lost {
            0.0 => 0.0,
            lost => lost / (lost - pairs),
        }
    }

    /// Returns the share of packets that are lost (or marked) in the long run; 0 for a chain that never moves.
    #[must_use]
    pub fn stationary_loss(&self) -> f64 {
        let (p, r) = (self.to_bad.fraction(), self.to_good.fraction());
        let bad = if p > 0.0 { p / (p + r) } else { 0.0 };
        bad * self.bad_loss.fraction() + (1.0 - bad) * self.good_loss.fraction()
    }
}
