//! wget as an instrument, whose progress dots become bytes over time.
//!
//! A row of `--progress=dot:binary` represents 48 dots of 8 KiB. The time of a row is its time of arrival here, since
//! wget rounds the rate that it prints beside the row to three digits.

use std::time::Duration;

use crate::error::{Context, Result, bail, ensure};

use crate::Session;
use crate::endpoint::Local;
use crate::external::{Tool, ToolOutput};
use crate::failure::{Blame, Failure};
use crate::http::{HttpTarget, download_figures};
use crate::measured::failed;
use crate::meter::IntervalMeter;
use record::Measurement;

/// The bytes that a dot represents.
const DOT: u64 = 8 * 1024;

const OPTIONS: &str = "--no-config --max-redirect=0 --tries=1 --no-proxy --connect-timeout=20 \
    --read-timeout=60 --output-document=/dev/null --progress=dot:binary";

/// Downloads `target` with the wget on PATH, started by the session's launcher.
pub(crate) fn measure(
    target: &HttpTarget,
    interval: Duration,
    local: Option<&Local>,
    session: &Session,
) -> Result<Measurement, Failure> {
    let arguments = arguments(target, local).or_bad_input()?;
    let (tool, launcher) = (tool().or_machine()?, session.launcher());
    let parse = |output: &ToolOutput| parse(output, interval);
    let measurement = launcher.measure(&tool, &arguments, &session.stop, parse);
    Ok(measurement.with_fact(
        "goodput",
        "HTTP body bytes (L7) from the answer's headers to the end, by the arrival of wget's rows of dots",
    ))
}

/// Returns the wget on PATH.
///
/// # Errors
/// Returns an error if it is not installed.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("wget", "--version", "wget")
}

fn arguments(target: &HttpTarget, local: Option<&Local>) -> Result<Vec<String>> {
    let mut arguments: Vec<String> = OPTIONS.split(' ').map(str::to_owned).collect();
    match local {
        Some(Local::Address(address)) => arguments.push(format!("--bind-address={address}")),
        Some(Local::Interface(name)) => {
            bail!(
                Tool,
                "wget can bind to an address, but not to an interface ({name})"
            )
        }
        None => {}
    }
    arguments.push(target.to_string());
    Ok(arguments)
}

/// Parses wget's output into samples. Other lines are ignored.
pub(crate) fn parse(output: &ToolOutput, interval: Duration) -> Measurement {
    let mut meter = IntervalMeter::new(interval);
    let start_s = output
        .lines
        .iter()
        .find(|line| line.text.starts_with("Saving to: "))
        .map_or(0.0, |line| line.at_s);
    let mut end_s = 0.0;
    for line in &output.lines {
        if let Some(bytes) = row_bytes(&line.text) {
            end_s = (line.at_s - start_s).max(end_s);
            meter.add(end_s, bytes);
        }
    }
    let saved = saved_bytes(output);
    // Dots count only whole 8 KiB; the remaining bytes arrived with the last row.
    let left_over = saved
        .as_ref()
        .map(|saved| saved.saturating_sub(meter.total()));
    meter.add(end_s, left_over.unwrap_or_default());
    let measurement = saved.map_or_else(failed, |bytes| Measurement {
        figures: download_figures(bytes, end_s, None),
        ..Measurement::default()
    });
    Measurement {
        samples: meter.finish(end_s),
        ..measurement
    }
}

/// Returns the bytes of the dots in a row such as
/// `  384K ................ ................ ................ 26% 1.85M 1s`.
fn row_bytes(line: &str) -> Option<u64> {
    let (offset, dots) = line.trim_start().split_once("K ")?;
    offset.parse::<u64>().ok()?;
    let dots = dots.bytes().take_while(|byte| b". ,".contains(byte));
    Some(dots.filter(|&byte| byte == b'.').count() as u64 * DOT)
}

/// Returns the bytes of a successful download, which are the first count in
/// `2026-11-21 20:10:48 (1.96 MB/s) - '/dev/null' saved [3000000/3000000]`.
fn saved_bytes(output: &ToolOutput) -> Result<u64> {
    ensure!(Tool, output.code == 0, "{}", output.exit_message("wget"));
    let saved = output.texts().find_map(|line| {
        let (_, counts) = line.split_once("saved [")?;
        counts.split(['/', ']']).next()?.parse().ok()
    });
    saved.with_context(|| {
        format!(
            "the output of wget lacks the saved size: {}",
            output.last_line()
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::external::tests::captured;
    use crate::external::{OutputLine, OutputStream};
    use record::{Metric, Statistic};

    const SECOND: Duration = Duration::from_secs(1);

    /// Output of GNU Wget 1.21.3, with the observed times of arrival.
    const ROWS: &[(f64, &str)] = &[
        (0.000, "--2026-11-21 20:10:47--  http://127.0.0.1:8099/x"),
        (0.000, "Connecting to 127.0.0.1:8099... connected."),
        (0.000, "HTTP request sent, awaiting response... 200 OK"),
        (0.000, "Length: 3000000 (2.9M)"),
        (0.000, "Saving to: '/dev/null'"),
        (
            0.056,
            "     0K ................ ................ ................ 13% 2.45M 1s",
        ),
        (
            0.207,
            "   384K ................ ................ ................ 26% 1.85M 1s",
        ),
        (
            0.409,
            "   768K ................ ................ ................ 39% 1.86M 1s",
        ),
        (
            0.610,
            "  1152K ................ ................ ................ 52% 1.86M 1s",
        ),
        (
            0.811,
            "  1536K ................ ................ ................ 65% 1.86M 1s",
        ),
        (
            1.012,
            "  1920K ................ ................ ................ 78% 1.86M 0s",
        ),
        (
            1.214,
            "  2304K ................ ................ ................ 91% 1.86M 0s",
        ),
        (
            1.316,
            "  2688K ................ ..............                   100% 2.35M=1.5s",
        ),
        (
            1.316,
            "2026-11-21 20:10:48 (1.96 MB/s) - '/dev/null' saved [3000000/3000000]",
        ),
    ];

    /// The form of the rows as one text.
    pub(crate) const ENDED: &str = "\
Saving to: '/dev/null'
     0K ................ ................ ................ 13% 2.45M 1s
  2688K ................ ..............                   100% 2.35M=1.5s
2026-11-21 20:10:48 (1.96 MB/s) - '/dev/null' saved [3000000/3000000]
";

    fn rows() -> ToolOutput {
        let lines = ROWS.iter().map(|&(at_s, text)| OutputLine {
            at_s,
            stream: OutputStream::Stderr,
            text: text.to_owned(),
        });
        ToolOutput {
            lines: lines.collect(),
            code: 0,
        }
    }

    #[test]
    fn rows_of_dots_become_bytes_over_time() {
        let measurement = parse(&rows(), SECOND);
        assert_eq!(measurement.failure, None);
        let values: Vec<f64> = measurement.samples.iter().map(|s| s.value).collect();
        let row = 48.0 * 8192.0;
        assert_eq!(values, [5.0 * row, 3_000_000.0 - 5.0 * row]);
        let total = |metric| measurement.figure(metric, Statistic::Total).unwrap();
        assert_eq!(total(Metric::ReceivedBytes), 3e6);
        assert!((total(Metric::ElapsedS) - 1.316).abs() < 1e-9);
    }

    #[test]
    fn a_refused_connection_is_a_failure_with_its_cause() {
        let text = "Connecting to 127.0.0.1:8098... failed: Connection refused.\n";
        let cause = parse(&captured(text, 4), SECOND).failure.unwrap();
        assert!(cause.contains("code 4"), "{cause}");
        assert!(cause.contains("Connection refused"), "{cause}");
    }

    #[test]
    fn garbage_is_ignored() {
        for garbage in [
            "",
            "K ....",
            "99999999999999999999K ..",
            "saved [",
            "saved [x]",
            "0K \u{fffd}%=",
            "%=saved [18446744073709551615/1]",
        ] {
            let _ = parse(&captured(garbage, 0), SECOND);
        }
    }
}
