//! The requests of trains that wait until the last one of their train has arrived. All functions are pure.
//!
//! The answers then leave back to back, so that the way back sees a train as well. A request that is answered later keeps
//! its arrival time, and its answer has the time at which it really leaves. The requests of a session are always answered
//! in the order of their arrival, as the reflector's count of them requires.

use std::collections::HashMap;
use std::mem;

use model::Nanos;
use netio::Arrival;

use super::sessions::{MOST, SessionKey};
use crate::stamp::tlv::TrainPlace;
use crate::stamp::wire::ProbeRequest;

/// The most bytes of all requests that wait, including what this program keeps beside each packet.
const MOST_BYTES: usize = 16 << 20;
/// The longest time for which requests wait, from the arrival of the first one of their train.
const LONGEST_WAIT: Nanos = Nanos(1_000_000_000);

/// The requests of all sessions that wait.
#[derive(Debug)]
pub(crate) struct HeldRequests {
    /// The latest train of each session that has sent one lately.
    trains: HashMap<SessionKey, HeldTrain>,
    bytes: usize,
    /// No train has waited for too long before this time.
    due: Nanos,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldRequest {
    /// The request.
    pub(crate) packet: Vec<u8>,
    /// Its arrival.
    pub(crate) arrival: Arrival,
}

/// The requests to answer after one has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerOrder {
    /// The requests that have waited and are answered now, in the order of arrival.
    pub(crate) earlier: Vec<HeldRequest>,
    /// Whether the one that has arrived waits. Otherwise, it is answered after the others.
    pub(crate) waits: bool,
}

#[derive(Debug)]
struct HeldTrain {
    id: TrainId,
    /// The arrival of its first request on the monotonic clock.
    began: Nanos,
    /// Whether its requests have been answered. A further one of the same train was reordered, and does not wait.
    is_answered: bool,
    requests: Vec<HeldRequest>,
}

/// The identity of a train in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrainId {
    /// The sequence number of its first probe.
    first: u32,
    /// The number of its probes.
    length: u16,
}

impl HeldRequests {
    /// Returns no requests.
    pub(crate) fn new() -> Self {
        Self {
            trains: HashMap::new(),
            bytes: 0,
            due: Nanos::MAX,
        }
    }

    /// Decides which requests are answered after one has arrived at `now`: it waits if it belongs to a train whose last
    /// probe is to come. The requests of its session that wait are answered if it is the last one, or does not continue
    /// their train.
    ///
    /// A train has no more requests that wait than probes, and all requests together at most [`MOST_BYTES`]. The
    /// requests of a train that exceeds this are answered immediately.
    pub(crate) fn receive(&mut self, packet: &[u8], arrival: &Arrival, now: Nanos) -> AnswerOrder {
        let Some(request) = ProbeRequest::parse(packet) else {
            return AnswerOrder::default();
        };
        let key = SessionKey {
            source: arrival.source,
            ssid: request.ssid,
        };
        let Some(place) = TrainPlace::of(packet) else {
            return AnswerOrder {
                earlier: self.answer(&key),
                waits: false,
            };
        };
        let id = TrainId {
            first: request.sequence.wrapping_sub(place.place.into()),
            length: place.length,
        };
        let mut earlier = Vec::new();
        if self.trains.get(&key).is_none_or(|train| train.id != id) {
            earlier = self.answer(&key);
            self.begin(key, id, now);
        }
        let waits = !place.is_last() && self.hold(&key, packet, arrival);
        if !waits {
            earlier.extend(self.answer(&key));
        }
        AnswerOrder { earlier, waits }
    }

    /// Removes and returns the requests of the trains that have waited for too long at `now`, in the order of arrival in
    /// each session. Their trains are forgotten, and so are those that were answered as long ago.
    pub(crate) fn overdue(&mut self, now: Nanos) -> Vec<HeldRequest> {
        if now < self.due {
            return Vec::new();
        }
        let is_over = |_: &SessionKey, train: &mut HeldTrain| train.began + LONGEST_WAIT <= now;
        let over = self.trains.extract_if(is_over);
        let requests: Vec<HeldRequest> = over.flat_map(|(_, train)| train.requests).collect();
        self.bytes -= bytes(&requests);
        let began = self.trains.values().map(|train| train.began).min();
        self.due = began.map_or(Nanos::MAX, |began| began + LONGEST_WAIT);
        requests
    }

    /// Returns the time from `now` until [`Self::overdue`] may have requests.
    pub(crate) fn wait(&self, now: Nanos) -> Nanos {
        self.due - now
    }

    /// Begins the train of a session that replaces its train before. There is no room for more trains than sessions.
    fn begin(&mut self, key: SessionKey, id: TrainId, now: Nanos) {
        if self.trains.len() >= MOST && !self.trains.contains_key(&key) {
            return;
        }
        let train = HeldTrain {
            id,
            began: now,
            is_answered: false,
            requests: Vec::new(),
        };
        self.trains.insert(key, train);
        self.due = self.due.min(now + LONGEST_WAIT);
    }

    /// Lets a request of the session's train wait, and returns whether it does.
    fn hold(&mut self, key: &SessionKey, packet: &[u8], arrival: &Arrival) -> bool {
        let Some(train) = self.trains.get_mut(key) else {
            return false;
        };
        // More requests than the train has probes are copies.
        let is_full = train.requests.len() >= usize::from(train.id.length);
        let bytes = self.bytes + HeldRequest::bytes(packet.len());
        if train.is_answered || is_full || bytes > MOST_BYTES {
            return false;
        }
        self.bytes = bytes;
        train.requests.push(HeldRequest {
            packet: packet.to_vec(),
            arrival: *arrival,
        });
        true
    }

    /// Removes and returns the requests of a session that wait. Others of their train do not wait any more.
    fn answer(&mut self, key: &SessionKey) -> Vec<HeldRequest> {
        let Some(train) = self.trains.get_mut(key) else {
            return Vec::new();
        };
        train.is_answered = true;
        let requests = mem::take(&mut train.requests);
        self.bytes -= bytes(&requests);
        requests
    }
}

impl HeldRequest {
    /// Returns the bytes that a request of this length takes.
    fn bytes(length: usize) -> usize {
        size_of::<Self>() + length
    }
}

fn bytes(requests: &[HeldRequest]) -> usize {
    let each = requests.iter();
    each.map(|request| HeldRequest::bytes(request.packet.len()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ServiceLimits;
    use crate::stamp::reflector::sessions::{ClockReading, Sessions};
    use crate::stamp::tlv::{self, LONGEST_TRAIN, TRAIN_LENGTH, TlvKind};
    use crate::stamp::wire::{ErrorEstimate, ProbeReply, ntp};
    use proptest::prelude::*;

    const SECOND: Nanos = Nanos(1_000_000_000);
    const WALL: Nanos = Nanos(1_700_000_000_000_000_000);

    fn request(sequence: u32) -> Vec<u8> {
        let request = ProbeRequest {
            sequence,
            sent: 77,
            error: ErrorEstimate::from_bits(1),
            ssid: 1,
        };
        request.emit().to_vec()
    }

    /// Returns a request at this place of a train.
    fn in_train(sequence: u32, place: u16, length: u16) -> Vec<u8> {
        let mut packet = request(sequence);
        let place = TrainPlace { place, length };
        place.emit(tlv::append(&mut packet, TlvKind::Train, TRAIN_LENGTH));
        packet
    }

    fn arrival(packet: &[u8], port: u16) -> Arrival {
        Arrival {
            length: packet.len(),
            source: ([10, 77, 0, 1], port).into(),
            asked: None,
            at: Some(WALL),
            ttl: Some(63),
            tos: 0,
            dropped: 0,
        }
    }

    fn sequence(packet: &[u8]) -> u32 {
        ProbeRequest::parse(packet).unwrap().sequence
    }

    /// Returns the numbers of the requests that are answered after this one has arrived at `now`.
    fn answered(held: &mut HeldRequests, packet: &[u8], now: Nanos) -> Vec<u32> {
        let order = held.receive(packet, &arrival(packet, 5000), now);
        let new = (!order.waits).then(|| sequence(packet));
        numbers(&order.earlier).into_iter().chain(new).collect()
    }

    fn numbers(requests: &[HeldRequest]) -> Vec<u32> {
        requests.iter().map(|held| sequence(&held.packet)).collect()
    }

    #[test]
    fn a_train_is_answered_when_its_last_probe_arrives() {
        let mut held = HeldRequests::new();
        for first in [0, 3] {
            assert!(answered(&mut held, &in_train(first, 0, 3), SECOND).is_empty());
            assert!(answered(&mut held, &in_train(first + 1, 1, 3), SECOND).is_empty());
            let all = [first, first + 1, first + 2];
            assert_eq!(answered(&mut held, &in_train(first + 2, 2, 3), SECOND), all);
            assert_eq!(held.bytes, 0);
        }
        // A train of one probe is complete when it arrives.
        assert_eq!(answered(&mut held, &in_train(6, 0, 1), SECOND), [6]);
    }

    #[test]
    fn a_probe_that_belongs_to_no_train_does_not_wait() {
        let mut held = HeldRequests::new();
        assert_eq!(answered(&mut held, &request(0), SECOND), [0]);
        for (place, length) in [(3, 3), (0, LONGEST_TRAIN + 1)] {
            let packet = in_train(1, place, length);
            assert_eq!(answered(&mut held, &packet, SECOND), [1]);
        }
        let truncated = &in_train(1, 0, 3)[..10];
        let order = held.receive(truncated, &arrival(truncated, 5000), SECOND);
        assert_eq!(order, AnswerOrder::default());
        assert!(held.trains.is_empty());
    }

    #[test]
    fn a_train_without_its_last_probe_is_answered_when_another_begins() {
        let mut held = HeldRequests::new();
        answered(&mut held, &in_train(0, 0, 3), SECOND);
        answered(&mut held, &in_train(1, 1, 3), SECOND);
        assert_eq!(answered(&mut held, &in_train(3, 0, 3), SECOND), [0, 1]);
        // The first probe of the next train is lost.
        assert_eq!(answered(&mut held, &in_train(7, 1, 3), SECOND), [3]);
        // A probe without a train ends it, too.
        assert_eq!(answered(&mut held, &request(9), SECOND), [7, 9]);
        assert_eq!(held.bytes, 0);
    }

    #[test]
    fn a_probe_that_others_of_its_train_have_overtaken_does_not_wait_twice() {
        let mut held = HeldRequests::new();
        answered(&mut held, &in_train(1, 1, 3), SECOND);
        // The order of arrival is kept.
        assert!(answered(&mut held, &in_train(0, 0, 3), SECOND).is_empty());
        assert_eq!(answered(&mut held, &in_train(2, 2, 3), SECOND), [1, 0, 2]);
        // The last probe overtakes both others.
        assert_eq!(answered(&mut held, &in_train(5, 2, 3), SECOND), [5]);
        assert_eq!(answered(&mut held, &in_train(3, 0, 3), SECOND), [3]);
        assert_eq!(answered(&mut held, &in_train(4, 1, 3), SECOND), [4]);
    }

    #[test]
    fn a_train_waits_for_a_second_at_most() {
        let mut held = HeldRequests::new();
        answered(&mut held, &in_train(0, 0, 3), SECOND);
        let later = SECOND + Nanos(999_999_999);
        answered(&mut held, &in_train(1, 1, 3), later);
        assert_eq!(held.overdue(later), []);
        assert_eq!(held.wait(later), Nanos(1));
        assert_eq!(numbers(&held.overdue(SECOND + SECOND)), [0, 1]);
        assert!(held.trains.is_empty());
        assert_eq!((held.bytes, held.due), (0, Nanos::MAX));
    }

    #[test]
    fn each_session_waits_for_its_own_train() {
        let mut held = HeldRequests::new();
        let mut waits = |port, packet: &[u8], now| {
            let order = held.receive(packet, &arrival(packet, port), now);
            (numbers(&order.earlier), order.waits)
        };
        assert_eq!(waits(5000, &in_train(0, 0, 2), SECOND), (vec![], true));
        let later = SECOND + Nanos(5);
        assert_eq!(waits(5001, &in_train(0, 0, 2), later), (vec![], true));
        assert_eq!(waits(5000, &in_train(1, 1, 2), later), (vec![0], false));
        // The train of the other session began later.
        assert_eq!(held.overdue(SECOND + SECOND), []);
        assert_eq!(held.wait(SECOND + SECOND), Nanos(5));
        assert_eq!(numbers(&held.overdue(Nanos::MAX)), [0]);
    }

    #[test]
    fn copies_do_not_make_a_train_longer() {
        let mut held = HeldRequests::new();
        let packet = in_train(0, 0, LONGEST_TRAIN);
        for _ in 0..LONGEST_TRAIN {
            assert!(answered(&mut held, &packet, SECOND).is_empty());
        }
        let all = answered(&mut held, &packet, SECOND);
        assert_eq!(all.len(), usize::from(LONGEST_TRAIN) + 1);
        assert_eq!(answered(&mut held, &packet, SECOND), [0]);
    }

    #[test]
    fn requests_that_wait_are_limited_in_bytes_and_sessions() {
        let mut held = HeldRequests::new();
        let mut long = in_train(0, 0, 2);
        long.resize(65_000, 0);
        let most = MOST_BYTES / HeldRequest::bytes(long.len());
        let waiting = (0..5_000).filter(|port| {
            let order = held.receive(&long, &arrival(&long, *port), SECOND);
            // The requests of nobody else are answered earlier for it.
            assert_eq!(order.earlier, []);
            order.waits
        });
        assert_eq!(waiting.count(), most);
        assert!(held.bytes <= MOST_BYTES);
        let mut held = HeldRequests::new();
        let short = in_train(0, 0, 2);
        let waiting = (0..5_000).filter(|port| {
            let order = held.receive(&short, &arrival(&short, *port), SECOND);
            order.waits
        });
        assert_eq!(waiting.count(), MOST);
        assert_eq!(held.overdue(Nanos::MAX).len(), MOST);
        assert_eq!(held.bytes, 0);
    }

    #[test]
    fn a_train_that_exceeds_the_room_is_answered_immediately() {
        let mut held = HeldRequests::new();
        answered(&mut held, &in_train(0, 0, 4), SECOND);
        held.bytes += MOST_BYTES - 2 * held.bytes;
        assert!(answered(&mut held, &in_train(1, 1, 4), SECOND).is_empty());
        assert_eq!(answered(&mut held, &in_train(2, 2, 4), SECOND), [0, 1, 2]);
        assert_eq!(answered(&mut held, &in_train(3, 3, 4), SECOND), [3]);
    }

    #[test]
    fn an_answer_that_has_waited_has_the_time_of_its_sending_and_of_its_arrival() {
        let mut held = HeldRequests::new();
        let mut sessions = Sessions::new(&ServiceLimits::USUAL, 9862);
        answered(&mut held, &in_train(0, 0, 2), SECOND);
        let last = in_train(1, 1, 2);
        let order = held.receive(&last, &arrival(&last, 5000), SECOND);
        let last = HeldRequest {
            arrival: arrival(&last, 5000),
            packet: last,
        };
        let requests = order.earlier.into_iter().chain([last]);
        for (number, mut request) in (0_u64..).zip(requests) {
            let sent = WALL + Nanos::from_millis(7 + number);
            let clock = ClockReading {
                now: SECOND,
                wall: sent,
                error: ErrorEstimate::from_bits(1),
            };
            let reply = sessions.reflect(&mut request.packet, &request.arrival, clock);
            assert_eq!(reply.unwrap().length, request.arrival.length);
            let answer = ProbeReply::parse(&request.packet).unwrap();
            assert_eq!(u64::from(answer.sequence), number);
            assert_eq!(u64::from(answer.request.sequence), number);
            assert_eq!((answer.received, answer.sent), (ntp(WALL), ntp(sent)));
            let mut kinds = Vec::new();
            tlv::read(&mut request.packet, |kind, _| kinds.push(kind));
            assert_eq!(kinds, [TlvKind::Train]);
        }
    }

    proptest! {
        /// Whatever arrives, each request is answered once, in the order of arrival, and nothing stays behind.
        #[test]
        fn each_request_is_answered_once(
            arrivals in prop::collection::vec((0u32..12, 0u16..4, 0u16..5, any::<bool>()), 0..40)
        ) {
            let mut held = HeldRequests::new();
            let (mut sent, mut back) = (Vec::new(), Vec::new());
            for (sequence, place, length, is_in_train) in arrivals {
                let packet = if is_in_train {
                    in_train(sequence, place, length)
                } else {
                    request(sequence)
                };
                sent.push(sequence);
                back.extend(answered(&mut held, &packet, SECOND));
            }
            back.extend(numbers(&held.overdue(Nanos::MAX)));
            prop_assert_eq!(back, sent);
            prop_assert_eq!(held.bytes, 0);
        }
    }
}
