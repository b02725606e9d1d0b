//! The table of how often each rule would end with NOT MET if the experiment was repeated.

use crate::analysis::Analysis;
use crate::analysis::chance::{DRAWS, FalseAlarms, false_alarms};
use crate::case_labels::CaseLabels;
use record::table::{Cell, Column, Table};

/// Note on how to read the table.
const NOTE: &str = "not met by chance: the number of 10,000 simulated experiments that would end NOT MET. Each has as many runs as the recorded \
                    one, drawn from a log-normal distribution fitted to the recorded runs or, if one of \
                    them is not above 0 (*), from the recorded runs themselves. Five runs determine the standard deviation to a factor of \
                    0.6 to 2.9, ten to a factor of 0.7 to 1.8; draws from the recorded runs cannot show anything rarer than one of them";

/// Returns a table with a row for each rule whose cases have at least five runs; `None` if there is none.
pub(super) fn table(analysis: &Analysis<'_>) -> Option<Table> {
    let plan = analysis.record.plan();
    let labels = CaseLabels::of_all(plan);
    let mut columns = labels.columns();
    columns.extend([
        Column::words("expected"),
        Column::numbers("runs"),
        Column::numbers("not met by chance"),
    ]);
    let row = |alarms: &FalseAlarms<'_>| {
        let mark = if alarms.from_values { " *" } else { "" };
        let mut cells = match alarms.case.and_then(|name| plan.case(name)) {
            Some(case) => labels.cells(case),
            None => labels.cells_of_several("all"),
        };
        cells.extend([
            Cell::from(alarms.rule.as_str()),
            alarms.runs.to_string().into(),
            format!("{} of {DRAWS}{mark}", alarms.not_met).into(),
        ]);
        cells
    };
    let alarms = false_alarms(analysis);
    let mut table = Table::new("chance", columns).with(alarms.iter().map(row));
    table.note = NOTE.to_owned();
    (!alarms.is_empty()).then_some(table)
}
