//! Stages that no condition makes, and second ones of those that conditions make.

/// Declares the parameters of a kind of stage. Each may be left out, because a step of a schedule says only what changes.
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
            /// What it says, and of all else what `before` says. Lists are shared with it, not copied.
            pub(super) fn over(&self, before: &Self) -> Self {
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
pub use self::queues::{GateStage, TraceStage};
pub use self::times::{DelayStage, HoldBackStage, SlotsStage, StallStage};
use crate::Direction;
use crate::condition::{CorruptSpec, DuplicateSpec, JitterSpec};
use crate::error::{At, Error};
use crate::link::is_name;
use crate::read::{self, Apart, KIND, Tagged, read_tagged, serialize_keys};
use crate::{require, tagged};

tagged! {
    /// What a stage does. Every parameter may be left out: a step of a schedule says only what changes.
    #[derive(Clone, Debug, PartialEq)]
    pub enum StageKind, default None;

    /// What comes while it is not `open` waits until it opens, in `queue`.
    "gate" => Gate(GateStage),
    /// A bottleneck that serves 1504 bytes at each of `times`, which repeat; `queue` and `aqm` are as those of a rate.
    "trace" => Trace(TraceStage),
    /// Loss in bursts by its transitions, as tc's gemodel.
    "gemodel" => Gemodel(GemodelStage),
    /// Loss in bursts within which packets are received, as tc's `loss state`.
    "four-state" => FourState(FourStateStage),
    /// The packets of these numbers are lost.
    "indexes" => Indexes(IndexesStage),
    /// What is longer than an MTU is dropped, and its sender told by ICMP.
    "mtu" => Mtu(MtuStage),
    /// Every n-th packet is lost.
    "every-nth" => EveryNth(EveryNthStage),
    /// Random loss.
    "loss" => Loss(LossStage),
    /// Bit errors.
    "ber" => Ber(BerStage),
    /// Propagation.
    "delay" => Delay(DelayStage),
    /// Packets leave in bursts.
    "slots" => Slots(SlotsStage),
    /// The link stands still at the end of each period; packets wait until that is over.
    "stall" => Stall(StallStage),
    /// Packets are held back until others have overtaken them.
    "reorder" => HoldBack(HoldBackStage),
    /// Copies.
    "duplicate" => Duplicate(DuplicateStage),
    /// Flipped bits.
    "corrupt" => Corrupt(CorruptStage),
}

/// A stage beside those that conditions make.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtraStage {
    /// What it does at first.
    #[serde(flatten)]
    pub does: StageKind,
    /// Its name; the kind's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The one direction that has it; each has such a stage when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Where it is among the stages of its direction.
    pub place: Place,
    /// What changes later, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<StageStep>,
}

/// What a stage does from a time on; what it does not name stays as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct StageStep {
    /// From when on, counted from the link's start.
    pub at: Nanos,
    /// What changes.
    pub does: StageKind,
}

/// Where in a direction of its hop a stage is; several in one place are in the order in which they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Before the bottleneck's queue and everything else.
    #[default]
    First,
    /// Behind propagation.
    Last,
}

impl ExtraStage {
    /// What it does at a time.
    pub(crate) fn then(&self, time: Nanos) -> StageKind {
        let until_then = self.schedule.iter().filter(|step| step.at <= time);
        until_then.fold(self.does.clone(), |before, step| step.does.over(&before))
    }

    /// The bytes that it takes beside itself.
    pub(crate) fn memory(&self) -> usize {
        let steps = self.schedule.iter().map(|step| step.does.memory());
        self.name.as_ref().map_or(0, String::capacity)
            + self.does.memory()
            + self.schedule.capacity() * size_of::<StageStep>()
            + steps.sum::<usize>()
    }

    /// The same stage, where it does something else.
    pub(crate) fn with(&self, does: StageKind, schedule: Vec<StageStep>) -> Self {
        Self {
            does,
            schedule,
            ..self.clone()
        }
    }

    /// Its name, or the kind's.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.does.kind())
    }

    /// Whether it is in this direction, here.
    pub(crate) fn is_in(&self, direction: Direction, place: Place) -> bool {
        self.direction.is_none_or(|own| own == direction) && self.place == place
    }

    /// The model's stage, under names that begin as `prefix` does.
    pub(crate) fn to_model(&self, prefix: &str) -> Result<StageSpec, Error> {
        require!(
            is_name(self.name()),
            "name": "a stage needs a name of letters, digits, - and _, such as gate"
        );
        let mut now = self.does.clone();
        let mut stage = StageSpec::new(format!("{prefix}.{}", self.name()), now.effect()?);
        let mut last = Nanos::ZERO;
        for (number, step) in self.schedule.iter().enumerate() {
            let at = step.at;
            now = step.does.over(&now);
            let mut change = || {
                require!(last <= at, "at": "{at} comes after {last}: put the schedule in order of time");
                let mut effect = now.effect()?;
                if let (Effect::Trace(new), Some(Effect::Trace(last))) =
                    (&mut effect, stage.effects().last())
                    && !step.does.has_times()
                {
                    // It is the same trace, and kept once.
                    new.opportunities = Arc::clone(&last.opportunities);
                }
                stage.schedule.push((at, effect));
                Ok::<_, Error>(())
            };
            change().at_item("schedule", number, None)?;
            last = at;
        }
        Ok(stage)
    }
}

/// The value of a parameter without which a stage cannot be; `example` is what could be written.
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

    /// What it says, by key.
    fn said(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(said)) => said,
            _ => Map::new(),
        }
    }

    /// A stage of this kind that says this.
    fn saying(&self, mut said: Map<String, Value>) -> Self {
        said.insert(KIND.to_owned(), self.kind().into());
        read::json(said.into()).expect("each of these values was written by a stage of this kind")
    }

    /// What it says, and of all else what `before` says, which is of its kind.
    fn over(&self, before: &Self) -> Self {
        macro_rules! of_one_kind {
            ($($kind:ident),+) => {
                match (self, before) {
                    $((Self::$kind(own), Self::$kind(before)) => Self::$kind(own.over(before)),)+
                    _ => self.clone(),
                }
            };
        }
        of_one_kind!(
            Gate, Trace, Gemodel, FourState, Indexes, Mtu, EveryNth, Loss, Ber, Delay, Slots,
            Stall, HoldBack, Duplicate, Corrupt
        )
    }

    /// Whether it is a trace that states when it serves.
    fn has_times(&self) -> bool {
        matches!(self, Self::Trace(trace) if trace.times.is_some())
    }

    /// The bytes of its lists.
    fn memory(&self) -> usize {
        match self {
            Self::Indexes(own) => own.indexes.as_deref().map_or(0, size_of_val),
            Self::Trace(own) => own.times.as_deref().map_or(0, size_of_val),
            Self::Delay(own) => own.jitter.as_ref().map_or(0, JitterSpec::memory),
            Self::Slots(own) => own.jitter.as_ref().map_or(0, JitterSpec::memory),
            _ => 0,
        }
    }

    /// What makes this of `before` at a time; none where nothing differs.
    ///
    /// # Errors
    /// The key of what is said no longer: no step takes that back.
    pub(crate) fn step_from(&self, before: &Self, at: Nanos) -> Result<Option<StageStep>, String> {
        let (mut now, before) = (self.said(), before.said());
        if let Some(gone) = before.keys().find(|key| !now.contains_key(*key)) {
            return Err(gone.clone());
        }
        now.retain(|key, value| before.get(key) != Some(value));
        let does = (!now.is_empty()).then(|| self.saying(now));
        Ok(does.map(|does| StageStep { at, does }))
    }
}

/// Reads a stage whose kind is known: its own keys, and those of the kind.
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
                "schedule" => schedule = map.next_value_seed(Steps(kind))?,
                _ => return Ok(false),
            }
            Ok(true)
        };
        let does = StageKind::read(kind, Apart::of(None, map, own))?;
        Ok(ExtraStage {
            name,
            direction,
            place,
            does,
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
struct Steps(&'static str);

impl<'de> DeserializeSeed<'de> for Steps {
    type Value = Vec<StageStep>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Steps {
    type Value = Vec<StageStep>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tables")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut steps = Vec::new();
        while let Some(step) = list.next_element_seed(StepOf(self.0))? {
            steps.push(step);
        }
        Ok(steps)
    }
}

/// Reads a step of a stage of this kind.
struct StepOf(&'static str);

impl<'de> DeserializeSeed<'de> for StepOf {
    type Value = StageStep;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<StageStep, D::Error> {
        source.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StepOf {
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
        let does = StageKind::read(self.0, Apart::of(None, map, own))?;
        let at = at.ok_or_else(|| de::Error::missing_field("at"))?;
        Ok(StageStep { at, does })
    }
}

impl Serialize for StageStep {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        let mut map = target.serialize_map(None)?;
        map.serialize_entry("at", &self.at)?;
        serialize_keys(&mut map, &self.does)?;
        map.end()
    }
}

impl JsonSchema for ExtraStage {
    fn schema_name() -> Cow<'static, str> {
        "Stage".into()
    }

    /// Of each kind its keys, those of every stage, and a schedule of its keys.
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
                "The one direction that has it; each has such a stage when absent.",
            ),
            (
                "place",
                generator.subschema_for::<Place>(),
                "Where it is among the stages of its direction.",
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
                "description": "What changes later, in order of time."
            });
        }
        all
    }
}
