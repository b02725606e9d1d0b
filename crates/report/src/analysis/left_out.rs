//! Invalid figures of runs that otherwise count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use record::figure_name::FigureName;
use record::{Measured, Run};

use crate::field_words::listed;
use crate::{distinct, figure_words};

/// Greatest number of figures that are named.
const MOST_NAMED: usize = 4;

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
            Some((name, run.spoilt(measured, figure)?))
        });
        let (names, causes): (BTreeSet<FigureName>, BTreeSet<String>) = spoilt.unzip();
        (!names.is_empty()).then(|| LeftOut {
            figures: in_words(&names, &measured.instrument),
            cause: Vec::from_iter(causes).join("; "),
        })
    };
    sound.filter_map(line).collect()
}

/// Lists figures of one instrument in words: "the median round-trip time and the loss of ping".
fn in_words(names: &BTreeSet<FigureName>, instrument: &str) -> String {
    let all: Vec<&FigureName> = names.iter().collect();
    let words = all.iter().map(|name| figure_words::among(name, &all));
    let mut words = distinct(words.map(|words| format!("the {words}")));
    if words.len() > MOST_NAMED {
        let others = words.len() - (MOST_NAMED - 1);
        words.truncate(MOST_NAMED - 1);
        words.push(format!("{others} other figures"));
    }
    format!("{} of {instrument}", listed(&words))
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
        let figures = "the 99th percentile of the round-trip time and the loss of ping";
        let cause = "2 of 100 packets up left more than 1 ms late";
        assert_eq!(
            of_all([&record.runs[0], &second].into_iter()),
            [format!(
                "runs 1, 2 are left out of {figures}; in run 1: {cause}"
            )]
        );
        assert_eq!(
            of_all(std::iter::once(&second)),
            [format!("run 2 is left out of {figures}: {cause}")]
        );
    }

    #[test]
    fn many_figures_are_counted() {
        let names = |directions: &[&str]| -> BTreeSet<FigureName> {
            let metrics = [
                "lost_percent.mean",
                "jitter_ms.mean",
                "goodput_bit_per_s.mean",
            ];
            let all = metrics.iter().flat_map(|metric| {
                let name = move |direction: &&str| format!("load.{metric}.{direction}");
                directions.iter().map(name)
            });
            all.map(|name| name.parse().unwrap()).collect()
        };
        let three = in_words(&names(&["up"]), "load");
        assert_eq!(three.matches("the ").count(), 3, "{three}");
        assert!(
            three.ends_with(" of load") && !three.contains("(up)"),
            "{three}"
        );
        let six = in_words(&names(&["up", "down"]), "load");
        assert!(six.ends_with(" and 3 other figures of load"), "{six}");
        assert!(six.contains(" (up)"), "{six}");
    }
}
