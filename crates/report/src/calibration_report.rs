//! The report of a calibration, for the terminal and as Markdown.

use std::fmt::Write;

use super::findings::{machine, quick};
use super::interval::in_words;
use super::render::{escaped, table_markdown};
use super::terminal::{Terminal, prose, table_text};
use crate::analysis::baselines::changes;
use crate::analysis::calibration::{
    CalibrationCell, CalibrationReport, CellConditions, CellStatus, FigureCalibration,
    InstrumentCalibration, Range,
};
use crate::distinct;
use crate::figure_tables::or_dash;
use record::quantity;
use record::quantity::counted;
use record::table::{Column, Table};
use record::{Direction, Metric, Statistic};

/// Title of the table of [`found`].
const FOUND: &str =
    "capacity that each instrument measures, in percent of the line's capacity at L2";

/// Explanation of the report's words.
const LEGEND: &str = "a cell is a figure under one set of conditions; the truth is the value from the emulator's packet log; holds: number of \
                      cells whose 95 % intervals contain the truth; trusted: number of these that also deviate by at most 1 % of the \
                      truth, or by 0.1 ms for a delay and 0.1 points for a loss where that is at most a tenth of the truth; within: the \
                      range of each condition among the trusted cells; RTT: propagation in both directions; take this as advice: of a \
                      hundred cells with this few runs, some miss by chance";

/// Formats the report for a terminal: the summary of each instrument, and every untrusted cell with its cause.
pub fn calibration_text(report: &CalibrationReport, terminal: Terminal) -> String {
    let mut text = prose(&title(report), terminal);
    let lines = machine(&report.baselines).into_iter();
    for line in lines.chain(changes(&report.baselines)) {
        text += &prose(&line, terminal);
    }
    for instrument in &report.instruments {
        text += &format!("\n{}", table_text(&summary(instrument), terminal));
        for line in exceptions(instrument) {
            text += &prose(&format!("- {line}"), terminal);
        }
    }
    if let Some(table) = found(report) {
        text += &format!("\n{}", table_text(&table, terminal));
    }
    if let Some(line) = not_run(report) {
        text += &format!("\n{}", prose(&line, terminal));
    }
    text + "\n" + &prose(LEGEND, terminal) + &prose(&verdict(report), terminal)
}

/// Formats the report as Markdown, with every cell.
pub fn calibration_markdown(report: &CalibrationReport) -> String {
    let (title, verdict) = (title(report), verdict(report));
    let mut text = format!("# {}\n\n**{}**\n", escaped(&title), escaped(&verdict));
    let lines = machine(&report.baselines).into_iter();
    for line in lines.chain(changes(&report.baselines)) {
        text += &format!("\n{}\n", escaped(&line));
    }
    if let Some(line) = not_run(report) {
        text += &format!("\n{}\n", escaped(&line));
    }
    text += &format!("\n{LEGEND}.\n");
    for instrument in &report.instruments {
        text += &format!("\n{}\n", table_markdown(&summary(instrument)));
        for line in exceptions(instrument) {
            text += &format!("- {}\n", escaped(&line));
        }
        text += &format!("\n{}", table_markdown(&every_cell(instrument)));
    }
    if let Some(table) = found(report) {
        text += &format!("\n{}", table_markdown(&table));
    }
    text
}

fn every_cell(report: &InstrumentCalibration) -> Table {
    let names = ["case", "figure"].into_iter().map(Column::words);
    let numbers = [
        "truth",
        "value",
        "95 % in a run",
        "deviation",
        "spread",
        "interval score",
        "of the line",
        "covered",
    ];
    let columns = names.chain(numbers.map(Column::numbers));
    let cells = report.figures.iter().flat_map(|figure| &figure.cells);
    Table::new("", columns.chain([Column::words("")])).with(cells.map(cell_row))
}

fn title(report: &CalibrationReport) -> String {
    format!("{}{}", report.title, quick(report.quick))
}

/// Returns the verdict on the whole calibration in one sentence.
fn verdict(report: &CalibrationReport) -> String {
    let short: Vec<&str> = report
        .instruments
        .iter()
        .filter(|instrument| !instrument.is_met())
        .map(|instrument| instrument.instrument.as_str())
        .collect();
    match (
        report.finished,
        report.instruments.is_empty(),
        short.as_slice(),
    ) {
        (false, ..) => "unfinished: cells are missing".to_owned(),
        (_, true, _) => "no figure was compared with a truth".to_owned(),
        (_, _, []) => {
            "the intervals of every instrument contain the truth in at least 90 % of its cells"
                .to_owned()
        }
        (_, _, short) => format!("below 90 %: {}", short.join(", ")),
    }
}

/// Returns how much of an interrupted calibration has not run.
fn not_run(report: &CalibrationReport) -> Option<String> {
    let (count, planned) = (report.not_run.len(), report.planned);
    (count > 0).then(|| format!("not run: {count} of {planned} cases, which are not counted above"))
}

/// Formats the coverage, as in "tcp: intervals contain the truth in 19 of 20 cells".
fn coverage(report: &InstrumentCalibration) -> String {
    let count = |standing| {
        let cells = report.figures.iter().flat_map(|figure| &figure.cells);
        cells.filter(|cell| cell.standing == standing).count()
    };
    let mut text = format!(
        "{}: intervals contain the truth in {} of {}",
        report.instrument,
        report.held,
        counted(report.judged, "cell")
    );
    for (standing, what) in [
        (CellStatus::NoInterval, "without an interval"),
        (CellStatus::NoTruth, "without a truth"),
    ] {
        let others = count(standing);
        if others > 0 {
            let _ = write!(text, ", {others} more {what}");
        }
    }
    text
}

fn summary(report: &InstrumentCalibration) -> Table {
    let (words, numbers) = (Column::words, Column::numbers);
    let columns = [
        words("figure"),
        numbers("holds"),
        numbers("trusted"),
        words("within"),
        numbers("greatest deviation"),
    ];
    Table::new(coverage(report), columns).with(report.figures.iter().map(summary_row))
}

/// Returns the share of a line's capacity that each instrument finds, with a row for each line; `None` if no line was
/// filled.
fn found(report: &CalibrationReport) -> Option<Table> {
    let figures = report.instruments.iter().flat_map(|i| &i.figures);
    let cells: Vec<(&CalibrationCell, f64)> = figures
        .flat_map(|figure| &figure.cells)
        .filter_map(|cell| Some((cell, cell.line_percent?)))
        .collect();
    let names = cells
        .iter()
        .map(|(cell, _)| cell.figure.instrument.as_str());
    let (instruments, lines) = (
        distinct(names),
        distinct(cells.iter().map(|(cell, _)| cell.conditions)),
    );
    let columns = instruments.iter().copied().map(Column::numbers);
    let mut table = Table::new(FOUND, std::iter::once(Column::words("line")).chain(columns));
    for line in &lines {
        let of = |instrument: &&str| {
            let mut own = cells.iter().filter(|(cell, _)| {
                cell.conditions == *line && cell.figure.instrument == *instrument
            });
            or_dash(own.next().map(|(_, share)| format!("{share:.1}")))
        };
        table.push(std::iter::once(conditions(line)).chain(instruments.iter().map(of)));
    }
    (!lines.is_empty()).then_some(table)
}

/// Formats the conditions of a line.
fn conditions(line: &CellConditions) -> String {
    format!(
        "{}{}, RTT {} ms, loss {} %",
        line.rate_bit_per_s.map_or("no rate".to_owned(), rate),
        if line.tbf { " (tbf)" } else { "" },
        plain(line.rtt_ms),
        plain(line.loss_percent)
    )
}

fn summary_row(figure: &FigureCalibration) -> [String; 5] {
    [
        subject(figure.metric, figure.statistic, figure.direction),
        format!("{} of {}", figure.held, figure.judged),
        format!("{} of {}", figure.trusted, figure.cells.len()),
        or_dash(figure.range.as_ref().map(range)),
        or_dash(worst(figure)),
    ]
}

/// Formats a range: "1 Mbit/s to 1 Gbit/s and without a rate, RTT 0.1 to 300 ms, loss 0 to 5 %".
fn range(range: &Range) -> String {
    let rate = match (range.rate_bit_per_s, range.unlimited) {
        (None, _) => "without a rate".to_owned(),
        (Some(ends), false) => span(ends, rate),
        (Some(ends), true) => span(ends, rate) + " and without a rate",
    };
    format!(
        "{rate}, RTT {} ms, loss {} %",
        span(range.rtt_ms, plain),
        span(range.loss_percent, plain)
    )
}

fn span([low, high]: [f64; 2], shown: impl Fn(f64) -> String) -> String {
    if low < high {
        format!("{} to {}", shown(low), shown(high))
    } else {
        shown(low)
    }
}

/// Formats a number as conditions write it, without meaningless digits.
fn plain(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// Formats a rate in the same way.
fn rate(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e9 => (v / 1e9, "Gbit/s"),
        v if v >= 1e6 => (v / 1e6, "Mbit/s"),
        v => (v / 1e3, "kbit/s"),
    };
    format!("{} {unit}", plain(value))
}

/// Returns every untrusted cell with its cause. Cells that hold but deviate for the same cause share a line.
fn exceptions(report: &InstrumentCalibration) -> Vec<String> {
    let cells = report
        .figures
        .iter()
        .flat_map(|figure| &figure.cells)
        .filter(|cell| !cell.is_trusted());
    let (deviating, others): (Vec<&CalibrationCell>, Vec<&CalibrationCell>) =
        cells.partition(|cell| cell.standing == CellStatus::Holds);
    let mut lines: Vec<String> = others.into_iter().map(exception).collect();
    let mut groups: Vec<(String, &str, Vec<&CalibrationCell>)> = Vec::new();
    for cell in deviating {
        let (of, cause) = (figure_of(cell), cell.cause.as_deref().unwrap_or_default());
        match groups
            .iter_mut()
            .find(|group| group.0 == of && group.1 == cause)
        {
            Some((.., cells)) => cells.push(cell),
            None => groups.push((of, cause, vec![cell])),
        }
    }
    lines.extend(
        groups
            .iter()
            .map(|(of, cause, cells)| deviations(of, cause, cells)),
    );
    lines
}

fn exception(cell: &CalibrationCell) -> String {
    let stands = match cell.standing {
        CellStatus::Holds | CellStatus::Misses => "misses",
        CellStatus::NoInterval => "no interval",
        CellStatus::NoTruth => "no truth",
    };
    let values = cell.truth.zip(cell.value).map(|(truth, value)| {
        let shown = |value| quantity(cell.figure.metric, value);
        format!(" {} instead of {},", shown(value), shown(truth))
    });
    format!(
        "{stands}: {}: {}:{} {}",
        cell.case,
        figure_of(cell),
        values.unwrap_or_default(),
        cell.cause.as_deref().unwrap_or_default()
    )
}

/// Formats the cells that hold but deviate for one cause, the worst first.
fn deviations(of: &str, cause: &str, cells: &[&CalibrationCell]) -> String {
    let mut cells: Vec<(f64, &CalibrationCell)> = cells
        .iter()
        .map(|cell| (cell.deviation().unwrap_or(0.0), *cell))
        .collect();
    cells.sort_by(|a, b| b.0.total_cmp(&a.0));
    let each: Vec<String> = cells
        .iter()
        .map(|(by, cell)| {
            let percent = 100.0 * by / cell.truth.unwrap_or(f64::NAN);
            format!(
                "{} by {} ({percent:.1} %)",
                cell.case,
                quantity(cell.figure.metric, *by)
            )
        })
        .collect();
    format!("deviates: {of}: {cause}: {}", each.join(", "))
}

fn figure_of(cell: &CalibrationCell) -> String {
    let name = &cell.figure;
    subject(name.metric, name.statistic, name.direction)
}

/// Formats a metric, statistic and direction: "goodput mean up".
fn subject(metric: Metric, statistic: Statistic, direction: Option<Direction>) -> String {
    let direction = direction.map_or("", Direction::name);
    let text = format!("{} {} {direction}", metric.title(), statistic.name());
    text.trim_end().to_owned()
}

/// Formats the greatest deviation of the trusted cells, in percent for a rate and in the metric's unit otherwise.
fn worst(figure: &FigureCalibration) -> Option<String> {
    let worst = figure.worst?;
    Some(match (figure.metric.unit(), figure.worst_percent) {
        ("bit/s", Some(percent)) => format!("{percent:.2} %"),
        ("%", _) => format!("{worst:.3} points"),
        (unit, _) => format!("{worst:.3} {unit}"),
    })
}

fn cell_row(cell: &CalibrationCell) -> [String; 11] {
    let metric = cell.figure.metric;
    let shown = |value: Option<f64>| or_dash(value.map(|value| quantity(metric, value)));
    let interval = cell.value.zip(cell.interval);
    let interval = or_dash(interval.map(|(value, ends)| in_words(metric, value, ends)[1].clone()));
    [
        cell.case.clone(),
        figure_of(cell),
        shown(cell.truth),
        shown(cell.value),
        interval,
        shown(cell.bias),
        shown(cell.spread),
        shown(cell.score),
        or_dash(cell.line_percent.map(|share| format!("{share:.1} %"))),
        format!("{} of {}", cell.covered, cell.runs),
        match cell.standing {
            CellStatus::Holds if cell.is_trusted() => "trusted",
            CellStatus::Holds => "holds",
            CellStatus::Misses => "misses",
            CellStatus::NoInterval => "no interval",
            CellStatus::NoTruth => "no truth",
        }
        .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::calibration::tests::{measured, rtt};

    #[test]
    fn a_cell_that_misses_is_named_with_truth_value_and_cause() {
        let text = calibration_text(
            &CalibrationReport::of(&measured(&[rtt(25.0, 0.1)])),
            Terminal::NONE,
        )
        .replace("\n  ", " ");
        for part in [
            "ping: intervals contain the truth in 0 of 1 cell",
            "misses: line: ping: rtt median: 25.00 ms instead of 24.00 ms, outside by 0.900 ms",
            "below 90 %: ping",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn cases_that_did_not_run_are_one_line_and_in_no_sum() {
        let mut record = measured(&[rtt(24.05, 0.1)]);
        record.finished_at = None;
        let planned = record.plan().cases.len();
        record.runs.retain(|run| run.case == "line: ping");
        let report = CalibrationReport::of(&record);
        let line = format!("not run: {} of {planned} cases", planned - 1);
        for text in [
            calibration_text(&report, Terminal::NONE),
            calibration_markdown(&report),
        ] {
            assert_eq!(text.matches(&line).count(), 1, "{text}");
            assert!(!text.contains("no truth"), "{text}");
            assert!(
                text.contains("ping: intervals contain the truth in 1 of 1 cell"),
                "{text}"
            );
            assert!(!text.contains("tcp"), "{text}");
        }
        record.finished_at = Some(String::new());
        let whole = calibration_text(&CalibrationReport::of(&record), Terminal::NONE);
        assert!(!whole.contains("not run"), "{whole}");
    }

    #[test]
    fn the_markdown_has_every_cell_in_tables_as_wide_as_their_headers() {
        let text = calibration_markdown(&CalibrationReport::of(&measured(&[rtt(24.05, 0.1)])));
        assert!(
            text.contains("| line: ping | rtt median | 24.00 ms |"),
            "{text}"
        );
        assert!(text.contains("8 Mbit/s, RTT 22 ms, loss 1 %"), "{text}");
        let mut width = 0;
        for line in text.lines() {
            let cells = line.matches('|').count();
            if line.starts_with('|') && width > 0 {
                assert_eq!(cells, width, "{line}");
            }
            width = if line.starts_with('|') { cells } else { 0 };
        }
    }
}
