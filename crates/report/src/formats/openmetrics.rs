//! The figures as OpenMetrics 1.0 text, which Prometheus reads: a gauge for each metric, and one for each end of its
//! interval.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::analysis::Analysis;
use crate::error::Result;
use record::Record;
use record::figure_name::FigureName;
use record::{Direction, Phase};

/// Help text of every family.
const HELP: &str = "The mean over the runs of a case, or an end of its interval.";

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

/// The samples of every family, by its name.
#[derive(Debug, Default)]
struct Families(BTreeMap<String, Vec<(Labels, f64)>>);

/// Formats every figure of every case as the mean over the runs, under the record's names and in its units.
///
/// # Errors
/// None, because every figure of a record can be written.
pub(crate) fn openmetrics(record: &Record) -> Result<String> {
    let experiment = &record.plan().name;
    let mut families = Families::default();
    for figures in &Analysis::of(record).cases {
        for (name, figure) in &figures.figures {
            let labels = labels(experiment, figures.name(), name);
            let mut add = |ending: &str, value: f64| {
                let family = format!("farwire_{}{ending}", name.metric.name());
                let samples = families.0.entry(family).or_default();
                samples.push((labels.clone(), value));
            };
            add("", figure.value());
            if let Some([low, high]) = figure.interval.map(|own| own.ends) {
                add("_interval_low", low);
                add("_interval_high", high);
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
        for (name, samples) in &self.0 {
            let mut family = page.encode_descriptor(name, HELP, None, MetricType::Gauge)?;
            for (labels, value) in samples {
                family.encode_family(labels)?.encode_gauge(value)?;
            }
        }
        Ok(())
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
        .filter_map(|(label, value)| Some((label, value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn every_figure_is_a_gauge_with_its_interval_in_one_family() {
        let mut record = record();
        record.head.plan.name = "a \"small\"\none".to_owned();
        let text = openmetrics(&record).unwrap();
        let labels = "experiment=\"a \\\"small\\\"\\none\",case=\"slow\",instrument=\"ping\",statistic=\"median\"";
        for line in [
            "# TYPE farwire_rtt_ms gauge\n",
            &format!("farwire_rtt_ms{{{labels}}} 3.125\n"),
            &format!("farwire_rtt_ms_interval_low{{{labels}}} "),
            &format!("farwire_rtt_ms_interval_high{{{labels}}} "),
        ] {
            assert_eq!(text.matches(line).count(), 1, "{line} in {text}");
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
}
