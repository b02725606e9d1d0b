//! A link's conditions as a user writes them, in a file or on the command line, and their way into the model.

mod hop;
mod rules;

use std::str::FromStr;

use anyhow::{Result, bail};
use model::{BitsPerSec, Factor, Fluctuation, Link, Nanos, Probability, QueueLimit};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

pub use self::hop::Hop;
pub(crate) use self::hop::{emulated_link, route};
pub use self::rules::{EmulatedLink, Protocol, Rule, Rules};
use crate::key_values::{self, KeyValues};

/// The waiting room of a rate for which none was asked: 100 ms at that rate.
const DEFAULT_QUEUE: QueueLimit = QueueLimit::Time(Nanos(100_000_000));
/// The waiting room of a TOFFEE box, both directions together.
const DEFAULT_TOFFEE_QUEUE: QueueLimit = QueueLimit::Packets(1000);
/// The seed of a link for which none was given, so that a command repeated loses the same packets.
const DEFAULT_SEED: u64 = 1;

/// A condition that can be said of a direction: a key in files, a flag on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Its key; the flag has hyphens where this has underscores.
    pub key: &'static str,
    /// What stands for its value in a flag's help.
    pub value_name: &'static str,
    /// What it is, with examples of its value.
    pub help: &'static str,
    /// The condition by itself, with the value that a text says.
    pub read: fn(&str) -> Result<DirectionSpec, String>,
}

/// Every condition is one entry here. All that differs between them follows: fields, keys, flags and the schema.
macro_rules! conditions {
    ($(
        #[doc = $help:literal]
        $(#[$attribute:meta])*
        $key:ident: $kind:ty = $value_name:literal,
    )+) => {
        /// The conditions of one direction, or those of both.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct DirectionSpec {
            $(
                #[doc = $help]
                $(#[$attribute])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $key: Option<$kind>,
            )+
        }

        /// Every condition, in the order of help and files.
        pub const CONDITIONS: &[Condition] = &[$(Condition {
            key: stringify!($key),
            value_name: $value_name,
            help: $help.trim_ascii(),
            read: |text| {
                let value = text.parse::<$kind>().map_err(|cause| cause.to_string())?;
                Ok(DirectionSpec { $key: Some(value), ..DirectionSpec::default() })
            },
        },)+];

        impl DirectionSpec {
            /// What this says, and of all else what `other` says.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self { $($key: self.$key.or(other.$key),)+ }
            }

            /// What this says and `other` does not.
            fn without(self, other: Self) -> Self {
                Self { $($key: self.$key.filter(|_| other.$key.is_none()),)+ }
            }
        }

        /// [`LinkSpec`] as files have it: what holds in both directions is not in a table of its own. Serde's `flatten` would
        /// lose the line of a wrong value, and the known keys.
        #[derive(Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename = "LinkSpec")]
        /// Conditions of one link; what `up` or `down` names overrides the common value in that direction.
        struct FlatLinkSpec {
            $(
                #[doc = $help]
                $(#[$attribute])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                $key: Option<$kind>,
            )+
            /// TOFFEE-Mocha's box: one server that both directions share.
            #[serde(
                default,
                deserialize_with = "key_values::text_or_table",
                skip_serializing_if = "Option::is_none"
            )]
            toffee: Option<ToffeeSpec>,
            /// Every random draw follows from it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            seed: Option<u64>,
            /// Overrides from client to server.
            #[serde(default, skip_serializing_if = "DirectionSpec::is_empty")]
            up: DirectionSpec,
            /// Overrides from server to client.
            #[serde(default, skip_serializing_if = "DirectionSpec::is_empty")]
            down: DirectionSpec,
        }

        impl From<FlatLinkSpec> for LinkSpec {
            fn from(FlatLinkSpec { $($key,)+ toffee, seed, up, down }: FlatLinkSpec) -> Self {
                let both = DirectionSpec { $($key,)+ };
                Self { both, toffee, seed, up, down }
            }
        }

        impl From<LinkSpec> for FlatLinkSpec {
            fn from(LinkSpec { both, toffee, seed, up, down }: LinkSpec) -> Self {
                Self { $($key: both.$key,)+ toffee, seed, up, down }
            }
        }
    };
}

conditions! {
    /// Propagation delay, one way: 20ms, 500us
    delay: Nanos = "TIME",
    /// Random loss, one way: 1%
    loss: Probability = "PERCENT",
    /// Bottleneck of one direction, counting L2 bytes without FCS: 10mbit, 1gbit
    rate: BitsPerSec = "RATE",
    /// How far the rate varies and how long each value holds: spread=20%,hold=5s
    #[serde(deserialize_with = "key_values::text_or_table")]
    fluctuation: FluctuationSpec = "KEY=VALUE,...",
    /// Waiting room of the bottleneck: 100pkt, 64KiB, 50ms [default: 100ms at the rate]
    queue: QueueLimit = "LIMIT",
    /// Delay that grows with the packet: microseconds = L2 bytes / FACTOR
    size_delay: Factor = "FACTOR",
}

/// Conditions of one link; what `up` or `down` names overrides the common value in that direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "FlatLinkSpec", into = "FlatLinkSpec")]
pub struct LinkSpec {
    /// In each direction.
    pub both: DirectionSpec,
    /// TOFFEE-Mocha's box: one server that both directions share.
    pub toffee: Option<ToffeeSpec>,
    /// Every random draw follows from it; 1 when absent.
    pub seed: Option<u64>,
    /// Overrides from client to server.
    pub up: DirectionSpec,
    /// Overrides from server to client.
    pub down: DirectionSpec,
}

/// A rate that is drawn anew again and again, each direction's by itself; every value within the spread is alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = text_too)]
pub struct FluctuationSpec {
    /// How far it may lie from the rate, in percent of it; below 100 %.
    pub spread: Probability,
    /// How long each lasts, 1 ms to 1 h.
    pub hold: Nanos,
}

/// TOFFEE's conditions, written as a table or as `delay=1ms,dynamic=1,drop=2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = text_too)]
pub struct ToffeeSpec {
    /// Constant service time a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// Service time of microseconds = L2 bytes / factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<Factor>,
    /// Drop factor k: loss of 5.5 % / k^2.5 in each direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<Factor>,
    /// The waiting room; 1000 packets when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
}

impl LinkSpec {
    /// The seed asked for, or the default.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(DEFAULT_SEED)
    }

    /// What this says, and of all else what `other` says; what this says of both directions holds in each.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            up: self.up.or(other.up.without(self.both)),
            down: self.down.or(other.down.without(self.both)),
            both: self.both.or(other.both),
            toffee: self.toffee.or(other.toffee),
            seed: self.seed.or(other.seed),
        }
    }

    /// A link of one hop of this name under these conditions.
    ///
    /// # Errors
    /// As [`LinkSpec::hop`].
    pub fn to_link(&self, hop: &str) -> Result<EmulatedLink> {
        Ok(emulated_link(vec![self.hop(hop)?], self.seed(), 0))
    }

    /// Refuses what the model would refuse, before anything is built.
    ///
    /// # Errors
    /// Conditions that contradict each other or lie out of range.
    pub fn check(&self) -> Result<()> {
        Link::new(&self.to_link("link")?.config)?;
        Ok(())
    }
}

impl DirectionSpec {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses what needs a rate, where there is none.
    fn refuse_rateless(&self) -> Result<()> {
        if self.queue.is_some() {
            bail!("queue: a queue needs a rate that fills it: state rate too, or leave queue out");
        }
        if self.fluctuation.is_some() {
            bail!("fluctuation: it is of a rate: state rate too, or leave fluctuation out");
        }
        Ok(())
    }
}

impl FluctuationSpec {
    fn to_model(self) -> Fluctuation {
        Fluctuation {
            spread: self.spread,
            hold: self.hold,
        }
    }
}

impl KeyValues for FluctuationSpec {
    const EXAMPLE: &str = "spread=20%,hold=5s";
}

impl FromStr for FluctuationSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        key_values::parse(text)
    }
}

impl KeyValues for ToffeeSpec {
    const EXAMPLE: &str = "delay=1ms,drop=2";
}

impl FromStr for ToffeeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        key_values::parse(text)
    }
}

/// The loss in each direction that TOFFEE-Mocha's drop factor `k` stands for, 5.5 % / k^2.5; `None` for k < 1.
///
/// TOFFEE-Mocha publishes no law. This one is fitted to the downloads in The TOFFEE Project,
/// "TOFFEE-Mocha test cases, Raspberry Pi", 2016, cases 6 (k = 1: 0.70 MB/s) and 7 (k = 2: 5.5 MB/s), by a
/// sweep over the loss on the same reference path (CUBIC, 60 Mb/s, 1.86 ms RTT), which needed 5.5 % and
/// 0.95 %; the published pings (2 of 13 and 0 of 9 lost) agree.
fn loss_of(k: Factor) -> Option<Probability> {
    let k = k.get();
    let percent = 5.5 / (k * k * k.sqrt());
    (k >= 1.0).then(|| Probability::from_percent(percent).expect("0 to 5.5"))
}

/// A table that may be written as text too.
fn text_too(schema: &mut Schema) {
    let table = std::mem::take(schema);
    *schema = json_schema!({ "anyOf": [{ "type": "string" }, table] });
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Delay, Effect, Rate, StageSpec, Toffee};

    fn hop(text: &str) -> Hop {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        spec.check().unwrap();
        spec.hop("box").unwrap()
    }

    /// What the stage of this name does, in either direction.
    fn effect(hop: &Hop, name: &str) -> Option<Effect> {
        let mut all = hop.up.iter().chain(&hop.down);
        let found = all.find(|stage| stage.name == format!("box.{name}"));
        found.map(|stage| stage.effect.clone())
    }

    fn delay(text: &str) -> Option<Effect> {
        Some(Effect::Delay(Delay {
            time: text.parse().unwrap(),
            ..Delay::default()
        }))
    }

    fn loss(text: &str) -> Option<Effect> {
        Some(Effect::Loss(text.parse().unwrap()))
    }

    fn rate(hop: &Hop, way: &str) -> Rate {
        match effect(hop, &format!("{way}.rate")) {
            Some(Effect::Rate(rate)) => rate,
            other => panic!("{other:?}"),
        }
    }

    fn toffee(hop: &Hop) -> Toffee {
        match effect(hop, "toffee") {
            Some(Effect::Toffee(toffee)) => toffee,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(text: &str) -> String {
        match toml::from_str::<LinkSpec>(text) {
            Ok(spec) => format!("{:#}", spec.check().unwrap_err()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_common_value_holds_in_both_directions() {
        let hop = hop("delay = '20ms'\nloss = '1%'");
        for way in ["up", "down"] {
            assert_eq!(effect(&hop, &format!("{way}.delay")), delay("20ms"));
            assert_eq!(effect(&hop, &format!("{way}.loss")), loss("1%"));
        }
    }

    #[test]
    fn a_direction_overrides_the_common_value() {
        let hop = hop("delay = '20ms'\nrate = '1mbit'\n[up]\nrate = '2mbit'\nqueue = '5pkt'");
        assert_eq!(effect(&hop, "up.delay"), effect(&hop, "down.delay"));
        assert_eq!(rate(&hop, "up").rate, "2mbit".parse().ok());
        assert_eq!(rate(&hop, "up").queue, QueueLimit::Packets(5).into());
        assert_eq!(rate(&hop, "down").queue, DEFAULT_QUEUE.into());
    }

    #[test]
    fn toffee_is_a_table_or_a_text() {
        let text = hop("toffee = 'delay=1ms,dynamic=1,drop=2'");
        let table = hop("[toffee]\ndelay = '1ms'\ndynamic = 1\ndrop = 2");
        assert_eq!(text, table);
        assert_eq!(toffee(&text).queue, DEFAULT_TOFFEE_QUEUE.into());
        let names =
            |stages: &[StageSpec]| stages.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&text.up), ["box.toffee", "box.up.drop"]);
        assert_eq!(names(&text.down), ["box.toffee", "box.down.drop"]);
    }

    #[test]
    fn the_drop_factor_stands_for_the_fitted_loss() {
        let loss = |drop: &str, way: &str| {
            let hop = hop(&format!("toffee = '{drop}'"));
            match effect(&hop, &format!("{way}.drop")) {
                None => Probability::ZERO,
                Some(Effect::Loss(loss)) => loss,
                other => panic!("{other:?}"),
            }
        };
        for way in ["up", "down"] {
            assert_eq!(loss("drop=1", way).percent(), 5.5);
            assert_eq!(loss("drop=4", way).percent(), 5.5 / 32.0);
            assert!((loss("drop=2", way).percent() - 0.9723).abs() < 0.0001);
            assert_eq!(loss("delay=1ms", way), Probability::ZERO);
        }
        assert_eq!(
            refusal("toffee = 'drop=0.5'"),
            "link.toffee: drop = 0.5 is out of range: a drop factor is at least 1"
        );
    }

    #[test]
    fn a_rate_may_fluctuate() {
        let hop = hop("rate = '22mbit'\nfluctuation = { spread = '20%', hold = '5s' }");
        let fluctuation = rate(&hop, "up").fluctuation.unwrap();
        assert_eq!(fluctuation.hold, "5s".parse().unwrap());
        assert_eq!(rate(&hop, "up"), rate(&hop, "down"));
        assert!(refusal("fluctuation = { spread = '20%', hold = '5s' }").contains("state rate"));
        let all = "rate = '1mbit'\nfluctuation = { spread = '100%', hold = '5s' }";
        assert!(refusal(all).contains("link.up.rate: fluctuation.spread = 100%"));
        let brief = "rate = '1mbit'\nfluctuation = { spread = '1%', hold = '5us' }";
        assert!(refusal(brief).contains("1ms to 3600s"));
    }

    #[test]
    fn a_rate_may_fluctuate_in_one_direction_and_be_said_as_text() {
        let table = hop("rate = '1mbit'\n[up]\nfluctuation = { spread = '20%', hold = '5s' }");
        let text = hop("rate = '1mbit'\n[up]\nfluctuation = 'spread=20%,hold=5s'");
        assert_eq!(table, text);
        assert!(rate(&text, "up").fluctuation.is_some());
        assert!(rate(&text, "down").fluctuation.is_none());
        let alone = "[up]\nfluctuation = 'spread=20%,hold=5s'";
        assert!(refusal(alone).starts_with("up: fluctuation"));
        assert!(refusal("fluctuation = 'spread=20%'").contains("missing field `hold`"));
        assert!(refusal("fluctuation = 'spread=20,hold=5s'").contains("spread: "));
    }

    #[test]
    fn an_unknown_key_comes_with_the_known_ones() {
        let message = refusal("dealy = '1ms'");
        assert!(message.contains("unknown field `dealy`") && message.contains("`delay`"));
        assert!(refusal("[up]\ntoffee = 'drop=1'").contains("unknown field `toffee`"));
    }

    #[test]
    fn what_overrides_does_so_in_each_direction_that_it_is_of() {
        let spec = |text: &str| toml::from_str::<LinkSpec>(text).unwrap();
        let file = spec("delay = '1ms'\nloss = '1%'\nseed = 3\n[up]\ndelay = '2ms'\nloss = '2%'");
        let merged = spec("delay = '5ms'\n[down]\nloss = '3%'").or(file);
        let expected = "delay = '5ms'\nloss = '1%'\nseed = 3\nup.loss = '2%'\ndown.loss = '3%'";
        assert_eq!(merged, spec(expected));
    }

    #[test]
    fn a_queue_without_a_rate_is_refused() {
        assert!(refusal("queue = '5pkt'").contains("needs a rate"));
        assert!(refusal("[up]\nqueue = '5pkt'").contains("up: queue"));
    }

    #[test]
    fn a_bare_number_and_an_unknown_unit_are_refused() {
        assert!(refusal("delay = 20").contains("unit"));
        assert!(refusal("delay = '20parsec'").contains("20parsec"));
        assert!(refusal("toffee = 'dealy=1ms'").contains("unknown key `dealy`"));
        assert!(refusal("toffee = 'delay=1ms,delay=2ms'").contains("twice"));
    }

    #[test]
    fn what_is_written_reads_back_equal() {
        let text = "delay = '20ms'\nloss = '1%'\nrate = '10mbit'\nqueue = '64KiB'\nseed = 7\n\
                    toffee = 'drop=2'\n[down]\nsize_delay = 2";
        let spec: LinkSpec = toml::from_str(text).unwrap();
        let again: LinkSpec = toml::from_str(&toml::to_string(&spec).unwrap()).unwrap();
        assert_eq!(spec, again);
    }
}
