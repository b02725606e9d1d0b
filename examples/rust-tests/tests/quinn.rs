//! QUIC of quinn-proto behind the wire. quinn-proto does no I/O and takes the time as an argument, as the wire does.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farwire_model::{Nanos, Side};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig,
};
use rust_tests::Wire;

const SIZE: usize = 300_000;

/// An endpoint with its connections.
struct End {
    side: Side,
    endpoint: Endpoint,
    connections: HashMap<ConnectionHandle, Connection>,
}

/// The time at the start of the test. quinn-proto wants an instant of the system's clock, from which the test counts.
struct Clock(Instant);

impl Clock {
    fn at(&self, now: Nanos) -> Instant {
        self.0 + Duration::from_nanos(now.0)
    }

    fn nanos(&self, at: Instant) -> Nanos {
        Nanos(
            u64::try_from(at.saturating_duration_since(self.0).as_nanos()).expect("five centuries"),
        )
    }
}

fn address(side: Side) -> SocketAddr {
    let host = if side == Side::A {
        "192.0.2.1"
    } else {
        "192.0.2.2"
    };
    SocketAddr::new(host.parse().expect("an address"), 4_433)
}

impl End {
    /// Handles the packets and timers that are due, sends what results, and returns when the next timer is due.
    fn drive(&mut self, clock: &Clock, now: Nanos, wire: &mut Wire) -> Option<Nanos> {
        let (at, peer) = (clock.at(now), address(self.side.other()));
        let mut answer = Vec::new();
        while let Some(bytes) = wire.receive(now, self.side) {
            answer.clear();
            match self
                .endpoint
                .handle(at, peer, None, None, bytes.as_slice().into(), &mut answer)
            {
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let (handle, connection) = self
                        .endpoint
                        .accept(incoming, at, &mut answer, None)
                        .expect("a connection");
                    self.connections.insert(handle, connection);
                }
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    if let Some(connection) = self.connections.get_mut(&handle) {
                        connection.handle_event(event);
                    }
                }
                Some(DatagramEvent::Response(transmit)) => {
                    wire.send(now, self.side, answer[..transmit.size].to_vec())
                }
                None => {}
            }
        }
        let mut next = None;
        for (&handle, connection) in &mut self.connections {
            if connection.poll_timeout().is_some_and(|timer| timer <= at) {
                connection.handle_timeout(at);
            }
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(handle, event) {
                    connection.handle_event(event);
                }
            }
            loop {
                answer.clear();
                let Some(transmit) = connection.poll_transmit(at, 1, &mut answer) else {
                    break;
                };
                wire.send(now, self.side, answer[..transmit.size].to_vec());
            }
            next = connection
                .poll_timeout()
                .map(|timer| clock.nanos(timer))
                .into_iter()
                .chain(next)
                .min();
        }
        next
    }
}

/// Returns the configurations of a client and of a server that it trusts.
fn configurations() -> (ClientConfig, ServerConfig) {
    let signed =
        rcgen::generate_simple_self_signed(vec!["far.example".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(signed.signing_key.serialize_der().into());
    let certificate = signed.cert.der().clone();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a configuration");
    let server = ServerConfig::with_single_cert(vec![certificate], key).expect("a configuration");
    (client, server)
}

#[test]
fn quic_delivers_every_byte_in_spite_of_losses() {
    let (client_config, server_config) = configurations();
    let clock = Clock(Instant::now());
    let mut wire = Wire::new(7, "20ms", "2%");
    let end = |side, server| {
        let endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), server, true, None);
        End {
            side,
            endpoint,
            connections: HashMap::new(),
        }
    };
    let mut client = end(Side::A, None);
    let mut server = end(Side::B, Some(Arc::new(server_config)));
    let connected =
        client
            .endpoint
            .connect(clock.0, client_config, address(Side::B), "far.example");
    let (writer, connection) = connected.expect("a connection");
    client.connections.insert(writer, connection);

    let (mut now, mut writing, mut reading) = (Nanos::ZERO, None, None);
    let (mut sent, mut received) = (0, 0);
    while received < SIZE {
        let connection = client.connections.get_mut(&writer).expect("the connection");
        while connection.poll().is_some() {}
        if writing.is_none() && !connection.is_handshaking() {
            writing = connection.streams().open(Dir::Uni);
        }
        if let Some(id) = writing {
            let mut stream = connection.send_stream(id);
            while sent < SIZE {
                let Ok(count) = stream.write(&vec![7; (SIZE - sent).min(4_096)]) else {
                    break;
                };
                sent += count;
            }
        }
        for connection in server.connections.values_mut() {
            while let Some(event) = connection.poll() {
                assert!(!matches!(event, Event::ConnectionLost { .. }), "{event:?}");
            }
            reading = reading.or_else(|| connection.streams().accept(Dir::Uni));
            let Some(id) = reading else { continue };
            let mut incoming = connection.recv_stream(id);
            let Ok(mut chunks) = incoming.read(true) else {
                continue;
            };
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                received += chunk.bytes.len();
            }
            let _more_to_send = chunks.finalize();
        }
        let timers = [&mut client, &mut server].map(|end| end.drive(&clock, now, &mut wire));
        let next = timers.into_iter().chain([wire.next_at()]).flatten().min();
        now = next.expect("something to wait for").max(now);
    }
    assert!(wire.lost(Side::A) > 0, "no packet was lost");
    println!(
        "{SIZE} bytes took {now} through {} losses",
        wire.lost(Side::A)
    );
}
