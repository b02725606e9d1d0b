//! `farwire set`: changes a link of a farwire that listens.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::args::api_client::ApiArgs;
use super::args::link_conditions::ConditionsArgs;
use crate::live::{LeaseFor, LeaseId};
use crate::web::path_segment;
use conditions::LinkSpec;
use instruments::failure::{Blame, Failure};
use record::printable::printable_lines;

/// Put conditions into force on a link of a farwire that runs with --listen
///
/// They take the place of those that were in force; a link without any changes nothing. It says from which instant on they are in
/// force, and how many packets had come before and were still on their way.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// The link, as `farwire links` lists it
    name: String,
    #[command(flatten)]
    at: ApiArgs,
    /// A lease: for so long, at most 24h; then the link reverts to what stood before
    ///
    /// It says by which ID the lease is known. While it stands, the link is changed by who names it with --lease only.
    #[arg(long = "for", value_name = "TIME", value_parser = lease_time)]
    lease_for: Option<LeaseFor>,
    /// Change the link under this lease; with --for, that long from now on
    #[arg(long, value_name = "ID", value_parser = lease_id)]
    lease: Option<LeaseId>,
    /// End the lease now, that of --lease or whichever stands: the link reverts to what stood before
    #[arg(long, conflicts_with = "lease_for")]
    revert: bool,
    #[command(flatten)]
    link: ConditionsArgs,
    /// Write what it came to as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl SetArgs {
    /// Makes the change, and says what it came to.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let changed = self.ask()?;
        let link = &changed["link"];
        let mut text = format!(
            "{}: {} from {} on (revision {}, {} packets on their way)\n",
            self.name,
            link["says"].as_str().unwrap_or_default(),
            changed["at"].as_str().unwrap_or_default(),
            changed["revision"],
            changed["under_previous"],
        );
        if let Some(id) = link["lease"]["id"].as_str() {
            let until = link["lease"]["until"].as_str();
            let until =
                until.map_or_else(|| "for a connection".to_owned(), |at| format!("until {at}"));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}: lease {id} {until}, then as at revision {}",
                self.name, link["lease"]["reverts_to"]
            );
        }
        let text = printable_lines(&text);
        super::show(self.json.as_deref(), &changed, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }

    /// What the API answers.
    fn ask(&self) -> Result<Value, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        let link = format!("/v1/links/{}", path_segment(&self.name));
        let (name, lease) = (Some(self.name.as_str()), self.lease.as_ref());
        if self.revert {
            if spec != LinkSpec::default() {
                return Err(Failure::bad_input(
                    "--revert: the conditions are those of before the lease: leave those of the command line out",
                ));
            }
            return self
                .at
                .ask("DELETE", &format!("{link}/lease"), name, lease, None);
        }
        let body = serde_json::to_string(&spec).context("the conditions as JSON")?;
        let query = self.lease_for.map(|time| format!("?for={time}"));
        let path = link + &query.unwrap_or_default();
        self.at.ask("PUT", &path, name, lease, Some(&body))
    }
}

fn lease_time(text: &str) -> Result<LeaseFor, String> {
    match text.parse()? {
        LeaseFor::Connection => Err("it is a time, such as 60s".to_owned()),
        time @ LeaseFor::Time(_) => Ok(time),
    }
}

fn lease_id(text: &str) -> Result<LeaseId, String> {
    let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_one {
        true => Ok(LeaseId(text.to_owned())),
        false => Err("it is the ID that was said with the lease".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_a_command_is_a_time() {
        assert!(lease_time("60s").is_ok());
        assert!(lease_time("connection").is_err());
    }

    #[test]
    fn an_id_of_a_lease_is_a_word_that_fits_into_a_header() {
        assert!(lease_id("0f3c").is_ok());
        for wrong in ["", "a b", "a\r\nHost: b"] {
            assert!(lease_id(wrong).is_err(), "{wrong}");
        }
    }
}
