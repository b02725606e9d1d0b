//! A small experiment in a separate directory.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::Result;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{self, farwire};

/// Everything in a scenario except its instruments and cases. Late packets do not matter in it.
pub const HEAD: &str = "\
name = 'small'
title = 'A small experiment'
order = 'as-written'
late_budget = '1s'
bed = { kind = 'netns', wire = { rate = '20mbit', delay = '1ms' } }
tcp = { congestion = 'reno' }
";
pub const PING: &str = "\
[[instruments]]
name = 'ping'
kind = 'ping'
parameters = { size = 100, count = 5, interval = '5ms', timeout = '20s' }
";
pub const HTTP: &str = "\
[[instruments]]
name = 'download'
kind = 'http'
parameters = { path = '/bytes/200000' }
";
pub const SYSTEM_PING: &str = "\
[[instruments]]
name = 'iputils'
kind = 'ping'
parameters = { tool = 'ping', size = 100, count = 3, interval = '10ms', timeout = '20s' }
";
pub const WGET: &str = "\
[[instruments]]
name = 'wget'
kind = 'http'
parameters = { tool = 'wget', path = '/bytes/2000000' }
";
/// A short case, and one that lasts until it is ended.
pub const TWO_CASES: &str = "\
name = 'two'
title = 'Two cases'
order = 'as-written'
late_budget = '1s'
tcp = { congestion = 'reno' }
bed = { kind = 'netns' }
[[instruments]]
name = 'echo'
kind = 'ping'
[[cases]]
name = 'short'
link = { delay = '1ms' }
parameters.echo = { count = 3, interval = '10ms' }
[[cases]]
name = 'long'
link = { delay = '2ms' }
parameters.echo = { count = 60000, interval = '10ms' }
";
pub const PLAIN: &str = "[[cases]]\nname = 'plain'\ntitle = 'nothing added'\n";

/// A scenario, and the directory of its record.
pub struct Small {
    directory: TempDir,
}

impl Small {
    /// Writes a scenario with these instruments and cases.
    pub fn of(parts: &[&str]) -> Result<Self> {
        Self::written(&(HEAD.to_owned() + &parts.concat()))
    }

    /// Writes a scenario with this text.
    pub fn written(text: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("small.toml"), text)?;
        Ok(Self { directory })
    }

    /// Returns a path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command that runs it, with host baselines before and after it.
    pub fn command_with_baselines(&self) -> Command {
        let mut command = farwire();
        command.arg("run").arg(self.path("small.toml"));
        command.arg("--out").arg(self.path("out"));
        command
    }

    /// Returns the command that runs it without host baselines.
    pub fn command(&self) -> Command {
        let mut command = self.command_with_baselines();
        command.arg("--no-baseline");
        command
    }

    /// Runs it to its end.
    pub fn run(&self) -> Result<Output> {
        process::run(&mut self.command())
    }

    /// Returns the complete lines of the record so far.
    pub fn record(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(self.path("out/record.jsonl"))?;
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole.map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Returns the runs in the record so far.
    pub fn runs(&self) -> Result<Vec<Value>> {
        let lines = self.record()?.into_iter();
        Ok(lines.filter_map(|line| line.get("run").cloned()).collect())
    }

    /// Returns whether the record is marked as finished.
    pub fn is_finished(&self) -> Result<bool> {
        let lines = self.record()?;
        Ok(lines.iter().any(|line| line.get("finished_at").is_some()))
    }
}
