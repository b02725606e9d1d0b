//! The runner: for every run of a plan a rig is set up, each instrument used in turn, the rig taken down.
//!
//! A run that fails is recorded with its cause, and the others go on.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::host::network_sysctls;
use super::plan::{Case, Instrument, Plan, PlannedRun, Repeats};
use super::progress::Progress;
use super::record::{Journal, Measured, Outcome, Record, Run, now};
use crate::analysis::student;
use crate::forward::summary as link;
use crate::instrument::external::{Running, Tool};
use crate::instrument::{Measurement, Metric, Session, Statistic, Stop};
use crate::measure::FarEnd;

/// How often a run that the machine spoils is attempted.
const MOST_ATTEMPTS: u32 = 3;
/// What an instrument may take beyond its stated time before it is stopped.
const GRACE: Duration = Duration::from_secs(30);
/// What an instrument without a stated time may take.
const LONGEST: Duration = Duration::from_secs(3600);

/// Work of an instrument that must happen where the client is.
pub(crate) type ClientWork<'a> = Box<dyn FnOnce() -> Measurement + Send + 'a>;

/// Where runs take place.
pub(crate) trait Laboratory {
    /// A rig under the conditions of `case`, its far end listening.
    ///
    /// # Errors
    /// What the machine refused.
    fn set_up(&self, case: &Case, seed: u64) -> Result<Box<dyn Rig>>;
}

/// A client and a far end with the emulated link between them.
pub(crate) trait Rig: Sync {
    /// The far end, as the client reaches it.
    fn far_end(&self) -> FarEnd;

    /// What is in effect: the far end's congestion control as read back, offloads, MTU.
    fn environment(&self) -> BTreeMap<String, String>;

    /// Does `work` in a thread that is in the client's network namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    fn in_client(&self, work: ClientWork<'_>) -> Result<Measurement>;

    /// Starts `tool` as a server where the far end is, contained, and waits until it listens on `port`; it ends when the
    /// result is dropped.
    ///
    /// # Errors
    /// It does not start, or does not listen.
    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Running>;

    /// Takes everything down; what the link did.
    ///
    /// # Errors
    /// Something that was part of the rig had failed.
    fn tear_down(self: Box<Self>) -> Result<link::Summary>;
}

/// Does the runs of `record`'s plan that it has not, adds each to it and keeps it in `journal`, until `stop`.
///
/// # Errors
/// Only those of the journal: whatever else fails is part of the record.
pub(crate) fn run(
    laboratory: &dyn Laboratory,
    record: &mut Record,
    journal: &mut Journal,
    stop: &Stop,
) -> Result<()> {
    let plan = record.plan().clone();
    let mut progress = Progress::new(missing(&plan, record, 1).len());
    for round in 1..=plan.rounds() {
        for planned in plan.round(round) {
            while is_missing(record, &planned) {
                let left = missing(&plan, record, round);
                progress.start(&label(&planned), left.len(), left.iter().sum());
                let before = record.run_of(&planned.case.name, planned.repeat);
                let attempt = before.map_or(1, |run| run.attempt + 1);
                let run = run_once(laboratory, attempt, &planned, stop);
                // What a signal cut short is no measurement.
                if stop.cause().is_some() {
                    return Ok(());
                }
                progress.finish(&format!("{}: {}", label(&planned), outcome_line(&run)));
                journal.keep(&run)?;
                record.runs.push(run);
            }
        }
    }
    if record.finished_at.is_none() {
        let at = now();
        journal.finish(&at)?;
        record.finished_at = Some(at);
    }
    Ok(())
}

/// How long each run that is still to come should take, as far as that is known.
fn missing(plan: &Plan, record: &Record, from: u32) -> Vec<Duration> {
    let rounds = (from..=plan.rounds()).flat_map(|round| plan.round(round));
    rounds
        .filter(|planned| is_missing(record, planned))
        .map(|planned| planned.case.estimate())
        .collect()
}

/// Whether the record lacks this run: it is wanted, and either not there or spoilt and to be attempted again.
fn is_missing(record: &Record, planned: &PlannedRun<'_>) -> bool {
    let PlannedRun { case, repeat, .. } = planned;
    match record.run_of(&case.name, *repeat) {
        Some(run) => matches!(run.outcome, Outcome::Invalid { .. }) && run.attempt < MOST_ATTEMPTS,
        None => *repeat <= case.repeats.least || is_wanted(&case.repeats, record, case, *repeat),
    }
}

/// Whether the interval of the runs before this one is still too wide.
fn is_wanted(repeats: &Repeats, record: &Record, case: &Case, repeat: u32) -> bool {
    let Some(narrow) = repeats.until.as_ref().filter(|_| repeat <= repeats.most) else {
        return false;
    };
    let values = (1..repeat).filter_map(|before| {
        let run = record.run_of(&case.name, before)?;
        let measurement = run.measured(&narrow.of.instrument)?;
        narrow.of.find(measurement).map(|figure| figure.value)
    });
    let values: Vec<f64> = values.collect();
    match (student::mean(&values), student::mean_interval(&values)) {
        (Some(mean), Some([low, high])) => (high - low) / 2.0 > narrow.percent / 100.0 * mean.abs(),
        _ => true,
    }
}

fn label(run: &PlannedRun<'_>) -> String {
    match (run.case.repeats.most, &run.case.repeats.until) {
        (1, _) => run.case.name.clone(),
        (most, None) => format!("{} ({} of {most})", run.case.name, run.repeat),
        (most, Some(_)) => format!("{} ({}, at most {most})", run.case.name, run.repeat),
    }
}

/// A run from setting up to taking down.
pub(super) fn run_once(
    laboratory: &dyn Laboratory,
    attempt: u32,
    planned: &PlannedRun<'_>,
    stop: &Stop,
) -> Run {
    let mut run = Run {
        case: planned.case.name.clone(),
        repeat: planned.repeat,
        attempt,
        seed: planned.seed,
        started_at: now(),
        outcome: Outcome::Ok,
        environment: BTreeMap::new(),
        measurements: Vec::new(),
        link: None,
    };
    match laboratory.set_up(planned.case, planned.seed) {
        Ok(rig) => use_rig(rig, planned.case, stop, &mut run),
        Err(error) => {
            run.outcome = Outcome::Failed {
                cause: format!("{error:#}"),
            }
        }
    }
    run
}

fn use_rig(rig: Box<dyn Rig>, case: &Case, stop: &Stop, run: &mut Run) {
    run.environment = environment(&*rig);
    for group in case.groups() {
        run.measurements.extend(at_once(&*rig, case, group, stop));
        if stop.cause().is_some() {
            break;
        }
    }
    let torn_down = rig.tear_down();
    run.outcome = outcome(&run.measurements, &torn_down);
    run.link = torn_down.ok();
}

/// Uses the instruments of a group at the same time.
fn at_once(rig: &dyn Rig, case: &Case, group: &[Instrument], stop: &Stop) -> Vec<Measured> {
    let measured = |instrument: &Instrument| Measured {
        instrument: instrument.name.clone(),
        started_at: now(),
        measurement: measure(rig, case, instrument, stop)
            .unwrap_or_else(|error| Measurement::failed(format!("{error:#}"))),
    };
    thread::scope(|scope| {
        let measuring: Vec<_> = group
            .iter()
            .map(|instrument| scope.spawn(move || measured(instrument)))
            .collect();
        let done = measuring.into_iter().map(|thread| thread.join());
        done.map(|measured| measured.expect("an instrument's panic is farwire's"))
            .collect()
    })
}

fn measure(
    rig: &dyn Rig,
    case: &Case,
    instrument: &Instrument,
    stop: &Stop,
) -> Result<Measurement> {
    let far_end = rig.far_end();
    let asked = instrument
        .kind
        .ask(&instrument.options, &far_end, &case.congestion)?;
    let asked = asked.instrument();
    let limit = asked.expected().map_or(LONGEST, |time| time + GRACE);
    let session = Session {
        in_bed: true,
        ..Session::quiet(stop.within(limit))
    };
    let _server = match asked.server()? {
        Some(server) => Some(rig.serve_with(&server.tool, &server.arguments, server.port)?),
        None => None,
    };
    rig.in_client(Box::new(|| match asked.measure(&session) {
        Ok(shown) => shown.measurement,
        Err(failure) => Measurement::failed(failure),
    }))
}

fn outcome(measurements: &[Measured], torn_down: &Result<link::Summary>) -> Outcome {
    let failures = measurements.iter().filter_map(|measured| {
        let cause = measured.measurement.failure.as_ref()?;
        Some(format!("{}: {cause}", measured.instrument))
    });
    let causes: Vec<String> = failures
        .chain(
            torn_down
                .as_ref()
                .err()
                .map(|error| format!("rig: {error:#}")),
        )
        .collect();
    if !causes.is_empty() {
        return Outcome::Failed {
            cause: causes.join("; "),
        };
    }
    match torn_down
        .as_ref()
        .ok()
        .and_then(|summary| summary.invalid())
    {
        Some(cause) => Outcome::Invalid { cause },
        None => Outcome::Ok,
    }
}

/// What the rig says of itself, and the client's sysctls.
fn environment(rig: &dyn Rig) -> BTreeMap<String, String> {
    let mut environment = rig.environment();
    let carrier = rig.in_client(Box::new(|| Measurement {
        facts: network_sysctls(),
        ..Measurement::default()
    }));
    if let Ok(carrier) = carrier {
        environment.extend(
            carrier
                .facts
                .into_iter()
                .map(|(name, value)| (format!("client {name}"), value)),
        );
    }
    environment
}

/// A run in one line.
fn outcome_line(run: &Run) -> String {
    match &run.outcome {
        Outcome::Failed { cause } => format!("FAILED: {cause}"),
        Outcome::Invalid { cause } => format!("INVALID: {cause}"),
        Outcome::Ok => {
            let figures = run.measurements.iter().filter_map(|measured| {
                let figure = headline(&measured.measurement)?;
                Some(format!("{} {figure}", measured.instrument))
            });
            figures.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The figure that people look for first.
fn headline(measurement: &Measurement) -> Option<String> {
    if let Some(rtt) = measurement.figure(Metric::RttMs, Statistic::Median) {
        return Some(format!("{rtt:.3} ms"));
    }
    // Of streams, the rates have a direction.
    let rate = |metric| {
        let mut figures = measurement.figures.iter();
        figures
            .find(|f| f.metric == metric && f.statistic == Statistic::Mean && f.stream.is_none())
            .map(|figure| figure.value)
    };
    let rate = rate(Metric::GoodputBitPerS).or_else(|| rate(Metric::SentRateBitPerS));
    rate.map(|rate| format!("{:.3} MB/s", rate / 8e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::host::HostFacts;
    use crate::experiment::record::{GivenScenario, Head};
    use crate::experiment::scenario;
    use crate::instrument::external::{Here, Launcher as _};
    use crate::serve::{self, ServeConfig, Server};
    use anyhow::anyhow;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Runs take place on loopback, without a link; a case named "broken" cannot be set up, and one named "spoilt" is at
    /// the first two attempts.
    #[derive(Default)]
    struct Loopback {
        spoilt: AtomicU32,
        stop: Arc<AtomicBool>,
    }

    struct LoopbackRig {
        server: Server,
        summary: link::Summary,
    }

    impl Laboratory for Loopback {
        fn set_up(&self, case: &Case, _seed: u64) -> Result<Box<dyn Rig>> {
            let mut summary = link::Summary::default();
            match case.name.as_str() {
                "broken" => return Err(anyhow!("no such link")),
                "spoilt" if self.spoilt.fetch_add(1, Ordering::Relaxed) < 2 => {
                    summary.departure_error.count = 1;
                    summary.departure_error.over_budget = 1;
                }
                "last" => self.stop.store(true, Ordering::Relaxed),
                _ => {}
            }
            let congestion = Some(case.congestion.clone());
            let server = serve::start(ServeConfig {
                congestion,
                ..ServeConfig::on_loopback()
            })?;
            Ok(Box::new(LoopbackRig { server, summary }))
        }
    }

    impl Rig for LoopbackRig {
        fn far_end(&self) -> FarEnd {
            let http = self.server.address("http").unwrap();
            FarEnd {
                address: http.ip(),
                http: http.port(),
            }
        }

        fn environment(&self) -> BTreeMap<String, String> {
            let congestion = self.server.congestion().to_owned();
            BTreeMap::from([("congestion".to_owned(), congestion)])
        }

        fn in_client(&self, work: ClientWork<'_>) -> Result<Measurement> {
            Ok(work())
        }

        fn serve_with(&self, tool: &Tool, arguments: &[String], _: u16) -> Result<Running> {
            Here.start(tool, arguments)
        }

        fn tear_down(self: Box<Self>) -> Result<link::Summary> {
            Ok(self.summary)
        }
    }

    fn head(cases: &str) -> Head {
        let text = format!(
            "name = 'x'\ntitle = 'X'\norder = 'as-written'\nbed = {{ kind = 'netns' }}\n\
             tcp = {{ congestion = 'reno' }}\n[[instruments]]\nname = 'download'\nkind = 'http'\n\
             parameters = {{ path = '/bytes/100000' }}\n{cases}"
        );
        let plan = scenario::parse("x.toml", &text, false).unwrap();
        let given = GivenScenario {
            file: "x.toml".to_owned(),
            text,
        };
        Head::new(given, plan, HostFacts::default())
    }

    /// Runs what `directory`'s record is missing; what it then holds.
    fn go_on(directory: &Path, laboratory: &Loopback) -> Record {
        let (mut record, mut journal) = Journal::resume(directory).unwrap();
        let stop = Stop::on(Arc::clone(&laboratory.stop));
        run(laboratory, &mut record, &mut journal, &stop).unwrap();
        let kept = Record::read(directory).unwrap();
        assert!(kept == record);
        kept
    }

    fn experiment(cases: &str) -> Record {
        let directory = tempfile::tempdir().unwrap();
        Journal::begin(directory.path(), &head(cases)).unwrap();
        go_on(directory.path(), &Loopback::default())
    }

    #[test]
    fn a_run_that_fails_is_recorded_with_its_cause_and_the_others_go_on() {
        let record =
            experiment("[[cases]]\nname = 'broken'\n[[cases]]\nname = 'sound'\nrepeats = 2\n");
        assert_eq!(record.runs.len(), 3);
        assert_eq!(
            record.runs[0].outcome,
            Outcome::Failed {
                cause: "no such link".to_owned()
            }
        );
        let sound = &record.runs[1..];
        assert!(
            sound.iter().all(|run| run.outcome == Outcome::Ok),
            "{sound:?}"
        );
        assert_eq!(sound[0].environment["congestion"], "reno");
        assert!(
            sound[0]
                .environment
                .contains_key("client net.ipv4.tcp_rmem")
        );
        assert!(record.finished_at.is_some());
    }

    #[test]
    fn a_run_that_the_machine_spoilt_is_attempted_again() {
        let record = experiment("[[cases]]\nname = 'spoilt'\n");
        let attempts: Vec<u32> = record.runs.iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, [1, 2, 3]);
        assert!(matches!(record.runs[1].outcome, Outcome::Invalid { .. }));
        assert_eq!(record.runs[2].outcome, Outcome::Ok);
    }

    #[test]
    fn repeats_end_when_the_interval_is_narrow_or_at_the_most() {
        let cases = |within| {
            format!(
                "[[cases]]\nname = 'a'\nrepeats = {{ of = 'download.goodput_bit_per_s.mean', \
                 within = '{within}', most = 5 }}\n"
            )
        };
        assert_eq!(experiment(&cases("1000000%")).runs.len(), 3);
        assert_eq!(experiment(&cases("0.000001%")).runs.len(), 5);
    }

    #[test]
    fn instruments_of_one_group_run_at_the_same_time() {
        let second = "[[instruments]]\nname = 'second'\nkind = 'http'\ngroup = 'g'\n\
                      parameters = { path = '/bytes/1000' }\n\
                      [[instruments]]\nname = 'third'\nkind = 'http'\ngroup = 'g'\n\
                      parameters = { path = '/bytes/1000' }\n[[cases]]\nname = 'a'\n";
        let record = experiment(second);
        let groups = record.plan().cases[0].groups();
        assert_eq!(
            groups.iter().map(|group| group.len()).collect::<Vec<_>>(),
            [1, 2]
        );
        let names = record.runs[0]
            .measurements
            .iter()
            .map(|m| m.instrument.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["download", "second", "third"]);
        assert_eq!(record.runs[0].outcome, Outcome::Ok);
    }

    #[test]
    fn what_a_signal_cut_short_is_done_when_it_is_resumed_and_nothing_twice() {
        let directory = tempfile::tempdir().unwrap();
        let cases = "[[cases]]\nname = 'first'\nrepeats = 2\n[[cases]]\nname = 'last'\n";
        Journal::begin(directory.path(), &head(cases)).unwrap();
        let laboratory = Loopback::default();
        let cut = go_on(directory.path(), &laboratory);
        assert_eq!((cut.runs.len(), cut.finished_at), (1, None));
        // The laboratory stops at every run of `last`: as with a user who interrupts again and again.
        laboratory.stop.store(false, Ordering::Relaxed);
        assert_eq!(go_on(directory.path(), &laboratory).runs.len(), 1);
        let whole = {
            let (mut record, mut journal) = Journal::resume(directory.path()).unwrap();
            run(&laboratory, &mut record, &mut journal, &Stop::default()).unwrap();
            record
        };
        let runs: Vec<_> = whole
            .runs
            .iter()
            .map(|r| (r.case.as_str(), r.repeat))
            .collect();
        assert_eq!(runs, [("first", 1), ("last", 1), ("first", 2)]);
        assert!(whole.finished_at.is_some());
    }
}
