mod misbehaving;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use super::MessageTarget;
use super::args::{ConnectionArgs, Messages};
use super::blast::{self, BlastArgs};
use super::pingpong::{self, PingpongArgs};
use super::sizes::MessageSizes;
use super::transfer::{self, TransferArgs};
use super::wire::{TransferResult, WaitMode};
use crate::Session;
use crate::instrument::CommonArgs;
use crate::serve::{self, FarEndServer, ServeConfig, ServiceLimits};
use model::{Bytes, Nanos};
use netio::stop::Stop;
use record::{Direction, Measurement, Metric, Statistic};

fn server(limits: ServiceLimits) -> (FarEndServer, MessageTarget) {
    let config = ServeConfig {
        limits,
        ..ServeConfig::on_loopback()
    };
    let server = serve::start(config).unwrap();
    let far = far_end(server.address("messages").unwrap());
    (server, far)
}

fn far_end(address: SocketAddr) -> MessageTarget {
    MessageTarget {
        address,
        local: None,
        mss: None,
        silence: Duration::from_secs(10),
    }
}

fn session() -> Session {
    Session::quiet(Stop::default())
}

fn connection() -> ConnectionArgs {
    ConnectionArgs {
        host: String::new(),
        runs: 2,
        nagle: false,
        set_mss: None,
    }
}

fn messages(sizes: &[usize], count: u64) -> Messages {
    Messages {
        size: MessageSizes::of(sizes),
        sweep: None,
        count: Some(count),
    }
}

fn pingpong_of(sizes: &[usize]) -> PingpongArgs {
    PingpongArgs {
        connection: connection(),
        messages: messages(sizes, 3),
        wait: WaitMode::Block,
        udp: false,
        timeout: Some(Nanos::from_secs(5)),
        common: CommonArgs::default(),
    }
}

fn blast_of(size: usize, count: u64) -> BlastArgs {
    BlastArgs {
        connection: connection(),
        messages: messages(&[size], count),
        common: CommonArgs::default(),
    }
}

fn transfer_of(bytes: u64, blocks: &[usize]) -> TransferArgs {
    TransferArgs {
        connection: connection(),
        file: None,
        bytes: Bytes(bytes),
        block: MessageSizes::of(blocks),
        sweep: false,
        latency: Nanos::ZERO,
        common: CommonArgs::default(),
    }
}

fn value(
    measurement: &Measurement,
    metric: Metric,
    statistic: Statistic,
    direction: Option<Direction>,
    size: u64,
) -> f64 {
    let wanted = (metric, statistic, direction, Some(size));
    let found = measurement
        .figures
        .iter()
        .find(|f| (f.metric, f.statistic, f.direction, f.size) == wanted);
    found.unwrap_or_else(|| panic!("no {wanted:?}")).value
}

fn samples(measurement: &Measurement, metric: Metric) -> usize {
    let samples = measurement.samples.iter();
    samples.filter(|sample| sample.metric == metric).count()
}

#[test]
fn messages_of_every_size_return_in_both_wait_modes() {
    let (_server, far) = server(ServiceLimits::default());
    for wait in [WaitMode::Block, WaitMode::Spin] {
        let plan = PingpongArgs {
            wait,
            ..pingpong_of(&[1, 64, 1_000_000])
        };
        let measurement = pingpong::measure(&far, &plan, &session());
        assert_eq!(measurement.failure, None);
        assert_eq!(samples(&measurement, Metric::RttMs), 3 * 2 * 3);
        assert_eq!(samples(&measurement, Metric::ElapsedS), 3 * 2);
        for size in [1, 64, 1_000_000] {
            let of = |statistic| value(&measurement, Metric::RttMs, statistic, None, size);
            assert!(of(Statistic::Min) <= of(Statistic::Mean));
            assert!(of(Statistic::Mean) <= of(Statistic::Max));
            // The kernel decides how many there are.
            let total = |metric| {
                value(
                    &measurement,
                    metric,
                    Statistic::Total,
                    Some(Direction::Up),
                    size,
                )
            };
            let retransmitted = total(Metric::RetransmittedPackets);
            assert!(total(Metric::NeededRetransmittedPackets) <= retransmitted);
        }
        assert!(measurement.facts.contains_key("socket_buffers"));
    }
}

#[test]
fn datagrams_are_counted_at_both_ends() {
    let (_server, far) = server(ServiceLimits::default());
    let plan = PingpongArgs {
        udp: true,
        ..pingpong_of(&[1, 64, 65_507])
    };
    let measurement = pingpong::measure(&far, &plan, &session());
    assert_eq!(measurement.failure, None);
    for size in [1, 64, 65_507] {
        let of = |metric, way| value(&measurement, metric, Statistic::Total, Some(way), size);
        assert_eq!(of(Metric::SentPackets, Direction::Up), 6.0);
        assert_eq!(of(Metric::ReceivedPackets, Direction::Up), 6.0);
        assert_eq!(of(Metric::ReceivedPackets, Direction::Down), 6.0);
    }
}

#[test]
fn a_blast_s_goodput_is_its_bytes_over_its_mean_time() {
    let (_server, far) = server(ServiceLimits::default());
    let measurement = blast::measure(&far, &blast_of(1000, 50), &session());
    assert_eq!(measurement.failure, None);
    let mean_s = value(&measurement, Metric::ElapsedS, Statistic::Mean, None, 1000);
    let way = Some(Direction::Up);
    let goodput = value(
        &measurement,
        Metric::GoodputBitPerS,
        Statistic::Mean,
        way,
        1000,
    );
    assert!((goodput * mean_s - 1000.0 * 50.0 * 8.0).abs() < 1e-3);
}

#[test]
fn a_transfer_arrives_completely_in_reads_of_at_most_one_block() {
    let (_server, far) = server(ServiceLimits::default());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![7; 100_001]).unwrap();
    for file in [None, Some(file.path().to_owned())] {
        let plan = TransferArgs {
            file,
            ..transfer_of(100_001, &[1024, 200_000])
        };
        let measurement = transfer::measure(&far, &plan, &session());
        assert_eq!(measurement.failure, None);
        for block in [1024, 200_000] {
            let way = Some(Direction::Up);
            let of = |metric| value(&measurement, metric, Statistic::Mean, way, block);
            assert_eq!(of(Metric::ReceivedBytes), 100_001.0);
            assert!(of(Metric::ReadSizeBytes) <= block as f64);
            assert!(of(Metric::NetworkElapsedS) <= of(Metric::ElapsedS));
        }
    }
}

#[test]
fn a_transfer_s_figures_are_those_of_the_perl_transfer_test() {
    let result = TransferResult {
        reads: 1751,
        bytes: 7_140_343,
        total: Duration::from_secs_f64(12.083_674),
        network: Duration::from_secs_f64(12.051_402),
    };
    let of = |wanted| {
        let mut values = transfer::values(&result);
        values.find(|(metric, ..)| *metric == wanted).unwrap().2
    };
    assert!((of(Metric::ReadSizeBytes) - 4077.87).abs() < 0.005);
    assert!((of(Metric::ReadTimeMs) - 6.882_582_524).abs() < 1e-6);
    assert!((of(Metric::TimePerMibMs) - 1_769.776_452_413).abs() < 1e-3);
}

#[test]
fn a_refusal_states_the_server_s_limit() {
    let limits = ServiceLimits {
        memory: Bytes(300_000),
        idle: Duration::from_secs(2),
        ..ServiceLimits::default()
    };
    let (_server, far) = server(limits);
    let refused = pingpong::measure(&far, &pingpong_of(&[1_000_000]), &session());
    let cause = refused.failure.unwrap();
    assert!(
        cause.contains("1000000 bytes of memory exceed the 300000"),
        "{cause}"
    );
    let plan = TransferArgs {
        latency: Nanos::from_secs(3),
        ..transfer_of(1, &[1])
    };
    let refused = transfer::measure(&far, &plan, &session());
    let cause = refused.failure.unwrap();
    assert!(cause.contains("a latency of 3 s"), "{cause}");
}

#[test]
fn a_busy_server_says_so() {
    let limits = ServiceLimits {
        tests: 0,
        ..ServiceLimits::default()
    };
    let (_server, far) = server(limits);
    let cause = blast::measure(&far, &blast_of(1, 1), &session())
        .failure
        .unwrap();
    assert!(
        cause.contains("refused: busy: 0 tests are already running"),
        "{cause}"
    );
}

#[test]
fn who_is_not_allowed_is_told_so() {
    let config = ServeConfig {
        allow: vec!["10.0.0.0/8".parse().unwrap()],
        ..ServeConfig::on_loopback()
    };
    let server = serve::start(config).unwrap();
    let far = far_end(server.address("messages").unwrap());
    let cause = blast::measure(&far, &blast_of(1, 1), &session())
        .failure
        .unwrap();
    assert!(
        cause.contains("refused: this address is not allowed to test here"),
        "{cause}"
    );
}

#[test]
fn garbage_is_answered_with_one_line_and_a_close() {
    let (_server, far) = server(ServiceLimits::default());
    let long = [b'x'; 100_000];
    for (garbage, cause) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "a request must start with"),
        (b"\xff\xfe\x00\n", "a line of text"),
        (&long, "a line of text of at most 256 bytes"),
        (
            b"farwire-messages/1 blast size=0 count=1 nagle=no\n",
            "size=0 is not within",
        ),
    ] {
        let mut stream = TcpStream::connect(far.address).unwrap();
        stream.write_all(garbage).unwrap();
        let mut answer = String::new();
        // A reset after the line is as good as a close.
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("error "), "{answer:?}");
        assert!(answer.contains(cause), "{answer:?}");
        assert_eq!(answer.lines().count(), 1);
    }
    let good = blast::measure(&far, &blast_of(1, 1), &session());
    assert_eq!(good.failure, None);
}

/// Tests whose client never pauses.
const ENDLESS: [&str; 4] = [
    "pingpong size=1000 count=1000000000 wait=spin nagle=no",
    "pingpong size=1000 count=1000000000 wait=block nagle=no",
    "blast size=1000000 count=1000000000 nagle=no",
    "transfer block=8192 bytes=1000000000000000 nagle=no latency_us=0",
];

/// Requests a test over `stream` and reads the answer.
fn request(stream: &TcpStream, test: &str) {
    let mut stream = stream;
    writeln!(stream, "farwire-messages/1 {test}").unwrap();
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte).unwrap();
    }
}

/// Requests a test and sends until the far end closes the connection. Signals when the test is under way.
fn send_until_closed(address: SocketAddr, test: &str, under_way: &Sender<()>) {
    let stream = TcpStream::connect(address).unwrap();
    request(&stream, test);
    thread::scope(|scope| {
        scope.spawn(|| io::copy(&mut &stream, &mut io::sink()));
        let block = [0; 1 << 16];
        let mut sent = 0;
        while let Ok(count) = (&stream).write(&block) {
            sent += count;
            if sent > 8 << 20 {
                let _ = under_way.send(());
            }
        }
    });
}

/// Does the same as [`send_until_closed`] with datagrams.
fn send_datagrams_until_closed(address: SocketAddr, under_way: &Sender<()>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut stream = TcpStream::connect(address).unwrap();
    let test = format!("pingpong size=64 count=1000000000 wait=block nagle=no udp={port}");
    request(&stream, &test);
    socket.connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    for number in 0_u64.. {
        let _ = socket.send(&number.to_be_bytes());
        if stream.read(&mut [0]).is_ok() {
            return;
        }
        let _ = under_way.send(());
    }
}

#[test]
fn a_test_that_never_pauses_ends_at_the_limit() {
    let limits = ServiceLimits {
        duration: Duration::from_millis(200),
        ..ServiceLimits::default()
    };
    let (_server, far) = server(limits);
    let (under_way, _heard) = channel();
    for test in ENDLESS {
        send_until_closed(far.address, test, &under_way);
    }
    send_datagrams_until_closed(far.address, &under_way);
}

#[test]
fn a_stopping_far_end_ends_tests_that_never_pause() {
    let (server, far) = server(ServiceLimits::default());
    thread::scope(|scope| {
        for test in ENDLESS {
            let (under_way, heard) = channel();
            scope.spawn(move || send_until_closed(far.address, test, &under_way));
            heard.recv().unwrap();
        }
        let (under_way, heard) = channel();
        scope.spawn(move || send_datagrams_until_closed(far.address, &under_way));
        heard.recv().unwrap();
        drop(server);
    });
}

#[test]
fn the_client_notices_a_far_end_that_gives_up_on_datagrams() {
    let limits = ServiceLimits {
        duration: Duration::from_millis(200),
        ..ServiceLimits::default()
    };
    let (_server, far) = server(limits);
    let plan = PingpongArgs {
        messages: messages(&[64], 1_000_000_000),
        udp: true,
        timeout: Some(Nanos::from_millis(50)),
        ..pingpong_of(&[])
    };
    let cause = pingpong::measure(&far, &plan, &session()).failure.unwrap();
    assert!(cause.contains("closed the connection"), "{cause}");
}

#[test]
fn a_disconnected_client_frees_its_place() {
    let limits = ServiceLimits {
        tests: 1,
        ..ServiceLimits::default()
    };
    let (server, far) = server(limits);
    let mut stream = TcpStream::connect(far.address).unwrap();
    let request = b"farwire-messages/1 pingpong size=9 count=9 wait=spin nagle=no\n";
    stream.write_all(request).unwrap();
    let mut line = String::new();
    BufReader::new(stream.try_clone().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with("ok wait=spin"), "{line}");
    drop(stream);
    // The thread of the connection ends by itself, and dropping the server waits for it.
    drop(server);
}
