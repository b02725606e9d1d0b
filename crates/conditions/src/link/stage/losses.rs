//! Stages that lose packets.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::needed;
use crate::condition::LossSpec;
use crate::error::Error;
use model::{BitErrorRate, Effect, FourState, GilbertElliott, Probability};

parameters! {
    /// Loss in bursts, given by the transitions of a chain, as tc's gemodel.
    GemodelStage {
        /// The probability, for each packet, of a change from the good state to the bad one; required.
        p: Probability,
        /// The probability, for each packet, of a change from the bad state to the good one; required.
        r: Probability,
        /// The loss in the bad state (1-h); 100 % when absent.
        bad_loss: Probability,
        /// The loss in the good state (1-k); none when absent.
        good_loss: Probability,
        /// Whether packets are marked instead of lost, if their senders understand marks; false when absent.
        ecn: bool,
    }
}

parameters! {
    /// Loss in bursts within which some packets are received, as tc's `loss state`.
    FourStateStage {
        /// The probability that a burst begins, with a loss; required.
        p13: Probability,
        /// The probability that a burst ends after a loss; 100 % minus p13 when absent.
        p31: Probability,
        /// The probability that packets are received within a burst, after a loss; none when absent.
        p32: Probability,
        /// The probability that losses continue; 100 % when absent.
        p23: Probability,
        /// The probability that a single packet is lost; none when absent.
        p14: Probability,
        /// Whether packets are marked instead of lost, if their senders understand marks; false when absent.
        ecn: bool,
    }
}

parameters! {
    /// The packets with these numbers are lost.
    IndexesStage {
        /// The numbers in ascending order; the first packet that comes has number 0. Required.
        indexes: Arc<[u64]>,
    }
}

parameters! {
    /// Every n-th packet is lost.
    EveryNthStage {
        /// The period: 3 loses every third packet; required.
        n: NonZeroU32,
    }
}

parameters! {
    /// Random loss.
    LossStage {
        /// The loss; required.
        loss: LossSpec,
    }
}

parameters! {
    /// Bit errors, which lose the packets that contain them.
    BerStage {
        /// The share of bits that are wrong; required.
        ber: BitErrorRate,
    }
}

impl GemodelStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        Ok(Effect::GilbertElliott(GilbertElliott {
            to_bad: needed(self.p, "p", "p = \"1%\"")?,
            to_good: needed(self.r, "r", "r = \"10%\"")?,
            bad_loss: self.bad_loss.unwrap_or(certain()),
            good_loss: self.good_loss.unwrap_or_default(),
            ecn: self.ecn.unwrap_or_default(),
        }))
    }
}

impl FourStateStage {
    /// Returns the effect; defaults are those of tc's `loss state`.
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let p13 = needed(self.p13, "p13", "p13 = \"1%\"")?;
        let rest = Probability::from_percent(100.0 - p13.percent()).map_err(Error::other)?;
        Ok(Effect::FourState(FourState {
            p13,
            p31: self.p31.unwrap_or(rest),
            p32: self.p32.unwrap_or_default(),
            p23: self.p23.unwrap_or(certain()),
            p14: self.p14.unwrap_or_default(),
            ecn: self.ecn.unwrap_or_default(),
        }))
    }
}

impl LossStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let loss = needed(self.loss, "loss", "loss = \"1%\"")?;
        Ok(match loss.effects() {
            [Effect::Nothing, bursts] => bursts,
            [single, _] => single,
        })
    }
}

fn certain() -> Probability {
    Probability::from_percent(100.0).expect("0 to 100")
}
