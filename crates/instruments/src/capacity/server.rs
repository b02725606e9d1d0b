//! The server of the UDP Speed Test Protocol (RFC 9946): a control port, and a port and a thread for each test.

use crate::error::Result;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netio::stop::STOP_INTERVAL;
use netio::udp::{AskedUdp, UdpRequest};
use record::Direction;

use super::channel::{Channel, now};
use super::exchange::Exchange;
use super::outcome::{SILENCE, TestAgreement, l3_header};
use super::proof::UnprovenBudget;
use super::results::measurement;
use super::search::RateControl;
use super::session::TestSession;
use super::wire::{
    Activation, ActivationAnswer, LONGEST_MESSAGE, SendingRate, Setup, SetupAnswer, Sizes,
    StartRow, TestParameters, Thresholds, Version, null_request,
};
use crate::endpoint::{self, Local};
use crate::live::Live;
use crate::round_trip::FIRST_ANSWER;
use crate::service::{
    AdmissionRefusal, BoundService, ConnectionPermit, Shared, TestResources, await_input,
};

/// The most connections of one client, which is the reference's limit.
const MOST_CONNECTIONS: u8 = 24;
/// The last row of the table of sending rates.
const LAST_ROW: u16 = 1152;

/// Binds the service to `port` of `bind`.
///
/// # Errors
/// Returns an error if the port cannot be bound.
pub(crate) fn bind(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<BoundService> {
    let socket = endpoint::listen_udp(bind, port)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    let (socket, bind) = (AskedUdp::new(socket)?, bind.cloned());
    Ok(BoundService::new("capacity", address, move || {
        serve(&socket, bind.as_ref(), &shared);
    }))
}

fn serve(socket: &AskedUdp, bind: Option<&Local>, shared: &Arc<Shared>) {
    let mut tests: Vec<RunningTest> = Vec::new();
    let mut buffer = [0; LONGEST_MESSAGE];
    while !shared.stopping() {
        if !await_input(socket, shared, None) {
            continue;
        }
        // Errors concern datagrams with a wrong checksum, or earlier answers to clients that are gone.
        let Ok(arrival) = socket.receive(&mut buffer) else {
            continue;
        };
        // A datagram that is not a request gets no answer, so that the server cannot be used to attack others.
        let Ok(request) = Setup::decode(&buffer[..arrival.length]) else {
            continue;
        };
        if request.answer.is_some() {
            continue;
        }
        tests.retain(|test| !test.thread.is_finished());
        let id = (arrival.from, request.ident, request.connection);
        let known = tests.iter().find(|test| test.id == id);
        let port = match known.map(|test| test.port) {
            // The request was repeated because its answer was lost.
            Some(port) => Ok(port),
            None => PendingTest::admit(&request, &arrival, bind, shared)
                .and_then(|pending| pending.start(id))
                .map(|test| {
                    let port = test.port;
                    tests.push(test);
                    port
                }),
        };
        let version = match port {
            Err(SetupAnswer::BAD_VERSION) => Version::NEWEST.number(),
            _ => request.version,
        };
        let answer = Setup {
            version,
            answer: Some(port.err().unwrap_or(SetupAnswer::ACCEPTED)),
            port: port.unwrap_or(request.port),
            ..request
        };
        let _ = socket.answer(&arrival, &answer.encode());
    }
    for test in tests {
        // A panic of the thread has already been printed.
        let _ = test.thread.join();
    }
}

/// The identity of a test: the address of its client, the client's number, and the number of the connection.
type TestId = (SocketAddr, u16, u8);

/// A test that was set up.
struct RunningTest {
    id: TestId,
    port: u16,
    thread: JoinHandle<()>,
}

/// A test that waits for its activation.
struct PendingTest {
    socket: UdpSocket,
    port: u16,
    peer: SocketAddr,
    version: Version,
    sizes: Sizes,
    budget: UnprovenBudget,
    place: ConnectionPermit,
    shared: Arc<Shared>,
}

/// A client's request to begin its test.
struct ActivatedTest {
    peer: SocketAddr,
    request: Activation,
    /// The time since the answer to the setup request, which the client answers immediately.
    round_trip: Duration,
}

impl PendingTest {
    fn admit(
        request: &Setup,
        arrival: &UdpRequest,
        bind: Option<&Local>,
        shared: &Arc<Shared>,
    ) -> Result<Self, SetupAnswer> {
        let version = Version::spoken(request.version).ok_or(SetupAnswer::BAD_VERSION)?;
        let count = request.connections;
        if count == 0 || count > MOST_CONNECTIONS || request.connection >= count {
            return Err(SetupAnswer::BAD_CONNECTIONS);
        }
        if request.authentication != 0 {
            return Err(SetupAnswer::NO_AUTHENTICATION);
        }
        let peer = arrival.peer();
        // A single datagram, whose source address may be forged, creates a test that waits.
        let place = shared
            .enter("capacity", peer)
            .map_err(|refusal| match refusal {
                AdmissionRefusal::NotAllowed => SetupAnswer::NO_SOCKET,
                AdmissionRefusal::Busy(_) => SetupAnswer::CAPACITY_EXCEEDED,
            })?;
        shared
            .check_room("capacity", peer)
            .map_err(|_| SetupAnswer::CAPACITY_EXCEEDED)?;
        // The test uses the address that the client used, if the kernel reported it.
        let local = arrival.local(0).unwrap_or_else(|| match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        });
        let socket = open(local, bind).map_err(|_| SetupAnswer::NO_SOCKET)?;
        let address = socket.local_addr().map_err(|_| SetupAnswer::NO_SOCKET)?;
        let mut budget = UnprovenBudget::new(l3_header(peer));
        budget.add_received(arrival.length);
        // The answer is as long as the request.
        budget.sent(arrival.length);
        Ok(Self {
            socket,
            port: address.port(),
            peer,
            version,
            sizes: request.sizes,
            budget,
            place,
            shared: Arc::clone(shared),
        })
    }

    /// Starts a thread that waits for the activation.
    fn start(self, id: TestId) -> Result<RunningTest, SetupAnswer> {
        let port = self.port;
        let thread = thread::Builder::new()
            .name("capacity test".to_owned())
            .spawn(move || self.run())
            .map_err(|_| SetupAnswer::CAPACITY_EXCEEDED)?;
        Ok(RunningTest { id, port, thread })
    }

    /// Waits for the activation and runs the test. A client that does not return is dropped.
    fn run(mut self) {
        if self.version == Version::NEWEST {
            // The null request opens firewalls on the path for datagrams from the test's port.
            let request = null_request(self.version);
            let _ = self.socket.send_to(&request, self.peer);
            self.budget.sent(request.len());
        }
        let Some(activated) = self.activation() else {
            return;
        };
        let (shared, peer) = (Arc::clone(&self.shared), activated.peer);
        if let Err(error) = self.test(&activated) {
            let text = format!("a capacity test with {peer} did not start: {error:#}");
            shared.note(&text);
        }
    }

    /// Waits for the activation from the address that requested the test. A firewall may have changed the port.
    ///
    /// The path may be long, but a waiting test takes a place. If there are many of them, they wait only for the usual
    /// time.
    fn activation(&mut self) -> Option<ActivatedTest> {
        let began = Instant::now();
        let mut buffer = [0; LONGEST_MESSAGE];
        let longest = || {
            if self.shared.is_crowded() {
                SILENCE
            } else {
                FIRST_ANSWER
            }
        };
        while began.elapsed() < longest() && !self.shared.stopping() {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else {
                continue;
            };
            let request = Activation::decode(&buffer[..length], self.version)
                .ok()
                .filter(|r| r.answer.is_none() && from.ip() == self.peer.ip());
            if let Some(request) = request {
                self.budget.add_received(length);
                return Some(ActivatedTest {
                    peer: from,
                    request,
                    round_trip: began.elapsed(),
                });
            }
        }
        None
    }

    fn test(self, activated: &ActivatedTest) -> io::Result<()> {
        let (peer, request) = (activated.peer, &activated.request);
        self.socket.connect(peer)?;
        // The client may have refused the null request, because its socket was connected to the control port until now.
        let mut channel = Channel::new(self.socket)?.after_null_request();
        let Ok(permit) = self
            .shared
            .admit(peer, "capacity", TestResources::default())
        else {
            // Other clients were faster. The protocol has no better answer for that here.
            let answer = Activation {
                answer: Some(ActivationAnswer::BAD_PARAMETER),
                ..*request
            };
            return channel.send(&answer.encode(self.version));
        };
        self.place.begin();
        let agreed = TestAgreement {
            peer,
            direction: request.direction,
            version: self.version,
            sizes: self.sizes,
            parameters: within_limits(&request.parameters, self.shared.limits().duration),
            round_trip: activated.round_trip,
            is_server: true,
        };
        let control = RateControl::new(self.sizes, &agreed.parameters);
        let answer = Activation {
            direction: request.direction,
            answer: Some(ActivationAnswer::ACCEPTED),
            parameters: agreed.parameters,
            rate: match request.direction {
                Direction::Up => control.rate(),
                Direction::Down => SendingRate::default(),
            },
        }
        .encode(self.version);
        let draw = getrandom::u64()?;
        let shared = &self.shared;
        let exchange = Exchange {
            channel,
            session: TestSession::server(agreed, control, answer, self.budget, draw, now()),
            stop: &|| shared.stopping().then(|| "the server stops".to_owned()),
            live: Live::quiet(),
            publisher: Some(permit.publisher()),
        };
        permit.finish(&measurement(&exchange.run(), &agreed));
        Ok(())
    }
}

/// Returns a socket on a free port of `address`, whose reads time out so that the thread can check the stop.
fn open(address: SocketAddr, bind: Option<&Local>) -> io::Result<UdpSocket> {
    let socket = endpoint::udp_on(address, bind)?;
    socket.set_read_timeout(Some(STOP_INTERVAL))?;
    Ok(socket)
}

/// Returns the requested parameters; an impossible value is replaced by its default, as in the reference.
fn within_limits(requested: &TestParameters, longest: Duration) -> TestParameters {
    let usual = Thresholds::default();
    let given = requested.thresholds;
    let (low_ms, upper_ms) = match (given.low_ms, given.upper_ms) {
        (low, upper) if (1..=upper).contains(&low) && upper <= 10_000 => (low, upper),
        _ => (usual.low_ms, usual.upper_ms),
    };
    let within = |value: u16, least: u16, most: u16, usual: u16| {
        let possible = (least..=most).contains(&value);
        if possible { value } else { usual }
    };
    let longest_s = u16::try_from(longest.as_secs().max(1)).unwrap_or(u16::MAX);
    let duration_s = within(requested.duration_s, 1, 3600, 10).min(longest_s);
    let longest_ms = duration_s.saturating_mul(1000).min(10_000);
    TestParameters {
        thresholds: Thresholds {
            sequence_errors: given.sequence_errors,
            low_ms,
            upper_ms,
            slow: within(given.slow, 1, u16::MAX, usual.slow),
            high_speed_delta: match given.high_speed_delta {
                0 => usual.high_speed_delta,
                rows => rows,
            },
        },
        feedback_ms: within(requested.feedback_ms, 5, 250, 50),
        duration_s,
        sub_interval_ms: within(requested.sub_interval_ms, 100, longest_ms, 1000),
        start: match requested.start {
            StartRow::At(row) | StartRow::Fixed(row) if row > LAST_ROW => StartRow::Lowest,
            start => start,
        },
        ..*requested
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{FarEndServer, ServeConfig};
    use crate::service::MOST_WAITING;

    fn server(tests: usize) -> FarEndServer {
        crate::serve::start(ServeConfig::on_loopback_for(tests)).unwrap()
    }

    fn client(server: &FarEndServer) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.address("capacity").unwrap()).unwrap();
        socket
    }

    /// Sends a set-up request and returns the answer.
    fn set_up(client: &UdpSocket, ident: u16) -> Setup {
        let request = Setup {
            version: Version::NEWEST.number(),
            connections: 1,
            ident,
            ..Setup::default()
        };
        client.send(&request.encode()).unwrap();
        let mut buffer = [0; LONGEST_MESSAGE];
        let length = client.recv(&mut buffer).unwrap();
        Setup::decode(&buffer[..length]).unwrap()
    }

    #[test]
    fn waiting_set_ups_do_not_prevent_tests() {
        let server = server(1);
        let client = client(&server);
        for ident in 1..=3 {
            let answer = set_up(&client, ident);
            assert_eq!(answer.answer, Some(SetupAnswer::ACCEPTED));
        }
        let peer = client.local_addr().unwrap();
        assert!(
            server
                .shared
                .admit(peer, "tcp", TestResources::default())
                .is_ok()
        );
    }

    #[test]
    fn a_repeated_set_up_is_the_same_test() {
        let server = server(1);
        let client = client(&server);
        let port = set_up(&client, 1).port;
        assert_eq!(set_up(&client, 1).port, port);
        assert_ne!(set_up(&client, 2).port, port);
    }

    #[test]
    fn surplus_set_ups_are_refused() {
        let server = server(1);
        let client = client(&server);
        let refused = (1..).find(|ident| {
            let answer = set_up(&client, *ident).answer;
            answer == Some(SetupAnswer::CAPACITY_EXCEEDED)
        });
        assert!(refused.is_some_and(|ident| usize::from(ident) > MOST_WAITING / 2));
    }
}
