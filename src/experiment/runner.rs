//! The runner: for every run of a plan a test bed is set up, each instrument used in turn, the test bed taken down.
//!
//! A run that fails is recorded with its cause, and the others go on.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::host::network_sysctls;
use super::progress::Progress;
use crate::testbed::{Links, Testbed};
use instruments::Session;
use instruments::failure::{Blame, Failure};
use instruments::measure::{self, InstrumentArgs};
use netio::sandbox::{self, Capability};
use netio::stop::Stop;
use record::lateness;
use record::plan::{Case, Instrument, Plan, PlannedRun};
use record::profile::{Headline, Profile};
use record::quantity::{number, scale};
use record::{
    Baseline, Latest, LinkCounts, MOST_ATTEMPTS, Measured, Outcome, Record, RecordWriter, Run, now,
};
use record::{Direction, Measurement, Phase};
use stats::repeats;

/// Sets up the test bed of a case under a seed.
pub(crate) type SetUp<'a> = dyn Fn(&Case, u64) -> Result<Box<dyn Testbed>> + 'a;

/// Measures what the machine of a plan does with nothing in the way; absent where the bed is not of this machine alone.
pub(crate) type MeasureBaseline = dyn Fn(&SetUp<'_>, &Plan, &Stop) -> Result<Option<Baseline>>;

/// With what an experiment is run.
pub(crate) struct Measures<'a> {
    pub(crate) set_up: &'a SetUp<'a>,
    pub(crate) baseline: &'a MeasureBaseline,
}

/// Beside the record, where instruments write files of their own: `CASE-REPEAT-INSTRUMENT.csv`.
pub(crate) const ARTIFACTS: &str = "artifacts";
/// Setting up a test bed and taking it down.
const TESTBED_TIME: Duration = Duration::from_millis(500);
/// What an instrument without a time-out may take beyond its stated time before it is stopped.
const GRACE: Duration = Duration::from_secs(30);
/// What one without a stated time may take.
const LONGEST: Duration = Duration::from_secs(3600);

/// Does the runs of `record`'s plan that it has not, adds each to it and keeps it in `writer`, until `stop`. With
/// `redo_invalid` also those that are invalid after all attempts, with as many attempts again. The machine itself is measured
/// before the first of them, and after the last.
///
/// # Errors
/// Those of the writer, and of the baseline's own scenario: whatever else fails is part of the record.
pub(crate) fn run(
    measures: &Measures<'_>,
    record: &mut Record,
    writer: &mut RecordWriter,
    redo_invalid: bool,
    stop: &Stop,
) -> Result<()> {
    let plan = record.plan().clone();
    let artifacts = writer.path().with_file_name(ARTIFACTS);
    let mut wanted = Wanted::of(record, redo_invalid);
    let before = record.runs.len();
    let missing = wanted.missing(&plan, record, 1).len();
    if missing > 0 {
        keep_baseline(measures, record, writer, stop)?;
    }
    let mut progress = Progress::new(missing);
    for round in 1..=plan.rounds() {
        for planned in plan.round(round) {
            while wanted.is_missing(&record.latest(), &planned) {
                let left = wanted.missing(&plan, record, round);
                progress.start(&label(&planned), left.len(), left.iter().sum());
                let before = record.latest().run(&planned.case.name, planned.repeat);
                let attempt = before.map_or(1, |run| run.attempt + 1);
                let begun = Instant::now();
                let run = run_once(measures.set_up, Some(&artifacts), attempt, &planned, stop);
                // What a signal cut short is no measurement.
                if stop.cause().is_some() {
                    return Ok(());
                }
                wanted
                    .took
                    .insert(planned.case.name.clone(), begun.elapsed());
                progress.finish(&format!(
                    "{}: {}",
                    label(&planned),
                    outcome_line(&run, planned.case)
                ));
                writer.keep(&run)?;
                record.runs.push(run);
            }
        }
    }
    if record.finished_at.is_none() || record.runs.len() > before {
        keep_baseline(measures, record, writer, stop)?;
        // What is resumed has its end still to come.
        if stop.cause().is_some() {
            return Ok(());
        }
        let at = now();
        writer.finish(&at)?;
        record.finished_at = Some(at);
    }
    Ok(())
}

/// Measures what the machine does with nothing in the way, and adds it to the record.
fn keep_baseline(
    measures: &Measures<'_>,
    record: &mut Record,
    writer: &mut RecordWriter,
    stop: &Stop,
) -> Result<()> {
    let baseline = (measures.baseline)(measures.set_up, record.plan(), stop)?;
    // What a signal cut short is no measurement.
    if let Some(baseline) = baseline.filter(|_| stop.cause().is_none()) {
        writer.keep_baseline(&baseline)?;
        record.baselines.push(baseline);
    }
    Ok(())
}

/// About how long a run of `case` takes, where that can be said: instruments without a stated time are left out.
pub(crate) fn estimate(case: &Case) -> Duration {
    let groups = case.groups();
    let times = groups.iter().map(|group| {
        let each = group.iter().filter_map(measure::expected);
        each.max().unwrap_or_default()
    });
    times.sum::<Duration>() + TESTBED_TIME
}

/// What decides whether a run is still to be done.
struct Wanted {
    /// How many attempts a run may have, where that is not [`MOST_ATTEMPTS`].
    attempts: HashMap<(String, u32), u32>,
    /// How long the last run of each case took, as far as there was one.
    took: HashMap<String, Duration>,
}

impl Wanted {
    fn of(record: &Record, redo_invalid: bool) -> Self {
        let invalid = record
            .runs
            .iter()
            .filter(|run| redo_invalid && is_invalid(run));
        let again = invalid.map(|run| {
            let name = (run.case.clone(), run.repeat);
            (name, run.attempt + MOST_ATTEMPTS)
        });
        Self {
            attempts: again.collect(),
            took: HashMap::new(),
        }
    }

    /// How long each run that is still to come should take, as far as that is known.
    fn missing(&self, plan: &Plan, record: &Record, from: u32) -> Vec<Duration> {
        let latest = record.latest();
        let rounds = (from..=plan.rounds()).flat_map(|round| plan.round(round));
        rounds
            .filter(|planned| self.is_missing(&latest, planned))
            .map(|planned| match self.took.get(&planned.case.name) {
                Some(took) => *took,
                None => estimate(planned.case),
            })
            .collect()
    }

    /// Whether the record lacks this run: it is wanted, and either not there or spoilt and to be attempted again.
    fn is_missing(&self, latest: &Latest<'_>, planned: &PlannedRun<'_>) -> bool {
        let PlannedRun { case, repeat, .. } = planned;
        let Some(run) = latest.run(&case.name, *repeat) else {
            return *repeat <= repeats(latest, case);
        };
        let name = (case.name.clone(), *repeat);
        let attempts = self.attempts.get(&name).copied();
        is_invalid(run) && run.attempt < attempts.unwrap_or(MOST_ATTEMPTS)
    }
}

fn is_invalid(run: &Run) -> bool {
    matches!(run.outcome, Outcome::Invalid { .. })
}

/// How many times the case runs, as far as is known: in two stages, what the first says, and one more for each run that
/// gave no figure.
fn repeats(latest: &Latest<'_>, case: &Case) -> u32 {
    let Some(narrow) = &case.repeats.until else {
        return case.repeats.least;
    };
    let values = latest.deciding(case);
    let without = latest.runs(case).count() - values.len();
    if values.is_empty() && without >= repeats::FIRST {
        // It never gives one.
        return case.repeats.least;
    }
    let needed = repeats::needed(&values, narrow.percent / 100.0);
    let needed = needed.map_or(case.repeats.least, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let without = u32::try_from(without).unwrap_or(u32::MAX);
    needed.saturating_add(without).min(case.repeats.most)
}

fn label(run: &PlannedRun<'_>) -> String {
    match (run.case.repeats.most, &run.case.repeats.until) {
        (1, _) => run.case.name.clone(),
        (most, None) => format!("{} ({} of {most})", run.case.name, run.repeat),
        (most, Some(_)) => format!("{} ({}, at most {most})", run.case.name, run.repeat),
    }
}

/// A run from setting up to taking down; files of its instruments go to `artifacts`.
pub(super) fn run_once(
    set_up: &SetUp<'_>,
    artifacts: Option<&Path>,
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
        links: Vec::new(),
    };
    match set_up(planned.case, planned.seed) {
        Ok(testbed) => use_testbed(testbed, planned, artifacts, stop, &mut run),
        Err(error) => {
            run.outcome = Outcome::Failed {
                cause: format!("{error:#}"),
            }
        }
    }
    run
}

fn use_testbed(
    testbed: Box<dyn Testbed>,
    planned: &PlannedRun<'_>,
    artifacts: Option<&Path>,
    stop: &Stop,
    run: &mut Run,
) {
    run.environment = environment(&*testbed);
    let stop = &testbed.stops(stop);
    for group in planned.case.groups() {
        let measured = at_once(&*testbed, planned, group, artifacts, stop);
        run.measurements.extend(measured);
        if stop.cause().is_some() {
            break;
        }
    }
    let spoilt = testbed.spoilt();
    let torn_down = testbed.tear_down();
    run.outcome = outcome(&mut run.measurements, &torn_down, spoilt);
    let links = torn_down.unwrap_or_default();
    run.links = links.into_iter().map(LinkCounts::of).collect();
}

/// Uses the instruments of a group at the same time.
fn at_once(
    testbed: &dyn Testbed,
    planned: &PlannedRun<'_>,
    group: &[Instrument],
    artifacts: Option<&Path>,
    stop: &Stop,
) -> Vec<Measured> {
    let measured = |instrument: &Instrument| {
        let (started_at, before) = (now(), testbed.departures());
        let measurement = measure(testbed, planned, instrument, artifacts, stop);
        let traffic = measure::traffic(instrument);
        let departures = lateness::between(&before, &testbed.departures(), &traffic);
        let measurement =
            measurement.unwrap_or_else(|error| Measurement::failed(format!("{error:#}")));
        Measured {
            instrument: instrument.name.clone(),
            started_at,
            invalid: lateness::invalid(&departures, &measurement.figures),
            departures,
            measurement,
        }
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
    testbed: &dyn Testbed,
    planned: &PlannedRun<'_>,
    instrument: &Instrument,
    artifacts: Option<&Path>,
    stop: &Stop,
) -> Result<Measurement> {
    let far_end = testbed.far_end();
    let asked = InstrumentArgs::of(instrument, &far_end, &planned.case.congestion)?;
    let asked = asked.instrument();
    let expected = || asked.expected().map_or(LONGEST, |time| time + GRACE);
    let limit = instrument.timeout.map_or_else(expected, Duration::from);
    let csv = artifacts.filter(|_| instrument.csv);
    let csv = csv.map(|folder| csv_file(folder, planned, instrument));
    let session = Session {
        in_bed: testbed.is_in_namespaces(),
        csv: csv.transpose()?,
        ..Session::quiet(stop.within(limit))
    };
    let _server = match asked.server()? {
        Some(server) => testbed.serve_with(&server.tool, &server.arguments, server.port)?,
        None => None,
    };
    // A tool is contained by namespaces, which takes privileges, and has none of farwire's own.
    let is_confined = session.in_bed && asked.tool()?.is_none();
    let opens_files = session.csv.is_some() || asked.reads_a_file();
    let measure = || -> Result<Measurement, Failure> {
        if is_confined {
            confine_client(opens_files)?;
        }
        Ok(asked.measure(&session)?.measurement)
    };
    testbed.in_client(Box::new(|| measure().unwrap_or_else(Measurement::failed)))
}

/// Has the calling thread keep CAP_NET_ADMIN alone, with which it may set every congestion control; one that opens files, those of
/// other users also, as its caller may.
fn confine_client(opens_files: bool) -> Result<(), Failure> {
    // As root it paces in real time; rootless it could not before either.
    let _ = sandbox::allow_real_time();
    let mut kept = vec![Capability::CAP_NET_ADMIN];
    if opens_files {
        kept.push(Capability::CAP_DAC_OVERRIDE);
    }
    sandbox::give_up_privileges(&kept).or_machine()
}

/// The instrument's file in `folder`, which is made; a further attempt writes the same.
fn csv_file(folder: &Path, planned: &PlannedRun<'_>, instrument: &Instrument) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    let PlannedRun { case, repeat, .. } = planned;
    let name = format!("{}-{repeat}-{}.csv", case.name, instrument.name);
    Ok(folder.join(name.replace('/', "_")))
}

/// How the run ended. What spoilt all of it is put down to every measurement.
fn outcome(
    measurements: &mut [Measured],
    torn_down: &Result<Links>,
    spoilt: Option<String>,
) -> Outcome {
    let failures = measurements.iter().filter_map(|measured| {
        let cause = measured.measurement.failure.as_ref()?;
        Some(format!("{}: {cause}", measured.instrument))
    });
    let causes: Vec<String> = failures
        .chain(
            torn_down
                .as_ref()
                .err()
                .map(|error| format!("test bed: {error:#}")),
        )
        .collect();
    if !causes.is_empty() {
        return Outcome::Failed {
            cause: causes.join("; "),
        };
    }
    let links = torn_down.as_deref().unwrap_or_default();
    let invalid = links.iter().filter_map(|(name, summary)| {
        let cause = summary.own_loss()?;
        Some(if links.len() > 1 {
            format!("{name}: {cause}")
        } else {
            cause
        })
    });
    let causes: Vec<String> = invalid.chain(spoilt).collect();
    if !causes.is_empty() {
        let cause = causes.join("; ");
        for measured in measurements {
            measured.invalid = Some(cause.clone());
        }
        return Outcome::Invalid { cause };
    }
    let late = measurements.iter().filter_map(|measured| {
        let cause = measured.invalid.as_ref()?;
        Some(format!("{}: {cause}", measured.instrument))
    });
    let causes: Vec<String> = late.collect();
    match causes.is_empty() {
        true => Outcome::Ok,
        false => Outcome::Invalid {
            cause: causes.join("; "),
        },
    }
}

/// What the test bed says of itself, and the client's sysctls.
fn environment(testbed: &dyn Testbed) -> BTreeMap<String, String> {
    let mut environment = testbed.environment();
    let carrier = testbed.in_client(Box::new(|| Measurement {
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

/// A run of `case` in one line.
fn outcome_line(run: &Run, case: &Case) -> String {
    match &run.outcome {
        Outcome::Failed { cause } => format!("FAILED: {cause}"),
        Outcome::Invalid { cause } => format!("INVALID: {cause}"),
        Outcome::Ok => {
            let figures = run.measurements.iter().filter_map(|measured| {
                let mut used = case.instruments.iter();
                let used = used.find(|instrument| instrument.name == measured.instrument)?;
                let figure = headline(&used.profile, &measured.measurement)?;
                Some(format!("{} {figure}", measured.instrument))
            });
            figures.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The first of the instrument's headlines that was measured, as tables show it: both ways where it went both, from the least
/// to the greatest over sizes.
fn headline(profile: &Profile, measurement: &Measurement) -> Option<String> {
    let of = |headline: &Headline| {
        let all = measurement.figures.iter().filter(|figure| {
            let is_it = (figure.metric, figure.statistic) == (headline.metric, headline.statistic);
            let this_way = headline
                .direction
                .is_none_or(|way| figure.direction == Some(way));
            is_it && this_way && figure.stream.is_none()
        });
        let mut parts: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for figure in all {
            let part = (figure.phase, figure.direction);
            parts.entry(part).or_default().push(figure.value);
        }
        (!parts.is_empty()).then_some((headline.metric, parts))
    };
    let (metric, parts) = profile.headlines.iter().find_map(of)?;
    let (by, unit) = scale(metric);
    let several = parts.len() > 1;
    let words = parts.into_iter().map(|((phase, way), values)| {
        let scope = [phase.map(Phase::name), way.map(Direction::name)];
        let scope = scope.into_iter().flatten().filter(|_| several);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shown = match least < most {
            true => format!("{} to {} {unit}", number(least / by), number(most / by)),
            false => format!("{} {unit}", number(most / by)),
        };
        scope
            .map(str::to_owned)
            .chain([shown])
            .collect::<Vec<_>>()
            .join(" ")
    });
    Some(words.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
