//! Names of figures in scenario files and tables, such as `ping.rtt_ms.median`, `probe.one_way_delay_ms.p99.up` or
//! `sizes.rtt_ms.mean.64b`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use conditions::{Error, nearest, require};
use model::{BitsPerSec, Bytes, Nanos, Probability, UnitError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator as _;

use crate::{Direction, Figure, Measurement, Metric, Phase, Statistic};

/// A figure of an instrument, without its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FigureName {
    /// The plan's name for the instrument.
    pub instrument: String,
    /// The metric, whose name includes the unit.
    pub metric: Metric,
    /// The statistic over the metric's values.
    pub statistic: Statistic,
    /// The direction; absent for a round trip, for both directions together, or if there is only one.
    pub direction: Option<Direction>,
    /// Whether a load ran simultaneously; absent for an instrument without phases.
    pub phase: Option<Phase>,
    /// Size of the messages, blocks or files in bytes.
    pub size: Option<u64>,
}

impl FigureName {
    /// Returns the name of `figure`, a figure over all streams.
    pub fn of(instrument: &str, figure: &Figure) -> Self {
        Self {
            instrument: instrument.to_owned(),
            metric: figure.metric,
            statistic: figure.statistic,
            direction: figure.direction,
            phase: figure.phase,
            size: figure.size,
        }
    }

    /// Returns the figure of this name, if the measurement has it. A name without a direction also matches a figure
    /// with one, if it is the only match.
    pub fn find<'a>(&self, measurement: &'a Measurement) -> Option<&'a Figure> {
        let of = |figure: &&Figure| {
            figure.stream.is_none()
                && (figure.metric, figure.statistic) == (self.metric, self.statistic)
                && (figure.phase, figure.size) == (self.phase, self.size)
        };
        let mut all = measurement.figures.iter().filter(of);
        let exact = all
            .clone()
            .find(|figure| figure.direction == self.direction);
        exact.or_else(|| match (self.direction, all.next(), all.next()) {
            (None, Some(only), None) => Some(only),
            _ => None,
        })
    }

    /// Returns whether this name equals `other`; a name without a direction in `other` matches any direction.
    pub fn is_of(&self, other: &Self) -> bool {
        let direction = other.direction.or(self.direction);
        *self
            == Self {
                direction,
                ..other.clone()
            }
    }

    /// Returns whether the figure grows with the duration of the measurement: a total, an amount, or the elapsed time.
    pub fn is_of_the_whole(&self) -> bool {
        use Metric::{ElapsedS, NetworkElapsedS, Reads, ReceivedBytes};
        let grows = [ElapsedS, NetworkElapsedS, Reads, ReceivedBytes];
        self.statistic == Statistic::Total || grows.contains(&self.metric)
    }

    /// Parses a value of this figure from a file and returns it in the metric's unit. It accepts "20ms", "7.3mbit",
    /// "1%" and a bare number; for a rate also bytes over time, such as "524288000b/72s".
    ///
    /// # Errors
    /// A text that is not a value of this unit.
    pub fn value(&self, text: &str) -> Result<f64, Error> {
        if let Ok(number) = text.parse::<f64>() {
            require!(number.is_finite(), "`{text}` is not a number");
            return Ok(number);
        }
        let (sign, text) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text),
        };
        let nanos = || Ok::<_, Error>(parsed::<Nanos>(text)?.0 as f64);
        let value = match self.metric.unit() {
            "ms" => nanos()? / 1e6,
            "us" => nanos()? / 1e3,
            "s" => nanos()? / 1e9,
            "%" => parsed::<Probability>(text)?.percent(),
            "bytes" => parsed::<Bytes>(text)?.0 as f64,
            "bit/s" => rate(text)?,
            unit => {
                return Err(Error::other(format_args!(
                    "`{text}` is not a number of {unit}"
                )));
            }
        };
        Ok(sign * value)
    }
}

fn parsed<T: FromStr<Err = UnitError>>(text: &str) -> Result<T, Error> {
    text.parse().map_err(Error::other)
}

fn rate(text: &str) -> Result<f64, Error> {
    let Some((bytes, time)) = text.split_once('/') else {
        return Ok(parsed::<BitsPerSec>(text)?.get() as f64);
    };
    let (Bytes(bytes), Nanos(nanos)) = (parsed(bytes.trim())?, parsed(time.trim())?);
    require!(nanos > 0, "`{text}`: the time must be above 0");
    Ok(bytes as f64 * 8e9 / nanos as f64)
}

impl FromStr for FigureName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut parts = text.split('.');
        let mut part = |what| {
            parts.next().filter(|part| !part.is_empty()).ok_or_else(|| {
                Error::other(format_args!(
                    "`{text}` has no {what}: write INSTRUMENT.METRIC.STATISTIC, as in ping.rtt_ms.median"
                ))
            })
        };
        let (instrument, metric, statistic) =
            (part("instrument")?, part("metric")?, part("statistic")?);
        let mut name = Self {
            instrument: instrument.to_owned(),
            metric: known(metric, "metric", Metric::iter(), Metric::name)?,
            statistic: known(statistic, "statistic", Statistic::iter(), Statistic::name)?,
            direction: None,
            phase: None,
            size: None,
        };
        for more in parts {
            if let Some(direction) = Direction::iter().find(|d| d.name() == more) {
                name.direction = Some(direction);
            } else if let Some(phase) = Phase::iter().find(|p| p.name() == more) {
                name.phase = Some(phase);
            } else {
                let Bytes(size) = more.parse().map_err(|_| {
                    Error::other(format_args!(
                        "`{text}`: `{more}` is neither up, down, idle, loaded, loaded_up, loaded_down, loaded_both nor a size such as \
                         64b"
                    ))
                })?;
                name.size = Some(size);
            }
        }
        Ok(name)
    }
}

/// Returns the one of `all` that has this name.
fn known<T: Copy>(
    text: &str,
    what: &str,
    all: impl Iterator<Item = T>,
    name: fn(T) -> &'static str,
) -> Result<T, Error> {
    let all: Vec<T> = all.collect();
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let names = all.iter().map(|one| name(*one));
        let advice = nearest::or_all(text, names);
        Error::other(format_args!("`{text}` is not a {what}{advice}"))
    })
}

impl JsonSchema for FigureName {
    fn schema_name() -> Cow<'static, str> {
        "Figure".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^[^. ]+\.[a-z0-9_]+\.[a-z0-9_]+(\.[a-zA-Z0-9_]+)*$",
            "description": "INSTRUMENT.METRIC.STATISTIC, with .up or .down, .idle or .loaded (.loaded_up, .loaded_down, .loaded_both), .64b where they apply."
        })
    }
}

impl TryFrom<String> for FigureName {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<FigureName> for String {
    fn from(name: FigureName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for FigureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (metric, statistic) = (self.metric.name(), self.statistic.name());
        write!(f, "{}.{metric}.{statistic}", self.instrument)?;
        if let Some(direction) = self.direction {
            write!(f, ".{}", direction.name())?;
        }
        if let Some(phase) = self.phase {
            write!(f, ".{}", phase.name())?;
        }
        if let Some(size) = self.size {
            write!(f, ".{size}b")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FigureName {
        text.parse().unwrap()
    }

    #[test]
    fn a_written_name_reads_back() {
        for text in [
            "ping.rtt_ms.median",
            "probe.one_way_delay_ms.p99.up.loaded",
            "sizes.rtt_ms.mean.64b",
        ] {
            assert_eq!(name(text).to_string(), text);
        }
    }

    #[test]
    fn an_unknown_figure_is_refused_with_the_nearest_name() {
        for (text, cause) in [
            (
                "ping",
                "`ping` has no metric: write INSTRUMENT.METRIC.STATISTIC",
            ),
            ("ping.rtt.median", "did you mean `rtt_ms`?"),
            ("ping.rtt_ms.medium", "did you mean `median`?"),
            ("ping.rtt_ms.median.left", "neither up, down"),
        ] {
            let error = text.parse::<FigureName>().unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn values_are_parsed_in_the_unit_of_the_metric() {
        assert_eq!(name("a.rtt_ms.mean").value("1500us").unwrap(), 1.5);
        assert_eq!(name("a.rtt_ms.mean").value("-2ms").unwrap(), -2.0);
        assert_eq!(name("a.lost_percent.mean").value("15%").unwrap(), 15.0);
        assert_eq!(
            name("a.retransmitted_packets.total").value("3").unwrap(),
            3.0
        );
        let goodput = name("a.goodput_bit_per_s.mean");
        assert_eq!(goodput.value("10mbit").unwrap(), 1e7);
        assert_eq!(goodput.value("1000b/2s").unwrap(), 4000.0);
        assert!(goodput.value("1000b/0s").is_err() && goodput.value("3ms").is_err());
    }

    #[test]
    fn a_figure_with_one_direction_is_found_without_naming_it() {
        let up = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 1.0).toward(Direction::Up);
        let down =
            Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 2.0).toward(Direction::Down);
        let mut measurement = Measurement {
            figures: vec![up],
            ..Measurement::default()
        };
        let either = name("tcp.goodput_bit_per_s.mean");
        assert_eq!(either.find(&measurement).unwrap().value, 1.0);
        measurement.figures.push(down);
        assert_eq!(either.find(&measurement), None);
        let down = name("tcp.goodput_bit_per_s.mean.down");
        assert_eq!(down.find(&measurement).unwrap().value, 2.0);
    }
}
