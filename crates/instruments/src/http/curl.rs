//! curl as an instrument. Its own clock provides the times, which it reports with `--write-out '%{json}'`.

use crate::error::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::Session;
use crate::endpoint::Local;
use crate::external::{Tool, ToolNumber, ToolOutput, word, words};
use crate::failure::{Blame, Failure};
use crate::http::{HttpTarget, download_figures};
use crate::measured::failed;
use record::{Figure, Measurement, Metric, Statistic};

/// `--disable` must come first, otherwise curl reads ~/.curlrc.
const OPTIONS: &str = "--disable --silent --show-error --fail --globoff --http1.1 --noproxy * \
    --connect-timeout 20 --speed-limit 1 --speed-time 60 --output /dev/null --write-out %{json}\n";

/// Downloads `target` with the curl on PATH, started by the session's launcher.
pub(crate) fn measure(
    target: &HttpTarget,
    local: Option<&Local>,
    session: &Session,
) -> Result<Measurement, Failure> {
    let (tool, arguments) = (tool().or_machine()?, arguments(target, local));
    let launcher = session.launcher();
    let measurement = launcher.measure(&tool, &arguments, &session.stop, parse);
    Ok(measurement.with_fact("url", target).with_fact(
        "goodput",
        "HTTP body bytes (L7) from sending the request to the end, by curl's clock",
    ))
}

/// Returns the curl on PATH.
///
/// # Errors
/// Returns an error if it is not installed.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("curl", "--version", "curl")
}

fn arguments(target: &HttpTarget, local: Option<&Local>) -> Vec<String> {
    let mut arguments: Vec<String> = OPTIONS.split(' ').map(str::to_owned).collect();
    arguments.extend(words(&[("--interface", local.and_then(word))]));
    arguments.push(target.to_string());
    arguments
}

/// The fields of curl's report on a successful download that are used.
#[derive(Deserialize)]
struct CurlReport {
    size_download: u64,
    time_namelookup: ToolNumber,
    time_connect: ToolNumber,
    time_pretransfer: ToolNumber,
    time_starttransfer: ToolNumber,
    time_total: ToolNumber,
}

/// Parses curl's output into figures.
pub(crate) fn parse(output: &ToolOutput) -> Measurement {
    figures(output).map_or_else(failed, |figures| Measurement {
        figures,
        ..Measurement::default()
    })
}

fn figures(output: &ToolOutput) -> Result<Vec<Figure>> {
    let text = output.text();
    let report = text
        .lines()
        .rev()
        .find_map(|line| {
            let value: Value = serde_json::from_str(line).ok()?;
            value.is_object().then_some(value)
        })
        .with_context(|| output.exit_message("curl"))?;
    if let Some(cause) = report["errormsg"].as_str() {
        bail!(Tool, "curl: {cause}");
    }
    ensure!(Tool, output.code == 0, "{}", output.exit_message("curl"));
    let status = report["response_code"].as_u64().unwrap_or_default();
    ensure!(Tool, status == 200, "HTTP status {status}");
    let times: CurlReport =
        serde_json::from_value(report).context("the output of curl is incomplete")?;
    let between = |from: ToolNumber, to: ToolNumber| (to.0 - from.0).max(0.0);
    let requested = times.time_pretransfer;
    let mut figures = download_figures(
        times.size_download,
        between(requested, times.time_total),
        Some(between(requested, times.time_starttransfer)),
    );
    let connect_ms = 1e3 * between(times.time_namelookup, times.time_connect);
    figures.push(Figure::new(Metric::ConnectMs, Statistic::Mean, connect_ms));
    Ok(figures)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::external::tests::captured;

    /// Output of curl 7.88.1.
    pub(crate) const FETCHED: &str = include_str!("fixtures/curl.json");
    const NOT_FOUND: &str = include_str!("fixtures/curl404.json");

    #[test]
    fn curl_s_times_count_from_its_request() {
        let measurement = parse(&captured(FETCHED, 0));
        assert_eq!(measurement.failure, None);
        let total = |metric| measurement.figure(metric, Statistic::Total).unwrap();
        let mean = |metric| measurement.figure(metric, Statistic::Mean).unwrap();
        assert_eq!(total(Metric::ReceivedBytes), 4719.0);
        assert!((total(Metric::ElapsedS) - (0.014825 - 0.001240)).abs() < 1e-9);
        assert!((mean(Metric::FirstByteMs) - (14.534 - 1.240)).abs() < 1e-9);
        assert!((mean(Metric::ConnectMs) - (1.188 - 0.113)).abs() < 1e-9);
    }

    #[test]
    fn a_failed_download_is_a_failure_with_its_cause() {
        let moved = FETCHED.replace("\"response_code\":200", "\"response_code\":302");
        for (text, code, cause) in [
            (NOT_FOUND, 22, "returned error: 404"),
            (moved.as_str(), 0, "HTTP status 302"),
            ("curl: (6) no", 6, "code 6: curl: (6) no"),
            ("{}", 0, "HTTP status 0"),
            ("{\"response_code\":200}", 0, "size_download"),
            ("", 0, "no output"),
        ] {
            let found = parse(&captured(text, code)).failure.unwrap();
            assert!(found.contains(cause), "{found}");
        }
    }
}
