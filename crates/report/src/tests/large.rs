//! Reports of a record with a million samples.

use std::path::Path;

use crate::analysis::tests::record;
use crate::html;
use record::Record;
use record::{Direction, Metric, Sample};
use record::{RecordWriter, Run};

const SAMPLES: usize = 1_000_000;

/// The two cases of the small record with this many runs each, which together have a million samples: half of them
/// pings, half bytes.
fn large(runs: u32) -> Record {
    let mut record = record();
    for case in &mut record.head.plan.cases {
        case.repeats.least = runs;
        case.repeats.most = runs;
    }
    let each = SAMPLES / 4 / runs as usize;
    let patterns = [record.runs[0].clone(), record.runs[1].clone()];
    let run = |pattern: &Run, repeat: u32| {
        let mut run = pattern.clone();
        run.repeat = repeat;
        let mut random = fastrand::Rng::with_seed(repeat.into());
        let pings = &mut run.measurements[0].measurement.samples;
        *pings = (1..=each as u64)
            .map(|index| match random.u32(..50) {
                0 => Sample::new(index as f64 * 0.01, Metric::LostPackets, index, 1.0),
                _ => Sample::new(
                    index as f64 * 0.01,
                    Metric::RttMs,
                    index,
                    1.0 + random.f64(),
                ),
            })
            .collect();
        let bytes = &mut run.measurements[1].measurement.samples;
        *bytes = (1..=each as u64)
            .map(|index| {
                let count = 1e5 * random.f64();
                Sample::new(index as f64 * 0.01, Metric::ReceivedBytes, index, count)
                    .toward(Direction::Down)
            })
            .collect();
        run
    };
    record.runs = (1..=runs)
        .flat_map(|repeat| patterns.iter().map(move |pattern| (pattern, repeat)))
        .map(|(p, r)| run(p, r))
        .collect();
    record
}

#[test]
fn the_page_of_a_million_samples_is_small_enough_to_send() {
    for runs in [1, 50] {
        let record = large(runs);
        let page = html(&record).unwrap();
        assert!(
            page.len() < 2_000_000,
            "{} bytes of {runs} runs a case",
            page.len()
        );
    }
}

/// Writes records for measuring time and memory by hand: `FARWIRE_LARGE=/tmp/large cargo test --lib large --
/// --ignored`, then `/usr/bin/time -v farwire report /tmp/large/50 --format html --out /tmp/page.html`.
#[test]
#[ignore = "writes two records of 80 MB into the directory FARWIRE_LARGE"]
fn large_records_are_written() {
    let directory = std::env::var("FARWIRE_LARGE").expect("FARWIRE_LARGE names a directory");
    for runs in [1, 50] {
        let record = large(runs);
        let directory = Path::new(&directory).join(runs.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let mut writer = RecordWriter::begin(&directory, &record.head, true).unwrap();
        for run in &record.runs {
            writer.keep(run).unwrap();
        }
    }
}
