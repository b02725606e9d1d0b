//! The reports of sweeps, whose pages are the longest and whose names are the widest, as Chromium lays them out.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use record::plan::Repeats;
use record::{Record, swept};

use super::browser::Browser;
use test_support::process;

/// The values of a swept field.
type Swept = (&'static str, &'static [&'static str]);

/// The widths of a telephone, of a laptop and of a large screen, in CSS pixels.
const WIDTHS: [u32; 3] = [390, 1280, 1920];
const HEIGHT: u32 = 900;
/// The most screens that the page of 90 runs may have before its parts are unfolded.
const MOST_SCREENS: f64 = 12.0;

/// A sweep of five fields, with 48 cases.
const FIVE_FIELDS: &[Swept] = &[
    ("link.delay", &["1ms", "10ms", "100ms"]),
    ("link.loss", &["0%", "1%"]),
    ("tcp.congestion", &["bbr", "cubic"]),
    ("link.queue", &["100pkt", "1000pkt"]),
    ("parameters.download.parallel", &["1", "8"]),
];
/// A sweep of three fields, with 18 cases of five runs each.
const NINETY_RUNS: &[Swept] = &[
    ("tcp.congestion", &["bbr", "cubic", "reno"]),
    ("link.delay", &["1ms", "20ms", "100ms"]),
    ("link.loss", &["0%", "1%"]),
];
/// The sweeps with the names of their pages, and the number of runs of each case.
pub(crate) const SWEEPS: [(&str, &[Swept], u32); 2] = [
    ("five-fields", FIVE_FIELDS, 1),
    ("ninety-runs", NINETY_RUNS, 5),
];

/// Returns pairs of texts that overlap. A text that a box cuts off has the size of its visible
/// part. Lines of a text may touch, so an eighth of their height is ignored above and below.
const OVERLAPS: &str = "
    const boxes = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    while (walker.nextNode()) {
        const node = walker.currentNode, parent = node.parentElement, text = node.data.trim();
        if (!text || !parent.checkVisibility()) continue;
        const clip = parent.closest('.scroll, pre')?.getBoundingClientRect();
        range.selectNodeContents(node);
        for (const rect of range.getClientRects()) {
            let {left, right, top, bottom} = rect;
            if (clip) {
                [left, right] = [Math.max(left, clip.left), Math.min(right, clip.right)];
                [top, bottom] = [Math.max(top, clip.top), Math.min(bottom, clip.bottom)];
            }
            const edge = rect.height / 8;
            [top, bottom, left, right] = [top + edge, bottom - edge, left + 1, right - 1];
            if (left < right && top < bottom) boxes.push({text, left, right, top, bottom});
        }
    }
    boxes.sort((a, b) => a.top - b.top);
    const found = [];
    boxes.forEach((one, at) => {
        for (let next = at + 1; next < boxes.length && boxes[next].top < one.bottom; next++) {
            const other = boxes[next];
            if (one.left < other.right && other.left < one.right) found.push([one.text, other.text]);
        }
    });
    return found.slice(0, 10);";

/// Returns the rows of tables, as a telephone shows them, whose cells do not have their texts in one column.
const UNALIGNED: &str = "
    return [...document.querySelectorAll('tbody tr')].filter((row) => {
        const styles = [...row.children].filter((cell) => cell.checkVisibility()).map((cell) => getComputedStyle(cell));
        const labelled = styles.filter((style) => style.display === 'grid');
        return new Set(labelled.map((style) => style.gridTemplateColumns.split(' ')[0])).size > 1;
    }).slice(0, 10).map((row) => row.textContent);";

/// Returns the record of this sweep: the second case of the small record, with this number of runs for each combination of values.
fn record(fields: &[Swept], runs: u32) -> Result<Record> {
    let mut record = Record::read(&process::root().join("tests/fixtures/records/small.jsonl"))?;
    let plan = &mut record.head.plan;
    (plan.reference, plan.title) = (None, "A sweep".to_owned());
    plan.trends.clear();
    let mut pattern = plan.cases.swap_remove(1);
    pattern.repeats = Repeats::fixed(runs);
    pattern.expect.clear();
    plan.cases.clear();
    let run = record.runs.swap_remove(1);
    record.runs.clear();
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for (field, values) in fields {
        let mut longer = Vec::new();
        for axes in &all {
            for value in *values {
                let own = ((*field).to_owned(), (*value).to_owned());
                longer.push(axes.iter().cloned().chain([own]).collect());
            }
        }
        all = longer;
    }
    let mut number = 0.0;
    for axes in all {
        let mut case = pattern.clone();
        case.name = format!("line{}", swept::name_suffix(&axes));
        case.axes = axes;
        number += 1.0;
        for repeat in 1..=runs {
            let mut run = run.clone();
            (run.case, run.repeat) = (case.name.clone(), repeat);
            let figure = &mut run.measurements[0].measurement.figures[0];
            figure.value = number + 0.1 * f64::from(repeat);
            record.runs.push(run);
        }
        record.head.plan.cases.push(case);
    }
    Ok(record)
}

/// Writes the report of a sweep into `folder`, and returns its address.
pub(crate) fn page(folder: &Path, (name, fields, runs): (&str, &[Swept], u32)) -> Result<String> {
    let page = folder.join(format!("{name}.html"));
    std::fs::write(&page, report::html(&record(fields, runs)?)?)?;
    Ok(format!("file://{}", page.display()))
}

#[test_support::test(Tool("chromium"), Tool("chromedriver"))]
fn a_sweeps_report_is_aligned_without_overlaps_and_no_page_scrolls_sideways() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let browser = Browser::start(folder.path())?;
    for sweep in SWEEPS {
        browser.open(&page(folder.path(), sweep)?)?;
        for width in WIDTHS {
            browser.look([width, HEIGHT], "light")?;
            is_laid_out(&browser).with_context(|| format!("{}, {width} px", sweep.0))?;
        }
    }
    Ok(())
}

#[test_support::test(Tool("chromium"), Tool("chromedriver"))]
fn the_report_of_ninety_runs_has_a_dozen_screens() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let browser = Browser::start(folder.path())?;
    let [_, ninety_runs] = SWEEPS;
    browser.open(&page(folder.path(), ninety_runs)?)?;
    browser.look([1280, HEIGHT], "light")?;
    let height = browser.read("document.documentElement.scrollHeight")?;
    let screens = height.as_f64().context("a height")? / f64::from(HEIGHT);
    ensure!(screens <= MOST_SCREENS, "{screens} screens");
    Ok(())
}

/// Checks the page as it opens, and with all of its parts unfolded.
fn is_laid_out(browser: &Browser) -> Result<()> {
    for is_open in [false, true] {
        browser.run(&format!(
            "document.querySelectorAll('details.fold').forEach((part) => {{ part.open = {is_open}; }});"
        ))?;
        let wider = browser
            .read("document.documentElement.scrollWidth - document.documentElement.clientWidth")?;
        ensure!(
            wider == 0,
            "unfolded: {is_open}: {wider} px wider than the screen"
        );
        let overlaps = browser.run(OVERLAPS)?;
        ensure!(
            overlaps.as_array().is_some_and(Vec::is_empty),
            "unfolded: {is_open}: {overlaps:#}"
        );
        let unaligned = browser.run(UNALIGNED)?;
        ensure!(
            unaligned.as_array().is_some_and(Vec::is_empty),
            "unfolded: {is_open}: not in one column: {unaligned:#}"
        );
    }
    Ok(())
}
