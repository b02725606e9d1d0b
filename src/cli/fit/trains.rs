//! Trains of packets on the idle path, which show how a path serves a short burst: when they are measured, what they send, and
//! what they show.

use std::time::Duration;

use conditions::Direction;
use fit::{Bottleneck, LinkFit, OverTime, TrainSession, plan};
use record::{Measurement, Metric, Phase, Sample};

/// The fact in which `farwire measure probe` says how the far end answers trains.
const TRAIN_FACT: &str = "train";
/// The words of that fact on the direction down, if the far end answers each packet when it arrives.
const SPREAD_BY_UP: &str = "as the direction up has spread it";
/// The name of what trains show, in the reasons why it could not be learnt.
pub(super) const LIGHT_LOAD: &str = "how the path serves a burst on light load";
/// The header of Ethernet in bytes, without FCS.
const ETHERNET: u32 = 14;
/// The fewest trains of a session. The fit needs 20 that arrived complete.
const FEWEST: u32 = 30;
/// The longest time between two trains. With [`FEWEST`] trains, a session lasts for a minute then.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// A session of trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrainPlan {
    /// The number of packets of all trains together.
    pub(super) count: u32,
    /// The time between two trains.
    pub(super) interval: Duration,
    /// The payload of a packet in bytes.
    pub(super) size: u32,
    /// The packets of a train.
    pub(super) length: u32,
    /// Whether the far end holds the answers of a train until it is complete, so that the direction down sees trains, too. It
    /// is known when trains have been measured.
    pub(super) is_held: bool,
}

impl TrainPlan {
    /// Plans the trains of a fit whose packets have `headers` bytes of L2, L3 and L4; `None` if no rate varies. They last as
    /// long as the fitted rate, so that the light and the full load begin again after the same time.
    pub(super) fn of(found: &LinkFit, headers: u32) -> Option<Self> {
        let both = [&found.up, &found.down].into_iter();
        let known: Vec<&Bottleneck> = both.filter_map(|one| one.bottleneck.as_ref()).collect();
        let varying = known.iter().filter_map(|one| one.over_time.as_ref());
        let lasts_s = varying.map(OverTime::lasts_s).reduce(f64::max)?;
        let rates = known.iter().map(|one| one.rate.value);
        let slowest = rates.fold(f64::INFINITY, f64::min);
        Some(Self::lasting(lasts_s, slowest, headers))
    }

    /// Plans trains for this number of seconds, or for longer if they are few, on a path whose slower direction has this rate
    /// in bit/s.
    pub(super) fn lasting(lasts_s: f64, slowest: f64, headers: u32) -> Self {
        let plan = Self {
            count: 0,
            interval: Duration::from_secs_f64(plan::train_interval_s(slowest)),
            size: plan::TRAIN_WIRE_BYTES.saturating_sub(headers),
            length: plan::TRAIN,
            is_held: true,
        };
        plan.for_time(lasts_s)
    }

    /// Returns the trains of the comparison, which last for this number of seconds, or the reason why they are impossible with
    /// `left` bytes.
    pub(super) fn held_out(self, lasts_s: f64, left: f64) -> Result<Self, String> {
        let plan = self.for_time(lasts_s);
        plan.check(None, left).map(|()| plan)
    }

    /// Checks that the path passes the packets, if its MTU in L3 bytes is known, and that they send at most `left` bytes. The
    /// error is the reason why trains are not sent.
    pub(super) fn check(&self, mtu: Option<u32>, left: f64) -> Result<(), String> {
        let needed = plan::TRAIN_WIRE_BYTES - ETHERNET;
        if let Some(mtu) = mtu.filter(|mtu| *mtu < needed) {
            return Err(format!(
                "a packet of a train has {needed} bytes of L3, and the MTU up is {mtu}"
            ));
        }
        if self.interval > LONGEST_INTERVAL {
            return Err(format!(
                "the path is so slow that there would be {:.0} s between two trains of packets",
                self.interval.as_secs_f64()
            ));
        }
        if self.bytes() > left {
            return Err("the budget allows no trains of packets: raise --budget".to_owned());
        }
        Ok(())
    }

    /// Returns the bytes that the trains and their answers send.
    pub(super) fn bytes(&self) -> f64 {
        2.0 * f64::from(self.count) * f64::from(plan::TRAIN_WIRE_BYTES)
    }

    /// Returns for how long the trains are sent.
    pub(super) fn lasts(&self) -> Duration {
        self.interval * self.trains()
    }

    /// Returns the trains in words.
    pub(super) fn description(&self) -> String {
        let (trains, length) = (self.trains(), self.length);
        format!("{trains} trains of {length} packets")
    }

    /// Reads the trains of a measurement whose packets have `headers` bytes of L2, L3 and L4.
    pub(super) fn session(&self, measured: &Measurement, headers: u32) -> TrainSession {
        let wire_bytes = self.size.saturating_add(headers);
        let mut session = TrainSession::of(measured, None, self.length as usize, wire_bytes);
        if !self.is_held {
            for train in &mut session.trains {
                let [_, down] = &mut train.arrivals_ms;
                down.clear();
            }
        }
        session
    }

    /// Returns the samples of a measurement that show the trains, as a part of the idle phase.
    pub(super) fn samples(&self, measured: Measurement) -> Vec<Sample> {
        let of_trains = measured.samples.into_iter().filter(|sample| {
            let is_unseen = !self.is_held && sample.direction == Some(Direction::Down);
            sample.metric == Metric::InTrainMs && !is_unseen
        });
        let idle = of_trains.map(|sample| Sample {
            phase: Some(Phase::Idle),
            ..sample
        });
        idle.collect()
    }

    /// Returns which directions whose rate varies these trains do not show, each with the reason.
    pub(super) fn lacks(&self, found: &LinkFit, session: &TrainSession) -> Vec<String> {
        let ways = [(Direction::Up, &found.up), (Direction::Down, &found.down)];
        let varying = ways.into_iter().filter(|(_, one)| {
            let bottleneck = one.bottleneck.as_ref();
            bottleneck.is_some_and(|bottleneck| bottleneck.over_time.is_some())
        });
        let lacking = varying.filter_map(|(way, _)| {
            let cause = self.lack(way, session)?;
            Some(format!("{LIGHT_LOAD} {}: {cause}", way.name()))
        });
        lacking.collect()
    }

    /// Returns the reason why the trains do not show this direction; `None` if they do.
    fn lack(&self, way: Direction, session: &TrainSession) -> Option<String> {
        if way == Direction::Down && !self.is_held {
            let cause = "the far end answers each packet of a train when it arrives, so that the way back has no trains";
            return Some(cause.to_owned());
        }
        // The evidence of the light load says it if too few arrived complete.
        let mut arrived = session
            .trains
            .iter()
            .map(|train| way.choose(&train.arrivals_ms[0], &train.arrivals_ms[1]));
        let is_shown = arrived.any(|arrived| arrived.len() == session.length);
        let sent = self.trains();
        (!is_shown).then(|| format!("none of {sent} trains arrived complete"))
    }

    /// Returns the number of trains.
    fn trains(&self) -> u32 {
        self.count / self.length.max(1)
    }

    /// Returns the same trains for this number of seconds, or for longer if they are few.
    fn for_time(self, lasts_s: f64) -> Self {
        let trains = Duration::from_secs_f64(lasts_s).as_millis() / self.interval.as_millis();
        let trains = u32::try_from(trains).unwrap_or(u32::MAX).max(FEWEST);
        Self {
            count: trains.saturating_mul(self.length),
            ..self
        }
    }
}

/// Returns whether the far end of a measurement held the answers of each train until it was complete.
pub(super) fn are_held(measured: &Measurement) -> bool {
    let fact = measured.facts.get(TRAIN_FACT);
    fact.is_none_or(|fact| !fact.contains(SPREAD_BY_UP))
}

#[cfg(test)]
mod tests {
    use fit::{LoadTraffic, LoadedSession, PathObservations, Train};

    use super::*;

    /// The headers of a datagram over IPv4 in bytes.
    const HEADERS: u32 = 42;

    /// Returns the fit of a path whose rate down is that of these intervals of 100 ms, in bit/s.
    fn fitted(rates: Vec<f64>) -> LinkFit {
        let traffic = LoadTraffic {
            wire_bytes: 1442,
            sent: 16e6,
            sending_s: 10.0,
            bytes: rates.iter().sum::<f64>() * 0.1 / 8.0,
            seconds: 10.0,
            error: 0.0,
        };
        let loaded = LoadedSession {
            arrivals: OverTime {
                every_s: 0.1,
                values: rates,
            },
            ..LoadedSession::unprobed(Direction::Down, traffic)
        };
        LinkFit::of(&PathObservations {
            loaded: vec![loaded],
            ..PathObservations::default()
        })
    }

    /// Returns the fit of a path whose rate has a step every two seconds.
    fn varying() -> LinkFit {
        let rates = (0..100).map(|at| if at / 20 % 2 == 0 { 4e6 } else { 7e6 });
        fitted(rates.collect())
    }

    /// Returns a session of trains, of which this number arrived complete.
    fn session(complete: usize) -> TrainSession {
        let train = |at: usize| Train {
            at_s: 0.1 * at as f64,
            arrivals_ms: [0, 1].map(|_| {
                let arrived = if at < complete { 10 } else { 9 };
                (0..arrived).map(f64::from).collect()
            }),
        };
        TrainSession {
            wire_bytes: 1400,
            length: 10,
            trains: (0..40).map(train).collect(),
        }
    }

    #[test]
    fn trains_are_planned_for_a_rate_that_varies_and_last_as_long_as_it() {
        assert_eq!(TrainPlan::of(&fitted(vec![5e6; 100]), HEADERS), None);
        let plan = TrainPlan::of(&varying(), HEADERS).unwrap();
        assert_eq!((plan.length, plan.size), (10, 1358));
        // The first second of the load shows no rate.
        let lasts_s = plan.lasts().as_secs_f64();
        assert!((8.5..=9.0).contains(&lasts_s), "{plan:?}");
        // Ten times the time of a train, which has 112,000 bits.
        let interval_s = plan.interval.as_secs_f64();
        assert!((0.15..=0.29).contains(&interval_s), "{plan:?}");
    }

    #[test]
    fn a_session_has_enough_trains_and_a_very_slow_path_none() {
        let few = TrainPlan::lasting(1.0, 20e6, HEADERS);
        assert_eq!((few.count, few.check(None, 1e9)), (300, Ok(())));
        let slow = TrainPlan::lasting(1.0, 4e5, HEADERS);
        let cause = slow.check(None, 1e9).unwrap_err();
        assert!(cause.contains("3 s between two trains"), "{cause}");
    }

    #[test]
    fn the_bytes_of_trains_and_of_their_answers_count_against_the_budget() {
        let plan = TrainPlan::lasting(10.0, 20e6, HEADERS);
        assert_eq!((plan.count, plan.bytes()), (1000, 2.8e6));
        assert_eq!(plan.check(None, 2.8e6), Ok(()));
        let cause = plan.check(None, 2.7e6).unwrap_err();
        assert!(cause.contains("raise --budget"), "{cause}");
        let longer = plan.held_out(20.0, 5.6e6).unwrap();
        assert_eq!((longer.count, longer.interval), (2000, plan.interval));
        assert!(plan.held_out(20.0, 5.5e6).is_err());
    }

    #[test]
    fn packets_that_are_longer_than_the_mtu_are_not_sent() {
        let plan = TrainPlan::lasting(10.0, 20e6, HEADERS);
        assert_eq!(plan.check(Some(1386), 1e9), Ok(()));
        let cause = plan.check(Some(1385), 1e9).unwrap_err();
        assert!(cause.contains("the MTU up is 1385"), "{cause}");
    }

    #[test]
    fn a_far_end_that_does_not_hold_answers_shows_no_trains_down() {
        let with_fact = |fact: &str| Measurement::default().with_fact(TRAIN_FACT, fact);
        let stock = with_fact(&format!("the direction down sees a train {SPREAD_BY_UP}"));
        let holding = with_fact("ten packets back to back");
        assert_eq!([&stock, &holding].map(are_held), [false, true]);
        let held = TrainPlan::lasting(4.0, 20e6, HEADERS);
        let not_held = TrainPlan {
            is_held: false,
            ..held
        };
        let found = varying();
        assert_eq!(held.lacks(&found, &session(40)), [""; 0]);
        let lacks = not_held.lacks(&found, &session(40)).concat();
        let expected = "burst on light load down: the far end answers each packet";
        assert!(lacks.contains(expected), "{lacks}");
    }

    #[test]
    fn samples_of_a_direction_that_sees_no_trains_are_left_out() {
        let measured = || {
            let of = |metric, way: Direction| Sample::new(1.0, metric, 1, 2.0).toward(way);
            Measurement {
                samples: vec![
                    of(Metric::InTrainMs, Direction::Up),
                    of(Metric::InTrainMs, Direction::Down),
                    of(Metric::OneWayDelayMs, Direction::Up),
                ],
                ..Measurement::default()
            }
        };
        let held = TrainPlan::lasting(4.0, 20e6, HEADERS);
        let ways = |plan: TrainPlan| -> Vec<_> {
            let samples = plan.samples(measured()).into_iter();
            samples.map(|one| (one.phase, one.direction)).collect()
        };
        let idle = Some(Phase::Idle);
        let (up, down) = (Some(Direction::Up), Some(Direction::Down));
        assert_eq!(ways(held), [(idle, up), (idle, down)]);
        let not_held = TrainPlan {
            is_held: false,
            ..held
        };
        assert_eq!(ways(not_held), [(idle, up)]);
    }

    #[test]
    fn trains_of_which_none_arrived_complete_are_stated() {
        let plan = TrainPlan::lasting(4.0, 20e6, HEADERS);
        let found = varying();
        assert_eq!(plan.lacks(&found, &session(1)), [""; 0]);
        let lacks = plan.lacks(&found, &session(0)).concat();
        let expected = "burst on light load down: none of 40 trains arrived complete";
        assert!(lacks.contains(expected), "{lacks}");
    }
}
