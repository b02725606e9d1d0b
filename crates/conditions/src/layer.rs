//! The conditions of one direction, or of both, and their later changes.

use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::str::FromStr as _;

use model::{Nanos, QueueLimit};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::condition::{
    CONDITIONS, Condition, ConditionKind, ConditionValue, DelaySpec, DuplicateSpec, HandoverSpec,
    JitterSpec, LAYER_KEYS, LossSpec, Needs, NetemSpec, QueueSpec, RateSpec, STEP_KEYS, Shapes,
    TraceSpec,
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
    /// The conditions at first.
    #[serde(flatten)]
    pub at_first: ConditionSet,
    /// The later changes, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub schedule: Vec<ScheduleStep>,
}

/// Conditions from a time on; those that it does not name stay as they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ScheduleStep {
    /// The time from which the conditions apply, counted from the link's start.
    pub at: Nanos,
    /// The time over which rate, delay, the spread of jitter and loss move from what they were to what the step states. Without
    /// it, they change at `at`.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub over: Nanos,
    /// The time after which the step comes again, for ever; without it, the step comes once. Steps that repeat are the
    /// last ones of a schedule, and have one period.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub every: Nanos,
    /// The conditions that no longer apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub without: Vec<ConditionName>,
    /// The conditions that hold from then on.
    #[serde(flatten)]
    pub conditions: ConditionSet,
}

/// The conditions that a direction has at any time, among those that others need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Provided {
    /// A rate.
    pub(crate) rate: bool,
    /// A condition that delays packets.
    pub(crate) delay: bool,
    /// A netem.
    pub(crate) netem: bool,
}

/// The key of a condition, where only its name is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionName(&'static str);

impl ConditionSet {
    /// Returns the condition of this type.
    pub fn get<T: ConditionValue>(&self) -> Option<&T> {
        self.0.iter().find_map(T::of)
    }

    /// Returns whether there is a condition of this type.
    pub fn has<T: ConditionValue>(&self) -> bool {
        self.get::<T>().is_some()
    }

    /// Returns whether there is no condition.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    fn memory(&self) -> usize {
        let own = self.0.iter().map(Condition::memory);
        self.0.capacity() * size_of::<Condition>() + own.sum::<usize>()
    }

    /// Returns the conditions in order.
    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.0.iter()
    }

    /// Adds a condition, which replaces another one of its kind.
    pub fn set(&mut self, condition: impl Into<Condition>) {
        let condition = condition.into();
        let place = |one: &Condition| one.number().cmp(&condition.number());
        match self.0.binary_search_by(place) {
            Ok(at) => self.0[at] = condition,
            Err(at) => self.0.insert(at, condition),
        }
    }

    /// Returns these conditions, and those of `other` whose kinds these do not have. They override the trace of `other`.
    pub fn or(self, mut other: Self) -> Self {
        if let Some(trace) = other.trace_mut() {
            self.kinds().for_each(|kind| trace.override_by(kind.key));
        }
        self.0.into_iter().for_each(|one| other.set(one));
        other
    }

    /// Returns whether it has the condition with this key.
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.kinds().any(|kind| kind.key == key)
    }

    /// Returns these conditions without those whose kinds `other` has, and without those that the trace of `other`
    /// states.
    fn without(mut self, other: &Self) -> Self {
        let trace = other.get::<TraceSpec>();
        let is_stated = |key| other.contains(key) || trace.is_some_and(|one| one.states(key));
        self.0.retain(|one| !is_stated(one.kind().key));
        self
    }

    fn kinds(&self) -> impl Iterator<Item = &'static ConditionKind> {
        self.0.iter().map(Condition::kind)
    }

    /// Returns whether any of its conditions shapes this stage.
    pub(crate) fn shapes(&self, stage: Shapes) -> bool {
        let trace = self.get::<TraceSpec>();
        let handover = self.get::<HandoverSpec>();
        self.kinds().any(|kind| kind.stage == stage)
            || trace.is_some_and(|trace| trace.shapes(stage))
            || stage == Shapes::Delay && handover.is_some_and(|one| one.delay.is_some())
    }

    /// Returns whether any of its conditions delays packets.
    pub(crate) fn delays(&self) -> bool {
        let trace = self.get::<TraceSpec>();
        self.kinds()
            .any(|kind| kind.stage == Shapes::Delay && kind.needs.is_none())
            || trace.is_some_and(TraceSpec::has_delay)
    }

    /// Returns whether any of its conditions determines how fast packets are served.
    pub(crate) fn has_rate(&self) -> bool {
        let trace = self.get::<TraceSpec>();
        self.has::<RateSpec>() || trace.is_some_and(TraceSpec::has_rate)
    }

    /// Returns the conditions with those of its trace at a time in place of the trace.
    pub(crate) fn of_line_at(mut self, time: Nanos) -> Self {
        let Some(spec) = self.get::<TraceSpec>().cloned() else {
            return self;
        };
        let Some(line) = spec.line_at(time) else {
            return self;
        };
        let columns = spec.columns();
        if columns.rate {
            self.0.retain(|one| !matches!(one, Condition::Rate(_)));
            if line.is_stalled || line.served().is_some() {
                self.set(RateSpec {
                    rate: line.served(),
                    burst: None,
                });
            }
        }
        if columns.delay {
            self.set(DelaySpec(line.delay));
        }
        if columns.jitter {
            let jitter = self.get::<JitterSpec>().cloned();
            let plain = || JitterSpec::from_str(&line.jitter.to_string()).ok();
            if let Some(jitter) = jitter.or_else(plain) {
                self.set(JitterSpec {
                    spread: line.jitter,
                    ..jitter
                });
            }
        }
        if columns.loss
            && let Ok(loss) = LossSpec::from_str(&line.loss.to_string())
        {
            self.set(loss);
        }
        if columns.queue {
            self.set(QueueSpec(QueueLimit::Packets(line.queue)));
        }
        if columns.duplicate {
            self.set(DuplicateSpec {
                share: line.copies,
                delay: line.copies_after,
            });
        }
        if !spec.has_opportunities() {
            self.0.retain(|one| !matches!(one, Condition::Trace(_)));
        }
        self
    }

    /// Returns the trace, to read it or to change its end.
    pub(crate) fn trace_mut(&mut self) -> Option<&mut TraceSpec> {
        self.0.iter_mut().find_map(|one| match one {
            Condition::Trace(trace) => Some(trace),
            _ => None,
        })
    }

    /// Refuses conditions that need another one, if there is none.
    pub(crate) fn check_needs(&self, provided: Provided) -> Result<(), Error> {
        for kind in self.kinds() {
            let (other, why) = match kind.needs {
                Some(Needs::Rate(why)) if !provided.rate => ("rate", why),
                Some(Needs::Delay(why)) if !provided.delay => ("delay", why),
                Some(Needs::Netem(why)) if !provided.netem => ("netem", why),
                _ => continue,
            };
            let key = kind.key;
            return Err(Error::other(format_args!(
                "{why}: set {other} too, or leave {key} out"
            )))
            .at(key);
        }
        Ok(())
    }

    /// Reads the value of a key into it; `known` are the keys that are allowed.
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

impl Provided {
    /// Returns what two layers have.
    pub(crate) fn by(layers: [&Layer; 2]) -> Self {
        let ever = layers.map(Layer::ever);
        let has = |one: fn(&ConditionSet) -> bool| ever.iter().any(one);
        Self {
            rate: has(ConditionSet::has_rate),
            delay: has(ConditionSet::delays),
            netem: has(ConditionSet::has::<NetemSpec>),
        }
    }

    /// Returns what this or `other` has.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate || other.rate,
            delay: self.delay || other.delay,
            netem: self.netem || other.netem,
        }
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
    /// Returns the conditions that hold from it on, after `before`.
    pub(crate) fn applied_to(&self, mut before: ConditionSet) -> ConditionSet {
        let goes = |one: &Condition| self.without.contains(&ConditionName(one.kind().key));
        before.0.retain(|one| !goes(one));
        self.conditions.clone().or(before)
    }

    /// Returns the kinds of the conditions that it states or removes.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static ConditionKind> {
        let of_name = |name: &ConditionName| CONDITIONS.iter().find(|kind| kind.key == name.0);
        let removed = self.without.iter().filter_map(of_name);
        self.conditions.kinds().chain(removed)
    }

    /// Returns the step at `at` that changes `before` to `now`; `None` if they are equal.
    pub(crate) fn between(at: Nanos, before: &ConditionSet, now: &ConditionSet) -> Option<Self> {
        let gone = before.kinds().filter(|kind| !now.contains(kind.key));
        let differs = |one: &&Condition| !before.0.contains(one);
        let step = Self {
            at,
            over: Nanos::ZERO,
            every: Nanos::ZERO,
            without: gone.map(|kind| ConditionName(kind.key)).collect(),
            conditions: now.iter().filter(differs).cloned().collect(),
        };
        let is_change = !step.without.is_empty() || !step.conditions.is_empty();
        is_change.then_some(step)
    }
}

impl Layer {
    /// Returns the condition of this type that holds at first.
    pub fn get<T: ConditionValue>(&self) -> Option<&T> {
        self.at_first.get()
    }

    /// Returns whether it has no condition and no schedule.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    pub(crate) fn memory(&self) -> usize {
        let steps = self.schedule.iter().map(|step| {
            step.without.capacity() * size_of::<ConditionName>() + step.conditions.memory()
        });
        self.at_first.memory()
            + self.schedule.capacity() * size_of::<ScheduleStep>()
            + steps.sum::<usize>()
    }

    /// Returns this layer, with the conditions and the schedule of `other` that it does not have.
    pub fn or(self, other: Self) -> Self {
        Self {
            at_first: self.at_first.or(other.at_first),
            schedule: either(self.schedule, other.schedule),
        }
    }

    /// Returns the conditions and the schedule of this layer that `other` does not have.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        if !other.schedule.is_empty() {
            self.schedule.clear();
        }
        Self {
            at_first: self.at_first.without(&other.at_first),
            ..self
        }
    }

    /// Returns the conditions that it has at any time; of several of one kind, the last.
    pub(crate) fn ever(&self) -> ConditionSet {
        let steps = self.schedule.iter().map(|step| step.conditions.clone());
        steps.fold(self.at_first.clone(), ConditionSet::or)
    }

    /// Returns the keys of the conditions that it states at all times. Their values may change.
    pub(crate) fn always(&self) -> impl Iterator<Item = &'static str> {
        let is_removed = |key| {
            let name = ConditionName(key);
            self.schedule
                .iter()
                .any(|step| step.without.contains(&name))
        };
        let keys = self.at_first.kinds().map(|kind| kind.key);
        keys.filter(move |key| !is_removed(key))
    }

    /// Returns the conditions that it has at a time.
    pub(crate) fn then(&self, time: Nanos) -> ConditionSet {
        let time = self.in_first_rounds(time);
        let mut cursor = ScheduleCursor::with_steps(self, time + Nanos(1), |_| true);
        cursor.advance_to(time);
        cursor.now
    }

    /// Refuses a schedule that is out of order, and a step that removes a condition that it also sets.
    pub(crate) fn check_schedule(&self) -> Result<(), Error> {
        let mut last = Nanos::ZERO;
        for (number, step) in self.schedule.iter().enumerate() {
            let both = |name: &&ConditionName| step.conditions.contains(name.0);
            let check = || {
                if let Some(ConditionName(key)) = step.without.iter().find(both) {
                    require!(false, "without": "{key} is both removed and set: leave one of them out");
                }
                require!(
                    last <= step.at,
                    "at": "{} comes after {last}: put the schedule in order of time", step.at
                );
                Ok::<_, Error>(())
            };
            check().at_item("schedule", number, None)?;
            last = step.at;
        }
        Ok(())
    }

    /// Refuses a trace that was not read.
    pub(crate) fn check_traces(&self) -> Result<(), Error> {
        let check = |conditions: &ConditionSet| {
            let trace = conditions.get::<TraceSpec>();
            trace.map_or(Ok(()), TraceSpec::check).at("trace")
        };
        check(&self.at_first)?;
        for (number, step) in self.schedule.iter().enumerate() {
            check(&step.conditions).at_item("schedule", number, None)?;
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

/// The conditions of a layer as time advances along its schedule, which is in order.
pub(crate) struct ScheduleCursor<'s> {
    /// The conditions that hold now.
    pub(crate) now: ConditionSet,
    /// All steps that the cursor follows, with one for each change of a gradual step.
    steps: Vec<Cow<'s, ScheduleStep>>,
    /// The number of steps that have been applied.
    applied: usize,
}

impl<'s> ScheduleCursor<'s> {
    /// Starts before the first step of a layer. It follows steps that repeat once.
    pub(crate) fn of(layer: &'s Layer) -> Self {
        let last = layer.schedule.last().map_or(Nanos::ZERO, |step| step.at);
        Self::with_steps(layer, last + Nanos(1), |_| true)
    }

    /// Starts before the first step of a layer, and follows only the steps for which `counts` is true, and of steps that
    /// repeat those before `until`.
    pub(crate) fn with_steps(
        layer: &'s Layer,
        until: Nanos,
        counts: impl Fn(&ScheduleStep) -> bool,
    ) -> Self {
        let counts = |step: &Cow<'_, ScheduleStep>| counts(step);
        let steps = match layer.plain_schedule(until) {
            Cow::Borrowed(steps) => steps.iter().map(Cow::Borrowed).filter(counts).collect(),
            Cow::Owned(steps) => steps.into_iter().map(Cow::Owned).filter(counts).collect(),
        };
        Self {
            now: layer.at_first.clone(),
            steps,
            applied: 0,
        }
    }

    /// Returns the times of all steps that it follows.
    pub(crate) fn times(&self) -> impl Iterator<Item = Nanos> {
        self.steps.iter().map(|step| step.at)
    }

    /// Advances to `time`, which must not be before the last one, and returns the conditions that hold then.
    pub(crate) fn advance_to(&mut self, time: Nanos) -> &ConditionSet {
        while let Some(step) = self.steps.get(self.applied).filter(|step| step.at <= time) {
            self.now = step.applied_to(mem::take(&mut self.now));
            self.applied += 1;
        }
        &self.now
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(time: &Nanos) -> bool {
    *time == Nanos::ZERO
}

/// Returns the first list, unless it is empty.
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
                "over" => step.over = map.next_value()?,
                "every" => step.every = map.next_value()?,
                "without" => step.without = map.next_value()?,
                key => step.conditions.read(key, &mut map, STEP_KEYS)?,
            }
        }
        step.at = at.ok_or_else(|| de::Error::missing_field("at"))?;
        // There may be many steps, with one or two conditions each.
        step.conditions.0.shrink_to_fit();
        Ok(step)
    }
}

impl<'de> Deserialize<'de> for ScheduleStep {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(StepVisitor)
    }
}

/// Written by hand, because serde's derive would borrow the name from the input.
impl<'de> Deserialize<'de> for ConditionName {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let name = String::deserialize(source)?;
        // The keys of a layer are those of all conditions, and one more.
        let keys = LAYER_KEYS.split_last().map_or(&[][..], |(_, all)| all);
        CONDITIONS
            .iter()
            .find(|kind| kind.key == name)
            .map(|kind| Self(kind.key))
            .ok_or_else(|| de::Error::unknown_variant(&name, keys))
    }
}

impl JsonSchema for ConditionName {
    fn schema_name() -> Cow<'static, str> {
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
    fn schema_name() -> Cow<'static, str> {
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
