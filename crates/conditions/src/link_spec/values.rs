//! Values of conditions that are more than one quantity, each with its one text form.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use model::{
    BitsPerSec, Bytes, Codel, ConfigError, Discipline, DualPi2, Effect, FqCodel, Framing,
    GilbertElliott, Link, LinkConfig, Pie, Police, Probability, Queue, QueueLimit, RandomLoss,
    Rate, Red, StageSpec,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::NetemSpec;

/// The rate of a bottleneck, written `10mbit`, `0bit` or `10mbit,burst=32KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRate {
    /// Of `None`, written `0bit`, nothing is served.
    pub rate: Option<BitsPerSec>,
    /// Of a token bucket, how much it holds.
    pub burst: Option<Bytes>,
}

/// A policer, written `10mbit,burst=64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoliceSpec(pub Police);

/// Random loss, written `1%`, `1%,burst=8` or `1%,ecn`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSpec {
    /// The share that is lost in the long run.
    pub share: Probability,
    /// How many are lost in a row, in the mean; each by itself when absent.
    pub burst: Option<f64>,
    /// Whether packets are marked in place of being lost, where their senders understand marks.
    pub ecn: bool,
}

/// Active queue management, written `fq_codel` or `codel,ecn,target=5ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AqmSpec(pub Discipline);

impl FromStr for LineRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, options) = text.split_once(',').unwrap_or((text, ""));
        let burst = burst_of(options)?;
        let (number, unit) = rate.split_at(rate.len() - rate.trim_start_matches(['0', '.']).len());
        let is_zero = number.contains('0') && unit.trim_start().starts_with(char::is_alphabetic);
        if is_zero && format!("1{unit}").parse::<BitsPerSec>().is_ok() {
            return match burst {
                None => Ok(Self { rate: None, burst }),
                Some(_) => Err("burst: 0bit fills no bucket: leave burst out".to_owned()),
            };
        }
        let rate = rate.trim().parse().map_err(|cause| format!("{cause}"))?;
        let rate = Some(rate);
        Ok(Self { rate, burst })
    }
}

impl fmt::Display for LineRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => rate.fmt(f),
            None => f.write_str("0bit"),
        }?;
        self.burst
            .map_or(Ok(()), |burst| write!(f, ",burst={burst}"))
    }
}

impl FromStr for PoliceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rate, options) = text.split_once(',').unwrap_or((text, ""));
        let rate = rate.trim().parse().map_err(|cause| format!("{cause}"))?;
        let burst = burst_of(options)?;
        let burst = burst.ok_or("burst: it is missing: write 10mbit,burst=64KiB")?;
        Ok(Self(Police { rate, burst }))
    }
}

impl fmt::Display for PoliceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},burst={}", self.0.rate, self.0.burst)
    }
}

/// The burst that stands behind a rate, if one does; it holds a full frame at least.
fn burst_of(options: &str) -> Result<Option<Bytes>, String> {
    let mut burst = None;
    for option in parts(options) {
        let value = option.strip_prefix("burst=");
        let value = value.ok_or_else(|| {
            format!("`{option}`: behind the rate comes burst=32KiB, what may pass at once")
        })?;
        let value: Bytes = value
            .trim()
            .parse()
            .map_err(|cause| format!("burst: {cause}"))?;
        if burst.replace(value).is_some() {
            return Err("burst: given twice".to_owned());
        }
        refuse_out_of_range(Effect::Police(Police {
            rate: BitsPerSec::new(1).map_err(|cause| cause.to_string())?,
            burst: value,
        }))?;
    }
    Ok(burst)
}

impl LossSpec {
    /// Loses each packet by itself, or in bursts; nothing where nothing is lost.
    pub(super) fn effects(self) -> [Effect; 2] {
        let bursts = self
            .burst
            .map(|burst| GilbertElliott::of_bursts(self.share, burst));
        match bursts {
            _ if self.share == Probability::ZERO => [Effect::Nothing, Effect::Nothing],
            Some(Ok(law)) => {
                let ecn = self.ecn;
                let law = GilbertElliott { ecn, ..law };
                [Effect::Nothing, Effect::GilbertElliott(law)]
            }
            // A text with a burst that cannot be was refused.
            Some(Err(_)) | None => {
                let Self { share, ecn, .. } = self;
                [Effect::Loss(RandomLoss { share, ecn }), Effect::Nothing]
            }
        }
    }
}

impl FromStr for LossSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (share, options) = text.split_once(',').unwrap_or((text, ""));
        let share: Probability = share.trim().parse().map_err(|cause| format!("{cause}"))?;
        let (mut burst, mut ecn) = (None, false);
        for option in parts(options) {
            if option == "ecn" {
                if ecn {
                    return Err("ecn: given twice".to_owned());
                }
                ecn = true;
                continue;
            }
            let value = option.strip_prefix("burst=");
            let value = value.and_then(|value| value.trim().parse::<f64>().ok());
            let value = value.ok_or_else(|| {
                format!(
                    "`{option}`: behind the share come burst=8, packets lost in a row, and ecn, which marks what can be marked"
                )
            })?;
            if !(value >= 1.0 && value.is_finite()) {
                return Err(format!(
                    "burst={value}: a burst is at least 1 packet long in the mean"
                ));
            }
            if burst.replace(value).is_some() {
                return Err("burst: given twice".to_owned());
            }
            if GilbertElliott::of_bursts(share, value).is_err() {
                let odds = share.fraction() / (1.0 - share.fraction());
                return Err(match odds.is_finite() {
                    true => format!(
                        "a loss of {share} comes in bursts of {odds:.3} packets or more in the mean, not of {value}"
                    ),
                    false => "a loss of 100% has no bursts: leave burst out".to_owned(),
                });
            }
        }
        Ok(Self { share, burst, ecn })
    }
}

impl fmt::Display for LossSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.share.fmt(f)?;
        if let Some(burst) = self.burst {
            write!(f, ",burst={burst}")?;
        }
        f.write_str(if self.ecn { ",ecn" } else { "" })
    }
}

impl AqmSpec {
    /// The waiting room that tc gives it; `None` for that of a queue without any management.
    pub(super) fn usual_limit(self) -> Option<QueueLimit> {
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

const AQMS: &str = "drop-head, red, codel, fq_codel, pie and dualpi2";

impl FromStr for AqmSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, options) = text.split_once(',').unwrap_or((text, ""));
        let mut discipline = match name.trim() {
            "drop-head" => Discipline::DropHead,
            "red" => Discipline::Red(Red::default()),
            "codel" => Discipline::Codel(Codel::default()),
            "fq_codel" => Discipline::FqCodel(FqCodel::default()),
            "pie" => Discipline::Pie(Pie::default()),
            "dualpi2" => Discipline::DualPi2(DualPi2::default()),
            other => return Err(format!("`{other}`: there are {AQMS}")),
        };
        let mut given: Vec<&str> = Vec::new();
        for option in parts(options) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let (key, value) = (key.trim(), value.trim());
            let what = key.trim_start_matches("no");
            if given.contains(&what) {
                return Err(format!("{what}: given twice"));
            }
            given.push(what);
            set_option(&mut discipline, key, value)?;
        }
        if let Discipline::Red(red) = &mut discipline {
            // As tc has it: one of the two stands for the other.
            match (given.contains(&"min"), given.contains(&"max")) {
                (true, false) => red.max = Bytes(red.min.0.saturating_mul(3)),
                (false, true) => red.min = Bytes(red.max.0 / 3),
                _ => {}
            }
        }
        refuse_out_of_range(Effect::Rate(Rate {
            rate: None,
            fluctuation: None,
            burst: None,
            framing: Framing::L2,
            queue: Queue {
                limit: QueueLimit::Packets(1),
                discipline,
            },
        }))?;
        Ok(Self(discipline))
    }
}

/// What the model would refuse is refused where it is written.
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

fn set_option(discipline: &mut Discipline, key: &str, value: &str) -> Result<(), String> {
    fn read<T: FromStr<Err: fmt::Display>>(key: &str, value: &str) -> Result<T, String> {
        value.parse().map_err(|cause| format!("{key}: {cause}"))
    }
    let of_codel = |codel: &mut Codel| match (key, value) {
        ("ecn" | "noecn", "") => {
            codel.ecn = key == "ecn";
            Ok(true)
        }
        ("target", _) => read(key, value)
            .map(|time| codel.target = time)
            .map(|()| true),
        ("interval", _) => read(key, value)
            .map(|time| codel.interval = time)
            .map(|()| true),
        _ => Ok(false),
    };
    let (is_known, known) = match discipline {
        Discipline::DropTail | Discipline::DropHead => {
            return Err(format!("`{key}`: it has no options"));
        }
        Discipline::Red(red) => {
            let is_known = match (key, value) {
                ("min", _) => read(key, value).map(|size| red.min = size),
                ("max", _) => read(key, value).map(|size| red.max = size),
                ("avpkt", _) => read(key, value).map(|size| red.avpkt = size),
                ("probability", _) => read(key, value).map(|share| red.probability = share),
                ("burst", _) => read(key, value).map(|packets| red.burst = Some(packets)),
                ("gentle" | "nogentle", "") => {
                    red.gentle = key == "gentle";
                    Ok(())
                }
                ("ecn" | "noecn", "") => {
                    red.ecn = key == "ecn";
                    Ok(())
                }
                _ => Err(String::new()),
            };
            let known = "ecn, noecn, min=30kb, max=90kb, probability=2%, avpkt=1000b, burst=50, gentle, nogentle";
            match is_known {
                Err(cause) if cause.is_empty() => (false, known),
                other => (other.map(|()| true)?, known),
            }
        }
        Discipline::Pie(pie) => {
            let time = match key {
                "target" => Some(&mut pie.target),
                "tupdate" => Some(&mut pie.tupdate),
                "max_burst" => Some(&mut pie.max_burst),
                _ => None,
            };
            let is_known = match (time, key, value) {
                (Some(time), ..) => {
                    *time = read(key, value)?;
                    true
                }
                (None, "ecn" | "noecn", "") => {
                    pie.ecn = key == "ecn";
                    true
                }
                _ => false,
            };
            (
                is_known,
                "ecn, noecn, target=15ms, tupdate=15ms, max_burst=150ms",
            )
        }
        Discipline::Codel(codel) => (of_codel(codel)?, "ecn, noecn, target=5ms, interval=100ms"),
        Discipline::FqCodel(fq) => {
            let is_known = match key {
                "flows" => read(key, value)
                    .map(|count| fq.flows = count)
                    .map(|()| true)?,
                "quantum" => read(key, value)
                    .map(|bytes| fq.quantum = bytes)
                    .map(|()| true)?,
                _ => of_codel(&mut fq.codel)?,
            };
            let known = "ecn, noecn, target=5ms, interval=100ms, flows=1024, quantum=1514";
            (is_known, known)
        }
        Discipline::DualPi2(dual) => {
            let time = match key {
                "target" => Some(&mut dual.target),
                "t_update" => Some(&mut dual.t_update),
                "l_threshold" => Some(&mut dual.l_threshold),
                _ => None,
            };
            let is_known = time.is_some();
            if let Some(time) = time {
                *time = read(key, value)?;
            }
            (is_known, "target=15ms, t_update=16ms, l_threshold=800us")
        }
    };
    match is_known {
        true => Ok(()),
        false => Err(format!("`{key}` is no option of it: there are {known}")),
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

/// What stands between commas.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Reads a text, or a number as if it were written as text.
pub(super) struct Text<T>(pub(super) PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, such as \"0bit\", \"1%,burst=8\" or \"fq_codel,target=5ms\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! serialized_as_text {
    ($($kind:ty),+) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
                target.collect_str(self)
            }
        }
    )+};
}

macro_rules! read_from_text {
    ($($kind:ty: $description:literal, $pattern:expr;)+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                source.deserialize_any(Text(PhantomData))
            }
        }

        impl JsonSchema for $kind {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let pattern: fn(&mut SchemaGenerator) -> String = $pattern;
                let pattern = format!("^{}$", pattern(generator));
                json_schema!({ "type": "string", "pattern": pattern, "description": $description })
            }
        }
    )+};
}

serialized_as_text!(LineRate, PoliceSpec, LossSpec, AqmSpec, NetemSpec);
read_from_text! {
    LineRate: "A rate, or 0bit: \"10mbit\"; of a token bucket \"10mbit,burst=32KiB\".",
        |generator| format!("{}( *, *burst=.*)?", pattern::<BitsPerSec>(generator));
    PoliceSpec: "\"10mbit,burst=64KiB\".",
        |generator| format!("{} *, *burst=.*", pattern::<BitsPerSec>(generator));
    LossSpec: "\"1%\", or in bursts \"1%,burst=8\"; \"1%,ecn\" marks what can be marked.",
        |generator| format!("{}( *, *(burst=[0-9.]+|ecn))*", pattern::<Probability>(generator));
    AqmSpec: "\"drop-head\", \"red\", \"codel\", \"fq_codel\", \"pie\" or \"dualpi2\", perhaps with options: \"fq_codel,target=5ms\".",
        |_| "(drop-head|red|codel|fq_codel|pie|dualpi2)( *,.*)?".to_owned();
    NetemSpec: "netem's options in tc's words: \"delay 100ms 10ms loss 1%\".", |_| ".+".to_owned();
}

pub(super) use {read_from_text, serialized_as_text};

/// The pattern of a quantity, to be part of a longer one.
pub(super) fn pattern<T: JsonSchema>(generator: &mut SchemaGenerator) -> String {
    let schema = T::json_schema(generator);
    let pattern = schema.get("pattern").and_then(Value::as_str);
    let pattern = pattern.unwrap_or_default().trim_start_matches('^');
    pattern.trim_end_matches('$').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_written<T: FromStr<Err = String> + fmt::Display>(texts: &[&str]) {
        for text in texts {
            let value: T = text
                .parse()
                .unwrap_or_else(|cause| panic!("{text}: {cause}"));
            assert_eq!(value.to_string(), *text);
        }
    }

    #[test]
    fn each_prints_as_it_was_written() {
        as_written::<LineRate>(&["10mbit", "0bit", "10mbit,burst=32KiB"]);
        as_written::<PoliceSpec>(&["10mbit,burst=64KiB"]);
        as_written::<LossSpec>(&[
            "1%",
            "1%,burst=8",
            "0.5%,burst=1.5",
            "1%,ecn",
            "1%,burst=8,ecn",
        ]);
        as_written::<AqmSpec>(&[
            "codel",
            "codel,ecn,target=10ms,interval=200ms",
            "fq_codel",
            "fq_codel,noecn,flows=16,quantum=300",
            "dualpi2,target=20ms,t_update=8ms,l_threshold=1ms",
            "drop-head",
            "red",
            "red,ecn,min=10kb,max=40kb,probability=5%,avpkt=500b,burst=60,nogentle",
            "pie",
            "pie,ecn,target=20ms,tupdate=30ms,max_burst=100ms",
        ]);
    }

    #[test]
    fn a_rate_of_nothing_has_a_unit() {
        for text in ["0bit", "0mbit", "0.0kbit"] {
            let nothing = LineRate {
                rate: None,
                burst: None,
            };
            assert_eq!(text.parse(), Ok(nothing), "{text}");
        }
        for text in ["0", "", "0parsec", "-1mbit", "0.5", "0 mbit"] {
            assert!(text.parse::<LineRate>().is_err(), "{text}");
        }
        assert_eq!("0.5mbit".parse::<LineRate>(), "500kbit".parse());
    }

    #[test]
    fn what_is_wrong_comes_with_what_would_be_right() {
        fn refused<T: FromStr<Err = String> + fmt::Debug>(text: &str, cause: &str) {
            let error = text.parse::<T>().unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
        refused::<LossSpec>("1%,burst=0.5", "at least 1 packet");
        refused::<LossSpec>("1%,burst=NaN", "at least 1 packet");
        refused::<LossSpec>("90%,burst=2", "bursts of 9.000 packets or more");
        refused::<LossSpec>("100%,burst=2", "leave burst out");
        refused::<LossSpec>("1%,bursts=2", "burst=8");
        refused::<LossSpec>("1%,burst=2,burst=3", "twice");
        refused::<LossSpec>("1%,ecn,ecn", "ecn: given twice");
        refused::<LossSpec>("1%,ect", "burst=8, packets lost in a row, and ecn");
        refused::<LossSpec>("1", "%");
        refused::<LineRate>(
            "10mbit,burst=1kb",
            "burst = 1kb is out of range: a burst is at least 1514b",
        );
        refused::<LineRate>("10mbit,burst=32", "burst: `32` has no unit");
        refused::<LineRate>("10mbit,32KiB", "behind the rate comes burst=32KiB");
        refused::<LineRate>("10mbit,burst=9kb,burst=9kb", "twice");
        refused::<LineRate>("0bit,burst=32KiB", "fills no bucket");
        refused::<PoliceSpec>("10mbit", "burst: it is missing");
        refused::<PoliceSpec>("0bit,burst=32KiB", "at least 1bit");
        refused::<PoliceSpec>("10mbit,burst=1513b", "at least 1514b");
        refused::<AqmSpec>("sfq", "drop-head, red, codel, fq_codel, pie and dualpi2");
        refused::<AqmSpec>("drop-head,ecn", "it has no options");
        refused::<AqmSpec>("red,limit=400kb", "there are ecn, noecn, min=30kb");
        refused::<AqmSpec>(
            "red,min=90kb,max=30kb",
            "max = 30kb is out of range: it is above min",
        );
        refused::<AqmSpec>(
            "red,burst=3",
            "burst = 3 is out of range: it is at least min / avpkt",
        );
        refused::<AqmSpec>(
            "red,probability=0%",
            "probability = 0% is out of range: it is above 0",
        );
        refused::<AqmSpec>("red,avpkt=0b", "avpkt = 0b is out of range: it is above 0");
        refused::<AqmSpec>(
            "pie,target=0ms",
            "target = 0ns is out of range: it is above 0",
        );
        refused::<AqmSpec>(
            "pie,tupdate=1us",
            "tupdate = 1us is out of range: a controller looks",
        );
        refused::<AqmSpec>("codel,interval=2h", "interval");
        refused::<AqmSpec>("codel,flows=3", "no option of it: there are ecn");
        refused::<AqmSpec>("dualpi2,ecn", "there are target=15ms");
        refused::<AqmSpec>("fq_codel,target=5", "target: ");
        refused::<AqmSpec>("fq_codel,ecn,noecn", "twice");
    }
}
