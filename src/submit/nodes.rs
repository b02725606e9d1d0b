//! What nodes cannot do, and the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::slurm::Slurm;
use instruments::failure::Failure;

/// What was found out about nodes, in a submit's directory.
pub(super) const NODES: &str = "nodes";
/// The file of a node that cannot: its cause.
const CANNOT: &str = "cannot";
/// The cause that stands in the doctor's own file.
pub(super) const DOCTOR: &str = "farwire doctor";

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
    fs::write(&file, cause).with_context(|| format!("{}: cannot write", file.display()))
}

/// Fails with the causes when no node of the partition is left.
pub(super) fn some_left(
    slurm: &Slurm,
    partition: Option<&str>,
    excluded: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    if excluded.is_empty() {
        return Ok(());
    }
    let mut nodes = slurm.nodes(partition)?.into_iter();
    if nodes.any(|node| !excluded.contains_key(&node)) {
        return Ok(());
    }
    let causes = excluded
        .iter()
        .map(|(node, cause)| format!("{node}: {cause}"));
    let causes: Vec<String> = causes.collect();
    Err(Failure::machine(format_args!(
        "no node can do it: {}; when that is mended, remove the file NODE.{CANNOT} in the directory's {NODES}",
        causes.join("; ")
    )))
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
