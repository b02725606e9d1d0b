//! The page of a box of very many links, in Chromium.

use anyhow::{Result, ensure};

use super::links::{Street, file};
use crate::page::browser::Browser;
use test_support::api::{self, Listening};
use test_support::process::{farwire, ip};

/// One link more than the list of the page offers.
const LINKS: usize = 101;

#[test_support::test(Namespaces, Tool("ip"), Tool("chromium"), Tool("chromedriver"))]
fn the_page_finds_a_link_that_its_list_does_not_offer() -> Result<()> {
    let street = Street::build(LINKS)?;
    ip(&street.middle, "link set lo up")?;
    let links = file([""; LINKS])?;
    let mut command = farwire();
    command.args(["emulate", "--links"]).arg(links.path());
    command.args(api::OPEN);
    let live = street.middle.run(|| Listening::start(&mut command))??;
    let downloads = tempfile::tempdir()?;
    street.middle.run(|| {
        let browser = Browser::start(downloads.path())?;
        search(&browser, &format!("http://{}/", live.at))
    })??;
    live.terminate()
}

fn search(browser: &Browser, url: &str) -> Result<()> {
    let text = |id: &str, words: &str| {
        browser.wait(&format!(
            "document.getElementById('{id}').textContent === '{words}'"
        ))
    };
    let offers = |count: usize| {
        browser.wait(&format!(
            "document.getElementById('links').options.length === {count}"
        ))
    };
    browser.open(url)?;
    text("title", "x0-y0")?;
    text("found", "the first 100 of 101 links")?;
    offers(100)?;
    browser.fill("#search", "X100")?;
    text("found", "1 link")?;
    // The link that is shown stays in the list.
    offers(2)?;
    browser.wait(
        "(list => { list.value = 'x100-y100'; return list.dispatchEvent(new Event('change')); })(document.getElementById('links'))",
    )?;
    text("title", "x100-y100")?;
    // The address names the link, also for those who open it anew.
    let address = browser.read("location.href")?;
    ensure!(address == format!("{url}?link=x100-y100"), "{address}");
    browser.open(&format!("{url}?link=x100-y100"))?;
    text("title", "x100-y100")?;
    offers(101)?;
    let errors = browser.errors()?;
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}
