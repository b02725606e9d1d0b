//! `farwire links` and `farwire set`: the live API of a farwire that listens, from a shell.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::ask::AtArg;
use super::link::LinkArgs;
use crate::live::LeaseFor;
use instruments::failure::{Blame, Failure};

/// List the links of a farwire that runs with --listen, and what is in force on each
#[derive(Args, Debug)]
pub(crate) struct LinksArgs {
    #[command(flatten)]
    at: AtArg,
    /// Write them as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Put conditions into force on a link of a farwire that runs with --listen
///
/// They take the place of those that were in force; a link without any changes nothing. It says from which instant on they are in
/// force, and how many packets had come before and were still on their way.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// The link, as `farwire links` lists it
    name: String,
    #[command(flatten)]
    at: AtArg,
    /// For so long, at most 24h; then the link reverts to what stood before
    #[arg(long = "for", value_name = "TIME", value_parser = lease_time)]
    lease: Option<LeaseFor>,
    #[command(flatten)]
    link: LinkArgs,
    /// Write what it came to as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl LinksArgs {
    /// Prints the list.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let all = self.at.ask("GET", "/v1/links", None)?;
        let links = all["links"].as_array().context("an answer without links")?;
        let mut text = String::new();
        for link in links {
            let word = |key: &str| link[key].as_str().unwrap_or_default().to_owned();
            let revision = &link["revision"];
            let lease = match link["lease"]["until"].as_str() {
                Some(until) => format!(", until {until}"),
                None if link["lease"].is_object() => ", while a connection lives".to_owned(),
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
        super::show(self.json.as_deref(), &all, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }
}

impl SetArgs {
    /// Makes the change, and says what it came to.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        let body = serde_json::to_string(&spec).context("the conditions as JSON")?;
        let lease = self.lease.map(|lease| format!("?for={lease}"));
        let path = format!(
            "/v1/links/{}{}",
            escaped(&self.name),
            lease.unwrap_or_default()
        );
        let changed = self.at.ask("PUT", &path, Some(&body))?;
        let link = &changed["link"];
        let text = format!(
            "{}: {} from {} on (revision {}, {} packets on their way)\n",
            self.name,
            link["says"].as_str().unwrap_or_default(),
            changed["at"].as_str().unwrap_or_default(),
            changed["revision"],
            changed["under_previous"],
        );
        super::show(self.json.as_deref(), &changed, &text, io::sink())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn lease_time(text: &str) -> Result<LeaseFor, String> {
    match text.parse()? {
        LeaseFor::Connection => Err("it is a time, such as 60s".to_owned()),
        time @ LeaseFor::Time(_) => Ok(time),
    }
}

/// A name as a part of a path (RFC 3986, section 2.1).
fn escaped(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_escaped_in_a_path() {
        assert_eq!(escaped("eth0-eth1"), "eth0-eth1");
        assert_eq!(escaped("a/../b?c"), "a%2F..%2Fb%3Fc");
    }

    #[test]
    fn a_lease_of_a_command_is_a_time() {
        assert!(lease_time("60s").is_ok());
        assert!(lease_time("connection").is_err());
    }
}
