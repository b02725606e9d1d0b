//! wget as an instrument: its progress dots become bytes over time.
//!
//! A row of `--progress=dot:binary` stands for 48 dots of 8 KiB; its time is that of its arrival
//! here, since the rate that wget prints beside it is rounded to three digits.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::launch::{Launcher, Line, Output, Tool};
use crate::endpoint::Local;
use crate::http::{HttpTarget, download_figures};
use crate::meter::Meter;
use netio::stop::Stop;
use record::Measurement;

const DOT: u64 = 8 * 1024;

/// Downloads `target` with the wget on PATH, run by `launcher`.
pub(crate) fn measure(
    launcher: &dyn Launcher,
    target: &HttpTarget,
    interval: Duration,
    local: Option<&Local>,
    stop: &Stop,
) -> Measurement {
    let prepared = tool().and_then(|tool| Ok((tool, arguments(target, local)?)));
    let (tool, arguments) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Measurement::failed(format!("{error:#}")),
    };
    let measurement = match launcher.launch(&tool, &arguments, stop) {
        Ok(output) => parse(&output, interval),
        Err(error) => Measurement::failed(format!("{error:#}")),
    };
    measurement.with_fact("tool", &tool.version).with_fact(
        "goodput",
        "HTTP body bytes (L7) from the answer's headers to the end, as wget's rows of dots arrived",
    )
}

/// Whether wget has options for this.
///
/// # Errors
/// It has not; says for what.
pub(crate) fn check(target: &HttpTarget, local: Option<&Local>) -> Result<()> {
    arguments(target, local).map(drop)
}

/// The wget on PATH.
///
/// # Errors
/// It is not there.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("wget", "--version", "wget")
}

fn arguments(target: &HttpTarget, local: Option<&Local>) -> Result<Vec<String>> {
    let bind = match local {
        Some(Local::Address(address)) => Some(format!("--bind-address={address}")),
        Some(Local::Interface(name)) => {
            bail!("wget takes an address to bind to, not an interface ({name})")
        }
        None => None,
    };
    let arguments = [
        "--no-config",
        "--max-redirect=0",
        "--tries=1",
        "--no-proxy",
        "--connect-timeout=20",
        "--read-timeout=60",
        "--output-document=/dev/null",
        "--progress=dot:binary",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(bind)
    .chain([target.to_string()]);
    Ok(arguments.collect())
}

/// What wget said, as samples; lines that it did not mean for us are passed over.
pub(super) fn parse(output: &Output, interval: Duration) -> Measurement {
    let mut meter = Meter::new(interval);
    let start_s = output
        .lines
        .iter()
        .find(|line| is_start(line))
        .map_or(0.0, |line| line.at_s);
    let mut end_s = 0.0;
    for line in &output.lines {
        let Some(bytes) = row_bytes(&line.text) else {
            continue;
        };
        end_s = (line.at_s - start_s).max(end_s);
        meter.add(end_s, bytes);
    }
    match outcome(output) {
        Ok(bytes) => {
            // Dots count whole 8 KiB only: what is left over arrived with the last row.
            meter.add(end_s, bytes.saturating_sub(meter.total()));
            Measurement {
                samples: meter.finish(end_s),
                figures: download_figures(bytes, end_s, None),
                ..Measurement::default()
            }
        }
        Err(error) => Measurement {
            samples: meter.finish(end_s),
            ..Measurement::failed(format!("{error:#}"))
        },
    }
}

/// The bytes of a download that ended well.
fn outcome(output: &Output) -> Result<u64> {
    if output.code != 0 {
        bail!(
            "wget ended with code {}: {}",
            output.code,
            output.last_words()
        );
    }
    output
        .lines
        .iter()
        .find_map(|line| saved_bytes(&line.text))
        .with_context(|| format!("wget did not say what it saved: {}", output.last_words()))
}

fn is_start(line: &Line) -> bool {
    line.text.starts_with("Saving to: ")
}

/// `  384K ................ ................ ................ 26% 1.85M 1s`: the bytes of its dots.
fn row_bytes(line: &str) -> Option<u64> {
    let (offset, dots) = line.trim_start().split_once("K ")?;
    offset.parse::<u64>().ok()?;
    let row = dots.split(['%', '=']).next()?;
    let count = row
        .bytes()
        .take_while(|byte| matches!(byte, b'.' | b' ' | b','))
        .filter(|&byte| byte == b'.')
        .count();
    Some(count as u64 * DOT)
}

/// `2026-11-21 20:10:48 (1.96 MB/s) - '/dev/null' saved [3000000/3000000]`: the first count.
fn saved_bytes(line: &str) -> Option<u64> {
    let (_, counts) = line.split_once("saved [")?;
    counts.split(['/', ']']).next()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::external::launch::Stream;
    use crate::external::launch::tests::captured;
    use record::{Metric, Statistic};

    const SECOND: Duration = Duration::from_secs(1);

    /// GNU Wget 1.21.3, with the times of arrival seen.
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

    /// The rows' form in one text.
    pub(in super::super) const ENDED: &str = "\
Saving to: '/dev/null'
     0K ................ ................ ................ 13% 2.45M 1s
  2688K ................ ..............                   100% 2.35M=1.5s
2026-11-21 20:10:48 (1.96 MB/s) - '/dev/null' saved [3000000/3000000]
";

    fn rows() -> Output {
        let lines = ROWS.iter().map(|&(at_s, text)| Line {
            at_s,
            stream: Stream::Error,
            text: text.to_owned(),
        });
        Output {
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
        assert!(
            cause.contains("code 4") && cause.contains("Connection refused"),
            "{cause}"
        );
    }

    #[test]
    fn garbage_is_passed_over() {
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
