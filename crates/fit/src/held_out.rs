//! The part of a file's probes that is held out: the link is fitted to the probes before it, and then compared with it.

use conditions::Direction;
use record::{Figure, Measurement, Metric, Phase, Sample, Statistic};
use stats::losses::Losses;

use crate::DIRECTIONS;
use crate::index;
use crate::observations::{PathObservations, Probe, ProbeSession};

/// One of this number of probes is held out.
const ONE_OF: usize = 3;

impl PathObservations {
    /// Divides the probes on the idle path. Returns the observations without the last third of them, and that third as a
    /// session; it is shorter if it would take longer than `longest_s` seconds. `None` if no delay is in it.
    ///
    /// Loads, and datagrams whose losses count beside those of the probes, stay in the observations.
    pub fn hold_out(&self, longest_s: f64) -> Option<(Self, ProbeSession)> {
        let idle = &self.idle;
        let from = match idle.has_round_trips() {
            true => idle.last_probes(longest_s)?,
            false => idle.last_time(longest_s)?,
        };
        // A burst of lost round trips is not divided, because the later part begins with an answered probe.
        let mut last = idle.probes[from..].iter();
        let lost = last.position(has_arrived)?;
        let (earlier, later) = idle.probes.split_at(from + lost);
        let losses = DIRECTIONS.map(|way| {
            let all = idle.losses[index(way)]?;
            let [of_all, of_earlier, of_later] =
                [idle.probes.as_slice(), earlier, later].map(|probes| idle.counted(probes, way));
            match without(all, of_all) {
                Some(others) => Some([of_earlier.with(others), of_later]),
                None if idle.has_round_trips() => None,
                // The losses of a full direction are not known, and no round trips take their place.
                None => Some([Losses::default(); 2]),
            }
        });
        let start_s = later.first()?.at_s;
        let held_out = ProbeSession {
            wire_bytes: idle.wire_bytes,
            probes: later
                .iter()
                .map(|probe| Probe {
                    at_s: probe.at_s - start_s,
                    ..*probe
                })
                .collect(),
            losses: losses.map(|parts| parts.map(|[_, of_later]| of_later)),
            clock_error_ms: idle.clock_error_ms,
            ..ProbeSession::default()
        };
        let (kept, all) = (earlier.len() as u64, idle.probes.len() as u64);
        let fitted = ProbeSession {
            probes: earlier.to_vec(),
            losses: losses.map(|parts| parts.map(|[of_earlier, _]| of_earlier)),
            // The probes that were answered twice are not known one by one.
            duplicates: idle.duplicates.saturating_mul(kept).div_ceil(all),
            ..idle.clone()
        };
        let fitted = Self {
            idle: fitted,
            ..self.clone()
        };
        Some((fitted, held_out))
    }
}

impl ProbeSession {
    /// Returns whether it has round trips. Packets of a capture of both ends, or of a packet log, have only delays of their
    /// direction.
    pub fn has_round_trips(&self) -> bool {
        self.answered().next().is_some()
    }

    /// Returns the number of probes that were answered, or of packets that arrived.
    pub fn arrivals(&self) -> usize {
        self.probes
            .iter()
            .filter(|probe| has_arrived(probe))
            .count()
    }

    /// Returns the session as a measurement of an idle path, as [`Comparison`](crate::Comparison) takes it. Its round trips
    /// count as those between the programs, because a file may have either.
    pub fn to_measurement(&self) -> Measurement {
        let samples = (1_u64..).zip(&self.probes).flat_map(|(number, probe)| {
            let sample = move |metric, value, direction| Sample {
                direction,
                phase: Some(Phase::Idle),
                ..Sample::new(probe.at_s, metric, number, value)
            };
            let round_trip = probe.rtt_ms.map(|ms| sample(Metric::RttMs, ms, None));
            let one_way = DIRECTIONS.map(|way| {
                let ms = probe.one_way_ms[index(way)]?;
                Some(sample(Metric::OneWayDelayMs, ms, Some(way)))
            });
            let lost = (!has_arrived(probe)).then(|| sample(Metric::LostPackets, 1.0, probe.lost));
            let all = round_trip.into_iter().chain(one_way.into_iter().flatten());
            all.chain(lost)
        });
        let figures = DIRECTIONS.into_iter().filter_map(|way| {
            let losses = self.losses[index(way)]?;
            let figure = Figure::new(Metric::LostPercent, Statistic::Mean, losses.percent()?);
            Some(Figure {
                losses: Some(losses),
                ..figure.toward(way).during(Phase::Idle)
            })
        });
        Measurement {
            samples: samples.collect(),
            figures: figures.collect(),
            ..Measurement::default()
        }
    }

    /// Returns the place of the first of the last third of probes, or of those that take `longest_s` seconds at their usual
    /// interval.
    fn last_probes(&self, longest_s: f64) -> Option<usize> {
        let interval_s = self.interval_s()?;
        let most = (1..=self.probes.len() / ONE_OF)
            .take_while(|count| *count as f64 * interval_s <= longest_s)
            .count();
        Some(self.probes.len() - most)
    }

    /// Returns the place of the first packet of the last third of the time, or of the last `longest_s` seconds.
    fn last_time(&self, longest_s: f64) -> Option<usize> {
        let (first, last) = (self.probes.first()?, self.probes.last()?);
        let third_s = (last.at_s - first.at_s) / ONE_OF as f64;
        let from_s = last.at_s - third_s.min(longest_s);
        Some(self.probes.partition_point(|probe| probe.at_s < from_s))
    }

    /// Returns the losses in a direction of a part of its probes. A far end that counts does not know where probes after the
    /// last answered one were lost, and these do not count.
    fn counted(&self, probes: &[Probe], way: Direction) -> Losses {
        if !self.has_round_trips() {
            let of_way = probes
                .iter()
                .filter(|probe| probe.one_way_ms[index(way)].is_some() || probe.lost == Some(way));
            return Losses::in_order(of_way.map(|probe| probe.lost.is_some()));
        }
        let is_known = |probe: &&Probe| probe.rtt_ms.is_some() || probe.lost.is_some();
        let entered = probes.iter().filter(is_known);
        let entered = entered.filter(|probe| probe.entered(way));
        Losses::in_order(entered.map(|probe| !probe.passed(way)))
    }
}

/// Returns whether a probe was answered, or a packet of a direction arrived.
fn has_arrived(probe: &Probe) -> bool {
    probe.rtt_ms.is_some() || probe.one_way_ms.iter().any(Option::is_some)
}

/// Returns the losses without those of a part; `None` if they do not contain it.
fn without(all: Losses, part: Losses) -> Option<Losses> {
    let (of, lost) = (
        all.of.checked_sub(part.of)?,
        all.lost.checked_sub(part.lost)?,
    );
    let bursts = all.bursts.saturating_sub(part.bursts);
    (lost <= of).then(|| Losses {
        of,
        lost,
        bursts: bursts.clamp(lost.min(1), lost),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns probes on an idle path, with the losses in each direction that they show.
    fn observed_of(probes: impl Iterator<Item = Probe>) -> PathObservations {
        let mut idle = ProbeSession {
            probes: probes.collect(),
            ..ProbeSession::default()
        };
        idle.losses = DIRECTIONS.map(|way| Some(idle.counted(&idle.probes, way)));
        PathObservations {
            idle,
            ..PathObservations::default()
        }
    }

    /// Returns probes every 10 ms, of which those with these numbers, from 0, are lost in a direction.
    fn observed(count: u32, lost: &[(u32, Direction)]) -> PathObservations {
        let probes = (0..count).map(|at| {
            let lost = lost.iter().find(|(number, _)| *number == at);
            let lost = lost.map(|(_, way)| *way);
            Probe {
                at_s: 0.01 * f64::from(at),
                rtt_ms: lost.is_none().then_some(20.0 + f64::from(at)),
                lost,
                ..Probe::default()
            }
        });
        let mut found = observed_of(probes);
        found.idle.wire_bytes = 146;
        found.idle.duplicates = 3;
        found
    }

    #[test]
    fn the_last_third_is_held_out_and_its_losses_are_not_fitted() {
        let lost = [
            (10, Direction::Up),
            (80, Direction::Down),
            (81, Direction::Down),
        ];
        let mut all = observed(90, &lost);
        // Datagrams of the search.
        all.idle
            .add_losses(Direction::Down, Losses::independent(2, 500));
        let (fitted, held_out) = all.hold_out(60.0).unwrap();
        assert_eq!((fitted.idle.probes.len(), held_out.probes.len()), (60, 30));
        assert_eq!(fitted.idle.probes[..], all.idle.probes[..60]);
        assert_eq!(fitted.idle.duplicates, 2);
        assert_eq!(
            (held_out.probes[0].at_s, held_out.probes[0].rtt_ms),
            (0.0, Some(80.0))
        );
        assert_eq!((held_out.arrivals(), held_out.wire_bytes), (28, 146));
        let in_a_run = Losses {
            of: 30,
            lost: 2,
            bursts: 1,
        };
        assert_eq!(
            held_out.losses,
            [Some(Losses::independent(0, 30)), Some(in_a_run)]
        );
        let of_fitted = [Losses::independent(1, 60), Losses::independent(2, 559)];
        assert_eq!(fitted.idle.losses, of_fitted.map(Some));
    }

    #[test]
    fn a_burst_of_losses_is_not_divided_and_the_replay_is_not_longer_than_it_may_be() {
        let lost = [(59, Direction::Up), (60, Direction::Up)];
        let (fitted, held_out) = observed(90, &lost).hold_out(60.0).unwrap();
        assert_eq!((fitted.idle.probes.len(), held_out.probes.len()), (61, 29));
        let (fitted, held_out) = observed(90, &[]).hold_out(0.105).unwrap();
        assert_eq!((fitted.idle.probes.len(), held_out.probes.len()), (80, 10));
    }

    /// Returns packets every 10 ms, up and down in turn, of which every tenth one was lost.
    fn packets() -> PathObservations {
        observed_of((0..90_u32).map(|at| {
            let way = DIRECTIONS[at as usize % 2];
            let is_lost = at % 10 == 0;
            let mut probe = Probe {
                at_s: 0.01 * f64::from(at),
                lost: is_lost.then_some(way),
                ..Probe::default()
            };
            probe.one_way_ms[index(way)] = (!is_lost).then_some(20.0);
            probe
        }))
    }

    #[test]
    fn the_last_third_of_the_time_of_packets_without_round_trips_is_held_out() {
        let (fitted, held_out) = packets().hold_out(60.0).unwrap();
        assert_eq!((fitted.idle.probes.len(), held_out.probes.len()), (61, 29));
        // Those up are at even places, so that they have all losses: the places 0, 10 and so on.
        let losses = [fitted.idle.losses, held_out.losses].map(|both| both.map(Option::unwrap));
        let counts = losses.map(|both| both.map(|one| (one.lost, one.of)));
        assert_eq!(counts, [[(7, 31), (0, 30)], [(2, 14), (0, 15)]]);
        let (fitted, _) = packets().hold_out(0.105).unwrap();
        assert_eq!(fitted.idle.probes.len(), 79);
        let measurement = held_out.to_measurement();
        let read = ProbeSession::of(&measurement, Some(Phase::Idle), 0);
        assert_eq!(
            (&read.probes, read.losses),
            (&held_out.probes, held_out.losses)
        );
    }

    #[test]
    fn losses_of_a_full_direction_stay_unknown() {
        let mut full = packets();
        full.idle.losses[0] = Some(Losses::default());
        let (fitted, held_out) = full.hold_out(60.0).unwrap();
        let unknown = Some(Losses::default());
        assert_eq!(
            (fitted.idle.losses[0], held_out.losses[0]),
            (unknown, unknown)
        );
    }

    #[test]
    fn without_delays_nothing_is_held_out() {
        assert_eq!(observed(90, &[]).hold_out(0.005), None);
        assert_eq!(PathObservations::default().hold_out(60.0), None);
    }

    #[test]
    fn losses_that_do_not_contain_those_of_the_probes_have_no_direction_in_either_part() {
        let mut all = observed(90, &[(80, Direction::Up)]);
        all.idle.losses[0] = Some(Losses::independent(0, 90));
        let (fitted, held_out) = all.hold_out(60.0).unwrap();
        assert_eq!((fitted.idle.losses[0], held_out.losses[0]), (None, None));
        assert!(fitted.idle.losses[1].is_some() && held_out.losses[1].is_some());
    }

    #[test]
    fn a_session_is_the_measurement_that_it_came_from() {
        let idle = observed(90, &[(7, Direction::Up), (30, Direction::Down)]).idle;
        let measurement = idle.to_measurement();
        let read = ProbeSession::of(&measurement, Some(Phase::Idle), 42);
        assert_eq!((&read.probes, read.losses), (&idle.probes, idle.losses));
    }
}
