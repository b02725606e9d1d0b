//! Invalid figures of runs that otherwise count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use record::figure_name::FigureName;
use record::{Measured, Run};

/// Invalid figures of an instrument whose other figures are valid.
pub(crate) struct LeftOut {
    figures: String,
    cause: String,
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "without {}: {}", self.figures, self.cause)
    }
}

/// Returns the invalid figures of several runs: one line for all runs that lack the same figures, with the cause from
/// the first.
pub(super) fn of_all<'r>(runs: impl Iterator<Item = &'r Run>) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    for run in runs {
        for LeftOut { figures, cause } in left_out(run) {
            found.entry(figures).or_default().push((run.repeat, cause));
        }
    }
    let line = |(figures, runs): (String, Vec<(u32, String)>)| match runs.as_slice() {
        [(number, cause)] => format!("run {number} is left out of {figures}: {cause}"),
        _ => {
            let (first, cause) = &runs[0];
            let numbers: Vec<String> = runs.iter().map(|(number, _)| number.to_string()).collect();
            let numbers = numbers.join(", ");
            format!("runs {numbers} are left out of {figures}; in run {first}: {cause}")
        }
    };
    found.into_iter().map(line).collect()
}

/// Returns the invalid figures of `run` and the cause, one entry per instrument.
pub(crate) fn left_out(run: &Run) -> Vec<LeftOut> {
    let sound = run.measurements.iter().filter(|one| one.invalid.is_none());
    let line = |measured: &Measured| {
        let figures = measured.measurement.figures.iter();
        let spoilt = figures.filter_map(|figure| {
            let name = FigureName::of(&measured.instrument, figure);
            Some((name.to_string(), run.spoilt(measured, figure)?))
        });
        let (names, causes): (BTreeSet<String>, BTreeSet<String>) = spoilt.unzip();
        (!names.is_empty()).then(|| LeftOut {
            figures: Vec::from_iter(names).join(", "),
            cause: Vec::from_iter(causes).join("; "),
        })
    };
    sound.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::late_pings;

    #[test]
    fn runs_without_the_same_figures_share_a_line() {
        let record = late_pings(2);
        let mut second = record.runs[0].clone();
        second.repeat = 2;
        let cause = "2 of 100 packets up left more than 1 ms late";
        assert_eq!(
            of_all([&record.runs[0], &second].into_iter()),
            [format!(
                "runs 1, 2 are left out of ping.lost_percent.mean, ping.rtt_ms.p99; in run 1: {cause}"
            )]
        );
        assert_eq!(
            of_all(std::iter::once(&second)),
            [format!(
                "run 2 is left out of ping.lost_percent.mean, ping.rtt_ms.p99: {cause}"
            )]
        );
    }
}
