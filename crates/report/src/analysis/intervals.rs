//! Rates per interval from an instrument's samples, labelled with the quantity that was counted.

use record::{Direction, Measurement, Metric, Sample};

/// Samples with each of the two directions, or without any, as from a download from a web server.
pub(crate) const DIRECTIONS: [Option<Direction>; 3] =
    [None, Some(Direction::Up), Some(Direction::Down)];

/// An interval: its start and end in seconds, and the bits that were counted in it.
pub(crate) type ThroughputInterval = (f64, f64, f64);

/// The share of the usual length from which the last interval counts as complete. Intervals of the same length scatter by
/// a few milliseconds.
const COMPLETE: f64 = 0.9;

/// The quantity that the amounts of a series of intervals count.
///
/// All values derived from a series carry this quantity, and every title, axis and column takes its words from it.
/// Therefore a sent rate can never be shown as a received one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RateQuantity {
    /// Received payload: the bytes that a receiver counted, or the goodput that an instrument reports.
    Goodput,
    /// Received IP packets (L3), as a search for the capacity counts them.
    IpCapacity,
    /// Payload that a sender handed to its socket, some of which may not have arrived.
    Sent,
}

/// The intervals of one direction of one measurement, with the quantity that they count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateSeries {
    quantity: RateQuantity,
    intervals: Vec<ThroughputInterval>,
}

impl RateQuantity {
    /// All quantities in the order of reports.
    pub(crate) const ALL: [Self; 3] = [Self::Goodput, Self::IpCapacity, Self::Sent];

    /// Returns the metric of the rate, which names and explains the quantity.
    pub(crate) fn metric(self) -> Metric {
        match self {
            Self::Goodput => Metric::GoodputBitPerS,
            Self::IpCapacity => Metric::IpCapacityBitPerS,
            Self::Sent => Metric::SentRateBitPerS,
        }
    }

    /// Returns the name in reports: "goodput", "sent rate".
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::IpCapacity => "IP-layer capacity",
            Self::Sent => "sent rate",
        }
    }

    /// Returns the samples from which the series can be computed, the preferred ones first.
    fn sources(self) -> &'static [SampleSource] {
        match self {
            Self::Goodput => &[
                SampleSource::Bytes(Metric::ReceivedBytes),
                SampleSource::Rate(Metric::GoodputBitPerS),
            ],
            Self::IpCapacity => &[SampleSource::Rate(Metric::IpCapacityBitPerS)],
            Self::Sent => &[
                SampleSource::Bytes(Metric::SentBytes),
                SampleSource::Rate(Metric::SentRateBitPerS),
            ],
        }
    }
}

impl RateSeries {
    /// Computes the series of this quantity in this direction; `None` if the measurement has fewer than two intervals
    /// of it.
    pub(crate) fn of(
        measurement: &Measurement,
        direction: Option<Direction>,
        quantity: RateQuantity,
    ) -> Option<Self> {
        let sources = quantity.sources().iter();
        let mut found = sources.map(|source| (source, source.samples(measurement, direction)));
        let (source, samples) = found.find(|(_, samples)| samples.len() > 1)?;
        Some(Self {
            quantity,
            intervals: joined(&samples, source, measurement.omitted_s),
        })
    }

    /// Returns the series of one direction that reports show: the received quantity if the measurement has it, or else
    /// the sent one.
    pub(crate) fn shown(measurement: &Measurement, direction: Option<Direction>) -> Option<Self> {
        let mut all = RateQuantity::ALL.into_iter();
        all.find_map(|quantity| Self::of(measurement, direction, quantity))
    }

    /// Returns the quantity.
    pub(crate) fn quantity(&self) -> RateQuantity {
        self.quantity
    }

    /// Returns the intervals in order of time.
    pub(crate) fn intervals(&self) -> &[ThroughputInterval] {
        &self.intervals
    }

    /// Returns the intervals without the last one if the measurement ended before it was complete. The rate over a few
    /// milliseconds is that of a burst or of a gap.
    pub(crate) fn complete_intervals(&self) -> &[ThroughputInterval] {
        let Some((last, others)) = self.intervals.split_last() else {
            return &[];
        };
        let length = |(start, end, _): &ThroughputInterval| end - start;
        let mut lengths: Vec<f64> = others.iter().map(length).collect();
        lengths.sort_by(f64::total_cmp);
        let usual = lengths.get(lengths.len() / 2);
        if usual.is_some_and(|usual| length(last) < COMPLETE * usual) {
            others
        } else {
            &self.intervals
        }
    }
}

/// The samples from which a series is computed.
enum SampleSource {
    /// Each sample is the amount of an interval, in bytes.
    Bytes(Metric),
    /// Each sample is the rate over an interval, in bit/s.
    Rate(Metric),
}

impl SampleSource {
    fn samples<'a>(
        &self,
        measurement: &'a Measurement,
        direction: Option<Direction>,
    ) -> Vec<&'a Sample> {
        let (Self::Bytes(metric) | Self::Rate(metric)) = *self;
        let samples = measurement.samples.iter().filter(|sample| {
            sample.metric == metric && sample.direction == direction && sample.size.is_none()
        });
        samples.collect()
    }
}

/// Adds up the samples of one interval over all streams.
fn joined(samples: &[&Sample], source: &SampleSource, from_s: f64) -> Vec<ThroughputInterval> {
    let whole = samples.iter().any(|sample| sample.stream.is_none());
    let mut samples: Vec<&Sample> = samples
        .iter()
        .filter(|s| !whole || s.stream.is_none())
        .copied()
        .collect();
    samples.sort_by_key(|sample| sample.index);
    let mut before_s = from_s;
    let mut intervals = Vec::new();
    for group in samples.chunk_by(|a, b| a.index == b.index) {
        let end_s = group.iter().map(|sample| sample.at_s).fold(0.0, f64::max);
        let sum: f64 = group.iter().map(|sample| sample.value).sum();
        let bits = match source {
            SampleSource::Bytes(_) => sum * 8.0,
            SampleSource::Rate(_) => sum * (end_s - before_s),
        };
        intervals.push((before_s, end_s, bits));
        before_s = end_s;
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(metric: Metric, value: f64) -> Measurement {
        let sample = |index: u64| Sample::new(index as f64, metric, index, value);
        Measurement {
            samples: (1..=3)
                .map(|index| sample(index).toward(Direction::Up))
                .collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn sent_bytes_never_become_a_goodput() {
        // A sender of 2,496,250 bytes per second sends 19.97 Mbit/s, of which a link of 10 Mbit/s drops more than half.
        let sent = sampled(Metric::SentBytes, 2_496_250.0);
        let up = Some(Direction::Up);
        assert_eq!(RateSeries::of(&sent, up, RateQuantity::Goodput), None);
        let series = RateSeries::shown(&sent, up).unwrap();
        assert_eq!(series.quantity().name(), "sent rate");
        assert_eq!(series.quantity().metric(), Metric::SentRateBitPerS);
        assert_eq!(series.intervals()[0], (0.0, 1.0, 19_970_000.0));
    }

    #[test]
    fn received_rates_are_shown_before_sent_ones() {
        let mut both = sampled(Metric::SentBytes, 2e6);
        both.samples
            .extend(sampled(Metric::ReceivedBytes, 1e6).samples);
        let series = RateSeries::shown(&both, Some(Direction::Up)).unwrap();
        assert_eq!(series.quantity(), RateQuantity::Goodput);
        assert_eq!(series.intervals()[2], (2.0, 3.0, 8e6));
    }

    #[test]
    fn an_interval_that_the_end_cut_short_is_not_complete() {
        let ending = |end_s: f64| {
            let mut measurement = sampled(Metric::ReceivedBytes, 1e6);
            measurement.samples[2].at_s = end_s;
            let up = Some(Direction::Up);
            let series = RateSeries::of(&measurement, up, RateQuantity::Goodput).unwrap();
            series.complete_intervals().len()
        };
        assert_eq!(ending(2.02), 2);
        assert_eq!(ending(2.89), 2);
        assert_eq!(ending(2.95), 3);
        assert_eq!(ending(3.1), 3);
    }

    #[test]
    fn an_ip_capacity_is_not_a_goodput() {
        let capacity = sampled(Metric::IpCapacityBitPerS, 9e6);
        let series = RateSeries::shown(&capacity, Some(Direction::Up)).unwrap();
        assert_eq!(series.quantity(), RateQuantity::IpCapacity);
        assert_eq!(series.intervals()[0], (0.0, 1.0, 9e6));
    }
}
