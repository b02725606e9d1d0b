//! The comparison of the path with a link: the same measurement runs behind the link, in `farwire exec`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use netio::bed::SERVER;
use record::Measurement;
use record::summary::Summary;

use super::held_out::{self, HeldOutPlan};
use super::measure::CONGESTION;
use crate::notes::note;

/// The fact of a measurement in which `farwire measure` says what this machine may have spoilt.
const MACHINE: &str = "machine";

/// The measurement through the link.
pub(super) struct Replay {
    /// Its result.
    pub(super) measurement: Measurement,
    /// The reasons why it may not describe the link.
    pub(super) doubts: Vec<String>,
}

/// Measures through the link of a file, as the path was measured.
///
/// # Errors
/// The test bed cannot be set up, or the measurement failed.
pub(super) fn measure(link: &Path, plan: &HeldOutPlan) -> Result<Replay> {
    note("farwire: fit: the same measurement through the link");
    let count = plan.count.to_string();
    let interval = format!("{}us", plan.interval.as_micros());
    let size = plan.size.to_string();
    let idle = [
        plan.idle,
        "--count",
        &count,
        "--interval",
        &interval,
        "--size",
        &size,
    ];
    let mut doubts = Vec::new();
    let idle = behind(link, &idle, &mut doubts)?;
    let loaded = match &plan.loads_s {
        Ok(lasts_s) => {
            let time = format!("{lasts_s:.0}s");
            let words = ["quality", "--congestion", CONGESTION, "--time", &time];
            Some(behind(link, &words, &mut doubts)?)
        }
        Err(_) => None,
    };
    Ok(Replay {
        measurement: held_out::joined(idle, loaded),
        doubts,
    })
}

/// Runs `farwire measure` with these words behind the link. Adds the reasons to doubt the result.
fn behind(link: &Path, words: &[&str], doubts: &mut Vec<String>) -> Result<Measurement> {
    let program = std::env::current_exe().context("this program's own path")?;
    let folder = tempfile::tempdir().context("a folder for the counters of the link")?;
    let counters = folder.path().join("link.json");
    let mut command = Command::new(&program);
    command.args(["exec", "--quiet", "--link"]).arg(link);
    command.arg("--json").arg(&counters).arg("--");
    command.arg(&program).arg("measure").args(words);
    command.args(["--json", "-"]).arg(SERVER.v4.to_string());
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run `farwire exec`")?;
    if output.stdout.is_empty() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let measurement: Measurement = serde_json::from_slice(&output.stdout)?;
    if let Some(cause) = &measurement.failure {
        bail!("{cause}");
    }
    let summary = fs::read(&counters).context("the counters of the link")?;
    let summary: Summary = serde_json::from_slice(&summary).context("the counters of the link")?;
    add_doubts(&measurement, &summary, doubts);
    Ok(measurement)
}

/// Adds what the measurement and the link's counters say against the result, each reason once.
fn add_doubts(measurement: &Measurement, summary: &Summary, doubts: &mut Vec<String>) {
    let of_measurement = measurement.facts.get(MACHINE);
    for doubt in of_measurement.into_iter().chain(&summary.notes) {
        let doubt = format!("through the link: {doubt}");
        if !doubts.contains(&doubt) {
            doubts.push(doubt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_may_have_spoilt_is_kept_once() {
        let measurement = Measurement::default().with_fact(MACHINE, "the host was starved");
        let summary = Summary {
            notes: vec![
                "the host was starved".to_owned(),
                "packets left late".to_owned(),
            ],
            ..Summary::default()
        };
        let mut doubts = Vec::new();
        add_doubts(&measurement, &summary, &mut doubts);
        add_doubts(&Measurement::default(), &summary, &mut doubts);
        let expected = [
            "through the link: the host was starved",
            "through the link: packets left late",
        ];
        assert_eq!(doubts, expected);
    }
}
