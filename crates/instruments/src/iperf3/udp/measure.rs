//! `measure udp`: a test of UDP with any iperf3 server.

use crate::error::Result;
use std::net::UdpSocket;

use super::streams::UdpStreams;
use super::{report, wire};
use crate::instrument::MeasureOutput;
use crate::iperf3::client::{self, Iperf3Server, StreamSetup};
use crate::iperf3::json;
use crate::iperf3::messages::Params;
use crate::iperf3::plan::Iperf3Test;
use crate::{Session, endpoint};

/// Measures `plan` against `server` from the calling thread's network namespace.
pub(crate) fn measure(
    server: &Iperf3Server,
    plan: &Iperf3Test,
    session: &Session,
) -> MeasureOutput {
    let params = Params {
        plan: plan.clone(),
        udp_counters_64bit: true,
    };
    let mut connected = Vec::new();
    let tested = client::run(server, &params, session, |opening| {
        let sockets = open(opening)?;
        let ends = opening
            .streams
            .iter()
            .zip(&sockets)
            .filter_map(|(spec, socket)| {
                Some((
                    spec.id,
                    [socket.local_addr().ok()?, socket.peer_addr().ok()?],
                ))
            });
        connected = ends.collect();
        UdpStreams::new(opening.params, &opening.streams, sockets, true)
    });
    let length = tested.streams.as_ref().map(UdpStreams::length);
    let plan = Iperf3Test {
        length: length.map_or(plan.length, |length| u32::try_from(length).ok()),
        ..plan.clone()
    };
    let measured = |streams| report::measurement(streams, &tested.sides);
    let mut measurement = tested.streams.as_ref().map(measured).unwrap_or_default();
    measurement.failure = tested.failure.or(measurement.failure);
    let measurement = plan
        .with_requested_rate(measurement)
        .with_fact("server", server.address);
    let json = session.details.then(|| {
        let start = json::start(&plan, server.address, tested.cookie, &connected);
        json::of(&measurement, &start)
    });
    MeasureOutput {
        measurement,
        iperf3: json,
    }
}

/// Greets the server from one socket after another, because the server numbers the streams in that order.
fn open(opening: &StreamSetup<'_>) -> Result<Vec<UdpSocket>> {
    let server = opening.server;
    let mut sockets = Vec::new();
    for _ in &opening.streams {
        let socket = endpoint::udp(server.address, server.local.as_ref())?;
        wire::greet(&socket, opening.round_trip, opening.stop)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::control::{ControlChannel, ControlResult};
    use crate::iperf3::plan::{TestDirection, Transport, Until};
    use crate::iperf3::udp::wire::{DatagramHeader, NumberWidth};
    use crate::iperf3::wire::ControlState;
    use crate::serve::{self, ServeConfig};
    use model::Nanos;
    use netio::stop::Stop;
    use record::{Measurement, Metric, Statistic};
    use std::net::{SocketAddr, TcpListener};
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    fn plan(way: TestDirection) -> Iperf3Test {
        Iperf3Test {
            direction: way,
            parallel: 2,
            until: Until::Bytes(100_000),
            bitrate: None,
            length: Some(1000),
            ..Iperf3Test::new(Transport::Udp)
        }
    }

    fn against(address: SocketAddr, plan: &Iperf3Test) -> Measurement {
        let server = Iperf3Server {
            message_timeout: Duration::from_millis(500),
            silence: Duration::from_millis(500),
            ..Iperf3Server::at(address)
        };
        measure(&server, plan, &Session::default()).measurement
    }

    /// Starts a server that follows the protocol up to the running test, and then calls `end`. It has one UDP stream of
    /// the client.
    fn misbehaving_server(
        end: impl FnOnce(&mut ControlChannel, &UdpSocket) + Send + 'static,
    ) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let datagrams = UdpSocket::bind(address).unwrap();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut control = ControlChannel::new(stream, Stop::default()).unwrap();
            control.read_cookie().unwrap();
            control.send_state(ControlState::ParamExchange).unwrap();
            read_json(&mut control, 10_000).unwrap();
            control.send_state(ControlState::CreateStreams).unwrap();
            let mut greeting = [0; 16];
            let (length, client) = datagrams.recv_from(&mut greeting).unwrap();
            let answer = wire::answer_to(&greeting[..length]).unwrap();
            datagrams.connect(client).unwrap();
            datagrams.send(&answer).unwrap();
            control.send_state(ControlState::TestStart).unwrap();
            control.send_state(ControlState::TestRunning).unwrap();
            end(&mut control, &datagrams);
        });
        (address, server)
    }

    /// Returns the measurement and the failure of a test of one stream against that server.
    fn failure(
        way: TestDirection,
        end: impl FnOnce(&mut ControlChannel, &UdpSocket) + Send + 'static,
    ) -> (Measurement, String) {
        let (address, server) = misbehaving_server(end);
        let plan = Iperf3Test {
            parallel: 1,
            until: Until::For(Duration::from_millis(300)),
            bitrate: Some(1_000_000),
            ..plan(way)
        };
        let measurement = against(address, &plan);
        server.join().unwrap();
        let cause = measurement.failure.clone().unwrap_or_default();
        (measurement, cause)
    }

    fn read_json(control: &mut ControlChannel, longest: usize) -> ControlResult<()> {
        let deadline = control.deadline();
        control.read_json(deadline, longest, "a message", |_| Ok(()))
    }

    fn end_with(control: &mut ControlChannel, results: &str) {
        let deadline = control.deadline();
        control.expect(ControlState::TestEnd, deadline).unwrap();
        control.send_state(ControlState::ExchangeResults).unwrap();
        read_json(control, 100_000).unwrap();
        let results = serde_json::from_str(results).unwrap();
        control.send_json(&results, "results").unwrap();
        control.send_state(ControlState::DisplayResults).unwrap();
    }

    const RESULTS: &str = r#"{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,
        "sender_has_retransmits":-1,"streams":[{"id":1,"bytes":1000,"retransmits":-1,
        "jitter":0,"errors":0,"packets":1,"start_time":0,"end_time":0.3}]}"#;

    #[test]
    fn both_ends_count_every_datagram_in_every_direction() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let address = server.address("iperf3").unwrap();
        for way in [TestDirection::Up, TestDirection::Down, TestDirection::Both] {
            let plan = Iperf3Test {
                bitrate: Some(50_000_000),
                ..plan(way)
            };
            let measurement = against(address, &plan);
            assert_eq!(measurement.failure, None);
            let of = |metric| {
                let figures = measurement.figures.iter();
                let whole = figures.filter(|f| f.metric == metric && f.stream.is_none());
                whole
                    .filter(|f| f.statistic == Statistic::Total)
                    .map(|f| f.value)
                    .collect::<Vec<f64>>()
            };
            assert_eq!(of(Metric::SentPackets), of(Metric::ReceivedPackets));
            assert_eq!(of(Metric::SentBytes), of(Metric::ReceivedBytes));
            assert!(of(Metric::LostPackets).iter().all(|lost| *lost == 0.0));
            assert!(of(Metric::ReceivedBytes).iter().all(|got| *got >= 1e5));
        }
    }

    #[test]
    fn a_server_says_what_arrived_in_each_interval_if_it_is_asked() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let address = server.address("iperf3").unwrap();
        let samples = |arrivals| {
            let plan = Iperf3Test {
                until: Until::For(Duration::from_secs(1)),
                interval: Duration::from_millis(20),
                arrivals,
                bitrate: Some(4_000_000),
                ..plan(TestDirection::Up)
            };
            let measurement = against(address, &plan);
            assert_eq!(measurement.failure, None);
            let mut figures = measurement.figures.iter();
            let is_total = |figure: &&record::Figure| {
                (figure.metric, figure.statistic, figure.stream)
                    == (Metric::ReceivedBytes, Statistic::Total, None)
            };
            let total = figures.find(is_total).unwrap().value;
            let samples = measurement.samples.iter();
            let arrived = samples.filter(|sample| sample.metric == Metric::ReceivedBytes);
            let arrived: Vec<f64> = arrived.map(|sample| sample.value).collect();
            (arrived, total)
        };
        let (arrived, total) = samples(true);
        let sum = arrived.iter().sum::<f64>();
        assert!(sum > 0.0 && sum <= total, "{sum} of {total}: {arrived:?}");
        assert!(samples(false).0.is_empty());
    }

    #[test]
    fn a_server_that_closes_during_the_test_is_named() {
        let (_, cause) = failure(TestDirection::Up, |_, _| ());
        assert!(cause.contains("closed"), "{cause}");
    }

    #[test]
    fn a_server_that_does_not_send_is_given_up() {
        let (address, server) = misbehaving_server(|control, _| {
            let deadline = control.deadline();
            let _ = control.read_state(deadline, "the end");
        });
        let long = Iperf3Test {
            parallel: 1,
            until: Until::For(Duration::from_secs(3600)),
            ..plan(TestDirection::Down)
        };
        let cause = against(address, &long).failure.unwrap();
        server.join().unwrap();
        assert!(cause.contains("no stream transferred data"), "{cause}");
    }

    #[test]
    fn absurd_numbers_from_a_server_are_garbage_and_no_loss() {
        let (measurement, cause) = failure(TestDirection::Down, |control, datagrams| {
            let send = |number| {
                let mut datagram = [0; 1000];
                let sent = Nanos(0);
                NumberWidth::Bits64.write(DatagramHeader { sent, number }, &mut datagram);
                datagrams.send(&datagram).unwrap();
            };
            [1, u64::MAX, 1 << 40, 0].into_iter().for_each(send);
            datagrams.send(b"short").unwrap();
            end_with(control, RESULTS);
        });
        assert_eq!(cause, "");
        let total = |metric| {
            measurement
                .figures
                .iter()
                .find(|f| f.metric == metric)
                .map(|f| f.value)
        };
        assert_eq!(total(Metric::ReceivedPackets), Some(1.0));
        assert_eq!(total(Metric::LostPackets), Some(0.0));
        assert_eq!(total(Metric::GarbagePackets), Some(4.0));
    }

    #[test]
    fn contradictory_results_are_a_failure() {
        let absurd = RESULTS.replace("\"errors\":0", "\"errors\":123456789");
        let (_, cause) = failure(TestDirection::Up, move |control, _| {
            end_with(control, &absurd)
        });
        assert!(cause.contains("the ends disagree"), "{cause}");
    }
}
