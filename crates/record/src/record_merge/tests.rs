use super::*;
use crate::figure_name::FigureName;
use crate::plan::{Narrow, Repeats};
use crate::shard::{ShardBy, ShardNumber};
use crate::summary::{CaptureSummary, Summary};
use crate::{Artifact, LinkCounts, Record, RunOutcome};
use std::collections::{BTreeMap, BTreeSet};
use tempfile::TempDir;

const REPEATS: u32 = 6;

/// A record with two cases of six repeats each.
fn record() -> Record {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/records/small.jsonl"
    );
    let mut record = Record::read(Path::new(file)).unwrap();
    for case in &mut record.head.plan.cases {
        case.repeats = Repeats::fixed(REPEATS);
    }
    record.baselines = vec![Baseline::default()];
    record
}

/// A run of a case that began in this second.
fn run(record: &Record, case: usize, repeat: u32, second: u32) -> Run {
    let plan = record.plan();
    let case = &plan.cases[case];
    let mut runs = record.runs.iter();
    let like = runs.find(|run| run.case == case.name).unwrap().clone();
    Run {
        repeat,
        seed: plan.run(case, repeat).seed,
        started_at: format!("2026-11-24T10:{:02}:{:02}.000Z", second / 60, second % 60),
        ..like
    }
}

fn invalid(run: Run, attempt: u32) -> Run {
    let cause = "late".to_owned();
    Run {
        attempt,
        outcome: RunOutcome::Invalid { cause },
        ..run
    }
}

/// Returns the lines of `record` with these runs on this host.
fn lines(record: &Record, host: &str, runs: &[Run], finished: bool) -> Vec<u8> {
    let mut head = record.head.clone();
    head.host.name = host.to_owned();
    let mut bytes = line(&head).unwrap();
    for baseline in &record.baselines {
        bytes.extend(line(&RecordLine::<&Run>::Baseline(baseline.clone())).unwrap());
    }
    for run in runs {
        bytes.extend(line(&RecordLine::Run(run)).unwrap());
    }
    if finished {
        let at = "2026-11-24T11:00:00.000Z".to_owned();
        bytes.extend(line(&RecordLine::<&Run>::FinishedAt(at)).unwrap());
    }
    bytes
}

/// Writes each of `records` into a separate directory.
fn directories(records: &[Vec<u8>]) -> (TempDir, Vec<PathBuf>) {
    let all = tempfile::tempdir().unwrap();
    let directory = |(at, bytes): (usize, &Vec<u8>)| {
        let directory = all.path().join(format!("shard-{at}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(FILE), bytes).unwrap();
        directory
    };
    let paths = records.iter().enumerate().map(directory).collect();
    (all, paths)
}

fn merged(paths: &[PathBuf]) -> (Merge, Record, Vec<u8>) {
    let out = tempfile::tempdir().unwrap();
    let merge = Merge::of(paths).unwrap();
    merge.write(out.path(), false).unwrap();
    let bytes = fs::read(out.path().join(FILE)).unwrap();
    (merge, Record::read(out.path()).unwrap(), bytes)
}

fn refusal(records: &[Vec<u8>]) -> String {
    let (_all, paths) = directories(records);
    format!("{:#}", Merge::of(&paths).unwrap_err())
}

/// The case and the repeat of a run, and the time at which it began.
type Begun = (String, u32, String);

/// Returns the records that three hosts have of the experiment after random losses, repetitions and truncations, and
/// all runs whose lines are complete, with the time at which each began.
fn drawn(record: &Record, random: &mut fastrand::Rng) -> (Vec<Vec<u8>>, Vec<Begun>) {
    let (mut files, mut whole) = (Vec::new(), Vec::new());
    for at in 0..random.usize(1..5) {
        let mut runs = Vec::new();
        for case in 0..record.plan().cases.len() {
            for repeat in 1..=REPEATS {
                if random.u32(..10) < 6 {
                    runs.push(run(record, case, repeat, random.u32(..40)));
                }
            }
        }
        random.shuffle(&mut runs);
        let bytes = lines(record, &format!("host-{}", at % 3), &runs, random.bool());
        let head = lines(record, "host-0", &[], false).len();
        let end = if random.bool() {
            bytes.len()
        } else {
            random.usize(head..=bytes.len())
        };
        let mut length = head;
        for run in &runs {
            length += line(&RecordLine::Run(run)).unwrap().len();
            if length <= end {
                whole.push((run.case.clone(), run.repeat, run.started_at.clone()));
            }
        }
        files.push(bytes[..end].to_vec());
        if random.u32(..4) == 0 {
            // This is a copy of the same directory.
            files.push(bytes[..end].to_vec());
            let own = whole.len() - runs_in(&bytes[..end]);
            whole.extend_from_within(own..);
        }
    }
    (files, whole)
}

fn runs_in(bytes: &[u8]) -> usize {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| line.starts_with(b"{\"run\"") && line.ends_with(b"\n"))
        .count()
}

#[test]
fn after_losses_duplicates_and_truncations_every_run_is_present_once_or_missing() {
    let record = record();
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (files, whole) = drawn(&record, &mut random);
        let (_all, mut paths) = directories(&files);
        let (merge, merged_record, bytes) = merged(&paths);
        let mut first: BTreeMap<(String, u32), String> = BTreeMap::new();
        for (case, repeat, began) in &whole {
            let kept = first
                .entry((case.clone(), *repeat))
                .or_insert(began.clone());
            *kept = began.min(kept).clone();
        }
        let runs = merged_record.runs.iter();
        let found: Vec<_> = runs
            .map(|run| ((run.case.clone(), run.repeat), run.started_at.clone()))
            .collect();
        assert_eq!(found.len(), first.len(), "seed {seed}");
        assert_eq!(
            found.into_iter().collect::<BTreeMap<_, _>>(),
            first,
            "seed {seed}"
        );
        assert_eq!(merge.duplicates(), whole.len() - first.len(), "seed {seed}");
        let missing: BTreeSet<_> = merge.missing().iter().cloned().collect();
        let all = first.keys().cloned().chain(missing.iter().cloned());
        assert_eq!(all.collect::<BTreeSet<_>>().len(), 2 * REPEATS as usize);
        assert_eq!(missing.len() + first.len(), 2 * REPEATS as usize);
        assert_eq!(merged_record.finished_at.is_some(), missing.is_empty());
        random.shuffle(&mut paths);
        assert_eq!(merged(&paths).2, bytes, "seed {seed}");
    }
}

#[test]
fn a_record_continued_elsewhere_has_both_hosts() {
    let record = record();
    let mut file = lines(&record, "b", &[run(&record, 0, 1, 10)], false);
    let elsewhere = HostFacts {
        name: "a".to_owned(),
        ..record.head.host.clone()
    };
    file.extend(line(&RecordLine::<&Run>::Host(elsewhere)).unwrap());
    let there = Run {
        host: Some(2),
        ..run(&record, 0, 2, 20)
    };
    file.extend(line(&RecordLine::Run(&there)).unwrap());
    let (_all, paths) = directories(&[file]);
    let (merge, merged, _) = merged(&paths);
    assert_eq!(merge.hosts(), 2);
    let runs = merged.runs.iter();
    let names: Vec<_> = runs
        .map(|run| merged.head.hosts[run.host.unwrap() - 1].name.as_str())
        .collect();
    assert_eq!(names, ["b", "a"]);
    // It is resumed where it is, like any record that was not merged.
    assert!(merge.owner(&record.plan().cases[1].name, 1).is_some());
}

#[test]
fn each_run_and_baseline_has_its_host() {
    let record = record();
    let files = [("b", 1), ("a", 2)]
        .map(|(host, repeat)| lines(&record, host, &[run(&record, 0, repeat, 10 * repeat)], true));
    let (_all, paths) = directories(&files);
    let (merge, merged, _) = merged(&paths);
    let names: Vec<_> = merged
        .head
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(merge.hosts(), 2);
    let hosts: Vec<_> = merged
        .runs
        .iter()
        .map(|run| (run.repeat, run.host))
        .collect();
    assert_eq!(hosts, [(1, Some(2)), (2, Some(1))]);
    let hosts: Vec<_> = merged
        .baselines
        .iter()
        .map(|baseline| baseline.host)
        .collect();
    assert_eq!(hosts, [Some(1), Some(2)]);
}

#[test]
fn a_merged_record_can_be_merged_again_but_not_resumed() {
    let record = record();
    let files = [("b", 1), ("a", 2), ("c", 3)]
        .map(|(host, repeat)| lines(&record, host, &[run(&record, 0, repeat, 10 * repeat)], true));
    let (all, paths) = directories(&files);
    let first = all.path().join("first");
    Merge::of(&paths[..2])
        .unwrap()
        .write(&first, false)
        .unwrap();
    let error = format!("{:#}", RecordWriter::resume(&first).unwrap_err());
    assert!(error.contains("merged from several records"), "{error}");
    let (again, _, bytes) = merged(&[first, paths[2].clone()]);
    assert_eq!(bytes, merged(&paths).2);
    assert_eq!(again.owner("slow", 1), Some(paths[2].as_path()));
}

#[test]
fn a_complete_group_is_kept_before_a_valid_one_and_that_before_the_first() {
    let record = record();
    let at = |second| run(&record, 0, 1, second);
    let owed = vec![invalid(at(1), 1), invalid(at(2), 2)];
    let spoilt = (1..=3)
        .map(|attempt| invalid(at(2 + attempt), attempt))
        .collect();
    let (sound, later) = (vec![at(20)], vec![at(30)]);
    let kept = |groups: &[&Vec<Run>]| {
        let files = groups.iter().map(|runs| lines(&record, "a", runs, false));
        let (_all, paths) = directories(&files.collect::<Vec<_>>());
        let (merge, merged, _) = merged(&paths);
        assert_eq!(merge.duplicates(), 1);
        let runs = merged.runs.into_iter().map(|run| Run { host: None, ..run });
        runs.collect::<Vec<_>>()
    };
    assert_eq!(kept(&[&owed, &spoilt]), spoilt);
    assert_eq!(kept(&[&spoilt, &sound]), sound);
    assert_eq!(kept(&[&later, &sound]), sound);
}

#[test]
fn a_run_with_attempts_left_is_kept_and_missing() {
    let record = record();
    let (_all, paths) = directories(&[lines(
        &record,
        "a",
        &[invalid(run(&record, 0, 1, 1), 1)],
        false,
    )]);
    let (merge, merged, _) = merged(&paths);
    let name = &record.plan().cases[0].name;
    assert_eq!(merged.runs.len(), 1);
    assert_eq!(&merge.missing()[0], &(name.clone(), 1));
    assert_eq!(merge.planned(), merge.missing().len());
}

#[test]
fn missing_runs_follow_from_the_scatter_of_the_first_five() {
    let mut record = record();
    record.head.plan.cases.truncate(1);
    let of: FigureName = "ping.rtt_ms.median".parse().unwrap();
    record.head.plan.cases[0].repeats = Repeats {
        least: 5,
        most: 30,
        until: Some(Narrow { of, percent: 5.0 }),
    };
    let value = |repeat: u32, rtt: f64| {
        let mut run = run(&record, 0, repeat, repeat);
        let figures = run
            .measurements
            .iter_mut()
            .flat_map(|m| &mut m.measurement.figures);
        let median = FigureName::of(
            "ping",
            &record.runs[0].measurements[0].measurement.figures[0],
        );
        for figure in figures.filter(|figure| figure.metric == median.metric) {
            figure.value = rtt;
        }
        run
    };
    let missing = |values: [f64; 5]| {
        let runs: Vec<Run> = (1..).zip(values).map(|(n, rtt)| value(n, rtt)).collect();
        let (_all, paths) = directories(&[lines(&record, "a", &runs, false)]);
        let latest = Latest::of(&runs);
        let wanted = latest.repeats(&record.plan().cases[0]) as usize;
        let merge = merged(&paths).0;
        assert_eq!(merge.missing().len(), wanted - 5);
        wanted
    };
    assert_eq!(missing([1.0, 1.0, 1.001, 1.0, 1.0]), 5);
    assert!(missing([0.9, 1.0, 1.1, 1.0, 1.05]) > 5);
}

#[test]
fn the_owner_of_a_missing_run_is_its_shard() {
    let mut record = record();
    let name = record.plan().cases[0].name.clone();
    let shard = |index: u32, repeats: &[u32]| Shard {
        number: ShardNumber { index, of: 3 },
        by: ShardBy::Run,
        runs: BTreeMap::from([(name.clone(), repeats.to_vec())]),
    };
    let files = [shard(2, &[1, 2]), shard(1, &[3])].map(|shard| {
        record.head.plan.shard = Some(shard);
        lines(&record, "a", &[], false)
    });
    let (_all, paths) = directories(&files);
    let merge = Merge::of(&paths).unwrap();
    assert_eq!(merge.owner(&name, 2), Some(paths[0].as_path()));
    assert_eq!(merge.owner(&name, 3), Some(paths[1].as_path()));
    assert_eq!(merge.owner(&name, 4), None);
    assert_eq!(merge.shard().map(|shard| shard.number.of), Some(3));
    assert!(merge.plan().shard.is_none());
}

#[test]
fn records_of_other_experiments_and_versions_are_refused_with_both_names() {
    let record = record();
    let own = lines(&record, "a", &[], false);
    let changed = |change: &dyn Fn(&mut Record)| {
        let mut other = record.clone();
        change(&mut other);
        lines(&other, "b", &[], false)
    };
    let newer =
        String::from_utf8(own.clone())
            .unwrap()
            .replacen("\"version\":1", "\"version\":2", 1);
    for (other, causes) in [
        (
            changed(&|r| r.head.farwire = "9.9.9".to_owned()),
            vec!["shard-0", "shard-1", "farwire 9.9.9"],
        ),
        (
            changed(&|r| r.head.plan.name = "other".to_owned()),
            vec!["shard-0", "shard-1", "`other`"],
        ),
        (
            changed(&|r| r.head.plan.cases[1].congestion = "bbr".to_owned()),
            vec!["shard-0", "shard-1", "case `slow` differs"],
        ),
        (
            changed(&|r| r.head.plan.cases.truncate(1)),
            vec!["shard-0", "shard-1", "no case `slow`"],
        ),
        (
            changed(&|r| r.head.plan.seed += 1),
            vec!["shard-0", "shard-1", "seed"],
        ),
        (
            newer.into_bytes(),
            vec!["shard-1", "version 2", "versions up to 1"],
        ),
        (b"{}\n".to_vec(), vec!["shard-1", "not a farwire record"]),
    ] {
        let error = refusal(&[own.clone(), other]);
        for cause in causes {
            assert!(error.contains(cause), "{cause}: {error}");
        }
    }
}

#[test]
fn an_unplanned_run_and_damage_before_the_end_are_refused() {
    let record = record();
    for wrong in [
        Run {
            repeat: 7,
            ..run(&record, 0, 1, 1)
        },
        Run {
            repeat: 0,
            ..run(&record, 0, 1, 1)
        },
        Run {
            seed: 99,
            ..run(&record, 0, 1, 1)
        },
        Run {
            case: "x".to_owned(),
            ..run(&record, 0, 1, 1)
        },
        Run {
            host: Some(1),
            ..run(&record, 0, 1, 1)
        },
    ] {
        let error = refusal(&[lines(&record, "a", &[wrong], false)]);
        assert!(error.contains("shard-0"), "{error}");
    }
    let mut bytes = lines(
        &record,
        "a",
        &[run(&record, 0, 1, 1), run(&record, 0, 2, 2)],
        false,
    );
    let head = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    bytes[head + 1] = b'x';
    assert!(refusal(&[bytes]).contains("record.jsonl:2: damaged"));
}

#[test]
fn a_merged_record_never_replaces_one_of_its_sources() {
    let record = record();
    let (_all, paths) = directories(&[lines(&record, "a", &[run(&record, 0, 1, 1)], true)]);
    let before = fs::read(paths[0].join(FILE)).unwrap();
    let merge = Merge::of(&paths).unwrap();
    let error = format!("{:#}", merge.write(&paths[0], true).unwrap_err());
    assert!(error.contains("is one of the records to merge"), "{error}");
    assert_eq!(fs::read(paths[0].join(FILE)).unwrap(), before);
}

#[test]
fn file_paths_are_relative_to_the_merged_record() {
    let record = record();
    let with_files = |repeat| {
        let mut run = run(&record, 0, repeat, repeat);
        run.artifacts = vec![Artifact {
            file: PathBuf::from("artifacts/x.pcapng"),
            bytes: 1,
            sha256: "0".repeat(64),
        }];
        let capture = CaptureSummary {
            file: Some(run.artifacts[0].file.clone()),
            ..CaptureSummary::default()
        };
        let link = Summary {
            capture: Some(capture),
            ..Summary::default()
        };
        run.links = vec![LinkCounts::of(("link".to_owned(), link))];
        run
    };
    let own = lines(&record, "a", &[with_files(1), with_files(2)], true);
    // For copies, the files of the first one by name are referred to, whatever the order in which they are given.
    let (all, mut paths) = directories(&[own.clone(), own]);
    let out = all.path().join("deep/er");
    for _ in 0..2 {
        Merge::of(&paths).unwrap().write(&out, true).unwrap();
        let merged = Record::read(&out).unwrap();
        let expected = PathBuf::from("../../shard-0/artifacts/x.pcapng");
        for run in &merged.runs {
            let capture = run.links[0].summary.capture.as_ref().unwrap();
            assert_eq!(capture.file.as_ref(), Some(&expected));
            assert_eq!(run.artifacts[0].file, expected);
        }
        paths.reverse();
    }
    // After a second merge, the path is relative to the new directory and contains no parts that cancel out.
    fs::create_dir(all.path().join("shard-0/artifacts")).unwrap();
    fs::write(all.path().join("shard-0/artifacts/x.pcapng"), "x").unwrap();
    let again = all.path().join("again");
    let merge = Merge::of(&[out]).unwrap();
    merge.write(&again, false).unwrap();
    let file = &Record::read(&again).unwrap().runs[0].artifacts[0].file;
    assert_eq!(file, Path::new("../shard-0/artifacts/x.pcapng"));
}

#[test]
fn a_merged_record_states_the_late_budgets_of_its_parts() {
    let record = record();
    let change = |second: u32, time: &str| LateBudgetChange {
        late_budget: time.parse().unwrap(),
        changed_at: format!("2026-11-24T10:00:{second:02}.000Z"),
        after_runs: Some(1),
    };
    let with = |host: &str, repeat: u32, changes: &[LateBudgetChange]| {
        let run = run(&record, 0, repeat, repeat);
        let mut bytes = lines(&record, host, &[run], false);
        for change in changes {
            let change = RecordLine::<&Run>::LateBudget(change.clone());
            bytes.extend(line(&change).unwrap());
        }
        bytes
    };
    let (earlier, later) = (change(3, "2ms"), change(9, "5ms"));
    let both = [earlier.clone(), later.clone()];
    let (_all, paths) = directories(&[with("a", 1, &both[1..]), with("b", 2, &both)]);
    let (_, whole, _) = merged(&paths);
    let stated = [earlier, later].map(|change| LateBudgetChange {
        after_runs: None,
        ..change
    });
    assert_eq!(whole.late_budgets, stated);
}
