//! Compares the hosts of a merged record, so that a slow host is not mistaken for a slow condition.

use crate::analysis::{Analysis, CaseFigures};
use crate::figure_tables::or_dash;
use crate::interval::with_interval;
use record::figure_name::FigureName;
use record::plan::PlannedInstrument;
use record::quantity::{counted, number};
use record::table::{Cell, Column, Mark, Table};
use record::{Baseline, HostFacts, Record, Run};
use stats::t_interval;

/// Note on how to read the table.
const NOTE: &str = "column of an instrument: deviation of the host's runs from the mean of their case over all hosts, in percent, as the mean \
                    over its runs with the 95 % interval (Student's t), for cases that ran on several hosts; TCP, round trip: performance of the \
                    host without emulation";

/// A machine of a record.
pub(crate) struct RecordHost<'a> {
    /// Its host name, with its number if several hosts have the same name.
    pub(crate) name: String,
    pub(crate) facts: &'a HostFacts,
    /// The machine's limits without emulated conditions, from each measurement.
    pub(crate) baselines: Vec<Baseline>,
}

/// Returns the machines that took part in a record.
pub(crate) fn of<'a>(record: &'a Record) -> Vec<RecordHost<'a>> {
    let all = &record.head.hosts;
    if all.is_empty() {
        return vec![RecordHost {
            name: record.head.host.name.clone(),
            facts: &record.head.host,
            baselines: record.baselines.clone(),
        }];
    }
    let host = |(number, facts): (usize, &'a HostFacts)| {
        let namesakes = all.iter().filter(|other| other.name == facts.name);
        let own = record
            .baselines
            .iter()
            .filter(|baseline| baseline.host == Some(number));
        RecordHost {
            name: match namesakes.count() {
                1 => facts.name.clone(),
                _ => format!("{} ({number})", facts.name),
            },
            facts,
            baselines: own.cloned().collect(),
        }
    };
    (1..).zip(all).map(host).collect()
}

/// Returns a table with a row for each host; `None` for a record with one host.
pub(super) fn table(analysis: &Analysis<'_>) -> Option<Table> {
    let hosts = of(analysis.record);
    if hosts.len() < 2 {
        return None;
    }
    let figures = figures(analysis);
    let mut columns = vec![Column::words("host"), Column::numbers("runs")];
    columns.extend(figures.iter().map(|(instrument, name)| {
        let title = format!(
            "{instrument}: {} {}",
            name.metric.title(),
            name.statistic.name()
        );
        Column::numbers(format!("{title}\n%"))
    }));
    columns.push(Column::numbers("TCP\nMbit/s"));
    columns.push(Column::numbers("round trip\nms"));
    let row = |(at, host): (usize, &RecordHost<'_>)| {
        let runs = analysis
            .cases
            .iter()
            .flat_map(|case| &case.runs)
            .filter(|run| run.host == Some(at))
            .count();
        let mut cells = vec![Cell::from(host.name.as_str()), runs.to_string().into()];
        let off = figures
            .iter()
            .map(|(_, name)| deviation(analysis, name, at));
        cells.extend(off);
        let baseline = |of: fn(&Baseline) -> Option<f64>, by: f64| {
            let values: Vec<f64> = host.baselines.iter().filter_map(of).collect();
            Cell::from(or_dash(
                t_interval::mean(&values).map(|mean| number(mean / by)),
            ))
        };
        cells.push(baseline(|baseline| baseline.tcp_bit_per_s, 1e6));
        cells.push(baseline(|baseline| baseline.rtt_floor_ms, 1.0));
        cells
    };
    let title = format!("hosts: {}", counted(hosts.len(), "machine"));
    let mut table = Table::new(title, columns).with((1..).zip(&hosts).map(row));
    table.note = NOTE.to_owned();
    Some(table)
}

/// Returns the first main figure of every instrument that has one.
fn figures<'a>(analysis: &Analysis<'a>) -> Vec<(&'a str, FigureName)> {
    let mut found: Vec<(&str, FigureName)> = Vec::new();
    for case in &analysis.cases {
        let used = case.case.instruments.iter();
        let new: Vec<_> = used
            .filter(|one| found.iter().all(|(name, _)| *name != one.name))
            .filter_map(|one| Some((one.name.as_str(), headline(case, one)?)))
            .collect();
        found.extend(new);
    }
    found
}

fn headline(case: &CaseFigures<'_>, instrument: &PlannedInstrument) -> Option<FigureName> {
    let own = || {
        case.figures
            .keys()
            .filter(|name| name.instrument == instrument.name)
    };
    let mut headlines = instrument.profile.headlines.iter();
    headlines.find_map(|headline| {
        let is_it = |name: &&FigureName| {
            (name.metric, name.statistic) == (headline.metric, headline.statistic)
        };
        own().find(is_it).cloned()
    })
}

/// Formats the deviation of a host's runs from the means of their cases; highlighted if the interval does not contain
/// 0.
fn deviation(analysis: &Analysis<'_>, name: &FigureName, host: usize) -> Cell {
    let cases = analysis.cases.iter();
    let all: Vec<f64> = cases
        .flat_map(|case| deviations(case, name, host))
        .collect();
    let Some(mean) = t_interval::mean(&all) else {
        return or_dash(None).into();
    };
    let interval = t_interval::mean_interval(&all);
    let mark = match interval {
        Some([low, high]) if low > 0.0 || high < 0.0 => Mark::Bad,
        _ => Mark::Plain,
    };
    Cell::marked(with_interval(mean, interval), mark)
}

/// Returns the deviation of each of the host's runs from the case's mean in percent, for a case that ran on several
/// hosts.
fn deviations(case: &CaseFigures<'_>, name: &FigureName, host: usize) -> Vec<f64> {
    let value = |run: &&Run| {
        let figure = run.sound(name)?;
        Some((run.host, figure.value))
    };
    let values: Vec<(Option<usize>, f64)> = case.runs.iter().filter_map(value).collect();
    let on_several = values.iter().any(|(other, _)| *other != values[0].0);
    let all: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    let mean = t_interval::mean(&all).filter(|mean| on_several && *mean != 0.0);
    let own = values.into_iter().filter(|(other, _)| *other == Some(host));
    let off = |mean: f64| {
        own.map(move |(_, value)| 100.0 * (value / mean - 1.0))
            .collect()
    };
    mean.map(off).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;
    use crate::formats::markdown::markdown;
    use crate::{Terminal, html, text};
    use record::Metric;
    use record::plan::Repeats;

    /// A record with a case of four runs on each of two hosts, the second of which has round trips a tenth longer.
    fn two_hosts() -> Record {
        let mut record = record();
        record.head.plan.cases.truncate(1);
        record.head.plan.cases[0].repeats = Repeats::fixed(8);
        let facts = |name: &str| HostFacts {
            name: name.to_owned(),
            ..record.head.host.clone()
        };
        record.head.hosts = ["fast", "slow"].map(facts).into();
        let run = |repeat: u32| {
            let mut run = record.runs[0].clone();
            run.repeat = repeat;
            run.host = Some(1 + (repeat as usize - 1) / 4);
            let off = 0.001 * f64::from(repeat % 4);
            let figures = run.measurements.iter_mut();
            for figure in figures.flat_map(|one| &mut one.measurement.figures) {
                if figure.metric == Metric::RttMs {
                    figure.value = if repeat <= 4 { 1.0 } else { 1.1 } + off;
                }
            }
            run
        };
        record.runs = (1..=8).map(run).collect();
        let baseline = |host: usize| Baseline {
            host: Some(host),
            tcp_bit_per_s: Some(1e10 / host as f64),
            ..Baseline::default()
        };
        record.baselines = [1, 2].map(baseline).into();
        record
    }

    #[test]
    fn a_deviating_host_is_shown_with_its_baseline() {
        let record = two_hosts();
        let table = table(&Analysis::of(&record)).unwrap();
        let texts = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect::<Vec<_>>();
        let [fast, slow] = [texts(&table.rows[0]), texts(&table.rows[1])];
        assert_eq!([&fast[0], &fast[1]], ["fast", "4"]);
        assert!(fast[2].starts_with("-4.7"), "{fast:?} {slow:?}");
        assert!(slow[2].starts_with("4.7"), "{fast:?} {slow:?}");
        assert_eq!(table.rows[1][2].mark, Mark::Bad);
        // This value is the same on both hosts.
        assert_eq!(table.rows[1][3].mark, Mark::Plain);
        let tcp = |row: &[String]| row[row.len() - 2].clone();
        assert_eq!(
            [tcp(&fast), tcp(&slow)],
            ["10000", "5000"].map(|text| { number(text.parse::<f64>().unwrap()) })
        );
    }

    #[test]
    fn every_report_has_the_hosts_and_none_counts_as_a_changed_machine() {
        let record = two_hosts();
        for report in [
            text(&record, false, Terminal::NONE),
            text(&record, true, Terminal::NONE),
            markdown(&record).unwrap(),
            html(&record).unwrap(),
        ] {
            assert!(report.contains("fast"), "{report}");
            assert!(report.contains("slow"), "{report}");
            assert!(!report.contains("this machine changed"), "{report}");
        }
    }

    #[test]
    fn a_single_host_is_not_compared() {
        assert!(table(&Analysis::of(&record())).is_none());
        let mut record = two_hosts();
        record.runs.iter_mut().for_each(|run| run.host = Some(1));
        let table = table(&Analysis::of(&record)).unwrap();
        assert_eq!(table.rows[0][2].text, "–");
        // A record from an unknown source may refer to hosts that it does not list.
        record.runs[0].host = Some(99);
        record.baselines[0].host = Some(0);
        html(&record).unwrap();
    }
}
