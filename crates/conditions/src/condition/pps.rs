//! A limit of packets per second.

use std::fmt;

use model::{BitsPerSec, Effect, Framing, QueueLimit, Rate};
use schemars::transform::Transform as _;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};

use super::{describe, refuse_out_of_range, text_form};
use crate::read::{Node, OrText};

/// The highest packet rate, 10 ns for each packet.
const MOST: u32 = 100_000_000;

/// A limit of packets per second, written `20000` or `20000,queue=100pkt`, or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a number, a text such as 20000,queue=100pkt, or a table"
)]
#[schemars(transform = or_number)]
pub struct PpsSpec {
    /// The packets that are served in a second, whatever their length.
    #[serde(deserialize_with = "packet_rate")]
    pub packets: u32,
    /// The queue before the server; when absent, 100 ms at this rate, and at least 20 packets.
    #[serde(default)]
    pub queue: Option<QueueLimit>,
}

describe! {
    PpsSpec: "pps" = "NUMBER[,queue=LIMIT]", as in "20000", shapes Pps;
    "Packets per second that a router can forward: 20000"
    + "Each packet takes the same time, whatever its length. The packets wait in a queue of 100 ms, at least 20 packets, before the rate: 20000,queue=100pkt sets another one"
}

impl PpsSpec {
    /// Returns the server; `usual` is the limit of a queue that is not stated.
    pub(crate) fn to_model(self, usual: QueueLimit) -> Rate {
        Rate {
            // A packet counts as one byte, so that this many bits are as many packets per second.
            rate: BitsPerSec::new(8 * u64::from(self.packets)).ok(),
            fluctuation: None,
            burst: None,
            framing: Framing::PACKETS,
            queue: self.queue.unwrap_or(usual).into(),
        }
    }

    fn check(self) -> Result<(), String> {
        if let Some(QueueLimit::TimeOrPackets(..)) = self.queue {
            let right = "write one limit, as in queue=100pkt, or leave it out";
            return Err(format!("queue: it has two limits: {right}"));
        }
        refuse_out_of_range(Effect::Rate(self.to_model(QueueLimit::Packets(1))))
    }
}

/// Reads a number, or a text with a number, as flags and forms have it.
fn packet_rate<'de, D: Deserializer<'de>>(source: D) -> Result<u32, D::Error> {
    let value = Value::deserialize(source)?;
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let number = text
        .parse::<u32>()
        .ok()
        .filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| {
        de::Error::custom(format_args!(
            "`{text}` is not a packet rate: write a whole number of packets per second from 1 to {MOST}, as in 20000"
        ))
    })
}

/// Makes the schema that of a number, of a text, or of a table.
fn or_number(schema: &mut Schema) {
    OrText::of("packets").transform(schema);
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        forms.insert(
            0,
            json!({ "type": "integer", "minimum": 1, "maximum": MOST }),
        );
    }
}

impl<'de> Deserialize<'de> for PpsSpec {
    /// Reads a number too, because a file states it without quotes.
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value = match Value::deserialize(source)? {
            Value::Number(number) => Value::String(number.to_string()),
            other => other,
        };
        let read = Self::deserialize(Node::from(value)).map_err(de::Error::custom)?;
        read.check().map_err(de::Error::custom)?;
        Ok(read)
    }
}

impl fmt::Display for PpsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.packets.fmt(f)?;
        self.queue
            .map_or(Ok(()), |queue| write!(f, ",queue={queue}"))
    }
}

text_form!(PpsSpec);
