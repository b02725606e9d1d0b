//! Finds all processes that descend from one start of farwire, by a mark in their environment, and their namespaces.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};

use crate::process;

/// A mark that no other process on this machine has.
pub struct Family {
    mark: String,
}

/// The variable that farwire inherits and passes on to all processes that it starts.
const VARIABLE: &str = "FARWIRE_TEST_FAMILY";

impl Family {
    /// Creates a family without members.
    pub fn begin() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            mark: format!("{}-{number}", std::process::id()),
        }
    }

    /// Marks a command, which founds the family.
    pub fn mark<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env(VARIABLE, &self.mark)
    }

    /// Returns the running members.
    pub fn members(&self) -> Vec<PathBuf> {
        let entry = format!("{VARIABLE}={}", self.mark);
        let is_member = |process: &PathBuf| {
            // A process of another user, or one that has just ended, has no readable environment.
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == entry.as_bytes())
        };
        processes().into_iter().filter(is_member).collect()
    }

    /// Returns the network namespaces in which members are or that they hold open, except for the one of this process.
    pub fn namespaces(&self) -> BTreeSet<PathBuf> {
        let own = fs::read_link("/proc/self/ns/net").ok();
        let all = self
            .members()
            .iter()
            .flat_map(|member| namespaces_of(member))
            .collect();
        let mut all: BTreeSet<PathBuf> = all;
        all.retain(|namespace| Some(namespace) != own.as_ref());
        all
    }

    /// Waits until no member runs and no process holds one of `namespaces`.
    ///
    /// It waits for both, because an ending process loses its environment, by which a member is recognised, before its
    /// descriptors and its namespaces (Linux, kernel/exit.c, `do_exit`).
    pub fn check_gone(&self, namespaces: &BTreeSet<PathBuf>) -> Result<()> {
        let keepers = || -> Vec<_> {
            let keeps = |process: &PathBuf| !namespaces_of(process).is_disjoint(namespaces);
            processes().into_iter().filter(keeps).collect()
        };
        process::wait_for("the end of all that farwire started", || {
            Ok(self.members().is_empty().then_some(()))
        })?;
        process::wait_for("the end of their namespaces", || {
            Ok(keepers().is_empty().then_some(()))
        })
        .with_context(|| format!("kept by {:?}", keepers()))?;
        let interfaces = fs::read_to_string("/proc/thread-self/net/dev")?;
        for name in ["wan", "client", "server"] {
            ensure!(
                !interfaces.contains(&format!(" {name}:")),
                "{name} was left: {interfaces}"
            );
        }
        Ok(())
    }
}

fn processes() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let is_number = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(is_number).collect()
}

/// Returns the network namespaces in which a process is or of which it has descriptors.
fn namespaces_of(process: &Path) -> BTreeSet<PathBuf> {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
    descriptors
        .filter_map(|entry| Some(entry.ok()?.path()))
        .chain([process.join("ns/net")])
        .filter_map(|link| fs::read_link(link).ok())
        .filter(|target| target.to_string_lossy().starts_with("net:["))
        .collect()
}
