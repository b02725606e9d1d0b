//! The direction in which probes were lost, and the order in which probes and answers arrived. All functions are pure.
//!
//! A reflector that counts received probes tells with every answer how many probes had reached it. A probe that is
//! missing in its count was lost on the way there, and a count that is missing among the answers was lost on the way
//! back. This is exact up to the last answer that arrived.

use std::collections::{BTreeMap, BTreeSet};

use super::probe_log::{ProbeAnswer, ProbeLog};
use record::Direction;

/// The losses of one session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbeLosses {
    /// The number of probes without an answer in time.
    pub(crate) lost: u64,
    /// The loss in each direction, if it is known.
    pub(crate) split: Option<DirectionalLoss>,
    /// The probes without an answer in time, each with the direction in which it was lost, if that is known.
    pub(crate) ways: BTreeMap<usize, Option<Direction>>,
}

/// Loss in each direction, up to the last answer that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectionalLoss {
    /// Probes sent until then.
    pub(crate) sent: u64,
    /// Of these, the probes that did not reach the reflector.
    pub(crate) lost_up: u64,
    /// Answers that the reflector sent until then.
    pub(crate) answers: u64,
    /// Of these, the answers that did not arrive.
    pub(crate) lost_down: u64,
    /// Probes sent after the last answered one. The direction of their loss is unknown.
    pub(crate) unresolved: u64,
}

/// An answer, with the numbers that determine its order.
#[derive(Clone, Copy, Debug)]
struct CountedAnswer {
    probe: usize,
    count: u64,
}

/// Determines the losses of a session.
pub(crate) fn losses(log: &ProbeLog) -> ProbeLosses {
    let counted = counts(log);
    let split = counted.as_deref().and_then(|c| split(c, log.probes.len()));
    let mut ways: BTreeMap<usize, Option<Direction>> = (0..log.probes.len())
        .filter(|index| log.answer(*index).is_none())
        .map(|index| (index, None))
        .collect();
    if let (Some(counted), Some(_)) = (counted, split) {
        attribute(&counted, &mut ways);
    }
    ProbeLosses {
        lost: ways.len() as u64,
        split,
        ways,
    }
}

/// Returns how many items arrived after one that was sent later (RFC 4737). The items are numbered in the order of
/// sending.
pub(crate) fn reordered(order_of_coming: impl Iterator<Item = u64>) -> u64 {
    late(order_of_coming).count() as u64
}

/// Returns the probes whose answers arrived after the answer of a later probe.
pub(crate) fn overtaken(log: &ProbeLog) -> BTreeSet<usize> {
    let first = log.answers.iter().filter(|answer| !answer.duplicate);
    late(first.map(|answer| answer.probe)).collect()
}

/// Returns the items that arrived after one that is not below them.
fn late<T: Ord + Copy>(order_of_coming: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut highest = None;
    order_of_coming.filter(move |number| {
        let late = Some(*number) <= highest;
        highest = highest.max(Some(*number));
        late
    })
}

/// Returns how many probes reached the reflector out of order, and how many answers arrived out of order.
///
/// `None` means that the reflector does not count.
pub(crate) fn reordered_by_direction(log: &ProbeLog) -> Option<(u64, u64)> {
    let counted = counts(log)?;
    let by_count: BTreeMap<u64, u64> = counted.iter().map(|c| (c.count, c.probe as u64)).collect();
    let mut seen = BTreeSet::new();
    // A duplicate made on the way there is a second arrival of the same probe.
    let up = reordered(by_count.into_values().filter(|probe| seen.insert(*probe)));
    let mut seen = BTreeSet::new();
    let down = counted
        .iter()
        .map(|c| c.count)
        .filter(|count| seen.insert(*count));
    Some((up, reordered(down)))
}

/// Returns all answers with late ones and duplicates, in the order of arrival. `None` means that the reflector does not
/// count.
fn counts(log: &ProbeLog) -> Option<Vec<CountedAnswer>> {
    let far_end = &log.far_end;
    let numbered = far_end.is_farwire || far_end.numbers;
    let count = |answer: &ProbeAnswer| answer.counted.or(numbered.then_some(answer.number));
    let counted: Option<Vec<_>> = log
        .answers
        .iter()
        .map(|answer| {
            Some(CountedAnswer {
                probe: answer.probe,
                count: count(answer)?.into(),
            })
        })
        .collect();
    counted.filter(|counted| !counted.is_empty())
}

/// Returns the loss in each direction. A reflector may have counted before this session began, and is then used from
/// its first answer on. `None` means that its count exceeds what was sent, because it jumped or includes other senders.
fn split(counted: &[CountedAnswer], sent: usize) -> Option<DirectionalLoss> {
    let first = counted.iter().min_by_key(|c| c.count)?;
    let last_count = counted.iter().map(|c| c.count).max()?;
    let last_probe = counted.iter().map(|c| c.probe).max()? as u64;
    let from_start = last_count <= last_probe + copies(counted);
    let (first_count, first_probe) = if from_start {
        (0, 0)
    } else {
        (first.count, first.probe as u64)
    };
    let sent_until = last_probe.checked_sub(first_probe)? + 1;
    let received = last_count - first_count + 1;
    let came_back: BTreeSet<u64> = counted.iter().map(|c| c.count).collect();
    Some(DirectionalLoss {
        sent: sent_until,
        lost_up: sent_until.checked_sub(received.checked_sub(copies(counted))?)?,
        answers: received,
        lost_down: received - came_back.len() as u64,
        unresolved: sent as u64 - 1 - last_probe,
    })
}

/// Returns the number of duplicates that the network made on the way there, each of which the reflector counted.
fn copies(counted: &[CountedAnswer]) -> u64 {
    let counts: BTreeSet<u64> = counted.iter().map(|c| c.count).collect();
    let probes: BTreeSet<usize> = counted.iter().map(|c| c.probe).collect();
    (counts.len() - probes.len().min(counts.len())) as u64
}

/// Finds the direction of losses between two answers that arrived. If as many counts as probes are missing, all were
/// lost on the way back; if no count is missing, all were lost on the way there; otherwise the direction is unknown.
fn attribute(counted: &[CountedAnswer], ways: &mut BTreeMap<usize, Option<Direction>>) {
    let by_probe: BTreeMap<usize, u64> = counted.iter().rev().map(|c| (c.probe, c.count)).collect();
    // The next probe and the next count that are expected after the previous answer.
    let (mut probe, mut count) = (0, 0);
    for (next_probe, next_count) in by_probe {
        let (probes, counts) = ((next_probe - probe) as u64, next_count.checked_sub(count));
        let way = match counts {
            Some(0) => Some(Direction::Up),
            _ if counts == Some(probes) => Some(Direction::Down),
            _ => None,
        };
        if way.is_some() {
            let missing = ways.range_mut(probe..next_probe);
            missing.for_each(|(_, lost)| *lost = way);
        }
        (probe, count) = (next_probe + 1, next_count + 1);
    }
    // A late answer did arrive: its probe counts as lost, but in neither direction.
    for c in counted {
        if let Some(late) = ways.get_mut(&c.probe) {
            *late = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::probe_log::AnswerTimes;
    use crate::stamp::wire::{ErrorEstimate, ProbeReply, ProbeRequest};
    use model::Nanos;
    use proptest::prelude::*;
    use std::time::Duration;

    const CLOCK: ErrorEstimate = ErrorEstimate {
        synchronised: false,
        ptp: false,
        scale: 0,
        multiplier: 1,
    };

    /// Returns a session of `sent` probes in which the reflector's answers `(probe, number)` arrive in this order.
    fn log(sent: u32, answers: &[(u32, u32)]) -> ProbeLog {
        let mut log = ProbeLog::new(1, 2, Duration::from_secs(1));
        let base = 1_700_000_000_000_000_000;
        let requests: Vec<ProbeRequest> = (0..sent)
            .map(|i| log.send(Nanos(i.into()), Nanos(base + u64::from(i)), CLOCK))
            .collect();
        for (probe, number) in answers {
            let request = requests[*probe as usize];
            let answer = ProbeReply {
                sequence: *number,
                sent: request.sent,
                error: CLOCK,
                ssid: 1,
                received: request.sent,
                request,
                ttl: 64,
            };
            let read = Nanos(1000);
            log.receive(&mut answer.emit(), AnswerTimes { read, kernel: None });
        }
        log
    }

    #[test]
    fn loss_by_direction_follows_from_the_reflector_s_count() {
        // Probe 1 is lost on the way there, 3 on the way back; 5 and 6 are unknown.
        let found = losses(&log(7, &[(0, 0), (2, 1), (4, 3)]));
        let split = found.split.unwrap();
        assert_eq!((split.sent, split.lost_up), (5, 1));
        assert_eq!((split.answers, split.lost_down), (4, 1));
        assert_eq!(split.unresolved, 2);
        let ways: Vec<_> = found.ways.into_iter().collect();
        assert_eq!(
            ways,
            [
                (1, Some(Direction::Up)),
                (3, Some(Direction::Down)),
                (5, None),
                (6, None)
            ]
        );
    }

    #[test]
    fn a_stateless_reflector_gives_no_loss_by_direction() {
        let found = losses(&log(4, &[(0, 0), (3, 3)]));
        assert_eq!((found.lost, found.split), (2, None));
    }

    #[test]
    fn a_count_older_than_the_session_is_used_from_its_first_answer() {
        let split = losses(&log(5, &[(1, 100), (2, 101), (4, 103)]))
            .split
            .unwrap();
        assert_eq!((split.sent, split.lost_up, split.lost_down), (4, 0, 1));
    }

    #[test]
    fn a_count_that_jumps_is_not_used() {
        assert_eq!(losses(&log(4, &[(0, 1), (1, 700), (3, 9)])).split, None);
    }

    #[test]
    fn duplicates_do_not_hide_loss() {
        // Probe 0 is duplicated on the way there and 2 on the way back; 1 is lost on the way there.
        let found = losses(&log(4, &[(0, 0), (0, 1), (2, 2), (2, 2), (3, 3)]));
        let split = found.split.unwrap();
        assert_eq!((split.lost_up, split.lost_down), (1, 0));
    }

    #[test]
    fn reordering_is_counted_by_direction() {
        // Probe 2 overtakes 1 on the way there; the answers arrive in order.
        let log = log(3, &[(0, 0), (2, 1), (1, 2)]);
        assert_eq!(reordered_by_direction(&log), Some((1, 0)));
        let split = losses(&log).split.unwrap();
        assert_eq!((split.lost_up, split.lost_down), (0, 0));
        // The sequence 1 2 3 7 8 9 10 4 5 6 resembles the example of RFC 4737 section 4.2.1.
        let order = [1, 2, 3, 7, 8, 9, 10, 4, 5, 6];
        assert_eq!(reordered(order.into_iter()), 3);
    }

    proptest! {
        /// The loss in each direction is the number of packets that the network dropped, up to the last answer that
        /// arrived.
        #[test]
        fn loss_by_direction_equals_the_dropped_packets(fates in prop::collection::vec(0u8..3, 1..60)) {
            let mut answers = Vec::new();
            let mut count = 0;
            let mut until = (0, 0, 0);
            let (mut up, mut down) = (0, 0);
            for (probe, fate) in (0u32..).zip(&fates) {
                match fate {
                    0 => up += 1,
                    1 => {
                        down += 1;
                        count += 1;
                    }
                    _ => {
                        answers.push((probe, count));
                        count += 1;
                        until = (probe, up, down);
                    }
                }
            }
            let log = log(u32::try_from(fates.len()).unwrap(), &answers);
            let found = losses(&log);
            prop_assert_eq!(found.lost, fates.iter().filter(|fate| **fate < 2).count() as u64);
            if let Some(split) = found.split {
                prop_assert_eq!((split.lost_up, split.lost_down), (until.1, until.2));
                prop_assert_eq!(split.unresolved, fates.len() as u64 - 1 - u64::from(until.0));
            }
        }
    }
}
