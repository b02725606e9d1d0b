//! The departure error that the emulator states, against a capture at the far end.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use model::Nanos;
use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use netio::{AfPacket, Ports, Received, RingSlots, clock};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::rivals::{await_threads, spawn_in, stop};

const PACKETS: usize = 2000;
const SLOTS: RingSlots = RingSlots {
    small: 2 * PACKETS,
    large: 1,
};
const PAYLOAD: usize = 1000;
const INTERVAL: Duration = Duration::from_millis(1);
const DELAY: Nanos = Nanos(20_000_000);

pub(crate) fn run() -> Result<()> {
    println!(
        "\ndeparture error: {PACKETS} datagrams of {PAYLOAD} bytes, one a millisecond, through {DELAY} each way"
    );
    for cpu in ["spin", "gentle"] {
        one(cpu)?;
    }
    Ok(())
}

fn one(cpu: &str) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let report = std::env::temp_dir().join(format!("farwire-bench-{}.json", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwire"));
    command.args([
        "emulate",
        CLIENT_PORT,
        SERVER_PORT,
        "--cpu",
        cpu,
        "--delay",
        &DELAY.to_string(),
    ]);
    let mut emulator = spawn_in(bed.emulator(), command.arg("--json").arg(&report))?;
    await_threads(emulator.streams().id(), "forwarder")?;
    std::thread::sleep(Duration::from_millis(200)); // it measures its wake-ups first
    let mut late = capture(&bed)?;
    stop(emulator, Signal::SIGTERM)?;
    let summary: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    fs::remove_file(&report)?;
    late.sort_unstable();
    let stated = |key| summary["departure_error"][key].as_f64().unwrap_or(0.0) / 1e3;
    println!(
        "--cpu {cpu:<7} stated: median {:.2} us, p99 {:.2} us; sender to far end's capture, less the delay: median {:.2} us, p99 {:.2} us, least {:.2} us",
        stated("p50_ns"),
        stated("p99_ns"),
        micros(late[late.len() / 2]),
        micros(late[late.len() * 99 / 100]),
        micros(late[0]),
    );
    Ok(())
}

/// Sends the datagrams, each with its time, and reads the kernel's stamps of their arrival.
fn capture(bed: &Bed) -> Result<Vec<i64>> {
    let mut port = bed.server().run(|| AfPacket::open(WAN, SLOTS))??;
    let socket = bed.client().run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let far = SocketAddr::from((SERVER.v4, 9));
    let mut late = Vec::new();
    for _ in 0..PACKETS {
        let mut payload = [0; PAYLOAD];
        payload[..8].copy_from_slice(&clock::now().0.to_be_bytes());
        socket.send_to(&payload, far)?;
        std::thread::sleep(INTERVAL);
        collect(&mut port, &mut late);
    }
    std::thread::sleep(Duration::from_millis(50));
    collect(&mut port, &mut late);
    anyhow::ensure!(!late.is_empty(), "no datagram arrived");
    Ok(late)
}

fn collect(port: &mut AfPacket, late: &mut Vec<i64>) {
    const HEADERS: usize = 14 + 20 + 8;
    port.refresh(clock::now());
    while let Some((_, received)) = port.take() {
        let Received::Frame(frame) = received else {
            continue;
        };
        let payload = frame.bytes().get(HEADERS..HEADERS + 8);
        if let (Some(Ok(sent)), true) = (
            payload.map(<[u8; 8]>::try_from),
            frame.bytes().len() == HEADERS + PAYLOAD,
        ) {
            let due = u64::from_be_bytes(sent) + DELAY.0;
            late.push(frame.arrival.0.cast_signed() - due.cast_signed());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds to be read")]
fn micros(nanos: i64) -> f64 {
    nanos as f64 / 1e3
}
