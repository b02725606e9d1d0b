//! A value with its 95 % interval, in the one form that every report has, and what the interval is of.

use record::quantity::{counted, number, quantity, scale};
use record::{Metric, Statistic};

/// In place of what too few samples do not tell.
pub(crate) const NOT_AVAILABLE: &str = "n/a";

/// Whether a figure speaks of the tail of a distribution, which few samples do not have.
pub(crate) fn is_tail(statistic: Statistic) -> bool {
    matches!(statistic, Statistic::P90 | Statistic::P99)
}

/// A 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConfidenceInterval {
    /// From the least to the greatest.
    pub(crate) ends: [f64; 2],
    pub(crate) of: IntervalScope,
}

/// What an interval is of: never both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntervalScope {
    /// What the network did in one run, as its instrument states it.
    TheRun,
    /// The mean rate that one run would have shown had it gone on for long under the same conditions, estimated from how its
    /// intervals vary. It is wider than the interval of what the network did in that run.
    Intervals,
    /// The mean of so many runs, which scatter.
    Runs(usize),
}

/// Of the intervals of a column, so that its heading says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    /// One of them is of a single run.
    in_the_run: bool,
    /// One of them is of the intervals of a single run.
    of_intervals: bool,
    /// The fewest and the most runs of the others.
    runs: Option<[usize; 2]>,
}

/// "3.125 ± 0.106", or "10.00 [10.00, 10.80]" where the ends do not lie equally far from the value.
pub(crate) fn with_interval(value: f64, ends: Option<[f64; 2]>) -> String {
    match ends {
        None => number(value),
        Some(ends) => format!("{} {}", number(value), around(value, ends, number)),
    }
}

/// The interval alone, in numbers that `shown` writes: "± 0.106", or "[10.00, 10.80]".
pub(crate) fn around(value: f64, ends: [f64; 2], shown: impl Fn(f64) -> String) -> String {
    /// What sums of floating-point numbers may be off by.
    const ROUNDING: f64 = 1e-6;
    let [below, above] = [value - ends[0], ends[1] - value];
    let alike = (below - above).abs() <= ROUNDING * below.abs().max(above.abs());
    if below >= 0.0 && above >= 0.0 && (alike || shown(below) == shown(above)) {
        return format!("± {}", shown(above));
    }
    let [low, high] = ends.map(shown);
    format!("[{low}, {high}]")
}

/// The interval of a metric's value, to the digits that the value has in sentences, with its unit: "[0.500, 2.000] %".
pub(crate) fn in_words(metric: Metric, value: f64, ends: [f64; 2]) -> String {
    let unit = scale(metric).1;
    let shown = |value| {
        let words = quantity(metric, value);
        words.trim_end_matches(unit).trim_end().to_owned()
    };
    let words = around(value, ends, shown);
    format!("{words} {unit}").trim_end().to_owned()
}

impl ConfidenceInterval {
    /// In a unit of which `by` are one.
    pub(crate) fn in_units_of(self, by: f64) -> Self {
        Self {
            ends: self.ends.map(|end| end / by),
            ..self
        }
    }
}

impl IntervalScope {
    /// "in the run", "over 5 runs".
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

    /// "in the run", "over 5 runs", "over 2 to 5 runs"; where both kinds meet, of the latter. Nothing without intervals.
    pub(crate) fn heading(self) -> Option<String> {
        match self.runs {
            Some([least, most]) if least < most => Some(format!("over {least} to {most} runs")),
            Some([_, most]) => Some(IntervalScope::Runs(most).words()),
            None if self.in_the_run => Some(IntervalScope::TheRun.words()),
            None => self.of_intervals.then(|| IntervalScope::Intervals.words()),
        }
    }

    /// What stands beside a value that the heading does not speak of.
    pub(crate) fn beside(self, of: IntervalScope) -> Option<String> {
        let is_headed = match of {
            IntervalScope::Runs(_) => true,
            IntervalScope::TheRun => self.runs.is_none(),
            IntervalScope::Intervals => self.runs.is_none() && !self.in_the_run,
        };
        (!is_headed).then(|| of.words())
    }

    /// What the intervals say, in sentences.
    pub(crate) fn meaning(self) -> String {
        let mut text = String::new();
        if self.runs.is_some() {
            text += " Over N runs: the 95 % interval of the mean of runs, which scatter: Student's t, or Stein's of the figure that \
                     decides how many runs there are.";
        }
        if self.in_the_run {
            text += " In the run: the 95 % interval of what the network did in the only run, as the instrument states it; it says \
                     nothing of other runs.";
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
    fn ends_that_lie_unlike_far_away_are_stated_as_they_are() {
        for (value, ends, text) in [
            (10.0, [10.0, 10.8], "10.00 [10.00, 10.80]"),
            (20.5, [19.9, 20.4], "20.50 [19.90, 20.40]"),
            (0.0, [0.0, 2.5], "0.000 [0.000, 2.500]"),
            (3.125, [3.019, 3.231], "3.125 ± 0.106"),
            (3.125, [3.0191, 3.2312], "3.125 ± 0.106"),
            (943.5, [943.5, 943.52], "943.5 [943.5, 943.5]"),
        ] {
            assert_eq!(with_interval(value, Some(ends)), text);
        }
        assert_eq!(with_interval(3.0, None), "3.000");
    }

    #[test]
    fn a_heading_says_of_what_its_intervals_are_and_a_cell_where_it_differs() {
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
