//! Stages that delay packets.

use std::num::NonZeroU32;

use super::needed;
use crate::condition::{Condition, DelaySpec, JitterSpec, ReorderSpec, SizeDelaySpec};
use crate::error::Error;
use crate::layer::{ConditionSet, Provided};
use crate::require;
use model::{
    Bytes, Delay, Effect, HoldBack, Jitter, Law, Nanos, Ordering, Probability, Slots, Stall,
};

/// The default time for which a packet is held back at most; shorter than most senders wait before they send again.
const DEFAULT_TIMEOUT: Nanos = Nanos::from_millis(100);

parameters! {
    /// Propagation delay; at least one of its keys is required.
    DelayStage {
        /// The propagation delay.
        delay: DelaySpec,
        /// The variation of the delay from packet to packet.
        jitter: JitterSpec,
        /// The delay that grows with the packet's length.
        size_delay: SizeDelaySpec,
        /// The share of packets that skip the delay.
        reorder: ReorderSpec,
    }
}

parameters! {
    /// Packets leave in bursts: `delay` after the first packet of each, with `jitter`, or between `min` and `max` after
    /// it.
    SlotsStage {
        /// The shortest time that a packet waits for a slot; 0 when absent.
        min: Nanos,
        /// The longest time that a packet waits for a slot; `min` when absent.
        max: Nanos,
        /// The average time that a packet waits for a slot.
        delay: Nanos,
        /// The variation of that time.
        jitter: JitterSpec,
        /// The number of packets that leave in one slot; unlimited when absent.
        packets: NonZeroU32,
        /// The L2 bytes after which a slot is over; unlimited when absent.
        bytes: Bytes,
    }
}

parameters! {
    /// Packets are held back until others have overtaken them.
    HoldBackStage {
        /// The share of packets that are held back; required.
        share: Probability,
        /// The number of later packets that overtake a held packet; required.
        extent: NonZeroU32,
        /// The longest time that a packet is held back; 100 ms when absent.
        timeout: Nanos,
    }
}

parameters! {
    /// The link stalls at the end of each period; packets wait until the stall is over.
    StallStage {
        /// The period; with 0 there is no stall. Required.
        every: Nanos,
        /// The length of the stall in each period; required.
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
        let set: ConditionSet = conditions.into_iter().flatten().collect();
        if set.is_empty() {
            return Err(Error::missing("delay", "delay = \"20ms\""));
        }
        set.check_needs(Provided {
            rate: false,
            delay: set.delays(),
            netem: false,
        })?;
        let delay = set.delay();
        Ok(if delay == Delay::default() {
            Effect::Nothing
        } else {
            Effect::Delay(delay)
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
                    Error::other("set either delay, with jitter, or min and max").at("delay"),
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
