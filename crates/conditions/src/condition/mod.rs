//! The conditions of one direction. Each has a file with everything that belongs to it. Flags, keys of files and of the
//! API, their schema, the page's form and the checks follow from the list at the end of this file.

mod aqm;
mod ber;
mod corrupt;
mod delay;
mod duplicate;
mod fluctuation;
mod handover;
mod jitter;
mod loss;
pub(crate) mod netem;
mod netem_at;
mod outage;
mod path_mtu;
mod police;
mod pps;
mod queue;
mod rate;
mod rate_at;
mod reorder;
mod size_delay;
mod trace;

use std::fmt;
use std::str::FromStr;

use model::{ConfigError, Effect, Link, LinkConfig, StageSpec};
use schemars::{Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, MapAccess};
use serde::{Serialize, Serializer};

pub use self::aqm::AqmSpec;
pub use self::ber::BerSpec;
pub use self::corrupt::CorruptSpec;
pub use self::delay::DelaySpec;
pub use self::duplicate::DuplicateSpec;
pub use self::fluctuation::FluctuationSpec;
pub use self::handover::HandoverSpec;
pub use self::jitter::{JitterSpec, LawName};
pub use self::loss::LossSpec;
pub use self::netem::NetemSpec;
pub use self::netem_at::NetemAtSpec;
pub use self::outage::{OutageSpec, Recurrence};
pub use self::path_mtu::PathMtuSpec;
pub use self::police::PoliceSpec;
pub use self::pps::PpsSpec;
pub use self::queue::QueueSpec;
pub use self::rate::RateSpec;
pub use self::rate_at::RateAtSpec;
pub use self::reorder::ReorderSpec;
pub use self::size_delay::SizeDelaySpec;
pub use self::trace::{LONGEST_CONTENT, TraceColumn, TraceSpec};
use crate::error::Error;
use crate::read;

/// The type of a condition's value.
pub trait ConditionType:
    Clone + PartialEq + Serialize + DeserializeOwned + FromStr<Err = Error> + fmt::Display
{
    /// The description that flags, files, forms and tables show.
    const KIND: ConditionKind;
    /// The condition that must be stated next to it.
    const NEEDS: Option<Needs> = None;
    /// Its key in files.
    const KEY: &'static str = Self::KIND.key;
}

/// A type that is the value of a condition.
pub trait ConditionValue: Sized {
    /// Returns the value, if the condition is of this kind.
    fn of(condition: &Condition) -> Option<&Self>;
}

/// A stage that conditions make, in the order in which packets meet them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// The path MTU.
    PathMtu,
    /// A policer.
    Police,
    /// A limit of packets per second.
    Pps,
    /// The bottleneck.
    Rate,
    /// Linux's netem.
    Netem,
    /// Random loss.
    Loss,
    /// Bit errors.
    Ber,
    /// Duplication.
    Duplicate,
    /// Corruption.
    Corrupt,
    /// Propagation delay.
    Delay,
    /// A bottleneck that serves at given times.
    Trace,
    /// Outages.
    Outage,
    /// Handovers.
    Handover,
}

/// A condition that another one needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A rate; the text gives the reason.
    Rate(&'static str),
    /// A condition that delays packets; the text gives the reason.
    Delay(&'static str),
    /// A netem; the text gives the reason.
    Netem(&'static str),
}

/// A kind of condition, as a flag, a form or a table shows it.
#[derive(Clone, Copy, Debug)]
pub struct ConditionKind {
    /// Its key; the flag has hyphens where this has underscores.
    pub key: &'static str,
    /// The placeholder for its value in a flag's help.
    pub value_name: &'static str,
    /// Its meaning in one line, with an example of its value.
    pub summary: &'static str,
    /// The summary, and the other forms of its value.
    pub help: &'static str,
    /// An example of a value.
    pub example: &'static str,
    /// The stage that it makes or changes.
    pub(crate) stage: Shapes,
    /// The condition that must be stated next to it.
    pub(crate) needs: Option<Needs>,
    /// Reads the condition from the text of its value.
    pub read: fn(&str) -> Result<Condition, Error>,
    /// Creates the schema of its value.
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

/// Describes a kind of condition.
macro_rules! describe {
    (
        $type:ty: $key:literal = $value_name:literal, as in $example:literal, shapes $stage:ident $(needs $needs:expr)?;
        $summary:literal $(+ $forms:literal)?
    ) => {
        impl crate::condition::ConditionType for $type {
            const KIND: crate::condition::ConditionKind = crate::condition::ConditionKind {
                key: $key,
                value_name: $value_name,
                summary: $summary,
                help: concat!($summary $(, ". ", $forms)?),
                example: $example,
                stage: crate::condition::Shapes::$stage,
                needs: Self::NEEDS,
                read: |text| {
                    let value = crate::read::text::<Self>(text).map(Into::into);
                    crate::error::At::at(value, $key)
                },
                schema: |generator| generator.subschema_for::<Self>(),
            };
            $(const NEEDS: Option<crate::condition::Needs> = Some($needs);)?
        }
    };
}

/// Writes the text form of [`fmt::Display`] in records and files. If a type is `checked`, its `check` refuses values
/// that its derived reader, which knows each field separately, accepts.
macro_rules! text_form {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                target.collect_str(self)
            }
        }
    };
    ($type:ty, checked) => {
        text_form!($type);
        text_form!(checked $type);
    };
    (checked $type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                let read = <$type>::deserialize(source)?;
                read.check().map_err(serde::de::Error::custom)?;
                Ok(read)
            }
        }
    };
}

/// Declares a condition whose value is one quantity of the model.
macro_rules! quantity {
    ($(#[$attribute:meta])* $name:ident($unit:ty)) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $unit);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

use {describe, quantity, text_form};

macro_rules! conditions {
    ($($name:ident($type:ty),)+) => {
        /// A condition of one direction.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Condition {
            $(
                #[doc = concat!("A [`", stringify!($type), "`].")]
                $name($type),
            )+
        }

        /// Every kind of condition, in the order of help and files.
        pub const CONDITIONS: &[ConditionKind] = &[$(<$type>::KIND),+];

        impl Condition {
            /// Returns its index in [`CONDITIONS`].
            pub(crate) fn number(&self) -> usize {
                enum Number {
                    $($name,)+
                }
                let number = match self {
                    $(Self::$name(_) => Number::$name,)+
                };
                number as usize
            }

            /// Reads the value of a key, if it is the key of a condition.
            pub(crate) fn read<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
                Ok(Some(match key {
                    $(<$type>::KEY => Self::$name(map.next_value()?),)+
                    _ => return Ok(None),
                }))
            }
        }

        impl fmt::Display for Condition {
            /// Writes its value in the text form.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(value) => value.fmt(f),)+
                }
            }
        }

        impl Serialize for Condition {
            /// Writes its value.
            fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$name(value) => value.serialize(target),)+
                }
            }
        }

        $(
            impl From<$type> for Condition {
                fn from(value: $type) -> Self {
                    Self::$name(value)
                }
            }

            impl ConditionValue for $type {
                fn of(condition: &Condition) -> Option<&Self> {
                    match condition {
                        Condition::$name(value) => Some(value),
                        _ => None,
                    }
                }
            }

            impl FromStr for $type {
                type Err = Error;

                fn from_str(text: &str) -> Result<Self, Error> {
                    read::text(text)
                }
            }
        )+

        /// The keys of the tables that have all conditions, and further keys.
        pub(crate) const LAYER_KEYS: &[&str] = &[$(<$type>::KEY,)+ "schedule"];
        pub(crate) const STEP_KEYS: &[&str] = &["at", "over", "every", "without", $(<$type>::KEY,)+];
        pub(crate) const RULE_KEYS: &[&str] = &[
            "match", "name", "protocol", "port", "source_port", "destination_port", "host", "source", "destination",
            "dscp", "vlan", "ether_type", "fragment", "direction", "hop", "weight", $(<$type>::KEY,)+ "up", "down", "schedule",
        ];
        pub(crate) const HOP_KEYS: &[&str] = &[
            "name", "profile", $(<$type>::KEY,)+ "up", "down", "schedule", "stages",
        ];
        pub(crate) const LINK_KEYS: &[&str] = &[
            "profile", "based_on", $(<$type>::KEY,)+ "toffee", "seed", "start", "up", "down", "schedule", "stages", "hops",
            "rules",
        ];
    };
}

conditions! {
    Delay(DelaySpec),
    Jitter(JitterSpec),
    Loss(LossSpec),
    Ber(BerSpec),
    Duplicate(DuplicateSpec),
    Corrupt(CorruptSpec),
    PathMtu(PathMtuSpec),
    Police(PoliceSpec),
    Reorder(ReorderSpec),
    Pps(PpsSpec),
    Rate(RateSpec),
    RateAt(RateAtSpec),
    Fluctuation(FluctuationSpec),
    Queue(QueueSpec),
    Aqm(AqmSpec),
    SizeDelay(SizeDelaySpec),
    Netem(NetemSpec),
    NetemAt(NetemAtSpec),
    Trace(TraceSpec),
    Outage(OutageSpec),
    Handover(HandoverSpec),
}

impl Condition {
    /// Returns the description of its kind.
    pub fn kind(&self) -> &'static ConditionKind {
        &CONDITIONS[self.number()]
    }

    /// Returns the bytes of memory that it takes in addition to itself.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Jitter(jitter) => jitter.memory(),
            Self::Trace(trace) => trace.memory(),
            _ => 0,
        }
    }
}

/// Refuses an effect that the model would refuse, at the place where it is written.
fn refuse_out_of_range(effect: Effect) -> Result<(), String> {
    let stage = StageSpec::new("value", effect);
    match Link::new(&LinkConfig::new(1, vec![stage], Vec::new())) {
        Err(ConfigError::OutOfRange {
            field,
            value,
            right,
            ..
        }) => Err(format!("{field} = {value} is out of range: {right}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
