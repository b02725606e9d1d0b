//! Random loss.

use std::fmt;

use model::{Effect, GilbertElliott, Probability, RandomLoss};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{describe, text_form};
use crate::read::OrText;

/// Random loss, written `1%`, `1%,burst=8` or `1%,ecn`, or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as 1%,burst=8, or a table"
)]
#[schemars(transform = OrText::of("share"))]
pub struct LossSpec {
    /// The share that is lost in the long run.
    pub share: Probability,
    /// The average number of packets that are lost in a row; when absent, each packet is lost independently.
    #[serde(default)]
    pub burst: Option<f64>,
    /// Whether packets are marked instead of lost, if their senders understand marks.
    #[serde(default)]
    pub ecn: bool,
}

describe! {
    LossSpec: "loss" = "PERCENT[,burst=N][,ecn]", as in "1%,burst=8", shapes Loss;
    "Random loss in each direction: 1%, or 1%,burst=8"
    + "With burst=8, the average burst of losses is 8 packets long. With 1%,ecn, packets that support ECN are marked instead of dropped"
}

impl LossSpec {
    fn check(&self) -> Result<(), String> {
        let Self { share, .. } = self;
        let Some(burst) = self.burst else {
            return Ok(());
        };
        if !(burst >= 1.0 && burst.is_finite()) {
            return Err(format!(
                "burst = {burst} is out of range: a burst is at least 1 packet long on average, as in burst=8"
            ));
        }
        if GilbertElliott::of_bursts(*share, burst).is_ok() {
            return Ok(());
        }
        let odds = share.fraction() / (1.0 - share.fraction());
        Err(if odds.is_finite() {
            format!(
                "a loss of {share} needs bursts of at least {odds:.3} packets on average, not of {burst}"
            )
        } else {
            "a loss of 100% has no bursts: leave burst out".to_owned()
        })
    }

    /// Returns an effect that loses packets independently and one that loses them in bursts; at least one is
    /// [`Effect::Nothing`].
    pub(crate) fn effects(self) -> [Effect; 2] {
        let Self { share, burst, ecn } = self;
        let bursts = burst.map(|burst| GilbertElliott::of_bursts(share, burst));
        match bursts {
            _ if share == Probability::ZERO => [Effect::Nothing, Effect::Nothing],
            Some(Ok(law)) => {
                let law = GilbertElliott { ecn, ..law };
                [Effect::Nothing, Effect::GilbertElliott(law)]
            }
            // A burst that cannot exist was refused when it was read.
            Some(Err(_)) | None => [Effect::Loss(RandomLoss { share, ecn }), Effect::Nothing],
        }
    }
}

impl fmt::Display for LossSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.share.fmt(f)?;
        if let Some(burst) = self.burst {
            write!(f, ",burst={burst}")?;
        }
        f.write_str(if self.ecn { ",ecn" } else { "" })
    }
}

text_form!(LossSpec, checked);
