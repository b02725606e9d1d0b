//! What a session's journal adds up to: samples, figures with their intervals, and what they mean.

use std::collections::HashMap;

use super::delay::{self, Delays, Offset, Relation};
use super::journal::{Journal, Received};
use super::loss::{self, Losses};
use super::sender::ProbePlan;
use super::statistics::{Distribution, mean_with_interval};
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::proportion::wilson;

/// A journal, judged.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) journal: Journal,
    /// Of every probe answered in time.
    pub(crate) delays: Vec<Delays>,
    pub(crate) offset: Option<Offset>,
    pub(crate) losses: Losses,
    /// Answers whose stamps cannot be: the wall clock of an end was set.
    pub(crate) impossible: u64,
    pub(super) own_error_ms: Option<f64>,
    pub(super) stamp_error_ms: f64,
}

impl Outcome {
    /// `own_error_ms` is that of this machine's clock, if it is synchronised; `stamp_error_ms` is how far off the stamps
    /// of a packet are taken to be, one way.
    pub(crate) fn new(journal: Journal, own_error_ms: Option<f64>, stamp_error_ms: f64) -> Self {
        let (delays, impossible) = delay::delays(&journal);
        Self {
            offset: delay::offset(&journal, &delays, own_error_ms),
            losses: loss::losses(&journal),
            delays,
            impossible,
            journal,
            own_error_ms,
            stamp_error_ms,
        }
    }

    /// As a measurement.
    pub(crate) fn measurement(&self, plan: &ProbePlan) -> Measurement {
        Measurement {
            samples: self.samples(),
            figures: self.figures(),
            facts: self.facts(plan),
            ..Measurement::default()
        }
    }

    /// One-way delay of a probe in ms, where the clocks are related.
    pub(crate) fn one_way(&self, delays: &Delays, direction: Direction) -> Option<f64> {
        let offset = self.offset.filter(|o| o.relation != Relation::Unrelated)?;
        match direction {
            Direction::Up => delays.up.map(|up| up - offset.ms),
            Direction::Down => delays.down.map(|down| down + offset.ms),
        }
    }

    /// IPDV (RFC 3393) of each probe that was answered, as was the one before it: signed, in ms.
    pub(crate) fn ipdv(&self, direction: Direction) -> HashMap<usize, f64> {
        let pairs = self.delays.windows(2).filter_map(|pair| {
            let (former, latter) = (&pair[0], &pair[1]);
            let varied = raw(latter, direction)? - raw(former, direction)?;
            (former.probe + 1 == latter.probe).then_some((latter.probe, varied))
        });
        pairs.collect()
    }

    /// Seconds from the first probe's sending to this one's.
    pub(crate) fn at_s(&self, probe: usize) -> f64 {
        let probes = &self.journal.probes;
        (probes[probe].sent.0 - probes[0].sent.0) as f64 / 1e9
    }

    fn samples(&self) -> Vec<Sample> {
        let index = |probe: usize| probe as u64 + 1;
        let mut samples = Vec::new();
        for d in &self.delays {
            let mut add = |metric, value: Option<f64>, direction: Option<Direction>| {
                let sample = value
                    .map(|value| Sample::new(self.at_s(d.probe), metric, index(d.probe), value));
                samples.extend(sample.map(|sample| match direction {
                    Some(direction) => sample.toward(direction),
                    None => sample,
                }));
            };
            add(Metric::RttMs, Some(d.rtt), None);
            add(Metric::NetworkRttMs, d.network, None);
            for direction in [Direction::Up, Direction::Down] {
                add(
                    Metric::OneWayDelayMs,
                    self.one_way(d, direction),
                    Some(direction),
                );
            }
        }
        samples.extend(self.losses.ways.iter().map(|(probe, way)| {
            let sample = Sample::new(self.at_s(*probe), Metric::LostPackets, index(*probe), 1.0);
            match way {
                Some(way) => sample.toward(*way),
                None => sample,
            }
        }));
        for answer in &self.journal.answers {
            let metric = match (answer.duplicate, answer.late) {
                (true, _) => Metric::DuplicateRttMs,
                (false, true) => Metric::LateRttMs,
                (false, false) => continue,
            };
            let rtt = (answer.read.0 - self.journal.probes[answer.probe].sent.0) as f64 / 1e6;
            samples.push(Sample::new(
                self.at_s(answer.probe),
                metric,
                index(answer.probe),
                rtt,
            ));
        }
        // Stable: what is of one probe stays together.
        samples.sort_by_key(|sample| sample.index);
        samples
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.counts();
        figures.extend(self.round_trips());
        figures.extend(self.one_way_delays());
        for direction in [Direction::Up, Direction::Down] {
            figures.extend(self.variation(direction));
        }
        figures
    }

    fn counts(&self) -> Vec<Figure> {
        let journal = &self.journal;
        let sent = journal.probes.len() as u64;
        let answers = journal.answers.iter();
        let (duplicates, others): (Vec<&Received>, Vec<&Received>) =
            answers.partition(|answer| answer.duplicate);
        let late = others.iter().filter(|answer| answer.late).count() as u64;
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, self.delays.len() as u64),
            total(Metric::LostPackets, self.losses.lost),
        ];
        if let Some([low, high]) = wilson(self.losses.lost, sent) {
            let share = percent(self.losses.lost, sent);
            let lost = Figure::new(Metric::LostPercent, Statistic::Mean, share);
            figures.push(lost.within(100.0 * low, 100.0 * high));
        }
        if let Some(split) = self.losses.split {
            let ways = [
                (Direction::Up, split.lost_up, split.sent),
                (Direction::Down, split.lost_down, split.answers),
            ];
            for (direction, lost, of) in ways {
                let most = lost + split.unresolved;
                let count = total(Metric::LostPackets, lost).within(lost as f64, most as f64);
                let [low, high] = wilson(lost, of).unwrap_or([0.0, 1.0]).map(|p| 100.0 * p);
                // What lies after the last answer that came back belongs to the run, too.
                let (least, most) = (
                    percent(lost, of + split.unresolved),
                    percent(most, of + split.unresolved),
                );
                let share = Figure::new(Metric::LostPercent, Statistic::Mean, percent(lost, of))
                    .within(low.min(least), high.max(most));
                figures.extend([count, share].map(|figure| figure.toward(direction)));
            }
        }
        figures.extend([
            total(Metric::LatePackets, late),
            total(Metric::DuplicatePackets, duplicates.len() as u64),
        ]);
        match loss::reordered_by_direction(journal) {
            Some((up, down)) => figures.extend([
                total(Metric::ReorderedPackets, up).toward(Direction::Up),
                total(Metric::ReorderedPackets, down).toward(Direction::Down),
            ]),
            None => {
                let order = others.iter().map(|answer| answer.probe as u64);
                figures.push(total(Metric::ReorderedPackets, loss::reordered(order)));
            }
        }
        figures
    }

    fn round_trips(&self) -> Vec<Figure> {
        let network: Vec<_> = self.delays.iter().filter_map(|d| d.network).collect();
        let host = || self.delays.iter().filter_map(|d| Some(d.rtt - d.network?));
        let bound = [-2.0 * self.stamp_error_ms, 2.0 * self.stamp_error_ms];
        // What a program sees is the network's and the hosts' part; nine in ten times the latter is no more than this.
        let hosts = Distribution::of(host()).map(|host| [bound[0] - host.quantile(0.9), 0.0]);
        [
            spread(Metric::RttMs, self.delays.iter().map(|d| d.rtt), hosts),
            spread(Metric::NetworkRttMs, network, Some(bound)),
            spread(Metric::HostMs, host(), None),
        ]
        .concat()
    }

    fn one_way_delays(&self) -> Vec<Figure> {
        let Some(offset) = self.offset else {
            return Vec::new();
        };
        let mut figures = Vec::new();
        for direction in [Direction::Up, Direction::Down] {
            let values = self
                .delays
                .iter()
                .filter_map(|d| self.one_way(d, direction));
            let (low, high) = match direction {
                Direction::Up => (offset.ms - offset.high, offset.ms - offset.low),
                Direction::Down => (offset.low - offset.ms, offset.high - offset.ms),
            };
            let bound = [low - self.stamp_error_ms, high + self.stamp_error_ms];
            let found = spread(Metric::OneWayDelayMs, values, Some(bound));
            figures.extend(found.into_iter().map(|figure| figure.toward(direction)));
        }
        if offset.relation != Relation::Same {
            let figure = Figure::new(Metric::ClockOffsetMs, Statistic::Median, offset.ms);
            figures.push(figure.within(offset.low, offset.high));
        }
        figures
    }

    /// Both need no relation between the clocks: their difference cancels out.
    fn variation(&self, direction: Direction) -> Vec<Figure> {
        let raws: Vec<f64> = self
            .delays
            .iter()
            .filter_map(|d| raw(d, direction))
            .collect();
        let least = raws.iter().copied().fold(f64::INFINITY, f64::min);
        let pdv = Distribution::of(raws.into_iter().map(|value| value - least));
        let ipdv = Distribution::of(self.ipdv(direction).into_values().map(f64::abs));
        let of = |metric, values: Option<Distribution>| {
            let values = values.into_iter();
            values.flat_map(move |values| {
                [
                    (Statistic::Median, 0.5),
                    (Statistic::P90, 0.9),
                    (Statistic::P99, 0.99),
                    (Statistic::Max, 1.0),
                ]
                .map(|(statistic, q)| {
                    Figure::new(metric, statistic, values.quantile(q)).toward(direction)
                })
            })
        };
        of(Metric::PdvMs, pdv)
            .chain(of(Metric::IpdvMs, ipdv))
            .collect()
    }
}

/// In the difference of the two clocks.
fn raw(delays: &Delays, direction: Direction) -> Option<f64> {
    match direction {
        Direction::Up => delays.up,
        Direction::Down => delays.down,
    }
}

/// Figures of `values`, in the order of sending; with the intervals of median and mean, widened by `bound`, if any.
fn spread(
    metric: Metric,
    values: impl IntoIterator<Item = f64>,
    bound: Option<[f64; 2]>,
) -> Vec<Figure> {
    let values: Vec<f64> = values.into_iter().collect();
    let Some(sorted) = Distribution::of(values.iter().copied()) else {
        return Vec::new();
    };
    let [below, above] = bound.unwrap_or_default();
    let figure = |statistic, value| Figure::new(metric, statistic, value);
    let within =
        |figure: Figure, [low, high]: [f64; 2]| figure.within((low + below).max(0.0), high + above);
    let median = figure(Statistic::Median, sorted.median());
    let mean = mean_with_interval(&values)
        .map(|(mean, interval)| within(figure(Statistic::Mean, mean), interval));
    let tail = [
        (Statistic::P90, 0.9),
        (Statistic::P99, 0.99),
        (Statistic::Max, 1.0),
    ];
    let mut figures = vec![
        figure(Statistic::Min, sorted.quantile(0.0)),
        within(median, sorted.median_interval()),
    ];
    figures.extend(mean);
    figures.extend(tail.map(|(statistic, q)| figure(statistic, sorted.quantile(q))));
    figures
}

fn total(metric: Metric, count: u64) -> Figure {
    Figure::new(metric, Statistic::Total, count as f64)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
