//! The part of a file's probes that is held out: the link is fitted to the probes before it, and then compared with it.

use conditions::Direction;
use record::{Figure, Measurement, Metric, Phase, Sample, Statistic};
use stats::losses::Losses;

use crate::DIRECTIONS;
use crate::observations::{PathObservations, Probe, ProbeSession, index};

/// One of this number of probes is held out.
const ONE_OF: usize = 3;

impl PathObservations {
    /// Divides the probes on the idle path. Returns the observations without the last third of them, and that third as a
    /// session; it is shorter if probes at their usual interval would take longer than `longest_s` seconds. `None` if no
    /// round trip is in it.
    ///
    /// Loads, and datagrams whose losses count beside those of the probes, stay in the observations.
    pub fn hold_out(&self, longest_s: f64) -> Option<(Self, ProbeSession)> {
        let idle = &self.idle;
        let interval_s = idle.interval_s()?;
        let most = (1..=idle.probes.len() / ONE_OF)
            .take_while(|count| *count as f64 * interval_s <= longest_s)
            .count();
        let from = idle.probes.len() - most;
        // A burst of losses is not divided, because the later part begins with an answered probe.
        let mut last = idle.probes[from..].iter();
        let lost = last.position(|probe| probe.rtt_ms.is_some())?;
        let (earlier, later) = idle.probes.split_at(from + lost);
        let losses = DIRECTIONS.map(|way| {
            let of_later = counted(later, way);
            let of_earlier = without(idle.losses[index(way)]?, of_later)?;
            Some((of_earlier, of_later))
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
            losses: losses.map(|parts| parts.map(|(_, of_later)| of_later)),
            clock_error_ms: idle.clock_error_ms,
            ..ProbeSession::default()
        };
        let (kept, all) = (earlier.len() as u64, idle.probes.len() as u64);
        let fitted = ProbeSession {
            probes: earlier.to_vec(),
            losses: losses.map(|parts| parts.map(|(of_earlier, _)| of_earlier)),
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
    /// Returns the session as a measurement of an idle path, as [`Comparison`](crate::Comparison) takes it. Its round trips
    /// count as those between the programs, because a file may have either.
    pub fn to_measurement(&self) -> Measurement {
        let samples = (1_u64..).zip(&self.probes).map(|(index, probe)| {
            let (metric, value, direction) = match probe.rtt_ms {
                Some(ms) => (Metric::RttMs, ms, None),
                None => (Metric::LostPackets, 1.0, probe.lost),
            };
            Sample {
                direction,
                phase: Some(Phase::Idle),
                ..Sample::new(probe.at_s, metric, index, value)
            }
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

    /// Returns the number of probes that were answered.
    pub fn answers(&self) -> usize {
        self.answered().count()
    }
}

/// Returns the losses of probes in a direction. A far end that counts does not know where probes after the last answered one
/// were lost, and these do not count.
fn counted(probes: &[Probe], way: Direction) -> Losses {
    let is_known = |probe: &&Probe| probe.rtt_ms.is_some() || probe.lost.is_some();
    let known = probes.iter().filter(is_known);
    let entered = known.filter(|probe| probe.entered(way));
    Losses::in_order(entered.map(|probe| !probe.passed(way)))
}

/// Returns the losses without those of a part; `None` if they do not contain it.
fn without(all: Losses, part: Losses) -> Option<Losses> {
    let left = Losses {
        of: all.of.checked_sub(part.of)?,
        lost: all.lost.checked_sub(part.lost)?,
        bursts: all.bursts.checked_sub(part.bursts)?,
    };
    let is_possible = left.bursts <= left.lost && left.lost <= left.of;
    (is_possible && (left.lost == 0) == (left.bursts == 0)).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let probes: Vec<Probe> = probes.collect();
        let losses = DIRECTIONS.map(|way| Some(counted(&probes, way)));
        PathObservations {
            idle: ProbeSession {
                wire_bytes: 146,
                probes,
                losses,
                duplicates: 3,
                ..ProbeSession::default()
            },
            ..PathObservations::default()
        }
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
        assert_eq!((held_out.answers(), held_out.wire_bytes), (28, 146));
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

    #[test]
    fn without_round_trips_nothing_is_held_out() {
        let mut one_way = observed(90, &[]);
        for probe in &mut one_way.idle.probes {
            probe.one_way_ms[0] = probe.rtt_ms.take();
        }
        assert_eq!(one_way.hold_out(60.0), None);
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
