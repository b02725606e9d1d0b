//! The records of a directory and their reports, which `farwire view` serves. It has no links and
//! accepts no changes.
//!
//! A report is generated from its record for every request, so that a running experiment is shown
//! up to date. The list reads a record again only if its file has changed, and is composed again only
//! if that is so for any of its records.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow};
use axum::Router;
use axum::extract::{Path as Named, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use record::{FileState, Record};
use report::Listed;
use tokio::sync::Semaphore;

use super::problem::Problem;

/// The restrictions for the page of a report: its style and script are inline, and nothing is
/// loaded from other sites.
const CSP: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                   form-action 'none'; frame-ancestors 'none'";

/// The records of a directory: its own record, and those of its subdirectories.
#[derive(Clone)]
pub(crate) struct Records {
    folder: Arc<PathBuf>,
    /// Allows one analysis at a time, because it takes some time.
    computing: Arc<Semaphore>,
    list: Arc<Mutex<CachedList>>,
}

/// The list as it was last composed.
#[derive(Default)]
struct CachedList {
    /// The entries by the name of the record.
    entries: HashMap<String, CachedEntry>,
    /// The page with all entries, unless a record could not be read.
    page: Option<String>,
}

/// An entry of the list, and the state of the record's file before it was read.
struct CachedEntry {
    state: FileState,
    listed: Listed,
}

impl Records {
    /// Serves the records of `folder`.
    pub(crate) fn of(folder: PathBuf) -> Self {
        Self {
            folder: Arc::new(folder),
            computing: Arc::new(Semaphore::new(1)),
            list: Arc::default(),
        }
    }

    /// Returns the names of the records in order. The directory's own record has an empty name.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        if Record::is_in(&self.folder) {
            names.push(String::new());
        }
        for entry in std::fs::read_dir(&*self.folder)?.flatten() {
            // A name that is not UTF-8 cannot be part of an address.
            let name = entry.file_name().into_string().ok();
            names.extend(name.filter(|_| Record::is_in(&entry.path())));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn read(&self, name: &str) -> Result<Record> {
        Ok(Record::read(&self.folder.join(name))?)
    }

    /// Returns the page with all records. Records that cannot be read are listed with the cause.
    fn index(&self) -> Result<String> {
        let names = self.names()?;
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let CachedList { entries, page } = &mut *list;
        let before = entries.len();
        entries.retain(|name, _| names.binary_search(name).is_ok());
        let mut has_changed = entries.len() != before;
        let mut unread = Vec::new();
        for name in &names {
            match self.update(entries, name) {
                Ok(is_new) => has_changed |= is_new,
                Err(error) => {
                    entries.remove(name);
                    unread.push(format!("{error:#}"));
                }
            }
        }
        // A record that cannot be read has no state by which a change would be noticed.
        if has_changed || !unread.is_empty() {
            *page = None;
        }
        if let Some(page) = &*page {
            return Ok(page.clone());
        }
        let listed = names.iter().filter_map(|name| entries.get(name));
        let composed = report::index(listed.map(|entry| &entry.listed), &unread)?;
        if unread.is_empty() {
            *page = Some(composed.clone());
        }
        Ok(composed)
    }

    /// Reads the record with this name for the list, unless its file is as it was. Returns true if the
    /// record was read.
    fn update(&self, entries: &mut HashMap<String, CachedEntry>, name: &str) -> Result<bool> {
        let state = Record::state_in(&self.folder.join(name))?;
        if entries.get(name).is_some_and(|entry| entry.state == state) {
            return Ok(false);
        }
        let report = match name {
            "" => "report.html".to_owned(),
            name => format!("{}/report.html", path_segment(name)),
        };
        // An unexpected panic in one record must not hide the others.
        let list = || Ok(Listed::of(&self.read(name)?, report));
        let panicked = |_| Err(anyhow!("{name}: reading the record panicked"));
        let listed = catch_unwind(AssertUnwindSafe(list)).unwrap_or_else(panicked)?;
        entries.insert(name.to_owned(), CachedEntry { state, listed });
        Ok(true)
    }

    /// Returns the report of the record with this name, or `None` if there is no such record. The
    /// name cannot lead outside the directory.
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

/// Encodes a name as a segment of an address (RFC 3986, section 3.3).
pub(crate) fn path_segment(name: &str) -> PercentEncode<'_> {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(name, RESERVED)
}

/// Returns the pages at their paths.
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
    fn records_are_those_of_the_directory_and_its_subdirectories() {
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
    fn no_name_leads_out_of_the_directory() {
        let folder = folder(&["inside/one", "outside"]);
        let records = Records::of(folder.path().join("inside"));
        assert!(records.report("one").unwrap().is_some());
        for name in ["../outside", "..", ".", "one/../../outside", "/", ""] {
            assert!(records.report(name).unwrap().is_none(), "{name}");
        }
    }

    /// Changes the contents of a record, but neither its size nor its modification time.
    fn replace_secretly(folder: &tempfile::TempDir, name: &str, from: &str, to: &str) {
        let path = folder.path().join(name).join("record.jsonl");
        let modified = path.metadata().unwrap().modified().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from) && from.len() == to.len());
        std::fs::write(&path, text.replace(from, to)).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
    }

    #[test]
    fn the_list_reads_a_changed_record_again_and_an_unchanged_one_not() {
        let folder = folder(&["a", "b"]);
        let records = Records::of(folder.path().to_owned());
        let title = "A small experiment";
        let count = |of: &str| records.index().unwrap().matches(of).count();
        assert_eq!(count(&format!(">{title}</a>")), 2);
        let other = "X".repeat(title.len());
        for name in ["a", "b"] {
            replace_secretly(&folder, name, title, &other);
        }
        assert_eq!(count(&format!(">{other}</a>")), 0);
        let path = folder.path().join("b/record.jsonl");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(count(&format!(">{other}</a>")), 1);
        assert_eq!(count(&format!(">{title}</a>")), 1);
        std::fs::remove_dir_all(folder.path().join("a")).unwrap();
        assert_eq!(count(&format!(">{title}</a>")), 0);
    }

    #[test]
    fn a_list_of_a_thousand_records_reads_each_of_them_once() {
        let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let folder = folder(&names);
        let records = Records::of(folder.path().to_owned());
        let title = "A small experiment";
        let count = |of: &str| records.index().unwrap().matches(of).count();
        assert_eq!(count(&format!(">{title}</a>")), 1_000);
        // A record that was read again would have this title.
        let other = "X".repeat(title.len());
        for name in &names {
            replace_secretly(&folder, name, title, &other);
        }
        assert_eq!(count(&format!(">{title}</a>")), 1_000);
        let path = folder.path().join("500/record.jsonl");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(count(&format!(">{other}</a>")), 1);
        assert_eq!(count(&format!(">{title}</a>")), 999);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named_and_hides_no_other() {
        let folder = folder(&["a", "b"]);
        let path = folder.path().join("b/record.jsonl");
        std::fs::write(&path, "no record\n").unwrap();
        let records = Records::of(folder.path().to_owned());
        let index = records.index().unwrap();
        assert!(index.contains("a/report.html"), "{index}");
        assert!(index.contains("b/record.jsonl"), "{index}");
        std::fs::remove_file(&path).unwrap();
        let index = records.index().unwrap();
        assert!(!index.contains("b/record.jsonl"), "{index}");
    }
}
