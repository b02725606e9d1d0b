//! A thousand half-open clients from one address, and a client from another.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use netio::netns::NetNs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, ip, stderr};
use test_support::raw;
use test_support::usage::Usage;

/// The number of half-open clients of each protocol.
const CLIENTS: u16 = 1000;
/// The number of STAMP sessions, each of which costs a datagram.
const STAMP_SESSIONS: u16 = 5000;
/// The number of datagrams sent before their answers are read; a socket's buffer holds more.
const BURST: u16 = 100;
/// The factor by which memory after the second wave may exceed memory after the first.
const GROWTH: f64 = 1.05;

#[test_support::test(Namespaces, Tool("ip"))]
fn half_open_clients_of_one_address_leave_places_for_those_of_another() -> Result<()> {
    let wave = ["127.0.0.1".parse()?];
    survives("127.0.0.9", &wave, "127.0.0.2".parse()?, &[])
}

#[test_support::test(Namespaces, Tool("ip"))]
fn half_open_clients_of_one_64_leave_places_for_those_of_another() -> Result<()> {
    let addresses: Vec<String> = (1..=50).map(|host| format!("fd77:1::{host:x}")).collect();
    let mut added: Vec<&str> = addresses.iter().map(String::as_str).collect();
    added.extend(["fd77:2::1", "fd77:9::1"]);
    let wave: Result<Vec<IpAddr>, _> = addresses.iter().map(|text| text.parse()).collect();
    survives("fd77:9::1", &wave?, "fd77:2::1".parse()?, &added)
}

/// Sends two waves of half-open clients from the addresses `wave` to a far end at `address`. During each wave, a client from `other`
/// completes its tests; afterwards the far end keeps nothing. The loopback gets the addresses `added`.
fn survives(address: &str, wave: &[IpAddr], other: IpAddr, added: &[&str]) -> Result<()> {
    let ns = NetNs::create()?;
    ip(&ns, "link set lo up")?;
    for address in added {
        ip(&ns, &format!("address add {address}/128 dev lo nodad"))?;
    }
    ns.run(|| {
        let far_end = FarEnd::start_everywhere(farwire().args(["serve", "--bind", address]))?;
        let _descriptors = MoreDescriptors::take()?;
        let before = Usage::of_idle_far_end(far_end.pid())?;
        let mut after = Vec::new();
        for _ in 0..2 {
            let wave = Wave::begin(&far_end, wave)?;
            complete_all(&far_end, other)?;
            drop(wave);
            after.push(before.await_tidied(far_end.pid())?);
        }
        let growth = after[1] as f64 / after[0] as f64;
        ensure!(
            growth <= GROWTH,
            "{} KiB of memory after a wave, {} KiB after the same again",
            after[0],
            after[1]
        );
        Ok(())
    })?
}

/// Clients of every protocol that have begun and do not continue. They hang up when dropped.
struct Wave {
    _connections: Vec<TcpStream>,
    _sockets: Vec<UdpSocket>,
}

impl Wave {
    /// Opens clients from the addresses `from` in turn.
    fn begin(far_end: &FarEnd, from: &[IpAddr]) -> Result<Self> {
        let params: &[u8] = br#"{"tcp":true,"time":10,"parallel":1}"#;
        let (http, messages) = (far_end.address("http")?, far_end.address("messages")?);
        let iperf3 = far_end.address("iperf3")?;
        let mut connections = Vec::new();
        for number in 0..CLIENTS {
            let from = from[usize::from(number) % from.len()];
            let cookie = raw::cookie(number.into());
            let with_params = [&cookie[..], &raw::framed(params)].concat();
            let of_iperf3 = [&b""[..], &cookie, &with_params][usize::from(number) % 3];
            for (to, words) in [
                (http, raw::HALF_HTTP),
                (messages, raw::HALF_MESSAGES),
                (iperf3, of_iperf3),
            ] {
                let mut connection = raw::connect(from, to)?;
                // A client that is refused immediately also belongs to the wave.
                let _ = connection.write_all(words);
                connections.push(connection);
            }
        }
        let mut sockets = Vec::new();
        for from in from {
            let (capacity, stamp) = (far_end.address("capacity")?, far_end.address("stamp")?);
            sockets.push(raw::datagrams(*from, capacity)?);
            sockets.push(raw::datagrams(*from, stamp)?);
        }
        for number in 0..CLIENTS {
            let socket = &sockets[2 * (usize::from(number) % from.len())];
            send(socket, &raw::capacity_setup(number + 1), number)?;
        }
        for number in 0..STAMP_SESSIONS {
            let socket = &sockets[2 * (usize::from(number) % from.len()) + 1];
            send(socket, &raw::stamp_request(0, number), number)?;
        }
        Ok(Self {
            _connections: connections,
            _sockets: sockets,
        })
    }
}

/// Sends datagram `number`, and from time to time reads the answers, so that the far end keeps up.
fn send(socket: &UdpSocket, datagram: &[u8], number: u16) -> Result<()> {
    socket.send(datagram)?;
    if number.is_multiple_of(BURST) {
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        while process::uninterrupted(|| socket.recv(&mut [0; 256])).is_ok() {}
    }
    Ok(())
}

/// Runs a test of each protocol from `from`; returns those that failed, with their output.
fn complete_all(far_end: &FarEnd, from: IpAddr) -> Result<()> {
    let mut failures = String::new();
    for (service, instrument, words) in [
        ("iperf3", "tcp", "-n 1M"),
        ("stamp", "probe", "-c 20 -i 2ms"),
        ("http", "http", ""),
        ("capacity", "capacity", "-t 1s"),
    ] {
        let to = far_end.address(service)?;
        let mut command = farwire();
        command.args(["measure", instrument, "--bind", &from.to_string()]);
        command.args(words.split_whitespace());
        let output = process::run(aimed(&mut command, instrument, to))?;
        if !output.status.success() {
            let said = stderr(&output);
            writeln!(failures, "{instrument}: {}", said.trim())?;
        }
    }
    ensure!(
        failures.is_empty(),
        "tests of {from} did not complete:\n{failures}"
    );
    Ok(())
}

/// The arguments that aim an instrument at a port.
fn aimed<'c>(command: &'c mut Command, instrument: &str, to: SocketAddr) -> &'c mut Command {
    match instrument {
        "http" => command.arg(format!("http://{to}/bytes/1000000")),
        _ => command.args([&to.ip().to_string(), "-p", &to.port().to_string()]),
    }
}

/// Raises the limit of descriptors so that this process can hold a wave. Dropping restores the limit, for programs started later.
struct MoreDescriptors(u64);

impl MoreDescriptors {
    fn take() -> Result<Self> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        let wanted = u64::from(CLIENTS) * 3 + 1000;
        ensure!(
            hard >= wanted,
            "a wave takes {wanted} descriptors, {hard} may be had (ulimit -Hn)"
        );
        Ok(Self(soft))
    }
}

impl Drop for MoreDescriptors {
    fn drop(&mut self) {
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, self.0, hard);
        }
    }
}
