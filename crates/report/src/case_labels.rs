//! Identifies cases in reports: by their names, and those of a sweep by the values of the swept fields, each in a separate
//! column.

use std::collections::BTreeSet;

use record::plan::{Case, Plan};
use record::swept::SweptField;
use record::table::{Cell, Column};

/// Greatest number of swept fields of a plan whose values identify its cases. The cases of a plan with more are identified
/// by their names.
pub(crate) const MOST_FIELDS: usize = 16;

/// The columns that identify each of several cases.
#[derive(Clone, Debug)]
pub(crate) struct CaseLabels<'a> {
    /// Whether there is a column with the names that the scenario gives the cases.
    has_name: bool,
    /// Whether the cases differ in swept fields, so that their names are shown without the values of the sweep.
    is_swept: bool,
    /// The swept fields in which the cases differ.
    fields: Vec<SweptField<'a>>,
}

impl<'a> CaseLabels<'a> {
    /// Returns the columns that identify these cases of the plan.
    pub(crate) fn of(plan: &'a Plan, cases: &[&Case]) -> Self {
        let mut fields = plan.swept_fields();
        if fields.len() > MOST_FIELDS {
            fields.clear();
        }
        fields.retain(|field| {
            let values = cases.iter().map(|case| case.swept_value(field.path));
            values.collect::<BTreeSet<_>>().len() > 1
        });
        let names: BTreeSet<String> = cases.iter().map(|case| case.base_name()).collect();
        Self {
            has_name: fields.is_empty() || names.len() > 1,
            is_swept: !fields.is_empty(),
            fields,
        }
    }

    /// Returns the columns that identify all cases of the plan.
    pub(crate) fn of_all(plan: &'a Plan) -> Self {
        Self::of(plan, &plan.cases.iter().collect::<Vec<_>>())
    }

    /// Returns the titles of the columns.
    pub(crate) fn titles(&self) -> Vec<&'a str> {
        let name = self.has_name.then_some("case").into_iter();
        name.chain(self.fields.iter().map(|field| field.name))
            .collect()
    }

    /// Returns the columns of a table.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let titles = self.titles().into_iter();
        titles.map(|title| Column::words(title).label()).collect()
    }

    /// Returns the texts that identify a case, one for each column.
    pub(crate) fn texts(&self, case: &Case) -> Vec<String> {
        // A case that no sweep made, or another one, does not have the field.
        let value = |field: &SweptField<'_>| {
            let value = case.swept_value(field.path);
            value.unwrap_or("–").to_owned()
        };
        let name = self.has_name.then(|| self.name(case)).into_iter();
        name.chain(self.fields.iter().map(value)).collect()
    }

    /// Returns the cells that identify a case, one for each column.
    pub(crate) fn cells(&self, case: &Case) -> Vec<Cell> {
        self.texts(case).into_iter().map(Cell::from).collect()
    }

    /// Returns the cells of a row that is about several cases, with this text in the first one.
    pub(crate) fn cells_of_several(&self, text: &str) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); self.titles().len()];
        cells[0] = text.into();
        cells
    }

    /// Identifies a case in one line: "delay 10ms, loss 1%".
    pub(crate) fn words(&self, case: &Case) -> String {
        match self.series(case) {
            words if words.is_empty() => self.name(case),
            words => words,
        }
    }

    /// Returns the same labels without these fields, for the cases of a series that differ in nothing else.
    pub(crate) fn without(&self, fields: &[SweptField<'_>]) -> Self {
        let mut others = self.clone();
        others
            .fields
            .retain(|field| fields.iter().all(|own| own.path != field.path));
        others
    }

    /// Identifies the series of cases to which a case belongs; empty if there is only one.
    pub(crate) fn series(&self, case: &Case) -> String {
        let value = |field: &SweptField<'_>| {
            let value = case.swept_value(field.path)?;
            Some(format!("{} {value}", field.name))
        };
        let name = self.has_name.then(|| self.name(case)).into_iter();
        let values = self.fields.iter().filter_map(value);
        name.chain(values).collect::<Vec<_>>().join(", ")
    }

    /// Returns the name that a case has beside the values of the fields.
    fn name(&self, case: &Case) -> String {
        if self.is_swept {
            case.base_name()
        } else {
            case.name.clone()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use record::Record;
    use record::swept;

    /// The second case of the small record, once for each of these sweeps, each with a run.
    pub(crate) fn swept(axes: &[&[(&str, &str)]]) -> Record {
        let mut record = record();
        let (case, run) = (record.head.plan.cases[1].clone(), record.runs[1].clone());
        record.head.plan.trends.clear();
        record.head.plan.reference = None;
        record.head.plan.cases.clear();
        record.runs.clear();
        for axes in axes {
            let (mut case, mut run) = (case.clone(), run.clone());
            let owned = axes
                .iter()
                .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()));
            case.axes = owned.collect();
            case.name = format!("line{}", swept::name_suffix(&case.axes));
            run.case = case.name.clone();
            case.expect.clear();
            case.repeats.least = 1;
            case.repeats.most = 1;
            record.head.plan.cases.push(case);
            record.runs.push(run);
        }
        record
    }

    /// A sweep of five fields, which has 48 cases.
    pub(crate) fn swept_by_five_fields() -> Record {
        let fields: [(&str, &[&str]); 5] = [
            ("link.delay", &["1ms", "10ms", "100ms"]),
            ("link.loss", &["0%", "1%"]),
            ("tcp.congestion", &["bbr", "cubic"]),
            ("link.queue", &["100pkt", "1000pkt"]),
            ("parameters.download.parallel", &["1", "8"]),
        ];
        let mut all: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        for (field, values) in fields {
            all = all
                .iter()
                .flat_map(|axes| {
                    values.iter().map(move |value| {
                        let own = axes.iter().copied();
                        own.chain([(field, *value)]).collect()
                    })
                })
                .collect();
        }
        let slices: Vec<&[(&str, &str)]> = all.iter().map(Vec::as_slice).collect();
        swept(&slices)
    }

    #[test]
    fn cases_of_a_sweep_are_identified_by_the_values_that_differ() {
        let record = swept(&[
            &[
                ("link.delay", "1ms"),
                ("link.loss", "1%"),
                ("bed.mtu", "1500"),
            ],
            &[
                ("link.delay", "9ms"),
                ("link.loss", "1%"),
                ("bed.mtu", "9000"),
            ],
        ]);
        let plan = record.plan();
        let labels = CaseLabels::of_all(plan);
        assert_eq!(labels.titles(), ["delay", "mtu"]);
        assert_eq!(labels.texts(&plan.cases[1]), ["9ms", "9000"]);
        assert_eq!(labels.words(&plan.cases[1]), "delay 9ms, mtu 9000");
        let series = labels.without(&labels.fields[..1]);
        assert_eq!(series.series(&plan.cases[1]), "mtu 9000");
        let none = series.without(&labels.fields);
        assert_eq!(none.series(&plan.cases[1]), "");
        let one = CaseLabels::of(plan, &[&plan.cases[0]]);
        assert_eq!(one.titles(), ["case"]);
        assert_eq!(one.words(&plan.cases[0]), plan.cases[0].name);
    }

    #[test]
    fn a_case_without_a_sweep_keeps_its_name_beside_those_of_a_sweep() {
        let mut record = swept(&[&[("link.delay", "1ms")], &[("link.delay", "9ms")], &[]]);
        record.head.plan.cases[2].name = "plain".to_owned();
        let plan = record.plan();
        let labels = CaseLabels::of_all(plan);
        assert_eq!(labels.titles(), ["case", "delay"]);
        let words = plan.cases.iter().map(|case| labels.words(case));
        assert_eq!(
            words.collect::<Vec<_>>(),
            ["line, delay 1ms", "line, delay 9ms", "plain"]
        );
        assert_eq!(labels.texts(&plan.cases[2]), ["plain", "–"]);
    }
}
