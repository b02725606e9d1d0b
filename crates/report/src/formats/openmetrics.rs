//! The figures as OpenMetrics 1.0 text, which Prometheus reads: a gauge for each metric, and one for each end of its
//! interval. Names and values are in Prometheus's base units, as `promtool check metrics` wants them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::analysis::Analysis;
use crate::case_labels::MOST_FIELDS;
use crate::error::Result;
use record::Record;
use record::figure_name::FigureName;
use record::plan::{Case, Plan};
use record::{Direction, Metric, Phase};

/// Names and values of labels.
type Labels = Vec<(String, String)>;

/// The number that a family has of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// The mean over the runs of a case.
    Value,
    /// The lower end of its interval.
    Low,
    /// The upper end of its interval.
    High,
}

/// The samples of every family.
#[derive(Debug, Default)]
struct Families(BTreeMap<(Metric, Part), Vec<(Labels, f64)>>);

/// A base unit, and how many of a metric's units it has.
struct BaseUnit {
    unit: Option<Unit>,
    per_unit: f64,
}

/// Formats every figure of every case as the mean over the runs, under the record's names.
///
/// # Errors
/// None, because every figure of a record can be written.
pub(crate) fn openmetrics(record: &Record) -> Result<String> {
    let experiment = &record.plan().name;
    let fields = SweptLabels::of(record.plan());
    let mut families = Families::default();
    for figures in &Analysis::of(record).cases {
        let swept = fields.of_case(figures.case);
        for (name, figure) in &figures.figures {
            let mut labels = labels(experiment, figures.name(), name);
            labels.extend_from_slice(&swept);
            let mut add = |part: Part, value: f64| {
                let samples = families.0.entry((name.metric, part)).or_default();
                samples.push((labels.clone(), value));
            };
            add(Part::Value, figure.value());
            if let Some([low, high]) = figure.interval.map(|own| own.ends) {
                add(Part::Low, low);
                add(Part::High, high);
            }
        }
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(families));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

impl Collector for Families {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        for ((metric, part), samples) in &self.0 {
            let (name, help) = (part.name(*metric), part.help(*metric));
            let BaseUnit { unit, per_unit } = BaseUnit::of(*metric);
            let mut family =
                page.encode_descriptor(&name, &help, unit.as_ref(), MetricType::Gauge)?;
            for (labels, value) in samples {
                let value = value / per_unit;
                family.encode_family(labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

impl Part {
    /// Returns the name of the family of `metric` without its unit.
    fn name(self, metric: Metric) -> String {
        let ending = match self {
            Self::Value => "",
            Self::Low => "_interval_low",
            Self::High => "_interval_high",
        };
        let name = metric.title().to_lowercase().replace(' ', "_");
        format!("farwire_{name}{ending}")
    }

    /// Returns the help text of the family of `metric`.
    fn help(self, metric: Metric) -> String {
        let value = match self {
            Self::Value => "mean over the runs of a case",
            Self::Low => "lower end of the 95 % interval of the mean over the runs of a case",
            Self::High => "upper end of the 95 % interval of the mean over the runs of a case",
        };
        // The value is in the base unit.
        let meaning = metric
            .meaning()
            .replace(" in percent of ", " as a share of ")
            .replace(" per minute", " per second");
        format!("{meaning} The value is the {value}.")
    }
}

impl BaseUnit {
    fn of(metric: Metric) -> Self {
        let other = |unit: &str| Some(Unit::Other(unit.to_owned()));
        let (unit, per_unit) = match metric.unit() {
            "s" => (Some(Unit::Seconds), 1.0),
            "ms" => (Some(Unit::Seconds), 1e3),
            "us" => (Some(Unit::Seconds), 1e6),
            "%" => (other("ratio"), 100.0),
            "bytes" => (Some(Unit::Bytes), 1.0),
            "byte/s" => (other("bytes_per_second"), 1.0),
            "bit/s" => (other("bytes_per_second"), 8.0),
            "packets" => (other("packets"), 1.0),
            "1/s" => (other("per_second"), 1.0),
            "1/min" => (other("per_second"), 60.0),
            _ => (None, 1.0),
        };
        Self { unit, per_unit }
    }
}

/// The swept fields of a plan as labels.
struct SweptLabels<'a>(Vec<SweptLabel<'a>>);

/// A swept field as a label.
struct SweptLabel<'a> {
    /// The name of the label after `swept_`: "up_loss".
    name: String,
    /// The path of the field within a case.
    path: &'a str,
}

impl<'a> SweptLabels<'a> {
    /// Returns the labels of a plan. The cases of a plan with very many swept fields have none; their names have the values.
    fn of(plan: &'a Plan) -> Self {
        let mut fields = plan.swept_fields();
        if fields.len() > MOST_FIELDS {
            fields.clear();
        }
        // A name may have only these characters, and only once.
        let safe = |letter: char| match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' => letter,
            _ => '_',
        };
        let mut known = BTreeSet::new();
        let labels = fields.into_iter().map(|field| SweptLabel {
            name: field.name.chars().map(safe).collect::<String>(),
            path: field.path,
        });
        Self(
            labels
                .filter(|label| known.insert(label.name.clone()))
                .collect(),
        )
    }

    /// Returns the values of a case, as the scenario has them.
    fn of_case(&self, case: &Case) -> Labels {
        let values = self.0.iter().filter_map(|label| {
            let value = case.swept_value(label.path)?;
            Some((format!("swept_{}", label.name), value.to_owned()))
        });
        values.collect()
    }
}

/// Returns the labels of a figure, as far as it has them.
fn labels(experiment: &str, case: &str, name: &FigureName) -> Labels {
    let labels = [
        ("experiment", Some(experiment.to_owned())),
        ("case", Some(case.to_owned())),
        ("instrument", Some(name.instrument.clone())),
        ("statistic", Some(name.statistic.name().to_owned())),
        (
            "direction",
            name.direction.map(Direction::name).map(str::to_owned),
        ),
        ("phase", name.phase.map(Phase::name).map(str::to_owned)),
        ("size", name.size.map(|size| size.to_string())),
    ];
    let known = labels.into_iter();
    known
        .filter_map(|(label, value)| Some((label.to_owned(), value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::case_labels::tests::swept;
    use strum::IntoEnumIterator as _;

    #[test]
    fn every_figure_is_a_gauge_with_its_interval_in_one_family() {
        let mut record = record();
        record.head.plan.name = "a \"small\"\none".to_owned();
        let text = openmetrics(&record).unwrap();
        let labels = "experiment=\"a \\\"small\\\"\\none\",case=\"slow\",instrument=\"ping\",statistic=\"median\"";
        for line in [
            "# HELP farwire_rtt_seconds Round-trip time of a probe answered in time. The value is the mean over the runs of a case.\n",
            "# TYPE farwire_rtt_seconds gauge\n",
            "# UNIT farwire_rtt_seconds seconds\n",
            &format!("farwire_rtt_seconds{{{labels}}} 0.003125\n"),
            &format!("farwire_rtt_interval_low_seconds{{{labels}}} "),
            &format!("farwire_rtt_interval_high_seconds{{{labels}}} "),
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
        }
        for converted in [
            ",case=\"base\",instrument=\"download\",statistic=\"mean\"} 2000000.0\n",
            ",case=\"slow\",instrument=\"ping\",statistic=\"mean\"} 0.5\n",
        ] {
            assert!(text.contains(converted), "{converted} in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        let mut families: Vec<&str> = text
            .lines()
            .filter_map(|l| l.split(['{', ' ']).next())
            .collect();
        families.retain(|family| *family != "#");
        families.dedup();
        let together = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), together, "{text}");
    }

    #[test]
    fn a_case_of_a_sweep_has_a_label_for_each_field() {
        let record = swept(&[
            &[("link.up.loss", "1%"), ("link.down.loss", "2%")],
            &[("link.up.loss", "3%"), ("link.down.loss", "2%")],
        ]);
        let text = openmetrics(&record).unwrap();
        for up in ["1%", "3%"] {
            let labels = format!(",swept_up_loss=\"{up}\",swept_down_loss=\"2%\"}} ");
            assert!(text.contains(&labels), "{labels} in {text}");
        }
        // Two fields whose names differ in a character that no label has are one label.
        let record = swept(&[&[("a-b", "1"), ("a_b", "2")]]);
        let text = openmetrics(&record).unwrap();
        assert!(text.contains(",swept_a_b=\"1\"} "), "{text}");
        assert!(!text.contains("\"2\""), "{text}");
    }

    #[test]
    fn every_metric_has_its_own_families_in_base_units() {
        // Among those that `promtool check metrics` calls abbreviated or no base units.
        let abbreviated = [
            "s",
            "ms",
            "us",
            "ns",
            "bit",
            "bits",
            "percent",
            "milliseconds",
        ];
        let mut names = BTreeSet::new();
        for metric in Metric::iter() {
            let BaseUnit { unit, per_unit } = BaseUnit::of(metric);
            assert_eq!(unit.is_none(), metric.unit().is_empty(), "{metric:?}");
            assert!(per_unit >= 1.0);
            for part in [Part::Value, Part::Low, Part::High] {
                let unit = unit.as_ref().map_or("", Unit::as_str);
                let name = format!("{}_{unit}", part.name(metric));
                assert!(
                    name.split('_').all(|word| !abbreviated.contains(&word)),
                    "{name}"
                );
                assert!(names.insert(name), "{metric:?} has the name of another");
                let help = part.help(metric);
                assert!(!help.contains(['"', '\\', '\n']), "{help}");
                assert!(
                    !help.contains("percent of ") && !help.contains("minute"),
                    "{help}"
                );
            }
        }
    }
}
