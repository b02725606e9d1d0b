//! The resources of the far end that one client can take, and those left for others.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, ensure};
use socket2::{Domain, Socket, Type};

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has};

/// The loopback addresses of two clients.
const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: &str = "127.0.0.3";
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens a connection to `server` from `source`.
fn connect(source: Ipv4Addr, server: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&server.into())?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Opens a client of iperf3's protocol that sends its cookie and, if given, its parameters.
fn iperf3(server: SocketAddr, cookie: u32, params: Option<&str>) -> Result<TcpStream> {
    let mut stream = connect(ONE, server)?;
    stream.write_all(format!("{cookie:0>36}\0").as_bytes())?;
    if let Some(params) = params {
        let length = u32::try_from(params.len())?.to_be_bytes();
        stream.write_all(&[&length[..], params.as_bytes()].concat())?;
    }
    Ok(stream)
}

/// Returns whether the far end closed the connection.
fn is_closed(error: &Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        kind,
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
    )
}

/// Checks that a client from another address can test.
fn other_tests(far_end: &FarEnd) -> Result<()> {
    let address = far_end.address("iperf3")?.to_string();
    let tcp = [
        "measure", "tcp", &address, "--bytes", "100000", "--bind", OTHER,
    ];
    process::succeeds(farwire().args(tcp))?;
    Ok(())
}

#[test_support::test]
fn cookies_without_parameters_take_no_test() -> Result<()> {
    let far_end = FarEnd::start(farwire().args(["serve", "--max-tests", "4"]))?;
    let server = far_end.address("iperf3")?;
    let _held: Vec<_> = (0..100)
        .map(|cookie| iperf3(server, cookie, None))
        .collect::<Result<_>>()?;
    other_tests(&far_end)
}

#[test_support::test]
fn one_client_has_its_share_of_the_tests_and_another_has_the_rest() -> Result<()> {
    let far_end = FarEnd::start(farwire().args(["serve", "--max-tests", "4"]))?;
    let request = "GET /seconds/3600 HTTP/1.1\r\nHost: x\r\n\r\n";
    let get = || -> Result<TcpStream> {
        let mut stream = connect(ONE, far_end.address("http")?)?;
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    };
    let said = |stream: &mut TcpStream| -> Result<String> {
        let mut answer = [0; 400];
        let length = process::uninterrupted(|| stream.read(&mut answer))?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    let mut first = get()?;
    ensure!(said(&mut first)?.starts_with("HTTP/1.1 200"));
    let refused = said(&mut get()?)?;
    has(&refused, "1 tests are already running for this address")?;
    other_tests(&far_end)
}

#[test_support::test]
fn a_client_that_hangs_up_frees_its_place_at_once() -> Result<()> {
    let arguments = ["serve", "--max-tests", "1", "--idle-timeout", "3600s"];
    let far_end = FarEnd::start(farwire().args(arguments))?;
    let server = far_end.address("iperf3")?;
    let params = r#"{"tcp":true,"time":1,"len":1000}"#;
    let mut holder = iperf3(server, 1, Some(params))?;
    // It receives PARAM_EXCHANGE and CREATE_STREAMS: it has the only place now.
    holder.read_exact(&mut [0; 2]).context("a test")?;
    drop(holder);
    process::wait_for("the place to be free", || {
        Ok(other_tests(&far_end).is_ok().then_some(()))
    })
}

#[test_support::test]
fn eight_tests_of_128_streams_leave_descriptors_for_others() -> Result<()> {
    // This is the default limit of a shell.
    let far_end = FarEnd::start(process::limited("--nofile=1024:1024").arg("serve"))?;
    let server = far_end.address("iperf3")?;
    let params = r#"{"tcp":true,"time":60,"len":1000,"parallel":128}"#;
    let mut held = Vec::new();
    for cookie in 0..8 {
        let mut state = [0; 2];
        let answered = iperf3(server, cookie, Some(params)).and_then(|mut control| {
            control.read_exact(&mut state).context("an answer")?;
            Ok(control)
        });
        let control = match answered {
            Ok(control) => control,
            // While threads read the cookies of earlier connections, an address may have no place for another one, which is
            // closed unread.
            Err(error) if is_closed(&error) => continue,
            Err(error) => return Err(error),
        };
        // It receives PARAM_EXCHANGE, then CREATE_STREAMS or ACCESS_DENIED.
        ensure!(matches!(state, [9, 10 | 0xff]), "{state:?}");
        if state[1] == 10 {
            for _ in 0..128 {
                held.push(iperf3(server, cookie, None)?);
            }
        }
        held.push(control);
    }
    ensure!(held.len() > 128, "not one test was taken: {}", held.len());
    other_tests(&far_end)
}
