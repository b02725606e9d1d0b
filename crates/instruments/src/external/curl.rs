//! curl as an instrument: its own clock's times, by `--write-out '%{json}'`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::launch::{Launcher, Output, Tool};
use super::streams;
use crate::Session;
use crate::endpoint::Local;
use crate::http::{HttpTarget, download_figures};
use record::{Figure, Measurement, Metric, Statistic};

/// Downloads `target` with the curl on PATH, run by `launcher`.
pub(crate) fn measure(
    launcher: &dyn Launcher,
    target: &HttpTarget,
    local: Option<&Local>,
    session: &Session,
) -> Measurement {
    let tool = match tool() {
        Ok(tool) => tool,
        Err(error) => return Measurement::failed(error),
    };
    let measurement = match launcher.launch(&tool, &arguments(target, local), &session.stop) {
        Ok(output) => parse(&output),
        Err(error) => Measurement::failed(format!("{error:#}")),
    };
    measurement
        .with_fact("tool", &tool.version)
        .with_fact("url", target)
        .with_fact(
            "goodput",
            "HTTP body bytes (L7) from sending the request to the end, by curl's clock",
        )
}

/// The curl on PATH.
///
/// # Errors
/// It is not there.
pub(crate) fn tool() -> Result<Tool> {
    Tool::find("curl", "--version", "curl")
}

fn arguments(target: &HttpTarget, local: Option<&Local>) -> Vec<String> {
    let mut arguments: Vec<String> = [
        // First, or a ~/.curlrc is read.
        "--disable",
        "--silent",
        "--show-error",
        "--fail",
        "--globoff",
        "--http1.1",
        "--noproxy",
        "*",
        "--connect-timeout",
        "20",
        "--speed-limit",
        "1",
        "--speed-time",
        "60",
        "--output",
        "/dev/null",
        "--write-out",
        "%{json}\n",
    ]
    .map(str::to_owned)
    .into();
    if let Some(local) = local {
        arguments.extend(["--interface".to_owned(), local.to_string()]);
    }
    arguments.push(target.to_string());
    arguments
}

/// What curl said, as figures.
pub(super) fn parse(output: &Output) -> Measurement {
    match try_parse(output) {
        Ok(figures) => Measurement {
            figures,
            ..Measurement::default()
        },
        Err(error) => Measurement::failed(format!("{error:#}")),
    }
}

fn try_parse(output: &Output) -> Result<Vec<Figure>> {
    let text = output.text();
    let said = text.lines().rev().find_map(|line| {
        let value: Value = serde_json::from_str(line).ok()?;
        value.is_object().then_some(value)
    });
    let words = || {
        format!(
            "curl ended with code {}: {}",
            output.code,
            output.last_words()
        )
    };
    let said = said.with_context(words)?;
    if let Some(cause) = said["errormsg"].as_str() {
        anyhow::bail!("curl: {cause}");
    }
    ensure!(output.code == 0, words());
    let status = said["response_code"].as_u64();
    ensure!(
        status == Some(200),
        "HTTP status {}",
        status.unwrap_or_default()
    );
    let number = |key: &str| {
        let value = said[key].as_f64();
        value
            .filter(|number| streams::is_amount(*number))
            .with_context(|| format!("curl does not say its {key}"))
    };
    let bytes = said["size_download"]
        .as_u64()
        .context("curl does not say its size_download")?;
    let asked = number("time_pretransfer")?;
    let figures = download_figures(
        bytes,
        (number("time_total")? - asked).max(0.0),
        Some((number("time_starttransfer")? - asked).max(0.0)),
    );
    let connect_s = (number("time_connect")? - number("time_namelookup")?).max(0.0);
    let connect = Figure::new(Metric::ConnectMs, Statistic::Mean, connect_s * 1e3);
    Ok(figures.into_iter().chain([connect]).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::launch::tests::captured;
    use super::*;

    /// curl 7.88.1.
    pub(in super::super) const FETCHED: &str = include_str!("fixtures/curl.json");
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
    fn what_is_no_download_is_a_failure_with_its_cause() {
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
