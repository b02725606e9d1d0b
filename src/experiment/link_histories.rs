//! Follows the queues and the drops of a run's links, which reports show below the throughput of
//! the same seconds, and tells when their schedules began.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use model::{Counters, DropCause, Waiting};
use netio::clock;

use crate::forward::stats::QueueState;
use crate::testbed::Testbed;
use record::link_history::{DirectionReading, HistoryWriter, LinkHistory, QueueReading};
use record::{ago, now};

/// The interval between two readings.
const EVERY: Duration = Duration::from_millis(100);
/// The largest number of links that are followed, which is that of a chain. The links of many
/// clients are not followed one by one.
const MOST_LINKS: usize = 16;

/// Reads the links of a test bed repeatedly until the other end of `ended` is dropped. Returns the
/// history of each link, in the order of the test bed's links. It is empty for a test bed without
/// links, and for one with too many.
pub(super) fn follow(testbed: &dyn Testbed, ended: &Receiver<()>) -> Vec<Option<LinkHistory>> {
    let links = testbed.forwarders();
    if links.is_empty() || links.len() > MOST_LINKS {
        return Vec::new();
    }
    let begun = (Instant::now(), now());
    let mut histories: Vec<HistoryWriter> = links
        .iter()
        .map(|_| HistoryWriter::begin(begun.1.clone()))
        .collect();
    loop {
        for ((forwarder, link), history) in links.iter().zip(&mut histories) {
            // The run fails for another reason if a forwarder has died.
            if let Ok(state) = forwarder.read_queue(*link) {
                history.add(begun.0.elapsed().as_secs_f64(), readings(&state));
            }
        }
        if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return histories.into_iter().map(HistoryWriter::finish).collect();
        }
    }
}

/// Returns the time from which the schedules of each link of a test bed count, in the order of its links; `None` for a link
/// that waits for its first packet. It is empty for a test bed without links, and for one with too many.
pub(super) fn begins(testbed: &dyn Testbed) -> Vec<Option<String>> {
    let links = testbed.forwarders();
    if links.len() > MOST_LINKS {
        return Vec::new();
    }
    let now = clock::now();
    let begins = links.iter().map(|(forwarder, link)| {
        let begin = forwarder.begin(*link);
        (begin <= now).then(|| ago((now - begin).into()))
    });
    begins.collect()
}

/// Returns the readings of both directions: up and down.
fn readings(state: &QueueState) -> [DirectionReading; 2] {
    [0, 1].map(|side| DirectionReading {
        queue: state.backlogs[side].map(queue),
        dropped: dropped(&state.counters[side]).collect(),
    })
}

fn queue(waiting: Waiting) -> QueueReading {
    QueueReading {
        packets: waiting.packets,
        bytes: waiting.bytes.0,
        ms: waiting.delay.0 as f64 / 1e6,
    }
}

fn dropped(counters: &Counters) -> impl Iterator<Item = (&'static str, u64)> {
    let causes = DropCause::ALL.into_iter();
    causes.map(|cause| (cause.name(), counters.dropped(cause)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, Nanos};

    #[test]
    fn a_reading_has_the_queue_of_a_direction_with_a_rate() {
        let waiting = Waiting {
            packets: 3,
            bytes: Bytes(4_500),
            delay: Nanos::from_millis(2),
        };
        let state = QueueState {
            backlogs: [Some(waiting), None],
            counters: [Counters::default(); 2],
        };
        let [up, down] = readings(&state);
        let queue = QueueReading {
            packets: 3,
            bytes: 4_500,
            ms: 2.0,
        };
        assert_eq!((up.queue, down.queue), (Some(queue), None));
        assert_eq!(up.dropped["queue_full"], 0);
    }
}
