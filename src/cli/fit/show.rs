//! The result of a fit as tables and as JSON.

use conditions::Direction;
use fit::{
    BurstComparison, Comparison, DelayComparison, Distance, Estimate, HOST_MS, IntervalKind,
    LossComparison, Parameter, ThroughputComparison,
};
use record::quantity::number;
use record::table::{Column, Table};
use report::{PageDrawing, PlainPage, Terminal, prose, table_text};
use serde::Serialize;

/// The result of a fit.
#[derive(Debug, Serialize)]
pub(super) struct FitResult {
    /// The far end, or the files, that were fitted.
    pub(super) sources: Vec<String>,
    /// The file of the link with which the path was compared in place of a fitted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against: Option<String>,
    /// The day of the fit.
    pub(super) date: String,
    /// The fitted parameters.
    pub(super) parameters: Vec<Parameter>,
    /// The parameters that could not be learnt, each with its reason.
    pub(super) lacks: Vec<String>,
    /// The packets that were held out of the fit, if some were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) held_out: Option<String>,
    /// The comparison of the path with the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) comparison: Option<Comparison>,
    /// The reason why nothing was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_compared: Option<String>,
    /// The reason why only the idle path was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loads_not_compared: Option<String>,
    /// The reasons why the measurements may not describe the path or the link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) doubts: Vec<String>,
    /// The text of the file of conditions.
    pub(super) link: String,
}

impl FitResult {
    /// Returns the tables, and what they mean in a sentence.
    pub(super) fn text(&self, terminal: Terminal) -> String {
        let mut text = table_text(&parameters(&self.parameters), terminal);
        for lack in &self.lacks {
            text += &prose(&format!("not learnt: {lack}"), terminal);
        }
        if let Some(held_out) = &self.held_out {
            text += &prose(&format!("held out: {held_out}"), terminal);
        }
        if let Some(cause) = &self.not_compared {
            text += &prose(&format!("not compared with the path: {cause}"), terminal);
        }
        if let Some(found) = &self.comparison {
            for table in tables(found) {
                text += &table_text(&table, terminal);
            }
            text += &prose(&found.statement, terminal);
        }
        if let Some(cause) = &self.loads_not_compared {
            text += &prose(
                &format!("loads were not compared with those of the path: {cause}"),
                terminal,
            );
        }
        for doubt in &self.doubts {
            text += &prose(&format!("warning: {doubt}"), terminal);
        }
        text
    }

    /// Returns a page with these drawings, and the same tables and sentences.
    pub(super) fn page(&self, drawings: Vec<PageDrawing>) -> PlainPage {
        let statement = self.comparison.iter().map(|found| found.statement.clone());
        let held_out = self.held_out.iter();
        let held_out = held_out.map(|held_out| format!("Held out: {held_out}."));
        let not_compared = self.not_compared.iter();
        let not_compared =
            not_compared.map(|cause| format!("Not compared with the path: {cause}."));
        let loads = self.loads_not_compared.iter();
        let loads =
            loads.map(|cause| format!("Loads were not compared with those of the path: {cause}."));
        let doubts = self.doubts.iter().map(|doubt| format!("Warning: {doubt}."));
        let lacks = self.lacks.iter().map(|lack| format!("Not learnt: {lack}."));
        let compared = self.comparison.iter().flat_map(tables);
        PlainPage {
            title: self.title(),
            sentences: statement
                .chain(held_out)
                .chain(not_compared)
                .chain(loads)
                .chain(doubts)
                .chain(lacks)
                .collect(),
            drawings,
            tables: [parameters(&self.parameters)]
                .into_iter()
                .chain(compared)
                .filter(|table| !table.rows.is_empty())
                .collect(),
        }
    }

    fn title(&self) -> String {
        let (sources, date) = (self.sources.join(", "), &self.date);
        match &self.against {
            None => format!("A link fitted to {sources} on {date}"),
            Some(link) => format!("{link} compared with the path to {sources} on {date}"),
        }
    }
}

fn parameters(all: &[Parameter]) -> Table {
    let of_sessions = all
        .iter()
        .any(|one| one.interval_kind == IntervalKind::OfSessions);
    let interval = match of_sessions {
        true => "range of the sessions' intervals",
        false => "95 % interval",
    };
    let columns = [
        Column::words("direction"),
        Column::words("parameter"),
        Column::words("value"),
        Column::words(interval),
        Column::words("evidence"),
    ];
    let row = |one: &Parameter| {
        let with_unit = |value: f64| format!("{} {}", number(value), one.unit).trim().to_owned();
        let range = |[low, high]: [f64; 2]| format!("{} to {}", number(low), number(high));
        let interval =
            one.estimate.map(
                |estimate| match (estimate.known_interval(), one.interval_kind) {
                    (None, _) => "too few samples".to_owned(),
                    (Some(ends), IntervalKind::NineOfTen) => {
                        format!("nine of ten windows: {}", range(ends))
                    }
                    (Some(ends), IntervalKind::Bounds) => {
                        format!("has passed, may pass: {}", range(ends))
                    }
                    (Some(ends), IntervalKind::OfValue | IntervalKind::OfSessions) => range(ends),
                },
            );
        let spread = one
            .sessions
            .map(|spread| format!("; sessions: {}", range(spread)));
        let value = one.estimate.map(|estimate| with_unit(estimate.value));
        [
            one.direction.map_or("both", Direction::name).to_owned(),
            one.name.to_owned(),
            value.or_else(|| one.word.clone()).unwrap_or_default(),
            interval.unwrap_or_default(),
            one.evidence.clone() + &spread.unwrap_or_default(),
        ]
    };
    Table::new("", columns).with(all.iter().map(row))
}

/// Returns the tables of a comparison.
fn tables(found: &Comparison) -> [Table; 5] {
    [
        delays(&found.delays),
        bursts(&found.bursts),
        distances(&found.delays, &found.bursts),
        throughput(&found.throughput),
        losses(&found.losses),
    ]
}

fn delays(all: &[DelayComparison]) -> Table {
    let row = |one: &DelayComparison| {
        let pairs = [one.p50_ms, one.p95_ms];
        percentiles(phase(one), pairs, one.errors_percent())
    };
    Table::new("", percentile_columns("delays")).with(all.iter().map(row))
}

/// Returns the table of the times from the first to the last arrival of each train on the idle path.
fn bursts(all: &[BurstComparison]) -> Table {
    let row = |one: &BurstComparison| {
        let name = one.direction.name().to_owned();
        percentiles(name, [one.p50_ms, one.p95_ms], one.errors_percent())
    };
    let columns = percentile_columns("bursts, idle: first\nto last arrival");
    Table::new("", columns).with(all.iter().map(row))
}

/// Returns the columns of a table of percentiles, the first one with this title.
fn percentile_columns(first: &str) -> [Column; 7] {
    [
        Column::words(first),
        Column::numbers("path p50\nms"),
        Column::numbers("link p50\nms"),
        Column::numbers("differs\n%"),
        Column::numbers("path p95\nms"),
        Column::numbers("link p95\nms"),
        Column::numbers("differs\n%"),
    ]
}

/// Returns a row with the medians and the 95th percentiles of the path and of the link, and the error of each in percent,
/// which is `None` for a difference below [`HOST_MS`].
fn percentiles(name: String, [p50, p95]: [[f64; 2]; 2], errors: [Option<f64>; 2]) -> [String; 7] {
    let [path_p50, link_p50] = p50.map(number);
    let [path_p95, link_p95] = p95.map(number);
    let [of_p50, of_p95] = errors.map(|error| match error {
        Some(error) => format!("{error:.1}"),
        None => format!("< {HOST_MS} ms"),
    });
    [name, path_p50, link_p50, of_p50, path_p95, link_p95, of_p95]
}

fn distances(delays: &[DelayComparison], bursts: &[BurstComparison]) -> Table {
    let columns = [
        Column::words("distances of\nthe delays"),
        Column::words("Kolmogorov-\nSmirnov"),
        Column::numbers("halves of\nthe path"),
        Column::words("Wasserstein\nms"),
        Column::numbers("halves of\nthe path, ms"),
    ];
    let with_interval = |one: Estimate| {
        let [low, high] = one.interval;
        format!(
            "{} ({} to {})",
            number(one.value),
            number(low),
            number(high)
        )
    };
    let row = |name: String, distance: &Distance, path_halves: [f64; 2]| {
        let [kolmogorov_smirnov, wasserstein] = path_halves.map(number);
        [
            name,
            with_interval(distance.kolmogorov_smirnov),
            kolmogorov_smirnov,
            with_interval(distance.wasserstein),
            wasserstein,
        ]
    };
    let delays = delays
        .iter()
        .map(|one| row(phase(one), &one.distance, one.path_halves));
    let bursts = bursts.iter().map(|one| {
        let name = format!("bursts, {}", one.direction.name());
        row(name, &one.distance, one.path_halves)
    });
    Table::new("", columns).with(delays.chain(bursts))
}

/// Returns the name of the phase for people, and what was measured in it.
fn phase(one: &DelayComparison) -> String {
    let what = one.direction.map_or("round trips", Direction::name);
    format!("{}, {what}", one.phase.name().replace('_', " "))
}

fn throughput(all: &[ThroughputComparison]) -> Table {
    let columns = [
        Column::words("throughput"),
        Column::words("direction"),
        Column::numbers("path\nMbit/s"),
        Column::numbers("link\nMbit/s"),
        Column::numbers("differs\n%"),
    ];
    let row = |one: &ThroughputComparison| {
        let [path, link] = one.bit_per_s.map(|rate| number(rate / 1e6));
        [
            one.phase.name().replace('_', " "),
            one.direction.name().to_owned(),
            path,
            link,
            format!("{:.1}", one.error_percent()),
        ]
    };
    Table::new("", columns).with(all.iter().map(row))
}

fn losses(all: &[LossComparison]) -> Table {
    let columns = [
        Column::words("loss, idle"),
        Column::numbers("path\n%"),
        Column::numbers("link\n%"),
        Column::numbers("no chance from\n% of packets"),
        Column::numbers("differs\n%"),
        Column::numbers("path, losses\nin a run"),
        Column::numbers("link, losses\nin a run"),
    ];
    let row = |one: &LossComparison| {
        let [path, link] = one.percent.map(number);
        let way = one.direction.map_or("round trips", Direction::name);
        let runs = one.runs.map(|runs| runs.packets.map(number));
        let [path_run, link_run] = runs.unwrap_or_default();
        [
            way.to_owned(),
            path,
            link,
            number(one.least_difference),
            format!("{:.1}", one.error_percent()),
            path_run,
            link_run,
        ]
    };
    Table::new("", columns).with(all.iter().map(row))
}

#[cfg(test)]
mod tests {
    use record::{Measurement, Metric, Phase, Sample};

    use super::*;

    #[test]
    fn a_row_of_delays_says_whether_they_are_round_trips_or_of_a_direction() {
        let names = |metric, direction| {
            let samples = (0..30_u32).map(|number| Sample {
                phase: Some(Phase::Idle),
                direction,
                ..Sample::new(f64::from(number), metric, number.into(), 20.0)
            });
            let measured = Measurement {
                samples: samples.collect(),
                ..Measurement::default()
            };
            let [delays, ..] = tables(&Comparison::of(&measured, &measured));
            delays
                .rows
                .iter()
                .map(|row| row[0].text.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(Metric::RttMs, None), ["idle, round trips"]);
        let up = names(Metric::OneWayDelayMs, Some(Direction::Up));
        assert_eq!(up, ["idle, up"]);
    }

    #[test]
    fn bursts_have_a_row_for_their_direction_in_both_tables() {
        let packets = (0..300_u32).map(|packet| {
            let (train, place) = (packet / 10, packet % 10);
            let arrival = Sample::new(train.into(), Metric::InTrainMs, train.into(), place.into());
            Sample {
                phase: Some(Phase::Idle),
                ..arrival.toward(Direction::Down)
            }
        });
        let measured = Measurement {
            samples: packets.collect(),
            ..Measurement::default()
        };
        let [_, bursts, distances, ..] = tables(&Comparison::of(&measured, &measured));
        let texts = |table: &Table| -> Vec<Vec<String>> {
            let rows = table.rows.iter();
            rows.map(|row| row.iter().map(|cell| cell.text.clone()).collect())
                .collect()
        };
        let spread = number(9.0);
        let of_both = [spread.as_str(), spread.as_str(), "< 0.3 ms"];
        assert_eq!(
            texts(&bursts),
            [[&["down"][..], &of_both, &of_both].concat()]
        );
        assert_eq!(texts(&distances)[0][0], "bursts, down");
    }
}
