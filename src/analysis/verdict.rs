//! Whether what was measured is what was expected.

use std::fmt;

use super::{DownloadFigures, PingFigures};
use crate::experiment::plan::{Case, GainExpectation, GoodputExpectation};

/// How an expectation, a case or a whole experiment stands; the later, the graver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// As expected, or nothing was expected.
    Met,
    /// Measured, and not as expected.
    NotMet,
    /// Measured on a machine that did not keep up: neither met nor not.
    Invalid,
    /// A run failed or did not take place, or did not measure what was expected of it.
    Failed,
}

/// One expectation beside what was measured, in words.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// What is expected: "median ping gain 2.00 ms +- 0.15".
    pub(crate) expected: String,
    /// What was measured: "2.03 ms".
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
}

/// Every expectation of `case` against its figures; what was not measured has failed.
pub(super) fn checks(
    case: &Case,
    ping: Option<&PingFigures>,
    download: Option<&DownloadFigures>,
) -> Vec<Check> {
    let gain = case
        .expect
        .rtt_gain
        .map(|expected| check_gain(expected, ping));
    let goodput = case.expect.goodput.map(|expected| {
        let published = case.published.goodput_bytes_per_s.unwrap_or(f64::NAN);
        check_goodput(expected, published, download)
    });
    gain.into_iter().chain(goodput).collect()
}

fn check_gain(expected: GainExpectation, ping: Option<&PingFigures>) -> Check {
    let gain = ping.and_then(|ping| ping.gain_ms);
    let GainExpectation {
        gain_ms,
        tolerance_ms,
    } = expected;
    Check {
        expected: format!("gain of the median ping {gain_ms:.2} ± {tolerance_ms:.2} ms"),
        measured: gain.map_or_else(not_measured, |gain| format!("{gain:+.3} ms")),
        verdict: Verdict::when(gain.map(|gain| (gain - gain_ms).abs() <= tolerance_ms)),
    }
}

fn check_goodput(
    expected: GoodputExpectation,
    published: f64,
    download: Option<&DownloadFigures>,
) -> Check {
    let ratio = download.map(|download| download.goodput / published);
    let (words, met) = match expected {
        GoodputExpectation::Within(fraction) => (
            format!("within {:.0} %", fraction * 100.0),
            ratio.map(|ratio| (ratio - 1.0).abs() <= fraction),
        ),
        GoodputExpectation::Factor(factor) => (
            format!("within a factor of {factor}"),
            ratio.map(|ratio| (1.0 / factor..=factor).contains(&ratio)),
        ),
    };
    Check {
        expected: format!("download {words} of {:.3} MB/s", published / 1e6),
        measured: download.map_or_else(not_measured, |download| {
            let percent = (download.goodput / published - 1.0) * 100.0;
            format!("{:.3} MB/s ({percent:+.0} %)", download.goodput / 1e6)
        }),
        verdict: Verdict::when(met),
    }
}

fn not_measured() -> String {
    "not measured".to_owned()
}

impl Verdict {
    /// The gravest of all.
    pub(crate) fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().max().unwrap_or(Self::Met)
    }

    /// Whether it is met, or that it was not measured.
    fn when(met: Option<bool>) -> Self {
        match met {
            Some(true) => Self::Met,
            Some(false) => Self::NotMet,
            None => Self::Failed,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::NotMet => "NOT MET",
            Self::Invalid => "INVALID",
            Self::Failed => "FAILED",
        })
    }
}
