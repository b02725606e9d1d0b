//! The HTML report: one file, nothing fetched.

use anyhow::Result;
use askama::Template;

use super::{charts, optional, signed};
use crate::analysis::{Analysis, CaseFigures, Verdict};
use crate::experiment::plan::{Bed, Instrument, Method};
use crate::experiment::record::{Outcome, Record, Run};
use crate::forward::summary::{DirectionSummary, Summary};
use crate::instrument::http::Amount;
use crate::instrument::iperf3::plan::{Plan as StreamPlan, Protocol, Way};
use crate::link_spec::LinkSpec;

/// The record as a page that stands alone.
///
/// # Errors
/// None but those of the template and the plotting library.
pub(crate) fn html(record: &Record) -> Result<String> {
    let analysis = Analysis::of(record);
    let histories = analysis
        .cases
        .iter()
        .map(|figures| charts::history(record, figures));
    let page = Page {
        record,
        histories: histories.collect::<Result<_>>()?,
        pings: charts::pings(record, &analysis.cases)?,
        analysis,
    };
    Ok(page.render()?)
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    record: &'a Record,
    analysis: Analysis<'a>,
    histories: Vec<String>,
    pings: String,
}

impl Page<'_> {
    /// The verdict in words, first thing on the page.
    fn headline(&self) -> &'static str {
        match self.analysis.verdict {
            Verdict::Met if self.checks() == 0 => "Measured; nothing was expected.",
            Verdict::Met => "Met.",
            Verdict::NotMet => "Not met.",
            Verdict::Invalid => "Invalid: the machine did not keep up.",
            Verdict::Failed => "Failed.",
        }
    }

    fn checks(&self) -> usize {
        self.analysis.checks().count()
    }

    fn checks_met(&self) -> usize {
        let checks = self.analysis.checks();
        checks.filter(|check| check.verdict == Verdict::Met).count()
    }

    fn cases(&self) -> Vec<CaseView<'_>> {
        let cases = self.analysis.cases.iter().zip(&self.histories);
        cases
            .map(|(figures, history)| CaseView {
                figures,
                history,
                reference: self.record.plan.reference.as_deref(),
            })
            .collect()
    }

    fn wire(&self) -> Result<String> {
        let Bed { wire, .. } = &self.record.plan.bed;
        conditions(wire)
    }

    fn methods(&self) -> Vec<String> {
        self.record.plan.instruments.iter().map(method).collect()
    }

    /// Where the axis of the pings ends, in ms.
    fn ping_axis(&self) -> f64 {
        charts::ping_axis(&self.analysis.cases)
    }

    fn faulty_runs(&self) -> usize {
        self.record
            .runs
            .iter()
            .filter(|run| run.outcome != Outcome::Ok)
            .count()
    }

    /// What the instruments say of their own numbers, each once.
    fn facts(&self) -> Vec<(&str, &str)> {
        let measurements = self.record.runs.iter().flat_map(|run| &run.measurements);
        unique(measurements.flat_map(|measured| &measured.measurement.facts))
    }

    /// What was in effect within the rigs, each once.
    fn environment(&self) -> Vec<(&str, &str)> {
        unique(self.record.runs.iter().flat_map(|run| &run.environment))
    }

    fn runs(&self) -> Vec<RunView<'_>> {
        self.record.runs.iter().map(|run| RunView { run }).collect()
    }
}

struct CaseView<'a> {
    figures: &'a CaseFigures<'a>,
    history: &'a str,
    reference: Option<&'a str>,
}

impl CaseView<'_> {
    fn is_reference(&self) -> bool {
        self.reference == Some(self.figures.case.name.as_str())
    }

    fn conditions(&self) -> Result<String> {
        conditions(&self.figures.case.link)
    }

    fn median(&self) -> String {
        optional(self.figures.ping.as_ref().map(|ping| ping.rtt_ms.median), 3)
    }

    fn published_mean(&self) -> String {
        optional(self.figures.case.published.rtt_mean_ms, 3)
    }

    fn gain(&self) -> String {
        signed(self.figures.ping.as_ref().and_then(|ping| ping.gain_ms), 2)
    }

    fn published_gain(&self) -> String {
        signed(
            self.figures
                .ping
                .as_ref()
                .and_then(|ping| ping.published_gain_ms),
            2,
        )
    }

    fn loss(&self) -> String {
        optional(self.figures.ping.as_ref().map(|ping| ping.lost_percent), 1)
    }

    fn published_loss(&self) -> String {
        optional(self.figures.case.published.lost_percent, 1)
    }

    fn goodput(&self) -> String {
        optional(
            self.figures
                .download
                .as_ref()
                .map(|download| download.goodput / 1e6),
            3,
        )
    }

    fn published_goodput(&self) -> String {
        optional(
            self.figures
                .case
                .published
                .goodput_bytes_per_s
                .map(|rate| rate / 1e6),
            3,
        )
    }

    fn ratio(&self) -> String {
        let ratio = self
            .figures
            .download
            .as_ref()
            .and_then(|download| download.ratio);
        signed(ratio.map(|ratio| (ratio - 1.0) * 100.0), 0)
    }

    /// Lowest and highest of the repeats, where there are several.
    fn range(&self) -> Option<String> {
        let goodputs = &self.figures.download.as_ref()?.goodputs;
        let lowest = goodputs.iter().copied().reduce(f64::min)? / 1e6;
        let highest = goodputs.iter().copied().reduce(f64::max)? / 1e6;
        (goodputs.len() > 1)
            .then(|| format!("{lowest:.2} to {highest:.2} in {} runs", goodputs.len()))
    }

    fn l2_rate(&self) -> String {
        let rate = self
            .figures
            .download
            .as_ref()
            .map(|d| d.l2_bytes_per_s * 8.0 / 1e6);
        optional(rate, 2)
    }
}

struct RunView<'a> {
    run: &'a Run,
}

impl RunView<'_> {
    fn outcome(&self) -> String {
        match &self.run.outcome {
            Outcome::Ok => "ok".to_owned(),
            Outcome::Failed { cause } => format!("failed: {cause}"),
            Outcome::Invalid { cause } => format!("INVALID: {cause}"),
        }
    }

    fn counters(&self) -> String {
        let Some(Summary { up, down, .. }) = &self.run.link else {
            return "–".to_owned();
        };
        format!("up {}; down {}", counts(up), counts(down))
    }

    /// Median, 99th percentile and worst, in microseconds.
    fn departure_error(&self) -> String {
        let Some(Summary {
            departure_error: error,
            ..
        }) = &self.run.link
        else {
            return "–".to_owned();
        };
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let [p50, p99, max] = [error.p50_ns, error.p99_ns, error.max_ns].map(micros);
        format!("{p50:.1} / {p99:.1} / {max:.0}")
    }
}

fn counts(direction: &DirectionSummary) -> String {
    let own = direction
        .emulator_lost
        .iter()
        .map(|own| format!(", emulator lost {own}"));
    let model = [
        ("lost", direction.lost),
        ("queue full", direction.queue_full),
    ];
    let model = model
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| format!(", {count} {cause}"));
    let drops: String = model.chain(own).collect();
    format!(
        "{} in, {} delivered{drops}",
        direction.packets, direction.delivered
    )
}

/// The conditions in one line: "rate 10mbit, up loss 1%".
fn conditions(link: &LinkSpec) -> Result<String> {
    let mut parts = Vec::new();
    flatten("", &toml::Table::try_from(link)?, &mut parts);
    Ok(if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    })
}

fn flatten(prefix: &str, table: &toml::Table, parts: &mut Vec<String>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.replace('_', " "));
        match value {
            toml::Value::Table(inner) => flatten(&format!("{name} "), inner, parts),
            toml::Value::String(text) => parts.push(format!("{name} {text}")),
            other => parts.push(format!("{name} {other}")),
        }
    }
}

fn method(instrument: &Instrument) -> String {
    let what = match &instrument.method {
        Method::Ping(plan) => format!(
            "farwire's ICMP echo, {} requests every {:?}",
            plan.count, plan.interval
        ),
        Method::SystemPing(plan) => format!(
            "the system's ping, {} requests every {:?}",
            plan.count, plan.interval
        ),
        Method::Http(plan) => format!(
            "farwire's HTTP/1.1 download of {}, counted every {:?}",
            amount(plan.amount),
            plan.interval
        ),
        Method::Wget(plan) => format!("wget of {}", amount(plan.amount)),
        Method::Curl(plan) => format!("curl of {}", amount(plan.amount)),
        Method::HttpFiles(plan) => format!(
            "farwire's HTTP/1.1 fetching of {} files over {} connections",
            plan.count, plan.connections
        ),
        Method::Iperf3(plan) => format!("iperf3, {}", streams(plan)),
        Method::Iperf(plan) => format!("iperf 2, {}", streams(plan)),
        Method::Nuttcp(plan) => format!("nuttcp, {}", streams(plan)),
    };
    format!("{}: {what}", instrument.name)
}

fn streams(plan: &StreamPlan) -> String {
    let protocol = match plan.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    };
    let way = match plan.way {
        Way::Up => "up",
        Way::Down => "down",
        Way::Both => "both ways",
    };
    format!("{protocol} {way}, {} streams", plan.parallel)
}

fn amount(amount: Amount) -> String {
    match amount {
        Amount::Whole => "the whole resource".to_owned(),
        Amount::Bytes(bytes) => format!("{bytes} bytes"),
        Amount::For(time) => format!("what comes in {time:?}"),
    }
}

/// Pairs in order, those that say the same said once.
fn unique<'a>(pairs: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<(&'a str, &'a str)> {
    let mut all: Vec<_> = pairs
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::experiment::plan::Expectations;

    #[test]
    fn the_page_stands_alone_and_has_a_row_and_a_curve_a_case() {
        let page = html(&record()).unwrap();
        assert!(page.starts_with("<!doctype html>"));
        for foreign in ["http://", "https://", "<script", "<link", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!found.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<svg ").count(), 3);
        assert!(
            page.contains("all 3 expectations met") || page.contains("3 of 3"),
            "{page}"
        );
    }

    #[test]
    fn an_experiment_that_expects_nothing_is_not_said_to_have_met_it() {
        let mut record = record();
        for case in &mut record.plan.cases {
            case.expect = Expectations::default();
        }
        let page = html(&record).unwrap();
        assert!(page.contains("nothing was expected"), "{page}");
        assert!(!page.contains("expectations met"), "{page}");
    }

    #[test]
    fn conditions_are_one_line() {
        let link = "delay = '1ms'\nsize_delay = 2\ntoffee = 'drop=2'\n[up]\nloss = '1%'";
        let line = conditions(&toml::from_str(link).unwrap()).unwrap();
        assert_eq!(line, "delay 1ms, size delay 2, toffee drop 2, up loss 1%");
        assert_eq!(conditions(&LinkSpec::default()).unwrap(), "none");
    }

    #[test]
    fn what_the_scenario_says_is_escaped() {
        let page = html(&record()).unwrap();
        assert!(page.contains("Slower &#38; &#60;lossy&#62;"));
        assert!(!page.contains("<lossy>"));
    }

    #[test]
    fn differences_are_explained_and_failures_named() {
        let mut record = record();
        record.runs[0].outcome = Outcome::Failed {
            cause: "the server closed".to_owned(),
        };
        let page = html(&record).unwrap();
        assert!(page.contains("The document had another kernel."));
        assert!(page.contains("run 1 failed: the server closed"));
    }
}
