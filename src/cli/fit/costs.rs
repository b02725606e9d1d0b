//! The costs of a measurement: how long its loads last on this path, how much they send, and what the budget allows.

use std::time::Duration;

use anyhow::{Context, Result};
use conditions::Direction;
use fit::{LoadTraffic, LoadedSession, LossFit, PathObservations, ProbeSession, plan};
use instruments::stamp::load_around_probes;
use stats::order_statistics::{percentile, sorted};

/// The reason why the held-out measurement has no loads if they exceed the budget.
pub(super) const TOO_MUCH: &str =
    "the budget does not allow the loads of the comparison: raise --budget";
/// The part of the time for which the idle path is probed for the comparison. Losses need many probes to be compared.
const PROOF_IDLE_PART: f64 = 0.5;
/// The part of the time for which `quality` measures for the comparison, and the least time in seconds.
const PROOF_LOADED_TIME: (f64, f64) = (1.0 / 3.0, 14.0);
/// The part of that time for which each of its three loads lasts on a short path.
const PROOF_LOADED: f64 = 1.0 / 3.0 * 7.0 / 8.0;
/// The loads of `quality` in each direction, of three in total.
const PROOF_LOADS: f64 = 2.0;
/// The time for which a TCP load still occupies the path after its end, in round trips beside the load: its packets are in
/// flight, and about as many are in the sender's buffer.
const IN_FLIGHT_ROUND_TRIPS: f64 = 2.0;
/// The least value of that time in seconds, which counts until the round trips beside loads are known.
const USUAL_IN_FLIGHT_S: f64 = 1.0;
/// The share of idle round trips that the one which counts for the times of loads is not below.
const LONG_ROUND_TRIP: f64 = 0.95;

/// The limits that the user sets.
pub(super) struct Limits {
    /// The time of the measurement that is fitted, in seconds.
    pub(super) time_s: f64,
    /// The bytes that all loads together may send.
    pub(super) budget: f64,
    /// Whether to measure once more for the comparison.
    pub(super) with_proof: bool,
}

impl Limits {
    /// Returns for how many seconds the idle path is probed for the comparison.
    pub(super) fn proof_idle_s(&self) -> f64 {
        PROOF_IDLE_PART * self.time_s
    }

    /// Returns for how many seconds `quality` measures for the comparison, in whole seconds.
    pub(super) fn proof_loaded_s(&self) -> f64 {
        let (part, least_s) = PROOF_LOADED_TIME;
        (part * self.time_s).round().max(least_s)
    }

    /// Returns the time of the held-out measurement in seconds.
    pub(super) fn proof_s(&self) -> f64 {
        self.proof_idle_s() + self.proof_loaded_s()
    }

    /// Returns the bytes that the loads of the held-out measurement send at most. On a long path, they last longer by the same
    /// round trips as the loads that are fitted.
    pub(super) fn proof_bytes(&self, costs: Costs) -> f64 {
        let longer_s = costs.around_s - plan::AROUND_S + costs.in_flight_s;
        let load_s = PROOF_LOADED * self.proof_loaded_s() + longer_s;
        PROOF_LOADS * load_s * costs.rates / 8.0
    }
}

/// The numbers that determine how much the loads send.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    /// The sum of the rates of both directions of the path, in bit/s.
    rates: f64,
    /// The sum of the rates of the strong and the gentle load of each direction, in bit/s.
    pub(super) loads: f64,
    /// The time in seconds for which a load lasts longer than the probes beside it.
    pub(super) around_s: f64,
    /// The time in seconds for which a TCP load still occupies the path after its end.
    in_flight_s: f64,
}

impl Costs {
    /// Returns what the loads cost on a path of which the search has found the rates.
    pub(super) fn of(observed: &PathObservations) -> Self {
        let rates = observed.searches.iter().map(|(way, search)| {
            let rate = served_rate(*way, search, &observed.idle);
            (rate, plan::both_loads(rate, search.wire_bytes))
        });
        let (rates, loads): (Vec<f64>, Vec<f64>) = rates.unzip();
        let round_trips = observed.idle.probes.iter();
        let round_trips: Vec<f64> = round_trips.filter_map(|probe| probe.rtt_ms).collect();
        Self {
            rates: rates.iter().sum(),
            loads: loads.iter().sum(),
            around_s: around_s(&round_trips),
            in_flight_s: USUAL_IN_FLIGHT_S,
        }
    }

    /// Returns the costs with the rates and the queues that the loads have found.
    pub(super) fn after_loads(self, observed: &PathObservations) -> Self {
        Self {
            rates: highest_rates(observed),
            in_flight_s: in_flight_s(&observed.loaded),
            ..self
        }
    }
}

/// Returns the rate of a direction that a load has filled, in bit/s.
pub(super) fn served_rate(way: Direction, load: &LoadTraffic, idle: &ProbeSession) -> f64 {
    plan::served(load, LossFit::of(idle, way).as_ref())
}

/// Divides the `left` bytes of the budget among the loads, which are probed for `probed_s` if that is affordable, and the
/// loads of the held-out measurement, if they are possible. Returns for how many seconds to probe.
///
/// # Errors
/// The shortest loads exceed the budget.
pub(super) fn share_out(
    limits: &Limits,
    probed_s: f64,
    costs: Costs,
    left: f64,
    loads: Result<(), String>,
) -> Result<(f64, Result<(), String>)> {
    let affordable = |left| plan::affordable_s(probed_s, costs.loads, costs.around_s, left);
    let proof = limits.proof_bytes(costs);
    let with_proof = affordable(left - proof).filter(|_| loads.is_ok());
    if let Some(probed_s) = with_proof {
        return Ok((probed_s, Ok(())));
    }
    let probed_s = affordable(left).with_context(|| {
        format!(
            "the path carries {:.0} Mbit/s in both directions together, so that even short loads exceed the budget of {:.0} MB: \
             raise --budget",
            costs.rates / 1e6,
            limits.budget / 1e6
        )
    })?;
    Ok((probed_s, loads.and_then(|()| Err(TOO_MUCH.to_owned()))))
}

/// Returns the sum of the highest rates of both directions that a load has found, in bit/s.
fn highest_rates(observed: &PathObservations) -> f64 {
    let highest = |(way, search): &(Direction, LoadTraffic)| {
        let loaded = observed.loaded.iter().filter(|one| one.direction == *way);
        let loads = loaded.map(|one| &one.load).chain([search]);
        let rates = loads.map(|load| served_rate(*way, load, &observed.idle));
        rates.fold(0.0, f64::max)
    };
    observed.searches.iter().map(highest).sum()
}

/// Returns the time in seconds for which a load on a path with these idle round trips, in milliseconds, lasts longer than the
/// probes beside it, at most. The median of the probes before a load, which determines it, is hardly ever longer than one of
/// the longest round trips here.
fn around_s(round_trips: &[f64]) -> f64 {
    let long_ms = percentile(&sorted(round_trips), LONG_ROUND_TRIP).unwrap_or_default();
    let round_trip = Duration::try_from_secs_f64(long_ms / 1e3).unwrap_or_default();
    load_around_probes(round_trip).as_secs_f64()
}

/// Returns the time in seconds for which a TCP load still occupies the path after its end, if these loads have filled the same
/// queues.
fn in_flight_s(loaded: &[LoadedSession]) -> f64 {
    let longest = loaded.iter().map(|one| longest_ms(&one.probes));
    let longest_s = longest.fold(0.0, f64::max) / 1e3;
    (IN_FLIGHT_ROUND_TRIPS * longest_s).max(USUAL_IN_FLIGHT_S)
}

/// Returns the longest round trip of a session in milliseconds; 0 without one.
pub(super) fn longest_ms(session: &ProbeSession) -> f64 {
    let round_trips = session.probes.iter().filter_map(|probe| probe.rtt_ms);
    round_trips.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use fit::Probe;

    use super::*;

    /// The L2 bytes of a datagram.
    const DATAGRAM: u32 = 1490;

    /// Returns the costs of a path of 16 Mbit/s in both directions together, with this round trip.
    fn costs(round_trip_ms: f64) -> Costs {
        Costs {
            rates: 16e6,
            loads: 2.0 * plan::both_loads(8e6, DATAGRAM),
            around_s: around_s(&[round_trip_ms; 20]),
            in_flight_s: USUAL_IN_FLIGHT_S,
        }
    }

    #[test]
    fn long_round_trips_make_all_loads_longer_and_more_expensive() {
        let limits = Limits {
            time_s: 30.0,
            budget: 0.0,
            with_proof: true,
        };
        let [short, long] = [20.0, 600.0].map(|round_trip_ms| {
            let costs = costs(round_trip_ms);
            let loads = plan::load_bytes(costs.loads, 5.0, costs.around_s);
            (costs.around_s, loads + limits.proof_bytes(costs))
        });
        // Four round trips before the probes and one after them, each in whole seconds.
        assert_eq!((short.0, long.0), (plan::AROUND_S, 7.0));
        let more_s = long.0 - short.0;
        let more = more_s * (costs(600.0).loads + PROOF_LOADS * 16e6) / 8.0;
        assert!((long.1 - short.1 - more).abs() < 1.0, "{short:?} {long:?}");
        // A budget that is enough for a short path is not enough for the same loads on a long one.
        let (probed_s, _) = share_out(&limits, 5.0, costs(600.0), short.1, Ok(())).unwrap();
        assert!(probed_s < 5.0, "{probed_s}");
    }

    #[test]
    fn the_loads_of_the_comparison_cost_the_queues_that_they_fill() {
        let beside = |rtt_ms| {
            let traffic = LoadTraffic {
                wire_bytes: DATAGRAM,
                sent: 16e6,
                sending_s: 10.0,
                bytes: 10e6,
                seconds: 10.0,
                error: 0.0,
            };
            let mut session = LoadedSession::unprobed(Direction::Down, traffic);
            session.probes.probes = vec![Probe {
                rtt_ms: Some(rtt_ms),
                ..Probe::default()
            }];
            session
        };
        assert_eq!(in_flight_s(&[]), USUAL_IN_FLIGHT_S);
        assert_eq!(in_flight_s(&[beside(100.0)]), USUAL_IN_FLIGHT_S);
        let in_flight_s = in_flight_s(&[beside(100.0), beside(2000.0)]);
        assert_eq!(in_flight_s, 4.0);
        let limits = Limits {
            time_s: 50.0,
            budget: 0.0,
            with_proof: true,
        };
        // A third of 50 s as whole seconds, as `quality` has it.
        assert_eq!(limits.proof_loaded_s(), 17.0);
        let bytes = limits.proof_bytes(Costs {
            in_flight_s,
            ..costs(20.0)
        });
        let load_s = 17.0 * 7.0 / 24.0 + 4.0;
        assert!((bytes - 2.0 * load_s * 2e6).abs() < 1.0, "{bytes}");
    }

    #[test]
    fn a_budget_pays_for_the_loads_before_the_comparison() {
        let limits = |budget| Limits {
            time_s: 30.0,
            budget,
            with_proof: true,
        };
        let shared = |budget: f64| share_out(&limits(budget), 2.0, costs(20.0), budget, Ok(()));
        let loads = plan::load_bytes(costs(20.0).loads, 2.0, plan::AROUND_S);
        let proof = limits(0.0).proof_bytes(costs(20.0));
        assert_eq!(shared(loads + proof + 1.0).unwrap(), (2.0, Ok(())));
        let (probed_s, proof_loads) = shared(loads + 1.0).unwrap();
        assert_eq!(probed_s, 2.0);
        assert!(proof_loads.unwrap_err().contains("raise --budget"));
        let error = shared(0.5 * loads).unwrap_err().to_string();
        assert!(error.contains("carries 16 Mbit/s"), "{error}");
    }

    #[test]
    fn loads_of_a_comparison_that_are_impossible_keep_their_reason() {
        let limits = Limits {
            time_s: 30.0,
            budget: 1e9,
            with_proof: false,
        };
        let impossible = Err("no".to_owned());
        let shared = share_out(&limits, 2.0, costs(20.0), 1e9, impossible).unwrap();
        assert_eq!(shared, (2.0, Err("no".to_owned())));
    }
}
