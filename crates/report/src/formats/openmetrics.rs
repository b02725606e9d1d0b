//! The figures as OpenMetrics 1.0 text, which Prometheus reads: a gauge a metric, and one for each end of its interval.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::analysis::Analysis;
use record::Record;
use record::figure_name::FigureName;
use record::{Direction, Phase};

/// Every figure of every case, mean over the runs, under the record's names and in its units.
///
/// # Errors
/// None: a record's figures can always be written.
pub(crate) fn openmetrics(record: &Record) -> Result<String> {
    let experiment = &record.plan().name;
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    for figures in &Analysis::of(record).cases {
        for (name, figure) in &figures.figures {
            let labels = labels(experiment, figures.name(), name);
            let mut add = |ending: &str, value: f64| {
                let family = format!("farwire_{}{ending}", name.metric.name());
                let line = format!("{family}{{{labels}}} {value}\n");
                *families.entry(family).or_default() += &line;
            };
            add("", figure.value());
            if let Some([low, high]) = figure.interval.map(|own| own.ends) {
                add("_interval_low", low);
                add("_interval_high", high);
            }
        }
    }
    let families = families.iter();
    let text: String = families
        .map(|(family, lines)| format!("# TYPE {family} gauge\n{lines}"))
        .collect();
    Ok(text + "# EOF\n")
}

/// What a figure is of, as far as it has that.
fn labels(experiment: &str, case: &str, name: &FigureName) -> String {
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
    let known = labels.into_iter().filter_map(|(label, value)| {
        let value = value?
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        Some(format!("{label}=\"{value}\""))
    });
    known.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    #[test]
    fn every_figure_is_a_gauge_with_its_interval_and_families_stand_together() {
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
