//! Every report of the fixtures, as it was last looked at. After a change that is meant, `INSTA_UPDATE=always cargo test -p
//! farwire-report snapshots` writes them anew; the difference is for the reviewer.

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
fn the_reports_of_an_experiment_look_as_they_did() {
    let record = record();
    let mut csv = Vec::new();
    write_csv(&record, &mut csv).unwrap();
    let flent = flent(&record);
    for (name, report) in [
        ("text", text(&record, Terminal::NONE)),
        ("details", details(&record, Terminal::NONE)),
        ("markdown", markdown(&record).unwrap()),
        ("html", html(&record).unwrap()),
        ("csv", String::from_utf8(csv).unwrap()),
        ("junit", junit(&record).unwrap()),
        ("openmetrics", openmetrics(&record)),
        (
            "flent",
            serde_json::to_string_pretty(&flent[1].content).unwrap(),
        ),
    ] {
        look_alike(name, &report);
    }
}

#[test]
fn the_reports_of_a_calibration_look_as_they_did() {
    let report = CalibrationReport::of(&measured(&[rtt(25.0, 0.1)]));
    look_alike(
        "calibration_text",
        &calibration_text(&report, Terminal::NONE),
    );
    look_alike("calibration_markdown", &calibration_markdown(&report));
}
