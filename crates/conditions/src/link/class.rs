//! Classes of packets with different conditions.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, de};

use model::MOST_CLASSES;

use crate::condition::CLASS_KEYS;
use crate::error::{At, Error};
use crate::layer::Layer;
use crate::require;
use crate::rules::{Protocol, Rule};

/// A class of packets that match a rule, and the conditions that differ for them; they share all others with the
/// packets of no class.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ClassSpec {
    /// Its name, and the rule that its packets match.
    #[serde(flatten)]
    pub rule: Rule,
    /// The conditions that differ in both directions.
    #[serde(flatten)]
    pub both: Layer,
    /// The conditions that differ from client to server.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub up: Layer,
    /// The conditions that differ from server to client.
    #[serde(skip_serializing_if = "Layer::is_empty")]
    #[schemars(default)]
    pub down: Layer,
}

/// Refuses classes with equal names, and rules that match no packet.
pub(crate) fn check(classes: &[ClassSpec]) -> Result<(), Error> {
    let (count, most) = (classes.len(), usize::from(MOST_CLASSES));
    require!(count <= most, "classes": "there are {count}: at most {most} are allowed");
    for (number, ClassSpec { rule, .. }) in classes.iter().enumerate() {
        let others = &classes[..number];
        let check = || {
            let name = &rule.name;
            require!(
                crate::link::is_name(name),
                "name": "`{name}`: a class needs a name of letters, digits, - and _, such as voice"
            );
            require!(
                others.iter().all(|other| other.rule.name != *name),
                "name": "two classes have the name {name}: give each its own name"
            );
            rule.check()
        };
        check().at_item("classes", number, Some(&rule.name))?;
    }
    Ok(())
}

impl Rule {
    fn check(&self) -> Result<(), Error> {
        require!(
            self.protocol.is_some() || self.port.is_some(),
            "no rule: state protocol, port or both for the packets of the class"
        );
        require!(
            self.protocol != Some(Protocol::Icmp) || self.port.is_none(),
            "port": "ICMP has no ports: leave port out, or state protocol = \"udp\" or \"tcp\""
        );
        require!(self.port != Some(0), "port": "0 is not a port: state 1 to 65535");
        Ok(())
    }
}

struct ClassVisitor;

impl<'de> Visitor<'de> for ClassVisitor {
    type Value = ClassSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of a class")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClassSpec, A::Error> {
        let (mut name, mut protocol, mut port) = (None, None, None);
        let [mut both, mut up, mut down] = <[Layer; 3]>::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => name = Some(map.next_value()?),
                "protocol" => protocol = map.next_value()?,
                "port" => port = map.next_value()?,
                "up" => up = map.next_value()?,
                "down" => down = map.next_value()?,
                key => both.read(key, &mut map, CLASS_KEYS)?,
            }
        }
        let name = name.ok_or_else(|| de::Error::missing_field("name"))?;
        let rule = Rule {
            name,
            protocol,
            port,
        };
        Ok(ClassSpec {
            rule,
            both,
            up,
            down,
        })
    }
}

impl<'de> Deserialize<'de> for ClassSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(ClassVisitor)
    }
}
