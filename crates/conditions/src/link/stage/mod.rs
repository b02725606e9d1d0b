//! Stages that conditions cannot express, and further stages of the kinds that conditions make.

/// Declares the parameters of a kind of stage. Each is optional, because a step of a schedule states only what changes.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $($(#[$help:meta])+ $key:ident: $kind:ty,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$help])+
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )+
        }

        impl $name {
            /// The keys of the parameters.
            pub(super) const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];

            /// Returns these parameters, and those of `before` that these do not state. Lists are shared, not copied.
            pub(super) fn or(&self, before: &Self) -> Self {
                Self {
                    $($key: self.$key.clone().or_else(|| before.$key.clone()),)+
                }
            }
        }
    };
}

mod losses;
mod packets;
mod queues;
mod times;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use model::{Effect, Nanos, StageSpec};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value, json};

pub use self::losses::{
    BerStage, EveryNthStage, FourStateStage, GemodelStage, IndexesStage, LossStage,
};
pub use self::packets::{CorruptStage, DuplicateStage, MtuStage};
pub(in crate::link) use self::queues::DEFAULT_QUEUE;
pub use self::queues::{GateStage, TraceStage};
pub use self::times::{DelayStage, HoldBackStage, SlotsStage, StallStage};
use crate::Direction;
use crate::condition::{CorruptSpec, DuplicateSpec, JitterSpec};
use crate::error::{At, Error};
use crate::link::is_name;
use crate::read::{self, KIND, PartialTable, Tagged, read_tagged, serialize_keys};
use crate::{require, tagged};

tagged! {
    /// The effect of a stage. Every parameter is optional, because a step of a schedule states only what changes.
    #[derive(Clone, Debug, PartialEq)]
    pub enum StageKind, default None;

    /// Packets that come while it is not `open` wait in `queue` until it opens.
    "gate" => Gate(GateStage),
    /// A bottleneck that serves 1504 bytes at each of `times`, which repeat; `queue` and `aqm` are like those of a
    /// rate.
    "trace" => Trace(TraceStage),
    /// Loss in bursts, given by the transitions of a chain, as tc's gemodel.
    "gemodel" => Gemodel(GemodelStage),
    /// Loss in bursts within which some packets are received, as tc's `loss state`.
    "four-state" => FourState(FourStateStage),
    /// The packets with these numbers are lost.
    "indexes" => Indexes(IndexesStage),
    /// Packets longer than an MTU are dropped, and ICMP tells their senders.
    "mtu" => Mtu(MtuStage),
    /// Every n-th packet is lost.
    "every-nth" => EveryNth(EveryNthStage),
    /// Random loss.
    "loss" => Loss(LossStage),
    /// Bit errors, which lose the packets that contain them.
    "ber" => Ber(BerStage),
    /// Propagation delay.
    "delay" => Delay(DelayStage),
    /// Packets leave in bursts.
    "slots" => Slots(SlotsStage),
    /// The link stalls at the end of each period; packets wait until the stall is over.
    "stall" => Stall(StallStage),
    /// Packets are held back until others have overtaken them.
    "reorder" => HoldBack(HoldBackStage),
    /// Some packets are followed by a copy.
    "duplicate" => Duplicate(DuplicateStage),
    /// Bits of some packets are flipped.
    "corrupt" => Corrupt(CorruptStage),
}

/// The keys of the parameters of each kind, by its name.
pub(crate) const PARAMETERS: &[(&str, &[&str])] = &[
    ("gate", GateStage::KEYS),
    ("trace", TraceStage::KEYS),
    ("gemodel", GemodelStage::KEYS),
    ("four-state", FourStateStage::KEYS),
    ("indexes", IndexesStage::KEYS),
    ("mtu", MtuStage::KEYS),
    ("every-nth", EveryNthStage::KEYS),
    ("loss", LossStage::KEYS),
    ("ber", BerStage::KEYS),
    ("delay", DelayStage::KEYS),
    ("slots", SlotsStage::KEYS),
    ("stall", StallStage::KEYS),
    ("reorder", HoldBackStage::KEYS),
    ("duplicate", DuplicateStage::KEYS),
    ("corrupt", CorruptStage::KEYS),
];

/// A stage in addition to those that conditions make.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtraStage {
    /// Its effect at first.
    #[serde(flatten)]
    pub parameters: StageKind,
    /// Its name; the kind's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The only direction that has it; when absent, each direction has such a stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Its place among the stages of its direction.
    pub place: Place,
    /// Its later changes, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<StageStep>,
}

/// The effect of a stage from a time on; parameters that it does not state stay as they were.
#[derive(Clone, Debug, PartialEq)]
pub struct StageStep {
    /// The time from which on it holds, counted from the link's start.
    pub at: Nanos,
    /// The parameters that change.
    pub parameters: StageKind,
}

/// The place of a stage in a direction of its hop; several stages with one place are in the order in which they are
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Before the bottleneck's queue and everything else.
    #[default]
    First,
    /// Behind the propagation delay.
    Last,
}

impl ExtraStage {
    /// Returns its effect at a time.
    pub(crate) fn then(&self, time: Nanos) -> StageKind {
        let until_then = self.schedule.iter().filter(|step| step.at <= time);
        until_then.fold(self.parameters.clone(), |before, step| {
            step.parameters.or(&before)
        })
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    pub(crate) fn memory(&self) -> usize {
        let steps = self.schedule.iter().map(|step| step.parameters.memory());
        self.name.as_ref().map_or(0, String::capacity)
            + self.parameters.memory()
            + self.schedule.capacity() * size_of::<StageStep>()
            + steps.sum::<usize>()
    }

    /// Returns the same stage with another effect and schedule.
    pub(crate) fn with(&self, parameters: StageKind, schedule: Vec<StageStep>) -> Self {
        Self {
            parameters,
            schedule,
            ..self.clone()
        }
    }

    /// Returns its name, or that of its kind.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.parameters.kind())
    }

    /// Returns whether it is in this direction at this place.
    pub(crate) fn is_in(&self, direction: Direction, place: Place) -> bool {
        self.direction.is_none_or(|own| own == direction) && self.place == place
    }

    /// Creates the model's stage, with a name that begins with `prefix`.
    pub(crate) fn to_model(&self, prefix: &str) -> Result<StageSpec, Error> {
        require!(
            is_name(self.name()),
            "name": "a stage needs a name of letters, digits, - and _, such as gate"
        );
        let mut now = self.parameters.clone();
        let mut stage = StageSpec::new(format!("{prefix}.{}", self.name()), now.effect()?);
        let mut last = Nanos::ZERO;
        for (number, step) in self.schedule.iter().enumerate() {
            let at = step.at;
            now = step.parameters.or(&now);
            let mut change = || {
                require!(last <= at, "at": "{at} comes after {last}: put the schedule in order of time");
                let mut effect = now.effect()?;
                if let (Effect::Trace(new), Some(Effect::Trace(last))) =
                    (&mut effect, stage.effects().last())
                    && !step.parameters.has_times()
                {
                    // It is the same trace, so it is kept only once.
                    new.opportunities = Arc::clone(&last.opportunities);
                }
                stage.schedule.push(at, effect);
                Ok::<_, Error>(())
            };
            change().at_item("schedule", number, None)?;
            last = at;
        }
        Ok(stage)
    }
}

/// Returns the value of a required parameter; `example` is what could be written.
fn needed<T>(value: Option<T>, key: &str, example: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::missing(key, example))
}

impl StageKind {
    fn effect(&self) -> Result<Effect, Error> {
        match self {
            Self::Gate(own) => Ok(own.effect()),
            Self::Trace(own) => own.effect(),
            Self::Gemodel(own) => own.effect(),
            Self::FourState(own) => own.effect(),
            Self::Indexes(own) => {
                let indexes = own.indexes.clone();
                needed(indexes, "indexes", "indexes = [0, 3, 7]").map(Effect::Indexes)
            }
            Self::Mtu(own) => needed(own.mtu, "mtu", "mtu = 1400").map(Effect::Mtu),
            Self::EveryNth(own) => needed(own.n, "n", "n = 100").map(Effect::EveryNth),
            Self::Loss(own) => own.effect(),
            Self::Ber(own) => needed(own.ber, "ber", "ber = \"1e-6\"").map(Effect::BitErrors),
            Self::Delay(own) => own.effect(),
            Self::Slots(own) => own.effect(),
            Self::Stall(own) => own.effect(),
            Self::HoldBack(own) => own.effect(),
            Self::Duplicate(own) => {
                let copies = needed(own.duplicate, "duplicate", "duplicate = \"1%\"");
                copies.map(DuplicateSpec::effect)
            }
            Self::Corrupt(own) => {
                let flips = needed(own.corrupt, "corrupt", "corrupt = \"0.1%\"");
                flips.map(CorruptSpec::effect)
            }
        }
    }

    /// Returns its parameters by key.
    fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }

    /// Creates a stage of this kind with these parameters.
    fn with_map(&self, mut map: Map<String, Value>) -> Self {
        map.insert(KIND.to_owned(), self.kind().into());
        read::json(map.into()).expect("each of these values was written by a stage of this kind")
    }

    /// Returns these parameters, and those of `before` that these do not state. Both are of one kind.
    fn or(&self, before: &Self) -> Self {
        macro_rules! of_one_kind {
            ($($kind:ident),+) => {
                match (self, before) {
                    $((Self::$kind(own), Self::$kind(before)) => Self::$kind(own.or(before)),)+
                    _ => self.clone(),
                }
            };
        }
        of_one_kind!(
            Gate, Trace, Gemodel, FourState, Indexes, Mtu, EveryNth, Loss, Ber, Delay, Slots,
            Stall, HoldBack, Duplicate, Corrupt
        )
    }

    /// Returns the time after which it begins again if it serves at given times.
    pub(crate) fn period(&self) -> Option<Nanos> {
        let Self::Trace(trace) = self else {
            return None;
        };
        let last = trace.times.as_deref()?.last()?;
        Some(Nanos::from_millis(*last))
    }

    /// Returns whether it is a trace that states its times.
    fn has_times(&self) -> bool {
        matches!(self, Self::Trace(trace) if trace.times.is_some())
    }

    /// Returns the bytes of its lists.
    fn memory(&self) -> usize {
        match self {
            Self::Indexes(own) => own.indexes.as_deref().map_or(0, size_of_val),
            Self::Trace(own) => own.times.as_deref().map_or(0, size_of_val),
            Self::Delay(own) => own.jitter.as_ref().map_or(0, JitterSpec::memory),
            Self::Slots(own) => own.jitter.as_ref().map_or(0, JitterSpec::memory),
            _ => 0,
        }
    }

    /// Returns the step at `at` that changes `before` to this; `None` if they are equal.
    ///
    /// # Errors
    /// Returns the key of a parameter that is no longer stated, because no step can remove it.
    pub(crate) fn step_from(&self, before: &Self, at: Nanos) -> Result<Option<StageStep>, String> {
        let (mut now, before) = (self.to_map(), before.to_map());
        if let Some(gone) = before.keys().find(|key| !now.contains_key(*key)) {
            return Err(gone.clone());
        }
        now.retain(|key, value| before.get(key) != Some(value));
        let parameters = (!now.is_empty()).then(|| self.with_map(now));
        Ok(parameters.map(|parameters| StageStep { at, parameters }))
    }
}

/// Reads a stage whose kind is known: the keys of every stage, and those of the kind.
struct StageVisitor(&'static str);

impl<'de> Visitor<'de> for StageVisitor {
    type Value = ExtraStage;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a stage")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ExtraStage, A::Error> {
        let Self(kind) = self;
        let (mut name, mut direction, mut place) = (None, None, Place::default());
        let mut schedule = Vec::new();
        let own = |key: &str, map: &mut A| {
            match key {
                "name" => name = map.next_value()?,
                "direction" => direction = map.next_value()?,
                "place" => place = map.next_value()?,
                "schedule" => schedule = map.next_value_seed(ScheduleSeed(kind))?,
                _ => return Ok(false),
            }
            Ok(true)
        };
        let parameters = StageKind::read(kind, PartialTable::of(None, map, own))?;
        Ok(ExtraStage {
            name,
            direction,
            place,
            parameters,
            schedule,
        })
    }
}

impl Tagged for ExtraStage {
    const KINDS: &'static [&'static str] = StageKind::KINDS;

    fn read<'de, D: Deserializer<'de>>(kind: &'static str, rest: D) -> Result<Self, D::Error> {
        rest.deserialize_map(StageVisitor(kind))
    }
}

impl<'de> Deserialize<'de> for ExtraStage {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read_tagged(source)
    }
}

/// Reads the schedule of a stage of this kind.
struct ScheduleSeed(&'static str);

impl<'de> DeserializeSeed<'de> for ScheduleSeed {
    type Value = Vec<StageStep>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ScheduleSeed {
    type Value = Vec<StageStep>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tables")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut steps = Vec::new();
        while let Some(step) = list.next_element_seed(StepSeed(self.0))? {
            steps.push(step);
        }
        Ok(steps)
    }
}

/// Reads a step of the schedule of a stage of this kind.
struct StepSeed(&'static str);

impl<'de> DeserializeSeed<'de> for StepSeed {
    type Value = StageStep;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<StageStep, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StepSeed {
    type Value = StageStep;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StageStep, A::Error> {
        let mut at = None;
        let own = |key: &str, map: &mut A| match key {
            "at" => map.next_value().map(|time| {
                at = Some(time);
                true
            }),
            _ => Ok(false),
        };
        let parameters = StageKind::read(self.0, PartialTable::of(None, map, own))?;
        let at = at.ok_or_else(|| de::Error::missing_field("at"))?;
        Ok(StageStep { at, parameters })
    }
}

impl Serialize for StageStep {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        let mut map = target.serialize_map(None)?;
        map.serialize_entry("at", &self.at)?;
        serialize_keys(&mut map, &self.parameters)?;
        map.end()
    }
}

impl JsonSchema for ExtraStage {
    fn schema_name() -> Cow<'static, str> {
        "Stage".into()
    }

    /// Creates a schema for each kind: its keys, those of every stage, and a schedule of its keys.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let own = [
            (
                "name",
                generator.subschema_for::<String>(),
                "Its name; the kind's when absent.",
            ),
            (
                "direction",
                generator.subschema_for::<Direction>(),
                "The only direction that has it; when absent, each direction has such a stage.",
            ),
            (
                "place",
                generator.subschema_for::<Place>(),
                "Its place among the stages of its direction.",
            ),
        ];
        let at = generator.subschema_for::<Nanos>();
        let mut all = StageKind::json_schema(generator);
        let kinds = all.get_mut("oneOf").and_then(Value::as_array_mut);
        for kind in kinds.into_iter().flatten() {
            let mut step = kind.clone();
            step["required"] = json!(["at"]);
            if let Some(keys) = step["properties"].as_object_mut() {
                keys.remove(KIND);
                keys.insert("at".to_owned(), at.clone().into());
            }
            for (key, schema, help) in &own {
                let mut schema = schema.clone();
                schema.insert("description".to_owned(), (*help).into());
                kind["properties"][*key] = schema.into();
            }
            kind["properties"]["schedule"] = json!({
                "type": "array",
                "items": step,
                "description": "Its later changes, in order of time."
            });
        }
        all
    }
}
