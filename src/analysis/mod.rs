//! What a record says: figures a case, held against the reference, the published and the expected; and the pure arithmetic
//! for it: statistics, and what theory allows.

pub(crate) mod correlated;
mod mann_whitney;
pub(crate) mod order;
mod pairs;
pub(crate) mod proportion;
#[cfg_attr(not(test), expect(dead_code, reason = "for those who compare records"))]
pub(crate) mod repeats;
#[cfg_attr(not(test), expect(dead_code, reason = "for those who compare records"))]
pub(crate) mod shift;
#[cfg(test)]
mod statistics_tests;
#[cfg_attr(not(test), expect(dead_code, reason = "for those who compare records"))]
pub(crate) mod steady;
pub(crate) mod student;
#[cfg_attr(not(test), expect(dead_code, reason = "for those who compare records"))]
pub(crate) mod summary;
pub(crate) mod theory;
pub(crate) mod verdict;

use crate::experiment::plan::{Case, Method, Plan};
use crate::experiment::record::{Outcome, Record};
use crate::instrument::{Measurement, Metric, Spread, Statistic};
use theory::ethernet::{Protocol, Stack};

pub(crate) use verdict::{Check, Verdict};

/// What the scenarios' downloads travel in.
const DOWNLOAD: Stack = Stack {
    ipv6: false,
    vlan_tags: 0,
    protocol: Protocol::Tcp { timestamps: true },
};

/// A whole record, judged.
#[derive(Clone, Debug)]
pub(crate) struct Analysis<'a> {
    /// In the order of the plan.
    pub(crate) cases: Vec<CaseFigures<'a>>,
    pub(crate) verdict: Verdict,
}

/// All runs of one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseFigures<'a> {
    pub(crate) case: &'a Case,
    /// Of the first instrument that pings.
    pub(crate) ping: Option<PingFigures>,
    /// Of the first instrument that downloads.
    pub(crate) download: Option<DownloadFigures>,
    pub(crate) checks: Vec<Check>,
    /// Runs that failed, are invalid or missing.
    pub(crate) faults: Vec<Fault>,
    pub(crate) verdict: Verdict,
}

/// A run that did not yield what it should.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// [`Verdict::Invalid`] or [`Verdict::Failed`].
    pub(crate) verdict: Verdict,
    /// Which run, and the cause.
    pub(crate) text: String,
}

/// Echo requests of all repeats together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PingFigures {
    pub(crate) sent: f64,
    pub(crate) received: f64,
    pub(crate) lost_percent: f64,
    pub(crate) rtt_ms: Spread,
    /// Median less the reference's median; absent for want of a reference.
    pub(crate) gain_ms: Option<f64>,
    /// Published mean less the reference's published mean.
    pub(crate) published_gain_ms: Option<f64>,
}

/// Downloads of all repeats.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DownloadFigures {
    /// Payload bytes a second (L7) of each repeat.
    pub(crate) goodputs: Vec<f64>,
    /// Their geometric mean, since factors are what they are compared by.
    pub(crate) goodput: f64,
    /// The same in L2 bytes without FCS, if every segment was full.
    pub(crate) l2_bytes_per_s: f64,
    /// Against the published.
    pub(crate) ratio: Option<f64>,
}

impl<'a> Analysis<'a> {
    /// Of `record`.
    pub(crate) fn of(record: &'a Record) -> Self {
        let plan = &record.plan;
        let reference = plan.reference.as_deref().and_then(|name| plan.case(name));
        let reference_rtt = reference
            .and_then(|case| ping_of(record, case))
            .map(|ping| ping.rtt_ms);
        let cases: Vec<_> = plan
            .cases
            .iter()
            .map(|case| {
                let mut ping = ping_of(record, case);
                if let (Some(ping), Some(base)) = (&mut ping, reference_rtt) {
                    ping.gain_ms = Some(ping.rtt_ms.median - base.median);
                    ping.published_gain_ms = published_gain(case, reference);
                }
                CaseFigures::new(case, ping, download_of(record, case), faults(record, case))
            })
            .collect();
        let verdict = Verdict::of_all(cases.iter().map(|figures| figures.verdict));
        Self { cases, verdict }
    }

    /// Every expectation of every case.
    pub(crate) fn checks(&self) -> impl Iterator<Item = &Check> {
        self.cases.iter().flat_map(|figures| &figures.checks)
    }
}

impl<'a> CaseFigures<'a> {
    fn new(
        case: &'a Case,
        ping: Option<PingFigures>,
        download: Option<DownloadFigures>,
        faults: Vec<Fault>,
    ) -> Self {
        let checks = verdict::checks(case, ping.as_ref(), download.as_ref());
        let verdicts = checks.iter().map(|check| check.verdict);
        let verdict = Verdict::of_all(verdicts.chain(faults.iter().map(|fault| fault.verdict)));
        Self {
            case,
            ping,
            download,
            checks,
            faults,
            verdict,
        }
    }
}

/// What full TCP segments of this goodput are in L2 bytes without FCS: MTU + 14 for every MTU - 52 (IPv4, timestamps).
pub(crate) fn l2_of_goodput(goodput: f64, mtu: u32) -> f64 {
    let full = DOWNLOAD.full_packet(mtu);
    goodput * full.l2 as f64 / full.payload as f64
}

/// The plan's first instrument that pings, or downloads, or whatever it `does`.
pub(crate) fn first_instrument(plan: &Plan, does: fn(&Method) -> bool) -> Option<&str> {
    let mut instruments = plan.instruments.iter();
    instruments
        .find(|i| does(&i.method))
        .map(|i| i.name.as_str())
}

fn ping_of(record: &Record, case: &Case) -> Option<PingFigures> {
    let instrument = first_instrument(&record.plan, Method::pings)?;
    let measured: Vec<_> = record
        .runs_of(&case.name)
        .filter_map(|run| run.measured(instrument))
        .collect();
    let rtts: Vec<f64> = measured
        .iter()
        .flat_map(|m| &m.samples)
        .filter(|sample| sample.metric == Metric::RttMs)
        .map(|sample| sample.value)
        .collect();
    let total = |metric| -> f64 {
        let counts = measured.iter().copied();
        counts
            .filter_map(|m: &Measurement| m.figure(metric, Statistic::Total))
            .sum()
    };
    let (sent, received) = (total(Metric::SentPackets), total(Metric::ReceivedPackets));
    Some(PingFigures {
        sent,
        received,
        lost_percent: 100.0 * (sent - received) / sent.max(1.0),
        rtt_ms: Spread::of(&rtts)?,
        gain_ms: None,
        published_gain_ms: None,
    })
}

fn published_gain(case: &Case, reference: Option<&Case>) -> Option<f64> {
    Some(case.published.rtt_mean_ms? - reference?.published.rtt_mean_ms?)
}

fn download_of(record: &Record, case: &Case) -> Option<DownloadFigures> {
    let instrument = first_instrument(&record.plan, Method::downloads)?;
    let goodputs: Vec<f64> = record
        .runs_of(&case.name)
        .filter_map(|run| run.measured(instrument))
        .filter(|measurement| measurement.failure.is_none())
        .filter_map(|m| m.figure(Metric::GoodputBitPerS, Statistic::Mean))
        .map(|rate| rate / 8.0)
        .collect();
    let goodput = geometric_mean(&goodputs)?;
    Some(DownloadFigures {
        l2_bytes_per_s: l2_of_goodput(goodput, record.plan.bed.mtu),
        ratio: case
            .published
            .goodput_bytes_per_s
            .map(|published| goodput / published),
        goodput,
        goodputs,
    })
}

fn faults(record: &Record, case: &Case) -> Vec<Fault> {
    let mut faults: Vec<Fault> = record
        .runs_of(&case.name)
        .filter_map(|run| match &run.outcome {
            Outcome::Ok => None,
            Outcome::Failed { cause } => Some(Fault {
                verdict: Verdict::Failed,
                text: format!("run {} failed: {cause}", run.repeat),
            }),
            Outcome::Invalid { cause } => Some(Fault {
                verdict: Verdict::Invalid,
                text: format!("run {} is invalid: {cause}", run.repeat),
            }),
        })
        .collect();
    let ran = record.runs_of(&case.name).count();
    if ran < case.repeats as usize {
        faults.push(Fault {
            verdict: Verdict::Failed,
            text: format!("{ran} of {} runs took place", case.repeats),
        });
    }
    faults
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logs / values.len() as f64).exp())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::experiment::host::HostFacts;
    use crate::experiment::record::{GivenScenario, Measured, Run};
    use crate::experiment::scenario;
    use crate::instrument::{Figure, Sample};
    use std::collections::BTreeMap;

    const SCENARIO: &str = "\
name = 'small'
title = 'A small experiment'
reference = 'base'
bed = { kind = 'netns' }
tcp = { congestion = 'cubic' }
[[instruments]]
name = 'ping'
kind = 'ping'
parameters = { count = 3 }
[[instruments]]
name = 'download'
kind = 'http'
parameters = { bytes = '2mb' }
[[cases]]
name = 'base'
title = 'Nothing added'
published = { rtt_mean = '1ms', download_bytes = '4mb', download_time = '2s' }
expect = { goodput = { within = '10%' } }
[[cases]]
name = 'slow'
title = 'Slower & <lossy>'
note = 'The document had another kernel.'
repeats = 2
published = { rtt_mean = '3.1ms', loss = '15%', download_bytes = '1mb', download_time = '1s' }
expect = { rtt_gain = { gain = '2ms', within = '150us' }, goodput = { factor = 1.5 } }
";

    fn pinged(rtts: &[f64], lost: u32) -> Measurement {
        let sample = |(index, value): (u64, &f64)| {
            Sample::new(0.1 * index as f64, Metric::RttMs, index, *value)
        };
        let received = rtts.len() as f64;
        let total = |metric, value| Figure::new(metric, Statistic::Total, value);
        Measurement {
            samples: (1..).zip(rtts).map(sample).collect(),
            figures: vec![
                total(Metric::SentPackets, received + f64::from(lost)),
                total(Metric::ReceivedPackets, received),
            ],
            ..Measurement::default()
        }
    }

    fn downloaded(rate: f64) -> Measurement {
        let sample =
            |index: u64| Sample::new(0.5 * index as f64, Metric::ReceivedBytes, index, rate / 2.0);
        Measurement {
            samples: (1..=4).map(sample).collect(),
            figures: vec![Figure::new(
                Metric::GoodputBitPerS,
                Statistic::Mean,
                rate * 8.0,
            )],
            ..Measurement::default()
        }
    }

    fn run(case: &str, repeat: u32, ping: Measurement, download: Measurement) -> Run {
        let measured = |instrument: &str, measurement| Measured {
            instrument: instrument.to_owned(),
            started_at: "2026-01-01T00:00:00.000Z".to_owned(),
            measurement,
        };
        Run {
            case: case.to_owned(),
            repeat,
            seed: repeat.into(),
            started_at: "2026-01-01T00:00:00.000Z".to_owned(),
            outcome: Outcome::Ok,
            environment: BTreeMap::new(),
            measurements: vec![measured("ping", ping), measured("download", download)],
            link: None,
        }
    }

    /// So many values of the standard normal distribution (G. E. P. Box and M. E. Muller, 1958).
    pub(crate) fn draws(seed: u64, count: usize) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut draw = || {
            let (radius, angle) = (1.0 - random.f64(), random.f64());
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        };
        (0..count).map(|_| draw()).collect()
    }

    /// Two cases; everything that is expected is met.
    pub(crate) fn record() -> Record {
        let plan = scenario::parse("small.toml", SCENARIO, false).unwrap();
        let given = GivenScenario {
            file: "small.toml".to_owned(),
            text: SCENARIO.to_owned(),
        };
        let mut record = Record::new(given, plan, HostFacts::default());
        record.runs = vec![
            run("base", 1, pinged(&[1.0, 1.1, 1.2], 0), downloaded(2e6)),
            run("slow", 1, pinged(&[3.0, 3.1], 1), downloaded(0.8e6)),
            run("slow", 2, pinged(&[3.2], 2), downloaded(1.25e6)),
        ];
        record
    }

    #[test]
    fn medians_gains_and_losses_are_taken_over_all_repeats() {
        let record = record();
        let analysis = Analysis::of(&record);
        let ping = analysis.cases[1].ping.as_ref().unwrap();
        assert_eq!((ping.sent, ping.received), (6.0, 3.0));
        assert!((ping.gain_ms.unwrap() - 2.0).abs() < 1e-9);
        assert!((ping.published_gain_ms.unwrap() - 2.1).abs() < 1e-9);
        assert!((ping.lost_percent - 50.0).abs() < 1e-9);
        assert_eq!(analysis.verdict, Verdict::Met);
    }

    #[test]
    fn goodput_is_the_geometric_mean_of_the_repeats() {
        let record = record();
        let analysis = Analysis::of(&record);
        let download = analysis.cases[1].download.as_ref().unwrap();
        assert!((download.goodput - 1e6).abs() < 1e-3);
        assert!((download.ratio.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn an_expectation_that_is_not_met_fails_its_case_and_the_whole() {
        let mut record = record();
        record.runs[0].measurements[1].measurement = downloaded(1e6);
        let analysis = Analysis::of(&record);
        assert_eq!(analysis.cases[0].verdict, Verdict::NotMet);
        assert_eq!(analysis.cases[1].verdict, Verdict::Met);
        assert_eq!(analysis.verdict, Verdict::NotMet);
    }

    #[test]
    fn a_run_that_failed_or_is_missing_fails_its_case_with_the_cause() {
        let mut record = record();
        record.runs[0].outcome = Outcome::Invalid {
            cause: "the ring dropped 3".to_owned(),
        };
        record.runs.pop();
        let analysis = Analysis::of(&record);
        assert_eq!(
            analysis.cases[0].faults[0].text,
            "run 1 is invalid: the ring dropped 3"
        );
        assert_eq!(analysis.cases[0].verdict, Verdict::Invalid);
        assert_eq!(analysis.cases[1].faults[0].text, "1 of 2 runs took place");
        assert_eq!(analysis.verdict, Verdict::Failed);
    }

    #[test]
    fn an_expectation_about_nothing_measured_has_failed() {
        let mut record = record();
        record.runs[1].measurements.clear();
        record.runs[2].measurements.clear();
        let analysis = Analysis::of(&record);
        assert!(
            analysis.cases[1]
                .checks
                .iter()
                .all(|check| check.verdict == Verdict::Failed)
        );
    }

    #[test]
    fn a_goodput_at_l2_counts_headers_of_full_segments() {
        // tc's 100 mbit at MTU 1500 carries 1448 of 1514 bytes as payload.
        assert!((l2_of_goodput(1448.0, 1500) - 1514.0).abs() < 1e-9);
    }
}
