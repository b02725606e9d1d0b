//! Stages that delay packets.

use std::num::NonZeroU32;

use super::needed;
use crate::condition::{Condition, DelaySpec, JitterSpec, ReorderSpec, SizeDelaySpec};
use crate::error::Error;
use crate::layer::ConditionSet;
use crate::require;
use model::{
    Bytes, Delay, Effect, HoldBack, Jitter, Law, Nanos, Ordering, Probability, Slots, Stall,
};

/// For how long a packet is held back at most, where nothing else is said: shorter than most senders wait before they send again.
const DEFAULT_TIMEOUT: Nanos = Nanos::from_millis(100);

parameters! {
    /// Propagation; one of its keys is needed.
    DelayStage {
        /// Propagation delay.
        delay: DelaySpec,
        /// How far each packet's delay varies.
        jitter: JitterSpec,
        /// Delay that grows with the packet.
        size_delay: SizeDelaySpec,
        /// How many packets pass the delay immediately.
        reorder: ReorderSpec,
    }
}

parameters! {
    /// Packets leave in bursts: `delay` after the first of each, with `jitter`, or between `min` and `max`.
    SlotsStage {
        /// The least that a packet waits for a slot; 0 when absent.
        min: Nanos,
        /// The most that a packet waits for a slot; `min` when absent.
        max: Nanos,
        /// How long a packet waits for a slot on average.
        delay: Nanos,
        /// How far that varies.
        jitter: JitterSpec,
        /// The packets that leave in one slot; any number when absent.
        packets: NonZeroU32,
        /// The L2 bytes after which a slot is over; any number when absent.
        bytes: Bytes,
    }
}

parameters! {
    /// Packets are held back until others have overtaken them.
    HoldBackStage {
        /// How many packets are held back; it is needed.
        share: Probability,
        /// How many later packets overtake one that is held back; it is needed.
        extent: NonZeroU32,
        /// How long a packet is held back at most; 100 ms when absent.
        timeout: Nanos,
    }
}

parameters! {
    /// The link stands still at the end of each period; packets wait until that is over.
    StallStage {
        /// The period; there is no stall where it is 0. It is needed.
        every: Nanos,
        /// How long the link stands still in each period; it is needed.
        lasts: Nanos,
    }
}

impl DelayStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let conditions: [Option<Condition>; 4] = [
            self.delay.map(Into::into),
            self.jitter.clone().map(Into::into),
            self.size_delay.map(Into::into),
            self.reorder.map(Into::into),
        ];
        let said: ConditionSet = conditions.into_iter().flatten().collect();
        if said.is_empty() {
            return Err(Error::missing("delay", "delay = \"20ms\""));
        }
        said.check_needs(true, said.delays())?;
        let delay = said.delay();
        Ok(match delay == Delay::default() {
            true => Effect::Nothing,
            false => Effect::Delay(delay),
        })
    }
}

impl SlotsStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        let (delay, jitter) = match (self.min.is_some() || self.max.is_some(), self.delay) {
            (true, None) => {
                let min = self.min.unwrap_or_default();
                let max = self.max.unwrap_or(min);
                require!(min <= max, "max": "{max} is less than min, {min}");
                require!(
                    self.jitter.is_none(),
                    "jitter": "jitter belongs to delay: leave jitter out, or min and max"
                );
                let spread = Nanos((max.0 - min.0) / 2);
                let varies = spread > Nanos::ZERO;
                (
                    min + spread,
                    varies.then(|| Jitter::new(spread, Law::Uniform)),
                )
            }
            (true, Some(_)) => {
                return Err(
                    Error::other("state either delay, with jitter, or min and max").at("delay"),
                );
            }
            (false, delay) => {
                let jitter = self.jitter.as_ref();
                let is_ordered = jitter.is_none_or(|spec| {
                    spec.ordering == Ordering::Fifo || spec.spread == Nanos::ZERO
                });
                require!(
                    is_ordered,
                    "jitter": "slots keep the order of packets: leave free and per-flow out"
                );
                let jitter = jitter.and_then(JitterSpec::to_model);
                let delay = needed(delay, "min", "min = \"1ms\", max = \"4ms\"")?;
                (delay, jitter)
            }
        };
        Ok(Effect::Slots(Slots {
            delay,
            jitter,
            packets: self.packets,
            bytes: self.bytes,
        }))
    }
}

impl HoldBackStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        Ok(Effect::HoldBack(HoldBack {
            share: needed(self.share, "share", "share = \"1%\"")?,
            extent: needed(self.extent, "extent", "extent = 3")?,
            timeout: self.timeout.unwrap_or(DEFAULT_TIMEOUT),
        }))
    }
}

impl StallStage {
    pub(super) fn effect(&self) -> Result<Effect, Error> {
        Ok(Effect::Stall(Stall {
            every: needed(self.every, "every", "every = \"15s\"")?,
            lasts: needed(self.lasts, "lasts", "lasts = \"100ms\"")?,
        }))
    }
}
