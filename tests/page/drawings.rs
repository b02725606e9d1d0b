//! The drawings of reports as files, SVG and PNG, as Chromium reads them.

use std::fs;

use anyhow::{Context, Result, ensure};
use record::Record;
use report::{Drawings, ServerReport};
use serde_json::Value;

use super::browser::Browser;
use test_support::process;

/// The width of a PNG file in pixels.
const PNG_WIDTH: u32 = 1320;

/// Returns true if the document is a well-formed SVG file that shows something, and otherwise what it is instead.
const READ_SVG: &str = "
    const root = document.documentElement;
    if (root.localName !== 'svg' || document.querySelector('parsererror')) return root.textContent;
    const box = root.getBBox();
    return box.width > 0 && box.height > 0;";

/// Returns the width of each picture of the page, or why it cannot be decoded.
const READ_PNG: &str = "
    const width = (image) => image.decode().then(() => image.naturalWidth, (error) => String(error));
    return Promise.all([...document.images].map(width));";

fn record(name: &str) -> Result<Record> {
    let folder = process::root().join("tests/fixtures/records");
    Ok(Record::read(&folder.join(format!("{name}.jsonl")))?)
}

#[test_support::test(All, Tool("chromium"), Tool("chromedriver"))]
fn chromium_reads_every_drawing_as_svg() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let browser = Browser::start(folder.path())?;
    let file = folder.path().join("drawing.svg");
    let log = process::root().join("tests/fixtures/serve.jsonl");
    let mut drawings = Drawings::of_log(&ServerReport::read(&log)?).svg();
    for name in ["small", "every-kind"] {
        drawings.extend(Drawings::of(&record(name)?).svg());
    }
    for (name, svg) in drawings {
        fs::write(&file, svg)?;
        browser.open(&format!("file://{}", file.display()))?;
        let seen = browser.run(READ_SVG).with_context(|| name.clone())?;
        ensure!(seen == true, "{name}: {seen}");
    }
    Ok(())
}

#[test_support::test(All, Tool("chromium"), Tool("chromedriver"), Font)]
fn chromium_decodes_every_drawing_as_png() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let browser = Browser::start(folder.path())?;
    let drawings = Drawings::of(&record("small")?).png()?;
    ensure!(!drawings.is_empty(), "no drawing");
    let widths = Value::from(vec![PNG_WIDTH; drawings.len()]);
    let mut page = String::new();
    for (number, (_, png)) in drawings.into_iter().enumerate() {
        fs::write(folder.path().join(format!("{number}.png")), png)?;
        page += &format!("<img src=\"{number}.png\" alt=\"\">");
    }
    let file = folder.path().join("drawings.html");
    fs::write(&file, page)?;
    browser.open(&format!("file://{}", file.display()))?;
    let seen = browser.run(READ_PNG)?;
    ensure!(seen == widths, "{seen}");
    Ok(())
}
