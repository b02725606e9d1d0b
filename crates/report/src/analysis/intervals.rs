//! What an instrument's samples say of throughput: the amount of each interval.

use record::{Direction, Measurement, Metric, Sample};

/// Each way by itself; a download of a web server states none.
pub(crate) const DIRECTIONS: [Option<Direction>; 3] =
    [None, Some(Direction::Up), Some(Direction::Down)];

/// An interval: its start and end in seconds, and the bits that it carried.
pub(crate) type ThroughputInterval = (f64, f64, f64);

/// The intervals of one direction: by the bytes of all streams that arrived, or else by stated rates, or else by the bytes
/// that were sent.
pub(crate) fn intervals(
    measurement: &Measurement,
    direction: Option<Direction>,
) -> Vec<ThroughputInterval> {
    let of = |metric: Metric| {
        let samples = measurement.samples.iter().filter(move |sample| {
            sample.metric == metric && sample.direction == direction && sample.size.is_none()
        });
        samples.collect::<Vec<_>>()
    };
    let all = [
        (Metric::ReceivedBytes, true),
        (Metric::GoodputBitPerS, false),
        (Metric::IpCapacityBitPerS, false),
        (Metric::SentBytes, true),
    ];
    let found = all.map(|(metric, is_bytes)| (of(metric), is_bytes));
    let mut found = found.iter().filter(|(samples, _)| samples.len() > 1);
    let first = found.next();
    first.map_or(Vec::new(), |(samples, is_bytes)| {
        joined(samples, *is_bytes, measurement.omitted_s)
    })
}

/// Samples of one interval, which are of several streams, added up.
fn joined(samples: &[&Sample], is_bytes: bool, from_s: f64) -> Vec<ThroughputInterval> {
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
        let bits = if is_bytes {
            sum * 8.0
        } else {
            sum * (end_s - before_s)
        };
        intervals.push((before_s, end_s, bits));
        before_s = end_s;
    }
    intervals
}
