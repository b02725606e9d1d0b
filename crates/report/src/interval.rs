//! Formats a value with its 95 % confidence interval in the form that all reports share, and describes the scope of the
//! interval.

use record::Metric;
use record::quantity::{counted, number, quantity, scale_for};
use stats::digits::{decimals, fixed, significant};

/// A 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConfidenceInterval {
    /// The lower and the upper end.
    pub(crate) ends: [f64; 2],
    pub(crate) of: IntervalScope,
}

/// The quantity that an interval contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntervalScope {
    /// The network's behaviour in one run, as the instrument reports it.
    TheRun,
    /// The mean rate that one run would have had over a long time under the same conditions, estimated from the
    /// variation of its intervals. It is wider than the interval of the network's behaviour in that run.
    Intervals,
    /// The mean over this many runs, estimated from their scatter.
    Runs(usize),
}

/// The scopes of the intervals of a column, for its heading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    /// Whether one of them is for a single run.
    in_the_run: bool,
    /// Whether one of them is for the intervals of a single run.
    of_intervals: bool,
    /// The least and the greatest number of runs of the others.
    runs: Option<[usize; 2]>,
}

/// Formats value and interval: "3.12 ± 0.11", or "10.00 [10.00, 10.80]" if the ends are not at the same distance from
/// the value.
pub(crate) fn with_interval(value: f64, ends: Option<[f64; 2]>) -> String {
    match ends {
        None => number(value),
        Some(ends) => format!("{} {}", of_interval(value, ends), around(value, ends)),
    }
}

/// Formats a value to as many decimal places as its interval has.
pub(crate) fn of_interval(value: f64, ends: [f64; 2]) -> String {
    places(value, ends).map_or_else(|| number(value), |places| fixed(value, places))
}

/// Formats the interval alone, to as many decimal places as its value: "± 0.11", or "[10.00, 10.80]".
pub(crate) fn around(value: f64, ends: [f64; 2]) -> String {
    let Some(places) = places(value, ends) else {
        return "± 0".to_owned();
    };
    if is_centred(value, ends, places) {
        return format!("± {}", fixed(ends[1] - value, places));
    }
    let [low, high] = ends.map(|end| fixed(end, places));
    format!("[{low}, {high}]")
}

/// Returns the number of decimal places that show the half-width to two digits; `None` for an interval without width. Beside a value at
/// one end of a wide interval, two digits of the value are shown if it would else be lost: "3.7 [3.5, 540.0]", not "0 [0, 540]".
fn places(value: f64, ends: [f64; 2]) -> Option<i32> {
    let places = decimals((ends[1] - ends[0]) / 2.0)?;
    if is_centred(value, ends, places) {
        return Some(places);
    }
    match significant(value, 1) {
        Some(first) if first > places => significant(value, 2),
        _ => Some(places),
    }
}

/// Returns whether both ends are at the same distance from the value, as far as this many decimal places show.
fn is_centred(value: f64, ends: [f64; 2], places: i32) -> bool {
    /// Tolerance for rounding errors of floating-point sums.
    const ROUNDING: f64 = 1e-6;
    let [below, above] = [value - ends[0], ends[1] - value];
    let alike = (below - above).abs() <= ROUNDING * below.abs().max(above.abs());
    let are_shown_alike = || fixed(below, places) == fixed(above, places);
    below >= 0.0 && above >= 0.0 && (alike || are_shown_alike())
}

/// Formats a metric's value and its interval, both with the unit and to the same number of decimal places: "1.0 %",
/// "[0.5, 2.0] %".
pub(crate) fn in_words(metric: Metric, value: f64, ends: [f64; 2]) -> [String; 2] {
    let (by, unit) = scale_for(metric, value);
    let (scaled, ends) = (value / by, ends.map(|end| end / by));
    let value = match places(scaled, ends) {
        None => quantity(metric, value),
        Some(_) => format!("{} {unit}", of_interval(scaled, ends)),
    };
    let interval = format!("{} {unit}", around(scaled, ends));
    [value, interval].map(|text| text.trim_end().to_owned())
}

impl ConfidenceInterval {
    /// Converts the interval to a unit that is `by` times its own.
    pub(crate) fn in_units_of(self, by: f64) -> Self {
        Self {
            ends: self.ends.map(|end| end / by),
            ..self
        }
    }
}

impl IntervalScope {
    /// Formats the scope: "in the run", "over 5 runs".
    pub(crate) fn words(self) -> String {
        match self {
            Self::TheRun => "in the run".to_owned(),
            Self::Intervals => "over the run's intervals".to_owned(),
            Self::Runs(count) => format!("over {}", counted(count, "run")),
        }
    }
}

impl Label {
    pub(crate) fn of(all: impl IntoIterator<Item = IntervalScope>) -> Self {
        let mut label = Self::default();
        for of in all {
            match of {
                IntervalScope::TheRun => label.in_the_run = true,
                IntervalScope::Intervals => label.of_intervals = true,
                IntervalScope::Runs(count) => {
                    let [least, most] = label.runs.unwrap_or([count, count]);
                    label.runs = Some([least.min(count), most.max(count)]);
                }
            }
        }
        label
    }

    /// Formats the heading: "in the run", "over 5 runs", "over 2 to 5 runs". If both kinds occur, it is that of several
    /// runs. `None` without intervals.
    pub(crate) fn heading(self) -> Option<String> {
        match self.runs {
            Some([least, most]) if least < most => Some(format!("over {least} to {most} runs")),
            Some([_, most]) => Some(IntervalScope::Runs(most).words()),
            None if self.in_the_run => Some(IntervalScope::TheRun.words()),
            None => self.of_intervals.then(|| IntervalScope::Intervals.words()),
        }
    }

    /// Returns the scope to print beside a value, if the heading does not cover it.
    pub(crate) fn beside(self, of: IntervalScope) -> Option<String> {
        let is_headed = match of {
            IntervalScope::Runs(_) => true,
            IntervalScope::TheRun => self.runs.is_none(),
            IntervalScope::Intervals => self.runs.is_none() && !self.in_the_run,
        };
        (!is_headed).then(|| of.words())
    }

    /// Explains the intervals in sentences.
    pub(crate) fn meaning(self) -> String {
        let mut text = String::new();
        if self.runs.is_some() {
            text += " Over N runs: the 95 % interval of the mean, from the scatter of the runs: Student's t, or Stein's for the figure \
                     that decides the number of runs. Runs that are all equal do not show how they scatter, and have none.";
        }
        if self.in_the_run {
            text += " In the run: the 95 % interval of what the network did in the only run, as the instrument states it; it says \
                     nothing about other runs.";
        }
        if self.of_intervals {
            text += " Over the run's intervals: the 95 % interval of the mean that a run of any length would have had under the same \
                     conditions, from how the intervals of the only run vary.";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asymmetric_ends_are_printed_as_an_interval() {
        for (value, ends, text) in [
            (10.0, [10.0, 10.8], "10.00 [10.00, 10.80]"),
            (20.5, [19.9, 20.4], "20.50 [19.90, 20.40]"),
            (0.0, [0.0, 2.5], "0.0 [0.0, 2.5]"),
            (3.7, [3.5, 540.0], "3.7 [3.5, 540.0]"),
            (8.0, [-15.0, 31.0], "8 ± 23"),
            (3.126, [3.02, 3.232], "3.13 ± 0.11"),
            (3.126, [3.0199, 3.2322], "3.13 ± 0.11"),
            (943.5, [943.5, 943.52], "943.500 [943.500, 943.520]"),
            (13_575.131, [13_163.1, 13_987.2], "13580 ± 410"),
            (50.0, [50.0, 50.0], "50.00 ± 0"),
        ] {
            assert_eq!(with_interval(value, Some(ends)), text);
        }
        assert_eq!(with_interval(3.0, None), "3.000");
    }

    #[test]
    fn a_heading_has_the_scope_of_its_intervals_and_a_cell_a_different_one() {
        let label = Label::of([
            IntervalScope::Runs(5),
            IntervalScope::TheRun,
            IntervalScope::Runs(2),
        ]);
        assert_eq!(label.heading().unwrap(), "over 2 to 5 runs");
        assert_eq!(label.beside(IntervalScope::TheRun).unwrap(), "in the run");
        assert_eq!(label.beside(IntervalScope::Runs(5)), None);
        let label = Label::of([IntervalScope::TheRun]);
        assert_eq!(label.heading().unwrap(), "in the run");
        assert_eq!(label.beside(IntervalScope::TheRun), None);
        assert_eq!(Label::default().heading(), None);
    }
}
