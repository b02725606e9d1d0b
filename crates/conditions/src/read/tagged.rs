//! Tables whose key `kind` determines their other keys, and types that are read through a [`Node`] from every format.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::Node;

/// The key that determines the other keys of a table.
pub const KIND: &str = "kind";

/// The name of a newtype by which a [`Node`] recognises that it is requested; other formats ignore the names of
/// newtypes.
pub(super) const THROUGH_NODE: &str = "farwire: through a node";

/// A type that can only be read from a [`Node`].
pub(crate) trait FromNode: Sized {
    /// Reads it from a deserializer that is a node.
    fn from_node<'de, D: Deserializer<'de>>(node: D) -> Result<Self, D::Error>;
}

/// Reads a type from any format. Formats other than [`Node`] are converted to one, which then has no positions.
pub(crate) fn through_node<'de, T: FromNode, D: Deserializer<'de>>(
    source: D,
) -> Result<T, D::Error> {
    source.deserialize_newtype_struct(THROUGH_NODE, ThroughNode(PhantomData))
}

struct ThroughNode<T>(PhantomData<T>);

impl<'de, T: FromNode> Visitor<'de> for ThroughNode<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    /// The source is a node.
    fn visit_some<D: Deserializer<'de>>(self, node: D) -> Result<T, D::Error> {
        T::from_node(node)
    }

    /// The source is another format.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, other: D) -> Result<T, D::Error> {
        let node = Node::deserialize(other)?;
        T::from_node(node).map_err(de::Error::custom)
    }
}

/// An enum of structs that is one table in files: the key `kind` determines which struct has the other keys.
pub trait Tagged: Sized {
    /// The values of `kind`.
    const KINDS: &'static [&'static str];
    /// The kind of a table that does not state it, if there is a default.
    const DEFAULT: Option<&'static str> = None;

    /// Reads the other keys of a table of this kind.
    ///
    /// # Errors
    /// Returns the errors of the struct.
    fn read<'de, D: Deserializer<'de>>(kind: &'static str, rest: D) -> Result<Self, D::Error>;
}

/// Reads a [`Tagged`] type from any format.
///
/// # Errors
/// Returns an error for an unknown kind, and the errors of its struct.
pub fn read_tagged<'de, T: Tagged, D: Deserializer<'de>>(source: D) -> Result<T, D::Error> {
    through_node::<AsTagged<T>, D>(source).map(|read| read.0)
}

struct AsTagged<T>(T);

impl<T: Tagged> FromNode for AsTagged<T> {
    /// Reads it as a struct, because a node delivers the first field of a struct first.
    fn from_node<'de, D: Deserializer<'de>>(node: D) -> Result<Self, D::Error> {
        let read = node.deserialize_struct("", &[KIND], TaggedVisitor(PhantomData));
        read.map(Self)
    }
}

struct TaggedVisitor<T>(PhantomData<T>);

impl<'de, T: Tagged> Visitor<'de> for TaggedVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of {}", T::KINDS.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let first = map.next_key::<String>()?;
        let (kind, first) = match first {
            Some(key) if key == KIND => (map.next_value_seed(self)?, None),
            first => (
                T::DEFAULT.ok_or_else(|| de::Error::missing_field(KIND))?,
                first,
            ),
        };
        T::read(kind, PartialTable::of(first, map, |_, _| Ok(false)))
    }
}

/// Reads the kind.
impl<'de, T: Tagged> DeserializeSeed<'de> for TaggedVisitor<T> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<&'static str, D::Error> {
        let name = String::deserialize(source)?;
        let found = T::KINDS.iter().find(|kind| **kind == name);
        found
            .copied()
            .ok_or_else(|| de::Error::unknown_variant(&name, T::KINDS))
    }
}

/// Writes a table of this kind with the keys of `content`.
///
/// # Errors
/// Returns the errors of the format.
pub fn serialize_tagged<S: Serializer>(
    target: S,
    kind: &str,
    content: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    let mut map = target.serialize_map(None)?;
    map.serialize_entry(KIND, kind)?;
    serialize_keys(&mut map, content)?;
    map.end()
}

/// Writes the keys of `content`, without its kind, into a table that also has other keys.
pub(crate) fn serialize_keys<M: SerializeMap>(
    map: &mut M,
    content: &impl Serialize,
) -> Result<(), M::Error> {
    let Value::Object(keys) = serde_json::to_value(content).map_err(M::Error::custom)? else {
        return Ok(());
    };
    let mut keys = keys.iter().filter(|(key, _)| *key != KIND);
    keys.try_for_each(|(key, value)| map.serialize_entry(key, value))
}

/// Returns the schema of one kind's table: that of `T` with the key `kind`.
pub fn kind_schema<T: JsonSchema>(
    generator: &mut SchemaGenerator,
    kind: &str,
    is_default: bool,
) -> Schema {
    let mut schema = T::json_schema(generator);
    let table = schema.ensure_object();
    let properties = table.entry("properties").or_insert_with(|| json!({}));
    properties[KIND] = json!({ "const": kind });
    if !is_default {
        let required = table.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.push(KIND.into());
        }
    }
    schema
}

/// Declares an enum of structs that is one table in files, as [`Tagged`] describes.
#[macro_export]
macro_rules! tagged {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident, default $default:expr;
        $($(#[doc = $doc:literal])+ $kind:literal => $variant:ident($content:ty),)+
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[doc = $doc])+ $variant($content),)+
        }

        impl $name {
            /// Returns the name of its kind.
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind,)+
                }
            }
        }

        impl $crate::read::Tagged for $name {
            const KINDS: &'static [&'static str] = &[$($kind),+];
            const DEFAULT: Option<&'static str> = $default;

            fn read<'de, D: serde::Deserializer<'de>>(
                kind: &'static str,
                rest: D,
            ) -> Result<Self, D::Error> {
                match kind {
                    $($kind => <$content as serde::Deserialize>::deserialize(rest).map(Self::$variant),)+
                    _ => Err(serde::de::Error::unknown_variant(kind, Self::KINDS)),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                $crate::read::read_tagged(source)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(content) => $crate::read::serialize_tagged(target, $kind, content),)+
                }
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let default: Option<&str> = $default;
                schemars::json_schema!({
                    "oneOf": [$($crate::read::kind_schema::<$content>(generator, $kind, default == Some($kind))),+]
                })
            }
        }
    };
}

/// A table of which one key was read before, or of which `take` reads some keys; `take` returns whether it has read the
/// key.
pub(crate) struct PartialTable<A, F> {
    first: Option<String>,
    map: A,
    take: F,
}

impl<'de, A: MapAccess<'de>, F: FnMut(&str, &mut A) -> Result<bool, A::Error>> PartialTable<A, F> {
    pub(crate) fn of(first: Option<String>, map: A, take: F) -> MapAccessDeserializer<Self> {
        MapAccessDeserializer::new(Self { first, map, take })
    }
}

impl<'de, A: MapAccess<'de>, F: FnMut(&str, &mut A) -> Result<bool, A::Error>> MapAccess<'de>
    for PartialTable<A, F>
{
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let mut next = self.first.take();
        if next.is_none() {
            next = self.map.next_key()?;
        }
        while let Some(key) = next {
            if !(self.take)(&key, &mut self.map)? {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            next = self.map.next_key()?;
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
