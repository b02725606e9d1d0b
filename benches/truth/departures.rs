//! Compares the departures in the packet log, packet by packet, with a capture where the packets arrive.
//!
//! A veth pair hands a frame over within the send call, and the kernel stamps it as it arrives at the other end (`netif_rx_internal`
//! in net/core/dev.c). The log has the time at which that call had returned, shared among the frames of one call in their order. The
//! captured time minus the logged one is therefore the rest of the call, below 0: on two busy cores the median is -4.0 to -4.4 us at
//! 1,000 packets a second (three runs), and on two faster idle ones -1.8 us. If the stamp is taken before the send call, it is 2.7 to
//! 4.0 us (two runs of a build with little optimisation). At 50,000 packets a second several frames leave in one call, which shares its
//! time among them, so the rest is near 0: -1.7 to -1.8 us on the busy cores, -0.1 us on the others. A stamp before the call gives 1.4
//! to 1.6 us there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;

use test_support::capture::{Passed, Tap, TapDirection};
use test_support::process::{farwire, run, wait_for};

/// The argument that makes this program capture at the receiving end; the file and the rate follow it.
const CAPTURE: &str = "--capture";
/// The rates in packets a second, and the greatest median at each in microseconds: a frame that leaves alone precedes its stamp.
const RATES: [(u64, f64); 2] = [(1_000, -0.5), (50_000, 0.5)];
const SECONDS: u64 = 2;
/// The payload, in bytes.
const LENGTH: usize = 64;
/// The bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// The least median, in microseconds.
const LEAST_US: f64 = -20.0;

/// Returns whether the median difference is within bounds at each rate.
///
/// # Errors
/// A run fails, or log and capture do not have the same packets.
pub(crate) fn check() -> Result<bool> {
    println!(
        "\ncaptured where it arrives less logged departure, in microseconds\n{:>9} {:>9} {:>9} {:>9} {:>9}",
        "packets/s", "packets", "median", "p1", "p99"
    );
    let mut is_good = true;
    for (rate, most_us) in RATES {
        let all = differences(rate)?;
        let [median, p1, p99] = [50, 1, 99].map(|percent| all[(all.len() - 1) * percent / 100]);
        println!(
            "{rate:>9} {:>9} {median:>9.2} {p1:>9.2} {p99:>9.2}",
            all.len()
        );
        if !(LEAST_US..=most_us).contains(&median) {
            println!("the median lies outside {LEAST_US} to {most_us} us");
            is_good = false;
        }
    }
    Ok(is_good)
}

/// Returns the file and the packets a second if this program was started to capture.
pub(crate) fn asked_to_capture(arguments: &[String]) -> Option<(PathBuf, u64)> {
    match arguments {
        [word, file, rate, ..] if word == CAPTURE => Some((file.into(), rate.parse().ok()?)),
        _ => None,
    }
}

/// Receives datagrams for a time and writes the arrival of each to `file`, in nanoseconds since 1970, one a line.
///
/// # Errors
/// The measurement fails, or a frame was missed or out of order.
pub(crate) fn capture(file: &Path, rate: u64) -> Result<()> {
    let mut tap = Tap::open(&NetNs::current()?)?;
    let mut measure = farwire();
    measure.args("measure udp 10.77.0.2 --reverse --quiet".split(' '));
    measure.arg(format!("--length={LENGTH}"));
    measure.arg(format!("--bitrate={}", rate * 8 * LENGTH as u64));
    measure.arg(format!("--time={SECONDS}s"));
    let mut measure = measure.stdout(Stdio::null()).spawn()?;
    let status = wait_for("the end of the measurement", || {
        tap.read()?;
        Ok(measure.try_wait()?)
    })?;
    ensure!(status.success(), "measure udp: {status}");
    let (passed, missed) = tap.finish()?;
    ensure!(missed == 0, "the capture missed {missed} frames");
    let mut lines = String::new();
    let mut expected = 1_u64;
    for frame in &passed {
        let segments = datagrams(frame);
        if segments == 0 {
            continue;
        }
        // The seconds and microseconds of the sending time precede the number.
        let number = frame.head[HEADERS + 8..]
            .first_chunk()
            .context("a number")?;
        let number = u64::from_be_bytes(*number);
        ensure!(number == expected, "{number} in place of {expected}");
        expected += segments as u64;
        for _ in 0..segments {
            lines += &format!("{}\n", frame.at.0);
        }
    }
    Ok(fs::write(file, lines)?)
}

/// Returns how many of the far end's datagrams an incoming frame carries, 0 for any other frame. A sender that was delayed sends what is due as one train,
/// which the capture sees as one frame.
fn datagrams(frame: &Passed) -> usize {
    const UDP_OVER_IPV4: (u8, u8) = (0x45, 17);
    let is_udp = (frame.head[14], frame.head[23]) == UDP_OVER_IPV4;
    let from = [frame.head[34], frame.head[35]];
    let is_served = u16::from_be_bytes(from) == 5201;
    if frame.way != TapDirection::In || !is_udp || !is_served {
        return 0;
    }
    let payload = frame.len.saturating_sub(HEADERS);
    if payload.is_multiple_of(LENGTH) {
        payload / LENGTH
    } else {
        0
    }
}

/// Returns the captured arrival minus the logged departure of every datagram, in microseconds, in ascending order.
fn differences(rate: u64) -> Result<Vec<f64>> {
    let directory = tempfile::tempdir()?;
    let [log, captured] = ["packets.csv", "captured"].map(|name| directory.path().join(name));
    let mut command = farwire();
    command.args(["exec", "--quiet", "--delay=5ms", "--packet-log"]);
    command.arg(&log).arg("--").arg(std::env::current_exe()?);
    command.arg(CAPTURE).arg(&captured).arg(rate.to_string());
    let output = run(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{rate} packets/s: {said}");
    let left = departures(&fs::read_to_string(&log)?)?;
    let arrived = fs::read_to_string(&captured)?;
    let arrived: Vec<i64> = arrived.lines().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(
        left.len() == arrived.len() && !left.is_empty(),
        "{} logged, {} captured",
        left.len(),
        arrived.len()
    );
    // Nothing is lost or overtaken on this link: the n-th that left is the n-th that arrived.
    let both = arrived.iter().zip(&left);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 nanoseconds")]
    let mut off: Vec<f64> = both.map(|(at, left)| (at - left) as f64 / 1e3).collect();
    off.sort_by(f64::total_cmp);
    Ok(off)
}

/// Reads the departures of the datagrams to the client in the log, in nanoseconds since 1970.
fn departures(log: &str) -> Result<Vec<i64>> {
    let mut lines = log.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().context("a header")?;
    let column = |name| {
        header
            .iter()
            .position(|column| *column == name)
            .context(name)
    };
    let (bytes, port) = (column("bytes")?, column("source_port")?);
    let (way, verdict) = (column("direction")?, column("verdict")?);
    let departure = column("departure_ns")?;
    let length = (HEADERS + LENGTH).to_string();
    let wanted = [(way, "down"), (verdict, "delivered"), (port, "5201")];
    let rows = lines.filter(|row| {
        row[bytes] == length && wanted.iter().all(|(column, value)| row[*column] == *value)
    });
    rows.map(|row| Ok(row[departure].parse()?)).collect()
}
