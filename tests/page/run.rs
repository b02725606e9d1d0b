//! The page of a running experiment: its progress, its curves, and its figures as they arrive.

use std::fs;
use std::process::Stdio;

use anyhow::{Result, ensure};

use super::browser::Browser;
use super::walk::Running;
use test_support::process::farwire;

/// A run is short, so that the next one has figures soon; all runs together outlast the test.
const EXPERIMENT: &str = "\
name = 'seen'
title = 'Echoes to look at'
late_budget = '1s'
bed = { kind = 'netns' }
[[instruments]]
name = 'echo'
kind = 'ping'
parameters = { count = 100, interval = '20ms' }
[[cases]]
name = 'slow'
repeats = 100
link = { delay = '20ms' }
";

/// An experiment whose runs continue until it is dropped.
pub(crate) fn experiment(folder: &std::path::Path) -> Result<Running> {
    let file = folder.join("seen.toml");
    fs::write(&file, EXPERIMENT)?;
    let mut run = farwire();
    run.arg("run")
        .arg(file)
        .arg("--out")
        .arg(folder.join("out"))
        .stdout(Stdio::null());
    Running::of(run.args(["--listen", "127.0.0.1:0"]), "live page and API: ")
}

#[test_support::test(Namespaces, Tool("chromium"), Tool("chromedriver"))]
fn the_page_of_an_experiment_shows_how_far_it_is_its_curves_and_its_figures_as_they_come()
-> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = experiment(folder.path())?;
    let browser = Browser::start(folder.path())?;
    browser.open(&run.url)?;
    browser.wait("!document.getElementById('run').hidden")?;
    let says = |words: &str| {
        browser.wait(&format!(
            "document.getElementById('run-state').textContent.includes('{words}')"
        ))
    };
    // Runs that the machine spoils are attempted again.
    browser
        .wait("/of \\d+ runs, about /.test(document.getElementById('run-state').textContent)")?;
    says("Now: slow, run ")?;
    browser.wait("document.querySelectorAll('#figures figure:first-child polyline').length > 0")?;
    // A run has ended, and its figures are in the table.
    browser.wait("document.querySelectorAll('#run-rows tr').length > 0")?;
    let row = browser.read("document.querySelector('#run-rows tr').textContent")?;
    let row = row.as_str().unwrap_or_default().to_owned();
    ensure!(row.contains("slow") && row.contains("echo"), "{row}");
    // The conditions of a run are the scenario's: nothing can be changed.
    browser.wait("document.getElementById('apply').disabled")?;
    // Between two runs a link is answered with 404, which a browser logs.
    let errors = browser.errors()?;
    let mut others = errors.iter().filter(|error| !error.contains("404"));
    ensure!(others.next().is_none(), "{errors:?}");
    Ok(())
}
