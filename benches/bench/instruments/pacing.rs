//! The pacing of a sender: the kernel's stamps of the arrival of datagrams at the other end of the veth pair.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use netio::{AfPacket, PortSet, ReceivedFrame, RingSlots, clock};

use crate::instruments::pair::{Pair, SERVER, WAN, farwire};
use crate::instruments::percentile::percentile;
use crate::processes::Running;
use crate::report::rows::{Found, Quantity};
use crate::results::Outcome;
use crate::rounds::{rounds, shuffled};

const SECONDS: u32 = 3;
const RATE: f64 = 50e6;
const PAYLOAD: usize = 1448;
const HEADERS: usize = 14 + 20 + 8;
/// Room for all frames of a run.
const FRAMES: RingSlots = RingSlots {
    small: 16 << 10,
    large: 4 << 10,
};

/// The name of a sender, and the function that runs it for [`SECONDS`].
type Rival = (&'static str, fn(&Pair) -> Result<()>);

const RIVALS: [Rival; 4] = [
    ("farwire", |pair| {
        let _server = pair.serve_farwire()?;
        load(
            pair,
            &farwire(&format!(
                "measure udp {SERVER} -b {RATE:.0} -l {PAYLOAD} -t {SECONDS} --quiet"
            )),
        )
    }),
    ("iperf3", |pair| {
        let _server = pair.serve("iperf3 -s")?;
        load(
            pair,
            &format!("iperf3 -c {SERVER} -u -b {RATE:.0} -l {PAYLOAD} -t {SECONDS}"),
        )
    }),
    ("iperf 2", |pair| {
        let _server: Running = pair.serve("iperf -s -u")?;
        load(
            pair,
            &format!("iperf -c {SERVER} -u -b {RATE:.0} -l {PAYLOAD} -t {SECONDS}"),
        )
    }),
    ("nuttcp", |pair| {
        let _server = pair.serve("nuttcp -S --nofork")?;
        load(
            pair,
            &format!(
                "nuttcp -u -l{PAYLOAD} -R{:.0}k -T{SECONDS} {SERVER}",
                RATE / 1e3
            ),
        )
    }),
];

pub(crate) fn run() -> Result<Outcome> {
    let ideal = ideal_us();
    let rounds = rounds(5)?;
    let mut outcome = Outcome::new(
        rounds,
        &format!(
            "datagrams of {PAYLOAD} bytes at 50 Mbit/s of payload, one every {ideal:.1} us, {SECONDS} s, stamped by the kernel at the receiver's interface"
        ),
    );
    let sent = shuffled(rounds, &RIVALS, |(_, send)| gaps(*send))?;
    for (name, share) in [("median", 0.5), ("p99", 0.99)] {
        let found = Found {
            names: RIVALS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            rounds: sent
                .iter()
                .map(|round| round.iter().map(|gaps| percentile(gaps, share).into()))
                .map(Iterator::collect)
                .collect(),
        };
        let quantity = Quantity::less(&format!("pacing, {name} of |gap - ideal|"), "us");
        outcome.rows(found.rows(&quantity));
        outcome.rows(found.beside_best(&quantity, 0, &[1, 2, 3]));
    }
    Ok(outcome)
}

fn ideal_us() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a datagram's length")]
    let bits = PAYLOAD as f64 * 8.0;
    bits / RATE * 1e6
}

fn load(pair: &Pair, line: &str) -> Result<()> {
    pair.run(line).map(drop)
}

/// Measures |gap - ideal| of neighbouring datagrams as they arrive, sorted, in us.
fn gaps(send: fn(&Pair) -> Result<()>) -> Result<Vec<f64>> {
    let pair = Pair::build()?;
    let mut port = pair.server.run(|| AfPacket::open(WAN, FRAMES))??;
    let mut arrivals = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(|| send(&pair));
        while !sender.is_finished() {
            collect(&mut port, &mut arrivals);
            thread::sleep(Duration::from_millis(50));
        }
        collect(&mut port, &mut arrivals);
        sender.join().expect("a sender's panic is the bench's")
    })?;
    ensure!(
        arrivals.len() > 1000,
        "only {} datagrams came",
        arrivals.len()
    );
    let ideal = ideal_us();
    #[expect(clippy::cast_precision_loss, reason = "microseconds to be read")]
    let gap = |pair: &[u64]| ((pair[1] - pair[0]) as f64 / 1e3 - ideal).abs();
    let mut gaps: Vec<f64> = arrivals.windows(2).map(gap).collect();
    gaps.sort_by(f64::total_cmp);
    Ok(gaps)
}

/// Collects arrivals. A train of datagrams arrives as one frame, with no gap between its datagrams.
fn collect(port: &mut AfPacket, arrivals: &mut Vec<u64>) {
    port.refresh(clock::now());
    while let Some((_, received)) = port.take() {
        let ReceivedFrame::Frame(frame) = received else {
            continue;
        };
        let payload = frame.bytes().len().saturating_sub(HEADERS);
        if payload >= PAYLOAD && payload.is_multiple_of(PAYLOAD) {
            arrivals.extend(std::iter::repeat_n(frame.arrival.0, payload / PAYLOAD));
        }
    }
}
