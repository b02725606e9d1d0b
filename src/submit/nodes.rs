//! The nodes that cannot run a task, and the remaining ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::paths::write_whole;
use super::slurm::{Node, Slurm};
use instruments::failure::Failure;
use record::quantity::counted;

/// The directory with the findings about nodes, within a submit's directory.
pub(super) const NODES: &str = "nodes";
/// The extension of the file of an excluded node, which holds the cause.
const CANNOT: &str = "cannot";
/// The cause that refers to the file with the doctor's report.
pub(super) const DOCTOR: &str = "farwire doctor";
/// The largest number of nodes with the same cause that are listed by name.
const MOST_NAMED: usize = 8;

/// Returns the excluded nodes, each with its cause.
pub(super) fn excluded(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory.join(NODES)).into_iter().flatten();
    let excluded = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        if path.extension()? != CANNOT {
            return None;
        }
        let node = path.file_stem()?.to_str()?.to_owned();
        let cause = fs::read_to_string(&path).ok()?.trim().to_owned();
        let cause = if cause == DOCTOR {
            diagnosis(&path.with_extension("json")).unwrap_or(cause)
        } else {
            cause
        };
        Some((node, cause))
    });
    excluded.collect()
}

/// Excludes a node from now on.
pub(super) fn exclude(directory: &Path, node: &str, cause: &str) -> Result<()> {
    let file = directory.join(NODES).join(format!("{node}.{CANNOT}"));
    write_whole(&file, cause.as_bytes())
}

/// Fails with the causes if no node of the partition is left. While tasks are `busy` on nodes, only
/// exclusions count, because a node that is being drained completes its tasks.
pub(super) fn check_some_left(
    slurm: &Slurm,
    partition: Option<&str>,
    excluded: &BTreeMap<String, String>,
    busy: bool,
) -> Result<(), Failure> {
    match none_left(&slurm.nodes(partition)?, excluded, busy) {
        Some(why) => Err(Failure::machine(why)),
        None => Ok(()),
    }
}

/// Returns the reason why none of `nodes` is left, or `None` if one is.
fn none_left(nodes: &[Node], excluded: &BTreeMap<String, String>, busy: bool) -> Option<String> {
    let mut others = nodes
        .iter()
        .filter(|node| !excluded.contains_key(&node.name))
        .peekable();
    // Without any node or exclusion, Slurm decides about the partition.
    if excluded.is_empty() && others.peek().is_none()
        || others.clone().any(|node| busy || node.is_usable())
    {
        return None;
    }
    let mut by_cause: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in others {
        let cause = format!("{} ({})", node.state, node.reason);
        by_cause.entry(cause).or_default().push(&node.name);
    }
    let by_cause = by_cause.into_iter().map(|(cause, names)| {
        let names = match names.len() {
            ..=MOST_NAMED => names.join(", "),
            many => counted(many, "node"),
        };
        format!("{names}: {cause}")
    });
    let causes: Vec<String> = excluded
        .iter()
        .map(|(node, cause)| format!("{node}: {cause}"))
        .chain(by_cause)
        .collect();
    let remedy = if excluded.is_empty() {
        "run the same command when one of them is back".to_owned()
    } else {
        format!("when a node is repaired, remove its file NODE.{CANNOT} in {NODES}")
    };
    Some(format!(
        "no node can run the shards: {}; {remedy}",
        causes.join("; ")
    ))
}

/// Returns the missing requirements from a doctor's report.
fn diagnosis(file: &Path) -> Option<String> {
    let report: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let checks = report.get("checks")?.as_array()?.iter();
    let missing = checks.filter(|check| check["verdict"] == "missing");
    let words: Vec<String> = missing
        .filter_map(|check| {
            let (name, found) = (check["name"].as_str()?, check["found"].as_str()?);
            Some(format!("{name}: {found}"))
        })
        .collect();
    (!words.is_empty()).then(|| words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_nodes_are_neither_excluded_nor_out_of_service() {
        let node = |name: &str, state: &str| Node {
            name: name.to_owned(),
            state: state.to_owned(),
            reason: "a fan".to_owned(),
        };
        let nobody = BTreeMap::new();
        let excluded = [("node1".to_owned(), "no farwire".to_owned())].into();
        let nodes = |state: &str| {
            [
                node("node1", "idle"),
                node("node2", state),
                node("node3", "drained"),
            ]
        };
        for state in ["allocated", "completing", "idle~"] {
            assert_eq!(none_left(&nodes(state), &excluded, false), None, "{state}");
        }
        assert_eq!(
            none_left(&nodes("down*"), &excluded, false).unwrap(),
            "no node can run the shards: node1: no farwire; node2: down* (a fan); node3: drained (a fan); when a node is repaired, remove its file \
             NODE.cannot in nodes"
        );
        // A task on node3 is still running.
        assert_eq!(none_left(&nodes("down*"), &excluded, true), None);
        assert!(none_left(&[node("node1", "idle")], &excluded, true).is_some());
        assert_eq!(none_left(&nodes("down*"), &nobody, false), None);
        assert_eq!(none_left(&[], &nobody, false), None);
        assert_eq!(
            none_left(&nodes("drained")[1..], &nobody, false).unwrap(),
            "no node can run the shards: node2, node3: drained (a fan); run the same command when one of them is back"
        );
        let many: Vec<Node> = (1..=20)
            .map(|number| node(&format!("node{number}"), "down"))
            .collect();
        let message = none_left(&many, &nobody, false).unwrap();
        assert!(message.contains(": 20 nodes: down (a fan); "), "{message}");
    }

    #[test]
    fn the_causes_come_from_the_doctors_report() {
        let directory = tempfile::tempdir().unwrap();
        let nodes = directory.path().join(NODES);
        fs::create_dir(&nodes).unwrap();
        fs::write(nodes.join("node1.ok"), "").unwrap();
        fs::write(nodes.join("node2.cannot"), DOCTOR).unwrap();
        fs::write(
            nodes.join("node2.json"),
            r#"{"checks":[{"name":"kernel","verdict":"ok","found":"6.1"},
                {"name":"user namespaces","verdict":"missing","found":"they are off"}]}"#,
        )
        .unwrap();
        exclude(directory.path(), "node3", "there is no farwire").unwrap();
        let excluded = excluded(directory.path());
        let causes: Vec<_> = excluded
            .iter()
            .map(|(n, c)| (n.as_str(), c.as_str()))
            .collect();
        assert_eq!(
            causes,
            [
                ("node2", "user namespaces: they are off"),
                ("node3", "there is no farwire")
            ]
        );
    }
}
