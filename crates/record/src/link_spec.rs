//! A link's conditions as a user writes them, in a file or on the command line, and their way into the model.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::unit;
use anyhow::{Context, Result, bail};
use model::{
    BitsPerSec, Conditions, ConfigError, Factor, Fluctuation, Framing, HopConfig, Link, LinkConfig,
    Nanos, Probability, QueueLimit, Rate, Toffee,
};
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The waiting room of a rate for which none was asked: 100 ms at that rate.
const DEFAULT_QUEUE: QueueLimit = QueueLimit::Time(Nanos(100_000_000));
/// The waiting room of a TOFFEE box, both directions together.
const DEFAULT_TOFFEE_QUEUE: QueueLimit = QueueLimit::Packets(1000);
/// The seed of a link for which none was given, so that a command repeated loses the same packets.
const DEFAULT_SEED: u64 = 1;

/// Conditions of one link; what `up` or `down` names overrides the common value in that direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Propagation, one way, in each direction.
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub delay: Option<Nanos>,
    /// Bernoulli loss in each direction.
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub loss: Option<Probability>,
    /// Bottleneck of each direction, counting L2 bytes without FCS.
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub rate: Option<BitsPerSec>,
    /// How the rate varies about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fluctuation: Option<FluctuationSpec>,
    /// The bottleneck's waiting room; 100 ms at the rate when absent.
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub queue: Option<QueueLimit>,
    /// Propagation that grows with the packet: microseconds = L2 bytes / factor.
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub size_delay: Option<Factor>,
    /// TOFFEE-Mocha's box: one server that both directions share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toffee: Option<ToffeeSpec>,
    /// Every random draw follows from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Overrides from client to server.
    #[serde(default, skip_serializing_if = "Direction::is_empty")]
    pub up: Direction,
    /// Overrides from server to client.
    #[serde(default, skip_serializing_if = "Direction::is_empty")]
    pub down: Direction,
}

/// A rate that is drawn anew again and again, each direction's by itself; every value within the spread is alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FluctuationSpec {
    /// How far it may lie from the rate, in percent of it; below 100 %.
    #[serde(with = "unit::required")]
    #[schemars(with = "unit::Written")]
    spread: Probability,
    /// How long each lasts, 1 ms to 1 h.
    #[serde(with = "unit::required")]
    #[schemars(with = "unit::Written")]
    hold: Nanos,
}

impl FluctuationSpec {
    fn to_model(self) -> Fluctuation {
        Fluctuation {
            spread: self.spread,
            hold: self.hold,
        }
    }
}

/// What may differ between the two directions; the fields mean what they mean in [`LinkSpec`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub delay: Option<Nanos>,
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub loss: Option<Probability>,
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub rate: Option<BitsPerSec>,
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub queue: Option<QueueLimit>,
    #[serde(default, with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub size_delay: Option<Factor>,
}

/// TOFFEE's conditions, written as a table or as `delay=1ms,dynamic=1,drop=2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = text_too)]
pub struct ToffeeSpec {
    /// Constant service time a packet.
    #[serde(with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub delay: Option<Nanos>,
    /// Service time of microseconds = L2 bytes / factor.
    #[serde(with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub dynamic: Option<Factor>,
    /// Drop factor k: loss of 5.5 % / k^2.5 in each direction.
    #[serde(with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub drop: Option<Factor>,
    /// The waiting room; 1000 packets when absent.
    #[serde(with = "unit", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<unit::Written>")]
    pub queue: Option<QueueLimit>,
}

impl LinkSpec {
    /// The seed asked for, or the default.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(DEFAULT_SEED)
    }

    /// The model's hop of this name under these conditions.
    ///
    /// # Errors
    /// A queue where there is no rate; a drop factor below 1.
    pub fn to_hop(&self, name: &str) -> Result<HopConfig> {
        let (up, down) = (self.up_conditions()?, self.down_conditions()?);
        let rateless = up.rate.is_none() && down.rate.is_none();
        if self.queue.is_some() && rateless {
            bail!("queue: a queue needs a rate that fills it: state rate too, or leave queue out");
        }
        if self.fluctuation.is_some() && rateless {
            bail!("fluctuation: it is of a rate: state rate too, or leave fluctuation out");
        }
        let toffee = self.toffee.as_ref().map(|toffee| toffee.to_model(name));
        Ok(HopConfig {
            name: name.to_owned(),
            up,
            down,
            toffee: toffee.transpose()?,
        })
    }

    /// A link of one hop of this name under these conditions.
    ///
    /// # Errors
    /// As [`LinkSpec::to_hop`].
    pub fn to_link(&self, hop: &str) -> Result<LinkConfig> {
        Ok(LinkConfig {
            seed: self.seed(),
            link: 0,
            hops: vec![self.to_hop(hop)?],
        })
    }

    /// Refuses what the model would refuse, before anything is built.
    ///
    /// # Errors
    /// Conditions that contradict each other or lie out of range.
    pub fn check(&self) -> Result<()> {
        Link::new(&self.to_link("link")?)?;
        Ok(())
    }

    fn up_conditions(&self) -> Result<Conditions> {
        self.conditions(&self.up).context("up")
    }

    fn down_conditions(&self) -> Result<Conditions> {
        self.conditions(&self.down).context("down")
    }

    fn conditions(&self, own: &Direction) -> Result<Conditions> {
        let rate = own.rate.or(self.rate);
        if own.queue.is_some() && rate.is_none() {
            bail!("queue: a queue needs a rate that fills it: state rate too, or leave queue out");
        }
        let queue = own.queue.or(self.queue).unwrap_or(DEFAULT_QUEUE);
        Ok(Conditions {
            rate: rate.map(|rate| Rate {
                fluctuation: self.fluctuation.map(FluctuationSpec::to_model),
                rate,
                framing: Framing::L2,
                queue,
            }),
            loss: own.loss.or(self.loss).unwrap_or_default(),
            delay: own.delay.or(self.delay).unwrap_or_default(),
            size_delay: own.size_delay.or(self.size_delay),
        })
    }
}

impl Direction {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ToffeeSpec {
    const KEYS: [&str; 4] = ["delay", "dynamic", "drop", "queue"];

    fn to_model(&self, hop: &str) -> Result<Toffee, ConfigError> {
        let loss = self.drop.map(|k| {
            loss_of(k).ok_or_else(|| ConfigError::OutOfRange {
                hop: hop.to_owned(),
                field: "toffee.drop".to_owned(),
                value: k.to_string(),
                right: "a drop factor is at least 1",
            })
        });
        Ok(Toffee {
            delay: self.delay.unwrap_or_default(),
            dynamic: self.dynamic,
            loss: loss.transpose()?.unwrap_or_default(),
            queue: self.queue.unwrap_or(DEFAULT_TOFFEE_QUEUE),
        })
    }

    /// Sets one key; the error names the key and what is right.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        fn put<T: FromStr<Err: Display>>(slot: &mut Option<T>, text: &str) -> Result<(), String> {
            if slot.is_some() {
                return Err("given twice".to_owned());
            }
            *slot = Some(text.parse().map_err(|e: T::Err| e.to_string())?);
            Ok(())
        }
        match key {
            "delay" => put(&mut self.delay, value),
            "dynamic" => put(&mut self.dynamic, value),
            "drop" => put(&mut self.drop, value),
            "queue" => put(&mut self.queue, value),
            _ => {
                return Err(format!(
                    "unknown key `{key}`, expected one of delay, dynamic, drop, queue"
                ));
            }
        }
        .map_err(|cause| format!("{key}: {cause}"))
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

impl FromStr for ToffeeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}`: write key=value, such as delay=1ms,drop=2"))?;
            spec.set(key.trim(), value.trim())?;
        }
        Ok(spec)
    }
}

impl<'de> Deserialize<'de> for ToffeeSpec {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = ToffeeSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or text such as \"delay=1ms,drop=2\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ToffeeSpec, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ToffeeSpec, M::Error> {
                let mut spec = ToffeeSpec::default();
                while let Some(key) = map.next_key::<String>()? {
                    if !ToffeeSpec::KEYS.contains(&key.as_str()) {
                        return Err(de::Error::unknown_field(&key, &ToffeeSpec::KEYS));
                    }
                    let value: unit::Text = map.next_value()?;
                    spec.set(&key, &value.0).map_err(de::Error::custom)?;
                }
                Ok(spec)
            }
        }
        source.deserialize_any(TextOrTable)
    }
}

/// A table that may be written as text too.
fn text_too(schema: &mut Schema) {
    let table = std::mem::take(schema);
    *schema = json_schema!({ "anyOf": [{ "type": "string" }, table] });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(text: &str) -> HopConfig {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        spec.check().unwrap();
        spec.to_hop("box").unwrap()
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
        assert_eq!(hop.up, hop.down);
        assert_eq!(hop.up.delay, "20ms".parse().unwrap());
        assert_eq!(hop.up.loss, "1%".parse().unwrap());
    }

    #[test]
    fn a_direction_overrides_the_common_value() {
        let hop = hop("delay = '20ms'\nrate = '1mbit'\n[up]\nrate = '2mbit'\nqueue = '5pkt'");
        assert_eq!(hop.up.delay, hop.down.delay);
        assert_eq!(hop.up.rate.unwrap().rate, "2mbit".parse().unwrap());
        assert_eq!(hop.up.rate.unwrap().queue, QueueLimit::Packets(5));
        assert_eq!(hop.down.rate.unwrap().queue, DEFAULT_QUEUE);
    }

    #[test]
    fn toffee_is_a_table_or_a_text() {
        let text = hop("toffee = 'delay=1ms,dynamic=1,drop=2'");
        let table = hop("[toffee]\ndelay = '1ms'\ndynamic = 1\ndrop = 2");
        assert_eq!(text, table);
        assert_eq!(text.toffee.unwrap().queue, DEFAULT_TOFFEE_QUEUE);
    }

    #[test]
    fn the_drop_factor_stands_for_the_fitted_loss() {
        let loss = |drop: &str| hop(&format!("toffee = '{drop}'")).toffee.unwrap().loss;
        assert_eq!(loss("drop=1").percent(), 5.5);
        assert_eq!(loss("drop=4").percent(), 5.5 / 32.0);
        assert!((loss("drop=2").percent() - 0.9723).abs() < 0.0001);
        assert_eq!(loss("delay=1ms"), Probability::ZERO);
        assert_eq!(
            refusal("toffee = 'drop=0.5'"),
            "hop link: toffee.drop = 0.5 is out of range: a drop factor is at least 1"
        );
    }

    #[test]
    fn a_rate_may_fluctuate() {
        let hop = hop("rate = '22mbit'\nfluctuation = { spread = '20%', hold = '5s' }");
        let fluctuation = hop.up.rate.unwrap().fluctuation.unwrap();
        assert_eq!(fluctuation.hold, "5s".parse().unwrap());
        assert_eq!(hop.up, hop.down);
        assert!(refusal("fluctuation = { spread = '20%', hold = '5s' }").contains("state rate"));
        let all = "rate = '1mbit'\nfluctuation = { spread = '100%', hold = '5s' }";
        assert!(refusal(all).contains("up.fluctuation.spread = 100%"));
        let brief = "rate = '1mbit'\nfluctuation = { spread = '1%', hold = '5us' }";
        assert!(refusal(brief).contains("1ms to 3600s"));
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
