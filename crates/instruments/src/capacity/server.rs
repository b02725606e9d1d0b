//! The UDP Speed Test Protocol's server (RFC 9946): a control port, and a port and a thread for each test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::capacity::wire::{
    Activation, ActivationAnswer, LONGEST_MESSAGE, SendingRate, Setup, SetupAnswer, Sizes,
    StartRow, TestParameters, Version, null_request,
};
use crate::capacity::{
    Channel, Context, Decider, Exchange, RateTable, SILENCE, STOP_AFTER, Thresholds, measurement,
};
use crate::endpoint::{self, Local};
use crate::serve::accept::{Seat, Seats};
use crate::serve::{Service, Shared};
use netio::stop::STOP_INTERVAL;
use record::Direction;

/// Connections of one client (the reference's limit).
const MOST_CONNECTIONS: u8 = 24;
/// Tests that wait for their activation at a time: one datagram, perhaps of a false address, makes one.
const MOST_PENDING: usize = 64;

/// Serves on `port` of `bind`.
///
/// # Errors
/// It cannot be bound.
pub(crate) fn start(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<Service> {
    let socket = endpoint::listen_udp(bind, port)?;
    socket.set_read_timeout(Some(STOP_INTERVAL))?;
    let address = socket.local_addr()?;
    let bind = bind.cloned();
    let thread = thread::Builder::new()
        .name("capacity".to_owned())
        .spawn(move || serve(&socket, bind.as_ref(), &shared))?;
    Ok(Service {
        name: "capacity",
        address,
        thread,
    })
}

fn serve(socket: &UdpSocket, bind: Option<&Local>, shared: &Arc<Shared>) {
    let mut tests: Vec<Test> = Vec::new();
    let pending = Seats::new(MOST_PENDING);
    let mut buffer = [0; LONGEST_MESSAGE];
    while !shared.stopping() {
        // Errors are of earlier answers to clients that are gone, and time-outs.
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        // What is no request gets no answer: nobody can be made a target by it.
        let Ok(request) = Setup::decode(&buffer[..length]) else {
            continue;
        };
        if request.answer.is_some() {
            continue;
        }
        tests.retain(|test| !test.thread.is_finished());
        let known = tests.iter().find(|test| test.is_of(peer, &request));
        let port = match known.map(|test| test.port) {
            // The request comes again: its answer was lost.
            Some(port) => Ok(port),
            None => Test::set_up(&request, peer, bind, shared, &pending).map(|test| {
                let port = test.port;
                tests.push(test);
                port
            }),
        };
        let answer = match port {
            Ok(port) => Setup {
                answer: Some(SetupAnswer::Accepted),
                port,
                ..request
            },
            Err(refusal) => Setup {
                version: match refusal {
                    SetupAnswer::BadVersion => Version::NEWEST.number(),
                    _ => request.version,
                },
                answer: Some(refusal),
                ..request
            },
        };
        let _ = socket.send_to(&answer.encode(), peer);
    }
    for test in tests {
        // A panic there was printed there.
        let _ = test.thread.join();
    }
}

/// A test that was set up.
struct Test {
    /// Who asked for it, and which of its tests it is.
    peer: SocketAddr,
    ident: u16,
    connection: u8,
    port: u16,
    thread: JoinHandle<()>,
}

impl Test {
    /// Begins to wait for the activation of the test that is asked for, on a thread of its own.
    fn set_up(
        request: &Setup,
        peer: SocketAddr,
        bind: Option<&Local>,
        shared: &Arc<Shared>,
        seats: &Seats,
    ) -> Result<Self, SetupAnswer> {
        let seat = seats.take().ok_or(SetupAnswer::CapacityExceeded)?;
        let pending = Pending::admit(request, peer, bind, shared, seat)?;
        let port = pending.port;
        let thread = thread::Builder::new()
            .name("capacity test".to_owned())
            .spawn(move || pending.run())
            .map_err(|_| SetupAnswer::CapacityExceeded)?;
        Ok(Self {
            peer,
            ident: request.ident,
            connection: request.connection,
            port,
            thread,
        })
    }

    fn is_of(&self, peer: SocketAddr, request: &Setup) -> bool {
        (self.peer, self.ident, self.connection) == (peer, request.ident, request.connection)
    }
}

/// A test that waits for its activation.
struct Pending {
    socket: UdpSocket,
    port: u16,
    peer: SocketAddr,
    version: Version,
    sizes: Sizes,
    seat: Seat,
    shared: Arc<Shared>,
}

impl Pending {
    fn admit(
        request: &Setup,
        peer: SocketAddr,
        bind: Option<&Local>,
        shared: &Arc<Shared>,
        seat: Seat,
    ) -> Result<Self, SetupAnswer> {
        let version = Version::spoken(request.version).ok_or(SetupAnswer::BadVersion)?;
        let count = request.connections;
        if count == 0 || count > MOST_CONNECTIONS || request.connection >= count {
            return Err(SetupAnswer::BadConnections);
        }
        if request.authentication != 0 {
            return Err(SetupAnswer::NoAuthentication);
        }
        if !shared.allows(peer.ip()) {
            return Err(SetupAnswer::NoSocket);
        }
        if !shared.has_room() {
            return Err(SetupAnswer::CapacityExceeded);
        }
        let open = || -> Result<(UdpSocket, u16)> {
            let socket = endpoint::listen_udp(bind, 0)?;
            socket.set_read_timeout(Some(STOP_INTERVAL))?;
            let port = socket.local_addr()?.port();
            Ok((socket, port))
        };
        let (socket, port) = open().map_err(|_| SetupAnswer::NoSocket)?;
        Ok(Self {
            socket,
            port,
            peer,
            version,
            sizes: request.sizes,
            seat,
            shared: Arc::clone(shared),
        })
    }

    /// Waits for the activation and tests; a client that does not come back is forgotten.
    fn run(self) {
        if self.version == Version::NEWEST {
            // Opens a firewall on the way for what the test's port sends.
            let _ = self.socket.send_to(&null_request(self.version), self.peer);
        }
        let Some((peer, request)) = self.activation() else {
            return;
        };
        if let Err(error) = self.test(peer, &request) {
            eprintln!("farwire: a capacity test with {peer} could not begin: {error:#}");
        }
    }

    /// The activation, from the address that asked for the test; a firewall may have changed its port.
    fn activation(&self) -> Option<(SocketAddr, Activation)> {
        let began = Instant::now();
        let mut buffer = [0; LONGEST_MESSAGE];
        while began.elapsed() < SILENCE && !self.shared.stopping() {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else {
                continue;
            };
            let request = Activation::decode(&buffer[..length], self.version).ok();
            let request = request.filter(|r| r.answer.is_none() && from.ip() == self.peer.ip());
            if let Some(request) = request {
                return Some((from, request));
            }
        }
        None
    }

    fn test(self, peer: SocketAddr, request: &Activation) -> io::Result<()> {
        self.socket.connect(peer)?;
        // A client whose socket was connected to the control port until now has refused the null request.
        let mut channel = Channel::new(self.socket)?.after_null_request();
        drop(self.seat);
        let Ok(permit) = self.shared.admit(peer, "capacity") else {
            // Others were faster. The protocol has no better word for it here.
            let answer = Activation {
                answer: Some(ActivationAnswer::BadParameter),
                ..*request
            };
            return channel.send(&answer.encode(self.version));
        };
        let parameters = within_limits(&request.parameters, self.shared.limits().duration);
        let decider = Decider::new(RateTable::new(self.sizes), &parameters);
        let rate = decider.rate();
        let answer = Activation {
            direction: request.direction,
            answer: Some(ActivationAnswer::Accepted),
            parameters,
            rate: match request.direction {
                Direction::Up => rate,
                Direction::Down => SendingRate::default(),
            },
        };
        let answer = answer.encode(self.version);
        channel.send(&answer)?;
        let shared = &self.shared;
        let exchange = Exchange {
            channel,
            version: self.version,
            parameters,
            decider,
            ends_after: Some(Duration::from_secs(parameters.duration_s.into()) + STOP_AFTER),
            stop: &|| shared.stopping().then(|| "the server stops".to_owned()),
            answer,
            on_sub_interval: &mut |_| {},
        };
        let outcome = match request.direction {
            Direction::Up => exchange.take_load(),
            Direction::Down => exchange.send_load(rate),
        };
        let context = Context {
            peer,
            direction: request.direction,
            version: self.version,
            sizes: self.sizes,
            parameters,
            server: true,
        };
        permit.finish(&measurement(&outcome, &context));
        Ok(())
    }
}

/// What a client asks for, each number that cannot be replaced by its default, as the reference does.
fn within_limits(asked: &TestParameters, longest: Duration) -> TestParameters {
    let usual = Thresholds::default();
    let longest_s = u16::try_from(longest.as_secs().max(1)).unwrap_or(u16::MAX);
    let (low_ms, upper_ms) = match (asked.low_ms, asked.upper_ms) {
        (low, upper) if (1..=upper).contains(&low) && upper <= 10_000 => (low, upper),
        _ => (usual.low_ms, usual.upper_ms),
    };
    let duration_s = match asked.duration_s {
        seconds @ 1..=3600 => seconds,
        _ => 10,
    };
    let duration_s = duration_s.min(longest_s);
    let sub_interval_ms = match asked.sub_interval_ms {
        ms @ 100..=10_000 if u32::from(ms) <= u32::from(duration_s) * 1000 => ms,
        _ => 1000,
    };
    let last_row = 1152;
    TestParameters {
        low_ms,
        upper_ms,
        feedback_ms: match asked.feedback_ms {
            ms @ 5..=250 => ms,
            _ => 50,
        },
        duration_s,
        // Neither marks nor congestion marks are offered.
        dscp_ecn: 0,
        ecn_threshold: 0,
        start: match asked.start {
            StartRow::At(row) | StartRow::Fixed(row) if row > last_row => StartRow::Lowest,
            start => start,
        },
        high_speed_delta: match asked.high_speed_delta {
            0 => usual.high_speed_delta,
            rows => rows,
        },
        slow_threshold: match asked.slow_threshold {
            0 => usual.slow,
            count => count,
        },
        algorithm: asked.algorithm.min(1),
        sub_interval_ms,
        suppressed: 0,
        ..*asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{ServeConfig, Server};

    fn server(tests: usize) -> Server {
        crate::serve::start(ServeConfig::on_loopback_for(tests)).unwrap()
    }

    fn client(server: &Server) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.address("capacity").unwrap()).unwrap();
        socket
    }

    /// The answer to a set-up request.
    fn set_up(client: &UdpSocket, ident: u16) -> Setup {
        let request = Setup {
            version: Version::NEWEST.number(),
            connection: 0,
            connections: 1,
            ident,
            answer: None,
            port: 0,
            sizes: Sizes::default(),
            authentication: 0,
        };
        client.send(&request.encode()).unwrap();
        let mut buffer = [0; LONGEST_MESSAGE];
        let length = client.recv(&mut buffer).unwrap();
        Setup::decode(&buffer[..length]).unwrap()
    }

    #[test]
    fn set_ups_keep_nobody_from_testing() {
        let server = server(1);
        let client = client(&server);
        for ident in 1..=3 {
            let answer = set_up(&client, ident);
            assert_eq!(answer.answer, Some(SetupAnswer::Accepted));
        }
        let peer = client.local_addr().unwrap();
        assert!(server.shared.admit(peer, "tcp").is_ok());
    }

    #[test]
    fn a_set_up_that_comes_again_is_the_same_test() {
        let server = server(1);
        let client = client(&server);
        let port = set_up(&client, 1).port;
        assert_eq!(set_up(&client, 1).port, port);
        assert_ne!(set_up(&client, 2).port, port);
    }

    #[test]
    fn set_ups_too_many_are_refused() {
        let server = server(1);
        let client = client(&server);
        let refused = (1..).find(|ident| {
            let answer = set_up(&client, *ident).answer;
            answer == Some(SetupAnswer::CapacityExceeded)
        });
        assert!(refused.is_some_and(|ident| usize::from(ident) > MOST_PENDING));
    }
}
