//! Stages that no condition stands for, and second ones of those that have one.

use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use model::{
    BitErrorRate, Bytes, ConfigError, Delay, Effect, Factor, FourState, Gate, GilbertElliott,
    HoldBack, Jitter, Law, Link, LinkConfig, Nanos, Ordering, Probability, Queue, QueueLimit,
    Repeating, Slots, StageSpec, Stall, Trace,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jitter::JitterSpec;
use super::shares::{CorruptSpec, DuplicateSpec, ReorderSpec};
use super::values::{AqmSpec, LossSpec};
use super::{DirectionSpec, is_name};
use crate::Direction;

/// What may wait before a closed gate or a trace, where nothing else is said.
const DEFAULT_QUEUE: QueueLimit = QueueLimit::Packets(1_000);

/// For how long a packet is held back at most, where nothing else is said: shorter than most senders wait before they send again.
const DEFAULT_TIMEOUT: Nanos = Nanos::from_millis(100);

/// What a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StageKind {
    /// What comes while it is not `open` waits until it opens, in `queue`.
    Gate,
    /// A bottleneck that serves 1504 bytes at each of `times`, which repeat; `queue` and `aqm` are as those of a rate.
    Trace,
    /// Loss in bursts by its transitions, as tc's gemodel: `p`, `r`, `bad_loss`, `good_loss`, `ecn`.
    Gemodel,
    /// Loss in bursts within which packets are received, as tc's `loss state`: `p13`, `p31`, `p32`, `p23`, `p14`, `ecn`.
    FourState,
    /// The packets of these `indexes` are lost, counted from 0 as they come.
    Indexes,
    /// What is longer than `mtu` is dropped, and its sender told by ICMP.
    Mtu,
    /// Every `n`-th packet is lost.
    EveryNth,
    /// Random `loss`.
    Loss,
    /// Bit errors: `ber`.
    Ber,
    /// Propagation: `delay`, `jitter`, `size_delay`, `reorder`.
    Delay,
    /// Packets leave in bursts, `delay` (with `jitter`) or between `min` and `max` after the first; `packets` and `bytes` of each.
    Slots,
    /// The link stands still for `lasts` at the end of each period of `every`; packets wait until that is over.
    Stall,
    /// Packets held back until `extent` others have overtaken them, `share` of them, each for at most `timeout`.
    Reorder,
    /// Copies: `duplicate`.
    Duplicate,
    /// Flipped bits: `corrupt`.
    Corrupt,
}

/// Where in a direction of its hop a stage stands; several in one place stand as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Before the bottleneck's queue and everything else.
    #[default]
    First,
    /// Behind propagation.
    Last,
}

/// Every parameter is one entry here: fields, keys and the schema follow.
macro_rules! parameters {
    ($(#[doc = $help:literal] $key:ident: $kind:ty,)+) => {
        /// What the kinds of stages have; each has some of these.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct StageParameters {
            $(
                #[doc = $help]
                pub $key: Option<$kind>,
            )+
        }

        impl StageParameters {
            fn or(self, other: Self) -> Self {
                Self { $($key: self.$key.or(other.$key),)+ }
            }

            /// What makes these of `before` at a time; none where nothing differs.
            ///
            /// # Errors
            /// The key of what is said no longer: no step takes that back.
            pub(super) fn step_from(&self, before: &Self, at: Nanos) -> Result<Option<StageStep>, &'static str> {
                $(
                    if before.$key.is_some() && self.$key.is_none() {
                        return Err(stringify!($key));
                    }
                )+
                let step = StageStep {
                    at,
                    $($key: self.$key.clone().filter(|_| before.$key != self.$key),)+
                };
                Ok((step.parameters() != Self::default()).then_some(step))
            }

            /// The keys of what is said.
            fn said(&self) -> Vec<&'static str> {
                let all = [$((stringify!($key), self.$key.is_some()),)+];
                all.iter().filter(|(_, said)| *said).map(|(key, _)| *key).collect()
            }
        }

        /// A stage as files have it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct StageTable {
            /// What it does.
            pub kind: StageKind,
            /// Its name; the kind's when absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub name: Option<String>,
            /// Of the two one alone; each has such a stage when absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub direction: Option<Direction>,
            /// Where it stands.
            #[serde(default)]
            pub place: Place,
            $(
                #[doc = $help]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )+
            /// What changes later, in order of time.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub schedule: Vec<StageStep>,
        }

        /// What a stage does from a time on; what it does not name stays as it was.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct StageStep {
            /// From when on, counted from the link's start.
            pub at: Nanos,
            $(
                #[doc = $help]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )+
        }

        impl StageTable {
            /// What it is at first.
            pub fn parameters(&self) -> StageParameters {
                StageParameters { $($key: self.$key.clone(),)+ }
            }

            /// The same stage with other parameters and another schedule.
            pub(super) fn with(&self, parameters: StageParameters, schedule: Vec<StageStep>) -> Self {
                let Self { kind, name, direction, place, .. } = self.clone();
                Self { kind, name, direction, place, $($key: parameters.$key,)+ schedule }
            }
        }

        impl StageStep {
            /// What changes.
            pub fn parameters(&self) -> StageParameters {
                StageParameters { $($key: self.$key.clone(),)+ }
            }
        }
    };
}

parameters! {
    /// Whether a gate lets packets pass; true when absent.
    open: bool,
    /// The waiting room of a gate or trace; 1000 packets when absent.
    queue: QueueLimit,
    /// When a trace serves, in milliseconds from the link's start; the last one is how long it lasts until it repeats.
    times: Vec<u64>,
    /// Active management of a trace's queue.
    aqm: AqmSpec,
    /// The probability that a bad state follows a good one, a packet.
    p: Probability,
    /// The probability that a good state follows a bad one, a packet.
    r: Probability,
    /// Loss in the bad state (1-h); 100 % when absent.
    bad_loss: Probability,
    /// Loss in the good state (1-k); none when absent.
    good_loss: Probability,
    /// The probability that a burst begins, with a loss.
    p13: Probability,
    /// The probability that a burst ends behind a loss; 100 % less p13 when absent.
    p31: Probability,
    /// The probability that packets are received within a burst, behind a loss; none when absent.
    p32: Probability,
    /// The probability that losses go on; 100 % when absent.
    p23: Probability,
    /// The probability that one packet alone is lost; none when absent.
    p14: Probability,
    /// Which packets are lost by their numbers, in ascending order; the first one has 0.
    indexes: Vec<u64>,
    /// Whether packets are marked in place of being lost, where their senders understand marks; false when absent.
    ecn: bool,
    /// Which packets are lost by counting: 3 is every third.
    n: NonZeroU32,
    /// The longest packet that passes, in L3 bytes.
    mtu: u16,
    /// Random loss.
    loss: LossSpec,
    /// The share of bits that are wrong.
    ber: BitErrorRate,
    /// Propagation delay.
    delay: Nanos,
    /// How far each packet's delay varies.
    jitter: JitterSpec,
    /// Delay that grows with the packet.
    size_delay: Factor,
    /// The least that a packet waits for a slot; 0 when absent.
    min: Nanos,
    /// The most that a packet waits for a slot; `min` when absent.
    max: Nanos,
    /// The packets that leave in one slot; any number when absent.
    packets: NonZeroU32,
    /// The L2 bytes after which a slot is over; any number when absent.
    bytes: Bytes,
    /// The period of a stall; there is none where it is 0.
    every: Nanos,
    /// How long the link stands still in each period.
    lasts: Nanos,
    /// How many packets pass the delay at once.
    reorder: ReorderSpec,
    /// How many packets are held back.
    share: Probability,
    /// How many later packets overtake one that is held back.
    extent: NonZeroU32,
    /// How long a packet is held back at most; 100 ms when absent.
    timeout: Nanos,
    /// How many packets are followed by a copy.
    duplicate: DuplicateSpec,
    /// How many packets have bits flipped.
    corrupt: CorruptSpec,
}

impl StageTable {
    /// What it is at a time.
    pub(super) fn then(&self, time: Nanos) -> StageParameters {
        let until_then = self.schedule.iter().filter(|step| step.at <= time);
        until_then.fold(self.parameters(), |before, step| {
            step.parameters().or(before)
        })
    }

    /// Its name, or the kind's.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.kind.name())
    }

    /// Whether it stands in this direction, here.
    pub(super) fn is_in(&self, direction: Direction, place: Place) -> bool {
        self.direction.is_none_or(|own| own == direction) && self.place == place
    }

    /// The model's stage, under names that begin as `prefix` does.
    pub(super) fn to_model(&self, prefix: &str) -> Result<StageSpec> {
        self.stage(prefix)
            .with_context(|| format!("stages: {}", self.name()))
    }

    fn stage(&self, prefix: &str) -> Result<StageSpec> {
        ensure!(
            is_name(self.name()),
            "name: a stage needs a name of letters, digits, - and _, such as gate"
        );
        let mut now = self.parameters();
        let mut stage =
            StageSpec::new(format!("{prefix}.{}", self.name()), self.kind.effect(&now)?);
        let mut last = Nanos::ZERO;
        for step in &self.schedule {
            let at = step.at;
            ensure!(
                last <= at,
                "schedule: {at} stands behind {last}: put it in order of time"
            );
            last = at;
            now = step.parameters().or(now);
            stage.schedule.push((at, self.kind.effect(&now)?));
        }
        check(&stage)?;
        Ok(stage)
    }
}

impl StageKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Trace => "trace",
            Self::Gemodel => "gemodel",
            Self::FourState => "four-state",
            Self::Indexes => "indexes",
            Self::Mtu => "mtu",
            Self::EveryNth => "every-nth",
            Self::Loss => "loss",
            Self::Ber => "ber",
            Self::Delay => "delay",
            Self::Slots => "slots",
            Self::Stall => "stall",
            Self::Reorder => "reorder",
            Self::Duplicate => "duplicate",
            Self::Corrupt => "corrupt",
        }
    }

    /// The keys that it has, the one that it needs first, or in an array of their own.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Gate => &["open", "queue"],
            Self::Trace => &["times", "queue", "aqm"],
            Self::Gemodel => &["p", "r", "bad_loss", "good_loss", "ecn"],
            Self::FourState => &["p13", "p31", "p32", "p23", "p14", "ecn"],
            Self::Indexes => &["indexes"],
            Self::Mtu => &["mtu"],
            Self::EveryNth => &["n"],
            Self::Loss => &["loss"],
            Self::Ber => &["ber"],
            Self::Delay => &["delay", "jitter", "size_delay", "reorder"],
            Self::Slots => &["min", "max", "delay", "jitter", "packets", "bytes"],
            Self::Stall => &["every", "lasts"],
            Self::Reorder => &["share", "extent", "timeout"],
            Self::Duplicate => &["duplicate"],
            Self::Corrupt => &["corrupt"],
        }
    }

    fn effect(self, with: &StageParameters) -> Result<Effect> {
        let known = self.keys();
        let name = self.name();
        if let Some(other) = with.said().iter().find(|key| !known.contains(key)) {
            let known = known.join(", ");
            bail!("{other}: no key of kind = \"{name}\", which has {known}");
        }
        let effect = match self {
            Self::Gate => Effect::Gate(Gate {
                open: with.open.unwrap_or(true),
                queue: with.queue.unwrap_or(DEFAULT_QUEUE),
            }),
            Self::Trace => Effect::Trace(trace(with)?),
            Self::Gemodel => {
                let all = Probability::from_percent(100.0)?;
                Effect::GilbertElliott(GilbertElliott {
                    to_bad: with
                        .p
                        .context("p: how often a burst begins is missing: p = \"1%\"")?,
                    to_good: with
                        .r
                        .context("r: how often a burst ends is missing: r = \"10%\"")?,
                    bad_loss: with.bad_loss.unwrap_or(all),
                    good_loss: with.good_loss.unwrap_or_default(),
                    ecn: with.ecn.unwrap_or_default(),
                })
            }
            Self::FourState => Effect::FourState(four_state(with)?),
            Self::Indexes => {
                let indexes = with.indexes.as_deref();
                let indexes = indexes.context("indexes: they are missing: indexes = [0, 3, 7]")?;
                Effect::Indexes(indexes.into())
            }
            Self::Mtu => Effect::Mtu(with.mtu.context("mtu: it is missing: mtu = 1400")?),
            Self::EveryNth => Effect::EveryNth(with.n.context("n: it is missing: n = 100")?),
            Self::Loss => {
                let loss = with.loss.context("loss: it is missing: loss = \"1%\"")?;
                match loss.effects() {
                    [Effect::Nothing, bursts] => bursts,
                    [single, _] => single,
                }
            }
            Self::Ber => {
                let rate = with.ber.context("ber: it is missing: ber = \"1e-6\"")?;
                Effect::BitErrors(rate)
            }
            Self::Delay => {
                let direction = DirectionSpec {
                    delay: with.delay,
                    jitter: with.jitter.clone(),
                    size_delay: with.size_delay,
                    reorder: with.reorder,
                    ..DirectionSpec::default()
                };
                if !direction.has_delay() {
                    direction.refuse_undelayed()?;
                }
                let delay = direction.delay();
                ensure!(
                    !with.said().is_empty(),
                    "delay: it is missing: delay = \"20ms\""
                );
                if delay == Delay::default() {
                    Effect::Nothing
                } else {
                    Effect::Delay(delay)
                }
            }
            Self::Slots => Effect::Slots(slots(with)?),
            Self::Stall => Effect::Stall(Stall {
                every: with
                    .every
                    .context("every: it is missing: every = \"15s\"")?,
                lasts: with
                    .lasts
                    .context("lasts: it is missing: lasts = \"100ms\"")?,
            }),
            Self::Reorder => {
                let share = with.share.context("share: it is missing: share = \"1%\"")?;
                let extent = with.extent.context("extent: it is missing: extent = 3")?;
                let timeout = with.timeout.unwrap_or(DEFAULT_TIMEOUT);
                Effect::HoldBack(HoldBack {
                    share,
                    extent,
                    timeout,
                })
            }
            Self::Duplicate => {
                let share = with.duplicate;
                let share = share.context("duplicate: it is missing: duplicate = \"1%\"")?;
                Effect::Duplicate(share.0)
            }
            Self::Corrupt => {
                let share = with.corrupt;
                let share = share.context("corrupt: it is missing: corrupt = \"0.1%\"")?;
                Effect::Corrupt(share.0)
            }
        };
        Ok(effect)
    }
}

fn slots(with: &StageParameters) -> Result<Slots> {
    let (delay, jitter) = match (with.min.is_some() || with.max.is_some(), with.delay) {
        (true, None) => {
            let min = with.min.unwrap_or_default();
            let max = with.max.unwrap_or(min);
            ensure!(min <= max, "max: {max} is below min, {min}");
            ensure!(
                with.jitter.is_none(),
                "jitter: it is of delay: leave it or min and max out"
            );
            let spread = Nanos((max.0 - min.0) / 2);
            let varies = spread > Nanos::ZERO;
            (
                min + spread,
                varies.then(|| Jitter::new(spread, Law::Uniform)),
            )
        }
        (true, Some(_)) => bail!("delay: either it, with jitter, or min and max"),
        (false, delay) => {
            let delay = delay.context("min: it is missing: min = \"1ms\", max = \"4ms\"")?;
            let jitter = with.jitter.clone();
            let jitter = jitter.filter(|spec| spec.jitter.spread > Nanos::ZERO);
            let is_ordered = jitter
                .as_ref()
                .is_none_or(|spec| spec.ordering == Ordering::Fifo);
            ensure!(
                is_ordered,
                "jitter: slots keep the order of packets: leave free or per-flow out"
            );
            (delay, jitter.map(|spec| spec.jitter))
        }
    };
    Ok(Slots {
        delay,
        jitter,
        packets: with.packets,
        bytes: with.bytes,
    })
}

/// Refuses what the model refuses of one stage, by its key.
fn check(stage: &StageSpec) -> Result<()> {
    let alone = LinkConfig::new(0, vec![stage.clone()], Vec::new());
    Link::new(&alone).map(drop).map_err(|cause| match cause {
        ConfigError::OutOfRange {
            field,
            value,
            right,
            ..
        } => anyhow!("{field}: {value} is out of range: {right}"),
        other => other.into(),
    })
}

/// tc's defaults are those of its `loss state`.
fn four_state(with: &StageParameters) -> Result<FourState> {
    let all = Probability::from_percent(100.0)?;
    let missing = "p13: how often a burst begins is missing: p13 = \"1%\"";
    let p13 = with.p13.context(missing)?;
    let rest = Probability::from_percent(100.0 - p13.percent())?;
    Ok(FourState {
        p13,
        p31: with.p31.unwrap_or(rest),
        p32: with.p32.unwrap_or_default(),
        p23: with.p23.unwrap_or(all),
        p14: with.p14.unwrap_or_default(),
        ecn: with.ecn.unwrap_or_default(),
    })
}

fn trace(with: &StageParameters) -> Result<Trace> {
    let times = with.times.iter().flatten();
    let times = times.map(|ms| Nanos(ms.saturating_mul(1_000_000)));
    let opportunities = Repeating::new(times.collect()).context("times")?;
    let usual = with.aqm.and_then(AqmSpec::usual_limit);
    let usual = usual.unwrap_or(DEFAULT_QUEUE);
    Ok(Trace {
        opportunities: Arc::new(opportunities),
        queue: Queue {
            limit: with.queue.unwrap_or(usual),
            discipline: with.aqm.map(|aqm| aqm.0).unwrap_or_default(),
        },
    })
}
