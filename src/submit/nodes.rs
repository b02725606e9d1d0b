//! What nodes cannot do, and the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::paths::write_whole;
use super::slurm::{Node, Slurm};
use instruments::failure::Failure;
use record::quantity::counted;

/// What was found out about nodes, in a submit's directory.
pub(super) const NODES: &str = "nodes";
/// The file of a node that cannot: its cause.
const CANNOT: &str = "cannot";
/// The cause that stands in the doctor's own file.
pub(super) const DOCTOR: &str = "farwire doctor";
/// So many nodes are named that share a cause.
const MOST_NAMED: usize = 8;

/// The nodes that are left out, each with its cause.
pub(super) fn excluded(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory.join(NODES)).into_iter().flatten();
    let excluded = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        if path.extension()? != CANNOT {
            return None;
        }
        let node = path.file_stem()?.to_str()?.to_owned();
        let cause = fs::read_to_string(&path).ok()?.trim().to_owned();
        let cause = match cause == DOCTOR {
            true => diagnosis(&path.with_extension("json")).unwrap_or(cause),
            false => cause,
        };
        Some((node, cause))
    });
    excluded.collect()
}

/// Leaves a node out from now on.
pub(super) fn exclude(directory: &Path, node: &str, cause: &str) -> Result<()> {
    let file = directory.join(NODES).join(format!("{node}.{CANNOT}"));
    write_whole(&file, cause.as_bytes())
}

/// Fails with the causes when no node of the partition is left. While `busy` tasks are on nodes, only what is excluded counts: a node that
/// is drained does what it has.
pub(super) fn some_left(
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

/// Why none of `nodes` is left, if so.
fn none_left(nodes: &[Node], excluded: &BTreeMap<String, String>, busy: bool) -> Option<String> {
    let mut others = nodes
        .iter()
        .filter(|node| !excluded.contains_key(&node.name))
        .peekable();
    // What a partition without nodes is for, Slurm knows.
    if excluded.is_empty() && others.peek().is_none()
        || others.clone().any(|node| busy || node.is_usable())
    {
        return None;
    }
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in others {
        let cause = format!("{} ({})", node.state, node.reason);
        alike.entry(cause).or_default().push(&node.name);
    }
    let alike = alike.into_iter().map(|(cause, names)| {
        let names = match names.len() {
            ..=MOST_NAMED => names.join(", "),
            many => counted(many, "node"),
        };
        format!("{names}: {cause}")
    });
    let causes = excluded
        .iter()
        .map(|(node, cause)| format!("{node}: {cause}"));
    let causes: Vec<String> = causes.chain(alike).collect();
    let remedy = match excluded.is_empty() {
        true => "the same command continues when one of them is back".to_owned(),
        false => {
            format!("when a node is repaired, remove its file NODE.{CANNOT} in {NODES}")
        }
    };
    Some(format!(
        "no node can run the shards: {}; {remedy}",
        causes.join("; ")
    ))
}

/// What a doctor's file says is missing.
fn diagnosis(file: &Path) -> Option<String> {
    let said: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let checks = said.get("checks")?.as_array()?.iter();
    let missing = checks.filter(|check| check["verdict"] == "missing");
    let words = missing.filter_map(|check| {
        let (name, found) = (check["name"].as_str()?, check["found"].as_str()?);
        Some(format!("{name}: {found}"))
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_left_that_are_neither_excluded_nor_out_of_service() {
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
        // A task on node3 comes to its end.
        assert_eq!(none_left(&nodes("down*"), &excluded, true), None);
        assert!(none_left(&[node("node1", "idle")], &excluded, true).is_some());
        assert_eq!(none_left(&nodes("down*"), &nobody, false), None);
        assert_eq!(none_left(&[], &nobody, false), None);
        assert_eq!(
            none_left(&nodes("drained")[1..], &nobody, false).unwrap(),
            "no node can run the shards: node2, node3: drained (a fan); the same command continues when one of them is back"
        );
        let many: Vec<Node> = (1..=20)
            .map(|number| node(&format!("node{number}"), "down"))
            .collect();
        let said = none_left(&many, &nobody, false).unwrap();
        assert!(said.contains(": 20 nodes: down (a fan); "), "{said}");
    }

    #[test]
    fn what_the_doctor_found_missing_is_the_cause() {
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
