//! The accessibility of the pages, checked by axe-core.

use std::fs;

use anyhow::{Context, Result, ensure};
use record::Record;
use report::Listed;
use serde_json::Value;

use super::browser::Browser;
use super::reports::{self, SWEEPS};
use super::run::experiment;
use super::walk::Walk;
use test_support::process;

const AXE: &str = "axe/axe_playwright_python/axe.min.js";

/// The page on a laptop, a telephone and a large screen.
const SIZES: [[u32; 2]; 3] = [[1280, 900], [390, 844], [1920, 1080]];

/// The script that returns violations: impact, rule, place.
const CHECK: &str = "return axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map((violation) =>
    [violation.impact, violation.id, violation.help, ...violation.nodes.map((node) => node.html)]));";

#[test_support::test(
    Namespaces,
    Tool("chromium"),
    Tool("chromedriver"),
    Tool("ping"),
    Tool("wget"),
    Soak,
    FormatTool(AXE)
)]
fn axe_core_finds_nothing_serious_on_the_page_of_an_experiment_that_runs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = experiment(folder.path())?;
    let browser = Browser::start(folder.path())?;
    browser.open(&run.url)?;
    browser.wait("document.querySelectorAll('#run-rows tr').length > 0")?;
    browser.run(&fs::read_to_string(process::format_tool(AXE))?)?;
    nothing_serious(&browser)
}

/// Checks the page in all sizes, light and dark.
fn nothing_serious(browser: &Browser) -> Result<()> {
    for size in SIZES {
        for theme in ["light", "dark"] {
            browser.look(size, theme)?;
            let found = violations(browser)?;
            ensure!(
                !found.iter().any(is_serious),
                "{size:?}, {theme}: {found:#?}"
            );
        }
    }
    Ok(())
}

#[test_support::test(
    Namespaces,
    Tool("chromium"),
    Tool("chromedriver"),
    Tool("ping"),
    Tool("wget"),
    Soak,
    FormatTool(AXE)
)]
fn axe_core_finds_nothing_serious_on_the_page_wide_and_narrow_light_and_dark() -> Result<()> {
    let axe = fs::read_to_string(process::format_tool(AXE))?;
    let walk = Walk::start(tempfile::tempdir()?, &[])?;
    let browser = &walk.browser;
    browser.wait("document.querySelectorAll('#figures figure:first-child polyline').length > 0")?;
    browser.run(&axe)?;
    ensure!(
        seriously(
            browser,
            "document.body.append(document.createElement('img'));"
        )? > 0
    );
    browser.run("document.querySelector('body > img').remove();")?;
    nothing_serious(browser)
}

#[test_support::test(All, Tool("chromium"), Tool("chromedriver"), FormatTool(AXE))]
fn axe_core_finds_nothing_serious_on_the_reports_of_records_and_logs_and_on_their_list()
-> Result<()> {
    let axe = fs::read_to_string(process::format_tool(AXE))?;
    let folder = tempfile::tempdir()?;
    let browser = Browser::start(folder.path())?;
    for name in ["records/small", "records/every-kind", "serve"] {
        let record = process::root().join(format!("tests/fixtures/{name}.jsonl"));
        let page = folder.path().join("report.html");
        let mut report = process::farwire();
        report.arg("report").arg(record).arg("--out").arg(&page);
        process::succeeds(report.args(["--format", "html"]))?;
        let page = format!("file://{}", page.display());
        nothing_serious_in_a_report(&browser, &page, &axe).context(name)?;
    }
    for sweep in SWEEPS {
        let page = reports::page(folder.path(), sweep)?;
        nothing_serious_in_a_report(&browser, &page, &axe).context(sweep.0)?;
    }
    let small = process::root().join("tests/fixtures/records/small.jsonl");
    let listed = Listed::of(&Record::read(&small)?, "small/report.html".to_owned());
    let page = folder.path().join("index.html");
    fs::write(&page, report::index([&listed], &["a record".to_owned()])?)?;
    let page = format!("file://{}", page.display());
    nothing_serious_in_a_report(&browser, &page, &axe).context("the list of records")
}

fn nothing_serious_in_a_report(browser: &Browser, page: &str, axe: &str) -> Result<()> {
    browser.open(page)?;
    let mains = browser.run("return document.querySelectorAll('main').length;")?;
    ensure!(mains == 1, "{mains} elements main");
    browser.run(axe)?;
    nothing_serious(browser)
}

/// Returns the number of serious violations after a script has run.
fn seriously(browser: &Browser, script: &str) -> Result<usize> {
    browser.run(script)?;
    Ok(violations(browser)?
        .iter()
        .filter(|found| is_serious(found))
        .count())
}

fn violations(browser: &Browser) -> Result<Vec<Value>> {
    let found = browser.run(CHECK)?;
    Ok(found.as_array().cloned().unwrap_or_default())
}

fn is_serious(violation: &Value) -> bool {
    matches!(violation[0].as_str(), Some("serious" | "critical"))
}
