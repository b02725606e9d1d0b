//! The comparison of the path with a link: the same measurement runs behind the link, in `farwire exec`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

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
    let mut doubts = Vec::new();
    let idle = packets(plan.idle, plan.count, plan.interval, plan.size);
    let idle = behind(link, &idle, &mut doubts)?;
    let trains = match plan.trains {
        Some(trains) => {
            let mut words = packets("probe", trains.count, trains.interval, trains.size);
            words.extend(["--train".to_owned(), trains.length.to_string()]);
            Some((trains, behind(link, &words, &mut doubts)?))
        }
        None => None,
    };
    let loaded = match &plan.loads_s {
        Ok(lasts_s) => {
            let time = format!("{lasts_s:.0}s");
            let words = ["quality", "--congestion", CONGESTION, "--time", &time];
            Some(behind(link, &words.map(str::to_owned), &mut doubts)?)
        }
        Err(_) => None,
    };
    Ok(Replay {
        measurement: held_out::joined(idle, trains, loaded),
        doubts,
    })
}

/// Returns the words of `farwire measure` for an instrument that sends this number of packets with this payload in bytes.
fn packets(instrument: &str, count: u32, interval: Duration, size: u32) -> Vec<String> {
    let interval = format!("{}us", interval.as_micros());
    let options = [
        ("--count", count.to_string()),
        ("--interval", interval),
        ("--size", size.to_string()),
    ];
    let options = options.into_iter();
    let options = options.flat_map(|(name, value)| [name.to_owned(), value]);
    [instrument.to_owned()].into_iter().chain(options).collect()
}

/// Runs `farwire measure` with these words behind the link. Adds the reasons to doubt the result.
fn behind(link: &Path, words: &[String], doubts: &mut Vec<String>) -> Result<Measurement> {
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
    fn packets_are_sent_through_the_link_as_over_the_path() {
        let words = packets("probe", 300, Duration::from_millis(100), 1358).join(" ");
        assert_eq!(words, "probe --count 300 --interval 100000us --size 1358");
    }

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
