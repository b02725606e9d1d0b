//! The swept fields of a plan as columns.

use model::{BitsPerSec, Bytes, Nanos, Probability};

use super::{DataColumn, DataKind, DataValue};
use record::plan::{Case, Plan};

/// The fields that sweeps set.
pub(super) struct SweptColumns<'a>(Vec<SweptColumn<'a>>);

struct SweptColumn<'a> {
    /// The path of the field within a case.
    path: &'a str,
    /// The unit of all its values; none if they are texts, such as the names of congestion controls.
    unit: Option<SweptUnit>,
}

/// A unit that swept values may have.
#[derive(Clone, Copy)]
struct SweptUnit {
    /// The end of the column's name.
    ending: &'static str,
    /// Reads a value of this quantity in this unit.
    read: fn(&str) -> Option<f64>,
}

const UNITS: [SweptUnit; 5] = [
    SweptUnit {
        ending: "",
        read: |text| text.parse::<f64>().ok().filter(|one| one.is_finite()),
    },
    SweptUnit {
        ending: "_ms",
        read: |text| Some(text.parse::<Nanos>().ok()?.0 as f64 / 1e6),
    },
    SweptUnit {
        ending: "_bit_per_s",
        read: |text| Some(text.parse::<BitsPerSec>().ok()?.get() as f64),
    },
    SweptUnit {
        ending: "_bytes",
        read: |text| Some(text.parse::<Bytes>().ok()?.0 as f64),
    },
    SweptUnit {
        ending: "_percent",
        read: |text| Some(text.parse::<Probability>().ok()?.percent()),
    },
];

impl<'a> SweptColumns<'a> {
    /// Returns the columns of a plan. A column has numbers if one unit fits every value, and otherwise the values as
    /// the scenario has them.
    pub(super) fn of(plan: &'a Plan) -> Self {
        let column = |path: &'a str| {
            let values: Vec<&str> = plan
                .cases
                .iter()
                .filter_map(|case| case.swept_value(path))
                .collect();
            let fits = |unit: &SweptUnit| values.iter().all(|value| (unit.read)(value).is_some());
            SweptColumn {
                path,
                unit: UNITS.into_iter().find(fits),
            }
        };
        let fields = plan.swept_fields().into_iter();
        Self(fields.map(|field| column(field.path)).collect())
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = DataColumn> {
        self.0.iter().map(|column| match column.unit {
            Some(unit) => {
                DataColumn::new(format!("{}{}", column.path, unit.ending), DataKind::Number)
            }
            None => DataColumn::new(column.path, DataKind::Text),
        })
    }

    /// Returns the values of a case; those of fields that another sweep has are missing.
    pub(super) fn values(&self, case: Option<&'a Case>) -> impl Iterator<Item = DataValue<'a>> {
        self.0.iter().map(move |column| {
            let value = case.and_then(|case| case.swept_value(column.path));
            match (value, column.unit) {
                (None, _) => DataValue::Missing,
                (Some(text), Some(unit)) => {
                    (unit.read)(text).map_or(DataValue::Missing, DataValue::number)
                }
                (Some(text), None) => DataValue::text(text),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn values_of_one_quantity_are_numbers_with_the_unit_in_the_name() {
        for (values, name, second) in [
            (["10ms", "1s"], "field_ms", DataValue::Number(1000.0)),
            (
                ["1mbit", "8kbit"],
                "field_bit_per_s",
                DataValue::Number(8e3),
            ),
            (["1kb", "64KiB"], "field_bytes", DataValue::Number(65536.0)),
            (["0%", "0.5%"], "field_percent", DataValue::Number(0.5)),
            (["1", "1500"], "field", DataValue::Number(1500.0)),
            (["10ms", "none"], "field", DataValue::text("none")),
            (["cubic", "bbr"], "field", DataValue::text("bbr")),
        ] {
            let mut record = record();
            for (case, value) in record.head.plan.cases.iter_mut().zip(values) {
                case.axes = vec![("field".to_owned(), value.to_owned())];
            }
            let plan = record.plan();
            let swept = SweptColumns::of(plan);
            let names: Vec<String> = swept.columns().map(|column| column.name).collect();
            assert_eq!(names, [name]);
            let shown: Vec<DataValue<'_>> = swept.values(Some(&plan.cases[1])).collect();
            assert_eq!(shown, [second]);
            assert_eq!(swept.values(None).next(), Some(DataValue::Missing));
        }
    }
}
