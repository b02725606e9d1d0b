//! Two records of one scenario, case by case.

use anyhow::{Result, ensure};

use super::{Across, Analysis};
use record::Record;
use record::figure_name::FigureName;
use stats::hodges_lehmann::{Change, Sense, Shift};

/// One figure of one case in both records.
#[derive(Clone, Debug)]
pub struct Compared {
    pub case: String,
    pub figure: FigureName,
    /// Means over the runs, in the metric's unit: of the reference, then of the record.
    pub means: [f64; 2],
    pub shift: Shift,
}

/// What the records have in common, and what not.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub compared: Vec<Compared>,
    /// Cases and figures that one of them lacks.
    pub(crate) missing: Vec<String>,
}

impl Comparison {
    /// Of `record` against `reference`, in those figures that `wanted` picks.
    ///
    /// # Errors
    /// They are of different scenarios: another name, or a case of other conditions or instruments.
    pub fn of(
        reference: &Record,
        record: &Record,
        wanted: impl Fn(&Record, &FigureName) -> bool,
    ) -> Result<Self> {
        check_alike(reference, record)?;
        let (before, after) = (Analysis::of(reference), Analysis::of(record));
        let (mut compared, mut missing) = (Vec::new(), Vec::new());
        for old in &before.cases {
            let case = &old.case.name;
            let Some(new) = after.case(case) else {
                missing.push(format!("{case}: not in the second record"));
                continue;
            };
            for (name, figure) in old
                .figures
                .iter()
                .filter(|(name, _)| wanted(reference, name))
            {
                match new
                    .figures
                    .get(name)
                    .and_then(|other| between(figure, other))
                {
                    Some(shift) => compared.push(Compared {
                        case: case.clone(),
                        figure: name.clone(),
                        means: [figure.value(), new.figures[name].value()],
                        shift,
                    }),
                    None => missing.push(format!("{case}: {name}: not in the second record")),
                }
            }
        }
        let added = after
            .cases
            .iter()
            .filter(|new| before.case(&new.case.name).is_none());
        missing.extend(added.map(|new| format!("{}: not in the first record", new.case.name)));
        Ok(Self { compared, missing })
    }

    /// What got worse by more than `percent`, beyond chance.
    pub fn regressions(&self, percent: f64) -> impl Iterator<Item = &Compared> {
        self.compared
            .iter()
            .filter(move |one| one.is_worse_by(percent))
    }
}

impl Compared {
    /// In plain words.
    pub fn words(&self) -> String {
        let metric = self.figure.metric;
        self.shift.words(metric.sense(), metric.unit())
    }

    /// Whether it got worse by more than `percent`, and that beyond chance. Of what has no percentage, a loss from or to
    /// nothing, any change beyond chance counts.
    fn is_worse_by(&self, percent: f64) -> bool {
        let worse = match self.shift.change() {
            Change::TooFew | Change::NotShown => false,
            Change::Greater => self.figure.metric.sense() != Sense::Rate,
            Change::Smaller => self.figure.metric.sense() == Sense::Rate,
        };
        let change = self.shift.percent.as_ref();
        worse && change.is_none_or(|change| change.value.abs() > percent)
    }
}

fn between(reference: &Across, sample: &Across) -> Option<Shift> {
    Shift::of(&reference.values, &sample.values)
}

/// A case of one name must mean the same in both.
fn check_alike(reference: &Record, record: &Record) -> Result<()> {
    let (old, new) = (reference.plan(), record.plan());
    ensure!(
        old.name == new.name,
        "records of different scenarios: `{}` and `{}`",
        old.name,
        new.name
    );
    ensure!(
        old.quick == new.quick,
        "one of the records was shortened by --quick, the other not"
    );
    let same_text = reference.head.scenario.text == record.head.scenario.text;
    for case in &old.cases {
        let Some(other) = new.case(&case.name) else {
            continue;
        };
        let mut both = case.instruments.iter().zip(&other.instruments);
        let instruments = case.instruments.len() == other.instruments.len()
            && both.all(|(one, other)| one.is_alike(other, same_text));
        for (what, alike) in [
            ("link", case.link == other.link),
            ("test bed", case.bed == other.bed),
            ("congestion control", case.congestion == other.congestion),
            ("instruments", instruments),
        ] {
            ensure!(
                alike,
                "records of different scenarios: case `{}` has another {what}",
                case.name
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{draws, record};
    use record::Run;
    use record::plan::Repeats;

    /// The case "base" with `runs` runs, whose goodputs are drawn about a mean times `factor`.
    fn repeated(runs: u32, factor: f64, seed: u64) -> Record {
        let mut record = record();
        let one = record.runs[0].clone();
        record.head.plan.cases.truncate(1);
        record.head.plan.trends.clear();
        record.head.plan.cases[0].repeats = Repeats::fixed(runs);
        let values = draws(seed, runs as usize);
        let run = |(repeat, draw): (u32, &f64)| {
            let mut run: Run = one.clone();
            run.repeat = repeat;
            run.measurements[1].measurement.figures[0].value *= factor * (1.0 + 0.01 * draw);
            run
        };
        record.runs = (1..).zip(&values).map(run).collect();
        record
    }

    fn compare(reference: &Record, record: &Record) -> Comparison {
        Comparison::of(reference, record, |_, _| true).unwrap()
    }

    #[test]
    fn a_record_has_no_difference_from_itself() {
        let record = repeated(30, 1.0, 1);
        let comparison = compare(&record, &record);
        assert!(comparison.missing.is_empty());
        assert_eq!(comparison.compared.len(), 3);
        for one in &comparison.compared {
            assert_eq!(one.shift.change(), Change::NotShown, "{}", one.words());
        }
        assert_eq!(comparison.regressions(0.0).count(), 0);
    }

    #[test]
    fn two_percent_show_with_thirty_runs() {
        let comparison = compare(&repeated(30, 1.0, 1), &repeated(30, 0.98, 2));
        let slower: Vec<_> = comparison.regressions(0.0).collect();
        assert_eq!(slower.len(), 1);
        assert!(
            slower[0].words().contains("% slower, 95 % interval"),
            "{}",
            slower[0].words()
        );
        assert_eq!(comparison.regressions(5.0).count(), 0);
        let faster = compare(&repeated(30, 1.0, 1), &repeated(30, 1.02, 2));
        assert_eq!(faster.regressions(0.0).count(), 0);
    }

    #[test]
    fn records_of_different_scenarios_are_refused() {
        let reference = record();
        let mut other = record();
        other.head.plan.cases[1].link.both.delay = Some("1ms".parse().unwrap());
        let refusal = |other: &Record| Comparison::of(&reference, other, |_, _| true).unwrap_err();
        assert!(
            refusal(&other)
                .to_string()
                .contains("case `slow` has another link")
        );
        let mut other = record();
        other.head.plan.name = "large".to_owned();
        assert!(refusal(&other).to_string().contains("`small` and `large`"));
    }

    #[test]
    fn what_one_record_lacks_is_named() {
        let mut other = record();
        other.head.plan.cases.truncate(1);
        let comparison = compare(&record(), &other);
        assert_eq!(comparison.missing, ["slow: not in the second record"]);
    }
}
