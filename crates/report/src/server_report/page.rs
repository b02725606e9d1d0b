//! The report of a far end's log as a page, in one file that loads nothing else.

use askama::Template;
use record::table::Table;

use super::ServerReport;
use super::drawings::drawings;
use super::opening::sentences;
use super::tables::{remarks, tables};
use crate::charts::Drawing;
use crate::error::Result;
use crate::render::Html;

#[derive(Template)]
#[template(path = "server_report/page.html")]
struct Page {
    sentences: Vec<String>,
    drawings: Vec<Drawing>,
    tables: Vec<Table>,
    remarks: Vec<String>,
}

/// Formats the report as a page.
///
/// # Errors
/// Those of the template.
pub fn server_html(report: &ServerReport) -> Result<String> {
    let page = Page {
        sentences: sentences(report),
        drawings: drawings(report),
        tables: tables(report, true),
        remarks: remarks(report),
    };
    Ok(page.render()?)
}

#[cfg(test)]
mod tests {
    use super::super::opening::tests::report;
    use super::*;

    #[test]
    fn the_page_opens_with_the_sentences_and_has_drawings_and_tables() {
        let mut report = report(&[("192.0.2.1", 10, 40.0), ("192.0.2.2", 11, 20.0)]);
        report.lost_lines = 3;
        report.clients[0].name = Some("<evil>".to_owned());
        let page = server_html(&report).unwrap();
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        let order = [
            "<main>",
            "<p>2 tests of 2 clients, none of which failed",
            "<p>Limits: the clients chose",
            "<figcaption>Mean rate of the tests by hour",
            "<h3>tests by kind</h3>",
            "<h3>by client</h3>",
            "the log lacks 3 lines",
        ]
        .map(at);
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(page.matches("<figure>").count(), 3);
        assert!(!page.contains("<evil>"), "{page}");
    }

    #[test]
    fn the_page_of_an_empty_log_says_so() {
        let page = server_html(&ServerReport::default()).unwrap();
        assert!(
            page.contains("The log contains no finished test."),
            "{page}"
        );
        assert!(!page.contains("<h2>"), "{page}");
    }
}
