//! Packets that meet something else than the rest.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::condition::CLASS_KEYS;
use crate::error::{At, Error};
use crate::layer::{Layer, ScheduleStep, condition_schemas, write_list};
use crate::read::table_schema;
use crate::require;
use crate::rules::{Protocol, Rule};

/// Packets that a rule takes, and what is different for them: all else they share with those that no rule takes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    /// Its name, and which packets it takes.
    pub rule: Rule,
    /// What differs in each direction.
    pub both: Layer,
    /// What differs from client to server.
    pub up: Layer,
    /// What differs from server to client.
    pub down: Layer,
}

/// Refuses rules that could not be distinguished or take nothing.
pub(crate) fn check(classes: &[ClassSpec]) -> Result<(), Error> {
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
                "name": "two are named {name}: give each its own name"
            );
            rule.check()
        };
        check().at_item("classes", number, Some(&rule.name))?;
    }
    require!(u16::try_from(classes.len()).is_ok(), "classes": "at most 65535");
    Ok(())
}

impl Rule {
    fn check(&self) -> Result<(), Error> {
        require!(
            self.protocol.is_some() || self.port.is_some(),
            "no rule: say which packets it takes, by protocol, port or both"
        );
        require!(
            self.protocol != Some(Protocol::Icmp) || self.port.is_none(),
            "port": "ICMP has none: leave it out, or say protocol = \"udp\" or \"tcp\""
        );
        require!(self.port != Some(0), "port": "0 is no port: say 1 to 65535");
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

impl Serialize for ClassSpec {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        let mut map = target.serialize_map(None)?;
        map.serialize_entry("name", &self.rule.name)?;
        if let Some(protocol) = self.rule.protocol {
            map.serialize_entry("protocol", &protocol)?;
        }
        if let Some(port) = self.rule.port {
            map.serialize_entry("port", &port)?;
        }
        self.both.at_first.write(&mut map)?;
        for (key, layer) in [("up", &self.up), ("down", &self.down)] {
            if !layer.is_empty() {
                map.serialize_entry(key, layer)?;
            }
        }
        write_list(&mut map, "schedule", &self.both.schedule)?;
        map.end()
    }
}

impl JsonSchema for ClassSpec {
    fn schema_name() -> Cow<'static, str> {
        "ClassSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut keys = condition_schemas(generator);
        keys.extend([
            (
                "name",
                generator.subschema_for::<String>(),
                "Its name in summaries.",
            ),
            (
                "protocol",
                generator.subschema_for::<Protocol>(),
                "The protocol that IP carries; any when absent.",
            ),
            (
                "port",
                generator.subschema_for::<u16>(),
                "The port of UDP or TCP at either end; any when absent.",
            ),
            (
                "up",
                generator.subschema_for::<Layer>(),
                "Overrides from client to server.",
            ),
            (
                "down",
                generator.subschema_for::<Layer>(),
                "Overrides from server to client.",
            ),
            (
                "schedule",
                generator.subschema_for::<Vec<ScheduleStep>>(),
                "What changes later, in order of time.",
            ),
        ]);
        let about = "Packets that a rule takes, and what is different for them.";
        table_schema(about, keys, &["name"])
    }
}
