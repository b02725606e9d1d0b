//! The resources that a plan uses outside this program and its own namespaces. They let a user
//! judge another person's scenario before running it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::experiment::{Case, Plan, PlannedInstrument};
use crate::named_files;
use record::bed::Bed;

/// All external resources of a plan, each listed once.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Uses {
    /// The programs that the plan runs, each with the first line of its version output.
    commands: BTreeMap<String, String>,
    /// The files that the plan reads.
    files: BTreeSet<PathBuf>,
    /// The hosts that the plan communicates with.
    hosts: BTreeSet<String>,
    /// The network interfaces of this machine that the plan takes over.
    interfaces: BTreeSet<String>,
}

impl Uses {
    /// Lists the resources of `plan`, which the scenario file `by` describes. `commands` are the
    /// tools of its instruments; `also` has the same meaning as for [`named_files::find`].
    ///
    /// # Errors
    /// Fails if the scenario names a file that it may not name.
    pub(crate) fn of(
        plan: &Plan,
        by: &Path,
        also: &[PathBuf],
        commands: BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut uses = Self::of_record(plan, commands);
        let mut names = BTreeSet::new();
        for case in &plan.cases {
            for conditions in [
                serde_json::to_value(&case.link)?,
                serde_json::to_value(&case.bed)?,
            ] {
                named_in(&conditions, &mut names);
            }
        }
        let sent = std::mem::take(&mut uses.files);
        for name in names.union(&sent) {
            uses.files.insert(named_files::find(by, name, also)?);
        }
        Ok(uses)
    }

    /// Lists the resources of a record's `plan`, which has absolute paths and the values of its
    /// distributions. `commands` are the tools of its instruments.
    pub(crate) fn of_record(plan: &Plan, commands: BTreeMap<String, String>) -> Self {
        let mut uses = Self {
            commands,
            files: sent(plan).map(|(_, _, file)| file.to_owned()).collect(),
            ..Self::default()
        };
        for case in &plan.cases {
            match &case.bed {
                Bed::Netns(_) | Bed::Chain(_) => {}
                Bed::External(far) => {
                    uses.hosts.insert(far.host.clone());
                }
                Bed::Nics(nics) => {
                    let both = [&nics.client, &nics.server].map(|nic| nic.interface.clone());
                    uses.interfaces.extend(both);
                }
            }
        }
        uses
    }

    /// Describes the use of the host's network: the interfaces taken over and the hosts contacted.
    /// Returns `None` if there are none.
    pub(crate) fn of_network(&self) -> Option<String> {
        let phrase = |what: &str, all: &BTreeSet<String>| {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            (!all.is_empty()).then(|| format!("{what} {}", all.join(", ")))
        };
        let both = [
            phrase("uses the interfaces", &self.interfaces),
            phrase("sends to", &self.hosts),
        ];
        let phrases: Vec<String> = both.into_iter().flatten().collect();
        (!phrases.is_empty()).then(|| phrases.join(" and "))
    }
}

/// Returns the files that the instruments of `plan` send.
pub(crate) fn sent(plan: &Plan) -> impl Iterator<Item = (&Case, &PlannedInstrument, &Path)> {
    plan.cases.iter().flat_map(|case| {
        let files = case.instruments.iter();
        files.filter_map(move |planned| Some((case, planned, planned.args.instrument().file()?)))
    })
}

/// Returns the directories of the files that the instruments of `plan` send, each once.
pub(crate) fn folders_sent_from(plan: &Plan) -> BTreeSet<PathBuf> {
    let files = sent(plan);
    let folders = files.filter_map(|(_, _, file)| Some(file.parent()?.to_owned()));
    folders.collect()
}

/// Adds the files that conditions name, which is always under the key `file`.
fn named_in(conditions: &Value, names: &mut BTreeSet<PathBuf>) {
    match conditions {
        Value::Object(table) => {
            let file = table.get("file").and_then(Value::as_str);
            names.extend(file.map(PathBuf::from));
            table.values().for_each(|value| named_in(value, names));
        }
        Value::Array(all) => all.iter().for_each(|value| named_in(value, names)),
        _ => {}
    }
}

impl fmt::Display for Uses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = |(path, version): (&String, &String)| format!("{path} ({version})");
        let commands = self.commands.iter().map(command).collect();
        let files = self.files.iter().map(|file| file.display().to_string());
        line(f, "commands", commands)?;
        line(f, "files", files.collect())?;
        line(f, "hosts", self.hosts.iter().cloned().collect())?;
        line(f, "interfaces", self.interfaces.iter().cloned().collect())
    }
}

fn line(f: &mut fmt::Formatter<'_>, what: &str, all: Vec<String>) -> fmt::Result {
    match &all[..] {
        [] => writeln!(f, "{what}: none"),
        all => writeln!(f, "{what}: {}", all.join(", ")),
    }
}
