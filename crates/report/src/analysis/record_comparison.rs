//! Compares two records of one scenario, case by case.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::alike::{DifferingField, check_cases, check_length, check_name};
use super::{Analysis, CaseFigures, baselines};
use crate::changes;
use crate::error::Result;
use record::Record;
use record::figure_name::FigureName;
use stats::change::Change;
use stats::hodges_lehmann::{Sense, Shift, ShiftVerdict};
use stats::welch;

/// Accepted probability that a whole comparison calls a figure worse that is not.
const SIGNIFICANCE: f64 = 0.05;

/// One figure of one case in both records.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Name of the case.
    pub case: String,
    /// The case as reports name it: by the values of the swept fields if a sweep made it.
    pub case_in_words: String,
    /// The figure.
    pub figure: FigureName,
    /// Means over the runs of the reference and of the record, in the metric's unit.
    pub means: [f64; 2],
    /// The change from one mean to the other.
    pub change: Change,
    /// The shift between the values of the reference and those of the record.
    pub shift: Shift,
    /// Probability of such a difference if there is none, over all compared figures: [`welch`]'s p, adjusted by Holm's
    /// method. Absent if there are too few runs.
    pub p: Option<f64>,
}

/// A case or figure that cannot be compared because one of the records, or both, lack it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Name of the case.
    pub case: String,
    /// A figure, or an instrument without figures; absent if the whole case is missing.
    pub what: Option<String>,
    /// The record that lacks it.
    pub lacking: MissingFrom,
}

/// The record that lacks something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingFrom {
    /// The reference lacks it.
    Reference,
    /// The record that is compared with the reference lacks it.
    Record,
    /// Both lack it.
    Both,
}

/// The comparison of two records.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The figures that both have.
    pub compared: Vec<Compared>,
    /// Cases and figures that one of them lacks.
    pub missing: Vec<Missing>,
    /// Cases whose links differ, with both links in words.
    pub across: Vec<String>,
    /// Differences between the machines, in words.
    pub hosts: Vec<String>,
    /// The records that have runs to come: "reference", "record".
    pub unfinished: Vec<&'static str>,
}

impl Comparison {
    /// Compares `record` with `reference` in the figures that `wanted` selects. With `across_links`, the links of a
    /// case may differ between the records.
    ///
    /// # Errors
    /// Records of different scenarios: the names differ, or the conditions or instruments of a case.
    pub fn of(
        reference: &Record,
        record: &Record,
        across_links: bool,
        wanted: impl Fn(&Record, &FigureName) -> bool,
    ) -> Result<Self> {
        check_name(reference, record)?;
        check_length(reference, record)?;
        let may_differ = across_links.then_some(DifferingField::Links);
        let across = check_cases(reference, record, may_differ)?;
        let (before, after) = (Analysis::of(reference), Analysis::of(record));
        let (mut compared, mut missing) = (Vec::new(), Vec::new());
        for old in &before.cases {
            let case = &old.case.name;
            let Some(new) = after.case(case) else {
                missing.push(Missing::case(case, MissingFrom::Record));
                continue;
            };
            missing.extend(Missing::instruments(old, new));
            let words = old.words();
            let wanted = |name: &&FigureName| wanted(reference, name) || wanted(record, name);
            let names: BTreeSet<_> = old.figures.keys().chain(new.figures.keys()).collect();
            for name in names.into_iter().filter(wanted) {
                let (old, new) = match (old.figures.get(name), new.figures.get(name)) {
                    (Some(old), Some(new)) => (old, new),
                    (old, _) => {
                        missing.push(Missing {
                            case: case.clone(),
                            what: Some(name.to_string()),
                            lacking: match old {
                                None => MissingFrom::Reference,
                                Some(_) => MissingFrom::Record,
                            },
                        });
                        continue;
                    }
                };
                let change = Change::of(&old.values, &new.values);
                let shift = Shift::of(&old.values, &new.values);
                compared.extend(change.zip(shift).map(|(change, shift)| {
                    Compared {
                        case: case.clone(),
                        case_in_words: words.to_owned(),
                        figure: name.clone(),
                        means: [old.value(), new.value()],
                        p: welch::p_value(&old.values, &new.values)
                            .filter(|_| shift.change() != ShiftVerdict::TooFew),
                        change,
                        shift,
                    }
                }));
            }
        }
        let added = after
            .cases
            .iter()
            .map(|new| &new.case.name)
            .filter(|name| before.case(name).is_none());
        missing.extend(added.map(|name| Missing::case(name, MissingFrom::Reference)));
        let told = || compared.iter().filter_map(|one: &Compared| one.p);
        let mut adjusted = welch::holm(&told().collect::<Vec<_>>()).into_iter();
        for one in compared.iter_mut().filter(|one| one.p.is_some()) {
            one.p = adjusted.next();
        }
        Ok(Self {
            compared,
            missing,
            across,
            hosts: hosts(reference, record),
            unfinished: [("reference", reference), ("record", record)]
                .into_iter()
                .filter(|(_, record)| record.finished_at.is_none())
                .map(|(which, _)| which)
                .collect(),
        })
    }

    /// Returns the number of figures and cases for which it is undecided whether they got worse.
    pub fn untold(&self) -> usize {
        let few = self.compared.iter().filter(|one| one.is_too_few());
        few.count() + self.missing.len()
    }

    /// Returns the number of figures that are tested together.
    pub fn family(&self) -> usize {
        self.compared.iter().filter(|one| one.p.is_some()).count()
    }

    /// Returns the figures that got worse by more than `percent` and beyond chance. At most 5 % of comparisons report a
    /// figure that did not get worse.
    pub fn regressions(&self, percent: f64) -> impl Iterator<Item = &Compared> {
        self.compared
            .iter()
            .filter(move |one| one.is_worse_by(percent))
    }
}

impl Compared {
    /// Describes the change in words.
    pub fn words(&self) -> String {
        let metric = self.figure.metric;
        if self.is_too_few() {
            let enough = self.shift.enough();
            return format!("too few runs: {enough} per record needed");
        }
        changes::in_words(&self.change, Some(&self.shift), metric)
    }

    /// Returns whether there are too few runs to distinguish a change from chance.
    pub fn is_too_few(&self) -> bool {
        self.shift.change() == ShiftVerdict::TooFew
    }

    /// Returns whether the figure got worse beyond chance, and the nearer end of the change's interval by more than
    /// `percent`. For a change without a percentage, such as a loss from or to 0, any change beyond chance counts.
    fn is_worse_by(&self, percent: f64) -> bool {
        let beyond_chance = self.p.is_some_and(|p| p <= SIGNIFICANCE);
        let worse = match self.change.verdict(self.figure.metric.unit()) {
            ShiftVerdict::TooFew | ShiftVerdict::NotShown => false,
            ShiftVerdict::Greater => self.figure.metric.sense() != Sense::Rate,
            ShiftVerdict::Smaller => self.figure.metric.sense() == Sense::Rate,
        };
        let change = self.change.percent().and_then(|change| change.interval);
        let near = change.map(|[low, high]| low.abs().min(high.abs()));
        worse && beyond_chance && near.is_none_or(|near| near > percent)
    }
}

impl Missing {
    fn case(case: &str, lacking: MissingFrom) -> Self {
        Self {
            case: case.to_owned(),
            what: None,
            lacking,
        }
    }

    /// Returns the instruments of a case without a figure in either record.
    fn instruments(old: &CaseFigures<'_>, new: &CaseFigures<'_>) -> Vec<Self> {
        let has = |figures: &CaseFigures<'_>, instrument: &str| {
            let mut names = figures.figures.keys();
            names.any(|name| name.instrument == instrument)
        };
        let names = old.case.instruments.iter().map(|one| &one.name);
        names
            .filter(|name| !has(old, name) && !has(new, name))
            .map(|name| Self {
                case: old.case.name.clone(),
                what: Some(name.clone()),
                lacking: MissingFrom::Both,
            })
            .collect()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.case)?;
        if let Some(what) = &self.what {
            write!(f, ": {what}")?;
        }
        f.write_str(match self.lacking {
            MissingFrom::Reference => ": not in the reference",
            MissingFrom::Record => ": not in the record",
            MissingFrom::Both => ": in neither record",
        })
    }
}

/// Returns the differences between the machines of two records: their facts and their limits without emulated
/// conditions.
pub(super) fn hosts(reference: &Record, record: &Record) -> Vec<String> {
    let (old, new) = (&reference.head.host, &record.head.host);
    let [old_cpus, new_cpus] = [old, new].map(|host| host.cpus.to_string());
    let pairs = [
        ("kernel", &old.kernel, &new.kernel),
        ("CPU", &old.cpu, &new.cpu),
        ("CPUs", &old_cpus, &new_cpus),
        ("memory", &old.memory, &new.memory),
        ("clock source", &old.clocksource, &new.clocksource),
        ("farwire", &reference.head.farwire, &record.head.farwire),
    ]
    .into_iter()
    .filter(|(_, old, new)| old != new);
    let mut words: Vec<String> = pairs
        .map(|(what, old, new)| format!("{what}: {old} in the reference, {new} in the record"))
        .collect();
    for (tool, old) in &old.tools {
        if let Some(new) = new.tools.get(tool).filter(|new| *new != old) {
            words.push(format!(
                "{tool}: {old} in the reference, {new} in the record"
            ));
        }
    }
    words.extend(baselines::against(&reference.baselines, &record.baselines));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::{draws, record};
    use conditions::DelaySpec;
    use record::plan::Repeats;
    use record::{Baseline, Run};

    /// The case "base" with `runs` runs, whose goodputs are drawn around a mean times `factor`.
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
        Comparison::of(reference, record, false, |_, _| true).unwrap()
    }

    #[test]
    fn a_record_has_no_difference_from_itself() {
        let record = repeated(30, 1.0, 1);
        let comparison = compare(&record, &record);
        assert!(comparison.missing.is_empty());
        assert_eq!(comparison.compared.len(), 3);
        for one in &comparison.compared {
            assert_eq!(
                one.change.verdict(one.figure.metric.unit()),
                ShiftVerdict::NotShown,
                "{}",
                one.words()
            );
        }
        assert_eq!(comparison.regressions(0.0).count(), 0);
    }

    #[test]
    fn a_change_of_two_percent_is_found_with_thirty_runs() {
        let comparison = compare(&repeated(30, 1.0, 1), &repeated(30, 0.98, 2));
        let slower: Vec<_> = comparison.regressions(0.0).collect();
        assert_eq!(slower.len(), 1);
        assert!(
            slower[0].words().contains("% lower, 95 % interval"),
            "{}",
            slower[0].words()
        );
        assert_eq!(comparison.regressions(5.0).count(), 0);
        let faster = compare(&repeated(30, 1.0, 1), &repeated(30, 1.02, 2));
        assert_eq!(faster.regressions(0.0).count(), 0);
    }

    /// A record with `figures` cases of one goodput each, which scatters by 2 %. That of the first case is multiplied
    /// by `factor`.
    fn many(figures: usize, runs: u32, factor: f64, seed: u64) -> Record {
        let mut record = repeated(1, 1.0, 1);
        let (case, mut one) = (record.head.plan.cases[0].clone(), record.runs[0].clone());
        one.measurements.remove(0);
        record.runs.clear();
        record.head.plan.cases.clear();
        let mut draws = draws(seed, figures * runs as usize).into_iter();
        for number in 0..figures {
            let mut case = case.clone();
            case.name = number.to_string();
            case.repeats = Repeats::fixed(runs);
            for repeat in 1..=runs {
                let mut run: Run = one.clone();
                (run.case, run.repeat) = (case.name.clone(), repeat);
                let factor = if number == 0 { factor } else { 1.0 };
                let figures = &mut run.measurements[0].measurement.figures;
                figures.truncate(1);
                figures[0].value *= factor * (1.0 + 0.02 * draws.next().unwrap());
                record.runs.push(run);
            }
            record.head.plan.cases.push(case);
        }
        record
    }

    /// Returns the share of seeds for which a figure got worse by more than `percent`.
    fn worse(seeds: u64, figures: usize, factor: f64, percent: f64) -> f64 {
        let worse = |seed: &u64| {
            let before = many(figures, 5, 1.0, *seed);
            let after = many(figures, 5, factor, *seed + 1_000_000);
            compare(&before, &after).regressions(percent).count() > 0
        };
        (0..seeds).filter(worse).count() as f64 / seeds as f64
    }

    #[test]
    fn few_equal_records_with_many_figures_are_called_worse() {
        let share = worse(500, 50, 1.0, 0.0);
        assert!(share <= 0.06, "{share}");
    }

    #[test]
    fn one_figure_of_fifty_that_got_worse_is_found() {
        let share = worse(200, 50, 0.8, 5.0);
        assert!(share >= 0.9, "{share}");
    }

    #[test]
    fn machines_that_differ_are_shown() {
        let (reference, mut other) = (record(), record());
        assert!(compare(&reference, &other).hosts.is_empty());
        other.head.host.cpus = 64;
        assert!(compare(&reference, &other).hosts[0].ends_with(" 64 in the record"));
    }

    #[test]
    fn records_of_different_scenarios_are_refused() {
        let reference = record();
        let mut other = record();
        let both = &mut other.head.plan.cases[1].link.both;
        both.at_first.set("1ms".parse::<DelaySpec>().unwrap());
        let refusal =
            |other: &Record| Comparison::of(&reference, other, false, |_, _| true).unwrap_err();
        assert!(
            refusal(&other)
                .to_string()
                .contains("the links differ: case `slow`: ")
        );
        let mut other = record();
        other.head.plan.name = "large".to_owned();
        assert!(refusal(&other).to_string().contains("`small` and `large`"));
    }

    #[test]
    fn different_links_are_compared_on_request() {
        let reference = record();
        let mut other = record();
        let both = &mut other.head.plan.cases[1].link.both;
        both.at_first.set("1ms".parse::<DelaySpec>().unwrap());
        let refusal = Comparison::of(&reference, &other, false, |_, _| true)
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("`reference`"), "{refusal}");
        assert!(refusal.contains("--across-links"), "{refusal}");
        let comparison = Comparison::of(&reference, &other, true, |_, _| true).unwrap();
        let [across] = &comparison.across[..] else {
            panic!("{:?}", comparison.across);
        };
        assert!(
            across.starts_with("case `slow`: ") && across.ends_with(" delay 1ms in the record")
        );
        assert!(compare(&reference, &reference).across.is_empty());
    }

    #[test]
    fn too_few_runs_are_undecided_with_the_number_needed() {
        let comparison = compare(&repeated(3, 1.0, 1), &repeated(3, 3.0, 2));
        assert_eq!(comparison.untold(), comparison.compared.len());
        for one in &comparison.compared {
            let words = one.words();
            assert!(words.starts_with("too few runs: "), "{words}");
            assert!(words.ends_with("4 per record needed"), "{words}");
        }
        let enough = compare(&repeated(4, 1.0, 1), &repeated(4, 1.0, 2));
        assert_eq!(enough.untold(), 0);
    }

    #[test]
    fn missing_figures_and_cases_are_named() {
        let mut other = record();
        other.head.plan.cases.truncate(1);
        let lacks = |reference: &Record, record: &Record| {
            let missing = compare(reference, record).missing;
            missing.iter().map(Missing::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lacks(&record(), &other), ["slow: not in the record"]);
        assert_eq!(lacks(&other, &record()), ["slow: not in the reference"]);
        let whole = repeated(4, 1.0, 1);
        let mut without = whole.clone();
        for run in &mut without.runs {
            run.measurements.remove(1);
        }
        let here = lacks(&whole, &without);
        assert!(!here.is_empty());
        let there = here
            .iter()
            .map(|one| one.replace("the record", "the reference"));
        assert_eq!(lacks(&without, &whole), there.collect::<Vec<_>>());
        let neither = lacks(&without, &without);
        let name = &whole.runs[0].measurements[1].instrument;
        assert_eq!(neither, [format!("base: {name}: in neither record")]);
    }

    #[test]
    fn different_machine_limits_are_reported() {
        let [reference, record] = [1e9, 5e8].map(|rate| {
            let mut record = repeated(4, 1.0, 1);
            record.baselines.push(Baseline {
                tcp_bit_per_s: Some(rate),
                ..Baseline::default()
            });
            record
        });
        let hosts = |record| {
            let comparison = Comparison::of(&reference, record, false, |_, _| true);
            comparison.unwrap().hosts
        };
        assert!(hosts(&reference).is_empty());
        let words =
            "TCP without emulation: 1000 Mbit/s in the reference, 500.0 Mbit/s in the record";
        assert_eq!(hosts(&record), [words]);
    }
}
