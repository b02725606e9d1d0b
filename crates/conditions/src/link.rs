//! The conditions of a link as users write them, in a file or on the command line.

pub(crate) mod class;
pub(crate) mod hop;
pub(crate) mod profiles;
pub mod stage;

use std::fmt;

use model::{ConfigError, Effect, Link, Nanos, ScheduleClock};
use schemars::{JsonSchema, Schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use self::class::ClassSpec;
use self::hop::emulated_link;
use self::profiles::LinkProfile;
use self::stage::ExtraStage;
use crate::Direction;
use crate::as_netem::AsNetem;
use crate::condition::{CONDITIONS, LINK_KEYS};
use crate::error::{Error, Problem};
use crate::layer::{Layer, either};
use crate::read::{FromNode, through_node};
use crate::require;
use crate::rules::EmulatedLink;
use crate::toffee::ToffeeSpec;

/// The seed of a link for which none was given, so that a command repeated loses the same packets.
const DEFAULT_SEED: u64 = 1;

/// Conditions of one link; what `up` or `down` names overrides the common value in that direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, transform = with_profile)]
pub struct LinkSpec {
    /// In each direction.
    #[serde(flatten)]
    pub both: Layer,
    /// TOFFEE-Mocha's box: one server that both directions share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toffee: Option<ToffeeSpec>,
    /// Every random draw follows from it; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Overrides from client to server.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub up: Layer,
    /// Overrides from server to client.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub down: Layer,
    /// Stages that no condition makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub stages: Vec<ExtraStage>,
    /// Packets that meet something else; the first class that takes a packet has it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub classes: Vec<ClassSpec>,
}

impl LinkSpec {
    /// The seed asked for, or the default.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(DEFAULT_SEED)
    }

    /// What this says, and of all else what `other` says; what this says of both directions holds in each.
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
    pub fn has_schedule(&self) -> bool {
        self.last_step().is_some()
    }

    /// When the last change of its schedules comes, if it has some.
    pub fn last_step(&self) -> Option<Nanos> {
        let steps = self.layers().flat_map(|layer| &layer.schedule);
        let stages = self.stages.iter().flat_map(|stage| &stage.schedule);
        steps
            .map(|step| step.at)
            .chain(stages.map(|step| step.at))
            .max()
    }

    /// The memory that it takes, in bytes: all that it holds, lists that it shares with others included.
    pub fn memory(&self) -> usize {
        let layers = self.layers().map(Layer::memory);
        let stages = self.stages.iter().map(ExtraStage::memory);
        let names = self.classes.iter().map(|class| class.rule.name.capacity());
        size_of::<Self>()
            + self.stages.capacity() * size_of::<ExtraStage>()
            + self.classes.capacity() * size_of::<ClassSpec>()
            + layers.chain(stages).chain(names).sum::<usize>()
    }

    /// With schedules that count from the link's start, where these count by `clock`. A step that will never come has a time of
    /// [`Nanos::MAX`].
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
    pub fn then(mut self, time: Nanos) -> Self {
        for layer in self.layers_mut() {
            *layer = layer.then(time).into();
        }
        for stage in &mut self.stages {
            *stage = stage.with(stage.then(time), Vec::new());
        }
        self
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        let classes = self.classes.iter();
        let classes = classes.flat_map(|class| [&class.both, &class.up, &class.down]);
        [&self.both, &self.up, &self.down]
            .into_iter()
            .chain(classes)
    }

    fn layers_mut(&mut self) -> impl Iterator<Item = &mut Layer> {
        let classes = self.classes.iter_mut();
        let classes = classes.flat_map(|class| [&mut class.both, &mut class.up, &mut class.down]);
        [&mut self.both, &mut self.up, &mut self.down]
            .into_iter()
            .chain(classes)
    }

    /// Each direction as options of netem: up, then down.
    pub fn as_netem(&self) -> [AsNetem; 2] {
        let rest = [
            (self.toffee.is_some(), "toffee, which both directions share"),
            (!self.stages.is_empty(), "stages"),
            (
                !self.classes.is_empty(),
                "classes, which need their own filters and qdiscs",
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
    pub fn to_link(&self, hop: &str) -> Result<EmulatedLink, Error> {
        self.to_link_of(hop, 0)
    }

    /// As [`LinkSpec::to_link`], as link `number` of several: links of one seed have draws of their own.
    ///
    /// # Errors
    /// As [`LinkSpec::hop`].
    pub fn to_link_of(&self, hop: &str, number: u64) -> Result<EmulatedLink, Error> {
        Ok(emulated_link(&[self.hop(hop)?], self.seed(), number))
    }

    /// Refuses what the model would refuse, before anything is built.
    ///
    /// # Errors
    /// Conditions that contradict each other or lie out of range, with their keys.
    pub fn check(&self) -> Result<(), Error> {
        let config = self.to_link("link")?.config;
        Link::new(&config).map_err(|error| self.located(error))?;
        let is_stalled =
            |effect: &Effect| matches!(effect, Effect::Rate(rate) if rate.rate.is_none());
        let mut stages = config.paths.iter().flat_map(|path| &path.stages);
        require!(
            !stages.any(|stage| stage.effects().all(is_stalled)),
            "rate": "at 0bit nothing ever passes: state a rate, or a schedule that sets one later"
        );
        Ok(())
    }

    /// What the model refuses, with the keys of the condition whose stage it names.
    pub fn located(&self, error: ConfigError) -> Error {
        let (stage, field, problem) = match &error {
            ConfigError::OutOfRange {
                stage,
                field,
                value,
                right,
            } => {
                let problem = Problem::OutOfRange {
                    field: None,
                    value: value.clone(),
                    right: (*right).to_owned(),
                };
                (stage.as_str(), Some(*field), problem)
            }
            ConfigError::Twice(stage)
            | ConfigError::OtherKind(stage)
            | ConfigError::Backwards(stage)
            | ConfigError::Reordered(stage) => {
                (stage.as_str(), None, Problem::Model(error.clone()))
            }
            ConfigError::TooManyCopies { .. } => return Error::from(error).at("stages"),
            _ => return error.into(),
        };
        let parts: Vec<&str> = stage.split('.').skip(1).collect();
        let (class, direction, name) = match parts[..] {
            ["toffee"] => {
                return at_key(problem, field.unwrap_or("delay"), field).at("toffee");
            }
            [direction, name] => (None, direction, name),
            [class, direction, name] => (Some(class), direction, name),
            _ => return error.into(),
        };
        let extra = self.stages.iter().position(|stage| stage.name() == name);
        if let (None, Some(index)) = (class, extra) {
            let key = field.and_then(|field| field.split('.').next());
            let error = match key {
                Some(key) => at_key(problem, key, field),
                None => Error::new(problem),
            };
            return error.at_item(index, Some(name)).at("stages");
        }
        let key = key_of(name, field);
        let error = at_key(problem, key, field);
        let way = |up, down| if direction == "up" { up } else { down };
        let says = |layer: &Layer| layer.ever().says(key);
        let classes = self.classes.iter().enumerate();
        for (index, one) in classes.filter(|(_, one)| Some(one.rule.name.as_str()) == class) {
            let here = |error: Error| error.at_item(index, Some(&one.rule.name)).at("classes");
            if says(way(&one.up, &one.down)) {
                return here(error.at(direction));
            }
            if says(&one.both) {
                return here(error);
            }
        }
        match says(way(&self.up, &self.down)) {
            true => error.at(direction),
            false => error,
        }
    }

    /// One of its two overrides.
    pub(crate) fn layer(&self, direction: Direction) -> &Layer {
        direction.choose(&self.up, &self.down)
    }
}

/// The key of the condition that a parameter of a stage comes from.
fn key_of<'n>(stage: &'n str, field: Option<&'n str>) -> &'n str {
    let first = field.and_then(|field| field.split('.').next());
    let is_key = |key: &&str| CONDITIONS.iter().any(|kind| kind.key == *key);
    match (stage, first.filter(is_key)) {
        ("rate" | "delay", Some(key)) => key,
        ("rate", None) if field.is_some_and(|field| field != "burst") => "aqm",
        ("burst-loss", _) => "loss",
        _ => stage,
    }
}

/// The problem at a key; the parameter is named where it is only a part of the key's value.
fn at_key(mut problem: Problem, key: &str, parameter: Option<&'static str>) -> Error {
    if let Problem::OutOfRange { field, .. } = &mut problem {
        let last = parameter.and_then(|parameter| parameter.rsplit('.').next());
        *field = last.filter(|last| *last != key);
    }
    Error::new(problem).at(key)
}

/// A link in a file may begin with a profile.
fn with_profile(schema: &mut Schema) {
    let keys = schema.get_mut("properties").and_then(Value::as_object_mut);
    keys.into_iter().for_each(|keys| {
        let profile = json!({
            "description": "A link that ships, as `farwire profiles` lists them; what is written beside overrides it.",
            "type": "string",
            "enum": profiles::NAMES
        });
        keys.insert("profile".to_owned(), profile);
    });
}

/// Whether it may be part of the names of stages.
pub(crate) fn is_name(text: &str) -> bool {
    let is_right = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(is_right)
}

struct LinkVisitor;

impl<'de> Visitor<'de> for LinkVisitor {
    type Value = LinkSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of conditions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LinkSpec, A::Error> {
        let mut link = LinkSpec::default();
        let mut profile: Option<LinkProfile> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "profile" => profile = map.next_value()?,
                "toffee" => link.toffee = map.next_value()?,
                "seed" => link.seed = map.next_value()?,
                "up" => link.up = map.next_value()?,
                "down" => link.down = map.next_value()?,
                "stages" => link.stages = map.next_value()?,
                "classes" => link.classes = map.next_value()?,
                key => link.both.read(key, &mut map, LINK_KEYS)?,
            }
        }
        Ok(match profile {
            Some(profile) => link.or(profile.conditions()),
            None => link,
        })
    }
}

impl FromNode for LinkSpec {
    fn from_node<'de, D: Deserializer<'de>>(node: D) -> Result<Self, D::Error> {
        node.deserialize_map(LinkVisitor)
    }
}

impl<'de> Deserialize<'de> for LinkSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        through_node(source)
    }
}
