//! Stages that lose packets.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::needed;
use crate::condition::LossSpec;
use crate::error::Error;
use model::{BitErrorRate, Effect, FourState, GilbertElliott, Probability};

parameters! {
    /// Loss in bursts by its transitions, as tc's gemodel.
    GemodelStage {
        /// The probability that a bad state follows a good one, a packet; it is needed.
        p: Probability,
        /// The probability that a good state follows a bad one, a packet; it is needed.
        r: Probability,
        /// Loss in the bad state (1-h); 100 % when absent.
        bad_loss: Probability,
        /// Loss in the good state (1-k); none when absent.
        good_loss: Probability,
        /// Whether packets are marked instead of lost, where their senders understand marks; false when absent.
        ecn: bool,
    }
}

parameters! {
    /// Loss in bursts within which packets are received, as tc's `loss state`.
    FourStateStage {
        /// The probability that a burst begins, with a loss; it is needed.
        p13: Probability,
        /// The probability that a burst ends behind a loss; 100 % less p13 when absent.
        p31: Probability,
        /// The probability that packets are received within a burst, behind a loss; none when absent.
        p32: Probability,
        /// The probability that losses go on; 100 % when absent.
        p23: Probability,
        /// The probability that one packet alone is lost; none when absent.
        p14: Probability,
        /// Whether packets are marked instead of lost, where their senders understand marks; false when absent.
        ecn: bool,
    }
}

parameters! {
    /// The packets of these numbers are lost.
    IndexesStage {
        /// The numbers in ascending order; the first packet that comes has 0. They are needed.
        indexes: Arc<[u64]>,
    }
}

parameters! {
    /// Every n-th packet is lost.
    EveryNthStage {
        /// 3 loses every third one; it is needed.
        n: NonZeroU32,
    }
}

parameters! {
    /// Random loss.
    LossStage {
        /// How much; it is needed.
        loss: LossSpec,
    }
}

parameters! {
    /// Bit errors.
    BerStage {
        /// The share of bits that are wrong; it is needed.
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
    /// tc's defaults are those of its `loss state`.
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
