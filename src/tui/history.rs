//! The samples of a link in the last minute, as curves.

use std::collections::VecDeque;

use crate::live::LinkSample;

/// The time span of the curves in seconds.
pub(super) const SPAN_S: f64 = 60.0;

/// Round trips older than this are not shown, in seconds.
const LATEST_S: f64 = 3.0;

/// The samples of the last minute.
#[derive(Default)]
pub(super) struct SampleHistory(VecDeque<HistoryPoint>);

/// The values of a tenth of a second: up, then down.
struct HistoryPoint {
    at_s: f64,
    bit_per_s: [f64; 2],
    queue_ms: [Option<f64>; 2],
    /// The round trips at side A and at side B.
    round_trip_ms: [Option<f64>; 2],
}

impl SampleHistory {
    /// Adds a sample and removes those that are too old.
    pub(super) fn add(&mut self, sample: &LinkSample) {
        let directions = [&sample.up, &sample.down];
        self.0.push_back(HistoryPoint {
            at_s: sample.at_s,
            bit_per_s: directions.map(|direction| direction.delivered_bit_per_s),
            queue_ms: directions.map(|direction| direction.queue_delay_ms),
            round_trip_ms: [&sample.round_trips.a, &sample.round_trips.b]
                .map(|round_trip| Some(round_trip.as_ref()?.mean_ms)),
        });
        let oldest = sample.at_s - SPAN_S;
        while self.0.front().is_some_and(|point| point.at_s < oldest) {
            self.0.pop_front();
        }
    }

    /// Returns the delivered bits per second of both directions, over the seconds before the last
    /// sample.
    pub(super) fn rates(&self) -> [Vec<(f64, f64)>; 2] {
        self.curves(|point, direction| Some(point.bit_per_s[direction]))
    }

    /// Returns the delay of the queue in milliseconds of both directions; empty without a queue.
    pub(super) fn queues(&self) -> [Vec<(f64, f64)>; 2] {
        self.curves(|point, direction| point.queue_ms[direction])
    }

    /// Returns the latest round trip of each side in milliseconds, if there was one in the last
    /// seconds.
    pub(super) fn round_trips(&self) -> [Option<f64>; 2] {
        let last_s = self.0.back().map_or(0.0, |point| point.at_s);
        let latest = self
            .0
            .iter()
            .rev()
            .take_while(|point| point.at_s >= last_s - LATEST_S);
        [0, 1].map(|side| latest.clone().find_map(|point| point.round_trip_ms[side]))
    }

    fn curves(&self, of: impl Fn(&HistoryPoint, usize) -> Option<f64>) -> [Vec<(f64, f64)>; 2] {
        let last_s = self.0.back().map_or(0.0, |point| point.at_s);
        [0, 1].map(|direction| {
            let points = self.0.iter();
            points
                .filter_map(|point| Some((point.at_s - last_s, of(point, direction)?)))
                .collect()
        })
    }
}
