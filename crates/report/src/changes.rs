//! Formats the change between two printed values, in the unit in which they are printed.

use record::Metric;
use record::quantity::scale_for;
use stats::change::{Change, TOO_FEW};
use stats::digits;
use stats::hodges_lehmann::Shift;

/// A change in the cell of a table.
pub(crate) struct CellChange {
    pub(crate) text: String,
    /// Whether there are too few runs for an interval, which the text does not say.
    pub(crate) is_of_few: bool,
}

/// Formats the change of the means: "12.3 % lower, 95 % interval 11.8 to 12.9". If the shift between the two samples
/// points in the opposite direction beyond chance, the text says that the distributions differ in shape.
pub(crate) fn in_words(change: &Change, shift: Option<&Shift>, metric: Metric) -> String {
    let (by, unit) = unit(change, metric);
    let mut words = change.words(metric.sense(), (by, unit));
    if let Some(shift) = shift.filter(|shift| change.differs_in_shape(shift, unit)) {
        let typical = match shift.percent.filter(|_| unit != "%") {
            Some(percent) => format!("{} %", digits::signed(percent.value, 1)),
            None => format!("{} {unit}", digits::signed(shift.absolute.value / by, 2)),
        };
        words +=
            &format!("; the distributions differ in shape: the Hodges–Lehmann shift is {typical}");
    }
    words
}

/// Formats the change for a table, which says once that there are too few runs for intervals.
pub(crate) fn in_cell(change: &Change, shift: Option<&Shift>, metric: Metric) -> CellChange {
    let text = in_words(change, shift, metric);
    let estimate = text.split_once(TOO_FEW).map(|(estimate, _)| estimate);
    CellChange {
        is_of_few: estimate.is_some(),
        text: estimate.unwrap_or(&text).to_owned(),
    }
}

/// Formats the change for a column with the heading percent or percentage points: "+12.3", or with its unit if it has
/// another one.
pub(crate) fn in_column(change: &Change, metric: Metric) -> String {
    change.in_column(unit(change, metric))
}

/// Returns the unit in which the two means are printed.
fn unit(change: &Change, metric: Metric) -> (f64, &'static str) {
    scale_for(metric, change.means[0].max(change.means[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_that_fell_while_most_runs_grew_is_reported_as_a_change_of_shape() {
        let before = [100.0, 100.1, 100.2, 100.1, 100.0, 100.2].map(|rate| rate * 1e6);
        let after = [
            101.0, 101.1, 101.0, 101.2, 101.1, 101.0, 101.1, 101.2, 101.0, 60.0,
        ]
        .map(|rate| rate * 1e6);
        let (change, shift) = (Change::of(&before, &after), Shift::of(&before, &after));
        let words = in_words(&change.unwrap(), shift.as_ref(), Metric::GoodputBitPerS);
        assert!(
            words.ends_with("differ in shape: the Hodges–Lehmann shift is +1.0 %"),
            "{words}"
        );
    }
    #[test]
    fn a_change_of_too_few_runs_is_an_estimate_alone_in_a_cell() {
        let change = Change::of(&[10e6], &[11e6]).unwrap();
        let cell = in_cell(&change, None, Metric::GoodputBitPerS);
        assert!(
            cell.is_of_few && cell.text.starts_with("+10"),
            "{}",
            cell.text
        );
        let change = Change::of(&[9e6, 10e6, 10e6, 11e6], &[20e6, 21e6, 21e6, 22e6]).unwrap();
        let cell = in_cell(&change, None, Metric::GoodputBitPerS);
        assert!(
            !cell.is_of_few && cell.text.contains("95 % interval"),
            "{}",
            cell.text
        );
    }
}
