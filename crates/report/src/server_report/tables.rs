//! The report of a far end's log as text, Markdown and CSV.

use std::io::{self, Write};

use record::quantity::{counted, number, optional, scale_for, scope, size};
use record::table::{Column, Table};
use record::{Direction, Figure, Metric, Phase, Statistic};

use super::opening::sentences;
use super::{FigureAverage, ServerReport, Spread, TestGroup};
use crate::formats::csv::no_formula;
use crate::render::{escaped, table_markdown};
use crate::terminal::{Terminal, prose, table_text};

/// The number of rows of a table of clients or hours without `--details`.
const ROWS: usize = 20;
/// A note on how to read the table of averages.
const AVERAGES_NOTE: &str = "mean, standard deviation, least and greatest value over the tests that state the figure; the figures are \
                             those of the far end";
/// A note on how to read the tables of groups.
const GROUPS_NOTE: &str = "time: mean duration; received and sent: payload in total; up and down: mean of payload over time";

/// Formats the report within the width of the terminal. Without `details`, long tables are cut.
pub fn server_text(report: &ServerReport, details: bool, terminal: Terminal) -> String {
    let mut text = prose(&sentences(report).join("\n"), terminal);
    for table in tables(report, details) {
        text += &format!("\n{}", table_text(&table, terminal));
    }
    let remarks = remarks(report).join("\n");
    if !remarks.is_empty() {
        text += &format!("\n{}", prose(&remarks, terminal));
    }
    text
}

/// Formats the report as Markdown with GitHub's tables.
pub fn server_markdown(report: &ServerReport) -> String {
    let mut text = format!(
        "# The tests of a far end\n\n{}\n",
        escaped(&sentences(report).join(" "))
    );
    for table in tables(report, true) {
        text += &format!("\n{}", table_markdown(&table));
    }
    for remark in remarks(report) {
        text += &format!("\n- {}\n", escaped(&remark));
    }
    text
}

/// Writes every average as a line of CSV (RFC 4180).
///
/// # Errors
/// Those of writing to `target`.
pub fn server_csv(report: &ServerReport, target: &mut dyn Write) -> io::Result<()> {
    write_lines(report, target).map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

const CSV_HEADER: [&str; 14] = [
    "by",
    "of",
    "name",
    "test",
    "metric",
    "statistic",
    "direction",
    "phase",
    "size",
    "count",
    "mean",
    "sd",
    "min",
    "max",
];

fn write_lines(report: &ServerReport, target: &mut dyn Write) -> csv::Result<()> {
    let mut writer = csv::Writer::from_writer(target);
    writer.write_record(CSV_HEADER)?;
    let all = [
        ("test", &report.kinds),
        ("client", &report.clients),
        ("hour", &report.hours),
    ];
    for (by, groups) in all {
        for group in groups {
            let name = group.name.as_deref().unwrap_or_default();
            let names = [group.of.as_str(), name, group.test.as_str()];
            let names = names.map(|name| no_formula(name).into_owned());
            let figures = group.averages.iter().map(|average| {
                let scope = [
                    average.metric.name(),
                    average.statistic.name(),
                    average.direction.map_or("", Direction::name),
                    average.phase.map_or("", Phase::name),
                ];
                (scope, average.size, average.spread)
            });
            let duration = (["duration_s", "total", "", ""], None, group.duration_s);
            let of_reads = |spread| (["read_mib_per_s", "mean", "up", ""], None, spread);
            let reads = group.read_mib_per_s.map(of_reads);
            let all = std::iter::once(duration).chain(figures).chain(reads);
            for (scope, size, spread) in all {
                let mut row = vec![by.to_owned()];
                row.extend(names.iter().cloned());
                row.extend(scope.map(str::to_owned));
                row.push(size.map(|size| size.to_string()).unwrap_or_default());
                row.push(spread.count.to_string());
                row.push(spread.mean.to_string());
                row.push(spread.sd.map(|sd| sd.to_string()).unwrap_or_default());
                row.extend([spread.min, spread.max].map(|value| value.to_string()));
                writer.write_record(row)?;
            }
        }
    }
    writer.flush()?;
    Ok(())
}

/// Returns what the tables do not contain.
pub(super) fn remarks(report: &ServerReport) -> Vec<String> {
    let lines = |count| counted(count, "line");
    let counts = [
        (
            report.lost_lines,
            format!(
                "the log lacks {} that nobody read in time",
                lines(report.lost_lines)
            ),
        ),
        (
            report.unreadable_lines,
            format!(
                "{} could not be read: they are cut off, or do not belong to the log of a far end",
                lines(report.unreadable_lines)
            ),
        ),
        (
            report.figures_left_out,
            format!(
                "{} are in no average, because the log has more different figures than report can keep",
                counted(report.figures_left_out, "figure")
            ),
        ),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(_, remark)| remark).collect()
}

/// Returns the tables: a summary by kind, the averages of each kind, the clients, the hours and the refusals.
pub(super) fn tables(report: &ServerReport, details: bool) -> Vec<Table> {
    let mut tables = Vec::new();
    if !report.kinds.is_empty() {
        tables.push(groups("tests by kind", None, &report.kinds, details));
        tables.extend(report.kinds.iter().filter_map(averages));
        tables.push(groups(
            "by client",
            Some("client"),
            &report.clients,
            details,
        ));
        tables.push(groups(
            "by hour (UTC)",
            Some("hour"),
            &report.hours,
            details,
        ));
    }
    if !report.refusals.is_empty() {
        let columns = [
            Column::words("protocol"),
            Column::words("cause"),
            Column::numbers("refusals"),
        ];
        let rows = report.refusals.iter();
        let rows = rows.map(|of| [of.protocol.clone(), of.cause.clone(), of.count.to_string()]);
        tables.push(Table::new("refusals", columns).with(rows));
    }
    tables
}

/// Returns a table with a row for each group, whose first column has this title.
fn groups(title: &str, first: Option<&str>, groups: &[TestGroup], details: bool) -> Table {
    let mut columns: Vec<Column> = first.map(Column::words).into_iter().collect();
    columns.push(Column::words("test"));
    let numbers = [
        "tests",
        "failed",
        "time\ns",
        "received",
        "sent",
        "up\nMbit/s",
        "down\nMbit/s",
        "lost\n%",
    ];
    columns.extend(numbers.map(Column::numbers));
    let shown = if details {
        groups.len()
    } else {
        groups.len().min(ROWS)
    };
    // The last hours are of more interest than the first ones.
    let is_by_hour = first == Some("hour");
    let rows = if is_by_hour {
        &groups[groups.len() - shown..]
    } else {
        &groups[..shown]
    };
    let mut table = Table::new(title, columns).with(rows.iter().map(|group| {
        let mut cells: Vec<String> = first.map(|_| group.label()).into_iter().collect();
        cells.extend(group_cells(group));
        cells
    }));
    table.note = match (groups.len() - shown, is_by_hour) {
        (0, _) => GROUPS_NOTE.to_owned(),
        (more, true) => format!("{GROUPS_NOTE}; {more} earlier rows: use --details"),
        (more, false) => format!("{GROUPS_NOTE}; {more} more rows: use --details"),
    };
    table
}

fn group_cells(group: &TestGroup) -> [String; 9] {
    let rate = |spread: Option<Spread>| optional(spread.map(|of| of.mean / 1e6), 2);
    let payload = |bytes: f64| match bytes {
        bytes if bytes > 0.0 => size(whole(bytes)),
        _ => "–".to_owned(),
    };
    [
        group.test.clone(),
        group.tests.to_string(),
        group.failed.to_string(),
        number(group.duration_s.mean),
        payload(group.received_bytes),
        payload(group.sent_bytes),
        rate(group.up_bit_per_s),
        rate(group.down_bit_per_s),
        optional(lost_percent(group), 3),
    ]
}

/// Returns the mean share of lost packets: that of the tests, or of all probes together.
fn lost_percent(group: &TestGroup) -> Option<f64> {
    let mean = |metric, statistic| {
        let mut averages = group.averages.iter();
        let is_it = |one: &&FigureAverage| (one.metric, one.statistic) == (metric, statistic);
        averages.find(is_it).map(|one| one.spread.mean)
    };
    mean(Metric::LostPercent, Statistic::Mean).or_else(|| {
        let sent = mean(Metric::SentPackets, Statistic::Total)?;
        let received = mean(Metric::ReceivedPackets, Statistic::Total)?;
        (sent > 0.0).then(|| (100.0 * (sent - received) / sent).max(0.0))
    })
}

/// Returns the table of all averages of a kind; `None` if its tests state no figure.
fn averages(kind: &TestGroup) -> Option<Table> {
    let numbers = ["tests", "mean", "sd", "least", "greatest"].map(Column::numbers);
    let mut columns = vec![Column::words("figure"), Column::words("unit")];
    columns.extend(numbers);
    let title = format!(
        "{}: averages over {}",
        kind.test,
        counted(kind.tests, "test")
    );
    let row = |name: String, (by, unit): (f64, &str), spread: Spread| {
        let shown = |value: f64| number(value / by);
        [
            name,
            unit.to_owned(),
            spread.count.to_string(),
            shown(spread.mean),
            spread.sd.map_or_else(|| "–".to_owned(), shown),
            shown(spread.min),
            shown(spread.max),
        ]
    };
    let of_figure = |average: &FigureAverage| {
        let scale = scale_for(average.metric, average.spread.max);
        row(name(average), scale, average.spread)
    };
    let of_reads = |spread| {
        row(
            "up payload per time within reads".to_owned(),
            (1.0, "MiB/s"),
            spread,
        )
    };
    let rows = kind.averages.iter().map(of_figure);
    let rows = rows.chain(kind.read_mib_per_s.map(of_reads));
    let mut table = Table::new(title, columns).with(rows);
    table.note = AVERAGES_NOTE.to_owned();
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the name of an average: "up 8192 bytes read size mean".
fn name(average: &FigureAverage) -> String {
    let figure = Figure {
        direction: average.direction,
        phase: average.phase,
        size: average.size,
        ..Figure::new(average.metric, average.statistic, average.spread.mean)
    };
    let mut words = scope(&figure);
    words.push(average.metric.title());
    if average.statistic != Statistic::Total {
        words.push(average.statistic.name().to_owned());
    }
    words.join(" ")
}

/// Returns a number of bytes, of which 2^63 are more than any log has.
fn whole(bytes: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is neither negative nor larger than 2^63"
    )]
    let whole = bytes.clamp(0.0, 9e18) as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tests that failed or not, a refusal and a lost line.
    const LOG: &str = concat!(
        r#"{"ended_at":"2026-11-26T10:00:01.000Z","test":"transfer","peer":"192.0.2.1:9","peer_name":"=lestrade3","duration_s":12.1,"#,
        r#""figures":[{"metric":"received_bytes","statistic":"total","value":7140343.0,"direction":"up","size":8192},"#,
        r#"{"metric":"goodput_bit_per_s","statistic":"mean","value":4727265.4,"direction":"up","size":8192}],"facts":{},"failure":null}"#,
        "\n",
        r#"{"ended_at":"2026-11-26T11:00:01.000Z","test":"probe","peer":"192.0.2.2:9","duration_s":2.0,"#,
        r#""figures":[{"metric":"sent_packets","statistic":"total","value":8.0,"direction":"up"},"#,
        r#"{"metric":"received_packets","statistic":"total","value":6.0,"direction":"up"}],"facts":{},"failure":"gone"}"#,
        "\n",
        r#"{"refused_at":"x","protocol":"http","peer":"192.0.2.1:9","cause":"busy","why":"busy","count":3}"#,
        "\n",
        r#"{"lost_lines":1}"#,
        "\n"
    );

    fn report() -> ServerReport {
        ServerReport::of(LOG.as_bytes()).unwrap()
    }

    #[test]
    fn the_text_has_kinds_clients_hours_refusals_and_gaps() {
        let text = server_text(
            &report(),
            false,
            Terminal {
                width: 120,
                ..Terminal::NONE
            },
        );
        for part in [
            "2 tests of 2 clients, 1 of which failed; the first ended at 2026-11-26T10:00:01.000Z",
            "transfer: averages over 1 test",
            " up 8192 bytes received ",
            " up 8192 bytes goodput mean ",
            "192.0.2.1 =lestrade3",
            " 2026-11-26 10:00",
            "6.81 MiB",
            "4.73",
            " 25.000",
            " http      busy ",
            "the log lacks 1 line that nobody read in time",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let narrow = server_text(&report(), true, Terminal::NONE);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        let nothing = server_text(&ServerReport::default(), true, Terminal::NONE);
        assert_eq!(nothing, "The log contains no finished test.\n");
    }

    #[test]
    fn long_tables_are_cut_unless_every_detail_is_asked_for() {
        let wide = Terminal {
            width: 200,
            ..Terminal::NONE
        };
        let mut report = report();
        let hour = report.hours[0].clone();
        report.hours = (0..30)
            .map(|day| TestGroup {
                of: format!("2026-11-{day:02}T10:00:00Z"),
                ..hour.clone()
            })
            .collect();
        let text = server_text(&report, false, wide);
        assert!(text.contains("10 earlier rows: use --details"), "{text}");
        assert!(
            text.contains("2026-11-29 10:00") && !text.contains("2026-11-09 10:00"),
            "{text}"
        );
        let text = server_text(&report, true, wide);
        assert!(
            text.contains("2026-11-00 10:00") && !text.contains("--details"),
            "{text}"
        );
    }

    #[test]
    fn markdown_and_csv_have_every_average_and_no_formula() {
        let text = server_markdown(&report());
        assert!(
            text.starts_with("# The tests of a far end\n\n2 tests of 2 clients"),
            "{text}"
        );
        assert!(text.contains("| transfer | 1 | 0 | 12.10 |"), "{text}");
        let mut bytes = Vec::new();
        server_csv(&report(), &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        // Each of the six groups has its duration and two figures.
        assert_eq!(lines.len(), 1 + 6 * 3, "{text}");
        let line = "client,192.0.2.1,'=lestrade3,transfer,received_bytes,total,up,,8192,1,7140343,,7140343,7140343";
        assert!(lines.contains(&line), "{text}");
    }
}
