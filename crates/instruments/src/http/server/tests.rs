use crate::serve::{FarEndServer, ServeConfig, start};
use crate::service::MOST_WAITING;
use std::io::{Read, Write};
use std::net::TcpStream;

fn ask(server: &FarEndServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address("http").unwrap()).unwrap();
    write!(stream, "{request}\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Starts a server with a limit of simultaneous tests.
fn server_of(tests: usize) -> FarEndServer {
    start(ServeConfig::on_loopback_for(tests)).unwrap()
}

fn on_port(http: u16) -> ServeConfig {
    let mut config = ServeConfig::on_loopback();
    config.ports.http = http;
    config
}

fn head_and_length(answer: &str) -> (&str, usize) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head, body.len())
}

#[test]
fn the_status_fits_the_request() {
    let server = start(ServeConfig::on_loopback()).unwrap();
    for (request, status) in [
        ("GET /bytes/10 HTTP/1.1", "200"),
        ("GET /seconds/0 HTTP/1.1", "200"),
        ("GET / HTTP/1.1", "200"),
        ("GET /nothing HTTP/1.1", "404"),
        ("GET /bytes/x HTTP/1.1", "400"),
        ("GET /bytes/-1 HTTP/1.1", "400"),
        ("GET /seconds/NaN HTTP/1.1", "400"),
        ("GET /seconds/1e9 HTTP/1.1", "400"),
        ("POST /bytes/10 HTTP/1.1", "405"),
        ("garbage", "400"),
    ] {
        let answer = ask(&server, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{request}: {answer}"
        );
    }
}

#[test]
fn head_states_the_length_and_sends_nothing() {
    let server = start(ServeConfig::on_loopback()).unwrap();
    let answer = ask(&server, "HEAD /bytes/5000000000 HTTP/1.1");
    let (head, length) = head_and_length(&answer);
    assert!(
        head.to_lowercase().contains("content-length: 5000000000"),
        "{head}"
    );
    assert_eq!(length, 0);
}

#[test]
fn the_congestion_control_in_effect_is_stated() {
    let config = ServeConfig {
        congestion: Some("reno".to_owned()),
        ..ServeConfig::on_loopback()
    };
    let server = start(config).unwrap();
    assert_eq!(server.congestion(), "reno");
    let answer = ask(&server, "GET /bytes/1 HTTP/1.1");
    assert!(
        answer.contains("farwire-congestion-control: reno"),
        "{answer}"
    );
}

#[test]
fn an_unavailable_congestion_control_is_refused() {
    let config = ServeConfig {
        congestion: Some("warp".to_owned()),
        ..ServeConfig::on_loopback()
    };
    let error = format!("{:#}", start(config).unwrap_err());
    assert!(
        error.contains("`warp` is not available; available are: "),
        "{error}"
    );
}

#[test]
fn a_port_in_use_is_one_clear_error() {
    let first = start(ServeConfig::on_loopback()).unwrap();
    let config = on_port(first.address("http").unwrap().port());
    let error = format!("{:#}", start(config).unwrap_err());
    let words = "the service of --http-port: another program uses ";
    assert!(error.starts_with(words), "{error}");
}

#[test]
fn a_surplus_client_is_told_that_the_server_is_busy() {
    let server = server_of(1);
    let mut held = TcpStream::connect(server.address("http").unwrap()).unwrap();
    write!(held, "GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    held.read_exact(&mut [0; 1024]).unwrap();
    let answer = ask(&server, "GET /bytes/1 HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("busy: 1 tests"), "{answer}");
}

#[test]
fn idle_connections_do_not_prevent_tests() {
    let server = server_of(1);
    let _held = TcpStream::connect(server.address("http").unwrap()).unwrap();
    let answer = ask(&server, "GET /bytes/1 HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_surplus_connection_is_told_the_reason_and_closed() {
    let server = server_of(1);
    let connect = || TcpStream::connect(server.address("http").unwrap()).unwrap();
    let _held: Vec<_> = (0..MOST_WAITING).map(|_| connect()).collect();
    let answer = ask(&server, "GET / HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("Connection: close"), "{answer}");
}

#[test]
fn a_client_that_is_not_allowed_is_told_so_and_closed() {
    let config = ServeConfig {
        allow: vec!["10.0.0.0/8".parse().unwrap()],
        ..ServeConfig::on_loopback()
    };
    let server = start(config).unwrap();
    let mut stream = TcpStream::connect(server.address("http").unwrap()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        answer.contains("this address is not allowed to test here"),
        "{answer}"
    );
}

#[test]
fn a_dropped_server_frees_its_port_and_ends_its_streams() {
    let server = start(ServeConfig::on_loopback()).unwrap();
    let address = server.address("http").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut some = [0; 1024];
    stream.read_exact(&mut some).unwrap();
    drop(server);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    drop(stream);
    start(on_port(address.port())).unwrap();
}

#[test]
fn a_running_test_has_a_row_with_its_traffic_and_counts_in_the_total_when_it_has_ended() {
    let server = server_of(2);
    let tests = server.running_tests();
    assert!(tests().rows.is_empty());
    let mut client = TcpStream::connect(server.address("http").unwrap()).unwrap();
    write!(client, "GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut some = vec![0; 1 << 16];
    let row = loop {
        client.read_exact(&mut some).unwrap();
        let rows = tests().rows;
        if let Some(row) = rows.into_iter().find(|row| row.traffic.down.packets > 0) {
            break row;
        }
    };
    assert_eq!((row.test, row.peer), ("http", client.local_addr().unwrap()));
    assert!(
        row.traffic.down.bytes > 0 && row.traffic.up.bytes > 0,
        "{row:?}"
    );
    assert!(row.traffic.round_trip.is_some(), "{row:?}");
    drop(client);
    let ended = loop {
        let seen = tests();
        if seen.ended == 1 {
            break seen;
        }
        std::thread::yield_now();
    };
    assert!(ended.rows.is_empty());
    assert!(
        ended.total.down.bytes >= row.traffic.down.bytes,
        "{ended:?}"
    );
}
