//! The UDP Speed Test Protocol's server (RFC 9946): a control port, and a port and a thread for each test.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::shared::Permit;
use super::{Service, Shared};
use crate::endpoint::{self, Local};
use crate::instrument::Direction;
use crate::instrument::capacity::wire::{
    Activation, ActivationAnswer, LONGEST_MESSAGE, SendingRate, Setup, SetupAnswer, Sizes,
    StartRow, TestParameters, Version, null_request,
};
use crate::instrument::capacity::{
    Channel, Context, Decider, Exchange, RateTable, SILENCE, STOP_AFTER, Thresholds, measurement,
};
use crate::instrument::stop::STOP_INTERVAL;

/// Connections of one client (the reference's limit).
const MOST_CONNECTIONS: u8 = 24;

/// Serves on `port` of `bind`.
///
/// # Errors
/// It cannot be bound.
pub(super) fn start(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<Service> {
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
    let mut tests: Vec<JoinHandle<()>> = Vec::new();
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
        tests.retain(|test| !test.is_finished());
        let answer = match Pending::admit(&request, peer, bind, shared) {
            Ok(pending) => {
                let answer = Setup {
                    answer: Some(SetupAnswer::Accepted),
                    port: pending.port,
                    ..request
                };
                let spawned = thread::Builder::new()
                    .name("capacity test".to_owned())
                    .spawn(move || pending.run());
                tests.extend(spawned.ok());
                answer
            }
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
        let _ = test.join();
    }
}

/// A test that was set up and waits for its activation.
struct Pending {
    socket: UdpSocket,
    port: u16,
    peer: SocketAddr,
    version: Version,
    sizes: Sizes,
    permit: Permit,
    shared: Arc<Shared>,
}

impl Pending {
    fn admit(
        request: &Setup,
        peer: SocketAddr,
        bind: Option<&Local>,
        shared: &Arc<Shared>,
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
        let permit = shared
            .admit(peer, "capacity")
            .map_err(|_| SetupAnswer::CapacityExceeded)?;
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
            permit,
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
        let parameters = within_limits(&request.parameters, self.shared.limits().duration);
        let channel = Channel::new(self.socket)?;
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
        self.permit.finish(&measurement(&outcome, &context));
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
