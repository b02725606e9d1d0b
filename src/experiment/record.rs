//! The record of an experiment: everything that a report is made of. See docs/record-format.md.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::host::HostFacts;
use super::plan::Plan;
use crate::forward::summary::Summary;
use crate::instrument::Measurement;

/// Names the format in the file.
const FORMAT: &str = "farwire-record";
/// Raised whenever a reader of the former version would misread the file.
const VERSION: u32 = 2;

/// A whole experiment, asked for and measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    format: String,
    version: u32,
    /// The farwire that wrote it.
    pub(crate) farwire: String,
    /// RFC 3339, UTC.
    pub(crate) started_at: String,
    /// RFC 3339, UTC; absent while it runs, or when it was interrupted.
    pub(crate) finished_at: Option<String>,
    /// What the user gave.
    pub(crate) scenario: GivenScenario,
    /// What took effect.
    pub(crate) plan: Plan,
    /// The machine.
    pub(crate) host: HostFacts,
    /// In the order in which they ran.
    pub(crate) runs: Vec<Run>,
}

/// A scenario as it was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GivenScenario {
    pub(crate) file: String,
    pub(crate) text: String,
}

/// One case set up once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) case: String,
    /// From 1.
    pub(crate) repeat: u32,
    /// Of the link's randomness.
    pub(crate) seed: u64,
    /// RFC 3339, UTC.
    pub(crate) started_at: String,
    pub(crate) outcome: Outcome,
    /// What was in effect within the rig: sysctls, offloads, congestion control.
    pub(crate) environment: BTreeMap<String, String>,
    /// One of each instrument that was used.
    pub(crate) measurements: Vec<Measured>,
    /// What the link did, over all instruments of the run.
    pub(crate) link: Option<Summary>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Everything was measured.
    Ok,
    /// Something was not measured.
    Failed { cause: String },
    /// It was measured, but the machine did not keep up: the numbers are not of the link.
    Invalid { cause: String },
}

/// What one instrument measured in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The plan's name for it.
    pub(crate) instrument: String,
    /// RFC 3339, UTC; the samples' times count from here.
    pub(crate) started_at: String,
    #[serde(flatten)]
    pub(crate) measurement: Measurement,
}

impl Record {
    /// A record without a run yet.
    pub(crate) fn new(scenario: GivenScenario, plan: Plan, host: HostFacts) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            farwire: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now(),
            finished_at: None,
            scenario,
            plan,
            host,
            runs: Vec::new(),
        }
    }

    /// The record in `file`.
    ///
    /// # Errors
    /// No record, or one of a version that this farwire does not read.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("{name}: cannot read"))?;
        Self::parse(&text).with_context(|| name.to_string())
    }

    /// Replaces `file` by the whole record at once, so that whoever reads it finds one or the other.
    ///
    /// # Errors
    /// The file system refuses.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let partial = file.with_extension("json.partial");
        let write = || -> Result<()> {
            let mut writer = BufWriter::new(File::create(&partial)?);
            serde_json::to_writer(&mut writer, self)?;
            writer.write_all(b"\n")?;
            writer.into_inner()?.sync_all()?;
            fs::rename(&partial, file)?;
            Ok(())
        };
        write().with_context(|| format!("{}: cannot write", file.display()))
    }

    /// The runs of the case of this name.
    pub(crate) fn runs_of<'a>(&'a self, case: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.case == case)
    }

    fn parse(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Stamp {
            format: String,
            version: u32,
        }
        let Ok(stamp) = serde_json::from_str::<Stamp>(text) else {
            bail!("not a farwire record (JSON with \"format\": \"{FORMAT}\")");
        };
        ensure!(
            stamp.format == FORMAT,
            "not a farwire record: its format is `{}`",
            stamp.format
        );
        ensure!(
            stamp.version == VERSION,
            "a record of version {}; this farwire reads version {VERSION}",
            stamp.version
        );
        serde_json::from_str(text).context("a damaged record")
    }
}

impl Run {
    /// What this instrument measured, if it was used.
    pub(crate) fn measured(&self, instrument: &str) -> Option<&Measurement> {
        let mut all = self.measurements.iter();
        all.find(|m| m.instrument == instrument)
            .map(|m| &m.measurement)
    }
}

/// The present in RFC 3339, UTC, to the millisecond.
pub(crate) fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn what_is_written_reads_back_equal() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("record.json");
        let record = record();
        record.write(&file).unwrap();
        record.write(&file).unwrap();
        assert!(Record::read(&file).unwrap() == record);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_cause() {
        for (text, cause) in [
            ("", "not a farwire record"),
            ("{}", "not a farwire record"),
            (r#"{"format":"x","version":2}"#, "its format is `x`"),
            (r#"{"format":"farwire-record","version":99}"#, "version 99"),
            (r#"{"format":"farwire-record","version":2}"#, "damaged"),
        ] {
            let error = format!("{:#}", Record::parse(text).unwrap_err());
            assert!(error.contains(cause), "{error}");
        }
    }
}
