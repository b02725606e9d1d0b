//! Further hops of a link: each has its own conditions in both directions, and packets pass them in order.

use std::fmt;

use model::MOST_STAGES;
use schemars::{JsonSchema, Schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::hop::{Hop, check_steps};
use super::profiles::{self, Base};
use super::rule::RuleSpec;
use super::stage::ExtraStage;
use super::{LinkSpec, is_name};
use crate::condition::HOP_KEYS;
use crate::error::{At, Error, PathStep};
use crate::layer::Layer;
use crate::require;

/// The most hops of a link, without the link itself.
const MOST_HOPS: usize = 16;

/// A further hop of a link; the values in `up` or `down` override the common value in that direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, transform = with_profile)]
pub struct HopSpec {
    /// Its name in counters and messages, which also determines its random draws: letters, digits, `-` and `_`.
    pub name: String,
    /// The conditions in both directions.
    #[serde(flatten)]
    pub both: Layer,
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
}

impl HopSpec {
    /// Creates a hop with the conditions of `link` that a hop can have.
    fn new(name: String, link: LinkSpec) -> Self {
        let LinkSpec {
            both,
            up,
            down,
            stages,
            ..
        } = link;
        Self {
            name,
            both,
            up,
            down,
            stages,
        }
    }

    /// Returns the seed of the times that are drawn for it, which differ from hop to hop (FNV-1a of its name).
    fn seed(&self, link: u64) -> u64 {
        let begin = link ^ 0xcbf2_9ce4_8422_2325;
        self.name.bytes().fold(begin, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Returns its layers of conditions.
    pub(super) fn layers(&self) -> [&Layer; 3] {
        [&self.both, &self.up, &self.down]
    }

    /// Returns its layers of conditions, to change them.
    pub(super) fn layers_mut(&mut self) -> [&mut Layer; 3] {
        [&mut self.both, &mut self.up, &mut self.down]
    }
}

impl Hop {
    /// Returns it with stages that count what they drop under this name.
    fn named(mut self, name: &str) -> Self {
        let of_rules = self.rules.iter_mut().map(|(_, stages)| stages);
        for stages in of_rules.chain([&mut self.rest]) {
            for stage in stages.up.iter_mut().chain(&mut stages.down) {
                name.clone_into(&mut stage.hop);
            }
        }
        self
    }
}

impl LinkSpec {
    /// Creates the hops of this link in the order in which packets meet them on the way up: first the conditions of the
    /// link itself, whose stages have names that begin with `name`, then those of `hops`, whose stages have names that
    /// begin with `name`, a point and the name of the hop.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSpec::hop`], and an error for hops without a name, with equal names or with that of a
    /// rule, for too many hops, and for too many stages or steps of all hops together.
    pub fn all_hops(&self, name: &str) -> Result<Vec<Hop>, Error> {
        self.check_hops()?;
        let links = self.hops.iter().map(|hop| self.link_of(hop));
        let links: Vec<(&HopSpec, Self)> = self.hops.iter().zip(links).collect();
        // All of them are checked before any stage is built.
        let mut steps = self.check_own()?;
        for (number, (_, link)) in links.iter().enumerate() {
            let own = link.check_own();
            let own = own.map_err(|error| self.at_hop(Some(number), error))?;
            // The packets of each rule follow them, too. With rules, the hop has counted that.
            let times = match link.rules.is_empty() {
                true => 1 + self.rules.len() as u64,
                false => 1,
            };
            steps = steps.saturating_add(own.saturating_mul(times));
        }
        check_steps(steps)?;
        let mut all = vec![self.build(name)?];
        for (number, (hop, link)) in links.iter().enumerate() {
            let built = link.build(&format!("{name}.{}", hop.name));
            let built = built.map_err(|error| self.at_hop(Some(number), error))?;
            all.push(built.named(&hop.name));
            check_length(&all)?;
        }
        Ok(all)
    }

    /// Returns the conditions of a hop as those of a separate link, which has all rules if any concerns the hop. Those that
    /// concern another hop or this link have the name of a hop there.
    pub(super) fn link_of(&self, hop: &HopSpec) -> Self {
        let is_here = |one: &RuleSpec| one.hop.as_ref() == Some(&hop.name);
        let as_there = |one: &RuleSpec| RuleSpec {
            hop: (!is_here(one)).then(String::new),
            ..one.clone()
        };
        let rules = match self.rules.iter().any(is_here) {
            true => self.rules.iter().map(as_there).collect(),
            false => Vec::new(),
        };
        Self {
            both: hop.both.clone(),
            up: hop.up.clone(),
            down: hop.down.clone(),
            stages: hop.stages.clone(),
            seed: Some(hop.seed(self.seed())),
            rules,
            ..Self::default()
        }
    }

    /// Refuses hops that cannot be distinguished, too many of them, and rules that concern a hop that is not there.
    fn check_hops(&self) -> Result<(), Error> {
        let count = self.hops.len();
        require!(count <= MOST_HOPS, "hops": "there are {count}: at most {MOST_HOPS} are allowed");
        for (number, HopSpec { name, .. }) in self.hops.iter().enumerate() {
            let check = || {
                if name.is_empty() {
                    return Err(Error::missing("name", "name = \"dsl\""));
                }
                require!(
                    is_name(name),
                    "name": "`{name}`: a hop needs a name of letters, digits, - and _, such as dsl"
                );
                let before = &self.hops[..number];
                require!(
                    before.iter().all(|other| other.name != *name),
                    "name": "two hops have the name {name}: give each its own name"
                );
                require!(
                    self.rules.iter().all(|one| one.rule.name != *name),
                    "name": "a rule has the name {name}, too: give the hop another one"
                );
                Ok::<_, Error>(())
            };
            let shown = Some(name.as_str()).filter(|name| !name.is_empty());
            check().at_item("hops", number, shown)?;
        }
        for (number, one) in self.rules.iter().enumerate() {
            let Some(hop) = one.hop.as_deref() else {
                continue;
            };
            let names = self.hops.iter().map(|hop| hop.name.as_str());
            let known = match self.hops.is_empty() {
                true => Err(Error::other(
                    "the link has no hops: leave hop out, or add [[hops]]",
                )),
                false if names.clone().any(|name| name == hop) => Ok(()),
                false => Err(Error::unknown_name(hop, names)),
            };
            known
                .at("hop")
                .at_item("rules", number, Some(&one.rule.name))?;
        }
        let (count, most) = (self.extra_stages().count(), 2 * MOST_STAGES);
        require!(
            self.hops.is_empty() || count <= most,
            "hops": "the link and its hops have {count} stages of [[stages]] together: at most {most} are allowed, {MOST_STAGES} each way"
        );
        Ok(())
    }

    /// Returns the index of the hop to which a stage belongs; `None` for a stage of the link itself.
    pub(super) fn hop_of(&self, stage: &str) -> Option<usize> {
        // Those of the link itself have no more than three parts, or the name of a rule in the place of the hop's.
        let parts: Vec<&str> = stage.split('.').collect();
        let name = parts.get(1).filter(|_| parts.len() > 3)?;
        self.hops.iter().position(|hop| hop.name == *name)
    }

    /// Returns an error of the hop with this index with the place of the hop in front of its path, unless it is that of a
    /// rule. For `None`, it returns the error of the link itself.
    pub(super) fn at_hop(&self, hop: Option<usize>, error: Error) -> Error {
        let is_of_rule = error.path.first() == Some(&PathStep::Key("rules".to_owned()));
        match hop.filter(|_| !is_of_rule) {
            Some(number) => error
                .at_item(number, Some(&self.hops[number].name))
                .at("hops"),
            None => error,
        }
    }
}

/// Refuses more stages of all hops than a path may have, before each rule has them all.
fn check_length(hops: &[Hop]) -> Result<(), Error> {
    let up: usize = hops.iter().map(|hop| hop.rest.up.len()).sum();
    let down: usize = hops.iter().map(|hop| hop.rest.down.len()).sum();
    let count = up.max(down);
    require!(
        count <= MOST_STAGES,
        "hops": "the link and its hops make {count} stages of one path: at most {MOST_STAGES} are allowed"
    );
    Ok(())
}

/// Adds the key that names a profile to a hop's schema.
fn with_profile(schema: &mut Schema) {
    let about = "The conditions of a profile that has neither rules nor hops nor toffee; conditions next to it override \
                 it. Its seed and its start do not count.";
    profiles::add_key(schema, "profile", about);
}

struct HopVisitor;

impl<'de> Visitor<'de> for HopVisitor {
    type Value = HopSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a hop")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HopSpec, A::Error> {
        let mut name = String::new();
        let mut own = LinkSpec::default();
        let mut base: Option<Base> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => name = map.next_value()?,
                "profile" => base = map.next_value()?,
                "up" => own.up = map.next_value()?,
                "down" => own.down = map.next_value()?,
                "stages" => own.stages = map.next_value()?,
                key => own.both.read(key, &mut map, HOP_KEYS)?,
            }
        }
        let Some(Base(base)) = base else {
            return Ok(HopSpec::new(name, own));
        };
        if base.toffee.is_some() || !base.rules.is_empty() || !base.hops.is_empty() {
            return Err(de::Error::custom(
                "the profile has rules, hops or toffee, which a hop cannot have: write its conditions into the hop",
            ));
        }
        Ok(HopSpec::new(name, own.or(base)))
    }
}

impl<'de> Deserialize<'de> for HopSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(HopVisitor)
    }
}

#[cfg(test)]
mod tests;
