//! Capacity tests that somebody requests under a forged address, and answers from the right address.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use tempfile::NamedTempFile;

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has};
use test_support::suite::Suite;

/// Bytes of the UDP and IPv4 headers.
const HEADER: usize = 28;
/// A time longer than any time-out of the far end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The last row of RFC 9097's table: 10 Gbit/s.
const LAST_ROW: u16 = 1152;

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (kind, service, address) in [
        ("capacity", "capacity", "127.0.0.7"),
        ("udp", "iperf3", "127.0.0.7"),
    ] {
        let name = format!("{kind} is answered from the address that was asked");
        suite.test(name, &[], move || answered_from(kind, service, address));
    }
}

#[test_support::test]
fn a_capacity_test_in_anothers_name_brings_him_at_most_three_times_its_bytes() -> Result<()> {
    bounded(DOWN, |_, _| Ok(0))
}

#[test_support::test]
fn blind_feedback_ends_a_capacity_test() -> Result<()> {
    bounded(DOWN, blind_feedback)
}

#[test_support::test]
fn one_load_datagram_upstream_brings_at_most_three_times_its_bytes() -> Result<()> {
    bounded(UP, one_load_datagram)
}

const UP: u8 = 1;
const DOWN: u8 = 2;

/// Asks for a test in this direction at the last row with feedback each 5 ms, then calls `then`, which returns the bytes that it
/// sent. The bytes received meanwhile must stay within three times the bytes sent.
fn bounded(
    direction: u8,
    then: impl FnOnce(&UdpSocket, SocketAddr) -> Result<usize>,
) -> Result<()> {
    let log = NamedTempFile::new()?;
    let far_end = FarEnd::start(farwire().arg("serve").arg("--json").arg(log.path()))?;
    let control = far_end.address("capacity")?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.set_read_timeout(Some(PATIENCE))?;
    let (setup, activation) = (setup_request(), activation_request(direction));
    client.send_to(&setup, control)?;
    let mut buffer = [0; 2048];
    let (mut came, mut port) = (0, 0);
    // The null request comes from the test's port and may overtake the answer.
    while port == 0 {
        let (length, from) = process::uninterrupted(|| client.recv_from(&mut buffer))?;
        came += length + HEADER;
        if from == control {
            port = u16::from_be_bytes([buffer[12], buffer[13]]);
        }
    }
    let test = SocketAddr::new(control.ip(), port);
    client.send_to(&activation, test)?;
    let sent = setup.len() + activation.len() + 2 * HEADER + then(&client, test)?;
    let text = process::wait_for("the test to end", || {
        let text = std::fs::read_to_string(log.path())?;
        Ok(text.ends_with('\n').then_some(text))
    })?;
    client.set_nonblocking(true)?;
    while let Ok((length, _)) = client.recv_from(&mut buffer) {
        came += length + HEADER;
    }
    ensure!(came <= 3 * sent, "{sent} bytes brought {came}: {text}");
    has(&text, "\"failure\"")?;
    Ok(())
}

/// Sends a hundred feedback messages, as somebody who cannot see the far end's packets.
fn blind_feedback(client: &UdpSocket, test: SocketAddr) -> Result<usize> {
    let mut sent = 0;
    for number in 1..=100u32 {
        let mut status = [0; 204];
        status[..2].copy_from_slice(&[0xfe, 0xed]);
        status[4..8].copy_from_slice(&number.to_be_bytes());
        // Claim a round trip equal to the minimum, and the time of day.
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?;
        status[152..156].copy_from_slice(&u32::try_from(now.as_secs())?.to_be_bytes());
        status[156..160].copy_from_slice(&now.subsec_nanos().to_be_bytes());
        // The send fails once the far end has ended the test.
        let Ok(_) = client.send_to(&status, test) else {
            break;
        };
        sent += status.len() + HEADER;
    }
    // Only the first message counts: the others meet a closed port.
    Ok(sent.min(204 + HEADER))
}

fn one_load_datagram(client: &UdpSocket, test: SocketAddr) -> Result<usize> {
    let mut load = [0; 52];
    load[..2].copy_from_slice(&[0xbe, 0xef]);
    load[7] = 1;
    client.send_to(&load, test)?;
    Ok(load.len() + HEADER)
}

/// Asks a far end on all addresses at `address`, which belongs to this host although its routes prefer 127.0.0.1.
fn answered_from(kind: &str, service: &str, address: &str) -> Result<()> {
    let far_end = FarEnd::start_everywhere(farwire().arg("serve"))?;
    let host: IpAddr = address.parse()?;
    let target = SocketAddr::new(host, far_end.address(service)?.port()).to_string();
    let mut command = farwire();
    command.args([
        "measure", kind, &target, "-t", "1", "--json", "-", "--quiet",
    ]);
    if kind == "udp" {
        command.args(["-b", "1M"]);
    }
    process::succeeds(&mut command)?;
    Ok(())
}

/// The addresses of RFC 5737 represent public ones.
#[test_support::test(Namespaces)]
fn a_far_end_that_strangers_reach_says_so_at_its_start() -> Result<()> {
    let ns = NetNs::create()?;
    process::ip(&ns, "link set lo up")?;
    process::ip(&ns, "address add 10.9.8.7/32 dev lo")?;
    let notes = |arguments: &[&str]| {
        let far_end =
            ns.run(|| FarEnd::start_everywhere(farwire().arg("serve").args(arguments)))?;
        far_end.map(|far_end| far_end.notes.join("\n"))
    };
    ensure!(!notes(&[])?.contains("--allow"), "a private address");
    process::ip(&ns, "address add 198.51.100.7/32 dev lo")?;
    let said = notes(&[])?;
    let line = said.lines().find(|line| line.contains("--allow"));
    ensure!(
        line.context(said.clone())?.contains("198.51.100.7"),
        "{said}"
    );
    for arguments in [["--allow", "192.0.2.0/24"], ["--bind", "10.9.8.7"]] {
        let said = notes(&arguments)?;
        ensure!(!said.contains("198.51.100.7"), "{arguments:?}: {said}");
    }
    Ok(())
}

/// Builds RFC 9946's setup request: identifier, version 20, connection 0 of 1, a client's number, request.
fn setup_request() -> [u8; 56] {
    let mut request = [0; 56];
    request[..9].copy_from_slice(&[0xac, 0xe1, 0, 20, 0, 1, 0, 7, 1]);
    request
}

/// Builds RFC 9946's activation request for ten seconds at the last row, with feedback each 5 ms.
fn activation_request(direction: u8) -> [u8; 104] {
    let mut request = [0; 104];
    request[..5].copy_from_slice(&[0xac, 0xe2, 0, 20, direction]);
    request[10..14].copy_from_slice(&[0, 5, 0, 10]);
    request[16..18].copy_from_slice(&LAST_ROW.to_be_bytes());
    request
}
