use super::*;
use crate::experiment::scenario;
use crate::named_files::NamedFiles;
use crate::testbed::ClientWork;
use crate::toml_file::SourceFile;
use anyhow::{anyhow, ensure};
use instruments::external::{Launcher, Running, Tool};
use instruments::measure::{FarEnd, read_plan, record_plan};
use instruments::serve;
use instruments::serve::{FarEndServer, ServeConfig};
use record::HostFacts;
use record::lateness::{Departed, FlowDepartures, FlowKind, LinkDepartures};
use record::summary::OwnLoss;
use record::{GivenScenario, RecordHead};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A test bed on loopback, without a link. A case named "broken" cannot be set up. A case named
/// "spoilt" has late TCP packets in the first two attempts, or in `spoils` attempts. A case named
/// "dead" has an emulator that dies while its instruments run.
#[derive(Default)]
struct Loopback {
    spoils: Option<u32>,
    spoilt: AtomicU32,
    stop: Arc<AtomicBool>,
}

struct LoopbackTestbed {
    server: FarEndServer,
    namespace: NetNs,
    /// The number of TCP packets that have left.
    left: AtomicU64,
    /// True if these packets left late.
    late: bool,
    dies: bool,
    died: Arc<AtomicBool>,
}

impl Loopback {
    fn set_up(&self, case: &Case) -> Result<Box<dyn Testbed>> {
        let mut late = false;
        match case.name.as_str() {
            "broken" => return Err(anyhow!("no such link")),
            "spoilt" if self.spoilt.fetch_add(1, Ordering::Relaxed) < self.spoils.unwrap_or(2) => {
                late = true;
            }
            "last" => self.stop.store(true, Ordering::Relaxed),
            _ => {}
        }
        let congestion = Some(case.congestion.clone());
        let server = serve::start(ServeConfig {
            congestion,
            ..ServeConfig::on_loopback()
        })?;
        Ok(Box::new(LoopbackTestbed {
            server,
            namespace: NetNs::current()?,
            left: AtomicU64::new(0),
            late,
            dies: case.name == "dead",
            died: Arc::default(),
        }))
    }
}

impl Testbed for LoopbackTestbed {
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

    fn far_namespace(&self) -> Option<&NetNs> {
        Some(&self.namespace)
    }

    fn in_client(&self, _: usize, work: ClientWork<'_>) -> Result<Measurement> {
        self.left.fetch_add(10, Ordering::Relaxed);
        self.died.store(self.dies, Ordering::Relaxed);
        Ok(work())
    }

    fn serve_with(&self, tool: &Tool, arguments: &[String], _: u16) -> Result<Option<Running>> {
        Ok(Some(Launcher::OnHost.start(tool, arguments)?))
    }

    fn departures(&self) -> Vec<LinkDepartures> {
        let left = self.left.load(Ordering::Relaxed);
        let flow = FlowDepartures {
            kind: FlowKind {
                protocol: 6,
                port: 80,
            },
            up: Departed {
                packets: left,
                late: if self.late { left } else { 0 },
            },
            down: Departed::default(),
        };
        vec![LinkDepartures {
            link: "link".to_owned(),
            budget_ns: 1_000_000,
            flows: vec![flow],
        }]
    }

    fn spoilt(&self) -> Option<String> {
        None
    }

    fn stops(&self, stop: &Stop) -> Stop {
        stop.or(&self.died, "the emulator has died")
    }

    fn tear_down(self: Box<Self>) -> Result<LinkSummaries> {
        ensure!(!self.dies, "the emulator died: a test ended it");
        Ok(vec![("link".to_owned(), Summary::default())])
    }
}

fn head(cases: &str) -> RecordHead {
    let text = format!(
        "name = 'x'\ntitle = 'X'\norder = 'as-written'\nbed = {{ kind = 'netns' }}\n\
         tcp = {{ congestion = 'reno' }}\n[[instruments]]\nname = 'download'\nkind = 'http'\n\
         parameters = {{ path = '/bytes/100000' }}\n{cases}"
    );
    let plan = scenario::parse(
        SourceFile {
            file: "x.toml",
            text: &text,
            also: NamedFiles::OWN,
        },
        false,
    )
    .unwrap();
    let given = GivenScenario {
        file: "x.toml".to_owned(),
        text,
    };
    RecordHead::new(given, record_plan(&plan), HostFacts::default())
}

/// Does the missing runs of `directory`'s record and returns the record.
fn resume(directory: &Path, loopback: &Loopback, redo_invalid: bool) -> Record {
    let (mut record, mut writer) = RecordWriter::resume(directory).unwrap();
    let stop = Stop::on(Arc::clone(&loopback.stop));
    resume_until(&stop, &mut record, &mut writer, loopback, redo_invalid);
    let kept = Record::read(directory).unwrap();
    assert!(kept == record);
    kept
}

fn resume_until(
    stop: &Stop,
    record: &mut Record,
    writer: &mut RecordWriter,
    loopback: &Loopback,
    redo_invalid: bool,
) {
    let measures = Measures {
        set_up: &|case: &Case, _| loopback.set_up(case),
        baseline: &|_, _, _| Ok(Some(Baseline::default())),
        captures: None,
        watch: RunObserver::NOBODY,
    };
    let plan = read_plan(record.plan()).unwrap();
    run(&measures, &plan, record, writer, redo_invalid, stop).unwrap();
}

fn experiment(cases: &str) -> Record {
    let directory = tempfile::tempdir().unwrap();
    RecordWriter::begin(directory.path(), &head(cases), false).unwrap();
    resume(directory.path(), &Loopback::default(), false)
}

#[test]
fn a_run_that_fails_is_recorded_with_its_cause_and_the_others_take_place() {
    let record = experiment("[[cases]]\nname = 'broken'\n[[cases]]\nname = 'sound'\nrepeats = 2\n");
    assert_eq!(record.runs.len(), 3);
    assert_eq!(
        record.runs[0].outcome,
        RunOutcome::Failed {
            cause: "no such link".to_owned()
        }
    );
    let sound = &record.runs[1..];
    assert!(
        sound.iter().all(|run| run.outcome == RunOutcome::Ok),
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
    let cause = "10 of 10 packets up left more than 1 ms late";
    assert_eq!(
        record.runs[1].outcome,
        RunOutcome::Invalid {
            cause: format!("download: {cause}")
        }
    );
    let invalid = &record.runs[1].measurements[0].invalid;
    assert_eq!(invalid.as_deref(), Some(cause));
    assert_eq!(record.runs[2].outcome, RunOutcome::Ok);
}

#[test]
fn invalid_runs_are_repeated_only_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let cases = "[[cases]]\nname = 'sound'\n[[cases]]\nname = 'spoilt'\n";
    RecordWriter::begin(directory.path(), &head(cases), false).unwrap();
    let loopback = Loopback {
        spoils: Some(4),
        ..Loopback::default()
    };
    let last = |record: &Record| {
        let run = record.runs.last().unwrap();
        (run.attempt, run.outcome == RunOutcome::Ok)
    };
    assert_eq!(
        last(&resume(directory.path(), &loopback, false)),
        (3, false)
    );
    assert_eq!(
        last(&resume(directory.path(), &loopback, false)),
        (3, false)
    );
    let whole = resume(directory.path(), &loopback, true);
    assert_eq!((last(&whole), whole.runs.len()), ((5, true), 6));
}

#[test]
fn an_instrument_that_exceeds_its_timeout_has_failed() {
    let slow = "[[instruments]]\nname = 'slow'\nkind = 'http'\ntimeout = '100ms'\n\
                parameters = { path = '/seconds/60' }\n[[cases]]\nname = 'a'\n";
    let record = experiment(slow);
    let RunOutcome::Failed { cause } = &record.runs[0].outcome else {
        panic!("{:?}", record.runs[0].outcome)
    };
    assert!(cause.starts_with("slow: "), "{cause}");
    assert!(cause.ends_with("not done within 0.1 s"), "{cause}");
}

#[test]
fn a_run_whose_emulator_dies_ends_immediately_and_the_others_take_place() {
    let record = experiment("[[cases]]\nname = 'dead'\n[[cases]]\nname = 'sound'\n");
    let RunOutcome::Failed { cause } = &record.runs[0].outcome else {
        panic!("{:?}", record.runs[0].outcome)
    };
    let expected = "download: the emulator has died; test bed: the emulator died: a test ended it";
    assert_eq!(cause, expected);
    assert_eq!(record.runs[1].outcome, RunOutcome::Ok);
}

#[test]
fn the_first_five_runs_decide_the_number_of_repeats() {
    let cases = |within| {
        format!(
            "[[cases]]\nname = 'a'\nrepeats = {{ of = 'download.goodput_bit_per_s.mean', \
             within = '{within}' }}\n"
        )
    };
    assert_eq!(experiment(&cases("1000000%")).runs.len(), 5);
    assert_eq!(experiment(&cases("0.000001%")).runs.len(), 30);
}

#[test]
fn a_run_that_stays_invalid_is_replaced_by_another_repeat() {
    let directory = tempfile::tempdir().unwrap();
    let cases = "[[cases]]\nname = 'spoilt'\nrepeats = { of = 'download.goodput_bit_per_s.mean', \
                 within = '1000000%' }\n";
    RecordWriter::begin(directory.path(), &head(cases), false).unwrap();
    let loopback = Loopback {
        spoils: Some(3),
        ..Loopback::default()
    };
    let record = resume(directory.path(), &loopback, false);
    let case = &record.plan().cases[0];
    // Three attempts of the first repeat stay invalid, then five repeats count.
    assert_eq!(record.runs.len(), 3 + 5);
    assert_eq!(record.latest().deciding(case).len(), 5);
    assert_eq!(record.runs.last().unwrap().repeat, 6);
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
    assert_eq!(record.runs[0].outcome, RunOutcome::Ok);
}

#[test]
fn an_interrupted_run_is_done_on_resumption_and_no_run_twice() {
    let directory = tempfile::tempdir().unwrap();
    let cases = "[[cases]]\nname = 'first'\nrepeats = 2\n[[cases]]\nname = 'last'\n";
    RecordWriter::begin(directory.path(), &head(cases), false).unwrap();
    let loopback = Loopback::default();
    let cut = resume(directory.path(), &loopback, false);
    assert_eq!((cut.runs.len(), &cut.finished_at), (1, &None));
    // The test bed stops every run of `last`, as if a user interrupted it again and again.
    loopback.stop.store(false, Ordering::Relaxed);
    assert_eq!(resume(directory.path(), &loopback, false).runs.len(), 1);
    let whole = {
        let (mut record, mut writer) = RecordWriter::resume(directory.path()).unwrap();
        let stop = Stop::default();
        resume_until(&stop, &mut record, &mut writer, &loopback, false);
        record
    };
    let runs: Vec<_> = whole
        .runs
        .iter()
        .map(|r| (r.case.as_str(), r.repeat))
        .collect();
    assert_eq!(runs, [("first", 1), ("last", 1), ("first", 2)]);
    assert!(whole.finished_at.is_some());
    // There is one baseline at the start, one after each resumption and one at the end. There is
    // none if a signal ends the run or if no run is missing.
    assert_eq!((cut.baselines.len(), whole.baselines.len()), (1, 4));
    let again = resume(directory.path(), &loopback, false);
    assert_eq!(again.baselines.len(), 4);
}

#[test]
fn a_starved_host_and_what_the_emulator_lost_make_every_measurement_invalid() {
    let measured = |instrument: &str| Measured {
        instrument: instrument.to_owned(),
        started_at: String::new(),
        invalid: None,
        departures: Vec::new(),
        rows: Vec::new(),
        measurement: Measurement::default(),
    };
    let lossy = Summary {
        rings_full: vec![OwnLoss {
            cause: "receive ring of trains full".to_owned(),
            count: 3,
        }],
        ..Summary::default()
    };
    for (link, spoilt) in [
        (Summary::default(), Some("the host was starved of CPU")),
        (lossy, None),
    ] {
        let mut all = ["ping", "udp"].map(measured);
        let links = Ok(vec![("link".to_owned(), link)]);
        let ended = outcome(&mut all, &links, spoilt.map(str::to_owned));
        let RunOutcome::Invalid { cause } = ended else {
            panic!("{ended:?}");
        };
        let expected = spoilt.unwrap_or("receive ring of trains full");
        assert!(cause.contains(expected), "{cause}");
        assert!(all.iter().all(|one| one.invalid.as_ref() == Some(&cause)));
    }
    let mut sound = [measured("ping")];
    let links = Ok(vec![("link".to_owned(), Summary::default())]);
    assert_eq!(outcome(&mut sound, &links, None), RunOutcome::Ok);
}

#[test]
fn losses_of_shared_rings_are_reported_once() {
    let full = Summary {
        rings_full: vec![OwnLoss {
            cause: "receive ring of trains full".to_owned(),
            count: 7,
        }],
        ..Summary::default()
    };
    let link = |number, summary: &Summary| (format!("client {number}"), summary.clone());
    let losses = own_losses(&[link(1, &full), link(2, &full), link(3, &full)]);
    assert_eq!(losses.len(), 1);
    assert!(
        losses[0].starts_with("client 1 and 2 other links: "),
        "{losses:?}"
    );
    let losses = own_losses(&[link(1, &Summary::default()), link(2, &full)]);
    assert!(losses[0].starts_with("client 2: "), "{losses:?}");
    assert!(own_losses(&[link(1, &full)])[0].starts_with("the emulator itself lost"));
}
