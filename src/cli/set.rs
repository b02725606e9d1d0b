//! `farwire set`: changes the conditions of a link of a running farwire.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use serde_json::Value;

use super::args::api_client::ApiArgs;
use super::args::headings;
use super::args::link_conditions::ConditionsArgs;
use crate::live::{LeaseFor, LeaseId};
use crate::web::path_segment;
use conditions::{CONDITIONS, LONGEST_CONTENT, LinkSpec};
use instruments::failure::{Blame, Failure};
use record::printable::printable_lines;

/// Change the conditions of a link of a farwire that runs with --listen
///
/// The conditions that you name change, and the others stay. A condition without up- or down- applies to both directions, even if one
/// direction had its own value. A --rule replaces the rule of its name, or comes behind the others. With --replace, and with --link, --profile or --toffee, the new conditions replace all earlier ones.
/// --clear removes all conditions. The output says since when the new conditions apply, and how many packets were still in flight
/// under the earlier ones.
#[derive(Args, Debug)]
#[command(
    override_usage = "farwire set [OPTIONS] NAME CONDITION...\n       farwire set [OPTIONS] NAME --replace CONDITION...\n       farwire set [OPTIONS] NAME --clear\n       farwire set [OPTIONS] NAME --revert"
)]
pub(crate) struct SetArgs {
    /// Name of the link, as `farwire links` lists it
    name: String,
    /// Replace all conditions with those given here; --link, --profile and --toffee always do
    #[arg(long, conflicts_with_all = ["clear", "revert"])]
    replace: bool,
    /// Remove all conditions: packets then pass unchanged
    #[arg(long, conflicts_with = "revert")]
    clear: bool,
    /// Restore the earlier conditions after this time (at most 24h), or with `connection` when this command ends
    ///
    /// Restore the earlier conditions after this time (at most 24h), or with `connection` when this command ends: it then waits until
    /// you interrupt or kill it. This makes a lease, and the output names its ID. Until the lease ends, only commands with --lease ID
    /// can change the link
    #[arg(long = "for", value_name = "TIME")]
    lease_for: Option<LeaseFor>,
    /// Change the link under this lease; --for restarts the lease's time
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
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

impl SetArgs {
    /// Makes the change, and prints the conditions that now apply.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let spec = self.link.to_spec().or_bad_input()?;
        self.check(&spec)?;
        let long = spec.traces().find(|trace| !trace.is_short());
        if let Some(trace) = long {
            return Err(Failure::bad_input(format!(
                "{}: a trace that is sent to a running link has at most {LONGEST_CONTENT} bytes as csv: cut it with farwire trace --until",
                trace.file
            )));
        }
        let link = format!("/v1/links/{}", path_segment(&self.name));
        let (name, lease) = (Some(self.name.as_str()), self.lease.as_ref());
        if self.revert {
            let ended = self
                .at
                .ask("DELETE", &format!("{link}/lease"), name, lease, None)?;
            self.print(&ended)?;
            return Ok(ExitCode::SUCCESS);
        }
        let replaces = self.replace || self.clear || self.link.has_whole_link();
        let (method, body) = match replaces {
            true => ("PUT", serde_json::to_value(&spec)),
            false => ("PATCH", merge_patch(&spec)),
        };
        let mut body = body.context("cannot write the conditions as JSON")?;
        if !replaces && !spec.rules.is_empty() {
            let now = self.at.ask("GET", &link, name, None, None)?;
            body["rules"] = with_rules(&now["conditions"]["rules"], &body["rules"]);
        }
        let body = body.to_string();
        let query = self.lease_for.map(|time| format!("?for={time}"));
        let path = link + &query.unwrap_or_default();
        if self.lease_for == Some(LeaseFor::Connection) {
            let granted = |changed: &Value| self.print(changed);
            self.at.hold(method, &path, name, lease, &body, granted)?;
            return Err(anyhow!(
                "{}: the running farwire closed the connection, and the lease has ended",
                self.name
            )
            .into());
        }
        let changed = self.at.ask(method, &path, name, lease, Some(&body))?;
        self.print(&changed)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a command line that does not say what to change, or that contradicts itself.
    fn check(&self, spec: &LinkSpec) -> Result<(), Failure> {
        let has_conditions = *spec != LinkSpec::default();
        let why = match has_conditions {
            true if self.clear => {
                "--clear removes all conditions: leave the others out, or leave --clear out"
            }
            true if self.revert => {
                "--revert restores the conditions from before the lease: leave the conditions of the command line out"
            }
            false if !self.clear && !self.revert => {
                "no conditions: name those to change, such as --delay 20ms (the others stay, unless --replace is given), or remove all \
                 with --clear"
            }
            _ => return Ok(()),
        };
        Err(Failure::bad_input(why))
    }

    /// Prints the result of a change.
    fn print(&self, changed: &Value) -> Result<(), Failure> {
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
        super::show(self.json.as_deref(), changed, &text, io::sink())?;
        Ok(())
    }
}

/// Returns a JSON Merge Patch (RFC 7396) that puts the conditions of `spec` into force and keeps the others. A condition for both
/// directions replaces that of each, as a flag replaces what a file says.
fn merge_patch(spec: &LinkSpec) -> serde_json::Result<Value> {
    let mut patch = serde_json::to_value(spec)?;
    let is_for_both = |key: &&str| !patch[*key].is_null();
    let keys = CONDITIONS.iter().map(|kind| kind.key);
    let for_both: Vec<&str> = keys.filter(is_for_both).collect();
    for key in for_both {
        for direction in ["up", "down"] {
            if patch[direction][key].is_null() {
                patch[direction][key] = Value::Null;
            }
        }
    }
    Ok(patch)
}

/// Returns the rules in force with those of the command line: each replaces the one of its name, or comes behind the others. A patch
/// has the whole list.
fn with_rules(in_force: &Value, own: &Value) -> Value {
    let list = |rules: &Value| rules.as_array().cloned().unwrap_or_default();
    let mut all = list(in_force);
    for rule in list(own) {
        match all.iter_mut().find(|known| known["name"] == rule["name"]) {
            Some(known) => *known = rule,
            None => all.push(rule),
        }
    }
    Value::Array(all)
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_for_both_directions_replaces_that_of_each_and_others_stay() {
        let patch = |spec: &str| merge_patch(&toml::from_str(spec).unwrap()).unwrap();
        assert_eq!(patch("[up]\nloss = '1%'"), json!({"up": {"loss": "1%"}}));
        assert_eq!(
            patch("loss = '1%'\n[up]\nloss = '2%'\nrate = '1mbit'"),
            json!({
                "loss": "1%",
                "up": {"loss": "2%", "rate": "1mbit"},
                "down": {"loss": null},
            })
        );
    }

    #[test]
    fn a_rule_replaces_the_one_of_its_name_or_comes_behind_the_others() {
        let rule = |name: &str, loss: &str| json!({"name": name, "loss": loss});
        let in_force = json!([rule("dns", "5%"), rule("web", "1%")]);
        let own = json!([rule("web", "2%"), rule("far", "3%")]);
        assert_eq!(
            with_rules(&in_force, &own),
            json!([rule("dns", "5%"), rule("web", "2%"), rule("far", "3%")])
        );
        assert_eq!(with_rules(&Value::Null, &own), own);
    }

    #[test]
    fn an_id_of_a_lease_is_a_word_that_fits_into_a_header() {
        assert!(lease_id("0f3c").is_ok());
        for wrong in ["", "a b", "a\r\nHost: b"] {
            assert!(lease_id(wrong).is_err(), "{wrong}");
        }
    }
}
