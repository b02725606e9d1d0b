//! A page of sentences, drawings and tables, for results that are not a record.

use askama::Template;
use record::table::Table;

use crate::error::Result;
use crate::render::Html;

/// The contents of a page from top to bottom.
#[derive(Template)]
#[template(path = "plain_page.html")]
pub struct PlainPage {
    /// The title.
    pub title: String,
    /// The sentences below the title, a paragraph each.
    pub sentences: Vec<String>,
    /// The drawings, side by side.
    pub drawings: Vec<PageDrawing>,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A drawing of a page.
pub struct PageDrawing {
    /// The words above it.
    pub caption: String,
    /// The drawing as SVG, which [`Plot::draw`](crate::Plot::draw) returns. It becomes a part of the page as it is.
    pub svg: String,
}

impl PlainPage {
    /// Formats the page, which is one file that loads nothing else.
    ///
    /// # Errors
    /// Those of the template.
    pub fn html(&self) -> Result<String> {
        Ok(self.render()?)
    }
}

#[cfg(test)]
mod tests {
    use record::table::Column;

    use super::*;

    #[test]
    fn a_page_has_its_sentences_drawings_and_tables() {
        let columns = [Column::words("parameter"), Column::numbers("value\nms")];
        let page = PlainPage {
            title: "The path to <here>".to_owned(),
            sentences: vec!["It is short.".to_owned()],
            drawings: vec![PageDrawing {
                caption: "idle".to_owned(),
                svg: "<svg></svg>".to_owned(),
            }],
            tables: vec![Table::new("", columns).with([["delay", "20"]])],
        };
        let html = page.html().unwrap();
        for wanted in [
            "<p>It is short.</p>",
            "<figcaption>idle</figcaption><svg></svg>",
            "<small>ms</small>",
            "delay",
        ] {
            assert!(html.contains(wanted), "{wanted}: {html}");
        }
        assert!(!html.contains("<here>"), "{html}");
    }
}
