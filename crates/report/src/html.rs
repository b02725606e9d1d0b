//! The HTML report: one file, nothing fetched.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use askama::Template;

use super::charts::{self, Question};
use super::grid::Grid;
use super::tables::{self, InstrumentTable, number, scale};
use super::text::{LEGEND, findings, shown};
use super::{conditions, markdown, spread, steady};
use crate::analysis::{Analysis, CaseFigures, Verdict, ceiling};
use record::plan::{Case, Instrument, Order};
use record::summary::{DirectionSummary, Summary};
use record::{Outcome, Record, Run};

/// What a fact says in different runs is listed up to so often.
const MOST_VALUES: usize = 4;

/// The record as a page that stands alone.
///
/// # Errors
/// None but those of the template.
pub fn html(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let tables = tables::tables(&analysis);
    let page = Page {
        record,
        questions: charts::questions(&analysis),
        ramps: steady::grids(&analysis),
        spreads: spread::grids(&tables),
        tables,
        analysis: &analysis,
        findings: findings(&analysis),
    };
    Ok(page.render()?)
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    record: &'a Record,
    analysis: &'a Analysis<'a>,
    tables: Vec<InstrumentTable<'a>>,
    questions: Vec<Question>,
    ramps: Vec<Grid>,
    spreads: Vec<Grid>,
    findings: Vec<String>,
}

impl Page<'_> {
    /// The verdict in words, first thing on the page.
    fn headline(&self) -> String {
        markdown::headline(self.analysis)
    }

    fn faulty_runs(&self) -> usize {
        let runs = self.record.runs.iter();
        runs.filter(|run| run.outcome != Outcome::Ok).count()
    }

    /// The box that holds a table of values.
    fn table(&self, table: &InstrumentTable<'_>) -> String {
        drawn(table)
    }

    /// The bed of every case, if all have the same.
    fn only_bed(&self) -> Result<Option<String>> {
        let cases = &self.record.plan().cases;
        let same = cases.windows(2).all(|pair| pair[0].bed == pair[1].bed);
        cases
            .first()
            .filter(|_| same)
            .map(conditions::bed)
            .transpose()
    }

    fn bed(&self, case: &Case) -> Result<String> {
        conditions::bed(case)
    }

    fn link(&self, case: &Case) -> Result<String> {
        conditions::path(case)
    }

    fn repeats(&self, case: &Case) -> String {
        conditions::repeats(&case.repeats)
    }

    fn order(&self) -> String {
        let plan = self.record.plan();
        match plan.order {
            Order::Random => format!(
                "each round in an order of its own, drawn by seed {}",
                plan.seed
            ),
            Order::AsWritten => format!("as written; seed {}", plan.seed),
        }
    }

    /// Every instrument as used, with what it says of its own numbers.
    fn methods(&self) -> Vec<Method<'_>> {
        let mut methods: Vec<Method<'_>> = Vec::new();
        for instrument in self
            .record
            .plan()
            .cases
            .iter()
            .flat_map(|case| &case.instruments)
        {
            let options = instrument.options();
            match methods
                .iter_mut()
                .find(|method| method.name == instrument.name)
            {
                Some(method) if method.options.contains(&options) => {}
                Some(method) => method.options.push(options),
                None => methods.push(Method::of(self.record, instrument, options)),
            }
        }
        methods
    }

    /// What was in effect within the rigs.
    fn environment(&self) -> Vec<(&str, String)> {
        values(self.record.runs.iter().flat_map(|run| &run.environment))
    }

    fn runs(&self) -> impl Iterator<Item = RunView<'_>> {
        self.record.runs.iter().map(|run| RunView { run })
    }

    /// Cases of which something is to be said.
    fn noted(&self) -> impl Iterator<Item = &CaseFigures<'_>> {
        self.analysis
            .cases
            .iter()
            .filter(|figures| !figures.case.note.is_empty())
    }

    /// The colour of a verdict.
    fn class(&self, verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Met => "met",
            _ => "unmet",
        }
    }

    /// The colour of a case, which has none where nothing was expected of it.
    fn class_of(&self, figures: &CaseFigures<'_>) -> &'static str {
        if figures.checks.is_empty() && figures.faults.is_empty() {
            "none"
        } else {
            self.class(&figures.verdict)
        }
    }
}

/// An instrument, how it was used, and its facts.
struct Method<'a> {
    name: &'a str,
    kind: &'a str,
    options: Vec<String>,
    facts: Vec<(&'a str, String)>,
}

impl<'a> Method<'a> {
    fn of(record: &'a Record, instrument: &'a Instrument, options: String) -> Self {
        let measured = record.runs.iter().flat_map(|run| &run.measurements);
        let own = measured.filter(|measured| measured.instrument == instrument.name);
        Self {
            name: &instrument.name,
            kind: &instrument.kind,
            options: vec![options],
            facts: values(own.flat_map(|measured| &measured.measurement.facts)),
        }
    }
}

struct RunView<'a> {
    run: &'a Run,
}

impl RunView<'_> {
    fn outcome(&self) -> String {
        match &self.run.outcome {
            Outcome::Ok => "ok".to_owned(),
            Outcome::Failed { cause } => format!("FAILED: {cause}"),
            Outcome::Invalid { cause } => format!("INVALID: {cause}"),
        }
    }

    fn is_ok(&self) -> bool {
        self.run.outcome == Outcome::Ok
    }

    /// What each link counted, a link a line.
    fn counters(&self) -> Vec<String> {
        self.each_link(|Summary { up, down, .. }| {
            format!("up {}; down {}", counts(up), counts(down))
        })
    }

    /// Median, 99th percentile and worst, in microseconds, of each link.
    fn departure_errors(&self) -> Vec<String> {
        self.each_link(|summary| {
            let error = &summary.departure_error;
            let micros = |nanos: u64| nanos as f64 / 1e3;
            let [p50, p99, max] = [error.p50_ns, error.p99_ns, error.max_ns].map(micros);
            format!("{p50:.1} / {p99:.1} / {max:.0}")
        })
    }

    /// A line a link, which names it if there are several.
    fn each_link(&self, line: impl Fn(&Summary) -> String) -> Vec<String> {
        let links = &self.run.links;
        let lines = links.iter().map(|link| match links.len() {
            1 => line(&link.summary),
            _ => format!("{}: {}", link.name, line(&link.summary)),
        });
        lines.collect()
    }
}

fn counts(direction: &DirectionSummary) -> String {
    let own = direction.emulator_lost.iter();
    let own = own.map(|own| format!(", emulator lost {} ({})", own.count, own.cause));
    let model = [
        ("lost", direction.lost),
        ("queue full", direction.queue_full),
    ];
    let model = model
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| format!(", {count} {cause}"));
    let drops: String = model.chain(own).collect();
    format!(
        "{} in, {} delivered{drops}",
        direction.packets, direction.delivered
    )
}

/// Every name with what it says in all runs: several values where they differ.
fn values<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<(&'a str, String)> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in pairs {
        let values = all.entry(name).or_default();
        if !values.contains(&value.as_str()) && values.len() <= MOST_VALUES {
            values.push(value);
        }
    }
    let joined = |(name, values): (&'a str, Vec<&str>)| {
        let more = if values.len() > MOST_VALUES {
            "; and others"
        } else {
            ""
        };
        let listed: Vec<&str> = values.into_iter().take(MOST_VALUES).collect();
        (name, listed.join("; or ") + more)
    };
    all.into_iter().map(joined).collect()
}

/// A table of values: measured, beside it the published and the shift in words.
fn drawn(table: &InstrumentTable<'_>) -> String {
    let escaped = charts::escaped;
    let mut html = String::from("<table><thead><tr><th scope=\"col\">case</th>");
    let sized = table.rows.iter().any(|row| row.size.is_some());
    if sized {
        html.push_str("<th scope=\"col\">size<small>bytes</small></th>");
    }
    let shown: Vec<[bool; 2]> = (0..table.columns.len())
        .map(|at| shown(table, at))
        .collect();
    for (column, [published, change]) in table.columns.iter().zip(&shown) {
        let unit = scale(column.metric).1;
        // Writing to a String cannot fail.
        let _ = write!(
            html,
            "<th scope=\"col\">{}<small>{unit}</small></th>",
            column.title()
        );
        if *published {
            html.push_str("<th scope=\"col\" class=\"published\">published</th>");
        }
        if *change {
            html.push_str("<th scope=\"col\" class=\"words\">Δ against the reference</th>");
        }
    }
    html.push_str("</tr></thead><tbody>");
    for row in &table.rows {
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th>",
            escaped(&row.figures.case.name)
        );
        if sized {
            let size = row.size.map_or("–".to_owned(), |size| size.to_string());
            let _ = write!(html, "<td>{size}</td>");
        }
        for (cell, [published, change]) in row.cells.iter().zip(&shown) {
            let value = cell.value.map_or("–".to_owned(), number);
            let half = cell.half.map_or(String::new(), |half| {
                format!(" <small>± {}</small>", number(half))
            });
            let _ = write!(html, "<td>{value}{half}</td>");
            if *published {
                let value = cell.published.map_or("–".to_owned(), number);
                let _ = write!(html, "<td class=\"published\">{value}</td>");
            }
            if *change {
                let words = cell.change.as_deref().unwrap_or("–");
                let _ = write!(html, "<td class=\"words\">{}</td>", escaped(words));
            }
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn the_page_stands_alone_and_has_a_row_and_a_curve_a_case() {
        let page = html(&record()).unwrap();
        assert!(page.starts_with("<!doctype html>"));
        for foreign in ["http://", "https://", "<link", "@import", "url(", " src="] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<figure>").count(), 3);
        assert!(page.contains("4 of 4 expectations met"), "{page}");
    }

    #[test]
    fn an_experiment_that_expects_nothing_is_not_said_to_have_met_it() {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.expect.clear();
        }
        record.head.plan.trends.clear();
        let page = html(&record).unwrap();
        assert!(page.contains("nothing was expected"), "{page}");
        assert!(!page.contains("expectations met"), "{page}");
    }

    #[test]
    fn nothing_that_a_user_or_a_peer_says_becomes_markup() {
        const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&";
        let mut record = record();
        let plan = &mut record.head.plan;
        plan.title = HOSTILE.to_owned();
        plan.reference = Some(HOSTILE.to_owned());
        for case in &mut plan.cases {
            case.title = HOSTILE.to_owned();
            case.note = HOSTILE.to_owned();
            case.congestion = HOSTILE.to_owned();
            case.axes = vec![(HOSTILE.to_owned(), HOSTILE.to_owned())];
            let arguments = &mut case.instruments[0].arguments;
            arguments.insert(HOSTILE.to_owned(), HOSTILE.into());
        }
        plan.cases[0].name = HOSTILE.to_owned();
        record.head.host.kernel = HOSTILE.to_owned();
        record
            .head
            .host
            .tools
            .insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        record.head.scenario.text = format!("</textarea></pre>{HOSTILE}");
        for run in &mut record.runs {
            if run.case == "base" {
                run.case = HOSTILE.to_owned();
            }
            run.environment
                .insert(HOSTILE.to_owned(), HOSTILE.to_owned());
            run.started_at = HOSTILE.to_owned();
            run.outcome = Outcome::Failed {
                cause: HOSTILE.to_owned(),
            };
            for measured in &mut run.measurements {
                measured
                    .measurement
                    .facts
                    .insert(HOSTILE.to_owned(), HOSTILE.to_owned());
            }
        }
        let page = html(&record).unwrap();
        assert!(page.contains("alert(1)"));
        assert!(!page.contains("<script>alert") && !page.contains("<img"));
        assert!(!page.contains("'><") && !page.contains("\"'"));
        assert!(!page.contains("</textarea>"));
    }

    #[test]
    fn differences_are_explained_and_failures_named() {
        let mut record = record();
        record.runs[0].outcome = Outcome::Failed {
            cause: "the server closed".to_owned(),
        };
        let page = html(&record).unwrap();
        assert!(page.contains("The document had another kernel."));
        assert!(page.contains("run 1 failed: the server closed"));
    }

    #[test]
    fn a_record_without_a_run_has_a_page() {
        let mut record = record();
        record.runs.clear();
        record.finished_at = None;
        let page = html(&record).unwrap();
        assert!(page.contains("did not finish"));
    }
}
