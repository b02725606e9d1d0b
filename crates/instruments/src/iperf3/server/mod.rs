//! iperf3's far end for many simultaneous clients, whose connections are assigned by their cookies.

mod dispatcher;
mod session;

use crate::error::Result;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use self::dispatcher::Dispatcher;
use crate::endpoint::Local;
use crate::service::{BoundService, ConnectionPermit, Shared, accept_all, listen};

/// The number of ports that are tried where any may be used.
const PORTS_TRIED: usize = 16;

/// Binds the service to `port` of `bind`, or to one that is free for both TCP and UDP if `port` is 0.
///
/// # Errors
/// Returns an error if the port cannot be bound.
pub(crate) fn bind(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<BoundService> {
    // Listeners whose port is not free for UDP are kept, so that the kernel chooses another one.
    let mut kept = Vec::new();
    let (listener, dispatcher) = loop {
        let listener = listen(bind, port, &shared)?;
        match Dispatcher::new(Arc::clone(&shared), listener.local_addr()?, bind) {
            Ok(dispatcher) => break (listener, Arc::new(dispatcher)),
            Err(_) if port == 0 && kept.len() + 1 < PORTS_TRIED => kept.push(listener),
            Err(error) => return Err(error),
        }
    };
    let address = listener.local_addr()?;
    Ok(BoundService::new("iperf3", address, move || {
        let greetings = Arc::clone(&dispatcher).answer_greetings();
        if let Err(error) = &greetings {
            let text = format!("the far end cannot serve UDP of iperf3: {error}");
            dispatcher.shared.note(&text);
        }
        let clients = serve(&listener, &dispatcher);
        for thread in clients.into_iter().chain(greetings) {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }))
}

/// Accepts clients until the far end stops. Returns the threads that still have to tell their clients and to log.
fn serve(listener: &TcpListener, dispatcher: &Arc<Dispatcher>) -> Vec<JoinHandle<()>> {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    // The order of acceptance is the order of the client's streams, by which both ends number them.
    let mut order = 0;
    let serve_next = |stream, _, place| {
        order += 1;
        clients.retain(|client| !client.is_finished());
        clients.extend(serve_connection(dispatcher, stream, order, place));
    };
    let refuse = |stream, refusal| {
        if let Ok(mut control) = dispatcher.control(stream) {
            session::refuse(&mut control, refusal);
        }
    };
    accept_all(listener, ("iperf3", &dispatcher.shared), serve_next, refuse);
    dispatcher.ending.store(true, Ordering::Relaxed);
    clients
}

/// Serves a connection on a thread, which ends soon after the far end stops. If the thread cannot be started, the
/// connection is closed.
fn serve_connection(
    dispatcher: &Arc<Dispatcher>,
    stream: TcpStream,
    order: u64,
    place: ConnectionPermit,
) -> Option<JoinHandle<()>> {
    let dispatcher = Arc::clone(dispatcher);
    let thread = thread::Builder::new().name("iperf3 client".to_owned());
    let serve = move || {
        if let Some((control, cookie, place)) = dispatcher.dispatch(stream, order, place) {
            session::serve(&dispatcher, control, cookie, &place);
        }
    };
    thread.spawn(serve).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use serde_json::json;

    use crate::Session;
    use crate::iperf3::client;
    use crate::iperf3::messages::Params;
    use crate::iperf3::plan::{Iperf3Test, TestDirection, Transport, Until};
    use crate::iperf3::tcp::measure::measure;
    use crate::iperf3::wire::{ControlState, Cookie, ErrorCode};
    use crate::serve::{FarEndServer, RefusalCause, ServeConfig, ServiceLimits};

    fn server(limits: ServiceLimits) -> (FarEndServer, SocketAddr) {
        let config = ServeConfig {
            limits,
            ..ServeConfig::on_loopback()
        };
        let server = crate::serve::start(config).unwrap();
        let address = server.address("iperf3").unwrap();
        (server, address)
    }

    /// Returns limits with a short silence, which still leaves enough time for a correct client.
    fn short_silence() -> ServiceLimits {
        ServiceLimits {
            idle: Duration::from_secs(2),
            ..ServiceLimits::default()
        }
    }

    fn short(way: TestDirection) -> Iperf3Test {
        Iperf3Test {
            direction: way,
            until: Until::Bytes(100_000),
            ..Iperf3Test::new(Transport::Tcp)
        }
    }

    /// Returns `None` if a correct client is still served, otherwise its failure.
    fn failure_of_next_client(address: SocketAddr) -> Option<String> {
        let server = client::Iperf3Server::at(address);
        let measured = measure(&server, &short(TestDirection::Both), &Session::default());
        measured.measurement.failure
    }

    /// Returns a client that has sent its cookie.
    fn client(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(Cookie::random().as_bytes()).unwrap();
        client
    }

    fn read<const N: usize>(client: &mut TcpStream) -> [u8; N] {
        let mut bytes = [0; N];
        client.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn send_text(client: &mut TcpStream, text: &[u8]) {
        let length = u32::try_from(text.len()).unwrap();
        client.write_all(&length.to_be_bytes()).unwrap();
        client.write_all(text).unwrap();
    }

    /// Returns the server's answer to these parameters, after its first state.
    fn answer(address: SocketAddr, params: &[u8]) -> Vec<u8> {
        let mut client = client(address);
        assert_eq!(read(&mut client), [ControlState::ParamExchange.byte()]);
        client.write_all(params).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    }

    fn framed(text: &[u8]) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_be_bytes()[..], text].concat()
    }

    fn error(code: u8) -> Vec<u8> {
        vec![ControlState::ServerError.byte(), 0, 0, 0, code, 0, 0, 0, 0]
    }

    #[test]
    fn invalid_parameters_are_refused_and_other_clients_are_served() {
        let (_server, address) = server(ServiceLimits::default());
        let deep = [vec![b'['; 4000], vec![b']'; 4000]].concat();
        for params in [
            framed(b"{"),
            framed(b"[]"),
            framed(&deep),
            framed(br#"{"tcp":true,"time":"10"}"#),
            framed(br#"{"tcp":true,"parallel":1000}"#),
            vec![0xff, 0xff, 0xff, 0xff],
            vec![0, 0, 0, 0],
        ] {
            assert_eq!(answer(address, &params), error(114));
        }
        assert_eq!(failure_of_next_client(address), None);
    }

    #[test]
    fn a_client_that_vanishes_at_any_state_does_not_affect_others() {
        let (_server, address) = server(short_silence());
        let params = Params {
            plan: short(TestDirection::Down),
            udp_counters_64bit: false,
        };
        let params = params.to_json().to_string();
        let mut held = Vec::new();
        // This client sends an incomplete cookie.
        let mut cut = TcpStream::connect(address).unwrap();
        cut.write_all(b"abc").unwrap();
        held.push(cut);
        // This client sends nothing after the cookie.
        held.push(client(address));
        // This client opens no stream.
        let mut streamless = client(address);
        let _: [u8; 1] = read(&mut streamless);
        send_text(&mut streamless, params.as_bytes());
        held.push(streamless);
        assert_eq!(failure_of_next_client(address), None);
        for mut client in held {
            // Each connection gets an error or is closed within the allowed silence.
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
        }
        assert_eq!(failure_of_next_client(address), None);
    }

    #[test]
    fn a_client_that_falls_silent_in_the_test_is_given_up_and_told() {
        let (_server, address) = server(short_silence());
        let plan = Iperf3Test {
            until: Until::For(Duration::from_secs(100)),
            ..short(TestDirection::Up)
        };
        let params = Params {
            plan,
            udp_counters_64bit: false,
        };
        let cookie = Cookie::random();
        let mut control = TcpStream::connect(address).unwrap();
        control.write_all(cookie.as_bytes()).unwrap();
        let _: [u8; 1] = read(&mut control);
        send_text(&mut control, params.to_json().to_string().as_bytes());
        assert_eq!(read(&mut control), [ControlState::CreateStreams.byte()]);
        let mut data = TcpStream::connect(address).unwrap();
        data.write_all(cookie.as_bytes()).unwrap();
        assert_eq!(read(&mut control), [1, 2]);
        let mut answer = Vec::new();
        control.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, error(144));
        assert_eq!(failure_of_next_client(address), None);
    }

    #[test]
    fn a_busy_server_answers_with_access_denied() {
        let (_server, address) = server(ServiceLimits {
            tests: 1,
            ..ServiceLimits::default()
        });
        let asks = || {
            let mut client = client(address);
            assert_eq!(read(&mut client), [ControlState::ParamExchange.byte()]);
            send_text(&mut client, br#"{"tcp":true,"time":1,"len":1000}"#);
            client
        };
        let mut first = asks();
        assert_eq!(read(&mut first), [ControlState::CreateStreams.byte()]);
        assert_eq!(read(&mut asks()), [ControlState::AccessDenied.byte()]);
        let cause = failure_of_next_client(address).unwrap();
        assert!(cause.contains("busy"), "{cause}");
    }

    #[test]
    fn limits_are_enforced_and_stated() {
        let (_server, address) = server(ServiceLimits {
            duration: Duration::from_secs(5),
            memory: model::Bytes(10 << 20),
            ..ServiceLimits::default()
        });
        let long = json!({"tcp": true, "time": 6, "len": 1000});
        assert_eq!(
            answer(address, &framed(long.to_string().as_bytes())),
            error(37)
        );
        let large =
            json!({"tcp": true, "time": 1, "len": 1000, "parallel": 100, "window": 1 << 20});
        assert_eq!(
            answer(address, &framed(large.to_string().as_bytes())),
            error(8)
        );
    }

    #[test]
    fn a_congestion_control_that_is_not_allowed_has_its_own_error() {
        let bound = crate::serve::bind(ServeConfig::on_loopback()).unwrap();
        bound.shared.fix_choices_to(&["cubic"], &["kept"]);
        let server = bound.start().unwrap();
        let address = server.address("iperf3").unwrap();
        for (name, errno, words) in [
            (
                "kept",
                1,
                "has this congestion control, but does not allow it",
            ),
            ("none", 2, "does not have this congestion control"),
        ] {
            let asked = json!({"tcp": true, "time": 1, "len": 1000, "congestion": name});
            let answer = answer(address, &framed(asked.to_string().as_bytes()));
            let (state, code) = answer.split_first().unwrap();
            assert_eq!(*state, ControlState::ServerError.byte());
            assert_eq!(*code, [0, 0, 0, 134, 0, 0, 0, errno]);
            let message = ErrorCode::parse(code.try_into().unwrap()).to_string();
            assert!(message.contains(words), "{message}");
        }
        let refusals = server.counts()().refusals;
        assert_eq!(refusals[&("iperf3", RefusalCause::Congestion)], 2);
    }

    #[test]
    fn a_client_without_a_duration_may_use_the_allowed_time() {
        let (_server, address) = server(ServiceLimits {
            duration: Duration::from_secs(5),
            ..ServiceLimits::default()
        });
        let mut client = client(address);
        let _: [u8; 1] = read(&mut client);
        send_text(&mut client, br#"{"tcp":true,"time":0,"len":1000}"#);
        assert_eq!(read(&mut client), [ControlState::CreateStreams.byte()]);
    }

    #[test]
    fn a_client_that_is_not_allowed_is_told_before_it_sends() {
        let config = ServeConfig {
            allow: vec!["10.0.0.0/8".parse().unwrap()],
            ..ServeConfig::on_loopback()
        };
        let server = crate::serve::start(config).unwrap();
        let mut client = TcpStream::connect(server.address("iperf3").unwrap()).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, error(142));
    }

    #[test]
    fn a_far_end_that_stops_tells_its_clients() {
        let (server, address) = server(ServiceLimits::default());
        let mut client = client(address);
        let _: [u8; 1] = read(&mut client);
        drop(server);
        assert_eq!(read(&mut client), [ControlState::ServerTerminate.byte()]);
    }

    #[test]
    fn ten_simultaneous_clients_are_all_served() {
        let (_server, address) = server(ServiceLimits::default());
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..10)
                .map(|_| scope.spawn(|| failure_of_next_client(address)))
                .collect();
            for client in clients {
                assert_eq!(client.join().unwrap(), None);
            }
        });
    }
}
