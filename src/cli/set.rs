//! `farwire set`: changes the conditions of a link of a running farwire.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use super::args::api_client::ApiArgs;
use super::args::link_conditions::ConditionsArgs;
use super::help;
use crate::live::{LeaseFor, LeaseId};
use crate::web::path_segment;
use conditions::LinkSpec;
use instruments::failure::{Blame, Failure};
use record::printable::printable_lines;

/// Replace the conditions of a link of a farwire that runs with --listen
///
/// The new conditions replace all earlier ones. Without conditions, use --clear to remove all. The output says from which instant
/// the conditions apply, and how many packets were in flight under the earlier ones.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Name of the link, as `farwire links` lists it
    name: String,
    /// Remove all conditions: the link then changes nothing
    #[arg(long, conflicts_with = "revert")]
    clear: bool,
    /// Restore the earlier conditions after this time, at most 24h
    ///
    /// Restore the earlier conditions after this time, at most 24h. This makes a lease, and the output names its ID. Until the lease
    /// expires, only commands with --lease ID can change the link.
    #[arg(long = "for", value_name = "TIME", value_parser = lease_time)]
    lease_for: Option<LeaseFor>,
    /// Change the link under this lease; --for restarts its time
    #[arg(long, value_name = "ID", value_parser = lease_id)]
    lease: Option<LeaseId>,
    /// End the lease now and restore the earlier conditions
    #[arg(long, conflicts_with = "lease_for")]
    revert: bool,
    #[command(flatten)]
    at: ApiArgs,
    #[command(flatten)]
    link: ConditionsArgs,
    /// Write the result as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    json: Option<PathBuf>,
}

impl SetArgs {
    /// Makes the change, and prints the conditions that now apply.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let changed = self.ask()?;
        let link = &changed["link"];
        let mut text = format!(
            "{}: {} since {} (revision {}; {} packets in flight under the earlier conditions)\n",
            self.name,
            link["says"].as_str().unwrap_or_default(),
            changed["at"].as_str().unwrap_or_default(),
            changed["revision"],
            changed["under_previous"],
        );
        if let Some(id) = link["lease"]["id"].as_str() {
            let until = link["lease"]["until"].as_str();
            let until = until.map_or_else(
                || "until its connection closes".to_owned(),
                |at| format!("until {at}"),
            );
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}: lease {id} {until}, then the conditions of revision {}",
                self.name, link["lease"]["reverts_to"]
            );
        }
        let text = printable_lines(&text);
        super::show(self.json.as_deref(), &changed, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Sends the change, and returns the answer of the API.
    fn ask(&self) -> Result<Value, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        let has_conditions = spec != LinkSpec::default();
        if self.clear && has_conditions {
            return Err(Failure::bad_input(
                "--clear removes all conditions: leave the others out, or leave --clear out",
            ));
        }
        if !has_conditions && !self.clear && !self.revert {
            return Err(Failure::bad_input(
                "no conditions: name some, such as --delay 20ms, or remove all with --clear",
            ));
        }
        let link = format!("/v1/links/{}", path_segment(&self.name));
        let (name, lease) = (Some(self.name.as_str()), self.lease.as_ref());
        if self.revert {
            if has_conditions {
                return Err(Failure::bad_input(
                    "--revert restores the conditions from before the lease: leave the conditions of the command line out",
                ));
            }
            return self
                .at
                .ask("DELETE", &format!("{link}/lease"), name, lease, None);
        }
        let body = serde_json::to_string(&spec).context("cannot write the conditions as JSON")?;
        let query = self.lease_for.map(|time| format!("?for={time}"));
        let path = link + &query.unwrap_or_default();
        self.at.ask("PUT", &path, name, lease, Some(&body))
    }
}

fn lease_time(text: &str) -> Result<LeaseFor, String> {
    match text.parse()? {
        LeaseFor::Connection => Err("write a time, such as 60s".to_owned()),
        time @ LeaseFor::Time(_) => Ok(time),
    }
}

fn lease_id(text: &str) -> Result<LeaseId, String> {
    let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_one {
        true => Ok(LeaseId(text.to_owned())),
        false => Err("write the ID that was printed with the lease".to_owned()),
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
