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
use crate::read::{KIND, Tagged, kind_schema, read_tagged};

/// Active queue management, written `fq_codel` or `codel,ecn,target=5ms`, or as a table with the name as `kind`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AqmSpec(pub Discipline);

describe! {
    AqmSpec: "aqm" = "NAME[,OPTION...]", as in "fq_codel,noecn,target=10ms,flows=16", shapes Rate needs Needs::Rate("it manages the queue of a rate");
    "Management of the queue: drop-head, red, codel, fq_codel, pie, dualpi2, with options: fq_codel,target=5ms,noecn"
}

/// The options of `drop-head`, which has none.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

/// The options of `red`.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RedOptions {
    ecn: bool,
    /// A third of `max` when absent.
    min: Option<Bytes>,
    /// Three times `min` when absent.
    max: Option<Bytes>,
    probability: Probability,
    avpkt: Bytes,
    burst: Option<u32>,
    gentle: bool,
}

/// The options of `codel` and `fq_codel`.
#[derive(Deserialize, JsonSchema)]
#[serde(
    remote = "Codel",
    default,
    deny_unknown_fields,
    bound(deserialize = "")
)]
#[schemars(!default)]
struct CodelOptions {
    ecn: bool,
    target: Nanos,
    interval: Nanos,
}

/// The options of `fq_codel`.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct FqCodelOptions {
    ecn: bool,
    target: Nanos,
    interval: Nanos,
    flows: u16,
    quantum: u32,
}

/// The options of `pie`.
#[derive(Deserialize, JsonSchema)]
#[serde(remote = "Pie", default, deny_unknown_fields, bound(deserialize = ""))]
#[schemars(!default)]
struct PieOptions {
    ecn: bool,
    target: Nanos,
    tupdate: Nanos,
    max_burst: Nanos,
}

/// The options of `dualpi2`.
#[derive(Deserialize, JsonSchema)]
#[serde(
    remote = "DualPi2",
    default,
    deny_unknown_fields,
    bound(deserialize = "")
)]
#[schemars(!default)]
struct DualPi2Options {
    target: Nanos,
    t_update: Nanos,
    l_threshold: Nanos,
}

impl Default for RedOptions {
    fn default() -> Self {
        let Red {
            probability,
            avpkt,
            burst,
            gentle,
            ecn,
            ..
        } = Red::default();
        Self {
            ecn,
            min: None,
            max: None,
            probability,
            avpkt,
            burst,
            gentle,
        }
    }
}

impl Default for FqCodelOptions {
    fn default() -> Self {
        let FqCodel {
            codel,
            flows,
            quantum,
        } = FqCodel::default();
        Self {
            ecn: codel.ecn,
            target: codel.target,
            interval: codel.interval,
            flows,
            quantum,
        }
    }
}

impl From<RedOptions> for Red {
    /// As tc has it, `min` or `max` gives the other one.
    fn from(options: RedOptions) -> Self {
        let usual = Self::default();
        let (min, max) = match (options.min, options.max) {
            (Some(min), None) => (min, Bytes(min.0.saturating_mul(3))),
            (None, Some(max)) => (Bytes(max.0 / 3), max),
            (min, max) => (min.unwrap_or(usual.min), max.unwrap_or(usual.max)),
        };
        Self {
            min,
            max,
            probability: options.probability,
            avpkt: options.avpkt,
            burst: options.burst,
            gentle: options.gentle,
            ecn: options.ecn,
        }
    }
}

impl From<FqCodelOptions> for FqCodel {
    fn from(options: FqCodelOptions) -> Self {
        Self {
            codel: Codel {
                target: options.target,
                interval: options.interval,
                ecn: options.ecn,
            },
            flows: options.flows,
            quantum: options.quantum,
        }
    }
}

impl Tagged for AqmSpec {
    const KINDS: &'static [&'static str] =
        &["drop-head", "red", "codel", "fq_codel", "pie", "dualpi2"];

    fn read<'de, D: Deserializer<'de>>(kind: &'static str, rest: D) -> Result<Self, D::Error> {
        let discipline = match kind {
            "red" => Discipline::Red(RedOptions::deserialize(rest)?.into()),
            "codel" => Discipline::Codel(CodelOptions::deserialize(rest)?),
            "fq_codel" => Discipline::FqCodel(FqCodelOptions::deserialize(rest)?.into()),
            "pie" => Discipline::Pie(PieOptions::deserialize(rest)?),
            "dualpi2" => Discipline::DualPi2(DualPi2Options::deserialize(rest)?),
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
        let mut tables = [
            kind_schema::<NoOptions>(generator, "drop-head", false),
            kind_schema::<RedOptions>(generator, "red", false),
            kind_schema::<CodelOptions>(generator, "codel", false),
            kind_schema::<FqCodelOptions>(generator, "fq_codel", false),
            kind_schema::<PieOptions>(generator, "pie", false),
            kind_schema::<DualPi2Options>(generator, "dualpi2", false),
        ];
        for table in &mut tables {
            table.insert("required".to_owned(), [KIND].as_slice().into());
        }
        json_schema!({ "anyOf": [
            { "type": "string", "pattern": text, "description": "A name, perhaps with options: \"fq_codel,target=5ms\"." },
            { "oneOf": tables }
        ] })
    }
}

impl AqmSpec {
    /// The waiting room that tc gives it; `None` for that of a queue without any management.
    pub(crate) fn usual_limit(self) -> Option<QueueLimit> {
        let packets = match self.0 {
            Discipline::DropTail | Discipline::DropHead => return None,
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
    /// What differs from its usual parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_codel = |f: &mut fmt::Formatter<'_>, codel: Codel, usual: Codel| {
            if codel.ecn != usual.ecn {
                f.write_str(if codel.ecn { ",ecn" } else { ",noecn" })?;
            }
            option(f, "target", codel.target, usual.target)?;
            option(f, "interval", codel.interval, usual.interval)
        };
        match self.0 {
            Discipline::DropTail => Ok(()),
            Discipline::DropHead => f.write_str("drop-head"),
            Discipline::Red(red) => {
                let usual = Red::default();
                f.write_str("red")?;
                f.write_str(if red.ecn { ",ecn" } else { "" })?;
                if (red.min, red.max) != (usual.min, usual.max) {
                    write!(f, ",min={},max={}", red.min, red.max)?;
                }
                option(f, "probability", red.probability, usual.probability)?;
                option(f, "avpkt", red.avpkt, usual.avpkt)?;
                if let Some(burst) = red.burst {
                    write!(f, ",burst={burst}")?;
                }
                f.write_str(if red.gentle { "" } else { ",nogentle" })
            }
            Discipline::Pie(pie) => {
                let usual = Pie::default();
                f.write_str("pie")?;
                f.write_str(if pie.ecn { ",ecn" } else { "" })?;
                option(f, "target", pie.target, usual.target)?;
                option(f, "tupdate", pie.tupdate, usual.tupdate)?;
                option(f, "max_burst", pie.max_burst, usual.max_burst)
            }
            Discipline::Codel(codel) => {
                f.write_str("codel")?;
                of_codel(f, codel, Codel::default())
            }
            Discipline::FqCodel(fq) => {
                let usual = FqCodel::default();
                f.write_str("fq_codel")?;
                of_codel(f, fq.codel, usual.codel)?;
                option(f, "flows", fq.flows, usual.flows)?;
                option(f, "quantum", fq.quantum, usual.quantum)
            }
            Discipline::DualPi2(dual) => {
                let usual = DualPi2::default();
                f.write_str("dualpi2")?;
                option(f, "target", dual.target, usual.target)?;
                option(f, "t_update", dual.t_update, usual.t_update)?;
                option(f, "l_threshold", dual.l_threshold, usual.l_threshold)
            }
        }
    }
}

fn option<T: PartialEq + fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    value: T,
    usual: T,
) -> fmt::Result {
    if value == usual {
        return Ok(());
    }
    write!(f, ",{key}={value}")
}

text_form!(AqmSpec);
