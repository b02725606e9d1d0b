//! The tables of pingpong, blast and transfer, with the columns of nettest ("Experiment on Oct 10") and of "Perl TCP
//! Transfer Test".

use crate::messages::MIB;
use crate::messages::sizes::MessageLoad;
use record::quantity::optional;
use record::table::{Column, Table};
use record::{Direction, Figure, Measurement, Metric, Statistic};
use stats::t_interval;

/// Returns a row per message size: the durations of the runs, their mean and variation, and round-trip times.
pub(crate) fn pingpong_table(measurement: &Measurement, loads: &[MessageLoad]) -> Table {
    let runs = most_runs(measurement, loads);
    let lossy = measurement
        .figures
        .iter()
        .any(|figure| figure.metric == Metric::LostPercent);
    let last: &[&str] = &["lost up\n%", "lost down\n%"];
    let last = if lossy { last } else { &[] };
    let times = [
        "average RTT\nus",
        "95 % interval\nus",
        "median\nus",
        "p99\nus",
    ];
    let header = header(
        &["tested size\nbyte", "iteration\ntimes"],
        runs,
        &[&times, last].concat(),
    );
    let rows = loads.iter().filter_map(|load| {
        let of = SizeResults::new(measurement, load.size)?;
        let mut row = vec![load.size.to_string(), load.count.to_string()];
        row.extend(of.elapsed(runs));
        let mean = of.figure(Metric::RttMs, Statistic::Mean, None);
        let us = |value: Option<f64>| optional(value.map(|ms| ms * 1e3), 2);
        row.push(us(mean.map(|figure| figure.value)));
        row.push(interval(mean, 1e3, 2));
        for statistic in [Statistic::Median, Statistic::P99] {
            let figure = of.figure(Metric::RttMs, statistic, None);
            row.push(us(figure.map(|figure| figure.value)));
        }
        if lossy {
            let lost = |way| of.mean(Metric::LostPercent, way);
            row.extend([Direction::Up, Direction::Down].map(|way| optional(lost(way), 3)));
        }
        Some(row)
    });
    Table::new("", header.into_iter().map(Column::numbers)).with(rows)
}

/// Returns a row per message size: the durations of the runs, their mean and variation, and the throughput.
pub(crate) fn blast_table(measurement: &Measurement, loads: &[MessageLoad]) -> Table {
    let runs = most_runs(measurement, loads);
    let first = ["tested size\nbyte", "log2(size)", "iteration\ntimes"];
    let header = header(
        &first,
        runs,
        &["throughput\nbyte/s", "95 % interval\nbyte/s"],
    );
    let rows = loads.iter().filter_map(|load| {
        let of = SizeResults::new(measurement, load.size)?;
        let log = format!("{:.5}", (load.size as f64).log2());
        let log = log.trim_end_matches('0').trim_end_matches('.').to_owned();
        let mut row = vec![load.size.to_string(), log, load.count.to_string()];
        row.extend(of.elapsed(runs));
        let goodput = of.figure(Metric::GoodputBitPerS, Statistic::Mean, Some(Direction::Up));
        row.push(optional(goodput.map(|figure| figure.value / 8.0), 2));
        row.push(interval(goodput, 0.125, 0));
        Some(row)
    });
    Table::new("", header.into_iter().map(Column::numbers)).with(rows)
}

/// Returns a row per block size: means over the runs of the far end's reads.
pub(crate) fn transfer_table(measurement: &Measurement, blocks: &[usize]) -> Table {
    let header = [
        "block\nbyte",
        "MTU\nbyte",
        "runs",
        "packets\nreceived",
        "bytes\nreceived",
        "avg packet\nsize",
        "total\nelapsed s",
        "network\nelapsed s",
        "average\nms",
        "avg\nms/MiB",
        "avg\nMiB/s",
    ];
    let mtu = measurement
        .facts
        .get("mtu")
        .and_then(|fact| fact.split(' ').next())
        .unwrap_or("–");
    let rows = blocks.iter().filter_map(|&block| {
        let of = SizeResults::new(measurement, block)?;
        let mean = |metric| of.mean(metric, Direction::Up);
        let bytes = mean(Metric::ReceivedBytes);
        let network_s = mean(Metric::NetworkElapsedS);
        let rate = bytes.zip(network_s).map(|(bytes, time)| bytes / MIB / time);
        Some(vec![
            block.to_string(),
            mtu.to_owned(),
            of.elapsed_s.len().to_string(),
            optional(mean(Metric::Reads), 1),
            optional(bytes, 0),
            optional(mean(Metric::ReadSizeBytes), 2),
            optional(mean(Metric::ElapsedS), 6),
            optional(network_s, 6),
            optional(mean(Metric::ReadTimeMs), 6),
            optional(mean(Metric::TimePerMibMs), 6),
            optional(rate, 1),
        ])
    });
    Table::new("", header.map(Column::numbers)).with(rows)
}

/// The results of one message size.
struct SizeResults<'a> {
    size: u64,
    figures: &'a [Figure],
    /// Duration of each run in seconds.
    elapsed_s: Vec<f64>,
}

impl<'a> SizeResults<'a> {
    /// Returns the results of this size, or `None` if no run of it was completed.
    fn new(measurement: &'a Measurement, size: usize) -> Option<Self> {
        let size = size as u64;
        let elapsed_s: Vec<f64> = measurement
            .samples
            .iter()
            .filter(|s| s.metric == Metric::ElapsedS && s.size == Some(size))
            .map(|sample| sample.value)
            .collect();
        (!elapsed_s.is_empty()).then_some(Self {
            size,
            figures: &measurement.figures,
            elapsed_s,
        })
    }

    fn figure(
        &self,
        metric: Metric,
        statistic: Statistic,
        direction: Option<Direction>,
    ) -> Option<&'a Figure> {
        let wanted = (metric, statistic, direction, Some(self.size));
        self.figures
            .iter()
            .find(|f| (f.metric, f.statistic, f.direction, f.size) == wanted)
    }

    fn mean(&self, metric: Metric, way: Direction) -> Option<f64> {
        let figure = self.figure(metric, Statistic::Mean, Some(way));
        figure.map(|figure| figure.value)
    }

    /// Returns the runs, their mean, the mean absolute deviation that nettest calls variation, and the standard
    /// deviation.
    fn elapsed(&self, runs: usize) -> impl Iterator<Item = String> {
        let times = &self.elapsed_s;
        let mean = t_interval::mean(times);
        let variation = t_interval::mean_deviation(times);
        let each = (0..runs).map(|run| times.get(run).copied());
        let all = each.chain([mean, variation, t_interval::sample_sd(times)]);
        all.map(|value| optional(value, 6))
    }
}

fn most_runs(measurement: &Measurement, loads: &[MessageLoad]) -> usize {
    let of_sizes = loads
        .iter()
        .filter_map(|load| SizeResults::new(measurement, load.size));
    of_sizes.map(|of| of.elapsed_s.len()).max().unwrap_or(0)
}

fn header(first: &[&str], runs: usize, last: &[&str]) -> Vec<String> {
    let ordinal = |run| match run {
        1 => "1st\ns".to_owned(),
        2 => "2nd\ns".to_owned(),
        3 => "3rd\ns".to_owned(),
        _ => format!("{run}th\ns"),
    };
    let mut header: Vec<String> = first.iter().map(|title| (*title).to_owned()).collect();
    header.extend((1..=runs).map(ordinal));
    let last = ["AVG\ns", "variation\ns", "SD\ns"].iter().chain(last);
    header.extend(last.map(|title| (*title).to_owned()));
    header
}

fn interval(figure: Option<&Figure>, factor: f64, digits: usize) -> String {
    let interval = figure.and_then(|figure| figure.interval);
    interval.map_or_else(String::new, |[low, high]| {
        format!("{:.digits$} to {:.digits$}", low * factor, high * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Sample;

    fn runs(size: u64, elapsed_s: &[f64]) -> Measurement {
        let samples = elapsed_s.iter().zip(1..);
        let samples =
            samples.map(|(time, run)| Sample::new(0.0, Metric::ElapsedS, run, *time).size(size));
        Measurement {
            samples: samples.collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn a_row_of_nettest_has_its_average_and_its_variation() {
        let mut measurement = runs(1, &[14.19, 14.18, 14.12, 14.23, 14.14]);
        let mean = Figure::new(Metric::RttMs, Statistic::Mean, 0.141_72).size(1);
        measurement.figures.push(mean.within(0.14, 0.15));
        let count = 100_000;
        let table = pingpong_table(&measurement, &[MessageLoad { size: 1, count }]);
        for cell in [
            "14.172000",
            "0.033600",
            "0.043243",
            "141.72",
            "140.00 to 150.00",
        ] {
            assert!(
                table.rows[0].iter().any(|c| c.text == cell),
                "{cell}: {table:?}"
            );
        }
    }

    #[test]
    fn a_blast_s_throughput_is_in_bytes() {
        let mut measurement = runs(98_304, &[835.75, 835.81, 835.69, 835.76, 835.70]);
        let goodput = Figure::new(Metric::GoodputBitPerS, Statistic::Mean, 11_762_481.72 * 8.0)
            .size(98_304)
            .toward(Direction::Up);
        measurement.figures.push(goodput);
        let load = MessageLoad {
            size: 98_304,
            count: 100_000,
        };
        let table = blast_table(&measurement, &[load]);
        for cell in ["16.58496", "835.742000", "0.037600", "11762481.72"] {
            assert!(
                table.rows[0].iter().any(|c| c.text == cell),
                "{cell}: {table:?}"
            );
        }
    }

    #[test]
    fn without_a_completed_run_there_is_no_table() {
        let measurement = Measurement::failed("refused");
        assert!(transfer_table(&measurement, &[1024]).rows.is_empty());
    }
}
