//! An experiment: a scenario becomes a plan, the plan's runs are measured, and the record holds
//! their results.

pub(crate) mod artifacts;
pub(crate) mod captures;
pub(crate) mod grid;
pub(crate) mod host_baseline;
mod link_histories;
pub(crate) mod machine_facts;
pub(crate) mod observer;
pub(crate) mod record_directory;
pub(crate) mod run_times;
pub(crate) mod runner;
pub(crate) mod scenario;
pub(crate) mod sharding;
pub(crate) mod uses;

use crate::testbed::TestbedSpec;
use instruments::measure::InstrumentArgs;
use record::profile::Carrier;

/// An experiment with its instruments, ready to run.
pub(crate) type Plan = record::plan::Plan<InstrumentArgs>;
/// A case of such a plan.
pub(crate) type Case = record::plan::Case<InstrumentArgs>;
/// An instrument of such a case.
pub(crate) type PlannedInstrument = record::plan::PlannedInstrument<InstrumentArgs>;
/// A run of such a case.
pub(crate) type PlannedRun<'a> = record::plan::PlannedRun<'a, InstrumentArgs>;

/// Reads a small record with two cases.
#[cfg(test)]
pub(crate) fn small_record() -> record::Record {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/records/small.jsonl"
    );
    record::Record::read(std::path::Path::new(file)).unwrap()
}

/// Reads the plan of a scenario that names no files.
#[cfg(test)]
pub(crate) fn plan_of(text: &str) -> Plan {
    let source = crate::toml_file::SourceFile {
        file: "x.toml",
        text,
        also: crate::named_files::NamedFiles::OWN,
    };
    scenario::parse(source, false).unwrap()
}

/// Returns the test bed that each case of `plan` needs.
pub(crate) fn testbeds(plan: &Plan) -> Vec<TestbedSpec<'_>> {
    plan.cases.iter().map(testbed).collect()
}

/// Returns the test bed that `case` needs.
pub(crate) fn testbed(case: &Case) -> TestbedSpec<'_> {
    TestbedSpec {
        user: format!("case `{}`", case.name),
        bed: &case.bed,
        between: case.between.as_ref(),
        link: &case.link,
        congestion: &case.congestion,
        sender_congestions: case.instruments.iter().filter_map(congestion).collect(),
    }
}

/// Returns the congestion control that `instrument` sets for itself.
fn congestion(instrument: &PlannedInstrument) -> Option<&str> {
    match &instrument.profile.carrier {
        Some(Carrier::Tcp { congestion, .. }) => congestion.as_deref(),
        _ => None,
    }
}
