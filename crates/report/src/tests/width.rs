//! Checks that no text report is wider than the terminal, whatever the record contains.

use std::path::Path;

use crate::analysis::calibration::CalibrationReport;
use crate::analysis::record_comparison::Comparison;
use crate::*;
use record::Record;
use textwrap::core::display_width;

fn fixtures() -> Vec<Record> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/records");
    let files = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path());
    let records = files.filter(|file| file.extension().is_some_and(|end| end == "jsonl"));
    records.map(|file| Record::read(&file).unwrap()).collect()
}

/// The small record, with long names everywhere and each instrument five times.
fn long_and_wide() -> Record {
    let mut record = analysis::tests::record();
    let long = |name: &str| {
        format!("{name}[delay=300ms,rate=20mbit,loss=1%,queue=100pkt,seed=1234567890123456789]")
    };
    let plan = &mut record.head.plan;
    plan.title = "an experiment of many words ".repeat(9);
    plan.reference = plan.reference.as_deref().map(long);
    for case in &mut plan.cases {
        case.name = long(&case.name);
        let own = case.instruments.clone();
        for number in 2..6 {
            case.instruments
                .extend(own.iter().cloned().map(|mut instrument| {
                    instrument.name += &format!("-for-the-time-number-{number}");
                    instrument
                }));
        }
    }
    for run in &mut record.runs {
        run.case = long(&run.case);
        let own = run.measurements.clone();
        for number in 2..6 {
            run.measurements
                .extend(own.iter().cloned().map(|mut measured| {
                    measured.instrument += &format!("-for-the-time-number-{number}");
                    measured
                }));
        }
    }
    record
}

#[test]
fn no_line_of_a_text_report_is_wider_than_the_terminal() {
    let records = fixtures().into_iter().chain([long_and_wide()]);
    for record in records {
        for width in [80, 120] {
            let terminal = Terminal {
                width,
                ..Terminal::NONE
            };
            let same = Comparison::of(&record, &record, false, |_, _| true).unwrap();
            for report in [
                text(&record, false, terminal),
                text(&record, true, terminal),
                calibration_text(&CalibrationReport::of(&record), terminal),
                comparison(&same, 5.0, terminal),
            ] {
                let wide = report.lines().find(|line| display_width(line) > width);
                assert_eq!(wide, None, "{}: in\n{report}", record.plan().name);
            }
        }
    }
}
