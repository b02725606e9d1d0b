//! The light load of a direction whose rate varies: how the otherwise idle path delivers a short train of packets.
//!
//! A train of n packets of b bytes that arrives within the time s has the rate 8 b (n - 1) / s, because the first
//! packet only begins that time. The rate of the light load is that of the median s of all trains that arrived
//! complete, and the rate of the full load the median over the windows of a load that filled the path. Both medians
//! have 95 % intervals that allow for neighbours that are similar ([`stats::quantile`]). The light load differs from
//! the full one if these intervals do not overlap, and the rates differ by more than a fifth.
//!
//! The times at which the packets of a train are delivered are medians over the trains of a window, for each place in
//! the train. The jitter of single packets is not in them, so that a link that also has that jitter does not have it
//! twice.

use conditions::Direction;
use stats::order_statistics::{quantile, sorted};

use crate::bottleneck::Bottleneck;
use crate::estimate::Estimate;
use crate::observations::PathObservations;
use crate::over_time::OverTime;
use crate::queue::median;
use crate::varying_rate::{VARIES, whole};

/// The fewest complete trains that show a light load.
pub(crate) const FEWEST_TRAINS: usize = 20;
/// The time of a window in seconds, and its fewest complete trains.
const WINDOW: (f64, usize) = (0.5, 5);
/// The shortest time in milliseconds from the first packet of a train to the last one that counts. Packets that arrive
/// at one time have no rate.
const LEAST_SPREAD_MS: f64 = 0.001;

/// The light load of a direction whose rate varies, from trains of packets on the otherwise idle path.
#[derive(Clone, Debug, PartialEq)]
pub struct LightLoadFit {
    /// The rate at which the packets of a train arrive, in bit/s, in L2 bytes without FCS: that of the median train. It
    /// is very high if most trains arrive at one time.
    pub rate: Estimate,
    /// The median rate of the full load over its windows, in bit/s.
    pub full: Estimate,
    /// The number of packets of a train.
    pub packets: usize,
    /// The number of trains that arrived complete.
    pub trains: usize,
    /// The time in milliseconds at which each packet of a train is delivered after the first one, over time; ascending
    /// from place to place. Empty if the light load does not differ from the full one.
    pub deliveries_ms: Vec<OverTime>,
    /// The time in milliseconds that the full load's rate needs for a probe of the idle path. The fitted delay does not
    /// contain it, and a link delays the first packet of a train by both.
    pub probe_ms: f64,
}

impl LightLoadFit {
    /// Fits the light load of a direction; `None` if its rate is constant, or no train arrived complete.
    pub(crate) fn of(
        observed: &PathObservations,
        way: Direction,
        bottleneck: &Bottleneck,
    ) -> Option<Self> {
        let rates = bottleneck.over_time.as_ref()?;
        let session = &observed.trains;
        let spread_ms = median(&session.spreads(way))?;
        let complete = session.complete(way);
        let packets = session.length;
        let bits = 8.0 * f64::from(session.wire_bytes) * packets.saturating_sub(1) as f64;
        let found = Self {
            rate: rate(spread_ms, bits),
            full: median(&rates.values)?,
            packets,
            trains: complete.len(),
            deliveries_ms: Vec::new(),
            probe_ms: bottleneck.served(observed.idle.wire_bytes).ms,
        };
        if found.has_few_trains() || !is_different(found.rate, found.full) {
            return Some(found);
        }
        Some(Self {
            deliveries_ms: deliveries(&complete, packets, session.interval_s()?),
            ..found
        })
    }

    /// Returns whether it differs from the full load.
    pub fn is_different(&self) -> bool {
        !self.deliveries_ms.is_empty()
    }

    /// Returns whether too few trains arrived complete to show it.
    pub(crate) fn has_few_trains(&self) -> bool {
        self.trains < FEWEST_TRAINS
    }
}

/// Returns the rate in bit/s of trains that have this number of bits behind their first packet, and that arrive within
/// a time in milliseconds. A long time is a low rate.
fn rate(spread_ms: Estimate, bits: f64) -> Estimate {
    let of = |ms: f64| 1e3 * bits / ms.max(LEAST_SPREAD_MS);
    let interval = spread_ms.known_interval();
    let interval = interval.map(|[shortest, longest]| [of(longest), of(shortest)]);
    Estimate::with_known(of(spread_ms.value), interval)
}

/// Returns whether two rates certainly differ, and by more than a rate that counts as constant varies.
fn is_different(light: Estimate, full: Estimate) -> bool {
    let (Some(one), Some(other)) = (light.known_interval(), full.known_interval()) else {
        return false;
    };
    let are_apart = one[1] < other[0] || other[1] < one[0];
    are_apart && (light.value - full.value).abs() > VARIES * full.value
}

/// Returns the median time at which each packet of a train arrives after the first one, in consecutive windows of
/// complete trains. Trains that did not arrive complete make a window longer. Medians of ascending times are ascending.
fn deliveries(complete: &[(f64, &[f64])], packets: usize, interval_s: f64) -> Vec<OverTime> {
    let (window_s, fewest) = WINDOW;
    // Two windows at least show what is different between them.
    let most = (complete.len() / 2).max(fewest);
    let together = whole((window_s / interval_s).round()).clamp(fewest, most);
    let count = (complete.len() / together).max(1);
    let window = |at: usize| {
        let from = at * together;
        // Trains that do not fill a window are in the last one.
        let until = if at + 1 == count {
            complete.len()
        } else {
            from + together
        };
        &complete[from..until]
    };
    let first_s = complete.first().map_or(0.0, |(at_s, _)| *at_s);
    let last_s = complete.last().map_or(0.0, |(at_s, _)| *at_s);
    let every_s = (last_s - first_s + interval_s) / count as f64;
    let at_place = |place: usize| {
        let medians = (0..count).filter_map(|at| {
            let arrivals = window(at).iter().map(|(_, arrivals)| arrivals[place]);
            quantile(&sorted(&arrivals.collect::<Vec<f64>>()), 0.5)
        });
        OverTime {
            every_s,
            values: medians.collect(),
        }
    };
    (0..packets).map(at_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trains::{Train, TrainSession};

    /// The packets of a train.
    const PACKETS: u32 = 10;
    /// The bits behind the first packet of a train.
    const BITS: f64 = 9.0 * 8.0 * 1400.0;

    /// Returns numbers from 0 to 0.9, another one for each of ten neighbours.
    fn share(at: u32) -> f64 {
        f64::from(at * 7 % 10) / 10.0
    }

    /// Returns the bottleneck down, whose rate is from 9 to 10.8 Mbit/s.
    fn bottleneck() -> Bottleneck {
        let values = (0..200).map(|at| 9e6 + 2e6 * share(at));
        let over_time = OverTime {
            every_s: 0.1,
            values: values.collect(),
        };
        Bottleneck {
            rate: over_time.spread().unwrap(),
            over_time: Some(over_time),
            burst_bytes: None,
            queue: None,
            queue_bytes: None,
            rate_evidence: String::new(),
            evidence: String::new(),
        }
    }

    /// Returns trains down, one every 100 ms, whose packets arrive at these times.
    fn observed(count: u32, arrivals_ms: impl Fn(u32) -> Vec<f64>) -> PathObservations {
        let trains = (0..count).map(|at| Train {
            at_s: f64::from(at) / 10.0,
            arrivals_ms: [Vec::new(), arrivals_ms(at)],
        });
        let mut observed = PathObservations {
            trains: TrainSession {
                wire_bytes: 1400,
                length: PACKETS as usize,
                trains: trains.collect(),
            },
            ..PathObservations::default()
        };
        observed.idle.wire_bytes = 146;
        observed
    }

    /// Returns the evenly spaced arrivals of a train that takes this number of milliseconds.
    fn evenly(spread_ms: f64) -> Vec<f64> {
        let last = f64::from(PACKETS - 1);
        let arrivals = (0..PACKETS).map(|place| spread_ms * f64::from(place) / last);
        arrivals.collect()
    }

    fn fitted(observed: &PathObservations) -> LightLoadFit {
        LightLoadFit::of(observed, Direction::Down, &bottleneck()).unwrap()
    }

    /// Fits this number of trains, which take `spread_ms`.
    fn fitted_spreads(count: u32, spread_ms: impl Fn(u32) -> f64) -> LightLoadFit {
        fitted(&observed(count, |at| evenly(spread_ms(at))))
    }

    #[test]
    fn a_slower_light_load_differs_and_has_its_deliveries_over_time() {
        // In every second window, trains take about 5 ms longer.
        let found = fitted_spreads(200, |at| 25.0 + 5.0 * f64::from(at / 5 % 2) + share(at));
        assert!(found.is_different());
        assert_eq!((found.packets, found.trains), (10, 200));
        assert!((found.full.value - 9.9e6).abs() < 1.0, "{:?}", found.full);
        let [low, high] = found.rate.known_interval().unwrap();
        assert!(
            1e3 * BITS / 31.0 <= low && high <= 1e3 * BITS / 25.0,
            "{:?}",
            found.rate
        );
        assert_eq!(found.deliveries_ms.len(), 10);
        for (place, delivered) in (0_u32..).zip(&found.deliveries_ms) {
            assert_eq!(delivered.values.len(), 40);
            assert!((delivered.every_s - 0.5).abs() < 1e-9, "{delivered:?}");
            for (at, ms) in delivered.values.iter().enumerate() {
                // The shares of five neighbours have the median 0.4 or 0.5.
                let spread_ms = if at % 2 == 0 { 25.4 } else { 30.5 };
                let expected = spread_ms * f64::from(place) / 9.0;
                assert!((ms - expected).abs() < 1e-9, "{place}: {delivered:?}");
            }
        }
        // 146 bytes at the median rate.
        assert!((found.probe_ms - 146.0 * 8e3 / found.full.value).abs() < 1e-3);
    }

    #[test]
    fn a_light_load_that_is_hardly_different_is_as_the_full_one() {
        let spread_ms = |rate: f64| 1e3 * BITS / rate;
        for rate in [9.9e6, 8.3e6, 11.5e6] {
            let found = fitted_spreads(200, |at| spread_ms(rate) + 0.01 * share(at));
            assert!(!found.is_different(), "{rate}: {found:?}");
            assert!((found.rate.value / rate - 1.0).abs() < 0.01, "{found:?}");
        }
        for rate in [7.5e6, 12.3e6] {
            let found = fitted_spreads(200, |at| spread_ms(rate) + 0.01 * share(at));
            assert!(found.is_different(), "{rate}: {found:?}");
        }
    }

    #[test]
    fn fewer_than_twenty_complete_trains_show_nothing() {
        let spread_ms = |at| 25.0 + share(at);
        let few = fitted_spreads(19, spread_ms);
        assert!(few.has_few_trains() && !few.is_different());
        assert!(fitted_spreads(20, spread_ms).is_different());
        // Every second train lacks a packet.
        let lossy = |count| {
            fitted(&observed(count, |at| {
                let mut arrivals = evenly(spread_ms(at / 2));
                arrivals.truncate(if at % 2 == 0 { 10 } else { 9 });
                arrivals
            }))
        };
        assert_eq!(lossy(38).trains, 19);
        assert!(!lossy(38).is_different());
        assert_eq!(lossy(40).trains, 20);
        assert!(lossy(40).is_different());
        let none = observed(40, |_| vec![0.0]);
        assert_eq!(
            LightLoadFit::of(&none, Direction::Down, &bottleneck()),
            None
        );
    }

    #[test]
    fn trains_that_are_similar_to_their_neighbours_show_less() {
        // Each value differs from the full load, but forty that rise are worth hardly more than one.
        let found = fitted_spreads(40, |at| 20.0 + 0.5 * f64::from(at));
        assert_eq!(found.rate.known_interval(), None);
        assert!(!found.is_different());
        let shuffled = fitted_spreads(40, |at| 20.0 + 0.5 * f64::from(at * 17 % 40));
        assert!(shuffled.is_different(), "{shuffled:?}");
    }

    #[test]
    fn the_median_of_a_window_has_no_jitter() {
        // All packets but the first one of a train are late or early by the same time, of which the median is 0.
        let found = fitted(&observed(200, |at| {
            let jitter_ms = f64::from(at * 2 % 5) - 2.0;
            let later = (1..PACKETS).map(|place| 2.8 * f64::from(place) + jitter_ms);
            [0.0].into_iter().chain(later).collect()
        }));
        assert!(found.is_different());
        for (place, delivered) in (0_u32..).zip(&found.deliveries_ms) {
            let is_right = |ms: &f64| (ms - 2.8 * f64::from(place)).abs() < 1e-9;
            assert!(delivered.values.iter().all(is_right), "{delivered:?}");
        }
    }

    #[test]
    fn the_deliveries_of_a_window_are_ascending() {
        let mut random = fastrand::Rng::with_seed(3);
        let trains: Vec<Vec<f64>> = (0..60)
            .map(|_| {
                let later = (1..PACKETS).map(|_| 60.0 * random.f64());
                let all = [0.0].into_iter().chain(later);
                sorted(&all.collect::<Vec<f64>>())
            })
            .collect();
        let found = fitted(&observed(60, |at| trains[at as usize].clone()));
        assert!(found.is_different(), "{found:?}");
        for at in 0..found.deliveries_ms[0].values.len() {
            let deliveries = found.deliveries_ms.iter().map(|all| all.values[at]);
            assert!(deliveries.is_sorted(), "{found:?}");
        }
    }

    #[test]
    fn packets_that_arrive_at_one_time_have_no_limit_only_if_most_trains_do() {
        let found = fitted_spreads(100, |at| if at % 5 == 0 { 0.0 } else { 10.2 });
        assert!(found.rate.value < 10e6 && !found.is_different());
        let found = fitted_spreads(100, |at| if at % 5 == 0 { 10.2 } else { 0.0 });
        assert!(found.rate.value > 1e10 && found.is_different());
    }

    #[test]
    fn a_constant_rate_has_no_light_load_of_its_own() {
        let constant = Bottleneck {
            over_time: None,
            ..bottleneck()
        };
        let observed = observed(200, |_| evenly(25.0));
        let found = LightLoadFit::of(&observed, Direction::Down, &constant);
        assert_eq!(found, None);
        let up = LightLoadFit::of(&observed, Direction::Up, &bottleneck());
        assert_eq!(up, None);
    }
}
