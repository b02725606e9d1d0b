//! iperf3's far end, for many clients at once: the cookie tells whose connection is whose.

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

/// Serves on `port` of `bind`.
///
/// # Errors
/// It cannot be bound.
pub(crate) fn bind(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<BoundService> {
    let listener = listen(bind, port, &shared)?;
    let address = listener.local_addr()?;
    let dispatcher = Arc::new(Dispatcher::new(shared, address, bind)?);
    Ok(BoundService::new("iperf3", address, move || {
        let greetings = Arc::clone(&dispatcher).answer_greetings();
        if let Err(error) = &greetings {
            let text = format!("the far end cannot serve UDP of iperf3: {error}");
            dispatcher.shared.note(&text);
        }
        let clients = serve(&listener, &dispatcher);
        for thread in clients.into_iter().chain(greetings) {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }))
}

/// Takes clients until the far end stops; gives those that have yet to tell their clients and to log.
fn serve(listener: &TcpListener, dispatcher: &Arc<Dispatcher>) -> Vec<JoinHandle<()>> {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    // The order of accepting is that of the client's streams, by which both ends number them.
    let mut order = 0;
    let take_next = |stream, _, place| {
        order += 1;
        clients.retain(|client| !client.is_finished());
        clients.extend(take(dispatcher, stream, order, place));
    };
    let refuse = |stream, refusal| {
        if let Ok(mut control) = dispatcher.control(stream) {
            session::refuse(&mut control, refusal);
        }
    };
    accept_all(listener, ("iperf3", &dispatcher.shared), take_next, refuse);
    dispatcher.ending.store(true, Ordering::Relaxed);
    clients
}

/// Serves a connection on a thread of its own, which ends soon after the far end stops; without a thread to be had it is closed.
fn take(
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

    /// Soon given up, but not before a client that does what is right could be heard.
    fn impatient() -> ServiceLimits {
        ServiceLimits {
            idle: Duration::from_secs(2),
            ..ServiceLimits::default()
        }
    }

    fn short(way: TestDirection) -> Iperf3Test {
        Iperf3Test {
            way,
            until: Until::Bytes(100_000),
            ..Iperf3Test::new(Transport::Tcp)
        }
    }

    /// Whether a well-behaved client is still served.
    fn serves(address: SocketAddr) -> Option<String> {
        let server = client::Iperf3Server::at(address);
        let measured = measure(&server, &short(TestDirection::Both), &Session::default());
        measured.measurement.failure
    }

    /// A client that sends its cookie.
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

    /// What the server answers to these parameters, after its first state.
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
    fn parameters_that_cannot_be_read_are_refused_and_others_are_served_on() {
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
        assert_eq!(serves(address), None);
    }

    #[test]
    fn a_client_that_vanishes_at_any_state_harms_no_other() {
        let (_server, address) = server(impatient());
        let params = Params {
            plan: short(TestDirection::Down),
            udp_counters_64bit: false,
        };
        let params = params.to_json().to_string();
        let mut held = Vec::new();
        // A cookie cut short.
        let mut cut = TcpStream::connect(address).unwrap();
        cut.write_all(b"abc").unwrap();
        held.push(cut);
        // Nothing after the cookie.
        held.push(client(address));
        // No stream.
        let mut streamless = client(address);
        let _: [u8; 1] = read(&mut streamless);
        send_text(&mut streamless, params.as_bytes());
        held.push(streamless);
        assert_eq!(serves(address), None);
        for mut client in held {
            // Each is told, or closed, within the time that silence may take.
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
        }
        assert_eq!(serves(address), None);
    }

    #[test]
    fn a_client_that_stops_in_the_test_is_given_up_and_told() {
        let (_server, address) = server(impatient());
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
        assert_eq!(serves(address), None);
    }

    #[test]
    fn a_busy_server_says_so_in_iperf3_s_words() {
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
        let cause = serves(address).unwrap();
        assert!(cause.contains("busy"), "{cause}");
    }

    #[test]
    fn limits_are_kept_and_said() {
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
    fn a_congestion_control_that_the_host_has_but_does_not_allow_is_refused_as_that() {
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
            let said = ErrorCode::parse(code.try_into().unwrap()).to_string();
            assert!(said.contains(words), "{said}");
        }
        let refusals = server.counts()().refusals;
        assert_eq!(refusals[&("iperf3", RefusalCause::Congestion)], 2);
    }

    #[test]
    fn a_client_that_names_no_time_may_take_the_time_that_is_allowed() {
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
    fn who_is_not_allowed_is_told_before_a_word_of_its() {
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
    fn ten_clients_at_once_are_all_served() {
        let (_server, address) = server(ServiceLimits::default());
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..10).map(|_| scope.spawn(|| serves(address))).collect();
            for client in clients {
                assert_eq!(client.join().unwrap(), None);
            }
        });
    }
}
