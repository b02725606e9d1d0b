//! The comparison of the values of one field: between the cases of a sweep, or between records that differ on purpose.
//! All comparisons of a report are judged together, with one probability of error.

use std::cmp::Ordering;

use super::{CaseFigures, FigureOverRuns, Verdict};
use crate::field_words::{FieldValue, Shared};
use record::figure_name::FigureName;
use stats::contrast::{self, Contrast, ContrastScale, SamplePair};

/// The values of one field, compared in one figure.
#[derive(Clone, Debug)]
pub(crate) struct FieldComparison {
    /// The path of the field, which names files.
    pub(crate) path: String,
    /// The field in words: "congestion control".
    pub(crate) field: String,
    /// Other fields, in words, whose values change together with it.
    pub(crate) together: Vec<String>,
    /// The figure.
    pub(crate) figure: FigureName,
    /// Every pair of values under all conditions that both have.
    pub(crate) pairs: Vec<ComparedPair>,
}

/// Two values of the field under the same conditions.
#[derive(Clone, Debug)]
pub(crate) struct ComparedPair {
    /// The conditions.
    pub(crate) shared: Shared,
    /// The two values; the second is compared with the first.
    pub(crate) values: [FieldValue; 2],
    /// The cases in words, or the names of the records.
    pub(crate) sources: [String; 2],
    /// The numbers of runs.
    pub(crate) runs: [usize; 2],
    /// The means over the runs; absent without the figure.
    pub(crate) means: [Option<f64>; 2],
    /// The comparison, or the reason why there is none.
    pub(crate) outcome: Result<Contrast, NotCompared>,
}

/// The reason why two values are not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotCompared {
    /// Fewer runs than a comparison needs, which is [`contrast::FEWEST`] in each.
    TooFewRuns,
    /// A case whose runs are invalid, failed, or are missing.
    Faulty {
        /// Its name, or that of its record.
        source: String,
        /// Its verdict.
        verdict: Verdict,
    },
    /// A case without the figure.
    Missing {
        /// Its name, or that of its record.
        source: String,
    },
    /// A figure of which only a lower bound is known.
    LowerBound {
        /// The name of the case or the record.
        source: String,
    },
    /// Values that are too large or too small for the test.
    OutOfRange,
}

/// A comparison before it is judged.
pub(crate) struct Question<'a> {
    pub(crate) path: String,
    pub(crate) field: String,
    pub(crate) together: Vec<String>,
    pub(crate) figure: FigureName,
    pub(crate) pairs: Vec<PairOfCases<'a>>,
}

/// Two cases to be compared.
#[derive(Clone)]
pub(crate) struct PairOfCases<'a> {
    pub(crate) shared: Shared,
    pub(crate) values: [FieldValue; 2],
    pub(crate) sources: [String; 2],
    pub(crate) cases: [&'a CaseFigures<'a>; 2],
}

/// Judges all comparisons together.
pub(crate) fn judge(questions: Vec<Question<'_>>) -> Vec<FieldComparison> {
    let prepared: Vec<(Question<'_>, Vec<Result<SamplePair<'_>, NotCompared>>)> = questions
        .into_iter()
        .map(|question| {
            let pairs = question.pairs.iter();
            let samples = pairs.map(|pair| pair.samples(&question.figure)).collect();
            (question, samples)
        })
        .collect();
    let told = prepared.iter().flat_map(|(_, samples)| samples);
    let told: Vec<SamplePair<'_>> = told.filter_map(|one| one.as_ref().ok()).copied().collect();
    let mut contrasts = contrast::family(&told).into_iter();
    let mut judged = |sample: Result<SamplePair<'_>, NotCompared>| {
        sample?;
        contrasts.next().flatten().ok_or(NotCompared::OutOfRange)
    };
    let mut all = Vec::new();
    for (question, samples) in prepared {
        let figure = &question.figure;
        let both = question.pairs.into_iter().zip(samples);
        let pairs = both
            .map(|(pair, sample)| pair.with(figure, judged(sample)))
            .collect();
        all.push(FieldComparison {
            path: question.path,
            field: question.field,
            together: question.together,
            pairs,
            figure: question.figure,
        });
    }
    all
}

impl<'a> PairOfCases<'a> {
    fn figures(&self, name: &FigureName) -> [Option<&'a FigureOverRuns>; 2] {
        self.cases.map(|case| case.figures.get(name))
    }

    /// Returns the values to compare. A percentage is compared by its difference, everything else by its ratio, unless
    /// a value is 0 or less.
    fn samples(&self, name: &FigureName) -> Result<SamplePair<'a>, NotCompared> {
        for (case, source) in self.cases.iter().zip(&self.sources) {
            let faults = case.faults.iter().map(|fault| fault.verdict);
            if let Some(verdict) = faults.max() {
                let source = source.clone();
                return Err(NotCompared::Faulty { source, verdict });
            }
        }
        let sound = |at: usize| {
            let source = || self.sources[at].clone();
            let figure = self.cases[at].figures.get(name);
            match figure {
                None => Err(NotCompared::Missing { source: source() }),
                Some(figure) if figure.at_least => {
                    Err(NotCompared::LowerBound { source: source() })
                }
                Some(figure) => Ok(&figure.values[..]),
            }
        };
        let (base, values): (&'a [f64], &'a [f64]) = (sound(0)?, sound(1)?);
        if !contrast::has_enough([base.len(), values.len()]) {
            return Err(NotCompared::TooFewRuns);
        }
        let has_ratio = base.iter().chain(values).all(|value| *value > 0.0);
        let scale = if name.metric.unit() == "%" || !has_ratio {
            ContrastScale::Difference
        } else {
            ContrastScale::Ratio
        };
        Ok(SamplePair {
            base,
            values,
            scale,
        })
    }

    fn with(self, name: &FigureName, outcome: Result<Contrast, NotCompared>) -> ComparedPair {
        let figures = self.figures(name);
        ComparedPair {
            runs: figures.map(|figure| figure.map_or(0, |figure| figure.values.len())),
            means: figures.map(|figure| figure.map(FigureOverRuns::value)),
            shared: self.shared,
            values: self.values,
            sources: self.sources,
            outcome,
        }
    }
}

impl FieldComparison {
    /// Returns the pairs in groups of the same two values, in the order in which they first appear.
    pub(crate) fn by_values(&self) -> Vec<Vec<&ComparedPair>> {
        let mut groups: Vec<Vec<&ComparedPair>> = Vec::new();
        for pair in &self.pairs {
            match groups
                .iter_mut()
                .find(|group| group[0].values == pair.values)
            {
                Some(group) => group.push(pair),
                None => groups.push(vec![pair]),
            }
        }
        groups
    }
}

impl ComparedPair {
    /// Returns whether the second value is above or below the first one, beyond chance; `None` if no difference was
    /// found, or nothing was compared.
    pub(crate) fn finding(&self) -> Option<Ordering> {
        self.outcome.as_ref().ok()?.finding()
    }
}

/// Returns the number of comparisons that were judged together.
pub(crate) fn family(comparisons: &[FieldComparison]) -> usize {
    let pairs = comparisons.iter().flat_map(|one| &one.pairs);
    pairs.filter(|pair| pair.outcome.is_ok()).count()
}
