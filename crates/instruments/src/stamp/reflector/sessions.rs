//! The reflector's state of its senders, and the conversion of a request into an answer. All functions are pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use model::Nanos;
use netio::Arrival;

use super::{TEST, UNPRIVILEGED_PORT};
use crate::service::{
    ClientKey, DirectionTraffic, PacketLoss, ServiceLimits, TestRow, TestTraffic, canonical,
};
use crate::stamp::kernel::KernelIdentity;
use crate::stamp::tlv::{self, FollowUp, SOFTWARE, SameClock, TlvKind, TrainPlace};
use crate::stamp::wire::{
    BASE, ErrorEstimate, PORT, ProbeReply, ProbeRequest, SHORTEST_ANSWER, ntp,
};

/// The most simultaneous sessions. A session takes about 200 bytes.
pub(crate) const MOST: usize = 4096;
/// The most requests per second of one session. A burst may contain those of one second.
pub(crate) const MOST_RATE: u64 = 200_000;
const BURST: Nanos = Nanos(1_000_000_000);
/// The silence after which a session may be ended to make room for another.
const IDLE: Nanos = Nanos(1_000_000_000);
/// The least time between two attempts to make room, and the most sessions that one attempt ends.
const ROOM_SEARCH_INTERVAL: Nanos = Nanos(100_000_000);
const MOST_EVICTED: usize = MOST / 8;

/// The session of one sender (RFC 8972 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    /// The address of the sender.
    pub(crate) source: SocketAddr,
    /// The identifier of the session among those of the sender.
    pub(crate) ssid: u16,
}

/// The reflector's clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// The monotonic clock.
    pub(crate) now: Nanos,
    /// `CLOCK_REALTIME`.
    pub(crate) wall: Nanos,
    /// The stated error of `wall`.
    pub(crate) error: ErrorEstimate,
}

/// The properties of an answer that replaced its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyPacket {
    /// The session of the request.
    pub(crate) key: SessionKey,
    /// The number of the answer.
    pub(crate) sequence: u32,
    /// The length in bytes, which is less than three times the request's. A sender with a forged address gains little.
    pub(crate) length: usize,
    /// The DSCP in the TOS byte; ECN is not set.
    pub(crate) tos: u8,
}

/// A session that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedSession {
    /// The identity of the session.
    pub(crate) key: SessionKey,
    /// The number of received requests, all of which were answered.
    pub(crate) received: u32,
    /// The number of requests sent, from the highest sequence number received.
    pub(crate) sent: u64,
    /// Time from the first request to the last.
    pub(crate) lasted: Duration,
    /// The time of the last request by the monotonic clock.
    pub(crate) last: Nanos,
    /// The traffic of the session.
    pub(crate) traffic: TestTraffic,
}

/// All sessions of one socket.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: HashMap<SessionKey, SessionState>,
    by_source: HashMap<ClientKey, usize>,
    /// The number of sessions that have begun.
    begun: u64,
    most_of_source: usize,
    /// Sessions that were ended to make room, until they are reported.
    evicted: Vec<EndedSession>,
    room_searched: Nanos,
    idle: Nanos,
    longest: Nanos,
    /// The port of the reflector.
    port: u16,
    kernel: Option<KernelIdentity>,
    /// The number of requests of all senders for which the socket may have had no room, which is reported to senders.
    pub(crate) overflowed: u32,
}

#[derive(Clone, Copy, Debug)]
struct SessionState {
    /// The number of the session among all that have begun, from 1.
    number: u64,
    began: Nanos,
    /// The beginning in NTP's format.
    began_ntp: u64,
    last: Nanos,
    /// The time at which requests at [`MOST_RATE`] would have reached the number of received ones.
    filled: Nanos,
    received: u32,
    highest: u32,
    /// Bytes of requests, and of their answers.
    bytes: [u64; 2],
    /// Number and time of the latest answer whose departure the kernel reported.
    departed: Option<(u32, Nanos)>,
}

impl Sessions {
    /// Returns a reflector on `port` without sessions. A session ends after the allowed silence, and is not answered
    /// for longer than a test may last.
    pub(crate) fn new(limits: &ServiceLimits, port: u16) -> Self {
        let most_of_source = limits.of_source(MOST as u64);
        Self {
            open: HashMap::new(),
            by_source: HashMap::new(),
            begun: 0,
            most_of_source: usize::try_from(most_of_source).unwrap_or(MOST),
            evicted: Vec::new(),
            room_searched: Nanos::ZERO,
            idle: limits.idle.into(),
            longest: limits.duration.into(),
            port,
            kernel: KernelIdentity::current(),
            overflowed: 0,
        }
    }

    /// Converts the request at the start of `buffer`, of [`Arrival::length`] bytes, into its answer. `None` means that
    /// there is no answer. The answer has the length of the request, but at least [`SHORTEST_ANSWER`].
    ///
    /// The following get no answer: packets that are too short; packets from a port of a possible reflector or echo
    /// server, because the two would answer each other forever; answers of this reflector and answers to them, for the
    /// same reason; requests above [`MOST_RATE`]; new sessions while there is no room; sessions that are too old.
    pub(crate) fn reflect(
        &mut self,
        buffer: &mut [u8],
        arrival: &Arrival,
        clock: ClockReading,
    ) -> Option<ReplyPacket> {
        let request = ProbeRequest::parse(buffer.get(..arrival.length)?)?;
        if self.may_be_reflector(arrival.source.port()) {
            return None;
        }
        let key = SessionKey {
            source: arrival.source,
            ssid: request.ssid,
        };
        let arrived = arrival.at.unwrap_or(clock.wall);
        let session = self.session(key, clock, arrived)?;
        if is_own_answer(&buffer[..arrival.length], session.began_ntp, clock) {
            return None;
        }
        let session = session.admit(clock.now)?;
        session.last = clock.now;
        let sequence = session.received;
        session.received = sequence.wrapping_add(1);
        session.highest = session.highest.max(request.sequence);
        let length = arrival.length.max(SHORTEST_ANSWER);
        session.bytes[0] += arrival.length as u64;
        session.bytes[1] += length as u64;
        let session = *session;
        let answer = ProbeReply {
            sequence,
            sent: ntp(clock.wall),
            error: clock.error,
            ssid: request.ssid,
            received: ntp(arrived),
            request: ProbeRequest { ssid: 0, ..request },
            // RFC 8762 section 4.3.1 requires 255 if the value is not available.
            ttl: arrival.ttl.unwrap_or(u8::MAX),
        };
        let packet = buffer.get_mut(..length)?;
        let base = length.min(BASE);
        packet[..base].copy_from_slice(&answer.emit()[..base]);
        let tos = self.extend(packet, arrival, &session);
        Some(ReplyPacket {
            key,
            sequence,
            length,
            tos,
        })
    }

    /// Returns whether a service that answers every packet may use this port.
    fn may_be_reflector(&self, port: u16) -> bool {
        port <= PORT || port == UNPRIVILEGED_PORT || port == self.port
    }

    /// Records the kernel's report of when an answer left.
    pub(crate) fn departed(&mut self, key: SessionKey, sequence: u32, at: Nanos) {
        if let Some(session) = self.open.get_mut(&key) {
            session.departed = Some((sequence, at));
        }
    }

    /// Returns a row for each session at `now`.
    pub(crate) fn rows(&self, now: Nanos) -> Vec<TestRow> {
        let row = |(key, session): (&SessionKey, &SessionState)| TestRow {
            test: TEST,
            number: session.number,
            peer: canonical(key.source),
            lasted: Duration::from_nanos(now.0.saturating_sub(session.began.0)),
            traffic: session.traffic(),
        };
        let mut rows: Vec<TestRow> = self.open.iter().map(row).collect();
        rows.sort_unstable_by_key(|row| row.number);
        rows
    }

    /// Removes and returns the sessions that have been silent for too long, or were ended to make room.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<EndedSession> {
        let idle = self.idle;
        let over = |_: &SessionKey, session: &mut SessionState| session.last + idle < now;
        let ended: Vec<_> = self.open.extract_if(over).collect();
        self.forget(ended);
        mem::take(&mut self.evicted)
    }

    /// Removes and returns all sessions.
    pub(crate) fn end(&mut self) -> Vec<EndedSession> {
        let ended: Vec<_> = self.open.drain().collect();
        self.forget(ended);
        mem::take(&mut self.evicted)
    }

    fn forget(&mut self, ended: Vec<(SessionKey, SessionState)>) {
        for (key, session) in ended {
            let source = ClientKey::of(key.source.ip());
            if let Entry::Occupied(mut count) = self.by_source.entry(source) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
            self.evicted.push(session.ended(key));
        }
    }

    /// Returns the session of `key`. A new session begins with a request that came at `arrived`.
    fn session(
        &mut self,
        key: SessionKey,
        clock: ClockReading,
        arrived: Nanos,
    ) -> Option<&mut SessionState> {
        if !self.open.contains_key(&key) {
            let source = ClientKey::of(key.source.ip());
            if !self.has_room(source) {
                self.make_room(source, clock.now);
            }
            if !self.has_room(source) {
                return None;
            }
            *self.by_source.entry(source).or_default() += 1;
            self.begun += 1;
        }
        let longest = self.longest;
        let session = self.open.entry(key).or_insert(SessionState {
            number: self.begun,
            began: clock.now,
            began_ntp: ntp(arrived.min(clock.wall)),
            last: clock.now,
            filled: clock.now,
            received: 0,
            highest: 0,
            bytes: [0; 2],
            departed: None,
        });
        (clock.now <= session.began + longest).then_some(session)
    }

    fn has_room(&self, source: ClientKey) -> bool {
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        self.open.len() < MOST && of_source < self.most_of_source
    }

    /// Ends idle sessions, those that have been idle for longest first: sessions of `source` if it has reached its
    /// share, otherwise of any source. A sender with many sessions cannot cause this search all the time.
    fn make_room(&mut self, source: ClientKey, now: Nanos) {
        if now < self.room_searched + ROOM_SEARCH_INTERVAL {
            return;
        }
        self.room_searched = now;
        let of_anyone = self.open.len() >= MOST;
        let mut idle: Vec<_> = self
            .open
            .iter()
            .filter(|(key, session)| {
                session.last + IDLE <= now
                    && (of_anyone || ClientKey::of(key.source.ip()) == source)
            })
            .map(|(key, session)| (session.last, *key))
            .collect();
        idle.sort_unstable_by_key(|(last, _)| *last);
        let ended: Vec<_> = idle
            .into_iter()
            .take(MOST_EVICTED)
            .filter_map(|(_, key)| self.open.remove_entry(&key))
            .collect();
        self.forget(ended);
    }

    /// Fills in the extensions and returns the TOS byte of the answer.
    fn extend(&self, packet: &mut [u8], arrival: &Arrival, session: &SessionState) -> u8 {
        let mut tos = arrival.tos & !0b11;
        tlv::reflect(packet, |tlv| {
            let Some(kind) = tlv.kind() else { return };
            match kind {
                TlvKind::ExtraPadding => {}
                TlvKind::Train => {
                    // `HeldRequests` does what it asks for. An impossible place is not understood.
                    if TrainPlace::parse(tlv.value).is_none() {
                        return;
                    }
                }
                TlvKind::ClassOfService => tos = class_of_service(tlv.value, arrival.tos),
                TlvKind::DirectMeasurement => {
                    // The sender's count stays in place. Every request of a session is answered, so that both counts
                    // are equal.
                    let count = session.received.to_be_bytes();
                    tlv.value[4..8].copy_from_slice(&count);
                    tlv.value[8..12].copy_from_slice(&count);
                }
                TlvKind::FollowUpTelemetry => match session.departed {
                    Some((sequence, at)) => FollowUp {
                        sequence,
                        departed: ntp(at),
                        method: SOFTWARE,
                    }
                    .emit(tlv.value),
                    None => tlv.value.fill(0),
                },
                TlvKind::SameClock => {
                    let Some(asked) = SameClock::parse(tlv.value) else {
                        return;
                    };
                    let here =
                        |kernel: &KernelIdentity| asked.response == kernel.proof(asked.challenge);
                    let kernel = self.kernel.filter(here);
                    SameClock {
                        response: kernel.map_or(0, |kernel| kernel.response(asked.challenge)),
                        overflowed: self.overflowed,
                        ..asked
                    }
                    .emit(tlv.value);
                }
            }
            tlv.recognise();
        });
        tos
    }
}

/// Records how the request arrived, and returns the DSCP that the sender requests for the answer (RFC 8972 section
/// 4.4).
fn class_of_service(value: &mut [u8], tos: u8) -> u8 {
    // The fields are DSCP1 (6 bits, for the answer), DSCP2 (6, as received), ECN (2, as received), RP (2; 0 means that
    // DSCP1 is used) and 16 reserved bits.
    let wanted = value[0] & !0b11;
    value[0] = wanted | tos >> 6;
    value[1] = (tos >> 2) << 4 | (tos & 0b11) << 2;
    wanted
}

/// Returns whether `packet` is an answer of this reflector, or another reflector's answer to one. Such a packet
/// contains a time that this reflector has stamped since the session began, where a request contains zeros or padding.
fn is_own_answer(packet: &[u8], began_ntp: u64, clock: ClockReading) -> bool {
    let Some(answer) = ProbeReply::parse(packet) else {
        return false;
    };
    let since = began_ntp..=ntp(clock.wall);
    since.contains(&answer.received) || since.contains(&answer.request.sent)
}

impl SessionState {
    /// Returns the session, unless its requests exceed the rate and a burst.
    fn admit(&mut self, now: Nanos) -> Option<&mut Self> {
        let filled = self.filled.max(now) + Nanos(BURST.0 / MOST_RATE);
        if filled > now + BURST {
            return None;
        }
        self.filled = filled;
        Some(self)
    }

    fn ended(&self, key: SessionKey) -> EndedSession {
        EndedSession {
            key,
            received: self.received,
            sent: self.sent(),
            lasted: Duration::from_nanos(self.last.0 - self.began.0),
            last: self.last,
            traffic: self.traffic(),
        }
    }

    /// Returns the number of requests sent, from the highest sequence number received.
    fn sent(&self) -> u64 {
        u64::from(self.highest) + 1
    }

    fn traffic(&self) -> TestTraffic {
        let (packets, sent) = (u64::from(self.received), self.sent());
        let [up, down] = self.bytes.map(|bytes| DirectionTraffic { packets, bytes });
        TestTraffic {
            up,
            down,
            // Only the sender learns of its round trips.
            round_trip: None,
            loss: Some(PacketLoss {
                lost: sent.saturating_sub(packets),
                sent,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Nanos = seconds(1);

    const fn seconds(count: u64) -> Nanos {
        Nanos(count * 1_000_000_000)
    }

    fn sessions() -> Sessions {
        Sessions::new(&ServiceLimits::USUAL, 9862)
    }

    fn arrival_of(length: usize, port: u16) -> Arrival {
        Arrival {
            length,
            source: ([10, 77, 0, 1], port).into(),
            asked: None,
            at: Some(seconds(1_700_000_000)),
            ttl: Some(63),
            tos: 0b1011_1001,
            dropped: 0,
        }
    }

    fn clock(now: Nanos) -> ClockReading {
        ClockReading {
            now,
            wall: seconds(1_700_000_000) + Nanos(50_000),
            error: ErrorEstimate::from_bits(1),
        }
    }

    fn request(sequence: u32, ssid: u16) -> Vec<u8> {
        ProbeRequest {
            sequence,
            sent: 77,
            error: ErrorEstimate::from_bits(1),
            ssid,
        }
        .emit()
        .to_vec()
    }

    /// Returns the answer to `packet`, which replaces it, if there is one.
    fn ask(
        sessions: &mut Sessions,
        packet: &mut Vec<u8>,
        port: u16,
        now: Nanos,
    ) -> Option<ReplyPacket> {
        let arrived = arrival_of(packet.len(), port);
        packet.resize(packet.len().max(BASE), 0xff);
        let reply = sessions.reflect(packet, &arrived, clock(now));
        packet.truncate(reply.map_or(arrived.length, |reply| reply.length));
        reply
    }

    fn number(sessions: &mut Sessions, sequence: u32, ssid: u16, now: Nanos) -> Option<u32> {
        let mut packet = request(sequence, ssid);
        Some(ask(sessions, &mut packet, 5000, now)?.sequence)
    }

    #[test]
    fn an_answer_contains_the_request_and_its_arrival() {
        let mut packet = request(9, 3);
        let reply = ask(&mut sessions(), &mut packet, 5000, SECOND).unwrap();
        let answer = ProbeReply::parse(&packet).unwrap();
        assert_eq!(answer.sequence, 0);
        assert_eq!(answer.request.sequence, 9);
        assert_eq!(answer.request.sent, 77);
        assert_eq!((answer.ssid, answer.ttl, reply.tos), (3, 63, 0b1011_1000));
        assert_eq!(answer.received, ntp(arrival_of(BASE, 5000).at.unwrap()));
        assert_eq!(packet.len(), BASE);
    }

    #[test]
    fn a_twamp_light_request_is_answered_at_its_length_or_the_shortest() {
        for length in [14, 20, 41, 43] {
            let mut packet = request(9, 3);
            packet.truncate(length);
            let reply = ask(&mut sessions(), &mut packet, 5000, SECOND).unwrap();
            assert_eq!((reply.length, reply.key.ssid), (length.max(41), 0));
            let answer = ProbeReply::parse(&packet).unwrap();
            assert_eq!((answer.request.sequence, answer.request.sent), (9, 77));
            assert_eq!((answer.ssid, answer.ttl), (0, 63));
        }
    }

    #[test]
    fn each_session_is_counted_separately_with_any_numbers() {
        let mut sessions = sessions();
        for (sequence, ssid, expected) in
            [(0, 1, 0), (0, 2, 0), (7, 1, 1), (u32::MAX, 1, 2), (3, 1, 3)]
        {
            assert_eq!(
                number(&mut sessions, sequence, ssid, SECOND),
                Some(expected)
            );
        }
    }

    #[test]
    fn a_silent_session_ends_and_may_begin_again() {
        let mut sessions = sessions();
        for second in 1..=3 {
            number(&mut sessions, 2 * second, 1, seconds(second.into()));
        }
        assert_eq!(sessions.expire(seconds(33)), []);
        let [ended] = sessions.expire(seconds(34))[..] else {
            panic!("it goes on");
        };
        assert_eq!((ended.received, ended.sent), (3, 7));
        assert_eq!(ended.lasted, Duration::from_secs(2));
        assert_eq!(ended.last, seconds(3));
        assert_eq!(number(&mut sessions, 9, 1, seconds(35)), Some(0));
    }

    #[test]
    fn each_session_has_a_row_with_its_traffic() {
        let mut sessions = sessions();
        for (sequence, ssid) in [(0, 1), (0, 2), (3, 2)] {
            number(&mut sessions, sequence, ssid, SECOND);
        }
        let rows = sessions.rows(seconds(3));
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.number, row.traffic.up.packets, row.traffic.loss))
            .collect();
        let loss = |lost, sent| Some(PacketLoss { lost, sent });
        assert_eq!(seen, [(1, 1, loss(0, 1)), (2, 2, loss(2, 4))]);
        let bytes = 2 * BASE as u64;
        assert_eq!(
            [rows[1].traffic.up.bytes, rows[1].traffic.down.bytes],
            [bytes; 2]
        );
        assert_eq!(
            (rows[1].test, rows[1].lasted),
            ("probe", Duration::from_secs(2))
        );
        let ended = sessions.end();
        assert!(sessions.rows(seconds(3)).is_empty());
        let packets = ended.iter().map(|of| of.traffic.up.packets).sum::<u64>();
        assert_eq!(packets, 3);
    }

    /// Returns whether a new session of 10.77.`host`.1 gets an answer.
    fn opens(sessions: &mut Sessions, host: u8, ssid: u16, now: Nanos) -> bool {
        let mut packet = request(0, ssid);
        let arrived = Arrival {
            source: ([10, 77, host, 1], 5000).into(),
            ..arrival_of(packet.len(), 5000)
        };
        sessions
            .reflect(&mut packet, &arrived, clock(now))
            .is_some()
    }

    #[test]
    fn sessions_are_limited_per_source_and_in_total() {
        let mut sessions = sessions();
        let share = u16::try_from(MOST / 4).unwrap();
        for host in 0..4 {
            for ssid in 0..share {
                assert!(opens(&mut sessions, host, ssid, SECOND));
            }
            assert!(!opens(&mut sessions, host, share, SECOND));
        }
        assert!(!opens(&mut sessions, 4, 0, SECOND));
        assert_eq!(sessions.end().len(), MOST);
        assert!(sessions.by_source.is_empty());
    }

    #[test]
    fn only_silent_sessions_make_room() {
        let mut sessions = sessions();
        let share = u16::try_from(MOST / 4).unwrap();
        for ssid in 0..share {
            opens(&mut sessions, 0, ssid, SECOND + Nanos(ssid.into()));
        }
        let later = SECOND + IDLE + Nanos((share - 1).into());
        // The oldest session of all continues and stays.
        assert!(opens(&mut sessions, 0, 0, later));
        assert!(opens(&mut sessions, 0, share, later));
        let ended: Vec<_> = sessions.expire(later).iter().map(|s| s.key.ssid).collect();
        let oldest: Vec<_> = (1..=u16::try_from(MOST_EVICTED).unwrap()).collect();
        assert_eq!(ended, oldest);
    }

    #[test]
    fn a_session_lasts_no_longer_than_a_test_may() {
        let mut sessions = sessions();
        assert_eq!(number(&mut sessions, 0, 0, SECOND), Some(0));
        assert_eq!(number(&mut sessions, 1, 0, seconds(3601)), Some(1));
        assert_eq!(number(&mut sessions, 2, 0, seconds(3602)), None);
    }

    #[test]
    fn a_session_has_its_rate_and_a_burst() {
        let mut sessions = sessions();
        let answered = (0..2 * MOST_RATE).filter(|_| opens(&mut sessions, 0, 1, SECOND));
        assert_eq!(answered.count() as u64, MOST_RATE);
        let answered = (0..MOST_RATE).filter(|_| opens(&mut sessions, 0, 1, SECOND + Nanos(5000)));
        assert_eq!(answered.count(), 1);
    }

    #[test]
    fn two_reflectors_do_not_answer_each_other() {
        let (mut one, mut other) = (sessions(), sessions());
        let mut packet = request(0, 1);
        assert!(ask(&mut one, &mut packet, 5000, SECOND).is_some());
        let echoed = packet.clone();
        let later = Arrival {
            at: Some(seconds(1_700_000_001)),
            ..arrival_of(BASE, 5000)
        };
        let reading = ClockReading {
            wall: seconds(1_700_000_002),
            ..clock(SECOND)
        };
        assert!(other.reflect(&mut packet, &later, reading).is_some());
        // Neither the other reflector's answer to the answer nor an echo of the answer gets an answer.
        assert_eq!(ask(&mut one, &mut packet, 5000, SECOND), None);
        assert_eq!(ask(&mut one, &mut echoed.clone(), 5000, SECOND), None);
        let mut padded = request(1, 1);
        padded[16..].fill(0xa5);
        assert!(ask(&mut one, &mut padded, 5000, SECOND).is_some());
    }

    #[test]
    fn only_a_sender_on_this_kernel_gets_the_reflector_s_response() {
        let kernel = KernelIdentity::current().unwrap();
        for (proof, response) in [
            (kernel.proof(42), kernel.response(42)),
            (kernel.response(42), 0),
            (0, 0),
        ] {
            let mut packet = request(0, 1);
            let asked = SameClock {
                challenge: 42,
                response: proof,
                overflowed: 0,
            };
            asked.emit(tlv::append(&mut packet, TlvKind::SameClock, 20));
            ask(&mut sessions(), &mut packet, 5000, SECOND).unwrap();
            let mut same_clock = None;
            tlv::read(&mut packet, |_, value| same_clock = SameClock::parse(value));
            assert_eq!(same_clock.unwrap().response, response);
        }
    }

    #[test]
    fn the_next_answer_carries_the_previous_departure() {
        let mut sessions = sessions();
        let mut follow_up = |departed: Option<(u32, Nanos)>| {
            let mut packet = request(0, 1);
            tlv::append(&mut packet, TlvKind::FollowUpTelemetry, 16);
            let reply = ask(&mut sessions, &mut packet, 5000, SECOND).unwrap();
            if let Some((sequence, at)) = departed {
                sessions.departed(reply.key, sequence, at);
            }
            let mut found = None;
            tlv::read(&mut packet, |_, value| found = FollowUp::parse(value));
            found
        };
        assert_eq!(follow_up(Some((0, SECOND))), None);
        let follow_up = follow_up(None).unwrap();
        assert_eq!((follow_up.sequence, follow_up.departed), (0, ntp(SECOND)));
    }

    #[test]
    fn every_known_extension_is_filled_in() {
        let mut packet = request(0, 1);
        tlv::append(&mut packet, TlvKind::ClassOfService, 4)[0] = 0b0010_1000;
        tlv::append(&mut packet, TlvKind::DirectMeasurement, 12)[3] = 8;
        let same_clock = tlv::append(&mut packet, TlvKind::SameClock, 20);
        let kernel = KernelIdentity::current().unwrap();
        same_clock[7] = 42;
        same_clock[8..16].copy_from_slice(&kernel.proof(42).to_be_bytes());
        tlv::append(&mut packet, TlvKind::Train, 4).copy_from_slice(&[0, 9, 0, 10]);
        let length = packet.len();
        let mut sessions = sessions();
        sessions.overflowed = 5;
        let reply = ask(&mut sessions, &mut packet, 5000, SECOND).unwrap();
        assert_eq!((packet.len(), reply.tos), (length, 0b0010_1000));
        let mut values = Vec::new();
        tlv::read(&mut packet, |kind, value| {
            values.push((kind, value.to_vec()))
        });
        // The bits are DSCP1 001010, DSCP2 101110, ECN 01.
        assert_eq!(values[0].1, [0b0010_1010, 0b1110_0100, 0, 0]);
        assert_eq!(values[1].1, [0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1]);
        let clock = SameClock::parse(&values[2].1).unwrap();
        assert_eq!(clock.response, kernel.response(42));
        assert_eq!(clock.overflowed, 5);
        assert_eq!(values[3], (TlvKind::Train, vec![0, 9, 0, 10]));
    }

    #[test]
    fn an_impossible_train_is_not_understood() {
        let mut packet = request(0, 1);
        tlv::append(&mut packet, TlvKind::Train, 4).copy_from_slice(&[0, 10, 0, 10]);
        ask(&mut sessions(), &mut packet, 5000, SECOND).unwrap();
        let mut kinds = Vec::new();
        tlv::read(&mut packet, |kind, _| kinds.push(kind));
        assert!(kinds.is_empty(), "{kinds:?}");
    }

    proptest! {
        #[test]
        fn an_answer_is_less_than_three_times_as_long_as_its_request(
            bytes in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            let mut packet = bytes.clone();
            let reply = ask(&mut sessions(), &mut packet, 5000, SECOND);
            prop_assert_eq!(reply.is_some(), bytes.len() >= 14);
            if reply.is_some() {
                prop_assert_eq!(packet.len(), bytes.len().max(SHORTEST_ANSWER));
                prop_assert!(packet.len() < 3 * bytes.len());
            }
        }
    }
}
