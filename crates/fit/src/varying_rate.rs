//! A rate that varies: what arrives of a load in windows of its time differs by more than chance explains, and by so much
//! that one rate does not describe it.

use conditions::Direction;
use statrs::distribution::{ChiSquared, ContinuousCDF as _};
use stats::t_interval;

use crate::index;
use crate::loss::{self, LONGEST_BURST, LossFit};
use crate::observations::{LoadedSession, PathObservations};
use crate::over_time::{CHANCE, OverTime};
use crate::queue::{idle_delays, range};

/// The range of nine of ten rates, as a share of the median, above which a rate is not constant.
pub(crate) const VARIES: f64 = 0.2;
/// The shortest time in seconds whose rates have that range. A host that stalls for a part of it moves bytes from one
/// window to the next, and a queue smooths a path that is faster.
const SLOW_S: f64 = 0.5;
/// The fewest windows that show it.
const FEWEST_WINDOWS: usize = 10;
/// The fewest packets of a load, on average, in a window.
const FEWEST_PACKETS: f64 = 20.0;
/// The time in seconds after which a load has reached the far end and filled the queue, on a path without a longer round
/// trip.
const START_S: f64 = 1.0;
/// The time in milliseconds by which a receiver that reads its sockets counts late.
const READING_MS: f64 = 2.0;
/// The share of a load that a window may lack although the path carried all of it.
const CARRIED: f64 = 0.01;
/// The share of windows that a load may fail to fill.
const UNFILLED: f64 = 0.1;

/// A rate that is not constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VaryingRate {
    /// The rate at which the load and the probes beside it arrived in each window, in bit/s.
    pub(crate) arrived: OverTime,
    /// The number of windows in which the path carried all of the load, so that it may have been faster.
    pub(crate) unfilled: usize,
}

impl VaryingRate {
    /// Finds whether the rate of the path beside a load varies.
    pub(crate) fn beside(observed: &PathObservations, loaded: &LoadedSession) -> Option<Self> {
        let way = loaded.direction;
        let random = LossFit::of(&observed.idle, way);
        let range_ms = range(&idle_delays(observed, way)).unwrap_or_default();
        Self::of(loaded, random.as_ref(), range_ms, 0.0)
    }

    /// Finds whether the rate varies. The path has this random loss, its idle delays have a range of `range_ms`, and it may
    /// have passed `burst_bits` faster than its rate.
    ///
    /// Behind a constant rate, the bytes that arrive in a window vary by the packets and the times at its two edges, and by
    /// the random losses. The squares of their differences from the mean, divided by that variance, then have a sum with a
    /// distribution of chi-squared.
    pub(crate) fn of(
        loaded: &LoadedSession,
        random: Option<&LossFit>,
        range_ms: f64,
        burst_bits: f64,
    ) -> Option<Self> {
        let steady = steady(loaded, burst_bits)?;
        let mean = t_interval::mean(&steady.values).filter(|mean| *mean > 0.0)?;
        let packet_bits = 8.0 * f64::from(loaded.load.wire_bytes);
        let shortest_s = FEWEST_PACKETS * packet_bits / mean;
        let arrived = steady.joined(whole((shortest_s / steady.every_s).ceil()));
        let count = arrived.values.len();
        let mean = t_interval::mean(&arrived.values)?;
        if count < FEWEST_WINDOWS {
            return None;
        }
        let edge_bits = packet_bits + mean * (range_ms + READING_MS) / 1e3;
        let share = random.map_or(0.0, |random| random.share().interval[1]);
        // Few losses do not show how long their bursts are.
        let inflation = random.map_or(1.0, |random| {
            let longest = stats::losses::inflation(share, LONGEST_BURST);
            random.counts.inflation().max(longest)
        });
        let packets = mean * arrived.every_s / packet_bits;
        let lost = packets * share * (1.0 - share) * inflation;
        let variance =
            (edge_bits.powi(2) / 2.0 + lost * packet_bits.powi(2)) / arrived.every_s.powi(2);
        let squares = arrived.values.iter().map(|rate| (rate - mean).powi(2));
        let statistic = squares.sum::<f64>() / variance;
        let chance = ChiSquared::new((count - 1) as f64).ok()?.sf(statistic);
        let slow = arrived.joined(whole((SLOW_S / arrived.every_s).round()));
        let spread = slow.spread()?;
        let [low, high] = spread.interval;
        if chance >= CHANCE || high - low <= VARIES * spread.value {
            return None;
        }
        let probes = &loaded.probes;
        let probe_bits = 8.0 * f64::from(probes.wire_bytes);
        let probed = probes
            .interval_s()
            .map_or(0.0, |every_s| probe_bits / every_s);
        let sent = (loaded.load.sent + probed) * loss::passes(random);
        // A packet at the edge of a window may count in the next one.
        let all = (1.0 - CARRIED) * sent - packet_bits / arrived.every_s;
        let unfilled = arrived.values.iter().filter(|rate| **rate >= all).count();
        Some(Self { arrived, unfilled })
    }

    /// Returns whether the load filled the path almost all of the time, so that it shows the rate.
    pub(crate) fn is_filled(&self) -> bool {
        self.unfilled as f64 <= UNFILLED * self.arrived.values.len() as f64
    }
}

/// Returns what arrived of a load and of the probes beside it, in the part in which the load fills the queue and is still
/// sent; `None` without arrivals over time.
///
/// The far end of an upload begins to count one delay of the direction down before this end does, so that a probe may count
/// in a window that is earlier by that delay.
fn steady(loaded: &LoadedSession, burst_bits: f64) -> Option<OverTime> {
    let OverTime {
        every_s,
        mut values,
    } = loaded.arrivals.clone();
    let load = &loaded.load;
    if values.is_empty() || every_s <= 0.0 {
        return None;
    }
    let probe_rate = 8.0 * f64::from(loaded.probes.wire_bytes) / every_s;
    for probe in &loaded.probes.probes {
        let delay_ms = match loaded.direction {
            Direction::Up => probe.one_way_ms[index(Direction::Up)].or(probe.rtt_ms),
            Direction::Down => probe.rtt_ms,
        };
        let arrived_s = delay_ms.map(|ms| probe.at_s - loaded.from_s + ms / 1e3);
        let place = arrived_s.map(|at_s| whole((at_s / every_s).floor()));
        if let Some(rate) = place.and_then(|place| values.get_mut(place)) {
            *rate += probe_rate;
        }
    }
    let excess = (load.sent - load.received()).max(1.0);
    // The far end of an upload counts from its start on, a round trip before the first datagram arrives there.
    let round_trips = loaded.probes.probes.iter().filter_map(|probe| probe.rtt_ms);
    let least_s = round_trips.reduce(f64::min).unwrap_or_default() / 1e3;
    let start_s = START_S.max(least_s) + (burst_bits / excess).min(load.sending_s / 2.0);
    let first = whole((start_s / every_s).ceil());
    let last = whole((load.sending_s / every_s).floor()).min(values.len());
    let values = values.get(first..last)?.to_vec();
    Some(OverTime { every_s, values })
}

/// Returns a number of intervals.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a number that is too large becomes the largest one"
)]
pub(crate) fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use stats::losses::Losses;

    use super::*;
    use crate::estimate::Estimate;
    use crate::observations::{LoadTraffic, Probe, ProbeSession};

    /// Returns a load of 20 Mbit/s, of which `rate` bit/s arrived in each of 200 intervals of 100 ms.
    fn load(rate: impl Fn(u32) -> f64) -> LoadedSession {
        let values: Vec<f64> = (0..200).map(rate).collect();
        let traffic = LoadTraffic {
            wire_bytes: 1442,
            sent: 20e6,
            sending_s: 20.0,
            bytes: values.iter().sum::<f64>() * 0.1 / 8.0,
            seconds: 20.0,
            error: 0.0,
        };
        LoadedSession {
            arrivals: OverTime {
                every_s: 0.1,
                values,
            },
            ..LoadedSession::unprobed(Direction::Down, traffic)
        }
    }

    #[test]
    fn a_rate_varies_if_neither_packets_nor_losses_explain_it() {
        let varying = |loaded: &LoadedSession, random| VaryingRate::of(loaded, random, 0.5, 0.0);
        let packet = 8.0 * 1442.0 / 0.1;
        let constant = load(|at| 10e6 + packet * f64::from(at % 2));
        assert_eq!(varying(&constant, None), None);
        let steps = load(|at| if at / 50 % 2 == 0 { 6e6 } else { 14e6 });
        let found = varying(&steps, None).unwrap();
        assert_eq!((found.arrived.values.len(), found.unfilled), (190, 0));
        assert!(found.is_filled());
        // Bursts of losses that often take half of a window explain the same.
        let half_lost = LossFit {
            percent: Estimate::within(25.0, 5.0),
            burst: None,
            counts: Losses {
                of: 10_000,
                lost: 2_500,
                bursts: 20,
            },
            is_half: false,
        };
        assert_eq!(varying(&steps, Some(&half_lost)), None);
    }

    #[test]
    fn bytes_that_a_stalled_host_counts_late_are_no_variation() {
        // Every fifth interval lacks 40 %, which the next one has in addition.
        let stalled = load(|at| match at % 5 {
            3 => 6e6,
            4 => 14e6,
            _ => 10e6,
        });
        assert_eq!(VaryingRate::of(&stalled, None, 0.5, 0.0), None);
    }

    #[test]
    fn the_probes_beside_a_load_are_a_part_of_the_rate() {
        // 1,000 probes of 1,000 bytes in each second take 8 Mbit/s of the second half.
        let mut loaded = load(|at| if at < 100 { 12e6 } else { 4e6 });
        assert!(VaryingRate::of(&loaded, None, 0.5, 0.0).is_some());
        let probes = (0..10_000).map(|at| Probe {
            at_s: f64::from(at) / 1e3,
            rtt_ms: Some(20.0),
            ..Probe::default()
        });
        loaded.from_s = -9.98;
        loaded.probes = ProbeSession {
            wire_bytes: 1000,
            probes: probes.collect(),
            ..ProbeSession::default()
        };
        assert_eq!(VaryingRate::of(&loaded, None, 0.5, 0.0), None);
    }

    #[test]
    fn the_round_trip_before_a_load_arrives_is_no_variation() {
        let mut loaded = load(|at| if at < 13 { 0.0 } else { 10e6 });
        loaded.arrivals.values.truncate(60);
        assert!(VaryingRate::of(&loaded, None, 0.5, 0.0).is_some());
        loaded.probes.probes.push(Probe {
            rtt_ms: Some(1300.0),
            ..Probe::default()
        });
        assert_eq!(VaryingRate::of(&loaded, None, 0.5, 0.0), None);
    }

    #[test]
    fn probes_do_not_make_a_window_look_as_if_the_path_carried_all_of_the_load() {
        // 1,000 probes of 125 bytes in each second are 1 Mbit/s.
        let mut loaded = load(|at| if at / 50 % 2 == 0 { 6e6 } else { 19.2e6 });
        let probes = (0..20_000).map(|at| Probe {
            at_s: f64::from(at) / 1e3,
            rtt_ms: Some(20.0),
            ..Probe::default()
        });
        loaded.probes = ProbeSession {
            wire_bytes: 125,
            probes: probes.collect(),
            ..ProbeSession::default()
        };
        let found = VaryingRate::of(&loaded, None, 0.5, 0.0).unwrap();
        assert_eq!(found.unfilled, 0);
    }

    #[test]
    fn a_load_that_the_path_carries_for_a_long_time_does_not_show_its_rate() {
        let found = load(|at| if at / 50 % 2 == 0 { 6e6 } else { 20e6 });
        let found = VaryingRate::of(&found, None, 0.5, 0.0).unwrap();
        assert_eq!(found.unfilled, 100);
        assert!(!found.is_filled());
    }

    #[test]
    fn a_burst_that_passes_at_first_is_no_variation() {
        let bucket = load(|at| if at < 40 { 20e6 } else { 10e6 });
        assert!(VaryingRate::of(&bucket, None, 0.5, 0.0).is_some());
        // 10 Mbit/s more than the rate passed for four seconds.
        assert_eq!(VaryingRate::of(&bucket, None, 0.5, 40e6), None);
    }
}
