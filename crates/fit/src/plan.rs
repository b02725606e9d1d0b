//! The measurement that [`LinkFit`](crate::LinkFit) needs: the times of its sessions, and the rates of its loads.

use crate::loss::{self, LossFit};
use crate::observations::{Intensity, LoadTraffic, LoadedSession, PathObservations};
use crate::queue;
use crate::varying_rate::VaryingRate;

/// The rates in bit/s that are tried one after another until one exceeds the path.
pub const SEARCH_RATES: [f64; 6] = [2e6, 8e6, 32e6, 128e6, 512e6, 2048e6];
/// The time for which each of them is sent, in seconds, on a path without a long delay.
const SEARCH_S: f64 = 0.5;
/// The share of what was sent below which the path carries less than was sent.
const FULL_BELOW: f64 = 0.85;
/// The share of the rate below which a load meets no queue.
const FAR_BELOW: f64 = 0.5;
/// A strong load as a multiple of the rate. A queue of this many seconds is full after the same time.
const STRONG: f64 = 2.0;
/// The share of a load that arrives at least if it does not fill the path.
const CARRIED: f64 = 0.99;
/// The most loads that look for the highest rate of a path, each twice as fast as the one before.
pub const MOST_FASTER: u32 = 3;
/// The time in seconds between two readings of a load.
pub const READING_S: f64 = 0.1;
/// The packets per second by which a gentle load exceeds the rate. CoDel's queue is short again after 2.4 s of it; see
/// [`QueueKind`](crate::QueueKind).
const GENTLE_PACKETS: f64 = 60.0;
/// The least and the largest share by which a gentle load exceeds the rate.
const GENTLE_SHARE: [f64; 2] = [0.015, 0.3];
/// The packets of a train that is sent on the idle path of which a direction varies.
pub const TRAIN: u32 = 10;
/// The L2 bytes of a packet of a train without FCS. An opportunity of a link with a light load serves as many.
pub const TRAIN_WIRE_BYTES: u32 = 1400;
/// The time between two trains, as a multiple of the time that a train takes at the slowest rate.
const BETWEEN_TRAINS: f64 = 10.0;
/// The least and the longest time between two trains in milliseconds. A path that stops has no rate for a train.
const TRAIN_INTERVAL_MS: [f64; 2] = [100.0, 10_000.0];
/// The sessions of probes on the idle path, each as long as the probes beside a load: one before the search, and one
/// before each load.
const IDLE_SESSIONS: f64 = 5.0;
/// The loads: a strong and a gentle one in each direction.
const LOADS: f64 = 4.0;
/// The time on a short path for which `farwire measure probe` loads it before the first probe and after the last one. A long
/// path needs more.
pub const AROUND_S: f64 = 3.0;
/// The part of the whole time in which farwire connects, searches for the rates and counts losses. In a short measurement, this
/// takes somewhat longer.
const SEARCH_PART: f64 = 0.1;
/// The longest time in seconds for which a queue of a load's own is left to become empty.
const LONGEST_PAUSE_S: f64 = 10.0;
/// The payload in bytes of the small datagrams that show the losses of a direction. With the headers of UDP, IPv4 and Ethernet,
/// it is the shortest frame of Ethernet without FCS.
pub const LOSSES_PAYLOAD: u32 = 18;
/// The part of the whole time for which small datagrams show the losses of a direction, the share of its rate that they take,
/// and their largest number in a second.
const LOSSES_PART: f64 = 0.05;
const LOSSES_SHARE: f64 = 0.4;
const MOST_LOSSES_PACKETS: f64 = 20_000.0;
/// The least time in seconds for which a path is probed beside a load.
const LEAST_PROBED_S: f64 = 1.0;

/// The load that follows another one in its direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NextLoad {
    /// A gentle load of this rate in bit/s, because the path has one rate.
    Gentle(f64),
    /// A load of this rate in bit/s, because the load did not fill the path all of the time, or hardly exceeded its rate.
    Faster(f64),
    /// None: the path varies, and the load showed how. It has no rate that a gentle load exceeds.
    Nothing,
}

/// Returns for how many seconds to probe in each session, so that the whole measurement of a short path takes `total_s`.
pub fn probed_s(total_s: f64) -> f64 {
    let probed = (1.0 - SEARCH_PART) * total_s - LOADS * AROUND_S;
    (probed / (IDLE_SESSIONS + LOADS)).max(LEAST_PROBED_S)
}

/// Returns for how many seconds small datagrams show the losses of each direction in such a measurement.
pub fn losses_s(total_s: f64) -> f64 {
    LOSSES_PART * total_s
}

/// Returns the rate of small datagrams with this number of bytes that show the losses of a path of this rate, in the same unit.
/// They are numerous enough to show how long bursts are, and far enough below the rate to meet no queue.
pub fn losses_rate(rate: f64, wire_bytes: u32) -> f64 {
    (LOSSES_SHARE * rate).min(MOST_LOSSES_PACKETS * 8.0 * f64::from(wire_bytes))
}

/// Returns for how many seconds the loads fill a short path in such a measurement.
pub fn full_s(total_s: f64) -> f64 {
    LOADS * (probed_s(total_s) + AROUND_S)
}

/// Returns the sum of the rates of the strong and the gentle load on a path of this rate, in bit/s, whose datagrams have this
/// number of bytes.
pub fn both_loads(rate: f64, wire_bytes: u32) -> f64 {
    strong(rate) + gentle(rate, wire_bytes)
}

/// Returns the bytes that loads whose rates have this sum, in bit/s, send beside probes for `probed_s`. Each load lasts for
/// `around_s` longer than the probes.
pub fn load_bytes(rates: f64, probed_s: f64, around_s: f64) -> f64 {
    (probed_s + around_s) * rates / 8.0
}

/// Returns for how many seconds to probe in each session, so that loads whose rates have the sum `rates`, in bit/s, and which
/// last for `around_s` longer, send at most `most` bytes; `None` if the shortest loads send more.
pub fn affordable_s(probed_s: f64, rates: f64, around_s: f64, most: f64) -> Option<f64> {
    if load_bytes(rates, probed_s, around_s) <= most {
        return Some(probed_s);
    }
    let affordable = 8.0 * most / rates - around_s;
    (affordable >= LEAST_PROBED_S).then_some(affordable)
}

/// Returns for how long a rate is sent to find that of the path, in seconds. On a long path, the first datagrams need a
/// part of it.
pub fn search_s(round_trip_ms: f64) -> f64 {
    SEARCH_S + 2e-3 * round_trip_ms
}

/// Returns whether a path that passed a load carries less than was sent. Random loss, as far as it is known, is no sign of
/// it.
pub fn is_full(load: &LoadTraffic, random: Option<&LossFit>) -> bool {
    load.received() < FULL_BELOW * load.sent * loss::passes(random)
}

/// Returns whether a load that was sent at this rate is so far below that of the path that it loses packets by chance only.
pub fn is_far_below(sent: f64, rate: f64) -> bool {
    sent < FAR_BELOW * rate
}

/// Returns the rate of a path that a load has filled, in bit/s, if the random loss occurs behind its bottleneck.
pub fn served(load: &LoadTraffic, random: Option<&LossFit>) -> f64 {
    load.received() / loss::passes(random).max(0.1)
}

/// Returns the rate of a strong load on a path of this rate, in the same unit.
pub fn strong(rate: f64) -> f64 {
    STRONG * rate
}

/// Returns the load that follows a strong one on a path of this rate, in bit/s.
pub fn next(observed: &PathObservations, strong: &LoadedSession, rate: f64) -> NextLoad {
    let random = LossFit::of(&observed.idle, strong.direction);
    let load = &strong.load;
    let faster = NextLoad::Faster(STRONG * load.sent);
    match VaryingRate::beside(observed, strong) {
        Some(varying) if varying.is_filled() => NextLoad::Nothing,
        Some(_) => faster,
        None if strong.intensity == Intensity::Gentle => faster,
        // Of a load that loses many packets by chance, less arrives even if the path carries it.
        None if load.received() > CARRIED * load.sent * loss::passes(random.as_ref()) => faster,
        None => NextLoad::Gentle(gentle(rate, load.wire_bytes)),
    }
}

/// Returns for how many seconds to wait after a load, so that a queue for its flow alone is empty before the next one begins. The
/// path has this rate in bit/s, and is probed for `probed_s` meanwhile.
pub fn pause_s(
    observed: &PathObservations,
    loaded: &LoadedSession,
    rate: f64,
    probed_s: f64,
) -> f64 {
    let left_s = queue::left_behind_s(observed, loaded, rate);
    (left_s - probed_s).clamp(0.0, LONGEST_PAUSE_S)
}

/// Returns the rate of a gentle load of datagrams with this number of bytes on a path of this rate, in bit/s.
pub fn gentle(rate: f64, wire_bytes: u32) -> f64 {
    let excess = GENTLE_PACKETS * 8.0 * f64::from(wire_bytes) / rate;
    rate * (1.0 + excess.clamp(GENTLE_SHARE[0], GENTLE_SHARE[1]))
}

/// Returns the time between two trains on a path whose slowest rate is this one in bit/s, in seconds: ten times the
/// time that a train needs at that rate, so that a path is idle for nine tenths of the time, but at least 0.1 s and at
/// most 10 s, rounded up to whole milliseconds.
pub fn train_interval_s(slowest_rate: f64) -> f64 {
    let [least_ms, longest_ms] = TRAIN_INTERVAL_MS;
    let train_ms = 8e3 * f64::from(TRAIN * TRAIN_WIRE_BYTES) / slowest_rate.max(1.0);
    let between_ms = (BETWEEN_TRAINS * train_ms).clamp(least_ms, longest_ms);
    between_ms.ceil() / 1e3
}

#[cfg(test)]
mod tests {
    use conditions::Direction;

    use super::*;
    use crate::over_time::OverTime;

    #[test]
    fn all_sessions_fit_into_the_time() {
        let probed_s = probed_s(30.0);
        assert!((probed_s - 5.0 / 3.0).abs() < 1e-9, "{probed_s}");
        let sessions = IDLE_SESSIONS * probed_s + LOADS * (probed_s + AROUND_S);
        assert!((sessions - 27.0).abs() < 1e-9, "{sessions}");
        // 0.4 T + 20 s / 3.
        let full_s = full_s(180.0);
        assert!((full_s - 236.0 / 3.0).abs() < 1e-9, "{full_s}");
    }

    #[test]
    fn a_small_budget_shortens_the_loads_and_a_smaller_one_allows_none() {
        let whole = load_bytes(8e6, 5.0, AROUND_S);
        assert_eq!(affordable_s(5.0, 8e6, AROUND_S, whole), Some(5.0));
        // Three quarters of the load's eight seconds have three seconds of probes.
        let shorter = affordable_s(5.0, 8e6, AROUND_S, 0.75 * whole).unwrap();
        assert!((shorter - 3.0).abs() < 1e-9, "{shorter}");
        assert_eq!(affordable_s(5.0, 8e6, AROUND_S, 0.4 * whole), None);
        assert_eq!(affordable_s(5.0, 0.0, AROUND_S, 0.0), Some(5.0));
    }

    #[test]
    fn the_loads_of_a_long_and_slow_path_send_at_most_what_is_left() {
        // Round trips of 600 ms make each load four seconds longer.
        let around_s = AROUND_S + 4.0;
        for rate in [1e5, 3e5, 1e6, 3e6, 1e7] {
            let most = 0.75 * (5.0 + around_s) * 3.3 * rate / 8.0;
            let probed_s = affordable_s(5.0, both_loads(rate, 1442), around_s, most).unwrap();
            let load_s = probed_s + around_s;
            let sent = (STRONG * rate + gentle(rate, 1442)) * load_s / 8.0;
            assert!(sent <= most * (1.0 + 1e-9), "{rate}: {sent} of {most}");
        }
    }

    #[test]
    fn a_load_that_is_not_far_above_the_rate_is_followed_by_a_faster_one() {
        let traffic = LoadTraffic {
            wire_bytes: 1442,
            sent: 16e6,
            sending_s: 10.0,
            bytes: 10e6,
            seconds: 10.0,
            error: 0.0,
        };
        let after = |traffic, rates: Vec<f64>| {
            let strong = LoadedSession {
                arrivals: OverTime {
                    every_s: 0.1,
                    values: rates,
                },
                ..LoadedSession::unprobed(Direction::Down, traffic)
            };
            next(&PathObservations::default(), &strong, 8e6)
        };
        let steps = |rates: [f64; 2]| -> Vec<f64> {
            let of = |at: usize| rates[at / 20 % 2];
            (0..100).map(of).collect()
        };
        assert_eq!(
            after(traffic, vec![8e6; 100]),
            NextLoad::Gentle(gentle(8e6, 1442))
        );
        assert_eq!(after(traffic, steps([4e6, 12e6])), NextLoad::Nothing);
        assert_eq!(after(traffic, steps([4e6, 16e6])), NextLoad::Faster(32e6));
        let carried = LoadTraffic {
            bytes: 20e6,
            ..traffic
        };
        assert_eq!(after(carried, vec![16e6; 100]), NextLoad::Faster(32e6));
        // A load of 4/3 of the rate is not far above it.
        let close = LoadTraffic {
            bytes: 15e6,
            ..traffic
        };
        assert_eq!(after(close, vec![12e6; 100]), NextLoad::Faster(32e6));
    }

    #[test]
    fn losses_are_counted_on_many_small_datagrams_far_below_the_rate() {
        assert!((losses_rate(8e6, 60) - 3.2e6).abs() < 1e-6);
        assert!(is_far_below(losses_rate(8e6, 60), 8e6));
        let most = losses_rate(1e9, 60) / 8.0 / 60.0;
        assert!((most - MOST_LOSSES_PACKETS).abs() < 1e-6, "{most}");
    }

    #[test]
    fn a_gentle_load_exceeds_the_rate_by_a_few_packets() {
        assert!((gentle(20e6, 1442) / 20e6 - 1.0346).abs() < 0.001);
        assert!((gentle(200e6, 1442) / 200e6 - 1.015).abs() < 1e-6);
        assert!((gentle(1e6, 1442) / 1e6 - 1.3).abs() < 1e-6);
    }

    #[test]
    fn trains_leave_the_path_idle_for_most_of_the_time() {
        // A train of 112,000 bits takes 112 ms at 1 Mbit/s.
        assert_eq!(train_interval_s(1e6), 1.12);
        assert_eq!(train_interval_s(3e6), 0.374);
        assert_eq!(train_interval_s(1e9), 0.1);
        assert_eq!(train_interval_s(0.0), 10.0);
    }
}
