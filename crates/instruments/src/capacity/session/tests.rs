//! Tests of the session with peers written from RFC 9946, and from section 8 of RFC 9000 for the limit of sending, in
//! virtual time.

use std::collections::VecDeque;

use record::Direction;

use super::*;
use crate::capacity::wire::{
    Algorithm, NO_DELAY, Sizes, Stamp, StartRow, SubInterval, TestParameters, Thresholds, Version,
};

const MS: u64 = 1_000_000;
const WALL: u64 = 1_700_000_000_000_000_000;
const HEADER: usize = 28;
/// The payload sizes of a setup, of an activation, of their answers, and of the null request.
const SETUP: usize = 56;
const ACTIVATION: usize = 104;
const NULL: usize = 48;

fn at(ms: u64) -> ArrivalTime {
    ArrivalTime {
        mono: Nanos(ms * MS),
        wall: WALL + ms * MS,
    }
}

fn agreed(direction: Direction, feedback_ms: u16, is_server: bool) -> TestAgreement {
    TestAgreement {
        peer: ([192, 0, 2, 1], 5000).into(),
        direction,
        version: Version::NEWEST,
        sizes: Sizes::default(),
        parameters: TestParameters {
            thresholds: Thresholds::default(),
            algorithm: Algorithm::B,
            feedback_ms,
            duration_s: 2,
            sub_interval_ms: 500,
            start: StartRow::Lowest,
            one_way: false,
            ignore_reordering: true,
            random_payload: true,
        },
        round_trip: Duration::ZERO,
        is_server,
    }
}

/// Returns the server's end after a setup and an activation of 84 and 132 bytes, and its answer to the setup.
fn server(direction: Direction, feedback_ms: u16, draw: u64) -> TestSession {
    server_of(agreed(direction, feedback_ms, true), draw)
}

fn server_of(agreed: TestAgreement, draw: u64) -> TestSession {
    let mut budget = UnprovenBudget::new(u32::try_from(HEADER).unwrap());
    for received_bytes in [SETUP, ACTIVATION] {
        budget.add_received(received_bytes);
    }
    for sent in [SETUP, NULL] {
        budget.sent(sent);
    }
    let control = RateControl::new(agreed.sizes, &agreed.parameters);
    TestSession::server(agreed, control, vec![0; ACTIVATION], budget, draw, at(0))
}

fn client(direction: Direction, feedback_ms: u16) -> TestSession {
    client_of(agreed(direction, feedback_ms, false), at(0))
}

fn client_of(agreed: TestAgreement, now: ArrivalTime) -> TestSession {
    let control = RateControl::new(agreed.sizes, &agreed.parameters);
    let rate = control.rate();
    TestSession::client(agreed, control, &rate, now)
}

/// The fields of a load PDU (RFC 9946, Load PDU), read byte by byte.
#[derive(Clone, Copy)]
struct Load {
    action: u8,
    sequence: u32,
    feedback_stamp: [u8; 8],
    sent: i64,
    response_ms: i64,
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn nanos(stamp: &[u8]) -> i64 {
    i64::from(be32(stamp)) * 1_000_000_000 + i64::from(be32(&stamp[4..]))
}

fn milliseconds(nanos: i64) -> i64 {
    (nanos + 500_000).div_euclid(1_000_000)
}

impl Load {
    fn read(pdu: &[u8]) -> Self {
        assert_eq!(pdu[..2], [0xbe, 0xef]);
        Self {
            action: pdu[2],
            sequence: be32(&pdu[4..]),
            feedback_stamp: pdu[12..20].try_into().unwrap(),
            sent: nanos(&pdu[20..]),
            response_ms: u16::from_be_bytes([pdu[28], pdu[29]]).into(),
        }
    }
}

/// The receiving end of a client, written from the RFC's sections on the load and status PDUs.
#[derive(Default)]
struct SimulatedClient {
    /// The time in nanoseconds by which its clock is ahead of the server's.
    ahead: i64,
    highest: u32,
    delta_min: Option<i64>,
    answered: [u8; 8],
    rtt_min: Option<u32>,
    rtt_variation: Option<u32>,
    statuses: u32,
    lost: u32,
    /// Duplicates, and the greatest delay above the least, after the first status. The figures are computed from them.
    copies: u32,
    late_ms: i64,
    received: u64,
    stopped: bool,
}

impl SimulatedClient {
    fn clock(&self, ms: u64) -> i64 {
        i64::try_from(at(ms).wall).unwrap() + self.ahead
    }

    fn load(&mut self, ms: u64, load: Load) {
        if load.action != 0 {
            self.stopped = true;
            return;
        }
        if load.sequence <= self.highest {
            self.copies += u32::from(self.statuses > 0);
            return;
        }
        self.lost += load.sequence - self.highest - 1;
        self.highest = load.sequence;
        self.received += 1;
        let now = self.clock(ms);
        if load.feedback_stamp != [0; 8] && load.feedback_stamp != self.answered {
            self.answered = load.feedback_stamp;
            let whole = milliseconds(now - nanos(&load.feedback_stamp));
            let rtt = u32::try_from((whole - load.response_ms).max(0)).unwrap();
            let least = self.rtt_min.map_or(rtt, |least| least.min(rtt));
            self.rtt_min = Some(least);
            self.rtt_variation = Some(rtt - least);
        }
        let delta = milliseconds(now - load.sent);
        let least = self.delta_min.map_or(delta, |least| least.min(delta));
        self.delta_min = Some(least);
        if self.statuses > 0 {
            self.late_ms = self.late_ms.max(delta - least);
        }
    }

    /// Returns the status PDU, once load has arrived.
    fn status(&mut self, ms: u64) -> Option<Vec<u8>> {
        let delta = self.delta_min?;
        self.statuses += 1;
        let mut pdu = vec![0; 204];
        pdu[..2].copy_from_slice(&[0xfe, 0xed]);
        pdu[2] = if self.stopped { 2 } else { 0 };
        let mut put = |at: usize, value: u32| pdu[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(4, self.statuses);
        put(96, std::mem::take(&mut self.lost));
        put(108, u32::try_from(delta.rem_euclid(1 << 32)).unwrap());
        put(128, self.rtt_min.unwrap_or(u32::MAX));
        put(132, self.rtt_variation.take().unwrap_or(u32::MAX));
        let now = self.clock(ms);
        put(152, u32::try_from(now / 1_000_000_000).unwrap());
        put(156, u32::try_from(now % 1_000_000_000).unwrap());
        Some(pdu)
    }
}

/// A server's session in steps of one millisecond, over a path with constant delay and loss.
struct Simulation {
    session: TestSession,
    ms: u64,
    delay_ms: u64,
    loss: f64,
    draws: fastrand::Rng,
    to_client: Vec<(u64, Load)>,
    to_server: Vec<(u64, Vec<u8>)>,
    sequence: u32,
    /// The datagrams that left, and their bytes with headers.
    left: u64,
    bytes: usize,
    probes: usize,
    /// The payload bytes of load without probes.
    loaded: u64,
}

impl Simulation {
    fn new(session: TestSession, delay_ms: u64, loss: f64, seed: u64) -> Self {
        Self {
            session,
            ms: 0,
            delay_ms,
            loss,
            draws: fastrand::Rng::with_seed(seed),
            to_client: Vec::new(),
            to_server: Vec::new(),
            sequence: 0,
            left: 0,
            bytes: 0,
            probes: 0,
            loaded: 0,
        }
    }

    fn send(&mut self) {
        let now = at(self.ms);
        while let Some(transmit) = self.session.transmit(now) {
            match transmit {
                Transmit::Message(message) => self.leave(message.len(), None),
                Transmit::Probe(probe) => {
                    assert!((32..=60).contains(&probe.len()));
                    self.probes += 1;
                    self.sequence = 1;
                    self.leave(probe.len(), Some(Load::read(&probe)));
                }
                Transmit::Load(train, header) => {
                    for _ in 0..train.count + usize::from(train.addon > 0) {
                        self.sequence += 1;
                        let header = LoadHeader {
                            sequence: self.sequence,
                            sent: Stamp::of(now.wall),
                            ..header
                        };
                        self.loaded += 1;
                        self.leave(1222, Some(Load::read(&header.encode())));
                    }
                }
            }
        }
    }

    fn leave(&mut self, payload: usize, load: Option<Load>) {
        self.left += 1;
        self.bytes += payload + HEADER;
        let arrives = self.draws.f64() >= self.loss;
        self.to_client.extend(
            load.filter(|_| arrives)
                .map(|load| (self.ms + self.delay_ms, load)),
        );
    }

    /// Advances one millisecond with this client, and returns the end of the test if it ended.
    fn step(&mut self, client: &mut SimulatedClient, feeds_back: bool) -> Option<TestEnd> {
        self.send();
        let ms = self.ms;
        let (due, later) = std::mem::take(&mut self.to_client)
            .into_iter()
            .partition(|(at, _)| *at <= ms);
        self.to_client = later;
        let due: Vec<(u64, Load)> = due;
        due.into_iter().for_each(|(_, load)| client.load(ms, load));
        let status = if (feeds_back && ms.is_multiple_of(50)) || client.stopped {
            client.status(ms)
        } else {
            None
        };
        let arrives = self.draws.f64() >= self.loss;
        self.to_server.extend(
            status
                .filter(|_| arrives)
                .map(|pdu| (ms + self.delay_ms, pdu)),
        );
        let (due, later) = std::mem::take(&mut self.to_server)
            .into_iter()
            .partition(|(at, _)| *at <= ms);
        self.to_server = later;
        let due: Vec<(u64, Vec<u8>)> = due;
        for (_, pdu) in due {
            self.session.take(at(ms), &pdu);
        }
        self.ms += 1;
        self.session.check_end(Nanos(ms * MS))
    }

    fn until_end(&mut self, client: &mut SimulatedClient) -> TestEnd {
        loop {
            if let Some(end) = self.step(client, true) {
                return end;
            }
        }
    }
}

/// Both ends of a test in steps of one millisecond, over a path that carries one load PDU of 1,222 bytes per
/// millisecond.
struct Pair {
    /// The client and the server.
    ends: [TestSession; 2],
    /// The times at which the ends begin. The client begins when the server's answer arrives.
    begin_ms: [u64; 2],
    /// The datagrams on their way to each end, with the times of their arrival.
    arriving: [VecDeque<(u64, Vec<u8>)>; 2],
    delay_ms: u64,
    sequence: u32,
}

impl Pair {
    fn new(direction: Direction, delay_ms: u64) -> Self {
        let agreed = |is_server| TestAgreement {
            round_trip: Duration::from_millis(2 * delay_ms),
            ..agreed(direction, 50, is_server)
        };
        Self {
            ends: [
                client_of(agreed(false), at(delay_ms)),
                server_of(agreed(true), 7),
            ],
            begin_ms: [delay_ms, 0],
            arriving: [VecDeque::new(), VecDeque::new()],
            delay_ms,
            sequence: 0,
        }
    }

    /// Sends over the path; of the load, only as many PDUs as there is `room` for.
    fn carry(&mut self, from: usize, ms: u64, transmit: Transmit, room: &mut usize) {
        let (arrival, arriving) = (ms + self.delay_ms, &mut self.arriving[1 - from]);
        match transmit {
            Transmit::Message(message) => arriving.push_back((arrival, message)),
            Transmit::Probe(probe) => {
                self.sequence = 1;
                arriving.push_back((arrival, probe.to_vec()));
            }
            Transmit::Load(train, header) => {
                for _ in 0..train.count + usize::from(train.addon > 0) {
                    self.sequence += 1;
                    if *room == 0 {
                        continue;
                    }
                    *room -= 1;
                    let header = LoadHeader {
                        sequence: self.sequence,
                        sent: Stamp::of(at(ms).wall),
                        ..header
                    };
                    let mut pdu = header.encode().to_vec();
                    pdu.resize(1222, 0);
                    arriving.push_back((arrival, pdu));
                }
            }
        }
    }

    /// Advances one end by a millisecond, and returns the end of the test if it ended there.
    fn step(&mut self, end: usize, ms: u64) -> Option<TestEnd> {
        let now = at(ms);
        let mut room = 1;
        while let Some(transmit) = self.ends[end].transmit(now) {
            self.carry(end, ms, transmit, &mut room);
        }
        let is_due = |(arrival, _): &mut (u64, Vec<u8>)| *arrival <= ms;
        while let Some((_, datagram)) = self.arriving[end].pop_front_if(is_due) {
            self.ends[end].take(now, &datagram);
        }
        let cause = self.ends[end].check_end(now.mono)?;
        if let Some(transmit) = self.ends[end].closing_message(now, &cause) {
            self.carry(end, ms, transmit, &mut 1);
        }
        Some(cause)
    }

    /// Runs the test to its end at the client and at the server.
    fn run(mut self) -> [(TestEnd, TestOutcome); 2] {
        let mut ended: [Option<TestEnd>; 2] = [None, None];
        for ms in 0..600_000 {
            for (end, cause) in ended.iter_mut().enumerate() {
                if cause.is_none() && ms >= self.begin_ms[end] {
                    *cause = self.step(end, ms);
                }
            }
            if ended.iter().all(Option::is_some) {
                break;
            }
        }
        let [client, server] = ended.map(|end| end.expect("it ended within ten minutes"));
        let [first, second] = self.ends.map(TestSession::into_outcome);
        [(client, first), (server, second)]
    }
}

#[test]
fn a_test_over_a_long_path_finds_its_capacity_in_both_directions() {
    // The Moon, and ten seconds in each direction.
    for delay_ms in [1_300, 10_000] {
        for direction in [Direction::Down, Direction::Up] {
            let ends = Pair::new(direction, delay_ms).run();
            for (end, _) in &ends {
                assert!(
                    matches!(end, TestEnd::Complete),
                    "{delay_ms} ms {direction:?}: {end:?}"
                );
            }
            let [(_, client), _] = ends;
            let rates = client.sub_intervals.iter();
            let best = rates
                .map(|whole| whole.counted.bit_per_s(28))
                .fold(0.0, f64::max);
            assert!(
                (9e6..10.2e6).contains(&best),
                "{delay_ms} ms {direction:?}: {best}"
            );
            assert_eq!(client.silences, 0, "{delay_ms} ms {direction:?}");
        }
    }
}

#[test]
fn a_silent_address_gets_at_most_three_times_the_received_bytes() {
    let mut simulation = Simulation::new(server(Direction::Down, 5, 99), 0, 1.0, 1);
    let end = simulation.until_end(&mut SimulatedClient::default());
    assert!(matches!(end, TestEnd::Silent), "{end:?}");
    let before = SETUP + NULL + 2 * HEADER;
    let received_bytes = SETUP + ACTIVATION + 2 * HEADER;
    assert!(
        simulation.bytes + before <= 3 * received_bytes,
        "{} of {received_bytes}",
        simulation.bytes
    );
    assert_eq!((simulation.probes, simulation.loaded), (5, 0));
}

#[test]
fn one_wrong_answer_ends_the_session_before_any_load() {
    let mut simulation = Simulation::new(server(Direction::Down, 50, 99), 0, 1.0, 1);
    // This client did not see the probe, and states an arbitrary time.
    let mut blind = SimulatedClient {
        delta_min: Some(77_000_000),
        ..SimulatedClient::default()
    };
    simulation.send();
    let status = blind.status(51).unwrap();
    simulation.session.take(at(51), &status);
    // Correct feedback afterwards does not help.
    let mut seeing = SimulatedClient::default();
    let claimed = at(0).wall - (10_000_000_000 + 99);
    seeing.delta_min = Some(milliseconds(i64::try_from(at(0).wall - claimed).unwrap()));
    simulation.session.take(at(52), &seeing.status(52).unwrap());
    assert!(simulation.session.transmit(at(53)).is_none());
    let end = simulation.session.check_end(at(53).mono);
    assert!(matches!(end, Some(TestEnd::Unproven)), "{end:?}");
    assert!(
        simulation
            .session
            .closing_message(at(53), &TestEnd::Unproven)
            .is_none()
    );
}

#[test]
fn a_client_with_any_clock_gets_its_test_without_the_probe_in_the_figures() {
    for ahead_s in [0, -300, 900_000, -900_000] {
        let mut simulation = Simulation::new(server(Direction::Down, 50, 5 << 40), 20, 0.0, 1);
        let mut client = SimulatedClient {
            ahead: ahead_s * 1_000_000_000,
            ..SimulatedClient::default()
        };
        let end = simulation.until_end(&mut client);
        assert!(matches!(end, TestEnd::Complete), "{ahead_s}: {end:?}");
        assert_eq!(
            (simulation.probes, client.copies, client.late_ms),
            (1, 0, 0)
        );
        assert_eq!(client.delta_min, Some(20 + ahead_s * 1000));
        assert!(client.received > 10_000, "{}", client.received);
        let outcome = simulation.session.into_outcome();
        assert!(outcome.sub_intervals.is_empty() && outcome.unreadable == 0);
    }
}

#[test]
fn a_test_tolerates_twenty_percent_loss() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(server(Direction::Down, 50, seed << 32), 5, 0.2, seed);
        let mut client = SimulatedClient::default();
        let end = simulation.until_end(&mut client);
        assert!(matches!(end, TestEnd::Complete), "{seed}: {end:?}");
        assert!(client.late_ms == 0 && client.received > 20, "{seed}");
    }
}

#[test]
fn the_duration_begins_when_the_address_is_proven() {
    let mut simulation = Simulation::new(server(Direction::Down, 50, 7), 700, 0.0, 1);
    let mut client = SimulatedClient::default();
    let end = simulation.until_end(&mut client);
    assert!(matches!(end, TestEnd::Complete), "{end:?}");
    // The time consists of the ways of the probe and its feedback, the test, and the ways of the stop and its
    // confirmation.
    let expected = 1_400 + 2_500 + 1_400;
    assert!(
        (expected..expected + 60).contains(&simulation.ms),
        "{}",
        simulation.ms
    );
}

#[test]
fn load_pauses_a_second_after_the_last_feedback_and_resumes_with_it() {
    let mut simulation = Simulation::new(server(Direction::Down, 50, 7), 5, 0.0, 1);
    let mut client = SimulatedClient::default();
    while simulation.ms < 500 {
        assert!(simulation.step(&mut client, true).is_none());
    }
    while simulation.ms < 1_600 {
        assert!(simulation.step(&mut client, false).is_none());
    }
    let loaded = simulation.loaded;
    assert!(loaded > 100);
    while simulation.ms < 1_800 {
        assert!(simulation.step(&mut client, false).is_none());
    }
    assert_eq!(simulation.loaded, loaded);
    let end = simulation.until_end(&mut client);
    assert!(matches!(end, TestEnd::Complete), "{end:?}");
    assert!(simulation.loaded > 2 * loaded);
    assert_eq!(simulation.session.into_outcome().skipped, Duration::ZERO);
}

/// Returns a load PDU of 52 bytes.
fn load(sequence: u32) -> Vec<u8> {
    let header = LoadHeader {
        sequence,
        sent: Stamp::of(WALL),
        ..LoadHeader::default()
    };
    let mut pdu = header.encode().to_vec();
    pdu.resize(52, 0);
    pdu
}

#[test]
fn upstream_feedback_stays_within_three_times_the_received_bytes() {
    let mut simulation = Simulation::new(server(Direction::Up, 5, 7), 0, 1.0, 1);
    let (mut received_bytes, mut end) = (SETUP + ACTIVATION + 2 * HEADER, None);
    for number in 1..=3 {
        let pdu = load(number);
        received_bytes += pdu.len() + HEADER;
        simulation.session.take(at(simulation.ms), &pdu);
        end = (0..1_000).find_map(|_| simulation.step(&mut SimulatedClient::default(), false));
    }
    while end.is_none() {
        end = simulation.step(&mut SimulatedClient::default(), false);
    }
    // The client's silence or the test's time ends it.
    assert!(simulation.bytes + SETUP + NULL + 2 * HEADER <= 3 * received_bytes);
    assert!(simulation.left > 3, "an answer and some feedback");
}

#[test]
fn feedback_begins_after_50_ms_with_any_trial_interval() {
    for (direction, mut session) in [
        (Direction::Down, client(Direction::Down, 250)),
        (Direction::Up, server(Direction::Up, 250, 7)),
    ] {
        let mut fed_back = Vec::new();
        for ms in 0..1_000 {
            // The received load is more than the budget needs.
            let last = if ms == 120 { 20 } else { 0 };
            for number in 1..=last {
                session.take(at(ms), &load(number));
            }
            while let Some(Transmit::Message(message)) = session.transmit(at(ms)) {
                fed_back.extend((message.len() == 204).then_some(ms));
            }
        }
        assert_eq!(fed_back[..3], [150, 400, 650], "{direction:?}");
    }
}

#[test]
fn a_client_notes_a_silent_server_after_one_second_and_ends_after_three() {
    let mut session = client(Direction::Down, 50);
    session.take(at(10), &load(1));
    let mut noted = None;
    let ended = (10..5_000).find(|ms| {
        while session.transmit(at(*ms)).is_some() {}
        let end = session.check_end(at(*ms).mono);
        if session.outcome().silences == 1 {
            noted.get_or_insert(*ms);
        }
        assert!(end.is_none() || matches!(end, Some(TestEnd::Silent)));
        end.is_some()
    });
    assert_eq!((noted, ended), (Some(1_011), Some(3_011)));
}

#[test]
fn a_repeated_activation_is_answered_within_the_budget() {
    let mut session = server(Direction::Up, 50, 7);
    let request = Activation {
        direction: Direction::Up,
        answer: None,
        parameters: session.agreed().parameters,
        rate: SendingRate::default(),
    }
    .encode(Version::NEWEST);
    for ms in 1..10 {
        session.take(at(ms), &request);
        let answer = session.transmit(at(ms));
        assert!(matches!(answer, Some(Transmit::Message(_))), "{ms}");
        assert_eq!(session.transmit(at(ms)), None);
    }
}

/// The sub-interval of a status is added to the outcome only once.
#[test]
fn sub_intervals_are_recorded_once() {
    let mut session = client(Direction::Up, 50);
    let status = FeedbackMessage {
        sequence: 1,
        sub_interval_number: 1,
        sub_interval: SubInterval {
            datagrams: 9,
            ..SubInterval::default()
        },
        rtt_min_ms: NO_DELAY,
        rtt_variation_ms: NO_DELAY,
        ..FeedbackMessage::default()
    };
    for sequence in 1..4 {
        let status = FeedbackMessage { sequence, ..status };
        session.take(at(sequence.into()), &status.encode(Version::NEWEST));
    }
    assert_eq!(session.into_outcome().sub_intervals.len(), 1);
}
