//! A link's conditions as a user writes them, in a file or on the command line, and their way into the model.

mod as_netem;
mod classes;
mod hop;
mod jitter;
mod netem;
mod profiles;
pub mod reach;
mod rules;
mod shares;
mod stages;
mod timeline;
mod values;
pub mod warnings;

use std::mem;
use std::str::FromStr;

use anyhow::{Result, bail, ensure};
use model::{
    BitErrorRate, Effect, Factor, Fluctuation, Framing, Link, Nanos, Probability, QueueLimit,
    ScheduleClock,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

pub use self::as_netem::AsNetem;
pub use self::classes::ClassSpec;
pub use self::hop::{Hop, Stages, emulated_link, route};

pub use self::jitter::JitterSpec;
pub use self::netem::NetemSpec;
pub use self::profiles::{LinkProfile, PROFILES};
pub use self::rules::{EmulatedLink, Protocol, Rule, Rules};
pub use self::shares::{CorruptSpec, DuplicateSpec, ReorderSpec};
pub use self::stages::{Place, StageKind, StageParameters, StageStep, StageTable};
pub use self::timeline::over_time;
pub use self::values::{AqmSpec, LineRate, LossSpec, PoliceSpec};
use crate::key_values::{self, KeyValues};
use crate::nearest;

/// The waiting room of a rate for which none was asked: 100 ms at that rate.
const DEFAULT_QUEUE: QueueLimit = QueueLimit::Time(Nanos(100_000_000));
/// The waiting room of a TOFFEE box, both directions together.
const DEFAULT_TOFFEE_QUEUE: QueueLimit = QueueLimit::Packets(1000);
/// The seed of a link for which none was given, so that a command repeated loses the same packets.
const DEFAULT_SEED: u64 = 1;

/// A condition that can be said of a direction: a key in files, a flag on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Its key; the flag has hyphens where this has underscores.
    pub key: &'static str,
    /// What stands for its value in a flag's help.
    pub value_name: &'static str,
    /// What it is, with examples of its value.
    pub help: &'static str,
    /// The condition by itself, with the value that a text says.
    pub read: fn(&str) -> Result<DirectionSpec, String>,
}

/// The key of a condition, where one is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionName(&'static str);

/// Every condition is one entry here. All that differs between them follows: fields, keys, flags and the schema.
macro_rules! conditions {
    ($(
        #[doc = $help:literal]
        $(#[$attribute:meta])*
        $key:ident: $kind:ty = $value_name:literal,
    )+) => {
        /// The conditions of one direction, or those of both.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct DirectionSpec {
            $(
                #[doc = $help]
                $(#[$attribute])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )+
            /// What changes later, in order of time.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub schedule: Vec<Step>,
        }

        /// Conditions from a time on; what it does not name stays as it was.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Step {
            /// From when on, counted from the link's start.
            pub at: Nanos,
            /// Conditions that hold no longer.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub without: Vec<ConditionName>,
            $(
                #[doc = $help]
                $(#[$attribute])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )+
        }

        impl Step {
            /// What it says, without its time.
            fn conditions(&self) -> DirectionSpec {
                DirectionSpec { $($key: self.$key.clone(),)+ schedule: Vec::new() }
            }

            /// What stands from it on, where `before` stood.
            fn over(&self, before: DirectionSpec) -> DirectionSpec {
                let goes = |key: &str| self.without.iter().any(|name| name.0 == key);
                let left = DirectionSpec {
                    $($key: before.$key.filter(|_| !goes(stringify!($key))),)+
                    schedule: before.schedule,
                };
                self.conditions().or(left)
            }

            /// The step that makes `now` of `before` at a time; none where nothing differs.
            fn between(at: Nanos, before: &DirectionSpec, now: &DirectionSpec) -> Option<Self> {
                let gone = [$((stringify!($key), before.$key.is_some() && now.$key.is_none()),)+];
                let gone = gone.into_iter().filter(|(_, is_gone)| *is_gone);
                let step = Self {
                    at,
                    without: gone.map(|(key, _)| ConditionName(key)).collect(),
                    $($key: now.$key.clone().filter(|_| before.$key != now.$key),)+
                };
                let is_change = !step.without.is_empty() || !step.conditions().is_empty();
                is_change.then_some(step)
            }
        }

        /// Every condition, in the order of help and files.
        pub const CONDITIONS: &[Condition] = &[$(Condition {
            key: stringify!($key),
            value_name: $value_name,
            help: $help.trim_ascii(),
            read: |text| {
                let value = text.parse::<$kind>().map_err(|cause| cause.to_string())?;
                Ok(DirectionSpec { $key: Some(value), ..DirectionSpec::default() })
            },
        },)+];

        impl DirectionSpec {
            /// What this says, and of all else what `other` says.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                let schedule = either(self.schedule, other.schedule);
                Self { $($key: self.$key.or(other.$key),)+ schedule }
            }

            /// Whether it says something of this condition.
            fn says_of(&self, name: &ConditionName) -> bool {
                let said = [$((stringify!($key), self.$key.is_some()),)+];
                said.contains(&(name.0, true))
            }

            /// What this says and `other` does not.
            fn without(mut self, other: &Self) -> Self {
                if !other.schedule.is_empty() {
                    self.schedule.clear();
                }
                Self { $($key: self.$key.filter(|_| other.$key.is_none()),)+ ..self }
            }
        }

        /// [`LinkSpec`] as files have it: what holds in both directions is not in a table of its own. Serde's `flatten` would
        /// lose the line of a wrong value, and the known keys.
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename = "LinkSpec")]
        /// Conditions of one link; what `up` or `down` names overrides the common value in that direction.
        struct FlatLinkSpec {
            /// A link that ships, as `farwire profiles` lists them; what is written beside overrides it.
            #[serde(default, skip_serializing)]
            profile: Option<LinkProfile>,
            $(
                #[doc = $help]
                $(#[$attribute])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                $key: Option<$kind>,
            )+
            /// TOFFEE-Mocha's box: one server that both directions share.
            #[serde(
                default,
                deserialize_with = "key_values::text_or_table",
                skip_serializing_if = "Option::is_none"
            )]
            toffee: Option<ToffeeSpec>,
            /// Every random draw follows from it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            seed: Option<u64>,
            /// Overrides from client to server.
            #[serde(default, skip_serializing_if = "DirectionSpec::is_empty")]
            up: DirectionSpec,
            /// Overrides from server to client.
            #[serde(default, skip_serializing_if = "DirectionSpec::is_empty")]
            down: DirectionSpec,
            /// What changes later, in order of time.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            schedule: Vec<Step>,
            /// What no condition says.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            stages: Vec<StageTable>,
            /// Packets that meet something else; the first class that takes a packet has it.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            classes: Vec<ClassSpec>,
        }

        /// [`ClassSpec`] as files have it.
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename = "ClassSpec")]
        /// Packets that a rule takes, and what is different for them.
        struct FlatClassSpec {
            /// Its name in summaries.
            name: String,
            /// The protocol that IP carries; any when absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            protocol: Option<Protocol>,
            /// The port of UDP or TCP at either end; any when absent.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            port: Option<u16>,
            $(
                #[doc = $help]
                $(#[$attribute])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                $key: Option<$kind>,
            )+
            /// Overrides from client to server.
            #[serde(default, skip_serializing_if = "DirectionSpec::is_empty")]
            up: DirectionSpec,
            /// Overrides from server to client.
            #[serde(default, skip_serializing_if = "DirectionSpec::is_empty")]
            down: DirectionSpec,
            /// What changes later, in order of time.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            schedule: Vec<Step>,
        }

        impl From<FlatClassSpec> for ClassSpec {
            fn from(flat: FlatClassSpec) -> Self {
                let FlatClassSpec { name, protocol, port, $($key,)+ up, down, schedule } = flat;
                let both = DirectionSpec { $($key,)+ schedule };
                Self { rule: Rule { name, protocol, port }, both, up, down }
            }
        }

        impl From<ClassSpec> for FlatClassSpec {
            fn from(ClassSpec { rule, both, up, down }: ClassSpec) -> Self {
                let Rule { name, protocol, port } = rule;
                let schedule = both.schedule;
                Self { name, protocol, port, $($key: both.$key,)+ up, down, schedule }
            }
        }

        impl From<FlatLinkSpec> for LinkSpec {
            fn from(flat: FlatLinkSpec) -> Self {
                let FlatLinkSpec { profile, $($key,)+ toffee, seed, up, down, schedule, stages, classes } = flat;
                let both = DirectionSpec { $($key,)+ schedule };
                let said = Self { both, toffee, seed, up, down, stages, classes };
                match profile {
                    Some(profile) => said.or(profile.conditions()),
                    None => said,
                }
            }
        }

        impl From<LinkSpec> for FlatLinkSpec {
            fn from(spec: LinkSpec) -> Self {
                let LinkSpec { both, toffee, seed, up, down, stages, classes } = spec;
                let schedule = both.schedule;
                let profile = None;
                Self { profile, $($key: both.$key,)+ toffee, seed, up, down, schedule, stages, classes }
            }
        }
    };
}

conditions! {
    /// Propagation delay, one way: 20ms, 500us
    delay: Nanos = "TIME",
    /// How far each packet's delay varies, and how: 2ms, 2ms,normal, 2ms,normal,half-life=50ms, 2ms,free (packets may overtake each other)
    jitter: JitterSpec = "TIME[,OPTION...]",
    /// Random loss, one way: 1%, or in bursts of 8 in the mean: 1%,burst=8; with 1%,ecn packets that allow it are marked instead
    loss: LossSpec = "PERCENT[,burst=N][,ecn]",
    /// The share of bits that are wrong, with which longer packets are lost more often: 1e-6
    ber: BitErrorRate = "RATE",
    /// How many packets are followed by a copy: 1%, or by one that comes 5 ms later: 1%,delay=5ms
    duplicate: DuplicateSpec = "PERCENT[,delay=TIME]",
    /// How many packets have bits flipped: 0.1%, two of them: 0.1%,bits=2; with 0.1%,repair in what they carry, and no checksum tells
    corrupt: CorruptSpec = "PERCENT[,bits=N][,repair]",
    /// What comes faster is dropped, but for bursts: 10mbit,burst=64KiB
    police: PoliceSpec = "RATE,burst=SIZE",
    /// How many packets pass the delay at once, and so overtake others: 5%; of every third one and those behind it: 5%,gap=3
    reorder: ReorderSpec = "PERCENT[,gap=N]",
    /// Bottleneck of one direction: 10mbit, 1gbit; 0bit serves nothing; of 10mbit,burst=32KiB what a token bucket holds passes at once
    rate: LineRate = "RATE[,burst=SIZE]",
    /// What the rate counts: l2 (frames without FCS), l1 (the wire), docsis, pppoe-ptm, or atm,overhead=18,mpu=96 [default: l2]
    rate_at: Framing = "LAYER",
    /// How far the rate varies and how long each value holds: spread=20%,hold=5s
    #[serde(deserialize_with = "key_values::text_or_table")]
    fluctuation: FluctuationSpec = "KEY=VALUE,...",
    /// Waiting room of the bottleneck: 100pkt, 64KiB, 50ms [default: 100ms at the rate; with AQM, as many packets as tc]
    queue: QueueLimit = "LIMIT",
    /// Management of the queue: drop-head, red, codel, fq_codel, pie, dualpi2, with options: fq_codel,target=5ms,noecn
    aqm: AqmSpec = "NAME[,OPTION...]",
    /// Delay that grows with the packet: microseconds = L2 bytes / FACTOR
    size_delay: Factor = "FACTOR",
    /// What Linux's netem does, in tc's words: "delay 100ms 10ms loss 1% 25%"
    netem: NetemSpec = "OPTIONS",
}

/// Conditions of one link; what `up` or `down` names overrides the common value in that direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "FlatLinkSpec", into = "FlatLinkSpec")]
pub struct LinkSpec {
    /// In each direction.
    pub both: DirectionSpec,
    /// TOFFEE-Mocha's box: one server that both directions share.
    pub toffee: Option<ToffeeSpec>,
    /// Every random draw follows from it; 1 when absent.
    pub seed: Option<u64>,
    /// Overrides from client to server.
    pub up: DirectionSpec,
    /// Overrides from server to client.
    pub down: DirectionSpec,
    /// What no condition says.
    pub stages: Vec<StageTable>,
    /// Packets that meet something else; the first class that takes a packet has it.
    pub classes: Vec<ClassSpec>,
}

/// A rate that is drawn anew again and again, each direction's by itself; every value within the spread is alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = text_too)]
pub struct FluctuationSpec {
    /// How far it may lie from the rate, in percent of it; below 100 %.
    pub spread: Probability,
    /// How long each lasts, 1 ms to 1 h.
    pub hold: Nanos,
}

/// TOFFEE's conditions, written as a table or as `delay=1ms,dynamic=1,drop=2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = text_too)]
pub struct ToffeeSpec {
    /// Constant service time a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// Service time of microseconds = L2 bytes / factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<Factor>,
    /// Drop factor k: loss of 5.5 % / k^2.5 in each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<Factor>,
    /// The waiting room; 1000 packets when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
}

impl LinkSpec {
    /// The seed asked for, or the default.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(DEFAULT_SEED)
    }

    /// What this says, and of all else what `other` says; what this says of both directions holds in each.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            up: self.up.or(other.up.without(&self.both)),
            down: self.down.or(other.down.without(&self.both)),
            both: self.both.or(other.both),
            toffee: self.toffee.or(other.toffee),
            seed: self.seed.or(other.seed),
            stages: either(self.stages, other.stages),
            classes: either(self.classes, other.classes),
        }
    }

    /// Whether anything in it changes by a schedule.
    #[must_use]
    pub fn has_schedule(&self) -> bool {
        self.last_step().is_some()
    }

    /// When the last change of its schedules comes, if it has some.
    #[must_use]
    pub fn last_step(&self) -> Option<Nanos> {
        let steps = self.layers().flat_map(|layer| &layer.schedule);
        let stages = self.stages.iter().flat_map(|stage| &stage.schedule);
        steps
            .map(|step| step.at)
            .chain(stages.map(|step| step.at))
            .max()
    }

    /// About how much memory it takes, in bytes: what its classes, stages and schedules do.
    #[must_use]
    pub fn memory(&self) -> usize {
        let steps: usize = self.layers().map(|layer| layer.schedule.len()).sum();
        let changes: usize = self.stages.iter().map(|stage| stage.schedule.len()).sum();
        size_of::<Self>()
            + size_of_val(self.classes.as_slice())
            + size_of_val(self.stages.as_slice())
            + steps * size_of::<Step>()
            + changes * size_of::<StageParameters>()
    }

    /// With schedules that count from the link's start, where these count by `clock`. A step that will never come has a time of
    /// [`Nanos::MAX`].
    #[must_use]
    pub fn on_clock(mut self, clock: ScheduleClock) -> Self {
        for layer in self.layers_mut() {
            for step in &mut layer.schedule {
                step.at = clock.link_time(step.at);
            }
        }
        for step in self.stages.iter_mut().flat_map(|stage| &mut stage.schedule) {
            step.at = clock.link_time(step.at);
        }
        self
    }

    /// What is in force at a time of its schedules, without them.
    #[must_use]
    pub fn then(mut self, time: Nanos) -> Self {
        for layer in self.layers_mut() {
            *layer = layer.then(time);
        }
        for stage in &mut self.stages {
            *stage = stage.with(stage.then(time), Vec::new());
        }
        self
    }

    fn layers(&self) -> impl Iterator<Item = &DirectionSpec> {
        let classes = self.classes.iter();
        let classes = classes.flat_map(|class| [&class.both, &class.up, &class.down]);
        [&self.both, &self.up, &self.down]
            .into_iter()
            .chain(classes)
    }

    fn layers_mut(&mut self) -> impl Iterator<Item = &mut DirectionSpec> {
        let classes = self.classes.iter_mut();
        let classes = classes.flat_map(|class| [&mut class.both, &mut class.up, &mut class.down]);
        [&mut self.both, &mut self.up, &mut self.down]
            .into_iter()
            .chain(classes)
    }

    /// Each direction as options of netem: up, then down.
    #[must_use]
    pub fn as_netem(&self) -> [AsNetem; 2] {
        let rest = [
            (self.toffee.is_some(), "toffee, which both directions share"),
            (!self.stages.is_empty(), "stages"),
            (
                !self.classes.is_empty(),
                "classes, which are filters and qdiscs of their own",
            ),
        ];
        let rest = rest.into_iter().filter(|(is_there, _)| *is_there);
        let rest: Vec<String> = rest.map(|(_, words)| words.to_owned()).collect();
        [&self.up, &self.down].map(|own| {
            let mut said = AsNetem::of(&own.clone().or(self.both.clone()));
            said.unsaid.extend(rest.iter().cloned());
            said
        })
    }

    /// A link of one hop of this name under these conditions.
    ///
    /// # Errors
    /// As [`LinkSpec::hop`].
    pub fn to_link(&self, hop: &str) -> Result<EmulatedLink> {
        self.to_link_of(hop, 0)
    }

    /// As [`LinkSpec::to_link`], as link `number` of several: links of one seed have draws of their own.
    ///
    /// # Errors
    /// As [`LinkSpec::hop`].
    pub fn to_link_of(&self, hop: &str, number: u64) -> Result<EmulatedLink> {
        Ok(emulated_link(&[self.hop(hop)?], self.seed(), number))
    }

    /// Refuses what the model would refuse, before anything is built.
    ///
    /// # Errors
    /// Conditions that contradict each other or lie out of range.
    pub fn check(&self) -> Result<()> {
        let config = self.to_link("link")?.config;
        Link::new(&config)?;
        let is_stalled =
            |effect: &Effect| matches!(effect, Effect::Rate(rate) if rate.rate.is_none());
        let mut stages = config.paths.iter().flat_map(|path| &path.stages);
        ensure!(
            !stages.any(|stage| stage.effects().all(is_stalled)),
            "rate: at 0bit for good nothing ever passes: state a rate, or let a schedule say when there is one"
        );
        Ok(())
    }
}

/// Conditions as they go with the time of their schedule, which is in order.
struct Moving<'s> {
    /// What they say, without a schedule.
    now: DirectionSpec,
    /// What is to come.
    steps: &'s [Step],
}

impl<'s> Moving<'s> {
    /// As they are at first, before any step.
    fn of(spec: &'s DirectionSpec) -> Self {
        Self {
            now: DirectionSpec {
                schedule: Vec::new(),
                ..spec.clone()
            },
            steps: &spec.schedule,
        }
    }

    /// What they say at a time, which is none before the one asked for last.
    fn go_to(&mut self, time: Nanos) -> &DirectionSpec {
        while let Some((step, later)) = self.steps.split_first().filter(|(step, _)| step.at <= time)
        {
            self.now = step.over(mem::take(&mut self.now));
            self.steps = later;
        }
        &self.now
    }
}

impl DirectionSpec {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All that it says at one time or another.
    fn ever(&self) -> Self {
        let said = self.schedule.iter().map(Step::conditions);
        said.fold(self.clone(), Self::or)
    }

    /// What it says at a time.
    fn then(&self, time: Nanos) -> Self {
        let mut moving = Moving::of(self);
        moving.go_to(time);
        moving.now
    }

    /// Refuses a schedule out of order, and a step that takes away what it sets.
    fn check_schedule(&self) -> Result<()> {
        for step in &self.schedule {
            let said = step.conditions();
            let both = step.without.iter().find(|name| said.says_of(name));
            if let Some(ConditionName(key)) = both {
                bail!(
                    "schedule: at {}: without = [\"{key}\"], and {key} beside it: leave one of them out",
                    step.at
                );
            }
        }
        for pair in self.schedule.windows(2) {
            let [before, after] = [pair[0].at, pair[1].at];
            ensure!(
                before <= after,
                "schedule: {after} stands behind {before}: put it in order of time"
            );
        }
        Ok(())
    }

    /// Refuses what needs a delay, where there is none.
    fn refuse_undelayed(&self) -> Result<()> {
        ensure!(
            self.reorder.is_none(),
            "reorder: it has packets pass others that a delay holds: state delay too, or leave reorder out"
        );
        Ok(())
    }

    /// Whether it says that packets are delayed.
    fn has_delay(&self) -> bool {
        self.delay.is_some() || self.jitter.is_some() || self.size_delay.is_some()
    }

    /// Refuses what needs a rate, where there is none.
    fn refuse_rateless(&self) -> Result<()> {
        if self.aqm.is_some() {
            bail!("aqm: it manages the queue of a rate: state rate too, or leave aqm out");
        }
        if self.queue.is_some() {
            bail!("queue: a queue needs a rate that fills it: state rate too, or leave queue out");
        }
        if self.rate_at.is_some() {
            bail!("rate_at: it says what a rate counts: state rate too, or leave rate_at out");
        }
        if self.fluctuation.is_some() {
            bail!("fluctuation: it is of a rate: state rate too, or leave fluctuation out");
        }
        Ok(())
    }
}

/// By hand, because serde's derive would have a text of the input for its own.
impl<'de> Deserialize<'de> for ConditionName {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        let known = || CONDITIONS.iter().map(|condition| condition.key);
        let found = known().find(|key| *key == text);
        found.map(Self).ok_or_else(|| {
            let near = nearest::or_all(&text, known());
            D::Error::custom(format!("`{text}` is no condition{near}"))
        })
    }
}

impl JsonSchema for ConditionName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConditionName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let keys: Vec<&str> = CONDITIONS.iter().map(|condition| condition.key).collect();
        json_schema!({ "type": "string", "enum": keys, "description": "The key of a condition." })
    }
}

impl FluctuationSpec {
    fn to_model(self) -> Fluctuation {
        Fluctuation {
            spread: self.spread,
            hold: self.hold,
        }
    }
}

impl KeyValues for FluctuationSpec {
    const EXAMPLE: &str = "spread=20%,hold=5s";
}

impl FromStr for FluctuationSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        key_values::parse(text)
    }
}

impl KeyValues for ToffeeSpec {
    const EXAMPLE: &str = "delay=1ms,drop=2";
}

impl FromStr for ToffeeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        key_values::parse(text)
    }
}

/// The loss in each direction that TOFFEE-Mocha's drop factor `k` stands for, 5.5 % / k^2.5; `None` for k < 1.
///
/// TOFFEE-Mocha publishes no law. This one is fitted to the downloads in The TOFFEE Project,
/// "TOFFEE-Mocha test cases, Raspberry Pi", 2016, cases 6 (k = 1: 0.70 MB/s) and 7 (k = 2: 5.5 MB/s), by a
/// sweep over the loss on the same reference path (CUBIC, 60 Mb/s, 1.86 ms RTT), which needed 5.5 % and
/// 0.95 %; the published pings (2 of 13 and 0 of 9 lost) agree.
fn loss_of(k: Factor) -> Option<Probability> {
    let k = k.get();
    let percent = 5.5 / (k * k * k.sqrt());
    (k >= 1.0).then(|| Probability::from_percent(percent).expect("0 to 5.5"))
}

/// Whether it may be part of the names of stages.
fn is_name(text: &str) -> bool {
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(is_right)
}

/// The first list, unless it is empty.
fn either<T>(first: Vec<T>, second: Vec<T>) -> Vec<T> {
    if first.is_empty() { second } else { first }
}

/// A table that may be written as text too.
fn text_too(schema: &mut Schema) {
    let table = mem::take(schema);
    *schema = json_schema!({ "anyOf": [{ "type": "string" }, table] });
}

#[cfg(test)]
mod tests;
