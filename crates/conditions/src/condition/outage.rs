//! Outages that come again and again.

use std::fmt;
use std::str::FromStr;

use model::Nanos;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{describe, text_form};
use crate::error::Error;
use crate::read::OrText;

/// Outages that come again and again, written `200ms/10s`, `200ms/10s,hold,jitter=1s`, `200ms/10s,random` or as a table.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    remote = "Self",
    deny_unknown_fields,
    expecting = "a text such as 200ms/10s,hold, or a table"
)]
#[schemars(transform = OrText::of("time"))]
pub struct OutageSpec {
    /// The length of an outage, and the time from the beginning of one to that of the next: 200ms/10s. The first one begins
    /// after that time.
    pub time: Recurrence,
    /// Whether packets wait until an outage is over, in place of being lost.
    #[serde(default)]
    pub hold: bool,
    /// The most by which an outage begins later; each value up to it is equally likely.
    #[serde(default)]
    pub jitter: Nanos,
    /// Whether they begin at random times, independently of each other (a Poisson process), with that time from one to the
    /// next on average. One that begins during another one prolongs it.
    #[serde(default)]
    pub random: bool,
}

/// The length of something that comes again and again, and the time from the beginning of one to that of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// The length.
    pub lasts: Nanos,
    /// The time from beginning to beginning.
    pub every: Nanos,
}

describe! {
    OutageSpec: "outage" = "TIME/TIME[,OPTION...]", as in "200ms/10s,hold", shapes Outage;
    "Periodic outages: 200ms/10s is one of 200 ms every 10 s"
    + "All packets are lost during an outage. With `hold`, packets wait until the outage is over. jitter=1s lets each outage begin up to 1 s later: 200ms/10s,hold,jitter=1s. With `random`, outages begin at random times, every 10 s on average"
}

impl OutageSpec {
    fn check(&self) -> Result<(), String> {
        let Recurrence { lasts, every } = self.time;
        if self.random && self.jitter > Nanos::ZERO {
            return Err("jitter: random outages have none: leave jitter or random out".to_owned());
        }
        if self.random && every < SHORTEST_RANDOM {
            return Err(format!(
                "random: {every} is out of range: random outages come every {SHORTEST_RANDOM} on average, or less often"
            ));
        }
        if lasts + self.jitter >= every {
            return Err(format!(
                "jitter: an outage of {lasts} that begins up to {} later does not end within {every}: write a shorter one",
                self.jitter
            ));
        }
        Ok(())
    }
}

impl FromStr for Recurrence {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let right = "write the length and the period, as in 200ms/10s";
        let refused = |why: String| Error::other(format_args!("{why}: {right}"));
        let (lasts, every) = text
            .split_once('/')
            .ok_or_else(|| refused(format!("`{text}` has no period")))?;
        let time = |text: &str| text.trim().parse::<Nanos>().map_err(Error::other);
        let (lasts, every) = (time(lasts)?, time(every)?);
        if lasts < SHORTEST || lasts >= every {
            return Err(refused(format!(
                "`{text}` is out of range: the length is at least {SHORTEST} and below the period"
            )));
        }
        Ok(Self { lasts, every })
    }
}

/// The shortest time of a recurrence. Each costs time when it comes.
pub(crate) const SHORTEST: Nanos = Nanos::from_micros(100);

/// The shortest average time between random outages, whose times cost more.
const SHORTEST_RANDOM: Nanos = Nanos::from_millis(10);

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lasts, self.every)
    }
}

impl Serialize for Recurrence {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Recurrence {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Recurrence {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Recurrence".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9][^/,]*/ *[0-9][^/,]*$",
            "description": "A length and a period, as in 200ms/10s."
        })
    }
}

impl fmt::Display for OutageSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.time.fmt(f)?;
        if self.hold {
            f.write_str(",hold")?;
        }
        if self.random {
            f.write_str(",random")?;
        }
        match self.jitter {
            Nanos::ZERO => Ok(()),
            jitter => write!(f, ",jitter={jitter}"),
        }
    }
}

text_form!(OutageSpec, checked);
