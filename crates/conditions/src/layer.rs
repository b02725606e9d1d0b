//! The conditions of one direction, or those of both, and what changes of them later.

use std::fmt;
use std::mem;

use model::Nanos;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::condition::{
    CONDITIONS, Condition, ConditionKind, InCondition, LAYER_KEYS, Needs, STEP_KEYS, Shapes,
};
use crate::error::{At, Error};
use crate::require;

/// Conditions, at most one of each kind, in the order of [`CONDITIONS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConditionSet(Vec<Condition>);

/// Conditions and their schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Layer {
    /// What holds at first.
    #[serde(flatten)]
    pub at_first: ConditionSet,
    /// What changes later, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub schedule: Vec<ScheduleStep>,
}

/// Conditions from a time on; what it does not name stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScheduleStep {
    /// From when on, counted from the link's start.
    pub at: Nanos,
    /// Conditions that hold no longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub without: Vec<ConditionName>,
    /// Conditions that hold from then on.
    #[serde(flatten)]
    pub conditions: ConditionSet,
}

/// The key of a condition, where one is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionName(&'static str);

impl ConditionSet {
    /// The condition of this type.
    pub fn get<T: InCondition>(&self) -> Option<&T> {
        self.0.iter().find_map(T::of)
    }

    /// Whether there is a condition of this type.
    pub fn has<T: InCondition>(&self) -> bool {
        self.get::<T>().is_some()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that it takes beside itself.
    fn memory(&self) -> usize {
        let own = self.0.iter().map(Condition::memory);
        self.0.capacity() * size_of::<Condition>() + own.sum::<usize>()
    }

    /// The conditions in order.
    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter()
    }

    /// Says this, in the place of another one of its kind.
    pub fn set(&mut self, condition: impl Into<Condition>) {
        let condition = condition.into();
        let place = |one: &Condition| one.number().cmp(&condition.number());
        match self.0.binary_search_by(place) {
            Ok(at) => self.0[at] = condition,
            Err(at) => self.0.insert(at, condition),
        }
    }

    /// What this says, and of all other conditions what `other` says.
    pub fn or(self, mut other: Self) -> Self {
        self.0.into_iter().for_each(|one| other.set(one));
        other
    }

    /// Whether it says something of the condition with this key.
    pub(crate) fn says(&self, key: &str) -> bool {
        self.kinds().any(|kind| kind.key == key)
    }

    /// Those of `other` apart.
    fn without(mut self, other: &Self) -> Self {
        self.0.retain(|one| !other.says(one.kind().key));
        self
    }

    fn kinds(&self) -> impl Iterator<Item = &'static ConditionKind> {
        self.0.iter().map(Condition::kind)
    }

    /// Whether it says something of a stage.
    pub(crate) fn shapes(&self, stage: Shapes) -> bool {
        self.kinds().any(|kind| kind.stage == stage)
    }

    /// Whether it says that packets are delayed.
    pub(crate) fn delays(&self) -> bool {
        self.kinds()
            .any(|kind| kind.stage == Shapes::Delay && kind.needs.is_none())
    }

    /// Refuses what needs a rate or a delay, where there is none.
    pub(crate) fn check_needs(&self, has_rate: bool, has_delay: bool) -> Result<(), Error> {
        for kind in self.kinds() {
            let (other, why) = match kind.needs {
                Some(Needs::Rate(why)) if !has_rate => ("rate", why),
                Some(Needs::Delay(why)) if !has_delay => ("delay", why),
                _ => continue,
            };
            let key = kind.key;
            return Err(Error::other(format_args!(
                "{why}: state {other} too, or leave {key} out"
            )))
            .at(key);
        }
        Ok(())
    }

    /// Reads the value of a key into it; `known` are the keys that there are.
    pub(crate) fn read<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
        known: &'static [&'static str],
    ) -> Result<(), A::Error> {
        let condition = Condition::read(key, map)?;
        self.set(condition.ok_or_else(|| de::Error::unknown_field(key, known))?);
        Ok(())
    }
}

impl<T: Into<Condition>> From<T> for ConditionSet {
    fn from(condition: T) -> Self {
        Self(vec![condition.into()])
    }
}

impl FromIterator<Condition> for ConditionSet {
    fn from_iter<I: IntoIterator<Item = Condition>>(all: I) -> Self {
        let mut set = Self::default();
        all.into_iter().for_each(|one| set.set(one));
        set
    }
}

impl From<ConditionSet> for Layer {
    fn from(at_first: ConditionSet) -> Self {
        Self {
            at_first,
            schedule: Vec::new(),
        }
    }
}

impl ScheduleStep {
    /// What holds from it on, where `before` held.
    pub(crate) fn over(&self, mut before: ConditionSet) -> ConditionSet {
        let goes = |one: &Condition| self.without.contains(&ConditionName(one.kind().key));
        before.0.retain(|one| !goes(one));
        self.conditions.clone().or(before)
    }

    /// The kinds of conditions that it states or takes away.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static ConditionKind> {
        let of_name = |name: &ConditionName| CONDITIONS.iter().find(|kind| kind.key == name.0);
        let gone = self.without.iter().filter_map(of_name);
        self.conditions.kinds().chain(gone)
    }

    /// The step that makes `now` of `before` at a time; none where nothing differs.
    pub(crate) fn between(at: Nanos, before: &ConditionSet, now: &ConditionSet) -> Option<Self> {
        let gone = before.kinds().filter(|kind| !now.says(kind.key));
        let differs = |one: &&Condition| !before.0.contains(one);
        let step = Self {
            at,
            without: gone.map(|kind| ConditionName(kind.key)).collect(),
            conditions: now.iter().filter(differs).cloned().collect(),
        };
        let is_change = !step.without.is_empty() || !step.conditions.is_empty();
        is_change.then_some(step)
    }
}

impl Layer {
    /// The condition of this type that holds at first.
    pub fn get<T: InCondition>(&self) -> Option<&T> {
        self.at_first.get()
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The bytes that it takes beside itself.
    pub(crate) fn memory(&self) -> usize {
        let steps = self.schedule.iter().map(|step| {
            step.without.capacity() * size_of::<ConditionName>() + step.conditions.memory()
        });
        self.at_first.memory()
            + self.schedule.capacity() * size_of::<ScheduleStep>()
            + steps.sum::<usize>()
    }

    /// What this says, and of all else what `other` says.
    pub fn or(self, other: Self) -> Self {
        Self {
            at_first: self.at_first.or(other.at_first),
            schedule: either(self.schedule, other.schedule),
        }
    }

    /// What this says and `other` does not.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        if !other.schedule.is_empty() {
            self.schedule.clear();
        }
        Self {
            at_first: self.at_first.without(&other.at_first),
            ..self
        }
    }

    /// All that it says at one time or another.
    pub(crate) fn ever(&self) -> ConditionSet {
        let steps = self.schedule.iter().map(|step| step.conditions.clone());
        steps.fold(self.at_first.clone(), ConditionSet::or)
    }

    /// The keys of the conditions that it states at all times, whatever their values.
    pub(crate) fn always(&self) -> impl Iterator<Item = &'static str> {
        let goes = |key| {
            let name = ConditionName(key);
            self.schedule
                .iter()
                .any(|step| step.without.contains(&name))
        };
        let keys = self.at_first.kinds().map(|kind| kind.key);
        keys.filter(move |key| !goes(key))
    }

    /// What it says at a time.
    pub(crate) fn then(&self, time: Nanos) -> ConditionSet {
        let mut moving = Moving::of(self);
        moving.go_to(time);
        moving.now
    }

    /// Refuses a schedule out of order, and a step that takes away what it sets.
    pub(crate) fn check_schedule(&self) -> Result<(), Error> {
        let mut last = Nanos::ZERO;
        for (number, step) in self.schedule.iter().enumerate() {
            let both = |name: &&ConditionName| step.conditions.says(name.0);
            let check = || {
                if let Some(ConditionName(key)) = step.without.iter().find(both) {
                    require!(false, "without": "it has {key}, and {key} is beside it: leave one of them out");
                }
                require!(
                    last <= step.at,
                    "at": "{} is behind {last}: put the schedule in order of time", step.at
                );
                Ok::<_, Error>(())
            };
            check().at_item("schedule", number, None)?;
            last = step.at;
        }
        Ok(())
    }

    /// Reads the value of a key into it.
    pub(crate) fn read<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
        known: &'static [&'static str],
    ) -> Result<(), A::Error> {
        match key {
            "schedule" => self.schedule = map.next_value()?,
            _ => self.at_first.read(key, map, known)?,
        }
        Ok(())
    }
}

/// Conditions as they go with the time of their schedule, which is in order.
pub(crate) struct Moving<'s> {
    /// What they say.
    pub(crate) now: ConditionSet,
    /// All steps, and how many of them are over.
    steps: Vec<&'s ScheduleStep>,
    over: usize,
}

impl<'s> Moving<'s> {
    /// As they are at first, before any step.
    pub(crate) fn of(layer: &'s Layer) -> Self {
        Self::with_steps(layer, |_| true)
    }

    /// As they are at first. Later they follow only those steps for which `counts` is true.
    pub(crate) fn with_steps(layer: &'s Layer, counts: impl Fn(&ScheduleStep) -> bool) -> Self {
        let steps = layer.schedule.iter();
        Self {
            now: layer.at_first.clone(),
            steps: steps.filter(|step| counts(step)).collect(),
            over: 0,
        }
    }

    /// The times of all steps.
    pub(crate) fn times(&self) -> impl Iterator<Item = Nanos> {
        self.steps.iter().map(|step| step.at)
    }

    /// What they say at a time, which is none before the one asked for last.
    pub(crate) fn go_to(&mut self, time: Nanos) -> &ConditionSet {
        while let Some(step) = self.steps.get(self.over).filter(|step| step.at <= time) {
            self.now = step.over(mem::take(&mut self.now));
            self.over += 1;
        }
        &self.now
    }
}

/// The first list, unless it is empty.
pub(crate) fn either<T>(first: Vec<T>, second: Vec<T>) -> Vec<T> {
    if first.is_empty() { second } else { first }
}

struct LayerVisitor;

impl<'de> Visitor<'de> for LayerVisitor {
    type Value = Layer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of conditions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Layer, A::Error> {
        let mut layer = Layer::default();
        while let Some(key) = map.next_key::<String>()? {
            layer.read(&key, &mut map, LAYER_KEYS)?;
        }
        Ok(layer)
    }
}

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(LayerVisitor)
    }
}

struct StepVisitor;

impl<'de> Visitor<'de> for StepVisitor {
    type Value = ScheduleStep;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a schedule")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ScheduleStep, A::Error> {
        let (mut step, mut at) = (ScheduleStep::default(), None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "at" => at = Some(map.next_value()?),
                "without" => step.without = map.next_value()?,
                key => step.conditions.read(key, &mut map, STEP_KEYS)?,
            }
        }
        step.at = at.ok_or_else(|| de::Error::missing_field("at"))?;
        // There may be many steps, each with a condition or two.
        step.conditions.0.shrink_to_fit();
        Ok(step)
    }
}

impl<'de> Deserialize<'de> for ScheduleStep {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(StepVisitor)
    }
}

/// By hand, because serde's derive would borrow the name from the input.
impl<'de> Deserialize<'de> for ConditionName {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let name = String::deserialize(source)?;
        let known = CONDITIONS.iter().find(|kind| kind.key == name);
        let known = known.map(|kind| Self(kind.key));
        // The keys of a layer are those of all conditions, and one more.
        known.ok_or_else(|| {
            de::Error::unknown_variant(&name, LAYER_KEYS.split_last().map_or(&[], |(_, all)| all))
        })
    }
}

impl JsonSchema for ConditionName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConditionName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let keys: Vec<&str> = CONDITIONS.iter().map(|kind| kind.key).collect();
        json_schema!({ "type": "string", "enum": keys, "description": "The key of a condition." })
    }
}

impl Serialize for ConditionSet {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.collect_map(self.0.iter().map(|one| (one.kind().key, one)))
    }
}

impl JsonSchema for ConditionSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Conditions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut keys = serde_json::Map::new();
        for kind in CONDITIONS {
            let mut schema = (kind.schema)(generator);
            schema.insert("description".to_owned(), kind.help.into());
            keys.insert(kind.key.to_owned(), schema.into());
        }
        json_schema!({ "type": "object", "properties": keys })
    }
}
