//! The JSON Schema of each unit: its text form as a regular expression.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::decimal::NUMBER;
use crate::framing::Framing;
use crate::spec::BitErrorRate;
use crate::spec::bit_errors::PATTERN;
use crate::time::{Nanos, TIME};
use crate::units::{BitsPerSec, Bytes, Factor, Probability, QUEUE, QueueLimit, RATE, SIZE};

macro_rules! schemas {
    ($($unit:ty: $name:literal, $schema:expr;)+) => {$(
        impl JsonSchema for $unit {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )+};
}

schemas! {
    BitErrorRate: "BitErrorRate", json_schema!({
        "type": ["number", "string"],
        "minimum": 0,
        "exclusiveMaximum": 1,
        "pattern": format!("^{PATTERN}$"),
        "description": "The share of bits that are wrong: 1e-6."
    });
    BitsPerSec: "Rate", text("A rate with its unit: \"10mbit\".", RATE.pattern());
    Bytes: "Size", text("A size with its unit: \"64KiB\".", SIZE.pattern());
    Factor: "Factor", json_schema!({
        "type": ["number", "string"],
        "exclusiveMinimum": 0,
        "pattern": format!("^{NUMBER}$"),
        "description": "A number above 0."
    });
    Framing: "RateAt", text(
        "The bytes of a frame that a rate counts: \"l2\", \"l1\", \"docsis\", \"atm,overhead=18\".",
        "[a-z0-9, =-]+".into(),
    );
    Nanos: "Time", text("A time with its unit: \"20ms\".", TIME.pattern());
    Probability: "Probability", text("A percentage: \"1%\".", format!("{NUMBER}%"));
    QueueLimit: "QueueLimit", text(
        "Packets, bytes or a time: \"100pkt\", \"64KiB\", \"50ms\"; or the larger of a time and packets: \"100ms,20pkt\".",
        format!(
            "({packets}|{}|{time}|{time} *, *{packets})",
            SIZE.pattern(),
            packets = QUEUE.pattern(),
            time = TIME.pattern()
        ),
    );
}

fn text(description: &str, pattern: String) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": format!("^{pattern}$"),
        "description": description
    })
}
