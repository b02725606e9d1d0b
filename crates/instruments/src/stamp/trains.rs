//! The arrivals of the probes of trains, and of their answers. All functions are pure.
//!
//! Each arrival is compared with the first one of its train in the same direction. One clock stamps both, so that the
//! relation of the two ends' clocks does not matter.

use model::Nanos;
use record::Direction;

use super::probe_log::ProbeLog;

/// The arrivals of a train in one direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrainArrivals {
    /// The number of the train, from 1.
    pub(crate) number: u64,
    /// The number of each probe that arrived, from 0, and the milliseconds from the first arrival of the train to its
    /// arrival, in the order of sending.
    pub(crate) arrivals: Vec<(usize, f64)>,
    /// Whether as many probes arrived as a train has. This is never the case for a last train that is shorter than the
    /// others.
    pub(crate) is_complete: bool,
}

/// Returns the trains of `length` probes of which at least one probe arrived, in the order of sending: at the far end's
/// kernel on the way up, and as an answer at this host's kernel on the way down. A probe whose answer did not arrive in
/// time did not arrive in either direction.
pub(crate) fn arrivals(log: &ProbeLog, length: usize, direction: Direction) -> Vec<TrainArrivals> {
    let sent = log.probes.len();
    let trains = (1_u64..).zip((0..sent).step_by(length));
    let of_train = |(number, first): (u64, usize)| {
        let probes = first..sent.min(first + length);
        let arrived: Vec<(usize, Nanos)> = probes
            .filter_map(|probe| Some((probe, arrived(log, probe, direction)?)))
            .collect();
        let earliest = arrived.iter().map(|(_, at)| *at).min()?;
        let since_first = |(probe, at): &(usize, Nanos)| (*probe, ms(*at - earliest));
        Some(TrainArrivals {
            number,
            arrivals: arrived.iter().map(since_first).collect(),
            is_complete: arrived.len() == length,
        })
    };
    trains.filter_map(of_train).collect()
}

/// Returns the spreads in milliseconds of the trains that arrived complete, in the order of sending.
pub(crate) fn spreads(trains: &[TrainArrivals]) -> Vec<f64> {
    let complete = trains.iter().filter(|train| train.is_complete);
    complete.map(TrainArrivals::spread).collect()
}

impl TrainArrivals {
    /// Returns the time from the first arrival to the last one in milliseconds.
    fn spread(&self) -> f64 {
        self.arrivals.iter().map(|(_, ms)| *ms).fold(0.0, f64::max)
    }
}

/// Returns when a probe that was answered in time arrived in a direction, by the clock of the end where it arrived.
fn arrived(log: &ProbeLog, probe: usize, direction: Direction) -> Option<Nanos> {
    let answer = log.answer(probe)?;
    match direction {
        Direction::Up => answer.far_received,
        Direction::Down => answer.arrived,
    }
}

fn ms(span: Nanos) -> f64 {
    span.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stamp::probe_log::AnswerTimes;
    use crate::stamp::wire::{ErrorEstimate, ProbeReply, ProbeRequest, ntp};

    const WALL: Nanos = Nanos(1_700_000_000_000_000_000);

    /// Returns the log of probes that arrive after these milliseconds at the far end, whose clock is an hour ahead, and
    /// whose answers arrive after these milliseconds. `None` means that there is no answer.
    fn log(arrivals: &[Option<(u64, u64)>]) -> ProbeLog {
        let mut log = ProbeLog::new(1, 2, Duration::from_secs(1));
        let error = ErrorEstimate::from_bits(1);
        let requests: Vec<ProbeRequest> = arrivals
            .iter()
            .map(|_| log.send(Nanos::ZERO, WALL, error))
            .collect();
        let far = |ms: u64| ntp(WALL + Nanos::from_secs(3600) + Nanos::from_millis(ms));
        for (request, arrival) in requests.into_iter().zip(arrivals) {
            let Some((up, down)) = *arrival else { continue };
            let answer = ProbeReply {
                sequence: request.sequence,
                sent: far(down),
                error,
                ssid: 1,
                received: far(up),
                request,
                ttl: 64,
            };
            let arrived = AnswerTimes {
                read: Nanos::from_millis(down),
                kernel: Some(WALL + Nanos::from_millis(down)),
            };
            log.receive(&mut answer.emit(), arrived);
        }
        log
    }

    /// Returns the numbers of the trains of three probes, each with the milliseconds of its arrivals.
    fn times(log: &ProbeLog, direction: Direction) -> Vec<(u64, Vec<f64>)> {
        let trains = arrivals(log, 3, direction).into_iter();
        trains
            .map(|train| {
                let times = train.arrivals.iter().map(|(_, ms)| *ms);
                (train.number, times.collect())
            })
            .collect()
    }

    #[test]
    fn each_direction_has_its_own_arrivals() {
        let log = log(&[
            Some((20, 60)),
            Some((21, 65)),
            Some((22, 70)),
            Some((30, 90)),
            Some((35, 91)),
            Some((37, 93)),
        ]);
        let up = times(&log, Direction::Up);
        assert_eq!(up, [(1, vec![0.0, 1.0, 2.0]), (2, vec![0.0, 5.0, 7.0])]);
        let down = times(&log, Direction::Down);
        assert_eq!(down, [(1, vec![0.0, 5.0, 10.0]), (2, vec![0.0, 1.0, 3.0])]);
        assert_eq!(spreads(&arrivals(&log, 3, Direction::Up)), [2.0, 7.0]);
        assert_eq!(spreads(&arrivals(&log, 3, Direction::Down)), [10.0, 3.0]);
    }

    #[test]
    fn only_complete_trains_have_a_spread() {
        // The second train lacks a probe, the third one all of them, and the last train is shorter.
        let log = log(&[
            Some((20, 60)),
            Some((21, 65)),
            Some((22, 70)),
            Some((30, 90)),
            None,
            Some((37, 93)),
            None,
            None,
            None,
            Some((50, 120)),
        ]);
        let up = times(&log, Direction::Up);
        let expected = [
            (1, vec![0.0, 1.0, 2.0]),
            (2, vec![0.0, 7.0]),
            (4, vec![0.0]),
        ];
        assert_eq!(up, expected);
        assert_eq!(spreads(&arrivals(&log, 3, Direction::Up)), [2.0]);
    }

    #[test]
    fn a_reordered_first_packet_is_later_than_the_first_arrival() {
        let log = log(&[Some((24, 66)), Some((21, 60)), Some((22, 63))]);
        assert_eq!(times(&log, Direction::Up), [(1, vec![3.0, 0.0, 1.0])]);
        assert_eq!(times(&log, Direction::Down), [(1, vec![6.0, 0.0, 3.0])]);
        assert_eq!(spreads(&arrivals(&log, 3, Direction::Down)), [6.0]);
    }

    #[test]
    fn an_answer_after_the_time_out_is_no_arrival() {
        let log = log(&[Some((20, 60)), Some((21, 61)), Some((22, 1_001))]);
        assert_eq!(times(&log, Direction::Up), [(1, vec![0.0, 1.0])]);
        assert!(spreads(&arrivals(&log, 3, Direction::Down)).is_empty());
    }
}
