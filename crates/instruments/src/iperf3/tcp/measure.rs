//! `measure tcp`: a test of TCP with any iperf3 server.

use std::net::TcpStream;

use crate::error::{Context, Result};
use socket2::SockRef;

use super::super::client::{self, Iperf3Server, StreamSetup};
use super::super::json;
use super::super::messages::Params;
use super::super::plan::{Iperf3Test, StreamSpec};
use super::report::measurement;
use super::{DataConnection, TcpStreams, block, set_options};
use crate::instrument::MeasureOutput;
use crate::{Session, endpoint};

/// Measures `plan` against `server` from the calling thread's network namespace.
pub(crate) fn measure(
    server: &Iperf3Server,
    plan: &Iperf3Test,
    session: &Session,
) -> MeasureOutput {
    let plan = Iperf3Test {
        length: Some(block(plan)),
        ..plan.clone()
    };
    let params = Params {
        plan,
        udp_counters_64bit: false,
    };
    let mut connections = Vec::new();
    let tested = client::run(server, &params, session, |opening| {
        let sockets = connect_all(opening)?;
        connections = sockets.iter().filter_map(DataConnection::of).collect();
        Ok(TcpStreams::new(&opening.params.plan, sockets))
    });
    let plan = &params.plan;
    let ends: Vec<_> = connections.iter().map(DataConnection::ends).collect();
    let mut start = json::start(plan, server.address, tested.cookie, &ends);
    let measured = |streams| measurement(plan, streams, &tested.sides, true);
    let mut measurement = tested.streams.as_ref().map(measured).unwrap_or_default();
    if let (Some(_), Some(first)) = (&tested.streams, connections.first()) {
        let [send, receive] = first.buffers;
        start["tcp_mss_default"] = first.mss.into();
        start["sndbuf_actual"] = send.into();
        start["rcvbuf_actual"] = receive.into();
        let buffers = format!(
            "{send} bytes to send, {receive} to receive, at the start (SO_SNDBUF, SO_RCVBUF)"
        );
        measurement = measurement
            .with_fact("mss", format!("{} bytes (TCP_MAXSEG)", first.mss))
            .with_fact("socket buffers", buffers);
    }
    measurement.failure = tested.failure.or(measurement.failure);
    let measurement = plan
        .with_requested_rate(measurement)
        .with_fact("server", server.address);
    let json = session.details.then(|| json::of(&measurement, &start));
    MeasureOutput {
        measurement,
        iperf3: json,
    }
}

/// Connects the streams one after another, because the server numbers them in that order.
fn connect_all(opening: &StreamSetup<'_>) -> Result<Vec<(StreamSpec, TcpStream)>> {
    let connect = |spec: &StreamSpec| -> Result<(StreamSpec, TcpStream)> {
        let server = opening.server;
        let socket = endpoint::tcp(server.address, server.local.as_ref())?;
        let peer = server.address.ip();
        set_options(&opening.params.plan, &SockRef::from(&socket), peer, true)?;
        let stream =
            endpoint::connect(socket, server.address, server.connect_timeout, opening.stop)?;
        let cookie = opening.cookie.as_bytes();
        std::io::Write::write_all(&mut &stream, cookie).context("a stream broke at its start")?;
        Ok((*spec, stream))
    };
    opening.streams.iter().map(connect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::control::MESSAGE_TIMEOUT;
    use crate::iperf3::messages::{Results, StreamResults};
    use crate::iperf3::plan::{TestDirection, Transport, Until};
    use crate::iperf3::wire::{COOKIE_LENGTH, ControlState};
    use crate::serve::{self, ServeConfig};
    use record::{Direction, Metric, Statistic};
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, SocketAddr, TcpListener};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    fn plan() -> Iperf3Test {
        Iperf3Test {
            until: Until::For(Duration::from_millis(50)),
            ..Iperf3Test::new(Transport::Tcp)
        }
    }

    fn detailed() -> Session {
        Session {
            details: true,
            ..Session::default()
        }
    }

    /// Returns the failure of a test against a server that follows the protocol for `steps` steps, then sends `last`
    /// and waits silently until the client leaves.
    fn failing(steps: usize, last: &[u8]) -> String {
        failing_within(MESSAGE_TIMEOUT, steps, last)
    }

    /// Does the same as [`failing`], with a time-out for each message.
    fn failing_within(message_timeout: Duration, steps: usize, last: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let last = last.to_vec();
        let server = thread::spawn(move || follow(&listener, steps, &last));
        let client = Iperf3Server {
            message_timeout,
            ..Iperf3Server::at(address)
        };
        let measured = measure(&client, &plan(), &Session::default());
        server.join().unwrap();
        measured.measurement.failure.unwrap()
    }

    /// Sends the states of a test of one stream, and reads the data before each.
    fn follow(listener: &TcpListener, steps: usize, last: &[u8]) {
        let (mut control, _) = listener.accept().unwrap();
        let mut data = None;
        let mut cookie = [0; COOKIE_LENGTH];
        control.read_exact(&mut cookie).unwrap();
        for step in 0..steps {
            match step {
                0 => control
                    .write_all(&[ControlState::ParamExchange.byte()])
                    .unwrap(),
                1 => {
                    read_text(&mut control);
                    control
                        .write_all(&[ControlState::CreateStreams.byte()])
                        .unwrap();
                }
                2 => {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.read_exact(&mut cookie).unwrap();
                    data = Some(stream);
                    control
                        .write_all(&[ControlState::TestStart.byte()])
                        .unwrap();
                }
                3 => {
                    control
                        .write_all(&[ControlState::TestRunning.byte()])
                        .unwrap();
                    let mut stream = data.as_ref().unwrap().try_clone().unwrap();
                    thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
                }
                4 => {
                    let mut end = [0];
                    control.read_exact(&mut end).unwrap();
                    assert_eq!(end[0], ControlState::TestEnd.byte());
                    control
                        .write_all(&[ControlState::ExchangeResults.byte()])
                        .unwrap();
                }
                _ => read_text(&mut control),
            }
        }
        control.write_all(last).unwrap();
        let _ = std::io::copy(&mut control, &mut std::io::sink());
        if let Some(stream) = data {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn read_text(control: &mut TcpStream) {
        let mut length = [0; 4];
        control.read_exact(&mut length).unwrap();
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        control.read_exact(&mut text).unwrap();
    }

    fn text(json: &str) -> Vec<u8> {
        let length = u32::try_from(json.len()).unwrap();
        [&length.to_be_bytes()[..], json.as_bytes()].concat()
    }

    #[test]
    fn a_silent_server_is_given_up_at_every_state() {
        // The time-outs elapse in parallel. Each is long enough for everything that does arrive.
        thread::scope(|scope| {
            for (steps, awaited) in [
                (0, "PARAM_EXCHANGE (9)"),
                (1, "CREATE_STREAMS (10)"),
                (2, "TEST_START (1)"),
                (3, "TEST_RUNNING (2)"),
                (5, "the server's results"),
            ] {
                scope.spawn(move || {
                    let cause = failing_within(Duration::from_secs(2), steps, &[]);
                    assert!(cause.contains(awaited), "{steps}: {cause}");
                    assert!(cause.contains("did not arrive within"), "{cause}");
                });
            }
        });
    }

    #[test]
    fn errors_of_a_server_are_explained() {
        assert!(failing(0, &[0xff]).contains("busy with another test"));
        let error = [0xfe, 0, 0, 0, 134, 0, 0, 0, 2];
        assert!(failing(2, &error).contains("does not have this congestion control"));
        assert!(failing(4, &[11]).contains("the server was stopped"));
        // The error's number never arrives.
        let cause = failing_within(Duration::from_secs(2), 3, &[0xfe]);
        assert!(cause.contains("SERVER_ERROR (-2)"), "{cause}");
    }

    #[test]
    fn a_server_of_another_protocol_is_recognised() {
        let cause = failing(0, b"SSH-2.0-OpenSSH_9.2\r\n");
        assert!(
            cause.contains("0x53 instead of PARAM_EXCHANGE (9)"),
            "{cause}"
        );
        let cause = failing(1, &[ControlState::TestRunning.byte()]);
        assert!(
            cause.contains("it sent TEST_RUNNING (2) instead of CREATE_STREAMS (10)"),
            "{cause}"
        );
        let cause = failing(4, &[ControlState::DisplayResults.byte()]);
        assert!(
            cause.contains("DISPLAY_RESULTS (14) instead of the end of the test"),
            "{cause}"
        );
    }

    #[test]
    fn unreadable_results_are_refused_by_name() {
        let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
        let deep = String::from_utf8(deep).unwrap();
        let strange = Results {
            streams: vec![StreamResults {
                id: 7,
                ..StreamResults::default()
            }],
            ..Results::default()
        };
        for (last, cause) in [
            (vec![0xff, 0xff, 0xff, 0xff], "4294967295 bytes: 1 to"),
            (vec![0, 0, 0, 0], "of 0 bytes"),
            (text("{"), "not JSON"),
            (text(&deep), "not JSON"),
            (text("[]"), "not a JSON object"),
            (
                text(r#"{"cpu_util_total":"x"}"#),
                "cpu_util_total must be a number",
            ),
            (
                text(&strange.to_json().to_string()),
                "a stream 7 that does not exist",
            ),
        ] {
            let failure = failing(6, &last);
            assert!(failure.contains(cause), "{failure}");
        }
    }

    #[test]
    fn results_that_contradict_the_sent_bytes_are_a_failure() {
        let results = Results {
            streams: vec![StreamResults {
                id: 1,
                bytes: 1 << 60,
                ..StreamResults::default()
            }],
            ..Results::default()
        };
        let mut last = text(&results.to_json().to_string());
        last.push(ControlState::DisplayResults.byte());
        let failure = failing(6, &last);
        assert!(failure.contains("the ends disagree"), "{failure}");
    }

    #[test]
    fn a_refused_port_is_one_clear_error() {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let measured = measure(&Iperf3Server::at(address), &plan(), &detailed());
        let failure = measured.measurement.failure.unwrap();
        assert!(failure.contains("refuses the connection"), "{failure}");
    }

    #[test]
    fn the_start_of_the_streams_is_reported_once_if_they_run() {
        let reported = |address: SocketAddr| {
            let (sender, started) = mpsc::channel();
            let server = Iperf3Server {
                started: Some(sender),
                ..Iperf3Server::at(address)
            };
            let failure = measure(&server, &plan(), &Session::default())
                .measurement
                .failure;
            drop(server);
            (failure.is_some(), started.iter().count())
        };
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        assert_eq!(reported(server.address("iperf3").unwrap()), (false, 1));
        // This port was free a moment ago.
        let unused = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = unused.local_addr().unwrap();
        drop(unused);
        assert_eq!(reported(address), (true, 0));
    }

    #[test]
    fn a_receiver_that_copies_gets_the_same_bytes_at_either_end() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let address = server.address("iperf3").unwrap();
        for way in [TestDirection::Up, TestDirection::Down] {
            let plan = Iperf3Test {
                direction: way,
                rx_copy: true,
                until: Until::Bytes(3_000_001),
                ..plan()
            };
            let measurement =
                measure(&Iperf3Server::at(address), &plan, &Session::default()).measurement;
            assert_eq!(measurement.failure, None, "{way:?}");
            let mut figures = measurement.figures.iter();
            let received = figures.find(|figure| figure.metric == Metric::ReceivedBytes);
            assert_eq!(received.unwrap().value, 3_000_001.0, "{way:?}");
            let receiving = &measurement.facts["receiving"];
            assert!(receiving.contains("copied"), "{receiving}");
        }
    }

    #[test]
    fn a_test_of_bytes_carries_exactly_that_number_in_each_direction() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let address = server.address("iperf3").unwrap();
        for (way, directions) in [
            (TestDirection::Up, &[Direction::Up][..]),
            (TestDirection::Down, &[Direction::Down]),
            (TestDirection::Both, &[Direction::Up, Direction::Down]),
        ] {
            let plan = Iperf3Test {
                direction: way,
                parallel: 2,
                until: Until::Bytes(3_000_001),
                ..plan()
            };
            let measured = measure(&Iperf3Server::at(address), &plan, &Session::default());
            let measurement = measured.measurement;
            assert_eq!(measurement.failure, None, "{way:?}");
            for direction in directions {
                for metric in [Metric::SentBytes, Metric::ReceivedBytes] {
                    let mut figures = measurement.figures.iter();
                    let figure = figures.find(|figure| {
                        (figure.metric, figure.statistic) == (metric, Statistic::Total)
                            && (figure.direction, figure.stream) == (Some(*direction), None)
                    });
                    assert_eq!(figure.unwrap().value, 3_000_001.0, "{way:?} {metric:?}");
                }
            }
        }
    }
}
