//! The HTML report: one file that loads nothing else.

mod comparisons;
mod values;

use std::collections::{BTreeMap, HashMap};

use askama::Template;
use comparisons::Comparisons;
use values::Values;

use crate::analysis::{Analysis, CaseFigures, baselines, left_out};
use crate::answer::Answer;
use crate::case_conditions::CaseConditions;
use crate::case_labels::CaseLabels;
use crate::charts::{self, ChartQuestion, Drawing};
use crate::error::Result;
use crate::figure_tables::{FEW_RUNS, or_dash};
use crate::findings::{self, LEGEND};
use crate::render::Html;
use crate::trust::{EVERY_FIGURE, OccurringRow};
use crate::{case_conditions, figure_tables, hosts, reliability, spread, warm_up};
use record::plan::{Order, PlannedInstrument};
use record::printable::printable_lines;
use record::quantity::counted;
use record::summary::{DirectionSummary, Summary};
use record::table::{Cell, Column, Mark, Table};
use record::{LinkCounts, Record, Run, RunOutcome};

/// Largest number of different values of a fact that is listed.
const MOST_VALUES: usize = 4;

/// Formats the record as a self-contained page.
///
/// # Errors
/// Those of the template.
pub fn html(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let answer = Answer::of(&analysis);
    let values = figure_tables::tables(&analysis);
    let ramps = warm_up::tables(&analysis);
    let labels = CaseLabels::of_all(record.plan());
    let questions = charts::questions(&analysis);
    let page = Page {
        record,
        analysis: &analysis,
        picture: answer.picture(&analysis),
        answer,
        results: findings::results(&analysis),
        notes: reliability::notes(&analysis),
        comparisons: Comparisons::of(&analysis),
        drawings: questions.iter().map(|one| one.drawings.len()).sum(),
        questions,
        cases: case_statuses(&analysis, &labels),
        labels: labels.titles(),
        has_few_runs: figure_tables::has_few_runs(&values),
        values: values.iter().map(Values::of).collect(),
        trust: figure_tables::trust(&values, !ramps.is_empty()),
        ramps,
        spreads: spread::tables(&values),
        conditions: findings::conditions(record.plan()),
    };
    Ok(page.render()?)
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    record: &'a Record,
    analysis: &'a Analysis<'a>,
    answer: Answer<'a>,
    /// The picture of the answer.
    picture: Option<Drawing>,
    /// The results that no table shows.
    results: Vec<String>,
    /// The notes about the runs and the machine.
    notes: Vec<String>,
    comparisons: Option<Comparisons>,
    questions: Vec<ChartQuestion>,
    /// The number of all drawings.
    drawings: usize,
    /// The titles of the columns that identify the cases.
    labels: Vec<&'a str>,
    cases: Vec<CaseStatus<'a>>,
    /// Whether a change has no interval, because there are too few runs.
    has_few_runs: bool,
    values: Vec<Values<'a>>,
    trust: Vec<OccurringRow>,
    ramps: Vec<Table>,
    spreads: Vec<Table>,
    conditions: Table,
}

/// A record with more cases or runs than these is long: its page folds what is beyond the findings and the figures.
const MOST_CASES_OPEN: usize = 12;
const MOST_RUNS_OPEN: usize = 36;
/// With more drawings than this, the page shows the first ones of each question and folds the others.
const MOST_DRAWINGS_OPEN: usize = 12;
/// The number of drawings that the page shows of each question if it folds others, which is one row of a wide window.
const SHOWN: usize = 3;

/// A drawing with its caption.
#[derive(Template)]
#[template(path = "figure.html")]
struct Figure<'a>(&'a Drawing);

impl Page<'_> {
    /// Returns the drawings of a question that are shown immediately.
    fn shown<'q>(&self, question: &'q ChartQuestion) -> Vec<Figure<'q>> {
        let shown = question.drawings.iter().take(self.unfolded());
        shown.map(Figure).collect()
    }

    /// Returns the drawings of a question that a click shows.
    fn folded<'q>(&self, question: &'q ChartQuestion) -> Vec<Figure<'q>> {
        let folded = question.drawings.iter().skip(self.unfolded());
        folded.map(Figure).collect()
    }

    /// Formats the number of drawings that a click shows: "5 more figures".
    fn folded_title(&self, question: &ChartQuestion) -> String {
        counted(self.folded(question).len(), "more figure")
    }

    /// Returns the greatest number of drawings of a question that are shown immediately.
    fn unfolded(&self) -> usize {
        if self.drawings > MOST_DRAWINGS_OPEN {
            SHOWN
        } else {
            MOST_DRAWINGS_OPEN
        }
    }

    /// Returns whether the page folds its tables, because there are many cases or runs.
    fn is_large(&self) -> bool {
        self.analysis.cases.len() > MOST_CASES_OPEN || self.record.runs.len() > MOST_RUNS_OPEN
    }

    fn quick(&self) -> &'static str {
        findings::quick(self.record.plan().quick)
    }

    /// Formats the size: "2 cases, 1 run".
    fn size(&self) -> String {
        let cases = counted(self.analysis.cases.len(), "case");
        format!("{cases}, {}", counted(self.record.runs.len(), "run"))
    }

    fn faulty_runs(&self) -> usize {
        let runs = self.record.runs.iter();
        runs.filter(|run| run.outcome != RunOutcome::Ok).count()
    }

    fn order(&self) -> String {
        let plan = self.record.plan();
        match plan.order {
            Order::Random => format!("each round in a random order (seed {})", plan.seed),
            Order::AsWritten => format!("in the order of the scenario; seed {}", plan.seed),
        }
    }

    /// Returns every instrument with its options and the facts about its numbers.
    fn methods(&self) -> Vec<Method<'_>> {
        let mut methods: Vec<Method<'_>> = Vec::new();
        for instrument in self.record.plan().instruments() {
            let options = instrument.args.options();
            let mut known = methods.iter_mut();
            match known.find(|method| method.name == instrument.name) {
                Some(method) if method.options.contains(&options) => {}
                Some(method) => method.options.push(options),
                None => methods.push(Method::of(self.record, instrument, options)),
            }
        }
        methods
    }

    /// Returns the comparison of the machines, if there are several.
    fn hosts(&self) -> Option<Table> {
        hosts::table(self.analysis)
    }

    /// Returns the settings that were in force in the test beds.
    fn environment(&self) -> Vec<(&str, String)> {
        values(self.record.runs.iter().flat_map(|run| &run.environment))
    }

    /// Returns a table with a row for each run: its outcome, and the counters of the links.
    fn runs(&self) -> Table {
        let labels = CaseLabels::of_all(self.record.plan());
        let mut columns = labels.columns();
        columns.extend([
            Column::words("run").label(),
            Column::numbers("seed"),
            Column::words("began"),
            Column::words("outcome"),
            Column::numbers("departure error\nµs"),
            Column::words("packets"),
        ]);
        let cases = self.record.plan().cases.iter();
        let known: HashMap<&str, Vec<Cell>> = cases
            .map(|case| (case.name.as_str(), labels.cells(case)))
            .collect();
        let row = |run: &Run| {
            // A record from an unknown source may have runs of cases that its plan lacks.
            let of_case = known.get(run.case.as_str()).cloned();
            let mut cells = of_case.unwrap_or_else(|| labels.cells_of_several(&run.case));
            cells.extend(of_run(run));
            cells
        };
        Table::new("", columns).with(self.record.runs.iter().map(row))
    }

    /// Returns the cases that have notes.
    fn noted(&self) -> impl Iterator<Item = &CaseFigures<'_>> {
        self.analysis
            .cases
            .iter()
            .filter(|figures| !figures.case.note.is_empty())
    }
}

/// A case, the conditions in force in it, and its verdict.
struct CaseStatus<'a> {
    /// The texts that identify the case, one for each label.
    labels: Vec<String>,
    title: &'a str,
    conditions: CaseConditions,
    verdict: Cell,
}

fn case_statuses<'a>(analysis: &Analysis<'a>, labels: &CaseLabels<'_>) -> Vec<CaseStatus<'a>> {
    let standing = |figures: &CaseFigures<'a>| CaseStatus {
        labels: labels.texts(figures.case),
        title: &figures.case.title,
        conditions: case_conditions::in_force(figures.case),
        verdict: findings::case_verdict(figures),
    };
    analysis.cases.iter().map(standing).collect()
}

/// An instrument, its options, and its facts.
struct Method<'a> {
    name: &'a str,
    kind: &'a str,
    options: Vec<String>,
    facts: Vec<(&'a str, String)>,
}

impl<'a> Method<'a> {
    fn of(record: &'a Record, instrument: &'a PlannedInstrument, options: String) -> Self {
        let measured = record.runs.iter().flat_map(|run| &run.measurements);
        let own = measured.filter(|measured| measured.instrument == instrument.name);
        Self {
            name: &instrument.name,
            kind: &instrument.args.kind,
            options: vec![options],
            facts: values(own.flat_map(|measured| &measured.measurement.facts)),
        }
    }
}

fn of_run(run: &Run) -> [Cell; 6] {
    let attempt = match run.attempt {
        0 | 1 => String::new(),
        attempt => format!(" (attempt {attempt})"),
    };
    let outcome = match &run.outcome {
        RunOutcome::Ok => {
            let left_out = left_out(run).into_iter().map(|one| one.to_string());
            Cell::from(Vec::from_iter(["ok".to_owned()].into_iter().chain(left_out)).join("; "))
        }
        RunOutcome::Failed { cause } => Cell::marked(format!("FAILED: {cause}"), Mark::Bad),
        RunOutcome::Invalid { cause } => Cell::marked(format!("INVALID: {cause}"), Mark::Bad),
    };
    // The three numbers are median, 99th percentile and maximum.
    let departure_error = |link: &Summary| {
        let error = &link.departure_error;
        let [p50, p99, max] = [error.p50_ns, error.p99_ns, error.max_ns].map(|ns| ns as f64 / 1e3);
        format!("{p50:.1} / {p99:.1} / {max:.0}")
    };
    let packets = |link: &Summary| format!("up {}; down {}", counts(&link.up), counts(&link.down));
    let packets = if run.links.len() > MOST_LINKS {
        sum(&run.links)
    } else {
        each_link(&run.links, packets)
    };
    [
        format!("{}{attempt}", run.repeat).into(),
        run.seed.to_string().into(),
        run.started_at.as_str().into(),
        outcome,
        match latest(&run.links) {
            Some(link) => format!(
                "{}, the latest: {}",
                link.name,
                departure_error(&link.summary)
            ),
            None => each_link(&run.links, departure_error),
        }
        .into(),
        packets.into(),
    ]
}

/// Greatest number of links shown one by one, which is that of a chain; more are those of clients and are shown
/// together.
const MOST_LINKS: usize = 16;

/// Returns, of many links, the one with the greatest 99th percentile of the departure error.
fn latest(links: &[LinkCounts]) -> Option<&LinkCounts> {
    let many = links.len() > MOST_LINKS;
    let latest = links.iter().filter(|_| many);
    latest.max_by_key(|link| link.summary.departure_error.p99_ns)
}

/// Returns the sums of the counters of many links.
fn sum(links: &[LinkCounts]) -> String {
    let way = |of: fn(&Summary) -> &DirectionSummary| {
        let ways = links.iter().map(|link| of(&link.summary));
        let (packets, delivered) = ways.fold((0, 0), |(packets, delivered), way| {
            (packets + way.packets, delivered + way.delivered)
        });
        format!("{packets} in, {delivered} delivered")
    };
    let (up, down) = (way(|link| &link.up), way(|link| &link.down));
    format!("all {} links: up {up}; down {down}", links.len())
}

/// Returns a line for each link, with its name if there are several.
fn each_link(links: &[LinkCounts], line: impl Fn(&Summary) -> String) -> String {
    let lines = links.iter().map(|link| match links.len() {
        1 => line(&link.summary),
        _ => format!("{}: {}", link.name, line(&link.summary)),
    });
    or_dash(lines.reduce(|text, line| format!("{text}\n{line}")))
}

fn counts(direction: &DirectionSummary) -> String {
    let own = direction
        .emulator_lost
        .iter()
        .map(|own| format!(", emulator lost {} ({})", own.count, own.cause));
    let model = direction
        .in_words()
        .into_iter()
        .filter(|(_, count)| *count > 0);
    let drops: String = model
        .map(|(what, count)| format!(", {count} {what}"))
        .chain(own)
        .collect();
    format!(
        "{} in, {} delivered{drops}",
        direction.packets, direction.delivered
    )
}

/// Returns every name with its value in all runs, or with several values if they differ.
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
        (
            name,
            printable_lines(&(listed.join("; or ") + more)).into_owned(),
        )
    };
    all.into_iter().map(joined).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{late_pings, record};
    use crate::case_labels::tests::swept;
    use record::plan::Repeats;

    #[test]
    fn the_page_is_self_contained_with_a_row_and_a_curve_per_case() {
        let page = html(&record()).unwrap();
        assert!(page.starts_with("<!doctype html>"));
        for foreign in ["http://", "https://", "<link", "@import", "url(", " src="] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<figure>").count(), 7);
        assert!(
            page.contains("3 of 3 tested expectations met, 1 of 1 loose"),
            "{page}"
        );
    }

    /// Returns all records of the test fixtures.
    fn fixtures() -> Vec<Record> {
        let files = ["small", "grid", "every-kind"].map(|name| {
            let root = env!("CARGO_MANIFEST_DIR");
            format!("{root}/../../tests/fixtures/records/{name}.jsonl")
        });
        files
            .map(|file| Record::read(std::path::Path::new(&file)).unwrap())
            .into()
    }

    #[test]
    fn the_page_opens_with_the_answer_its_picture_and_how_far_to_trust_it() {
        let page = html(&record()).unwrap();
        let at = |text: &str| {
            page.find(text)
                .unwrap_or_else(|| panic!("{text} in {page}"))
        };
        let order = [
            "<b class=\"met\">Met: ",
            "<p>Compared with base (Nothing added), ",
            "<p>Limits: ",
            "<figure class=\"answer\">",
            "<p class=\"trust-line good\">How far to trust it: good; ",
            "<div class=\"charts\">",
            "<h2>Results</h2>",
        ]
        .map(at);
        assert!(order.is_sorted(), "{order:?}");
        // There are no notes to fold below the line.
        assert!(!page.contains("<details class=\"trust-line"), "{page}");
    }

    #[test]
    fn a_verdict_with_a_doubt_has_another_colour_than_one_that_is_not_met() {
        let mut record = record();
        for run in &mut record.runs[..2] {
            run.attempt = 2;
        }
        let page = html(&record).unwrap();
        assert!(page.contains("<div class=\"verdict disturbed\">"), "{page}");
        let rule = ".verdict.disturbed, .verdict.incomplete { border-color: var(--doubt); background: var(--doubtback); }";
        assert!(page.contains(rule));
        // Its colours in the light theme, in the dark one and on paper.
        for name in ["--doubt:", "--doubtback:"] {
            assert_eq!(page.matches(name).count(), 3, "{name}");
        }
    }

    #[test]
    fn notes_about_the_machine_are_folded_below_their_line() {
        let record = late_pings(10);
        let page = html(&record).unwrap();
        let folded = page
            .split("<details class=\"trust-line invalid\">")
            .nth(1)
            .unwrap();
        let folded = folded.split("</details>").next().unwrap();
        let cause = "base: run 1 is invalid: ping: 10 of 100 packets up left more than 1 ms late";
        assert!(folded.starts_with("<summary>How far to trust it: invalid; base: run 1"));
        assert!(folded.contains(&format!("<li>{cause}")), "{folded}");
        // The other case has no valid reference any more, so its gain is neither met nor not met.
        let headline = "<b class=\"unmet\">Invalid: the machine did not keep up: 2 of 3 tested expectations met, 1 of 1 loose, but not reliable.";
        assert!(page.contains(headline), "{page}");
    }

    #[test]
    fn every_heading_of_a_figure_has_its_meaning() {
        for record in fixtures() {
            let page = html(&record).unwrap();
            let analysis = Analysis::of(&record);
            for column in figure_tables::tables(&analysis)
                .iter()
                .flat_map(|table| &table.columns)
            {
                let heading = format!(
                    "class=\"term\">{}<span class=\"meaning\" role=\"tooltip\">{}",
                    column.title(),
                    column.metric.meaning().replace('\'', "&#39;")
                );
                assert!(page.contains(&heading), "{heading}");
            }
            let captions = page.matches("<figcaption>").count();
            assert_eq!(
                page.matches("<figcaption><button type=\"button\" class=\"term\">")
                    .count(),
                captions
            );
            assert!(!page.contains("role=\"tooltip\"></span>"));
        }
    }

    #[test]
    fn every_heading_of_a_figure_links_to_its_row_of_trust() {
        for record in fixtures() {
            let page = html(&record).unwrap();
            let links: Vec<&str> = page.split("href=\"#trust-").skip(1).collect();
            let columns: usize = figure_tables::tables(&Analysis::of(&record))
                .iter()
                .map(|table| table.columns.len())
                .sum();
            assert_eq!(links.len(), columns);
            for link in links {
                let anchor = link.split('"').next().unwrap();
                let places = page.matches(&format!("id=\"trust-{anchor}\"")).count();
                assert_eq!(places, 1, "{anchor}");
            }
        }
        let page = html(&record()).unwrap();
        for part in [
            "the probability with which the network loses a packet",
            "more than 1 % short of its",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_swept_case_shows_its_swept_values() {
        let mut record = record();
        let case = &mut record.head.plan.cases[1];
        case.axes = vec![("link.queue".to_owned(), "300ms".to_owned())];
        case.link = toml::from_str("rate = '20mbit'\nqueue = '300ms'").unwrap();
        let page = html(&record).unwrap();
        let row = page
            .split("<tr>")
            .find(|row| row.contains("data-label=\"conditions\"") && row.contains(">slow<"))
            .unwrap();
        assert!(row.contains("<li class=\"swept\">queue 300ms<li>"), "{row}");
        assert!(row.contains("<li>rate 20mbit"), "{row}");
    }

    /// A sweep of three congestion controls, three delays and two losses with five runs each.
    fn ninety_runs() -> Record {
        let mut axes = Vec::new();
        for congestion in ["bbr", "cubic", "reno"] {
            for delay in ["1ms", "20ms", "100ms"] {
                for loss in ["0%", "1%"] {
                    axes.push([
                        ("tcp.congestion", congestion),
                        ("link.delay", delay),
                        ("link.loss", loss),
                    ]);
                }
            }
        }
        let slices: Vec<&[(&str, &str)]> = axes.iter().map(<[_; 3]>::as_slice).collect();
        let mut record = swept(&slices);
        for case in &mut record.head.plan.cases {
            case.repeats = Repeats::fixed(5);
        }
        let patterns = std::mem::take(&mut record.runs);
        for (pattern, number) in patterns.iter().zip(1..) {
            for repeat in 1..=5 {
                let mut run = pattern.clone();
                run.repeat = repeat;
                let figure = &mut run.measurements[0].measurement.figures[0];
                figure.value = f64::from(number) + 0.1 * f64::from(repeat);
                record.runs.push(run);
            }
        }
        record
    }

    #[test]
    fn a_long_page_shows_its_first_figures_and_folds_the_rest() {
        let page = html(&ninety_runs()).unwrap();
        assert!(page.contains("18 cases, 90 runs."));
        assert!(page.find("<figure>").unwrap() < page.find("<table").unwrap());
        assert!(!page.contains("class=\"fold\" open"));
        let mut parts = page.split("<details class=\"fold\"");
        let first = parts.next().unwrap().to_owned();
        let outside = parts.map(|part| part.split_once("</details>").unwrap().1);
        let shown = outside.fold(first, |shown, part| shown + part);
        let headings = shown.matches("<div class=\"charts\">").count();
        let [open, all] = [&shown, &page].map(|text| text.matches("<figure>").count());
        assert!(open <= SHOWN * headings && open < all, "{open} of {all}");
        assert!(!shown.contains("<td"), "{shown}");
        for heading in ["congestion", "delay", "loss"] {
            assert!(
                page.contains(&format!("data-label=\"{heading}\"")),
                "{heading}"
            );
        }
    }

    #[test]
    fn every_table_scrolls_separately_and_folds_with_its_labels() {
        for record in fixtures() {
            let page = html(&record).unwrap();
            let tables = page.matches("<table").count();
            assert!(tables > 2);
            assert_eq!(
                page.matches("<div class=\"scroll\" tabindex=\"0\"><table")
                    .count(),
                tables
            );
            assert_eq!(
                page.matches("<td").count(),
                page.matches("<td class=\"left\" data-label=\"").count()
                    + page.matches("<td data-label=\"").count()
            );
        }
    }

    #[test]
    fn a_change_is_below_its_value_and_adds_no_column() {
        let record = record();
        let page = html(&record).unwrap();
        let table = page.split("<table class=\"values\">").nth(1).unwrap();
        let head = table.split("</thead>").next().unwrap();
        let analysis = Analysis::of(&record);
        assert_eq!(
            head.matches("<th ").count(),
            figure_tables::tables(&analysis)[0].columns.len() + 1
        );
        assert!(table.contains("<small>Δ "), "{table}");
        assert_eq!(page.matches(FEW_RUNS).count(), 1, "{page}");
    }

    #[test]
    fn an_experiment_without_expectations_is_not_reported_as_met() {
        let mut record = record();
        for case in &mut record.head.plan.cases {
            case.expect.clear();
        }
        record.head.plan.trends.clear();
        let page = html(&record).unwrap();
        assert!(page.contains("no expectations defined"), "{page}");
        assert!(!page.contains("expectations met"), "{page}");
    }

    #[test]
    fn markup_from_users_and_peers_is_escaped() {
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
            let arguments = &mut case.instruments[0].args.arguments;
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
            run.outcome = RunOutcome::Failed {
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
        record.runs[0].outcome = RunOutcome::Failed {
            cause: "the server closed".to_owned(),
        };
        let page = html(&record).unwrap();
        assert!(page.contains("The document had another kernel."));
        assert!(page.contains("run 1 failed: the server closed"));
    }

    #[test]
    fn a_record_without_a_run_has_a_page() {
        let mut record = record();
        record.runs.truncate(1);
        assert!(html(&record).unwrap().contains("2 cases, 1 run."));
        record.runs.clear();
        record.finished_at = None;
        let page = html(&record).unwrap();
        assert!(page.contains("did not finish"));
    }
}
