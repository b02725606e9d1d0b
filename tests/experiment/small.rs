//! A small experiment in a directory of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::Result;
use serde_json::Value;
use tempfile::TempDir;

use test_support::process::{self, farwire};

/// Everything of a scenario but its instruments and cases. What the machine is too busy to send in time is no matter here.
const HEAD: &str = "\
name = 'small'
title = 'A small experiment'
order = 'as-written'
late_budget = '1s'
bed = { kind = 'netns', wire = { rate = '20mbit', delay = '1ms' } }
tcp = { congestion = 'reno' }
";
pub(crate) const PING: &str = "\
[[instruments]]
name = 'ping'
kind = 'ping'
parameters = { size = 100, count = 5, interval = '5ms', timeout = '20s' }
";
pub(crate) const HTTP: &str = "\
[[instruments]]
name = 'download'
kind = 'http'
parameters = { path = '/bytes/200000' }
";
pub(crate) const SYSTEM_PING: &str = "\
[[instruments]]
name = 'iputils'
kind = 'ping'
parameters = { tool = 'ping', size = 100, count = 3, interval = '10ms', timeout = '20s' }
";
pub(crate) const WGET: &str = "\
[[instruments]]
name = 'wget'
kind = 'http'
parameters = { tool = 'wget', path = '/bytes/2000000' }
";
pub(crate) const PLAIN: &str = "[[cases]]\nname = 'plain'\ntitle = 'nothing added'\n";

/// A scenario, and where its record goes.
pub(crate) struct Small {
    directory: TempDir,
}

impl Small {
    /// The scenario with these instruments and cases.
    pub(crate) fn of(parts: &[&str]) -> Result<Self> {
        Self::written(&(HEAD.to_owned() + &parts.concat()))
    }

    /// The scenario with this text.
    pub(crate) fn written(text: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("small.toml"), text)?;
        Ok(Self { directory })
    }

    /// A path in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = farwire();
        command.arg("run").arg(self.path("small.toml"));
        command.arg("--out").arg(self.path("out"));
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> Result<Output> {
        process::run(&mut self.command())
    }

    /// The whole lines of the record as it is now.
    pub(crate) fn record(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.path("out/record.jsonl"))?;
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole.map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// The runs in the record as it is now.
    pub(crate) fn runs(&self) -> Result<Vec<Value>> {
        let lines = self.record()?.into_iter();
        Ok(lines.filter_map(|line| line.get("run").cloned()).collect())
    }

    /// Whether the record says that all is done.
    pub(crate) fn is_finished(&self) -> Result<bool> {
        let lines = self.record()?;
        Ok(lines.iter().any(|line| line.get("finished_at").is_some()))
    }
}

/// What was printed to standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
