//! The report in Markdown, for wikis and code reviews: the tables of the terminal, verdicts, findings, conditions.

use std::fmt::Write;

use anyhow::Result;

use super::tables::{self, InstrumentTable, number, scale};
use super::text::{LEGEND, findings, machine, shown};
use super::{conditions, spread, steady};
use crate::analysis::{Analysis, CaseFigures, Verdict};
use record::Record;

/// The record as Markdown with GitHub's tables.
///
/// # Errors
/// None that a record can cause.
pub fn markdown(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let plan = record.plan();
    let mut text = format!(
        "# {}\n\n**{}**\n",
        escaped(&plan.title),
        headline(&analysis)
    );
    let quick = if plan.quick {
        ", shortened by --quick"
    } else {
        ""
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nMeasured by farwire {}, {}{quick}.",
        escaped(&record.head.farwire),
        escaped(&record.head.started_at)
    );
    let tables = tables::tables(&analysis);
    for table in &tables {
        let _ = writeln!(
            text,
            "\n## {}\n\n{}",
            escaped(table.instrument),
            drawn(table)
        );
    }
    let _ = writeln!(text, "{LEGEND}.");
    if let Some(reference) = &plan.reference {
        let _ = writeln!(text, "Reference: {}.", escaped(reference));
    }
    let _ = writeln!(text, "\n## Verdicts\n\n| case | | verdict |\n|---|---|---|");
    for figures in &analysis.cases {
        let case = figures.case;
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            escaped(&case.name),
            escaped(&case.title),
            verdict(figures)
        );
    }
    text.push('\n');
    for line in findings(&analysis) {
        let _ = writeln!(text, "- {}", escaped(&line));
    }
    if let Some(baseline) = &record.baseline {
        let _ = writeln!(text, "- {}", escaped(&machine(baseline)));
    }
    let ramps = (steady::grids(&analysis), steady::NOTE);
    for (grids, note) in [ramps, (spread::grids(&tables), spread::NOTE)] {
        for grid in &grids {
            let _ = writeln!(
                text,
                "\n## {}\n\n{}",
                escaped(&grid.title()),
                grid.markdown()
            );
        }
        if !grids.is_empty() {
            let _ = writeln!(text, "\n{}.", escaped(note));
        }
    }
    let _ = writeln!(
        text,
        "\n## Conditions\n\n| case | link | bed | TCP | repeats |\n|---|---|---|---|---|"
    );
    for case in &plan.cases {
        let cells = [
            case.name.clone(),
            conditions::path(case)?,
            conditions::bed(case)?,
            case.congestion.clone(),
            conditions::repeats(&case.repeats),
        ];
        let _ = writeln!(text, "| {} |", cells.map(|cell| escaped(&cell)).join(" | "));
    }
    Ok(text)
}

/// How the whole experiment stands, in one sentence.
pub(super) fn headline(analysis: &Analysis<'_>) -> String {
    let checks = analysis.checks().count();
    let met = analysis
        .checks()
        .filter(|check| check.verdict == Verdict::Met)
        .count();
    let verdict = match analysis.verdict {
        Verdict::Met if checks == 0 => return "Measured; nothing was expected.".to_owned(),
        Verdict::Met => "Met",
        Verdict::NotMet => "Not met",
        Verdict::Invalid => "Invalid: the machine did not keep up",
        Verdict::Failed => "Failed",
    };
    match checks {
        0 => format!("{verdict}."),
        _ => format!("{verdict}: {met} of {checks} expectations met."),
    }
}

/// The verdict of a case; a dash where nothing was expected and nothing went wrong.
pub(super) fn verdict(figures: &CaseFigures<'_>) -> String {
    if figures.checks.is_empty() && figures.faults.is_empty() {
        "–".to_owned()
    } else {
        figures.verdict.to_string()
    }
}

fn drawn(table: &InstrumentTable<'_>) -> String {
    let shown: Vec<[bool; 2]> = (0..table.columns.len())
        .map(|at| shown(table, at))
        .collect();
    let mut header = vec!["case".to_owned()];
    for (column, [published, change]) in table.columns.iter().zip(&shown) {
        header.push(format!("{}, {}", column.title(), scale(column.metric).1));
        header.extend(published.then(|| "published".to_owned()));
        header.extend(change.then(|| "Δ against the reference".to_owned()));
    }
    let mut text = format!(
        "| {} |\n|---|{}\n",
        header.join(" | "),
        "---:|".repeat(header.len() - 1)
    );
    for row in &table.rows {
        let mut cells = vec![escaped(&row.title())];
        for (cell, [published, change]) in row.cells.iter().zip(&shown) {
            let or_dash = |value: Option<f64>| value.map_or("–".to_owned(), number);
            cells.push(match cell.half {
                Some(half) => format!("{} ± {}", or_dash(cell.value), number(half)),
                None => or_dash(cell.value),
            });
            cells.extend(published.then(|| or_dash(cell.published)));
            cells.extend(change.then(|| cell.change.clone().unwrap_or("–".to_owned())));
        }
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Text that is neither Markdown nor HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' | '\r' => safe.push(' '),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => safe.extend(['\\', char]),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn it_has_the_tables_of_the_terminal_and_the_conditions() {
        let text = markdown(&record()).unwrap();
        for part in [
            "# A small experiment\n\n**Met: 4 of 4 expectations met.**",
            "## ping\n\n| case | rtt median, ms |",
            "| slow | 3.125 ± ",
            "| base | none | kind netns, mtu 1500",
            "- all 4 expectations met",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn every_row_of_a_table_has_as_many_cells_as_its_header() {
        let mut record = record();
        record.head.plan.cases[1].title = "a | b\n| c <i>".to_owned();
        let text = markdown(&record).unwrap();
        let mut width = 0;
        for line in text.lines() {
            let cells = line.replace("\\|", "").matches('|').count();
            if line.starts_with('|') && width > 0 {
                assert_eq!(cells, width, "{line}");
            }
            width = if line.starts_with('|') { cells } else { 0 };
        }
        assert!(!text.contains("<i>"));
    }
}
