//! A rate is the traffic that leaves, counted at the far end's interface.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::Nanos;
use netio::bed::{Bed, BedConfig, SERVER, WAN};
use netio::clock;

use super::tcp::Offload;
use test_support::counters::InterfaceCounters;
use test_support::datagrams::Flow;
use test_support::is_soak;
use test_support::stream::Transfer;
use test_support::suite::{Need, Suite};
use test_support::wan_box::WanBox;

/// Rates, as they are written and in bit/s, counted as tc does: L2 without FCS.
const RATES: [(&str, u64); 4] = [
    ("1mbit", 1_000_000),
    ("10mbit", 10_000_000),
    ("100mbit", 100_000_000),
    ("1gbit", 1_000_000_000),
];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (name, rate) in RATES {
        let own = if name == "1gbit" {
            Some(Need::Soak)
        } else {
            None
        };
        let needs: Vec<Need> = [Need::Namespaces].into_iter().chain(own).collect();
        suite.serial(
            format!("udp above --rate {name} leaves at that rate"),
            &needs,
            move || udp_leaves_at(name, rate),
        );
        suite.serial(
            format!("tcp reaches 95 % of what --rate {name} allows"),
            &[Need::Namespaces, Need::Soak],
            move || tcp_reaches(name, rate),
        );
    }
}

/// The L2 bytes of a full packet of MTU 1500.
const FULL: u64 = 1514;

fn udp_leaves_at(name: &str, rate: u64) -> Result<()> {
    // Both times are in milliseconds.
    let (warm_up, measured) = if is_soak() {
        (1000, 10_000)
    } else {
        (500, 2000)
    };
    let in_all = (warm_up + measured) * rate / 8000 * 11 / 10;
    // All datagrams wait in the queue from the start, so that it never runs empty. If that is too much to hold, a quarter of a
    // second of them waits.
    let queue = if is_soak() { rate / 32 } else { in_all } / FULL + 10;
    // The emulator's port splits GSO frames, so that the far interface counts each packet with its headers.
    let bed = Offload::AtTheEnds.bed(1500)?;
    let wan = WanBox::start(&bed, &format!("--rate {name} --queue {queue}pkt"))?;
    let flow = Flow {
        to: SERVER.v4.into(),
        bytes: in_all,
        size: Some(1472),
        batch: 20,
        // There are twice as many on their way as the queue has room for, so it always overflows.
        window: 2 * queue + 40,
        pinned: false,
        pause: Duration::ZERO,
    };
    let samples = samples_during(&bed, || flow.run(bed.client(), bed.server()).map(drop))?;
    let summary = wan.stop()?;
    ensure!(
        summary.up.queue_full() > 0,
        "not more was offered than {name}: {summary:?}"
    );
    let slope = slope(
        &samples,
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

/// The byte counter of the far interface at a moment.
struct Sample {
    at: Nanos,
    bytes: u64,
}

/// Reads the far interface's counter about once a millisecond while `work` runs.
fn samples_during(bed: &Bed, work: impl FnOnce() -> Result<()> + Send) -> Result<Vec<Sample>> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut samples = Vec::new();
        bed.server().run(|| -> Result<()> {
            while !working.is_finished() {
                let at = clock::now();
                let bytes = InterfaceCounters::here(WAN)?.receive_bytes;
                // A reading that was interrupted belongs to no moment.
                if clock::now().0 - at.0 < 200_000 {
                    samples.push(Sample { at, bytes });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })??;
        working.join().expect("the work does not panic")?;
        Ok(samples)
    })
}

/// Returns bits a second, by the line that best fits the received bytes over `measured` after `warm_up`, so that a single late packet
/// at either end does not decide the rate.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and nanoseconds of seconds are far below 2^52"
)]
fn slope(samples: &[Sample], warm_up: Duration, measured: Duration) -> Result<f64> {
    let began = samples.iter().find(|sample| sample.bytes >= FULL);
    let began = began.context("nothing arrived")?.at;
    let since = |sample: &Sample| Duration::from_nanos(sample.at.0.saturating_sub(began.0));
    let points: Vec<(f64, f64)> = samples
        .iter()
        .filter(|sample| (warm_up..warm_up + measured).contains(&since(sample)))
        .map(|sample| (since(sample).as_secs_f64(), (sample.bytes * 8) as f64))
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
    // With timestamps, 1,448 of 1,514 bytes are payload.
    let allowed = rate as f64 * 1448.0 / 1514.0;
    let goodput = transfer.bytes as f64 * 8.0 / took.as_secs_f64();
    let share = goodput / allowed;
    ensure!(
        share >= 0.95,
        "goodput {goodput:.0} of {allowed:.0} bit/s: {share:.3}"
    );
    Ok(())
}
