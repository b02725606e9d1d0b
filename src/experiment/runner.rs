//! The runner: for every run of a plan a rig is set up, each instrument used in turn, the rig taken down.
//!
//! A run that fails is recorded with its cause, and the others go on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::host::network_sysctls;
use super::plan::{Case, Instrument, Method, Plan, PlannedRun};
use super::progress::Progress;
use super::record::{Measured, Outcome, Record, Run, now};
use crate::forward::summary as link;
use crate::instrument::external::iperf::{self, Iperf};
use crate::instrument::external::iperf3::Iperf3;
use crate::instrument::external::nuttcp::{self, Nuttcp};
use crate::instrument::external::streams::{self, StreamTest, StreamTool};
use crate::instrument::external::{self, Launcher, Running, Tool, curl, wget};
use crate::instrument::http::{HttpTarget, files};
use crate::instrument::iperf3::plan::{Plan as StreamPlan, Way};
use crate::instrument::{Measurement, Metric, Session, Statistic, Stop, http, ping};

/// Work of an instrument that must happen where the client is.
pub(crate) type ClientWork<'a> = Box<dyn FnOnce() -> Measurement + Send + 'a>;

/// Where runs take place.
pub(crate) trait Laboratory {
    /// A rig under the bed's wire and the conditions of `case`, its far end listening.
    ///
    /// # Errors
    /// What the machine refused.
    fn set_up(&self, plan: &Plan, case: &Case, seed: u64) -> Result<Box<dyn Rig>>;
}

/// A client and a far end with the emulated link between them.
pub(crate) trait Rig {
    /// The far end's HTTP server, as the client reaches it.
    fn server(&self) -> SocketAddr;

    /// The far end's iperf3 server, as the client reaches it.
    fn iperf3(&self) -> SocketAddr;

    /// What is in effect: the far end's congestion control as read back, offloads, MTU.
    fn environment(&self) -> BTreeMap<String, String>;

    /// Does `work` in a thread that is in the client's network namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    fn in_client(&self, work: ClientWork<'_>) -> Result<Measurement>;

    /// Runs external tools where the client is, contained.
    fn launcher(&self) -> &dyn Launcher;

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

/// Runs `record`'s plan, adds each run to it and calls `keep` after each, until `stop`.
///
/// # Errors
/// Only those of `keep`: whatever else fails is part of the record.
pub(crate) fn run(
    laboratory: &dyn Laboratory,
    record: &mut Record,
    stop: &Stop,
    mut keep: impl FnMut(&Record) -> Result<()>,
) -> Result<()> {
    let plan = record.plan.clone();
    let runs = plan.runs();
    let mut progress = Progress::new(runs.len());
    for (at, planned) in runs.iter().enumerate() {
        let left: Duration = runs[at..].iter().map(|run| plan.estimate(run.case)).sum();
        progress.start(&label(planned), left);
        let run = run_once(laboratory, &plan, planned, stop);
        // What a signal cut short is no measurement.
        if stop.cause().is_some() {
            return keep(record);
        }
        progress.finish(&format!("{}: {}", label(planned), outcome_line(&run)));
        record.runs.push(run);
        keep(record)?;
    }
    record.finished_at = Some(now());
    keep(record)
}

fn label(run: &PlannedRun<'_>) -> String {
    match run.case.repeats {
        1 => run.case.name.clone(),
        repeats => format!("{} ({} of {repeats})", run.case.name, run.repeat),
    }
}

fn run_once(
    laboratory: &dyn Laboratory,
    plan: &Plan,
    planned: &PlannedRun<'_>,
    stop: &Stop,
) -> Run {
    let mut run = Run {
        case: planned.case.name.clone(),
        repeat: planned.repeat,
        seed: planned.seed,
        started_at: now(),
        outcome: Outcome::Ok,
        environment: BTreeMap::new(),
        measurements: Vec::new(),
        link: None,
    };
    match laboratory.set_up(plan, planned.case, planned.seed) {
        Ok(rig) => use_rig(rig, &plan.instruments, stop, &mut run),
        Err(error) => {
            run.outcome = Outcome::Failed {
                cause: format!("{error:#}"),
            }
        }
    }
    run
}

fn use_rig(rig: Box<dyn Rig>, instruments: &[Instrument], stop: &Stop, run: &mut Run) {
    run.environment = environment(&*rig);
    for instrument in instruments {
        let started_at = now();
        let measurement = measure(&*rig, &instrument.method, stop);
        run.measurements.push(Measured {
            instrument: instrument.name.clone(),
            started_at,
            measurement,
        });
        if stop.cause().is_some() {
            break;
        }
    }
    let torn_down = rig.tear_down();
    run.outcome = outcome(&run.measurements, &torn_down);
    run.link = torn_down.ok();
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

fn measure(rig: &dyn Rig, method: &Method, stop: &Stop) -> Measurement {
    let session = &Session::quiet(stop.within(method.time_limit()));
    let stop = &session.stop;
    let server = rig.server();
    let result = match method {
        Method::Ping(plan) => {
            rig.in_client(Box::new(|| ping::measure(server.ip(), plan, None, session)))
        }
        Method::Http(plan) => {
            let target = HttpTarget::outlasting(server, plan.amount);
            rig.in_client(Box::new(move || {
                http::measure(&target, plan, None, session)
            }))
        }
        Method::SystemPing(plan) => Ok(external::ping::measure(
            rig.launcher(),
            server.ip(),
            plan,
            None,
            stop,
        )),
        Method::HttpFiles(plan) => {
            let targets = [HttpTarget::of(server, "/").sized()];
            rig.in_client(Box::new(move || {
                files::measure(&targets, plan, None, session)
            }))
        }
        Method::Curl(plan) => {
            let target = HttpTarget::far_end(server, plan.amount);
            Ok(curl::measure(rig.launcher(), &target, None, session))
        }
        Method::Iperf3(plan) => {
            let test = StreamTest::new(rig.iperf3(), plan);
            Ok(streams::measure(&Iperf3, rig.launcher(), &test, session))
        }
        Method::Iperf(plan) => {
            let target = SocketAddr::new(server.ip(), Iperf.port());
            let server = iperf::server_arguments(target, plan);
            // In a reverse test the server chooses the congestion control, and has been told.
            let congestion = plan.congestion.clone().filter(|_| plan.way == Way::Up);
            let plan = &StreamPlan {
                congestion,
                ..plan.clone()
            };
            let test = StreamTest::new(target, plan);
            between(rig, &Iperf, &server, &test, session)
        }
        Method::Nuttcp(plan) => {
            let target = SocketAddr::new(server.ip(), Nuttcp.port());
            let server = nuttcp::server_arguments(target);
            let test = StreamTest::new(target, plan);
            between(rig, &Nuttcp, &server, &test, session)
        }
        Method::Wget(plan) => {
            let target = HttpTarget::far_end(server, plan.amount);
            Ok(wget::measure(
                rig.launcher(),
                &target,
                plan.interval,
                None,
                stop,
            ))
        }
    };
    result.unwrap_or_else(|error| Measurement::failed(format!("{error:#}")))
}

/// Measures with a tool that needs its own server, with these arguments, at the far end; it is there while it measures.
fn between(
    rig: &dyn Rig,
    by: &dyn StreamTool,
    server: &[String],
    test: &StreamTest<'_>,
    session: &Session,
) -> Result<Measurement> {
    let _server = rig.serve_with(&by.tool()?, server, test.target.port())?;
    Ok(streams::measure(by, rig.launcher(), test, session))
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
    use crate::experiment::record::GivenScenario;
    use crate::experiment::scenario;
    use crate::instrument::external::Here;
    use crate::serve::{self, ServeConfig, Server};
    use anyhow::anyhow;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Runs take place on loopback, without a link; a case named "broken" cannot be set up.
    struct Loopback;

    struct LoopbackRig(Server);

    impl Laboratory for Loopback {
        fn set_up(&self, plan: &Plan, case: &Case, _seed: u64) -> Result<Box<dyn Rig>> {
            if case.name == "broken" {
                return Err(anyhow!("no such link"));
            }
            let congestion = Some(plan.congestion.clone());
            let server = serve::start(ServeConfig {
                congestion,
                ..ServeConfig::on_loopback()
            })?;
            Ok(Box::new(LoopbackRig(server)))
        }
    }

    impl Rig for LoopbackRig {
        fn server(&self) -> SocketAddr {
            self.0.address("http").unwrap()
        }

        fn environment(&self) -> BTreeMap<String, String> {
            BTreeMap::from([("congestion".to_owned(), self.0.congestion().to_owned())])
        }

        fn in_client(&self, work: ClientWork<'_>) -> Result<Measurement> {
            Ok(work())
        }

        fn iperf3(&self) -> SocketAddr {
            self.0.address("iperf3").unwrap()
        }

        fn launcher(&self) -> &dyn Launcher {
            &Here
        }

        fn serve_with(&self, tool: &Tool, arguments: &[String], _: u16) -> Result<Running> {
            Here.start(tool, arguments)
        }

        fn tear_down(self: Box<Self>) -> Result<link::Summary> {
            Ok(link::Summary::default())
        }
    }

    fn record(cases: &str) -> Record {
        let text = format!(
            "name = 'x'\ntitle = 'X'\nbed = {{ kind = 'netns' }}\ntcp = {{ congestion = 'reno' }}\n\
             [[instruments]]\nname = 'download'\nkind = 'http'\nparameters = {{ bytes = '100kb' }}\n{cases}"
        );
        let plan = scenario::parse("x.toml", &text, false).unwrap();
        let given = GivenScenario {
            file: "x.toml".to_owned(),
            text,
        };
        Record::new(given, plan, HostFacts::default())
    }

    const CASES: &str = "\
[[cases]]\nname = 'broken'\ntitle = ''\n[[cases]]\nname = 'sound'\ntitle = ''\nrepeats = 2\n";

    #[test]
    fn a_run_that_fails_is_recorded_with_its_cause_and_the_others_go_on() {
        let mut record = record(CASES);
        let mut kept = Vec::new();
        run(&Loopback, &mut record, &Stop::default(), |record| {
            kept.push(record.runs.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(kept, [1, 2, 3, 3]);
        assert_eq!(
            record.runs[0].outcome,
            Outcome::Failed {
                cause: "no such link".to_owned()
            }
        );
        assert!(
            record.runs[1..]
                .iter()
                .all(|run| run.outcome == Outcome::Ok),
            "{:?}",
            record.runs
        );
        assert_eq!(record.runs[1].environment["congestion"], "reno");
        assert!(
            record.runs[1]
                .environment
                .contains_key("client net.ipv4.tcp_rmem")
        );
        assert!(record.finished_at.is_some());
    }

    #[test]
    fn a_signal_ends_the_experiment_with_what_is_there() {
        let mut record = record(CASES);
        let flag = Arc::new(AtomicBool::new(false));
        run(&Loopback, &mut record, &Stop::on(Arc::clone(&flag)), |_| {
            flag.store(true, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        assert_eq!(record.runs.len(), 1);
        assert_eq!(record.finished_at, None);
    }
}
