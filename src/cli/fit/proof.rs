//! The comparison of the path with the fitted link: the same measurement runs behind the link, in `farwire exec`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use netio::bed::SERVER;
use record::Measurement;

use super::measure::CONGESTION;
use crate::notes::note;

/// Measures through the link of a file for this number of seconds.
///
/// # Errors
/// The test bed cannot be set up, or the measurement failed.
pub(super) fn measure(link: &Path, lasts_s: f64) -> Result<Measurement> {
    note("farwire: fit: the same measurement through the fitted link");
    let program = std::env::current_exe().context("this program's own path")?;
    let mut command = Command::new(&program);
    command
        .args(["exec", "--quiet", "--link"])
        .arg(link)
        .arg("--");
    command.arg(&program);
    command.args(["measure", "quality", "--json", "-"]);
    command.args(["--congestion", CONGESTION, "--time"]);
    command.arg(format!("{lasts_s:.0}s"));
    command.arg(SERVER.v4.to_string());
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run `farwire exec`")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    if output.stdout.is_empty() {
        bail!("{}", messages.trim());
    }
    for line in messages.lines().filter(|line| line.contains("warning")) {
        note(line);
    }
    let measurement: Measurement = serde_json::from_slice(&output.stdout)?;
    match measurement.failure {
        Some(cause) => bail!("{cause}"),
        None => Ok(measurement),
    }
}
