//! The records of a folder and their reports, which `farwire view` serves. It has no links and accepts no changes.
//!
//! A report is made from its record for every request, so that a run in progress is shown up to date.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use axum::Router;
use axum::extract::{Path as Named, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use record::Record;
use report::Listed;
use tokio::sync::Semaphore;

use super::problem::Problem;

/// What a report's page may do: its style and its script are within it, nothing comes from elsewhere.
const CSP: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                   form-action 'none'; frame-ancestors 'none'";

/// The records of a folder: its own, and those of the folders in it.
#[derive(Clone)]
pub(crate) struct Records {
    folder: Arc<PathBuf>,
    /// One at a time: an analysis takes a while.
    computing: Arc<Semaphore>,
}

impl Records {
    /// Those of `folder`.
    pub(crate) fn of(folder: PathBuf) -> Self {
        Self {
            folder: Arc::new(folder),
            computing: Arc::new(Semaphore::new(1)),
        }
    }

    /// Names, in their order; the folder's own record has the empty one.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        if Record::is_in(&self.folder) {
            names.push(String::new());
        }
        for entry in std::fs::read_dir(&*self.folder)?.flatten() {
            // What is no UTF-8 has no address.
            let name = entry.file_name().into_string().ok();
            names.extend(name.filter(|_| Record::is_in(&entry.path())));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Record> {
        Ok(Record::read(&self.folder.join(name))?)
    }

    /// The page of all of them; what cannot be read is named with its cause.
    fn index(&self) -> Result<String> {
        let (mut listed, mut unread) = (Vec::new(), Vec::new());
        for name in self.names()? {
            let report = match name.as_str() {
                "" => "report.html".to_owned(),
                name => format!("{}/report.html", path_segment(name)),
            };
            // One that nobody foresaw must not hide the others.
            let list = || Ok(Listed::of(&self.read(&name)?, report));
            let panicked = |_| Err(anyhow!("{name}: reading the record panicked"));
            match catch_unwind(AssertUnwindSafe(list)).unwrap_or_else(panicked) {
                Ok(one) => listed.push(one),
                Err(error) => unread.push(format!("{error:#}")),
            }
        }
        Ok(report::index(&listed, &unread)?)
    }

    /// The report of the record of this name; nothing where there is none, whatever the name says.
    fn report(&self, name: &str) -> Result<Option<String>> {
        if !self.names()?.iter().any(|known| known == name) {
            return Ok(None);
        }
        Ok(Some(report::html(&self.read(name)?)?))
    }

    async fn answer(
        self,
        make: impl FnOnce(&Self) -> Result<Option<String>> + Send + 'static,
    ) -> Response {
        let permit = Arc::clone(&self.computing).acquire_owned().await;
        let made = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            make(&self)
        });
        let failed = |why: &dyn std::fmt::Display| {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, why).into_response()
        };
        match made.await {
            Ok(Ok(Some(page))) => {
                let csp = HeaderValue::from_static(CSP);
                ([(header::CONTENT_SECURITY_POLICY, csp)], Html(page)).into_response()
            }
            Ok(Ok(None)) => Problem::not_found("there is no such record").into_response(),
            Ok(Err(error)) => failed(&format_args!("{error:#}")),
            Err(error) => failed(&error),
        }
    }
}

/// A name as a segment of an address (RFC 3986, section 3.3).
pub(crate) fn path_segment(name: &str) -> PercentEncode<'_> {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(name, RESERVED)
}

/// The pages at their paths.
pub(super) fn router() -> Router<Records> {
    Router::new()
        .route("/", get(index))
        .route("/report.html", get(own_report))
        .route("/{name}/report.html", get(report_of))
}

async fn index(State(records): State<Records>) -> Response {
    records.answer(|records| records.index().map(Some)).await
}

async fn own_report(State(records): State<Records>) -> Response {
    records.answer(|records| records.report("")).await
}

async fn report_of(State(records): State<Records>, Named(name): Named<String>) -> Response {
    records.answer(move |records| records.report(&name)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = include_str!("../../tests/fixtures/records/small.jsonl");

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let place = folder.path().join(name);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join("record.jsonl"), SMALL).unwrap();
        }
        folder
    }

    #[test]
    fn records_are_those_of_the_folder_and_of_the_folders_in_it() {
        let folder = folder(&["", "b", "a b"]);
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        let records = Records::of(folder.path().to_owned());
        assert_eq!(records.names().unwrap(), ["", "a b", "b"]);
        let index = records.index().unwrap();
        for address in [
            "\"report.html\"",
            "\"a%20b/report.html\"",
            "\"b/report.html\"",
        ] {
            assert!(index.contains(address), "{address}");
        }
        assert!(records.report("a b").unwrap().is_some());
    }

    #[test]
    fn a_name_is_escaped_in_a_path() {
        for (name, segment) in [("eth0-eth1", "eth0-eth1"), ("a/../b?c", "a%2F..%2Fb%3Fc")] {
            assert_eq!(path_segment(name).to_string(), segment);
        }
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let folder = folder(&["inside/one", "outside"]);
        let records = Records::of(folder.path().join("inside"));
        assert!(records.report("one").unwrap().is_some());
        for name in ["../outside", "..", ".", "one/../../outside", "/", ""] {
            assert!(records.report(name).unwrap().is_none(), "{name}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named_and_hides_no_other() {
        let folder = folder(&["a", "b"]);
        std::fs::write(folder.path().join("b/record.jsonl"), "no record\n").unwrap();
        let index = Records::of(folder.path().to_owned()).index().unwrap();
        assert!(index.contains("a/report.html"), "{index}");
        assert!(index.contains("b/record.jsonl"), "{index}");
    }
}
