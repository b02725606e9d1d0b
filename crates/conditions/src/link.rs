//! The conditions of a link as users write them in a file or on the command line.

mod followed;
pub(crate) mod hop;
pub(crate) mod hops;
pub(crate) mod profiles;
mod recurring;
pub(crate) mod rule;
pub mod stage;

use std::fmt;
use std::str::FromStr;

use model::{ConfigError, Effect, Link, Nanos, ScheduleClock};
use schemars::{JsonSchema, Schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, de};

use self::hop::emulated_link;
use self::hops::HopSpec;
use self::profiles::Base;
use self::rule::RuleSpec;
use self::stage::ExtraStage;
use crate::Direction;
use crate::as_netem::AsNetem;
use crate::condition::{CONDITIONS, HandoverSpec, LINK_KEYS, OutageSpec, TraceSpec};
use crate::error::{Error, Problem};
use crate::layer::{ConditionSet, Layer, ScheduleStep, either};
use crate::read::{self, FromNode, through_node};
use crate::rules::EmulatedLink;
use crate::toffee::ToffeeSpec;

/// The seed of a link without a given seed; it is constant, so that a repeated command loses the same packets.
const DEFAULT_SEED: u64 = 1;

/// Conditions of one link; the values in `up` or `down` override the common value in that direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, transform = with_profile)]
pub struct LinkSpec {
    /// The conditions in both directions.
    #[serde(flatten)]
    pub both: Layer,
    /// TOFFEE-Mocha's WAN emulator: one server that both directions share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toffee: Option<ToffeeSpec>,
    /// The seed of all random draws; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The time from which schedules, traces, outages and handovers count; that of the link's start when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<LinkStart>,
    /// Overrides from client to server.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub up: Layer,
    /// Overrides from server to client.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub down: Layer,
    /// Further stages, which conditions cannot express.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub stages: Vec<ExtraStage>,
    /// Further hops. Packets from client to server pass the link's own conditions first and then the hops in this order,
    /// those from server to client pass them in reverse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub hops: Vec<HopSpec>,
    /// Rules: packets that match one have other conditions. The first rule that matches a packet applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub rules: Vec<RuleSpec>,
}

/// The time from which the schedules of a link count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkStart {
    /// The start of the link.
    Immediately,
    /// The arrival of the first packet, in either direction. Link control does not count.
    FirstPacket,
}

impl FromStr for LinkStart {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read::text(text)
    }
}

impl LinkSpec {
    /// Returns whether its schedules count from the arrival of the first packet.
    pub fn waits(&self) -> bool {
        self.start == Some(LinkStart::FirstPacket)
    }

    /// Returns the seed, or the default.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(DEFAULT_SEED)
    }

    /// Returns these conditions, and those of `other` that these do not state; a condition that these state for both
    /// directions replaces those of each direction.
    pub fn or(self, other: Self) -> Self {
        Self {
            up: self.up.or(other.up.without(&self.both)),
            down: self.down.or(other.down.without(&self.both)),
            both: self.both.or(other.both),
            toffee: self.toffee.or(other.toffee),
            seed: self.seed.or(other.seed),
            start: self.start.or(other.start),
            stages: either(self.stages, other.stages),
            hops: either(self.hops, other.hops),
            rules: either(self.rules, other.rules),
        }
    }

    /// Returns whether any of it changes by a schedule.
    pub fn has_schedule(&self) -> bool {
        self.last_step().is_some()
    }

    /// Returns the time of the last step of its schedules, or of the end of its traces, if it has any.
    pub fn last_step(&self) -> Option<Nanos> {
        let traces = self.traces().filter_map(TraceSpec::trace);
        traces
            .map(|trace| trace.length_of_all())
            .chain(self.periods())
            .chain(self.last_scheduled())
            .max()
    }

    /// Returns the times after which its stages that serve at given times begin again.
    fn periods(&self) -> impl Iterator<Item = Nanos> {
        self.extra_stages()
            .filter_map(|stage| stage.parameters.period())
    }

    /// Returns the time of the last step of its schedules, if it has any. A step that repeats counts once.
    pub(crate) fn last_scheduled(&self) -> Option<Nanos> {
        let steps = self.layers().flat_map(|layer| &layer.schedule);
        let stages = self.extra_stages().flat_map(|stage| &stage.schedule);
        steps
            .map(ScheduleStep::end)
            .chain(stages.map(|step| step.at))
            .max()
    }

    /// Returns the bytes of memory that it takes, including lists that it shares with others.
    pub fn memory(&self) -> usize {
        let layers = self.layers().map(Layer::memory);
        let stages = self.extra_stages().map(ExtraStage::memory);
        let of_hop =
            |hop: &HopSpec| hop.name.capacity() + hop.stages.capacity() * size_of::<ExtraStage>();
        let hops = self.hops.iter().map(of_hop);
        let rules = self.rules.iter().map(|one| {
            let hop = one.hop.as_ref().map_or(0, String::capacity);
            hop + one.rule.memory()
        });
        size_of::<Self>()
            + self.stages.capacity() * size_of::<ExtraStage>()
            + self.hops.capacity() * size_of::<HopSpec>()
            + self.rules.capacity() * size_of::<RuleSpec>()
            + layers.chain(stages).chain(hops).chain(rules).sum::<usize>()
    }

    /// Converts schedules that follow `clock` to schedules that count from the link's start. A step that will never
    /// come gets the time [`Nanos::MAX`].
    pub fn on_clock(mut self, clock: ScheduleClock) -> Self {
        for layer in self.layers_mut() {
            layer.schedule = layer.schedule_on(clock);
        }
        for step in self
            .extra_stages_mut()
            .flat_map(|stage| &mut stage.schedule)
        {
            step.at = clock.link_time(step.at);
        }
        self
    }

    /// Returns the conditions in force at a time of its schedules, without the schedules.
    pub fn then(mut self, time: Nanos) -> Self {
        for layer in self.layers_mut() {
            *layer = layer.then(time).of_line_at(time).into();
        }
        for stage in self.extra_stages_mut() {
            *stage = stage.with(stage.then(time), Vec::new());
        }
        self
    }

    /// Returns all its traces, those of later changes too.
    pub fn traces(&self) -> impl Iterator<Item = &TraceSpec> {
        let sets = self.layers().flat_map(|layer| {
            let steps = layer.schedule.iter().map(|step| &step.conditions);
            [&layer.at_first].into_iter().chain(steps)
        });
        sets.filter_map(ConditionSet::get)
    }

    /// Returns whether any step of its schedules comes again.
    pub(crate) fn repeats(&self) -> bool {
        self.layers().any(Layer::repeats)
    }

    /// Returns whether it has traces, outages or handovers, whose times no step of a schedule states.
    pub fn has_own_times(&self) -> bool {
        let has_any = |layer: &Layer| {
            let ever = layer.ever();
            ever.has::<TraceSpec>() || ever.has::<OutageSpec>() || ever.has::<HandoverSpec>()
        };
        self.layers().any(has_any) || self.periods().next().is_some()
    }

    /// Returns whether any of it follows the clock of the schedules: steps, traces, outages or handovers.
    pub fn follows_clock(&self) -> bool {
        self.has_schedule() || self.has_own_times()
    }

    /// Returns all its traces, to read them.
    pub fn traces_mut(&mut self) -> impl Iterator<Item = &mut TraceSpec> {
        let sets = self.layers_mut().flat_map(|layer| {
            let steps = layer.schedule.iter_mut().map(|step| &mut step.conditions);
            [&mut layer.at_first].into_iter().chain(steps)
        });
        sets.filter_map(ConditionSet::trace_mut)
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        let rules = self
            .rules
            .iter()
            .flat_map(|rule| [&rule.both, &rule.up, &rule.down]);
        let hops = self.hops.iter().flat_map(HopSpec::layers);
        let own = [&self.both, &self.up, &self.down].into_iter();
        own.chain(rules).chain(hops)
    }

    fn layers_mut(&mut self) -> impl Iterator<Item = &mut Layer> {
        let rules = self
            .rules
            .iter_mut()
            .flat_map(|rule| [&mut rule.both, &mut rule.up, &mut rule.down]);
        let hops = self.hops.iter_mut().flat_map(HopSpec::layers_mut);
        let own = [&mut self.both, &mut self.up, &mut self.down].into_iter();
        own.chain(rules).chain(hops)
    }

    /// Returns the further stages of the link itself and of its hops.
    pub(crate) fn extra_stages(&self) -> impl Iterator<Item = &ExtraStage> {
        let hops = self.hops.iter().flat_map(|hop| &hop.stages);
        self.stages.iter().chain(hops)
    }

    fn extra_stages_mut(&mut self) -> impl Iterator<Item = &mut ExtraStage> {
        let hops = self.hops.iter_mut().flat_map(|hop| &mut hop.stages);
        self.stages.iter_mut().chain(hops)
    }

    /// Returns each direction as options of netem: up, then down.
    pub fn as_netem(&self) -> [AsNetem; 2] {
        let shared = [
            (self.toffee.is_some(), "toffee, which both directions share"),
            (!self.stages.is_empty(), "stages"),
            (
                !self.hops.is_empty(),
                "hops, each of which needs its own interface and qdisc",
            ),
            (
                !self.rules.is_empty(),
                "rules, which need their own filters and qdiscs",
            ),
        ];
        let shared: Vec<String> = shared
            .into_iter()
            .filter(|(is_there, _)| *is_there)
            .map(|(_, words)| words.to_owned())
            .collect();
        [&self.up, &self.down].map(|own| {
            let mut as_netem = AsNetem::of(&own.clone().or(self.both.clone()));
            as_netem.unsaid.extend(shared.iter().cloned());
            as_netem
        })
    }

    /// Creates a link under these conditions, whose stages have names that begin with `hop`.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::all_hops`].
    pub fn to_link(&self, hop: &str) -> Result<EmulatedLink, Error> {
        self.to_link_of(hop, 0)
    }

    /// Creates a link as [`LinkSpec::to_link`] does, as number `number` of several: links with one seed have different
    /// draws.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::all_hops`], and an error for the name of a host that was not resolved.
    pub fn to_link_of(&self, hop: &str, number: u64) -> Result<EmulatedLink, Error> {
        self.require_addresses()?;
        let mut link = emulated_link(&self.all_hops(hop)?, self.seed(), number);
        link.config.waits = self.waits();
        Ok(link)
    }

    /// Refuses conditions that the model would refuse, before anything is built.
    ///
    /// # Errors
    /// Returns an error with the keys if conditions contradict each other or lie out of range.
    pub fn check(&self) -> Result<(), Error> {
        let config = emulated_link(&self.all_hops("link")?, self.seed(), 0).config;
        Link::new(&config).map_err(|error| self.located(error))?;
        let is_stalled =
            |effect: &Effect| matches!(effect, Effect::Rate(rate) if rate.rate.is_none());
        let mut stages = config.paths.iter().flat_map(|path| &path.stages);
        let Some(stalled) = stages.find(|stage| stage.effects().all(is_stalled)) else {
            return Ok(());
        };
        let why = "at 0bit nothing ever passes: set a rate, or add a schedule that sets one later";
        let error = Error::other(why).at("rate");
        Err(self.at_hop(self.hop_of(&stalled.name), error))
    }

    /// Converts an error of the model to one with the keys of the condition whose stage it names.
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
        let hop = self.hop_of(stage);
        let before = 1 + usize::from(hop.is_some());
        let parts: Vec<&str> = stage.split('.').skip(before).collect();
        let (class, direction, name) = match parts[..] {
            ["toffee"] => {
                return at_key(problem, field.unwrap_or("delay"), field).at("toffee");
            }
            [direction, name] => (None, direction, name),
            [class, direction, name] => (Some(class), direction, name),
            _ => return error.into(),
        };
        match hop {
            Some(number) => {
                let link = self.link_of(&self.hops[number]);
                let error = link.placed(class, direction, name, field, problem);
                self.at_hop(hop, error)
            }
            None => self.placed(class, direction, name, field, problem),
        }
    }

    /// Returns a problem of a stage of the link itself with the keys of the condition that makes it. `class` is the name
    /// of the rule whose stage it is.
    fn placed(
        &self,
        class: Option<&str>,
        direction: &str,
        name: &str,
        field: Option<&'static str>,
        problem: Problem,
    ) -> Error {
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
        let choose = |up, down| if direction == "up" { up } else { down };
        let contains = |layer: &Layer| layer.ever().contains(key);
        let rules = self.rules.iter().enumerate();
        for (index, one) in rules.filter(|(_, one)| Some(one.rule.name.as_str()) == class) {
            let here = |error: Error| error.at_item(index, Some(&one.rule.name)).at("rules");
            if contains(choose(&one.up, &one.down)) {
                return here(error.at(direction));
            }
            if contains(&one.both) {
                return here(error);
            }
        }
        if contains(choose(&self.up, &self.down)) {
            error.at(direction)
        } else {
            error
        }
    }

    /// Returns the override of a direction.
    pub(crate) fn layer(&self, direction: Direction) -> &Layer {
        direction.choose(&self.up, &self.down)
    }
}

/// Returns the key of the condition that a parameter of a stage comes from.
fn key_of<'n>(stage: &'n str, field: Option<&'n str>) -> &'n str {
    let first = field.and_then(|field| field.split('.').next());
    let is_key = |key: &&str| CONDITIONS.iter().any(|kind| kind.key == *key);
    match (stage, first.filter(is_key)) {
        ("rate" | "delay", Some(key)) => key,
        ("rate", None) if field.is_some_and(|field| field != "burst") => "aqm",
        ("burst-loss", _) => "loss",
        ("trace" | "cell-replay", Some("queue")) => "queue",
        ("cell-replay", _) => "trace",
        ("outage-hold", _) => "outage",
        ("handover-loss", _) => "handover",
        ("netem-first", _) => "netem",
        _ => stage,
    }
}

/// Returns the problem at a key. The parameter is named if it is only a part of the key's value.
fn at_key(mut problem: Problem, key: &str, parameter: Option<&'static str>) -> Error {
    if let Problem::OutOfRange { field, .. } = &mut problem {
        let last = parameter.and_then(|parameter| parameter.rsplit('.').next());
        *field = last.filter(|last| *last != key);
    }
    Error::new(problem).at(key)
}

/// Adds the keys that name a profile to a link's schema, because a link in a file may begin with one.
fn with_profile(schema: &mut Schema) {
    let about =
        "A link by its name, as `farwire profiles` lists them; conditions next to it override it.";
    profiles::add_key(schema, "profile", about);
    let about = "The same in the file of a profile, which builds on another one.";
    profiles::add_key(schema, "based_on", about);
}

/// Returns whether a text may be part of the names of stages, or the name of a profile: letters, digits, `-` and `_`.
pub fn is_name(text: &str) -> bool {
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
        let mut base: Option<Base> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "profile" | "based_on" => {
                    if base.is_some() {
                        return Err(de::Error::custom(
                            "profile and based_on mean the same: leave one of them out",
                        ));
                    }
                    base = map.next_value()?;
                }
                "toffee" => link.toffee = map.next_value()?,
                "seed" => link.seed = map.next_value()?,
                "start" => link.start = map.next_value()?,
                "up" => link.up = map.next_value()?,
                "down" => link.down = map.next_value()?,
                "stages" => link.stages = map.next_value()?,
                "hops" => link.hops = map.next_value()?,
                "rules" => link.rules = map.next_value()?,
                key => link.both.read(key, &mut map, LINK_KEYS)?,
            }
        }
        Ok(match base {
            Some(Base(base)) => link.or(base),
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
