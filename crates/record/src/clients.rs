//! Combines the measurements of several clients that ran the same instrument simultaneously into one measurement: the
//! figures that can be formed over all clients, and the goodput of each client.

use std::collections::BTreeMap;

use stats::losses::Losses;
use stats::{order_statistics, t_interval};

use crate::profile::SampleKind;
use crate::quantity::counted;
use crate::{Direction, Figure, Measurement, Metric, Phase, Sample, Statistic};

/// Figures that summarise the goodputs of the individual clients.
pub(crate) const CLIENT_GOODPUT_FIGURES: [(Metric, Statistic); 4] = [
    (Metric::ClientGoodputBitPerS, Statistic::Min),
    (Metric::ClientGoodputBitPerS, Statistic::Median),
    (Metric::ClientGoodputBitPerS, Statistic::Max),
    (Metric::FairnessIndex, Statistic::Mean),
];

/// The rule by which a figure of all clients follows from the figures of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CombinationRule {
    /// The sum of the clients' figures.
    Sum,
    /// The least of the clients' figures.
    Least,
    /// The greatest of the clients' figures.
    Greatest,
    /// The packets that all clients lost, as a share of the packets that they sent.
    Lost,
    /// The statistic, computed from the samples of all clients.
    Pooled,
}

impl CombinationRule {
    /// Returns the rule for this figure of an instrument with samples of this kind, or `None` if there is no such
    /// figure of several clients.
    pub(crate) fn of(
        metric: Metric,
        statistic: Statistic,
        phase: Option<Phase>,
        samples: Option<SampleKind>,
    ) -> Option<Self> {
        use Metric::{
            ConnectMs, ElapsedS, FilesPerS, GoodputBitPerS, L1RateBitPerS, L2RateBitPerS,
            L3RateBitPerS, LostPercent, NetworkElapsedS, NetworkRttMs, OneWayDelayMs,
            RequestedRateBitPerS, RttMs, SentRateBitPerS,
        };
        use Statistic::{Max, Mdev, Mean, Median, Min, P90, P95, P99, Total};
        let is_probe = samples == Some(SampleKind::Probes) && phase.is_none();
        match (metric, statistic) {
            (ElapsedS, Total) => Some(Self::Greatest),
            (NetworkElapsedS, Total) => None,
            (_, Total) => Some(Self::Sum),
            (
                GoodputBitPerS | L3RateBitPerS | L2RateBitPerS | L1RateBitPerS | SentRateBitPerS
                | RequestedRateBitPerS | FilesPerS,
                Mean,
            ) => Some(Self::Sum),
            (LostPercent, Mean) => Some(Self::Lost),
            (RttMs | NetworkRttMs | OneWayDelayMs | ConnectMs, Min) => Some(Self::Least),
            (RttMs | NetworkRttMs | OneWayDelayMs | ConnectMs, Max) => Some(Self::Greatest),
            (
                RttMs | NetworkRttMs | OneWayDelayMs | ConnectMs,
                Mean | Median | P90 | P95 | P99 | Mdev,
            ) if is_probe => Some(Self::Pooled),
            _ => None,
        }
    }
}

/// The properties that distinguish a figure from the other figures of its measurement.
type Scope = (
    Metric,
    Statistic,
    Option<Direction>,
    Option<u64>,
    Option<Phase>,
);

fn scope(figure: &Figure) -> Scope {
    (
        figure.metric,
        figure.statistic,
        figure.direction,
        figure.size,
        figure.phase,
    )
}

/// Merges the measurements `all` of several clients, given in the order of the clients, for an instrument with samples
/// of this `kind`. The result has failed if one client's measurement has failed. The measurement of a single client is
/// returned unchanged.
pub fn together(mut all: Vec<Measurement>, kind: Option<SampleKind>) -> Measurement {
    if let [_] = all[..] {
        return all.remove(0);
    }
    let samples = match kind {
        Some(SampleKind::Intervals) => summed(&all),
        _ => pooled(&all),
    };
    let mut merged = Measurement {
        figures: figures(&all, &samples, kind),
        failure: failure(&all),
        facts: common_facts(&all),
        omitted_s: all.first().map_or(0.0, |first| first.omitted_s),
        samples,
        // If one client fell short of its schedule, the whole measurement did.
        paces: all.iter().flat_map(|one| one.paces.clone()).collect(),
    };
    add_client_goodputs(&all, &mut merged);
    merged.with_fact(
        "clients",
        format!(
            "{}, simultaneously: amounts and rates are sums over the clients, round trips and delays are those of all probes",
            all.len()
        ),
    )
}

/// Returns every figure that all clients have and that can be formed over several clients.
fn figures(all: &[Measurement], samples: &[Sample], kind: Option<SampleKind>) -> Vec<Figure> {
    let mut values: BTreeMap<Scope, Vec<f64>> = BTreeMap::new();
    let whole = all.iter().flat_map(|one| &one.figures);
    let mut losses: BTreeMap<Scope, Vec<Losses>> = BTreeMap::new();
    for figure in whole.filter(|figure| figure.stream.is_none()) {
        values.entry(scope(figure)).or_default().push(figure.value);
        losses
            .entry(scope(figure))
            .or_default()
            .extend(figure.losses);
    }
    losses.retain(|_, each| each.len() == all.len());
    let losses_of = |scope: &Scope| {
        let each = losses.get(scope)?.iter().copied();
        each.reduce(Losses::with)
    };
    let combined = |(scope, values): (&Scope, &Vec<f64>)| {
        let (metric, statistic, direction, size, phase) = *scope;
        let way = CombinationRule::of(metric, statistic, phase, kind)?;
        if values.len() < all.len() && way != CombinationRule::Pooled {
            return None;
        }
        let value = match way {
            CombinationRule::Sum => Some(values.iter().sum()),
            CombinationRule::Least => values.iter().copied().reduce(f64::min),
            CombinationRule::Greatest => values.iter().copied().reduce(f64::max),
            CombinationRule::Lost => lost_percent(all, *scope),
            CombinationRule::Pooled => {
                let of = samples.iter().filter(|sample| {
                    (sample.metric, sample.direction, sample.size) == (metric, direction, size)
                });
                statistic_of(
                    statistic,
                    &of.map(|sample| sample.value).collect::<Vec<_>>(),
                )
            }
        };
        Some(Figure {
            direction,
            size,
            phase,
            losses: losses_of(scope),
            ..Figure::new(metric, statistic, value?)
        })
    };
    values.iter().filter_map(combined).collect()
}

fn statistic_of(statistic: Statistic, values: &[f64]) -> Option<f64> {
    let sorted = order_statistics::sorted(values);
    match statistic {
        Statistic::Mean => t_interval::mean(values),
        Statistic::Median => order_statistics::quantile(&sorted, 0.5),
        Statistic::P90 => order_statistics::percentile(&sorted, 0.9),
        Statistic::P95 => order_statistics::percentile(&sorted, 0.95),
        Statistic::P99 => order_statistics::percentile(&sorted, 0.99),
        Statistic::Mdev => {
            let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
            let means = t_interval::mean(&squares).zip(t_interval::mean(values));
            means.map(|(squares, mean)| (squares - mean * mean).max(0.0).sqrt())
        }
        _ => None,
    }
}

/// Returns the loss of all clients in percent: the mean of their percentages, weighted by the packets that each one
/// sent, or unweighted if an instrument does not count them.
fn lost_percent(all: &[Measurement], of: Scope) -> Option<f64> {
    let (.., direction, size, phase) = of;
    let sent = |one: &Measurement, way| {
        let total = (Metric::SentPackets, Statistic::Total, way, size, phase);
        value_over_streams(one, total)
    };
    let mut all_sent = 0.0;
    let mut all_lost = 0.0;
    for one in all {
        let sent = sent(one, direction)
            .or_else(|| sent(one, None))
            .unwrap_or(1.0);
        all_sent += sent;
        all_lost += sent * value_over_streams(one, of)?;
    }
    (all_sent > 0.0).then(|| all_lost / all_sent)
}

/// Returns the value of the figure `wanted` over all streams.
fn value_over_streams(one: &Measurement, wanted: Scope) -> Option<f64> {
    let mut whole = one.figures.iter().filter(|figure| figure.stream.is_none());
    let figure = whole.find(|figure| scope(figure) == wanted)?;
    Some(figure.value)
}

/// Returns the sums of the clients' amounts for each interval. Intervals with the same index cover the same time,
/// because all clients started simultaneously.
fn summed(all: &[Measurement]) -> Vec<Sample> {
    let mut sums: BTreeMap<_, Sample> = BTreeMap::new();
    let whole = all.iter().flat_map(|one| &one.samples);
    let amounts = whole.filter(|sample| {
        sample.stream.is_none()
            && ["bytes", "packets"].contains(&sample.metric.unit())
            && sample.metric != Metric::CongestionWindowBytes
    });
    for sample in amounts {
        let key = (sample.index, sample.metric, sample.direction, sample.size);
        match sums.get_mut(&key) {
            Some(sum) => {
                sum.value += sample.value;
                sum.at_s = sum.at_s.max(sample.at_s);
            }
            None => drop(sums.insert(key, sample.clone())),
        }
    }
    sums.into_values().collect()
}

/// Returns the samples of all clients with new indexes: the first sample of each client, then the second of each, and
/// so on.
fn pooled(all: &[Measurement]) -> Vec<Sample> {
    let clients = all.len() as u64;
    let numbered = (1..).zip(all).flat_map(|(number, one): (u64, _)| {
        one.samples.iter().map(move |sample| Sample {
            index: sample.index.saturating_sub(1) * clients + number,
            ..sample.clone()
        })
    });
    let mut samples: Vec<Sample> = numbered.collect();
    samples.sort_by_key(|sample| (sample.index, sample.metric));
    samples
}

/// Adds each client's goodput as a sample whose index is the client's number, and the figures that summarise them.
fn add_client_goodputs(all: &[Measurement], merged: &mut Measurement) {
    for direction in [None, Some(Direction::Up), Some(Direction::Down)] {
        let wanted = (
            Metric::GoodputBitPerS,
            Statistic::Mean,
            direction,
            None,
            None,
        );
        let goodputs = all.iter().map(|one| value_over_streams(one, wanted));
        let Some(values) = goodputs.collect::<Option<Vec<f64>>>() else {
            continue;
        };
        let at_s = merged
            .samples
            .iter()
            .map(|sample| sample.at_s)
            .fold(0.0, f64::max);
        merged
            .samples
            .extend((1..).zip(&values).map(|(number, value)| Sample {
                direction,
                ..Sample::new(at_s, Metric::ClientGoodputBitPerS, number, *value)
            }));
        let sorted = order_statistics::sorted(&values);
        let value = |(metric, statistic)| match (metric, statistic) {
            (Metric::FairnessIndex, _) => fairness(&values),
            (_, Statistic::Min) => sorted.first().copied(),
            (_, Statistic::Max) => sorted.last().copied(),
            _ => order_statistics::quantile(&sorted, 0.5),
        };
        merged
            .figures
            .extend(CLIENT_GOODPUT_FIGURES.iter().filter_map(|of| {
                let figure = Figure::new(of.0, of.1, value(*of)?);
                Some(Figure {
                    direction,
                    ..figure
                })
            }));
    }
}

/// Returns Jain's index: the squared sum over the number of values times the sum of the squares. Source: R. Jain, D.
/// Chiu and W. Hawe, "A quantitative measure of fairness and discrimination for resource allocation in shared computer
/// systems", 1984.
fn fairness(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

fn failure(all: &[Measurement]) -> Option<String> {
    let failed: Vec<String> = (1..)
        .zip(all)
        .filter_map(|(number, one): (usize, _)| {
            let cause = one.failure.as_ref()?;
            Some(format!("client {number}: {cause}"))
        })
        .collect();
    Some(match &failed[..] {
        [] => return None,
        [one] => one.clone(),
        [first, rest @ ..] => {
            let of = counted(all.len(), "client");
            format!("{first}; {} of {of} failed", rest.len() + 1)
        }
    })
}

/// Returns the facts that all clients have with the same value.
fn common_facts(all: &[Measurement]) -> BTreeMap<String, String> {
    let mut facts = all.first().map(|one| one.facts.clone()).unwrap_or_default();
    facts.retain(|name, value| all.iter().all(|one| one.facts.get(name) == Some(value)));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(goodput: f64, bytes: [f64; 2]) -> Measurement {
        let up = Direction::Up;
        let sample = |(index, value)| {
            Sample::new(index as f64, Metric::ReceivedBytes, index, value).toward(up)
        };
        Measurement {
            samples: (1..).zip(bytes).map(sample).collect(),
            figures: vec![
                Figure::new(Metric::GoodputBitPerS, Statistic::Mean, goodput).toward(up),
                Figure::new(Metric::ElapsedS, Statistic::Total, 2.0).toward(up),
                Figure::new(Metric::SenderCpuPercent, Statistic::Mean, 7.0).toward(up),
            ],
            ..Measurement::default()
        }
        .with_fact("tool", "farwire")
        .with_fact("goodput", goodput)
    }

    fn pinged(rtts: &[f64], lost: u32) -> Measurement {
        let sent = rtts.len() as f64 + f64::from(lost);
        let of = |metric, statistic, value| Figure::new(metric, statistic, value);
        let rtt = |(index, rtt): (u64, &f64)| Sample::new(0.0, Metric::RttMs, index, *rtt);
        Measurement {
            samples: (1..).zip(rtts).map(rtt).collect(),
            figures: vec![
                of(Metric::SentPackets, Statistic::Total, sent),
                of(
                    Metric::LostPercent,
                    Statistic::Mean,
                    100.0 * f64::from(lost) / sent,
                ),
                of(Metric::RttMs, Statistic::Median, 0.0),
                of(Metric::RttMs, Statistic::Min, rtts[0]),
            ],
            ..Measurement::default()
        }
    }

    #[test]
    fn rates_and_amounts_are_summed_and_each_client_has_a_goodput() {
        let all = vec![stream(1e6, [10.0, 20.0]), stream(3e6, [30.0, 40.0])];
        let merged = together(all, Some(SampleKind::Intervals));
        let value = |metric, statistic| {
            let mut all = merged.figures.iter();
            all.find(|figure| (figure.metric, figure.statistic) == (metric, statistic))
                .map(|figure| figure.value)
        };
        assert_eq!(value(Metric::GoodputBitPerS, Statistic::Mean), Some(4e6));
        assert_eq!(value(Metric::ElapsedS, Statistic::Total), Some(2.0));
        assert_eq!(value(Metric::SenderCpuPercent, Statistic::Mean), None);
        let each = |statistic| value(Metric::ClientGoodputBitPerS, statistic);
        assert_eq!(
            [Statistic::Min, Statistic::Median, Statistic::Max].map(each),
            [Some(1e6), Some(2e6), Some(3e6)]
        );
        // (1 + 3)^2 / (2 (1 + 9))
        assert_eq!(value(Metric::FairnessIndex, Statistic::Mean), Some(0.8));
        let received = merged
            .samples
            .iter()
            .filter(|sample| sample.metric == Metric::ReceivedBytes);
        assert_eq!(
            received.map(|sample| sample.value).collect::<Vec<_>>(),
            [40.0, 60.0]
        );
        assert_eq!(merged.facts["tool"], "farwire");
        assert!(!merged.facts.contains_key("goodput"));
    }

    #[test]
    fn round_trips_are_pooled_and_loss_is_weighted_by_sent_packets() {
        let all = vec![
            pinged(&[1.0, 9.0], 0),
            pinged(&[2.0], 1),
            pinged(&[3.0, 4.0], 4),
        ];
        let merged = together(all, Some(SampleKind::Probes));
        let value = |metric, statistic| merged.figure(metric, statistic);
        assert_eq!(value(Metric::RttMs, Statistic::Median), Some(3.0));
        assert_eq!(value(Metric::RttMs, Statistic::Min), Some(1.0));
        assert_eq!(value(Metric::SentPackets, Statistic::Total), Some(10.0));
        assert_eq!(value(Metric::LostPercent, Statistic::Mean), Some(50.0));
        let numbers: Vec<u64> = merged.samples.iter().map(|sample| sample.index).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 6]);
    }

    #[test]
    fn one_failed_client_fails_the_whole_measurement() {
        let all = vec![
            pinged(&[1.0], 0),
            Measurement::failed("no answer"),
            Measurement::failed("no route"),
        ];
        let merged = together(all, Some(SampleKind::Probes));
        let said = "client 2: no answer; 2 of 3 clients failed";
        assert_eq!(merged.failure.as_deref(), Some(said));
        assert_eq!(merged.figure(Metric::SentPackets, Statistic::Total), None);
    }

    #[test]
    fn the_measurement_of_a_single_client_is_unchanged() {
        let one = pinged(&[1.0], 0);
        assert_eq!(together(vec![one.clone()], None), one);
    }
}
