//! The fitted parameters as rows, each with its interval and the evidence behind it.

use conditions::Direction;
use record::quantity::number;
use serde::Serialize;

use crate::bottleneck::Bottleneck;
use crate::delay::{DelayFit, JitterFit, JitterLaw};
use crate::estimate::Estimate;
use crate::light_load::{FEWEST_TRAINS, LightLoadFit};
use crate::loss::LossFit;
use crate::profile::ASSUMED_POLICER_BURST;
use crate::queue::QueueKind;
use crate::{DIRECTIONS, DirectionFit, LinkFit};

/// The word of a parameter that the observations do not show.
const NOT_LEARNT: &str = "not learnt";

/// The word of a parameter that a link needs and the observations do not show.
const ASSUMED: &str = "assumed";

/// The meaning of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalKind {
    /// It contains the value with a probability of 95 %.
    OfValue,
    /// It contains nine of ten windows of a value that varies.
    NineOfTen,
    /// It begins with what has passed, and ends with what may pass.
    Bounds,
    /// It contains the intervals of several sessions.
    OfSessions,
}

impl IntervalKind {
    fn is_of_value(&self) -> bool {
        *self == Self::OfValue
    }
}

/// A fitted parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// The direction; absent if both directions share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The name.
    pub name: &'static str,
    /// The value and its interval; absent for a word, and for a parameter that could not be fitted.
    #[serde(flatten)]
    pub estimate: Option<Estimate>,
    /// The meaning of the interval; absent in JSON for a 95 % interval of the value.
    #[serde(skip_serializing_if = "IntervalKind::is_of_value")]
    pub interval_kind: IntervalKind,
    /// The least and the greatest value of a session, if several are combined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<[f64; 2]>,
    /// The unit of the value; empty for a number of packets and without a value.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: &'static str,
    /// The value of a parameter that is a word, or the reason why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// The observations behind it.
    pub evidence: String,
}

impl Parameter {
    fn number(
        name: &'static str,
        estimate: Estimate,
        unit: &'static str,
        evidence: String,
    ) -> Self {
        Self {
            direction: None,
            name,
            estimate: Some(estimate),
            interval_kind: IntervalKind::OfValue,
            sessions: None,
            unit,
            word: None,
            evidence,
        }
    }

    fn word(name: &'static str, word: &str, evidence: String) -> Self {
        Self {
            direction: None,
            name,
            estimate: None,
            interval_kind: IntervalKind::OfValue,
            sessions: None,
            unit: "",
            word: Some(word.to_owned()),
            evidence,
        }
    }
}

impl LinkFit {
    /// Returns all parameters, those of the direction up first.
    pub fn parameters(&self) -> Vec<Parameter> {
        let each = DIRECTIONS.into_iter().flat_map(|way| {
            let rows = self.toward(way).parameters(way, self.one_way);
            rows.into_iter().map(move |row| Parameter {
                direction: Some(way),
                ..row
            })
        });
        let duplicated = self.duplicated_percent.map(|percent| {
            let evidence = "half of the share of probes that were answered twice; the interval allows that all are of one direction"
                .to_owned();
            Parameter::number("duplicate", percent, "%", evidence)
        });
        let all = each.chain(duplicated);
        match self.sessions {
            ..2 => all.collect(),
            _ => all
                .map(|row| Parameter {
                    interval_kind: IntervalKind::OfSessions,
                    ..row
                })
                .collect(),
        }
    }
}

impl DirectionFit {
    fn parameters(&self, way: Direction, one_way: bool) -> Vec<Parameter> {
        let absent = |name| {
            let evidence = "the observations do not show it".to_owned();
            vec![Parameter::word(name, NOT_LEARNT, evidence)]
        };
        let found = self.delay.as_ref().map(|found| delay(found, one_way));
        let mut rows = found.unwrap_or_else(|| absent("delay"));
        let found = self.loss.as_ref().map(loss);
        rows.extend(found.unwrap_or_else(|| absent("loss")));
        match &self.bottleneck {
            Some(found) => rows.extend(bottleneck(found)),
            None => rows.push(Parameter::word(
                "rate",
                NOT_LEARNT,
                "no load that exceeds the rate was observed".to_owned(),
            )),
        }
        rows.extend(self.light.as_ref().map(light_load));
        rows.extend(self.mtu.map(|mtu| {
            let evidence = way.choose(
                "what this host's kernel knows after the loads; packets of the least length arrived",
                "the longest packet of a TCP download; a router that lowers TCP's segment size has the same effect",
            );
            Parameter {
                interval_kind: IntervalKind::Bounds,
                ..Parameter::number("path MTU", mtu, "bytes", evidence.to_owned())
            }
        }));
        rows
    }
}

fn delay(fit: &DelayFit, one_way: bool) -> Vec<Parameter> {
    let statistic = if fit.is_mean() { "mean" } else { "median" };
    let measured = match one_way {
        true => "",
        false => "half of the round trip; ",
    };
    let unclear = match fit.unclear {
        0 => String::new(),
        count => format!("; {count} packets could not be paired and do not count"),
    };
    let left_out = match fit.round_trips_only {
        0 => String::new(),
        count => format!("; sessions with only round trips, which do not count: {count}"),
    };
    let transmission = match fit.without_transmission {
        true => ", without their own transmission",
        false => "",
    };
    let follows = fit.over_time.as_ref().map_or(String::new(), |windows| {
        format!(
            "; {} windows of {} s differ by more than chance explains, and the link follows the delay over time",
            windows.values.len(),
            windows.every_s
        )
    });
    let evidence = format!(
        "{measured}{statistic} of {} idle probes{transmission}{unclear}{left_out}{follows}",
        fit.probes
    );
    let mut rows = vec![Parameter::number("delay", fit.ms, "ms", evidence)];
    if let Some(jitter) = &fit.jitter {
        let evidence = match one_way {
            true => law(jitter),
            false => format!("{}; of both directions together", law(jitter)),
        };
        rows.push(Parameter::number(
            "jitter",
            jitter.spread_ms,
            "ms",
            evidence,
        ));
        rows.extend(jitter.half_life_ms.map(|half_life| {
            let evidence = "from the correlation of neighbouring probes".to_owned();
            Parameter::number("jitter half-life", half_life, "ms", evidence)
        }));
    }
    rows.extend(fit.skipped_percent.map(|percent| {
        let evidence = "probes with almost no delay".to_owned();
        Parameter::number("reorder", percent, "%", evidence)
    }));
    if fit.reorders {
        let evidence = "probes arrived after later ones".to_owned();
        rows.push(Parameter::word("order", "free", evidence));
    }
    rows
}

fn law(jitter: &JitterFit) -> String {
    let name = jitter.law.name();
    if jitter.is_rejected {
        return format!(
            "no law fits: shares of probes differ from the nearest one, {name}, by up to {:.1} %, which chance does not explain",
            100.0 * jitter.misfit
        );
    }
    let choice = match (jitter.law, jitter.is_clear) {
        (_, true) => "",
        (JitterLaw::Uniform, false) => "; normal fits hardly worse",
        (JitterLaw::Normal, false) => "; uniform fits hardly worse",
    };
    format!(
        "{name}: shares of probes differ from the law by at most {:.1} %{choice}",
        100.0 * jitter.misfit
    )
}

fn loss(fit: &LossFit) -> Vec<Parameter> {
    let counts = fit.counts;
    let of = match fit.is_half {
        true => {
            " round trips; half for each direction, which is unknown, so that the interval allows all of them"
        }
        false => " packets without a load, or of loads far below the rate",
    };
    let evidence = format!("{} of {}{of}", counts.lost, counts.of);
    let mut rows = vec![Parameter::number("loss", fit.percent, "%", evidence)];
    rows.extend(fit.burst.map(|burst| {
        let evidence = format!("{} losses in {} bursts", counts.lost, counts.bursts);
        Parameter::number("loss burst", burst, "packets", evidence)
    }));
    rows.extend(fit.possible_burst().map(|longest| {
        let evidence = format!(
            "{} losses in {} bursts do not exclude bursts of {longest:.1} packets on average; the link loses packets independently",
            counts.lost, counts.bursts
        );
        Parameter::word("loss burst", "cannot be distinguished", evidence)
    }));
    rows
}

fn bottleneck(fit: &Bottleneck) -> Vec<Parameter> {
    let mbit = fit.rate.map(|rate| rate / 1e6);
    let follows = match fit.over_time {
        Some(_) => "; the link follows the rate over time",
        None => "",
    };
    let evidence = format!("{}{follows}", fit.rate_evidence);
    let mut rows = vec![Parameter {
        interval_kind: match fit.over_time {
            Some(_) => IntervalKind::NineOfTen,
            None => IntervalKind::OfValue,
        },
        ..Parameter::number("rate", mbit, "Mbit/s", evidence)
    }];
    rows.extend(fit.burst_bytes.map(|bytes| {
        let evidence = "what arrived faster than the rate after silence".to_owned();
        Parameter::number(
            "rate burst",
            bytes.map(|bytes| bytes / 1024.0),
            "KiB",
            evidence,
        )
    }));
    if fit.has_assumed_burst() {
        let evidence = format!(
            "it was not visible; the link has {ASSUMED_POLICER_BURST} bytes, because every policer has a burst"
        );
        rows.push(Parameter::word("rate burst", ASSUMED, evidence));
    }
    let kind = fit.queue.map_or(NOT_LEARNT, QueueKind::name);
    rows.push(Parameter::word("queue kind", kind, fit.evidence.clone()));
    let Some(queue) = fit.queue else {
        return rows;
    };
    let (length, evidence) = match queue {
        QueueKind::Fifo { ms, is_least } => (
            Some(ms),
            match is_least {
                true => "at least: it still grew when the load ended",
                false => "the wait beside a load far above the rate",
            },
        ),
        QueueKind::Managed { most_ms } => (most_ms, "the most beside a load far above the rate"),
        QueueKind::Unclear { ms } => (ms, "the wait beside a load far above the rate"),
        QueueKind::PerFlow | QueueKind::Policed => (None, ""),
    };
    rows.extend(length.map(|ms| Parameter::number("queue", ms, "ms", evidence.to_owned())));
    rows.extend(length.map(|ms| {
        let (bytes, evidence) = match fit.queue_bytes {
            Some(held) => (
                held,
                "the bytes in front of the probes, which scatter less than the probes' waiting times",
            ),
            None => (
                ms.map(|ms| ms * fit.rate.value / 8e3),
                "the same at the rate",
            ),
        };
        let kib = bytes.map(|bytes| bytes / 1024.0);
        Parameter::number("queue", kib, "KiB", evidence.to_owned())
    }));
    rows
}

/// Returns the row of a light load.
fn light_load(fit: &LightLoadFit) -> Parameter {
    let name = "light load";
    let trains = format!(
        "{} trains of {} packets on the idle path",
        fit.trains, fit.packets
    );
    if fit.has_few_trains() {
        let evidence =
            format!("only {trains} arrived complete, and at least {FEWEST_TRAINS} are needed");
        return Parameter::word(name, NOT_LEARNT, evidence);
    }
    let full = in_mbit(fit.full);
    if fit.is_different() {
        let evidence = format!(
            "the median of {trains}; a full load has {full}, and the link delivers a train as this path does"
        );
        let mbit = fit.rate.map(|rate| rate / 1e6);
        return Parameter::number(name, mbit, "Mbit/s", evidence);
    }
    let evidence = format!(
        "the median of {trains} is {}, and that of the full load {full}: no difference beyond chance and beyond a fifth was found",
        in_mbit(fit.rate)
    );
    Parameter::word(name, "as the full load", evidence)
}

/// Writes a rate in Mbit/s with its interval.
fn in_mbit(rate: Estimate) -> String {
    let mbit = |rate: f64| number(rate / 1e6);
    let interval = match rate.known_interval() {
        Some([low, high]) => format!("{} to {}", mbit(low), mbit(high)),
        None => "too few independent samples for an interval".to_owned(),
    };
    format!("{} Mbit/s ({interval})", mbit(rate.value))
}

impl JitterLaw {
    /// Returns its name in files of conditions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over_time::OverTime;

    /// Returns the row of a light load of 4 Mbit/s beside a full one of 10 Mbit/s.
    fn row(trains: usize, rate: Estimate, is_different: bool) -> Parameter {
        let windows = OverTime {
            every_s: 1.0,
            values: vec![0.0; 2],
        };
        let down = DirectionFit {
            delay: None,
            loss: None,
            bottleneck: None,
            light: Some(LightLoadFit {
                rate,
                full: Estimate::within(10e6, 5e5),
                packets: 10,
                trains,
                deliveries_ms: is_different.then_some(windows).into_iter().collect(),
                probe_ms: 0.1,
            }),
            mtu: None,
        };
        let up = DirectionFit {
            light: None,
            ..down.clone()
        };
        let fit = LinkFit {
            up,
            down,
            one_way: true,
            duplicated_percent: None,
            sessions: 1,
        };
        let mut rows = fit.parameters().into_iter();
        let row = rows.find(|row| row.name == "light load").unwrap();
        assert_eq!(row.direction, Some(Direction::Down));
        assert!(rows.all(|row| row.name != "light load"));
        row
    }

    #[test]
    fn a_light_load_that_differs_has_its_rate_and_states_the_full_one() {
        let found = row(200, Estimate::within(4e6, 1e5), true);
        let mbit = found.estimate.unwrap();
        assert_eq!((mbit.value, found.unit, found.word), (4.0, "Mbit/s", None));
        assert!((mbit.interval[0] - 3.9).abs() < 1e-9, "{mbit:?}");
        assert_eq!(found.interval_kind, IntervalKind::OfValue);
        let expected = "the median of 200 trains of 10 packets on the idle path; a full load has 10.00 Mbit/s (9.500 to 10.50), and the \
                        link delivers a train as this path does";
        assert_eq!(found.evidence, expected);
    }

    #[test]
    fn a_light_load_that_does_not_differ_is_told_from_one_that_was_not_shown() {
        let same = row(200, Estimate::within(9e6, 1e6), false);
        assert_eq!(same.estimate, None);
        assert_eq!(same.word.as_deref(), Some("as the full load"));
        let expected = "the median of 200 trains of 10 packets on the idle path is 9.000 Mbit/s (8.000 to 10.00), and that of \
                        the full load 10.00 Mbit/s (9.500 to 10.50): no difference beyond chance and beyond a fifth was found";
        assert_eq!(same.evidence, expected);
        let similar = row(200, Estimate::with_known(4e6, None), false);
        let expected = "4.000 Mbit/s (too few independent samples for an interval)";
        assert!(similar.evidence.contains(expected), "{similar:?}");
        let few = row(19, Estimate::within(4e6, 1e5), false);
        assert_eq!(few.word.as_deref(), Some(NOT_LEARNT));
        let expected = "only 19 trains of 10 packets on the idle path arrived complete, and at least 20 are needed";
        assert_eq!(few.evidence, expected);
    }
}
