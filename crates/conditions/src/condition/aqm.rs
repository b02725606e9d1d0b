//! Active queue management.

use std::borrow::Cow;
use std::fmt;

use model::{
    Bytes, Codel, Discipline, DualPi2, Effect, FqCodel, Framing, Nanos, Pie, Probability, Queue,
    QueueLimit, Rate, Red,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

use super::{Needs, describe, refuse_out_of_range, text_form};
use crate::read::{Tagged, kind_schema, read_tagged};

/// Active queue management, written `fq_codel` or `codel,ecn,target=5ms`, or as a table with the name as `kind`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AqmSpec(pub Discipline);

describe! {
    AqmSpec: "aqm" = "NAME[,OPTION...]", as in "fq_codel,noecn,target=10ms,flows=16", shapes Rate needs Needs::Rate("AQM manages the queue of a rate");
    "Active queue management: codel, fq_codel, pie, red, dualpi2" + "drop-head drops the oldest packet when the queue is full. Options follow the name: fq_codel,target=5ms,noecn"
}

/// Declares the options of a discipline, each with its place among the model's parameters.
macro_rules! options {
    ($(#[$about:meta])* $name:ident of $of:ty { $($key:ident: $type:ty = $($place:ident).+,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($key: Option<$type>,)*
        }

        impl $name {
            /// Returns the default parameters with these options.
            fn over_usual(self) -> $of {
                let mut all = <$of>::default();
                $(if let Some(value) = self.$key {
                    all.$($place).+ = value.into();
                })*
                all
            }

            /// Writes the name and the parameters that differ from the defaults.
            fn write(f: &mut fmt::Formatter<'_>, name: &str, own: &$of, usual: &$of) -> fmt::Result {
                f.write_str(name)?;
                $(if own.$($place).+ != usual.$($place).+ {
                    own.$($place).+.write(f, stringify!($key))?;
                })*
                Ok(())
            }
        }
    };
}

options! {
    /// The options of `red`.
    RedOptions of Red {
        ecn: bool = ecn,
        min: Bytes = min,
        max: Bytes = max,
        probability: Probability = probability,
        avpkt: Bytes = avpkt,
        burst: u32 = burst,
        gentle: bool = gentle,
        harddrop: bool = harddrop,
    }
}

options! {
    /// The options of `codel`.
    CodelOptions of Codel {
        ecn: bool = ecn,
        target: Nanos = target,
        interval: Nanos = interval,
        ce_threshold: Nanos = ce_threshold,
    }
}

options! {
    /// The options of `fq_codel`.
    FqCodelOptions of FqCodel {
        ecn: bool = codel.ecn,
        target: Nanos = codel.target,
        interval: Nanos = codel.interval,
        ce_threshold: Nanos = codel.ce_threshold,
        flows: u16 = flows,
        quantum: u32 = quantum,
    }
}

options! {
    /// The options of `pie`.
    PieOptions of Pie {
        ecn: bool = ecn,
        target: Nanos = target,
        tupdate: Nanos = tupdate,
        max_burst: Nanos = max_burst,
    }
}

options! {
    /// The options of `dualpi2`.
    DualPi2Options of DualPi2 {
        target: Nanos = target,
        t_update: Nanos = t_update,
        l_threshold: Nanos = l_threshold,
        ramp: Nanos = ramp,
        coupling: u8 = coupling,
    }
}

/// The options of `drop-head`, which has none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

/// A value that can be written as an option in a text.
trait WriteOption {
    fn write(&self, f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result;
}

impl WriteOption for bool {
    fn write(&self, f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
        write!(f, ",{}{key}", if *self { "" } else { "no" })
    }
}

impl<T: WriteOption> WriteOption for Option<T> {
    fn write(&self, f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
        self.as_ref().map_or(Ok(()), |value| value.write(f, key))
    }
}

macro_rules! write_option {
    ($($type:ty),+) => {$(
        impl WriteOption for $type {
            fn write(&self, f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
                write!(f, ",{key}={self}")
            }
        }
    )+};
}

write_option!(Bytes, Nanos, Probability, u8, u16, u32);

impl RedOptions {
    /// Returns the model's parameters. As in tc, `min` or `max` alone determines the other one.
    fn to_model(mut self) -> Red {
        match (self.min, self.max) {
            (Some(min), None) => self.max = Some(Bytes(min.0.saturating_mul(3))),
            (None, Some(max)) => self.min = Some(Bytes(max.0 / 3)),
            _ => {}
        }
        self.over_usual()
    }
}

impl Tagged for AqmSpec {
    const KINDS: &'static [&'static str] =
        &["drop-head", "red", "codel", "fq_codel", "pie", "dualpi2"];

    fn read<'de, D: Deserializer<'de>>(kind: &'static str, rest: D) -> Result<Self, D::Error> {
        let discipline = match kind {
            "red" => Discipline::Red(RedOptions::deserialize(rest)?.to_model()),
            "codel" => Discipline::Codel(CodelOptions::deserialize(rest)?.over_usual()),
            "fq_codel" => Discipline::FqCodel(FqCodelOptions::deserialize(rest)?.over_usual()),
            "pie" => Discipline::Pie(PieOptions::deserialize(rest)?.over_usual()),
            "dualpi2" => Discipline::DualPi2(DualPi2Options::deserialize(rest)?.over_usual()),
            _ => {
                let NoOptions {} = NoOptions::deserialize(rest)?;
                Discipline::DropHead
            }
        };
        let checked = refuse_out_of_range(Effect::Rate(Rate {
            rate: None,
            fluctuation: None,
            burst: None,
            framing: Framing::L2,
            queue: Queue {
                limit: QueueLimit::Packets(1),
                discipline,
            },
        }));
        checked.map_err(de::Error::custom)?;
        Ok(Self(discipline))
    }
}

impl<'de> Deserialize<'de> for AqmSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        read_tagged(source)
    }
}

impl JsonSchema for AqmSpec {
    fn schema_name() -> Cow<'static, str> {
        "AqmSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let text = format!("^ *({})( *,.*)?$", Self::KINDS.join("|"));
        json_schema!({ "anyOf": [
            { "type": "string", "pattern": text, "description": "A name, perhaps with options: \"fq_codel,target=5ms\"." },
            { "oneOf": [
                kind_schema::<NoOptions>(generator, "drop-head", false),
                kind_schema::<RedOptions>(generator, "red", false),
                kind_schema::<CodelOptions>(generator, "codel", false),
                kind_schema::<FqCodelOptions>(generator, "fq_codel", false),
                kind_schema::<PieOptions>(generator, "pie", false),
                kind_schema::<DualPi2Options>(generator, "dualpi2", false),
            ] }
        ] })
    }
}

impl AqmSpec {
    /// Returns the queue limit that tc gives it; `None` for a discipline that keeps the limit of a plain queue.
    pub(crate) fn usual_limit(self) -> Option<QueueLimit> {
        let packets = match self.0 {
            Discipline::DropTail | Discipline::DropHead | Discipline::Weighted(_) => return None,
            Discipline::Red(red) => {
                return Some(QueueLimit::Bytes(Bytes(red.max.0.saturating_mul(4))));
            }
            Discipline::FqCodel(_) => 10_240,
            Discipline::DualPi2(_) => 10_000,
            Discipline::Codel(_) | Discipline::Pie(_) => 1_000,
        };
        Some(QueueLimit::Packets(packets))
    }
}

impl fmt::Display for AqmSpec {
    /// Writes its name, and the parameters that differ from the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            // The weights of rules are no condition, and are not written.
            Discipline::DropTail | Discipline::Weighted(_) => Ok(()),
            Discipline::DropHead => f.write_str("drop-head"),
            Discipline::Red(red) => {
                let mut usual = Red::default();
                // A single one of the two would determine the other one.
                if (red.min, red.max) != (usual.min, usual.max) {
                    (usual.min, usual.max) = (Bytes(u64::MAX), Bytes(u64::MAX));
                }
                RedOptions::write(f, "red", red, &usual)
            }
            Discipline::Pie(pie) => PieOptions::write(f, "pie", pie, &Pie::default()),
            Discipline::Codel(law) => CodelOptions::write(f, "codel", law, &Codel::default()),
            Discipline::FqCodel(law) => {
                FqCodelOptions::write(f, "fq_codel", law, &FqCodel::default())
            }
            Discipline::DualPi2(law) => {
                DualPi2Options::write(f, "dualpi2", law, &DualPi2::default())
            }
        }
    }
}

text_form!(AqmSpec);
