//! The formats of `farwire report --format`. Each is a file here and an entry of [`FORMATS`].

pub(crate) mod csv;
pub(crate) mod flent;
pub(crate) mod html;
mod json;
mod jsonl;
pub(crate) mod junit;
pub(crate) mod markdown;
mod openmetrics;
pub(crate) mod parquet;
pub(crate) mod text;

use std::io::{self, Write};

use crate::Terminal;
use crate::data::DataTable;
use crate::error::Result;
use record::Record;

/// A form in which a record can be shown.
#[derive(Debug)]
pub struct ReportFormat {
    /// Name for `--format`.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The function that creates the report.
    pub make: Make,
}

/// The names of files, each with the text of its file.
pub type NamedFiles = Vec<(String, String)>;

/// The kinds of functions that create a report.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// A text that fits a terminal; with `true`, it has everything in the record.
    Terminal(fn(&Record, bool, Terminal) -> String),
    /// A document that fits into memory.
    Document(fn(&Record) -> Result<String>),
    /// A document with a line for every sample or figure, which is written as a stream.
    Stream(fn(&Record, &mut dyn Write) -> io::Result<()>),
    /// A table whose rows the user selects, which is written as a stream.
    Data(fn(DataTable<'_>, &mut (dyn Write + Send)) -> io::Result<()>),
    /// Several files.
    Files(fn(&Record) -> Result<NamedFiles>),
}

/// Defines the list of formats. The comment above a format is its help.
macro_rules! formats {
    ($($(#[doc = $help:literal])+ $name:literal: $form:ident($make:path),)*) => {
        /// All formats in the order of the help; the first is the default.
        pub const FORMATS: &[ReportFormat] = &[
            $(ReportFormat { name: $name, help: concat!($($help),+).trim_ascii(), make: Make::$form($make) },)*
        ];
    };
}

formats! {
    /// Text tables for the terminal
    "text": Terminal(text::text),
    /// The same tables as Markdown
    "md": Document(markdown::markdown),
    /// A self-contained page with charts
    "html": Document(html::html),
    /// Every sample or every run, one per line
    "csv": Data(csv::write_csv),
    /// The same tables in the binary form of pandas, polars, DuckDB and Spark
    "parquet": Data(parquet::write_parquet),
    /// The record as one indented document
    "json": Stream(json::write_json),
    /// Every figure of every run, one JSON object a line
    "jsonl": Stream(jsonl::write_jsonl),
    /// The verdicts as JUnit XML
    "junit": Document(junit::junit),
    /// Every figure as a gauge of OpenMetrics, for Prometheus
    "openmetrics": Document(openmetrics::openmetrics),
    /// Data files for flent, one for each group of simultaneous instruments
    "flent": Files(flent::flent),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_a_row_for_every_format() {
        let documented = include_str!("../../../../docs/reports.md");
        for ReportFormat { name, .. } in FORMATS {
            assert!(documented.contains(&format!("\n| `{name}` | ")), "{name}");
        }
    }
}
