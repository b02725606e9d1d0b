//! JSON of the library netem-trace, which rattan reads (stack-rs, "netem-trace", its `model` module, 2025).
//!
//! The file is an object with one key, the kind of the model: `{"StaticBwConfig":{"bw":"12Mbps","duration":"1s"}}`.
//! Quantities are texts for people, or objects of whole numbers: `{"gbps":0,"bps":12000000}`, `{"secs":1,"nanos":0}`.
//! Rates that are drawn at random are drawn when the file is read, by the stated distribution and with the stated seed;
//! they are not the draws of that library.

use std::io::Read;

use model::{BitsPerSec, Nanos, Probability};
use serde_json::{Map, Value};

use crate::trace::{Builder, Columns, Line, Trace, TraceError};

/// The longest file, in bytes: it is kept in memory as a whole.
const LONGEST: u64 = 16 << 20;

/// The most lines that a file may describe.
const MOST_LINES: u64 = 1_000_000;

/// The beginnings of the names of all models.
const MODELS: &str = "StaticBwConfig, NormalizedBwConfig, SawtoothBwConfig, RepeatedBwPatternConfig, TraceBwConfig, StaticDelayConfig, \
                      RepeatedDelayPatternConfig, StaticLossConfig, RepeatedLossPatternConfig, StaticDuplicateConfig and \
                      RepeatedDuplicatePatternConfig";

/// The seed of a model that states none.
const SEED: u64 = 42;

/// Reads a model.
pub(super) fn read(source: impl Read) -> Result<Trace, TraceError> {
    let mut text = Vec::new();
    source.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(TraceError::whole(
            "the file is longer than 16 MiB, and JSON is read as a whole: convert it to csv",
        ));
    }
    let value: Value = serde_json::from_slice(&text).map_err(|error| {
        let line = u64::try_from(error.line()).unwrap_or(0);
        TraceError::at(line, format_args!("it is no JSON: {error}"))
    })?;
    let (kind, parameters) = model(&value)?;
    let columns = Columns {
        rate: kind.contains("Bw"),
        delay: kind.contains("Delay"),
        loss: kind.contains("Loss"),
        duplicate: kind.contains("Duplicate"),
        ..Columns::default()
    };
    let mut unrolled = Unrolled {
        builder: Builder::new(columns),
        at: Nanos::ZERO,
        line: Line::default(),
    };
    // A pattern without an end repeats as the whole trace does.
    let is_endless = is_pattern(kind) && count(kind, parameters)? == 0;
    if is_endless {
        unrolled.pattern(kind, parameters, 1)?;
    } else {
        unrolled.add(kind, parameters)?;
    }
    let Unrolled { builder, at, .. } = unrolled;
    builder.finish(0, Some(at))
}

type Parameters = Map<String, Value>;

/// Returns the kind of a model and its parameters.
fn model(value: &Value) -> Result<(&str, &Parameters), TraceError> {
    let object = value.as_object().filter(|object| object.len() == 1);
    let kind = object.and_then(|object| object.iter().next());
    let found = kind.and_then(|(kind, parameters)| Some((kind.as_str(), parameters.as_object()?)));
    found.ok_or_else(|| {
        TraceError::whole(
            r#"a model is an object with one key, its kind: {"StaticBwConfig":{"bw":"12Mbps","duration":"1s"}}"#,
        )
    })
}

fn is_pattern(kind: &str) -> bool {
    kind.starts_with("Repeated") && kind.ends_with("PatternConfig")
}

/// Returns how often a pattern repeats; 0 for ever.
fn count(kind: &str, parameters: &Parameters) -> Result<u64, TraceError> {
    let count = parameters.get("count").map_or(Some(0), Value::as_u64);
    count.ok_or_else(|| refused(kind, "count", "write a whole number; 0 repeats for ever"))
}

/// A model, unrolled to lines.
struct Unrolled {
    builder: Builder,
    at: Nanos,
    line: Line,
}

impl Unrolled {
    fn add(&mut self, kind: &str, parameters: &Parameters) -> Result<(), TraceError> {
        let own = Model { kind, parameters };
        match kind {
            "StaticBwConfig" => {
                let rate = own.rate("bw", 12_000_000)?;
                self.hold(own.time("duration", 1_000)?, |line| set_rate(line, rate))
            }
            "StaticDelayConfig" => {
                let delay = own.time("delay", 10)?;
                self.hold(own.time("duration", 1_000)?, |line| line.delay = delay)
            }
            "StaticLossConfig" => {
                let loss = own.share("loss")?;
                self.hold(own.time("duration", 1_000)?, |line| line.loss = loss)
            }
            "StaticDuplicateConfig" => {
                let copies = own.share("duplicate")?;
                self.hold(own.time("duration", 1_000)?, |line| line.copies = copies)
            }
            "NormalizedBwConfig" => self.normalized(&own),
            "SawtoothBwConfig" => self.sawtooth(&own),
            "TraceBwConfig" => self.listed(&own),
            "RepeatedBwPatternConfig"
            | "RepeatedDelayPatternConfig"
            | "RepeatedLossPatternConfig"
            | "RepeatedDuplicatePatternConfig" => match count(kind, parameters)? {
                0 => Err(refused(
                    kind,
                    "count",
                    "a pattern within another one cannot repeat for ever: write how often",
                )),
                count => self.pattern(kind, parameters, count),
            },
            _ if kind.contains("PerPacket") => Err(TraceError::whole(format_args!(
                "{kind}: a delay for each packet by its number has no equivalent: use a delay with jitter"
            ))),
            _ => {
                let begin: String = kind.chars().take(40).collect();
                Err(TraceError::whole(format_args!(
                    "unknown model `{begin}`: farwire reads {MODELS}"
                )))
            }
        }
    }

    fn pattern(
        &mut self,
        kind: &str,
        parameters: &Parameters,
        count: u64,
    ) -> Result<(), TraceError> {
        let all = parameters.get("pattern").and_then(Value::as_array);
        let all = all.filter(|all| !all.is_empty());
        let all = all.ok_or_else(|| refused(kind, "pattern", "write a list of models"))?;
        for _ in 0..count {
            let before = self.builder.lines();
            for one in all {
                let (inner, parameters) = model(one)?;
                let quantity = |kind: &str| {
                    let all = ["Bw", "Delay", "Loss", "Duplicate"];
                    all.into_iter().position(|name| kind.contains(name))
                };
                if quantity(inner) != quantity(kind) {
                    return Err(refused(
                        kind,
                        "pattern",
                        "all models of a pattern are of its quantity",
                    ));
                }
                self.add(inner, parameters)?;
            }
            if self.builder.lines() == before {
                return Err(refused(kind, "pattern", "it lasts no time"));
            }
        }
        Ok(())
    }

    /// Draws a rate for each step from a normal distribution.
    fn normalized(&mut self, own: &Model<'_>) -> Result<(), TraceError> {
        let mean = own.rate("mean", 12_000_000)? as f64;
        let deviation = own.rate("std_dev", 0)? as f64;
        let bounds = [
            own.bound("lower_bound", 0.0)?,
            own.bound("upper_bound", f64::MAX)?,
        ];
        let mut draws = Normal::new(own.seed()?);
        self.steps(own, |_| {
            let drawn = mean + deviation * draws.next();
            drawn.min(bounds[1]).max(bounds[0])
        })
    }

    /// Lets the rate rise and fall, with a normal noise.
    fn sawtooth(&mut self, own: &Model<'_>) -> Result<(), TraceError> {
        let bottom = own.rate("bottom", 0)? as f64;
        let top = own.rate("top", 12_000_000)? as f64;
        if bottom > top {
            return Err(refused(own.kind, "bottom", "it must not be above top"));
        }
        let interval = own.time("interval", 1_000)?;
        let ratio = own.parameters.get("duty_ratio");
        let ratio = ratio.map_or(Some(0.5), Value::as_f64);
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio =
            ratio.ok_or_else(|| refused(own.kind, "duty_ratio", "write a number from 0 to 1"))?;
        if interval == Nanos::ZERO {
            return Err(refused(own.kind, "interval", "it must be above 0"));
        }
        let deviation = own.rate("std_dev", 0)? as f64;
        let lower = own.bound("lower_noise_bound", f64::MAX)?;
        let upper = own.bound("upper_noise_bound", f64::MAX)?;
        let mut draws = Normal::new(own.seed()?);
        let peak = interval.0 as f64 * ratio;
        self.steps(own, |at| {
            let within = (at.0 % interval.0) as f64;
            let share = if within < peak {
                within / peak
            } else {
                1.0 - (within - peak) / (interval.0 as f64 - peak)
            };
            let noise = (deviation * draws.next()).min(upper).max(-lower);
            (bottom + (top - bottom) * share + noise).max(0.0)
        })
    }

    /// Sets a rate for each step of a model. `rate` gets the time since the model's beginning.
    fn steps(
        &mut self,
        own: &Model<'_>,
        mut rate: impl FnMut(Nanos) -> f64,
    ) -> Result<(), TraceError> {
        let (duration, step) = (own.time("duration", 1_000)?, own.time("step", 1)?);
        if step == Nanos::ZERO {
            return Err(refused(own.kind, "step", "it must be above 0"));
        }
        let mut at = Nanos::ZERO;
        while at < duration {
            let holds = step.min(duration - at);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rates are whole numbers of bit/s, cut off as that library does"
            )]
            let bits = rate(at).min(1e18) as u64;
            self.hold(holds, |line| set_rate(line, bits))?;
            at += holds;
        }
        Ok(())
    }

    /// Sets the rates of a list of durations with their rates.
    fn listed(&mut self, own: &Model<'_>) -> Result<(), TraceError> {
        let right = r#"write a list such as [["25ms",["29.4Mbps","29.6Mbps"]],["1s",["12Mbps"]]]"#;
        let wrong = || refused(own.kind, "pattern", right);
        let all = own.parameters.get("pattern").and_then(Value::as_array);
        for one in all.ok_or_else(wrong)? {
            let pair = one.as_array().filter(|pair| pair.len() == 2);
            let pair = pair.ok_or_else(wrong)?;
            let holds = time(&pair[0]).ok_or_else(wrong)?;
            for one in pair[1].as_array().ok_or_else(wrong)? {
                let rate = rate(one).ok_or_else(wrong)?;
                self.hold(holds, |line| set_rate(line, rate))?;
            }
        }
        Ok(())
    }

    /// Adds a line that holds for a time.
    fn hold(&mut self, holds: Nanos, set: impl FnOnce(&mut Line)) -> Result<(), TraceError> {
        if holds == Nanos::ZERO {
            return Ok(());
        }
        if self.builder.lines() >= MOST_LINES {
            return Err(TraceError::whole(format_args!(
                "the model has more than {MOST_LINES} changes: use a longer step or fewer repetitions"
            )));
        }
        set(&mut self.line);
        self.line.at = self.at;
        self.builder.step(0, self.line)?;
        self.at += holds;
        Ok(())
    }
}

fn set_rate(line: &mut Line, rate: u64) {
    line.rate = rate;
    line.is_stalled = rate == 0;
}

/// A model's kind and parameters.
struct Model<'v> {
    kind: &'v str,
    parameters: &'v Parameters,
}

impl Model<'_> {
    fn time(&self, key: &str, default_ms: u64) -> Result<Nanos, TraceError> {
        let right = "write a time such as 10ms, or {\"secs\":0,\"nanos\":10000000}";
        match self.parameters.get(key) {
            None | Some(Value::Null) => Ok(Nanos::from_millis(default_ms)),
            Some(value) => time(value).ok_or_else(|| refused(self.kind, key, right)),
        }
    }

    fn rate(&self, key: &str, default: u64) -> Result<u64, TraceError> {
        let right = "write a rate such as 12Mbps, or {\"gbps\":0,\"bps\":12000000}";
        match self.parameters.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => rate(value).ok_or_else(|| refused(self.kind, key, right)),
        }
    }

    fn bound(&self, key: &str, default: f64) -> Result<f64, TraceError> {
        match self.parameters.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(_) => self.rate(key, 0).map(|rate| rate as f64),
        }
    }

    /// Returns a probability that does not depend on what happened to earlier packets.
    fn share(&self, key: &str) -> Result<Probability, TraceError> {
        let all = self.parameters.get(key).and_then(Value::as_array);
        let all: Option<Vec<f64>> = all.and_then(|all| all.iter().map(Value::as_f64).collect());
        let right = "write a list with one probability from 0 to 1, as in [0.01]";
        let wrong = || refused(self.kind, key, right);
        let all = all.filter(|all| !all.is_empty()).ok_or_else(wrong)?;
        if all.iter().any(|one| *one != all[0]) {
            return Err(refused(
                self.kind,
                key,
                "probabilities that depend on the packets before have no equivalent in a trace: write one, or use loss = \"1%,burst=4\"",
            ));
        }
        Probability::from_percent(all[0] * 100.0).map_err(|_| wrong())
    }

    fn seed(&self) -> Result<u64, TraceError> {
        let seed = self.parameters.get("seed").filter(|seed| !seed.is_null());
        let seed = seed.map_or(Some(SEED), Value::as_u64);
        seed.ok_or_else(|| refused(self.kind, "seed", "write a whole number"))
    }
}

fn refused(kind: &str, key: &str, right: &str) -> TraceError {
    let kind: String = kind.chars().take(40).collect();
    TraceError::whole(format_args!("{kind}: {key}: {right}"))
}

/// Reads a time: an object of seconds and nanoseconds, or a text such as `1m 30s`, in which m are minutes.
fn time(value: &Value) -> Option<Nanos> {
    if let Value::Object(parts) = value {
        let secs = parts.get("secs")?.as_u64()?;
        let nanos = parts.get("nanos")?.as_u64()?;
        let all = secs.checked_mul(1_000_000_000)?.checked_add(nanos)?;
        return Some(Nanos(all));
    }
    let mut sum = Nanos::ZERO;
    for (number, unit) in parts(value.as_str()?)? {
        let unit = match unit {
            "m" | "min" | "mins" | "minute" | "minutes" => "min",
            "h" | "hr" | "hrs" | "hour" | "hours" => "h",
            "s" | "sec" | "secs" | "second" | "seconds" => "s",
            "ms" | "msec" | "millis" => "ms",
            "us" | "usec" | "micros" => "us",
            "ns" | "nsec" | "nanos" => "ns",
            _ => return None,
        };
        sum += format!("{number}{unit}").parse::<Nanos>().ok()?;
    }
    Some(sum)
}

/// Reads a rate: an object of Gbit/s and bit/s, or a text such as `1Gbps 20Mbps`.
fn rate(value: &Value) -> Option<u64> {
    if let Value::Object(parts) = value {
        let gbps = parts.get("gbps")?.as_u64()?;
        let bps = parts.get("bps")?.as_u64()?;
        let all = gbps.checked_mul(1_000_000_000)?.checked_add(bps)?;
        return Some(all);
    }
    let mut sum = 0_u64;
    for (number, unit) in parts(value.as_str()?)? {
        let multiple = unit.strip_suffix("bps")?;
        let rate = format!("{number}{multiple}bit");
        let bits = match rate.parse::<BitsPerSec>() {
            Ok(rate) => rate.get(),
            Err(_) if number.parse::<f64>() == Ok(0.0) => 0,
            Err(_) => return None,
        };
        sum = sum.checked_add(bits)?;
    }
    Some(sum)
}

/// Splits a text into numbers and their units.
fn parts(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let number = rest.find(|c| !is_number(c))?;
        let behind = rest[number..].trim_start();
        let unit = behind
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(behind.len());
        if number == 0 || unit == 0 {
            return None;
        }
        parts.push((&rest[..number], &behind[..unit]));
        rest = behind[unit..].trim_start();
    }
    (!parts.is_empty()).then_some(parts)
}

/// Draws from the standard normal distribution (Box and Muller 1958).
struct Normal(fastrand::Rng);

impl Normal {
    fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    fn next(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.f64()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refusal, trace, written};
    use super::super::{TraceFormat, read};

    fn table(text: &str) -> String {
        written(&trace(text), TraceFormat::Csv)
    }

    #[test]
    fn patterns_are_unrolled_in_both_forms_of_quantities() {
        let pattern = r#"{"RepeatedBwPatternConfig":{"pattern":[
            {"StaticBwConfig":{"bw":{"gbps":0,"bps":12000000},"duration":{"secs":1,"nanos":5}}},
            {"StaticBwConfig":{"bw":"1Gbps 2 Mbps","duration":"1m 30s"}}],"count":2}}"#;
        assert_eq!(
            table(pattern),
            "t,rate\n0ms,12mbit\n1.000000005s,1.002gbit\n91.000000005s,12mbit\n92.00000001s,1.002gbit\n182.00000001s,\n"
        );
        let endless = r#"{"RepeatedDelayPatternConfig":{"pattern":[{"StaticDelayConfig":{"delay":"10ms","duration":"1s"}},
            {"StaticDelayConfig":{"delay":{"secs":0,"nanos":20000001},"duration":"500ms"}}],"count":0}}"#;
        assert_eq!(table(endless), "t,delay\n0ms,10ms\n1s,20.000001ms\n1.5s,\n");
        let loss = r#"{"StaticLossConfig":{"loss":[0.25],"duration":"2s"}}"#;
        assert_eq!(table(loss), "t,loss\n0ms,25%\n2s,\n");
        let listed =
            r#"{"TraceBwConfig":{"pattern":[["25ms",["29.4Mbps","0bps"]],["1s",["12kbps"]]]}}"#;
        assert_eq!(
            table(listed),
            "t,rate\n0ms,29.4mbit\n25ms,0bit\n50ms,12kbit\n1.05s,\n"
        );
    }

    #[test]
    fn a_sawtooth_rises_to_its_peak_and_falls() {
        let text = r#"{"SawtoothBwConfig":{"bottom":"4Mbps","top":"8Mbps","interval":"1s","duty_ratio":0.75,
            "duration":"2s","step":"250ms"}}"#;
        let rates: Vec<u64> = trace(text).steps().map(|line| line.rate / 1_000).collect();
        assert_eq!(
            rates,
            [4_000, 5_333, 6_666, 8_000, 4_000, 5_333, 6_666, 8_000]
        );
    }

    #[test]
    fn a_normalized_rate_has_its_distribution_and_its_seed() {
        let text = |seed: u64| {
            format!(
                r#"{{"NormalizedBwConfig":{{"mean":"12Mbps","std_dev":"1Mbps","lower_bound":"10Mbps","duration":"20s",
                "step":"1ms","seed":{seed}}}}}"#
            )
        };
        let one = trace(&text(1));
        assert!(one == trace(&text(1)) && one != trace(&text(2)));
        let rates: Vec<f64> = one.steps().map(|line| line.rate as f64 / 1e6).collect();
        assert_eq!(rates.len(), 20_000);
        let mean = rates.iter().sum::<f64>() / 20_000.0;
        assert!((mean - 12.0).abs() < 0.05, "{mean}");
        let above = rates.iter().filter(|rate| **rate > 13.0).count() as f64 / 20_000.0;
        assert!((above - 0.1587).abs() < 0.01, "{above}");
        let least = rates.iter().copied().fold(f64::MAX, f64::min);
        assert_eq!(least, 10.0);
    }

    #[test]
    fn what_has_no_equivalent_is_refused_with_the_reason() {
        for (text, words) in [
            ("{", "line 1: it is no JSON: "),
            ("{}", "a model is an object with one key"),
            (
                r#"{"RwndConfig":{}}"#,
                "unknown model `RwndConfig`: farwire reads StaticBwConfig",
            ),
            (
                r#"{"StaticDelayPerPacketConfig":{}}"#,
                "StaticDelayPerPacketConfig: a delay for each packet",
            ),
            (
                r#"{"StaticLossConfig":{"loss":[0.1,0.2]}}"#,
                "StaticLossConfig: loss: probabilities that depend on",
            ),
            (
                r#"{"StaticLossConfig":{"loss":[1.5]}}"#,
                "StaticLossConfig: loss: write a list with one",
            ),
            (
                r#"{"StaticLossConfig":{}}"#,
                "StaticLossConfig: loss: write a list with one",
            ),
            (
                r#"{"StaticBwConfig":{"bw":"12 apples"}}"#,
                "StaticBwConfig: bw: write a rate such as 12Mbps",
            ),
            (
                r#"{"StaticBwConfig":{"bw":"12Mbps","duration":"1 week"}}"#,
                "StaticBwConfig: duration: write a time",
            ),
            (
                r#"{"StaticBwConfig":{"bw":"12Mbps","duration":"0s"}}"#,
                "the trace is empty",
            ),
            (
                r#"{"RepeatedBwPatternConfig":{"pattern":[{"RepeatedBwPatternConfig":{"pattern":[{"StaticBwConfig":{}}]}}],"count":2}}"#,
                "RepeatedBwPatternConfig: count: a pattern within another one cannot repeat for ever",
            ),
            (
                r#"{"RepeatedBwPatternConfig":{"pattern":[],"count":2}}"#,
                "RepeatedBwPatternConfig: pattern: write a list",
            ),
            (
                r#"{"RepeatedBwPatternConfig":{"pattern":[{"StaticBwConfig":{"duration":"0s"}}],"count":2}}"#,
                "RepeatedBwPatternConfig: pattern: it lasts no time",
            ),
            (
                r#"{"RepeatedBwPatternConfig":{"pattern":[{"StaticDelayConfig":{}}],"count":2}}"#,
                "RepeatedBwPatternConfig: pattern: all models of a pattern",
            ),
            (
                r#"{"RepeatedBwPatternConfig":{"pattern":[{"StaticBwConfig":{}}],"count":99999999999}}"#,
                "the model has more than 1000000 changes",
            ),
            (
                r#"{"NormalizedBwConfig":{"step":"0s"}}"#,
                "NormalizedBwConfig: step: it must be above 0",
            ),
            (
                r#"{"SawtoothBwConfig":{"bottom":"2Mbps","top":"1Mbps"}}"#,
                "SawtoothBwConfig: bottom: it must not be above",
            ),
            (
                r#"{"TraceBwConfig":{"pattern":[["1s","2Mbps"]]}}"#,
                "TraceBwConfig: pattern: write a list such as",
            ),
        ] {
            let refused = refusal(text, Some(TraceFormat::NetemTrace));
            assert!(refused.starts_with(words), "{text}: {refused}");
        }
        let nested = "{\"a\":".repeat(200);
        assert!(read(nested.as_bytes(), None).is_err());
    }
}
