//! The runner: for every run of a plan it sets up a test bed, uses the instruments in turn and
//! takes the test bed down.
//!
//! A failed run is recorded with its cause, and the remaining runs take place.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::artifacts::Artifacts;
use super::captures::{RunCaptures, RunningCaptures};
use super::link_histories;
use super::machine_facts::network_sysctls;
use super::observer::RunObserver;
use super::run_times::RunTimes;
use crate::experiment::{Case, Plan, PlannedInstrument, PlannedRun};
use crate::live::NumberedRun;
use crate::progress::ProgressLine;
use crate::testbed::{LinkSummaries, Testbed};
use instruments::Session;
use instruments::failure::{Blame, Failure};
use instruments::output::Prepared;
use netio::netns::NetNs;
use netio::sandbox::{self, Capability};
use netio::stop::Stop;
use record::clients;
use record::lateness::{self, Polls};
use record::pace::PathPace;
use record::profile::{Headline, InstrumentProfile};
use record::quantity::{counted, number, scale_for};
use record::summary::Summary;
use record::{
    Baseline, Latest, LinkCounts, MOST_ATTEMPTS, Measured, Record, RecordWriter, Run, RunOutcome,
    now,
};
use record::{Direction, Measurement, Phase};

/// A function that sets up the test bed of a case with a seed.
pub(crate) type SetUp<'a> = dyn Fn(&Case, u64) -> Result<Box<dyn Testbed>> + 'a;

/// A function that measures the baseline of a plan's machine. Returns `None` if the test bed
/// includes another machine.
pub(crate) type MeasureBaseline = dyn Fn(&SetUp<'_>, &Plan, &Stop) -> Result<Option<Baseline>>;

/// The functions and observers with which an experiment runs.
pub(crate) struct Measures<'a> {
    pub(crate) set_up: &'a SetUp<'a>,
    pub(crate) baseline: &'a MeasureBaseline,
    pub(crate) watch: RunObserver<'a>,
    pub(crate) captures: Option<&'a RunCaptures>,
}

/// The time that an instrument without a timeout may take beyond its expected time before it is
/// stopped.
const GRACE: Duration = Duration::from_secs(30);
/// The interval between two reads of the links' departure counters.
const POLL: Duration = Duration::from_millis(50);
/// The time limit of an instrument without an expected time.
const LONGEST: Duration = Duration::from_secs(3600);

/// Does the runs of `plan` that `record` lacks, adds each to the record and saves it with `writer`,
/// until `stop` is set. `plan` is the plan of the record. With `redo_invalid`, runs that were
/// invalid in all attempts get the same number of attempts again. The machine's baseline is
/// measured before the first run and after the last.
///
/// # Errors
/// Fails with the writer's errors and those of the baseline's own scenario. Every other failure is
/// recorded.
pub(crate) fn run(
    measures: &Measures<'_>,
    plan: &Plan,
    record: &mut Record,
    writer: &mut RecordWriter,
    redo_invalid: bool,
    stop: &Stop,
) -> Result<()> {
    let mut pending = PendingRuns::of(plan, record, redo_invalid);
    let before = record.runs.len();
    let missing = pending.missing(plan, record, 1);
    let watch = measures.watch;
    watch.begin(plan);
    watch.expect(&missing);
    let missing = missing.len();
    if missing > 0 {
        if let Some(first) = pending.next(plan, &record.latest(), 1, None) {
            watch.set_current(first, || None);
        }
        keep_baseline(measures, plan, record, writer, stop)?;
    }
    let mut progress = ProgressLine::new(missing, "run");
    for round in 1..=plan.rounds() {
        for planned in plan.round(round) {
            while pending.is_missing(&record.latest(), &planned) {
                let left = pending.missing(plan, record, round);
                progress.start(&label(&planned), left.len(), left.iter().sum());
                let before = record.latest().run(&planned.case.name, planned.repeat);
                let attempt = before.map_or(1, |run| run.attempt + 1);
                watch.expect(&left);
                watch.set_current(numbered(&planned, attempt), || {
                    pending.next(plan, &record.latest(), round, Some(&planned))
                });
                let begun = Instant::now();
                let set_up = measures.set_up;
                let artifacts = Artifacts {
                    directory: writer.directory(),
                    attempt,
                };
                let kept = Some((artifacts, measures.captures));
                let run = run_once(set_up, watch, kept, &planned, stop);
                let elapsed = begun.elapsed();
                let run = Run {
                    host: record.here(),
                    elapsed_s: Some(elapsed.as_secs_f64()),
                    ..run
                };
                // A run that a signal interrupted is not a measurement.
                if stop.cause().is_some() {
                    return Ok(());
                }
                pending.times.add(planned.case, elapsed);
                let line = format!("{}: {}", label(&planned), outcome_line(&run, planned.case));
                writer.keep(&run)?;
                record.runs.push(run);
                if pending.is_missing(&record.latest(), &planned) {
                    progress.attempt(&format!("{line}; it is attempted again"));
                } else {
                    progress.finish(&line);
                }
                watch.ended(record, &planned.case.name);
            }
        }
    }
    if record.finished_at.is_none() || record.runs.len() > before {
        // A shard without runs needs no baseline.
        if !record.runs.is_empty() {
            keep_baseline(measures, plan, record, writer, stop)?;
        }
        // The final baseline was interrupted, so the record stays unfinished and can be resumed.
        if stop.cause().is_some() {
            return Ok(());
        }
        let at = now();
        writer.finish(&at)?;
        record.finished_at = Some(at);
    }
    Ok(())
}

/// Returns the runs of `plan` that [`run`] would do: the missing repeats of each case.
pub(crate) fn missing(
    plan: &Plan,
    record: &Record,
    redo_invalid: bool,
) -> BTreeMap<String, Vec<u32>> {
    let pending = PendingRuns::of(plan, record, redo_invalid);
    let latest = record.latest();
    let missing = plan.cases.iter().map(|case| {
        let of_shard = (1..=plan.rounds()).filter(|repeat| plan.has(&case.name, *repeat));
        let repeats = of_shard
            .filter(|repeat| pending.is_missing(&latest, &plan.run(case, *repeat)))
            .collect::<Vec<_>>();
        (case.name.clone(), repeats)
    });
    missing.filter(|(_, repeats)| !repeats.is_empty()).collect()
}

/// Measures the baseline and adds it to the record.
fn keep_baseline(
    measures: &Measures<'_>,
    plan: &Plan,
    record: &mut Record,
    writer: &mut RecordWriter,
    stop: &Stop,
) -> Result<()> {
    measures.watch.enter("baseline");
    let baseline = (measures.baseline)(measures.set_up, plan, stop)?;
    // A baseline that a signal interrupted is not a measurement.
    if let Some(mut baseline) = baseline.filter(|_| stop.cause().is_none()) {
        baseline.host = record.here();
        writer.keep_baseline(&baseline)?;
        record.baselines.push(baseline);
    }
    Ok(())
}

/// The data that decides whether a run must still be done.
struct PendingRuns {
    /// The allowed attempts of each case's runs where they differ from [`MOST_ATTEMPTS`].
    attempts: HashMap<String, HashMap<u32, u32>>,
    /// The expected time of each run.
    times: RunTimes,
}

impl PendingRuns {
    fn of(plan: &Plan, record: &Record, redo_invalid: bool) -> Self {
        let mut attempts: HashMap<_, HashMap<_, _>> = HashMap::new();
        let runs = record.runs.iter();
        for run in runs.filter(|run| redo_invalid && run.is_invalid()) {
            let of_case = attempts.entry(run.case.clone()).or_default();
            of_case.insert(run.repeat, run.attempt.saturating_add(MOST_ATTEMPTS));
        }
        Self {
            attempts,
            times: RunTimes::of(plan, record),
        }
    }

    /// Returns the expected time of each remaining run from round `from` on.
    fn missing(&self, plan: &Plan, record: &Record, from: u32) -> Vec<Duration> {
        let latest = record.latest();
        let rounds = (from..=plan.rounds()).flat_map(|round| plan.round(round));
        rounds
            .filter(|planned| self.is_missing(&latest, planned))
            .map(|planned| self.times.expected(planned.case))
            .collect()
    }

    /// Returns the next run to be done from round `from` on, after `last` if that is given.
    fn next(
        &self,
        plan: &Plan,
        latest: &Latest<'_>,
        from: u32,
        last: Option<&PlannedRun<'_>>,
    ) -> Option<NumberedRun> {
        let is_last = |planned: &PlannedRun<'_>| {
            last.is_none_or(|last| {
                (&last.case.name, last.repeat) == (&planned.case.name, planned.repeat)
            })
        };
        let rounds = (from..=plan.rounds()).flat_map(|round| plan.round(round));
        let mut behind = rounds
            .skip_while(|planned| !is_last(planned))
            .skip(usize::from(last.is_some()));
        let next = behind.find(|planned| self.is_missing(latest, planned))?;
        let before = latest.run(&next.case.name, next.repeat);
        Some(numbered(&next, before.map_or(1, |run| run.attempt + 1)))
    }

    /// Returns true if the run is not in the record, or is there but invalid and may be attempted
    /// again.
    fn is_missing(&self, latest: &Latest<'_>, planned: &PlannedRun<'_>) -> bool {
        let of_case = self.attempts.get(&planned.case.name);
        let attempts = of_case.and_then(|attempts| attempts.get(&planned.repeat));
        latest.lacks(planned, attempts.copied().unwrap_or(MOST_ATTEMPTS))
    }
}

fn numbered(run: &PlannedRun<'_>, attempt: u32) -> NumberedRun {
    NumberedRun {
        case: run.case.name.clone(),
        repeat: run.repeat,
        attempt,
    }
}

fn label(run: &PlannedRun<'_>) -> String {
    match (run.case.repeats.most, &run.case.repeats.until) {
        (1, _) => run.case.name.clone(),
        (most, None) => format!("{} ({} of {most})", run.case.name, run.repeat),
        (most, Some(_)) => format!("{} ({}, at most {most})", run.case.name, run.repeat),
    }
}

/// The destination of a run's files, and the captures to make.
type RunFiles<'a> = (Artifacts<'a>, Option<&'a RunCaptures>);

/// Does one run from set-up to tear-down. Without `kept`, the run leaves no files and counts as the
/// first attempt.
pub(super) fn run_once(
    set_up: &SetUp<'_>,
    watch: RunObserver<'_>,
    kept: Option<RunFiles<'_>>,
    planned: &PlannedRun<'_>,
    stop: &Stop,
) -> Run {
    let mut run = Run {
        case: planned.case.name.clone(),
        repeat: planned.repeat,
        attempt: kept.map_or(1, |(artifacts, _)| artifacts.attempt),
        seed: planned.seed,
        host: None,
        started_at: now(),
        elapsed_s: None,
        outcome: RunOutcome::Ok,
        environment: BTreeMap::new(),
        measurements: Vec::new(),
        links: Vec::new(),
        artifacts: Vec::new(),
    };
    watch.enter("set-up");
    match set_up(planned.case, planned.seed) {
        Ok(testbed) => use_testbed(testbed, watch, planned, kept, stop, &mut run),
        Err(error) => {
            run.outcome = RunOutcome::Failed {
                cause: format!("{error:#}"),
            }
        }
    }
    run
}

fn use_testbed(
    testbed: Box<dyn Testbed>,
    watch: RunObserver<'_>,
    planned: &PlannedRun<'_>,
    kept: Option<RunFiles<'_>>,
    stop: &Stop,
    run: &mut Run,
) {
    let captures = kept
        .and_then(|(artifacts, captures)| Some((artifacts, captures?)))
        .map_or(Ok(RunningCaptures::NONE), |(artifacts, of)| {
            of.begin(&artifacts, &*testbed, planned)
        });
    let captures = match captures {
        Ok(captures) => captures,
        Err(error) => {
            run.outcome = RunOutcome::Failed {
                cause: format!("capture: {error:#}"),
            };
            // The outcome already says that the capture failed.
            let _ = testbed.tear_down();
            return;
        }
    };
    let artifacts = kept.as_ref().map(|(artifacts, _)| artifacts);
    run.environment = environment(&*testbed);
    let stop = &testbed.stops(stop);
    let shown_links = watch.show(&*testbed, planned);
    let histories = thread::scope(|scope| {
        let (end, ended) = mpsc::channel();
        let followed = &*testbed;
        let following = scope.spawn(move || link_histories::follow(followed, &ended));
        for group in planned.case.groups() {
            let names: Vec<&str> = group.iter().map(|one| one.name.as_str()).collect();
            watch.enter(&names.join(", "));
            let measured = measure_group(&*testbed, planned, group, artifacts, stop);
            run.measurements.extend(measured);
            if stop.cause().is_some() {
                break;
            }
        }
        drop(end);
        following.join().expect("it only asks and waits")
    });
    let begins = link_histories::begins(&*testbed);
    let spoilt = testbed.spoilt();
    let clients = testbed.clients();
    watch.enter("tear-down");
    drop(shown_links);
    let torn_down = testbed.tear_down();
    run.outcome = outcome(&mut run.measurements, &torn_down, spoilt);
    let mut links = torn_down.unwrap_or_default();
    let mut files = captures.finish(&mut links);
    if let Some(artifacts) = artifacts {
        files.extend(csv_files(artifacts, planned, clients));
        run.artifacts = artifacts.existing(files);
    }
    run.links = links.into_iter().map(LinkCounts::of).collect();
    for (link, history) in run.links.iter_mut().zip(histories) {
        link.history = history;
    }
    for (link, begins_at) in run.links.iter_mut().zip(begins) {
        link.begins_at = begins_at;
    }
}

/// Uses the instruments of a group simultaneously.
fn measure_group(
    testbed: &dyn Testbed,
    planned: &PlannedRun<'_>,
    group: &[PlannedInstrument],
    artifacts: Option<&Artifacts<'_>>,
    stop: &Stop,
) -> Vec<Measured> {
    let measured = |instrument: &PlannedInstrument| {
        let (started_at, before) = (now(), testbed.departures());
        let measurement = measure(testbed, planned, instrument, artifacts, stop);
        let traffic = instrument.args.instrument().traffic();
        let departures = lateness::between(&before, &testbed.departures(), &traffic);
        let measurement =
            measurement.unwrap_or_else(|error| Measurement::failed(format!("{error:#}")));
        Measured {
            instrument: instrument.name.clone(),
            started_at,
            invalid: None,
            departures,
            rows: Vec::new(),
            measurement,
        }
    };
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel();
        let polling = scope.spawn(move || poll(testbed, &ended));
        let measuring: Vec<_> = group
            .iter()
            .map(|instrument| scope.spawn(move || measured(instrument)))
            .collect();
        let done: Vec<Measured> = measuring
            .into_iter()
            .map(|thread| thread.join())
            .map(|measured| measured.expect("an instrument's panic is farwire's"))
            .collect();
        drop(end);
        let polls = polling.join().expect("it only asks and waits");
        let judged = done.into_iter().zip(group).map(|(measured, instrument)| {
            let traffic = instrument.args.instrument().traffic();
            let rows = polls.rows(&measured.measurement, &traffic);
            let measured = Measured { rows, ..measured };
            let invalid = measured.fault();
            Measured {
                invalid,
                ..measured
            }
        });
        judged.collect()
    })
}

/// Reads the departure counters of the links repeatedly until the other end of `ended` is dropped.
fn poll(testbed: &dyn Testbed, ended: &Receiver<()>) -> Polls {
    let (began, mut polls) = (Instant::now(), Polls::default());
    loop {
        polls.add(began.elapsed(), testbed.departures());
        if ended.recv_timeout(POLL) != Err(RecvTimeoutError::Timeout) {
            polls.add(began.elapsed(), testbed.departures());
            return polls;
        }
    }
}

fn measure(
    testbed: &dyn Testbed,
    planned: &PlannedRun<'_>,
    instrument: &PlannedInstrument,
    artifacts: Option<&Artifacts<'_>>,
    stop: &Stop,
) -> Result<Measurement> {
    let far_end = testbed.far_end();
    let args = instrument.args.toward(&far_end, &planned.case.congestion);
    let used = args.instrument();
    let expected = || {
        used.expected().map_or(LONGEST, |time| {
            time + grace(planned.case, used.round_trips())
        })
    };
    let limit = instrument.timeout.map_or_else(expected, Duration::from);
    let csv = artifacts.filter(|_| instrument.csv);
    let _server = match used.server()? {
        Some(server) => testbed.serve_with(&server.tool, &server.arguments, server.port)?,
        None => None,
    };
    // Namespaces contain an external tool. They need privileges, and the tool gets none of
    // farwire's own.
    let far = testbed.far_namespace().map(NetNs::try_clone).transpose()?;
    let (in_bed, far) = (far.is_some(), far.map(Arc::new));
    let is_confined = in_bed && used.tool()?.is_none();
    let opens_files = used.file().is_some();
    let run = (planned.case, planned.repeat);
    let open = |artifacts: &Artifacts<'_>, client| {
        let (path, file) = artifacts.create(&artifacts.csv(run, instrument, client))?;
        Ok::<_, anyhow::Error>(Arc::new(Prepared::of(path, file)))
    };
    let sessions: Vec<Session> = numbered_clients(testbed.clients())
        .map(|client| {
            Ok(Session {
                in_bed,
                far: far.clone(),
                csv: csv.map(|artifacts| open(artifacts, client)).transpose()?,
                ..Session::quiet(stop.within(limit))
            })
        })
        .collect::<Result<_>>()?;
    let measure = |session: &Session| -> Result<Measurement, Failure> {
        if is_confined {
            confine_client(opens_files)?;
        }
        Ok(args.measure(session)?.measurement)
    };
    let measured = in_every_client(testbed, |client| {
        measure(&sessions[client]).unwrap_or_else(Measurement::failed)
    });
    Ok(clients::together(measured?, instrument.profile.samples))
}

/// Returns the time that an instrument without a timeout may take beyond its expected time over the
/// path of `case`, in which it makes this number of round trips.
fn grace(case: &Case, round_trips: u32) -> Duration {
    let round_trip_s = PathPace::of(case).map_or(0.0, |pace| pace.round_trip_s(0, 0));
    let round_trips = Duration::try_from_secs_f64(f64::from(round_trips) * round_trip_s);
    GRACE + round_trips.map_or(LONGEST, |time| time.min(LONGEST))
}

/// Does `work` in all clients simultaneously and returns the results in the clients' order. `work`
/// receives the client's number, from 0.
fn in_every_client(
    testbed: &dyn Testbed,
    work: impl Fn(usize) -> Measurement + Sync,
) -> Result<Vec<Measurement>> {
    let (begin, work) = (OnceLock::new(), &work);
    thread::scope(|scope| {
        let begin = &begin;
        let in_client = |client| {
            let waiting = move || {
                begin.wait();
                work(client)
            };
            let thread = thread::Builder::new();
            thread.spawn_scoped(scope, move || testbed.in_client(client, Box::new(waiting)))
        };
        let started: Vec<_> = (0..testbed.clients()).map(in_client).collect();
        // This also happens if a thread could not be started, because the other threads must end.
        let _ = begin.set(());
        let done = started.into_iter().map(|started| {
            let started = started.context("starting a client's thread")?;
            let done = started.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        done.collect()
    })
}

/// Makes the calling thread keep only CAP_NET_ADMIN, which allows it to set any congestion control.
/// A thread that opens files also keeps CAP_DAC_OVERRIDE, so that it can read the same files as its
/// caller.
fn confine_client(opens_files: bool) -> Result<(), Failure> {
    // As root, a client paces with real-time priority; an unprivileged one could not do so before
    // either.
    let _ = sandbox::allow_real_time();
    let mut kept = vec![Capability::CAP_NET_ADMIN];
    if opens_files {
        kept.push(Capability::CAP_DAC_OVERRIDE);
    }
    sandbox::give_up_privileges(&kept).or_machine()
}

/// Returns the clients' numbers from 1. A single client has no number.
fn numbered_clients(clients: usize) -> impl Iterator<Item = Option<usize>> {
    (1..=clients).map(move |number| (clients > 1).then_some(number))
}

/// Returns the names of the files that the instruments of a run write.
fn csv_files(artifacts: &Artifacts<'_>, planned: &PlannedRun<'_>, clients: usize) -> Vec<String> {
    let run = (planned.case, planned.repeat);
    let instruments = planned.case.instruments.iter().filter(|one| one.csv);
    let files = instruments.flat_map(|instrument| {
        numbered_clients(clients).map(move |client| artifacts.csv(run, instrument, client))
    });
    files.collect()
}

/// Returns the outcome of the run. A cause that spoils the whole run makes every measurement
/// invalid.
fn outcome(
    measurements: &mut [Measured],
    torn_down: &Result<LinkSummaries>,
    spoilt: Option<String>,
) -> RunOutcome {
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
        return RunOutcome::Failed {
            cause: causes.join("; "),
        };
    }
    let links = torn_down.as_deref().unwrap_or_default();
    let causes: Vec<String> = own_losses(links).into_iter().chain(spoilt).collect();
    if !causes.is_empty() {
        let cause = causes.join("; ");
        for measured in measurements {
            measured.invalid = Some(cause.clone());
        }
        return RunOutcome::Invalid { cause };
    }
    let late = measurements.iter().filter_map(|measured| {
        let cause = measured.invalid.as_ref()?;
        Some(format!("{}: {cause}", measured.instrument))
    });
    let causes: Vec<String> = late.collect();
    if causes.is_empty() {
        RunOutcome::Ok
    } else {
        RunOutcome::Invalid {
            cause: causes.join("; "),
        }
    }
}

/// Describes the packets that the emulator itself lost on these links. Equal descriptions are
/// merged, because links that share receive rings all count the losses of those rings.
fn own_losses(links: &[(String, Summary)]) -> Vec<String> {
    let mut causes: Vec<(String, &str, usize)> = Vec::new();
    for (name, summary) in links {
        let Some(cause) = summary.own_loss() else {
            continue;
        };
        match causes.iter_mut().find(|(known, ..)| *known == cause) {
            Some((.., others)) => *others += 1,
            None => causes.push((cause, name, 0)),
        }
    }
    let descriptions = causes
        .into_iter()
        .map(|(cause, name, others)| match others {
            0 if links.len() == 1 => cause,
            0 => format!("{name}: {cause}"),
            others => format!("{name} and {}: {cause}", counted(others, "other link")),
        });
    descriptions.collect()
}

/// Returns the facts that the test bed reports, together with the client's sysctls.
fn environment(testbed: &dyn Testbed) -> BTreeMap<String, String> {
    let mut environment = testbed.environment();
    let sysctls = || Measurement {
        facts: network_sysctls(),
        ..Measurement::default()
    };
    // All clients have the same sysctls.
    let carrier = testbed.in_client(0, Box::new(sysctls));
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

/// Describes a run of `case` in one line.
fn outcome_line(run: &Run, case: &Case) -> String {
    match &run.outcome {
        RunOutcome::Failed { cause } => format!("FAILED: {cause}"),
        RunOutcome::Invalid { cause } => format!("INVALID: {cause}"),
        RunOutcome::Ok => {
            let figures = run.measurements.iter().filter_map(|measured| {
                let used = case.instrument(&measured.instrument)?;
                let figure = headline(&used.profile, &measured.measurement)?;
                Some(format!("{} {figure}", measured.instrument))
            });
            figures.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns the first of the instrument's headline figures that was measured, as tables show it:
/// with both directions if both were measured, and as a range if there are several sizes.
fn headline(profile: &InstrumentProfile, measurement: &Measurement) -> Option<String> {
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
    let values = parts.values().flatten().copied();
    let (by, unit) = scale_for(metric, values.fold(0.0, f64::max));
    let several = parts.len() > 1;
    let words = parts.into_iter().map(|((phase, way), values)| {
        let scope = [phase.map(Phase::name), way.map(Direction::name)]
            .into_iter()
            .flatten()
            .filter(|_| several);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shown = if least < most {
            format!("{} to {} {unit}", number(least / by), number(most / by))
        } else {
            format!("{} {unit}", number(most / by))
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
