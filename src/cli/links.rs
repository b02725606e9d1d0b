//! `farwire links`: the links of a running farwire.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::args::api_client::{ApiArgs, ApiRequest};
use super::args::headings;
use crate::notes::note;
use crate::web::path_segment;
use instruments::failure::Failure;
use record::printable::printable_lines;
use serde_json::json;

/// List the links of a farwire that runs with --listen, and their conditions
#[derive(Args, Debug)]
pub(crate) struct LinksArgs {
    /// List only the links whose names contain TEXT, in upper or lower case
    #[arg(value_name = "TEXT")]
    search: Option<String>,
    #[command(flatten)]
    at: ApiArgs,
    /// Write the list as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

impl LinksArgs {
    /// Prints the list.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let search = self.search.as_deref().map_or_else(String::new, |text| {
            format!("&search={}", path_segment(text))
        });
        let (mut links, mut next) = (Vec::new(), Some(0));
        while let Some(offset) = next {
            let path = format!("/v1/links?offset={offset}{search}");
            let part = self.at.ask(&ApiRequest {
                method: "GET",
                path: &path,
                ..ApiRequest::default()
            })?;
            let listed = part["links"].as_array();
            links.extend_from_slice(listed.context("the answer lists no links")?);
            next = part["next"].as_u64();
        }
        if let Some(part) = self.search.as_deref().filter(|_| links.is_empty()) {
            note(format_args!("no link has `{part}` in its name"));
        }
        let mut text = String::new();
        for link in &links {
            let word = |key: &str| link[key].as_str().unwrap_or_default().to_owned();
            let revision = &link["revision"];
            let lease = match link["lease"]["until"].as_str() {
                Some(until) => format!(", lease until {until}"),
                None if link["lease"].is_object() => {
                    ", lease until its connection closes".to_owned()
                }
                None => String::new(),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}: {} (revision {revision}{lease})",
                word("name"),
                word("says")
            );
        }
        let text = printable_lines(&text);
        let all = json!({ "links": links });
        super::show(self.json.as_deref(), &all, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }
}
