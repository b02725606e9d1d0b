//! `farwire set`: changes the conditions of a link of a running farwire.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use axum::http::StatusCode;
use clap::Args;
use serde_json::Value;

use super::args::api_client::{ApiArgs, ApiRequest, refused_with};
use super::args::headings;
use super::args::link_conditions::ConditionsArgs;
use crate::live::{LeaseFor, LeaseId, quoted};
use crate::web::path_segment;
use conditions::{CONDITIONS, LONGEST_CONTENT, LinkSpec};
use instruments::failure::{Blame, Failure};
use record::printable::printable_lines;

/// The largest number of attempts at a change if other clients change the link before each of them.
const MOST_TRIES: usize = 100;

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
        if self.revert {
            self.end_lease(&link)?;
            return Ok(ExitCode::SUCCESS);
        }
        let replaces = self.replace || self.clear || self.link.has_whole_link();
        let (method, body) = match replaces {
            true => ("PUT", serde_json::to_value(&spec)),
            false => ("PATCH", merge_patch(&spec)),
        };
        let body = body.context("cannot write the conditions as JSON")?;
        if replaces || spec.rules.is_empty() {
            self.change(&link, method, &body, None)?;
            return Ok(ExitCode::SUCCESS);
        }
        let read = || self.at.ask(&self.request("GET", &link));
        change_as_read(&self.name, read, |now| {
            let mut patch = body.clone();
            patch["rules"] = with_rules(&now["conditions"]["rules"], &body["rules"]);
            self.change(&link, method, &patch, now["revision"].as_u64())
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Changes the link, if it has this revision, and prints the conditions that now apply.
    fn change(
        &self,
        link: &str,
        method: &str,
        body: &Value,
        if_revision: Option<u64>,
    ) -> Result<(), Failure> {
        let query = self.lease_for.map(|time| format!("?for={time}"));
        let path = format!("{link}{}", query.unwrap_or_default());
        let body = body.to_string();
        let request = ApiRequest {
            lease: self.lease.as_ref(),
            if_revision,
            body: Some(&body),
            ..self.request(method, &path)
        };
        if self.lease_for == Some(LeaseFor::Connection) {
            self.at.hold(&request, |changed| self.print(changed))?;
            return Err(anyhow!(
                "{}: the running farwire closed the connection, and the lease has ended",
                self.name
            )
            .into());
        }
        self.print(&self.at.ask(&request)?)
    }

    /// Ends the lease, and prints the conditions that apply again.
    fn end_lease(&self, link: &str) -> Result<(), Failure> {
        let path = format!("{link}/lease");
        let request = ApiRequest {
            lease: self.lease.as_ref(),
            ..self.request("DELETE", &path)
        };
        let refused = match self.at.ask(&request) {
            Ok(ended) => return self.print(&ended),
            Err(refused) => refused,
        };
        let is_not_found = refused_with(&refused) == Some(StatusCode::NOT_FOUND);
        if !is_not_found || self.lease.is_some() {
            return Err(refused);
        }
        // The link or its lease does not exist.
        match self.at.ask(&self.request("GET", link)) {
            Ok(now) if now["lease"].is_null() => {
                Err(Failure::bad_input(no_lease(&self.name, link)))
            }
            _ => Err(refused),
        }
    }

    /// Returns a request about the link, without a body.
    fn request<'a>(&'a self, method: &'a str, path: &'a str) -> ApiRequest<'a> {
        ApiRequest {
            method,
            path,
            link: Some(&self.name),
            ..ApiRequest::default()
        }
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

/// Makes a change that depends on what was read of the link. It reads again if the change is refused because another one came between
/// the two.
fn change_as_read(
    name: &str,
    read: impl Fn() -> Result<Value, Failure>,
    change: impl Fn(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for _ in 0..MOST_TRIES {
        match change(&read()?) {
            Err(failure) if refused_with(&failure) == Some(StatusCode::PRECONDITION_FAILED) => {}
            done => return done,
        }
    }
    Err(anyhow!(
        "{name}: other clients changed the link {MOST_TRIES} times while its rules were read and changed: nothing was changed; try again"
    )
    .into())
}

/// Says what `--revert` does, and how to go back without a lease. `path` is that of the link in the API.
fn no_lease(name: &str, path: &str) -> String {
    format!(
        "{name}: there is no lease to end. --revert ends a lease, which a change with --for makes, and restores the conditions from before \
         it; a lease whose time is over has done that already. To go back after a change without --for, set the earlier conditions: \
         farwire set {} --replace CONDITION... (GET {path}/history lists them)",
        quoted(name)
    )
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
    use std::cell::Cell;

    use serde_json::json;

    use super::super::args::api_client::accepted;
    use super::*;

    fn refused(status: StatusCode) -> Failure {
        accepted(status, json!({"detail": "no"})).unwrap_err()
    }

    #[test]
    fn a_change_of_what_was_read_is_made_again_after_another_one() {
        let revision = Cell::new(0);
        let read = || {
            revision.set(revision.get() + 1);
            Ok(json!({"revision": revision.get()}))
        };
        let changed = change_as_read("link", read, |now| match now["revision"].as_u64() {
            Some(4) => Ok(()),
            _ => Err(refused(StatusCode::PRECONDITION_FAILED)),
        });
        assert!(changed.is_ok());
        assert_eq!(revision.get(), 4);
    }

    #[test]
    fn a_change_that_others_always_precede_fails_and_another_refusal_ends_it() {
        for (status, code, tries, words) in [
            (
                StatusCode::PRECONDITION_FAILED,
                1,
                MOST_TRIES,
                "100 times while its rules were read",
            ),
            (StatusCode::CONFLICT, 2, 1, "no"),
        ] {
            let tried = Cell::new(0);
            let change = |_: &Value| {
                tried.set(tried.get() + 1);
                Err(refused(status))
            };
            let failed = change_as_read("link", || Ok(Value::Null), change).unwrap_err();
            assert_eq!((failed.code(), tried.get()), (code, tries), "{failed}");
            assert!(failed.to_string().contains(words), "{failed}");
        }
    }

    #[test]
    fn the_way_back_without_a_lease_names_the_link_as_a_shell_reads_it() {
        let says = no_lease("my link", "/v1/links/my%20link");
        assert!(
            says.starts_with("my link: there is no lease to end"),
            "{says}"
        );
        assert!(says.contains("farwire set 'my link' --replace"), "{says}");
        assert!(says.contains("GET /v1/links/my%20link/history"), "{says}");
    }

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
