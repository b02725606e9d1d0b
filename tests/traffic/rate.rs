//! A rate is what leaves, counted at the far end's interface and timed by the kernel's arrival stamps.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig, SERVER, WAN};

use crate::common::capture::{Capture, Seen};
use crate::common::counters::InterfaceCounters;
use crate::common::datagrams::Flow;
use crate::common::is_soak;
use crate::common::stream::Transfer;
use crate::common::suite::{Need, Suite};
use crate::common::wan_box::WanBox;

/// Rates in bit/s, as they are written, and as tc counts them: L2 without FCS.
const RATES: [(&str, u64); 4] = [
    ("1mbit", 1_000_000),
    ("10mbit", 10_000_000),
    ("100mbit", 100_000_000),
    ("1gbit", 1_000_000_000),
];

pub(crate) fn add(suite: &mut Suite) {
    for (name, rate) in RATES {
        let own = if name == "1gbit" {
            Some(Need::Soak)
        } else {
            None
        };
        let needs: Vec<Need> = [Need::Namespaces].into_iter().chain(own).collect();
        suite.test(
            format!("udp above --rate {name} leaves at that rate"),
            &needs,
            move || udp_leaves_at(name, rate),
        );
        suite.test(
            format!("tcp reaches 95 % of what --rate {name} allows"),
            &[Need::Namespaces, Need::Soak],
            move || tcp_reaches(name, rate),
        );
    }
}

/// L2 bytes of a full packet of MTU 1500.
const FULL: u64 = 1514;

fn udp_leaves_at(name: &str, rate: u64) -> Result<()> {
    // In milliseconds.
    let (warm_up, measured) = if is_soak() {
        (1000, 10_000)
    } else {
        (500, 2000)
    };
    let packets_a_second = rate / 8 / FULL;
    // Always twice as many on their way as the queue has room for: it is never empty and always overflows.
    let queue = packets_a_second / 4 + 10;
    let in_all = (warm_up + measured) * rate / 8000 * 11 / 10;
    // Each end makes its own packets, so that the interface counts each with its headers.
    let bed = Bed::build(&BedConfig {
        offloads: false,
        ..BedConfig::default()
    })?;
    let wan = WanBox::start(&bed, &format!("--rate {name} --queue {queue}pkt"))?;
    let capture = Capture::start(bed.server(), WAN)?;
    let flow = Flow {
        to: SERVER.v4.into(),
        bytes: in_all,
        size: Some(1472),
        batch: 1,
        window: 2 * queue,
    };
    flow.run(bed.client(), bed.server())?;
    let summary = wan.stop()?;
    let counted = InterfaceCounters::of(bed.server(), WAN)?;
    let seen = capture.finish()?;
    ensure!(
        summary.up.queue_full > 0,
        "not more was offered than {name}"
    );
    let bytes: u64 = seen.iter().map(|frame| frame.len as u64).sum();
    ensure!(
        (bytes, seen.len() as u64) == (counted.receive_bytes, counted.receive_frames),
        "the capture has {bytes} bytes, the interface {counted:?}"
    );
    let slope = slope(
        &seen,
        Duration::from_millis(warm_up),
        Duration::from_millis(measured),
    )?;
    #[expect(clippy::cast_precision_loss, reason = "a rate is far below 2^52")]
    let error = slope / rate as f64 - 1.0;
    ensure!(
        error.abs() < 0.005,
        "{slope:.0} bit/s, {:.3} % off {name}",
        error * 100.0
    );
    Ok(())
}

/// Bits a second, by the line that fits the bytes received best over `measured` after `warm_up`; so one late
/// packet at either end does not make a rate.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and nanoseconds of seconds are far below 2^52"
)]
fn slope(seen: &[Seen], warm_up: Duration, measured: Duration) -> Result<f64> {
    let full: Vec<&Seen> = seen
        .iter()
        .filter(|frame| frame.len as u64 == FULL)
        .collect();
    let first = full.first().context("nothing arrived")?.at;
    let since = |frame: &Seen| Duration::from_nanos(frame.at.0 - first.0);
    let points: Vec<(f64, f64)> = full
        .iter()
        .enumerate()
        .filter(|(_, frame)| (warm_up..warm_up + measured).contains(&since(frame)))
        .map(|(n, frame)| (since(frame).as_secs_f64(), (n as u64 * FULL * 8) as f64))
        .collect();
    let spans = points.last().context("nothing after the warm-up")?.0 - points[0].0;
    ensure!(
        spans > measured.as_secs_f64() * 0.9,
        "packets for {spans} of {measured:?} only"
    );
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (time, bits) = (mean(|p| p.0), mean(|p| p.1));
    let together: f64 = points.iter().map(|p| (p.0 - time) * (p.1 - bits)).sum();
    let alone: f64 = points.iter().map(|p| (p.0 - time).powi(2)).sum();
    Ok(together / alone)
}

#[expect(clippy::cast_precision_loss, reason = "a rate is far below 2^52")]
fn tcp_reaches(name: &str, rate: u64) -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, &format!("--rate {name} --delay 1ms"))?;
    let transfer = Transfer {
        bytes: rate / 8 * 10 / 8 * 8,
        to: SERVER.v4.into(),
        seed: 3,
    };
    let took = transfer.run(bed.client(), bed.server())?;
    drop(wan.stop()?);
    // With timestamps 1,448 bytes of 1,514 are payload.
    let allowed = rate as f64 * 1448.0 / 1514.0;
    let goodput = transfer.bytes as f64 * 8.0 / took.as_secs_f64();
    let share = goodput / allowed;
    ensure!(
        share >= 0.95,
        "goodput {goodput:.0} of {allowed:.0} bit/s: {share:.3}"
    );
    Ok(())
}
