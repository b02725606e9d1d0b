//! The axes of a sweep. Each has a field and the fields that change together with it.

use std::collections::{BTreeMap, BTreeSet};

use model::{BitsPerSec, Bytes, Nanos, Probability};

use super::axis::{Axis, TickRow};
use crate::case_labels::MOST_FIELDS;
use crate::distinct;
use record::plan::{Case, Plan};
use record::swept::SweptField;

/// Greatest number of values that are not numbers on an axis.
const MOST_NAMES: usize = 12;

/// An axis of a sweep.
pub(super) struct SweptAxis<'a> {
    /// The field whose values are the positions on the axis.
    pub(super) field: SweptField<'a>,
    /// The fields whose values follow from that of the field, because a sweep sets them together.
    companions: Vec<SweptField<'a>>,
    values: FieldValues,
    /// The values of the field in the order of their positions.
    pub(super) steps: Vec<SweptStep>,
}

/// A value of a field, with those of its companions.
pub(super) struct SweptStep {
    /// The value as the scenario has it.
    pub(super) text: String,
    position: f64,
    companions: Vec<Option<String>>,
}

impl<'a> SweptAxis<'a> {
    /// Returns the axes of the cases that sweeps made, in the order of the plan. A field with more than 12 values that
    /// are not numbers has no axis, and a plan with more than [`MOST_FIELDS`] swept fields has none.
    pub(super) fn all(plan: &'a Plan, cases: &[&Case]) -> Vec<Self> {
        let swept: Vec<&Case> = cases
            .iter()
            .copied()
            .filter(|case| !case.axes.is_empty())
            .collect();
        let count = |field: &SweptField<'_>| {
            let values = swept.iter().map(|case| case.swept_value(field.path));
            values.collect::<BTreeSet<_>>().len()
        };
        let mut fields: Vec<SweptField<'a>> = plan.swept_fields();
        if fields.len() > MOST_FIELDS {
            return Vec::new();
        }
        fields.retain(|field| count(field) > 1);
        // The field with the most values, preferably numbers, gives the positions.
        let mut by_count = fields.clone();
        by_count.sort_by_key(|field| {
            let is_name = !matches!(
                FieldValues::of(field.path, &swept),
                Some(FieldValues::Unit(..))
            );
            (std::cmp::Reverse(count(field)), is_name)
        });
        let mut taken: Vec<&str> = Vec::new();
        let mut axes: Vec<Self> = Vec::new();
        for field in by_count {
            if taken.contains(&field.path) {
                continue;
            }
            taken.push(field.path);
            let free = fields.iter().filter(|other| !taken.contains(&other.path));
            let companions: Vec<SweptField<'a>> = free
                .filter(|other| determines(&swept, field.path, other.path))
                .copied()
                .collect();
            taken.extend(companions.iter().map(|other| other.path));
            axes.extend(Self::of(field, companions, &swept));
        }
        let place = |axis: &Self| {
            fields
                .iter()
                .position(|field| field.path == axis.field.path)
        };
        axes.sort_by_key(place);
        axes
    }

    fn of(field: SweptField<'a>, companions: Vec<SweptField<'a>>, cases: &[&Case]) -> Option<Self> {
        let values = FieldValues::of(field.path, cases)?;
        let mut steps: Vec<SweptStep> = Vec::new();
        for case in cases {
            let Some(text) = case.swept_value(field.path) else {
                continue;
            };
            let Some(position) = values.number(text) else {
                continue;
            };
            if steps.iter().any(|step| step.text == text) {
                continue;
            }
            let of_companion = |one: &SweptField<'_>| case.swept_value(one.path).map(str::to_owned);
            steps.push(SweptStep {
                text: text.to_owned(),
                position,
                companions: companions.iter().map(of_companion).collect(),
            });
        }
        steps.sort_by(|a, b| a.position.total_cmp(&b.position));
        Some(Self {
            field,
            companions,
            values,
            steps,
        })
    }

    /// Returns all fields of the axis.
    pub(super) fn fields(&self) -> Vec<SweptField<'a>> {
        let own = std::iter::once(self.field);
        own.chain(self.companions.iter().copied()).collect()
    }

    /// Returns whether the values are numbers, so that what lies between two of them has a meaning.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.values, FieldValues::Unit(..))
    }

    /// Returns the position of a case on the axis; `None` for a case without the field.
    pub(super) fn position(&self, case: &Case) -> Option<f64> {
        self.values.number(case.swept_value(self.field.path)?)
    }

    /// Returns the title of the axis: the field and its unit.
    pub(super) fn title(&self) -> String {
        match self.values {
            FieldValues::Names(_) | FieldValues::Unit("", _) => self.field.name.to_owned(),
            FieldValues::Unit(unit, _) => format!("{}, {unit}", self.field.name),
        }
    }

    /// Returns the names of the field and of its companions: "delay, with loss and queue".
    pub(super) fn names(&self) -> String {
        let companions: Vec<&str> = self.companions.iter().map(|field| field.name).collect();
        match companions[..] {
            [] => self.field.name.to_owned(),
            _ => format!("{}, with {}", self.field.name, companions.join(" and ")),
        }
    }

    /// Returns the axis of a plot for these positions, with a row of texts for each companion.
    pub(super) fn for_plot(&self, positions: impl Iterator<Item = f64>) -> Axis {
        let title = self.title();
        let axis = match &self.values {
            FieldValues::Names(names) => Axis::names(&title, names.clone()),
            FieldValues::Unit("bytes", _) => Axis::log2(&title, positions),
            FieldValues::Unit(..) => Axis::fitting(&title, positions),
        };
        let rows = self.companions.iter().enumerate().map(|(at, companion)| {
            let ticks = self.steps.iter().filter_map(|step| {
                let text = step.companions[at].clone()?;
                Some((step.position, text))
            });
            TickRow {
                title: companion.name.to_owned(),
                ticks: ticks.collect(),
            }
        });
        rows.fold(axis, Axis::with_row)
    }
}

/// Returns whether the value of one field follows from that of another in all cases.
fn determines(cases: &[&Case], path: &str, other: &str) -> bool {
    let mut known: BTreeMap<Option<&str>, Option<&str>> = BTreeMap::new();
    cases.iter().all(|case| {
        let value = case.swept_value(other);
        *known.entry(case.swept_value(path)).or_insert(value) == value
    })
}

/// A function that parses a text as a number in a unit.
type Number = fn(&str) -> Option<f64>;

/// The values of a field on an axis.
enum FieldValues {
    Unit(&'static str, Number),
    /// Values that are not numbers, in the order of the plan.
    Names(Vec<String>),
}

impl FieldValues {
    fn of(path: &str, cases: &[&Case]) -> Option<Self> {
        const UNITS: [(&str, Number); 5] = [
            ("", |text| text.parse().ok()),
            ("ms", |text| {
                Some(text.parse::<Nanos>().ok()?.0 as f64 / 1e6)
            }),
            ("%", |text| {
                Some(text.parse::<Probability>().ok()?.percent())
            }),
            ("Mbit/s", |text| {
                Some(text.parse::<BitsPerSec>().ok()?.get() as f64 / 1e6)
            }),
            ("bytes", |text| Some(text.parse::<Bytes>().ok()?.0 as f64)),
        ];
        let values: Vec<&str> = cases
            .iter()
            .filter_map(|case| case.swept_value(path))
            .collect();
        let mut units = UNITS.into_iter();
        let fits = units.find(|(_, number)| {
            values
                .iter()
                .all(|value| number(value).is_some_and(f64::is_finite))
        });
        if let Some((unit, number)) = fits {
            return Some(Self::Unit(unit, number));
        }
        let names = distinct(values.into_iter().map(str::to_owned));
        (names.len() <= MOST_NAMES).then_some(Self::Names(names))
    }

    fn number(&self, text: &str) -> Option<f64> {
        match self {
            Self::Unit(_, number) => number(text),
            Self::Names(names) => names
                .iter()
                .position(|name| name == text)
                .map(|at| at as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case_labels::tests::swept;

    fn names(axes: &[&[(&str, &str)]]) -> Vec<String> {
        let record = swept(axes);
        let plan = record.plan();
        let cases: Vec<&Case> = plan.cases.iter().collect();
        let axes = SweptAxis::all(plan, &cases);
        axes.iter().map(SweptAxis::names).collect()
    }

    #[test]
    fn fields_that_are_swept_together_share_an_axis() {
        let zipped = names(&[
            &[
                ("tcp.name", "x"),
                ("link.delay", "1ms"),
                ("link.loss", "1%"),
            ],
            &[
                ("tcp.name", "y"),
                ("link.delay", "2ms"),
                ("link.loss", "1%"),
            ],
            &[
                ("tcp.name", "z"),
                ("link.delay", "3ms"),
                ("link.loss", "5%"),
            ],
        ]);
        assert_eq!(zipped, ["delay, with name and loss"]);
        let crossed = names(&[
            &[("link.delay", "1ms"), ("tcp.name", "x")],
            &[("link.delay", "1ms"), ("tcp.name", "y")],
            &[("link.delay", "2ms"), ("tcp.name", "x")],
            &[("link.delay", "2ms"), ("tcp.name", "y")],
        ]);
        assert_eq!(crossed, ["delay", "name"]);
    }

    #[test]
    fn an_axis_has_its_values_in_order_and_those_of_its_companions() {
        let record = swept(&[
            &[("link.delay", "100ms"), ("link.loss", "5%")],
            &[("link.delay", "1ms"), ("link.loss", "1%")],
        ]);
        let plan = record.plan();
        let cases: Vec<&Case> = plan.cases.iter().collect();
        let axes = SweptAxis::all(plan, &cases);
        let steps = axes[0].steps.iter().map(|step| step.text.as_str());
        assert_eq!(steps.collect::<Vec<_>>(), ["1ms", "100ms"]);
        let axis = axes[0].for_plot([1.0, 100.0].into_iter());
        assert_eq!(axis.full_title(), "delay, ms; below it: loss");
        let ticks = &axis.rows()[0].ticks;
        assert_eq!(*ticks, [(1.0, "1%".to_owned()), (100.0, "5%".to_owned())]);
    }

    #[test]
    fn a_field_without_values_in_some_cases_is_an_axis_of_the_others() {
        let apart = names(&[
            &[("link.delay", "1ms")],
            &[("link.delay", "2ms")],
            &[("link.loss", "1%")],
            &[("link.loss", "2%")],
        ]);
        assert_eq!(apart, ["delay", "loss"]);
    }
}
