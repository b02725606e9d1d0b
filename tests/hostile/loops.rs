//! Reflectors that answer each other.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use test_support::far_end::FarEnd;
use test_support::process::{farwire, uninterrupted};

/// Bytes of a STAMP packet (RFC 8762).
const STAMP: usize = 44;
/// IPPROTO_RAW: the IP header is in the packet (raw(7)).
const RAW: i32 = 255;

#[test_support::test(Namespaces)]
fn two_reflectors_let_a_spoofed_packet_rest() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let mut one = FarEnd::start(farwire().arg("serve").arg("--json").arg(&log))?;
    let other = FarEnd::start(farwire().arg("serve"))?;
    let (one_at, other_at) = (v4(one.address("stamp")?)?, v4(other.address("stamp")?)?);
    spoof(other_at, one_at, &[0; STAMP])?;
    // Later requests are answered later. By then, the packet has gone back and forth as often as it ever will.
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    for _ in 0..100 {
        for reflector in [one_at, other_at] {
            client.send_to(&[0; STAMP], reflector)?;
            uninterrupted(|| client.recv_from(&mut [0; STAMP]))?;
        }
    }
    one.interrupt()?;
    let lines = fs::read_to_string(&log)?;
    let entries = lines.lines().map(serde_json::from_str);
    let entries: Vec<Value> = entries.collect::<Result<_, _>>()?;
    let of_other = entries
        .iter()
        .find(|entry| entry["peer"] == other_at.to_string());
    let figures = of_other.context("the session")?["figures"].as_array();
    let mut figures = figures.context("figures")?.iter();
    let answered = figures.find(|figure| figure["metric"] == "received_packets");
    let answered = answered.and_then(|figure| figure["value"].as_f64());
    ensure!(
        answered.is_some_and(|count| count <= 2.0),
        "{answered:?} were answered"
    );
    Ok(())
}

fn v4(address: SocketAddr) -> Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(v4) => Ok(v4),
        SocketAddr::V6(v6) => bail!("{v6} where IPv4 was asked for"),
    }
}

/// Sends a UDP datagram with the source address `from`.
fn spoof(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Result<()> {
    let length = u16::try_from(8 + payload.len())?;
    // The kernel fills in zero fields: the packet's length, identification and checksum. The UDP checksum may be absent.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    for word in [from.port(), to.port(), length, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(payload);
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))?;
    socket.send_to(&packet, &SocketAddr::from(to).into())?;
    Ok(())
}
