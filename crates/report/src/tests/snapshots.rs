//! Snapshots of all reports of the fixtures. After an intended change, `INSTA_UPDATE=always cargo test -p
//! farwire-report snapshots` rewrites them, and the difference is reviewed.

use crate::analysis::calibration::CalibrationReport;
use crate::analysis::calibration::tests::{measured, rtt};
use crate::analysis::tests::record;
use crate::*;

fn look_alike(name: &str, report: &str) {
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, report);
    });
}

#[test]
fn the_reports_of_an_experiment_match_their_snapshots() {
    let record = record();
    for format in FORMATS {
        match format.make {
            Make::Terminal(make) => {
                look_alike(format.name, &make(&record, false, Terminal::NONE));
                look_alike("details", &make(&record, true, Terminal::NONE));
            }
            Make::Document(make) => look_alike(format.name, &make(&record).unwrap()),
            Make::Stream(_) if format.name == "json" => {} // The record itself.
            Make::Stream(make) => {
                let mut text = Vec::new();
                make(&record, &mut text).unwrap();
                look_alike(format.name, &String::from_utf8(text).unwrap());
            }
            Make::Data(_) if format.name == "parquet" => {} // The tables of the CSV.
            Make::Data(make) => {
                for (rows, name) in [(DataRows::Samples, "csv"), (DataRows::Runs, "csv_runs")] {
                    let selection = DataSelection {
                        rows,
                        with_invalid: false,
                    };
                    let mut text = Vec::new();
                    make(DataTable::of(&record, selection).unwrap(), &mut text).unwrap();
                    look_alike(name, &String::from_utf8(text).unwrap());
                }
            }
            Make::Files(make) => {
                let (_, second) = &make(&record).unwrap()[1];
                let value: serde_json::Value = serde_json::from_str(second).unwrap();
                look_alike(format.name, &serde_json::to_string_pretty(&value).unwrap());
            }
        }
    }
}

#[test]
fn the_reports_of_a_calibration_match_their_snapshots() {
    let report = CalibrationReport::of(&measured(&[rtt(25.0, 0.1)]));
    look_alike(
        "calibration_text",
        &calibration_text(&report, Terminal::NONE),
    );
    look_alike("calibration_markdown", &calibration_markdown(&report));
}
