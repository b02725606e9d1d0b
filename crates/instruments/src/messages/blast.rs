//! `blast`: messages one way; the far end swallows them and sends one byte at the end (document 003).

use std::time::{Duration, Instant};

use anyhow::Result;

use super::client::{Call, FarEnd, incompressible};
use super::sizes::Load;
use super::wire::Request;
use crate::Session;
use netio::stop::Stop;
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::t_interval;

/// Sends between two looks at whether to stop.
const SENDS: u64 = 64;

/// What to send, and how.
#[derive(Clone, Debug)]
pub(crate) struct BlastPlan {
    /// Sizes, each once, and messages of each.
    pub(crate) loads: Vec<Load>,
    /// How often each size is run, on a connection of its own.
    pub(crate) runs: u32,
    /// Nagle's algorithm on (RFC 896).
    pub(crate) nagle: bool,
}

/// Measures from the calling thread's namespace.
pub(crate) fn measure(far: &FarEnd, plan: &BlastPlan, session: &Session) -> Measurement {
    let began = Instant::now();
    let mut measurement = Measurement::default();
    state(plan, &mut measurement);
    for load in &plan.loads {
        let mut elapsed_s = Vec::new();
        for number in 1..=plan.runs {
            match run(far, plan, *load, &session.stop, &mut measurement) {
                Ok(elapsed) => elapsed_s.push(elapsed.as_secs_f64()),
                Err(error) => measurement.failure = Some(format!("{error:#}")),
            }
            let Some(run_s) = elapsed_s.last().filter(|_| measurement.failure.is_none()) else {
                break;
            };
            let at_s = began.elapsed().as_secs_f64();
            let rate = goodput(*load, *run_s);
            let size = load.size as u64;
            measurement.samples.extend([
                Sample::new(at_s, Metric::ElapsedS, number.into(), *run_s).size(size),
                Sample::new(at_s, Metric::GoodputBitPerS, number.into(), rate)
                    .toward(Direction::Up)
                    .size(size),
            ]);
            session.live.line(format_args!(
                "{size} bytes, run {number} of {}: {} messages in {run_s:.6} s, {:.3} Mbit/s",
                plan.runs,
                load.count,
                rate / 1e6
            ));
        }
        measurement.figures.extend(figures(*load, &elapsed_s));
        if measurement.failure.is_some() {
            break;
        }
    }
    measurement
}

fn run(
    far: &FarEnd,
    plan: &BlastPlan,
    load: Load,
    stop: &Stop,
    measurement: &mut Measurement,
) -> Result<Duration> {
    let request = Request::Blast {
        size: load.size,
        count: load.count,
        nagle: plan.nagle,
    };
    let Call {
        channel, segment, ..
    } = far.ask(far.connect(stop)?, &request)?;
    segment.state(measurement);
    let message = incompressible(load.size);
    let start = Instant::now();
    for number in 1..=load.count {
        let sent = channel.send(&message);
        let sent = sent.and_then(|()| {
            if number % SENDS == 0 {
                channel.go_on()
            } else {
                Ok(())
            }
        });
        sent.map_err(|broken| {
            far.blame(
                &format!("message {number} of {} of {} bytes", load.count, load.size),
                broken,
            )
        })?;
    }
    let mut last = [0];
    channel.receive(&mut last).map_err(|broken| {
        far.blame(
            &format!(
                "the byte after {} messages of {} bytes",
                load.count, load.size
            ),
            broken,
        )
    })?;
    Ok(start.elapsed())
}

/// Payload bits a second.
fn goodput(load: Load, elapsed_s: f64) -> f64 {
    load.size as f64 * load.count as f64 * 8.0 / elapsed_s
}

fn figures(load: Load, elapsed_s: &[f64]) -> Vec<Figure> {
    let Some(mean_s) = t_interval::mean(elapsed_s) else {
        return Vec::new();
    };
    let goodputs: Vec<f64> = elapsed_s.iter().map(|&time| goodput(load, time)).collect();
    // Document 003's: the bytes of one run over the mean time of the runs.
    let mut rate = Figure::new(
        Metric::GoodputBitPerS,
        Statistic::Mean,
        goodput(load, mean_s),
    )
    .toward(Direction::Up);
    if let Some([low, high]) = t_interval::mean_interval(&goodputs) {
        rate = rate.within(low.max(0.0), high);
    }
    let sd = t_interval::sample_sd(elapsed_s);
    let sd = sd.map(|sd| Figure::new(Metric::ElapsedS, Statistic::Sd, sd));
    let mean = Figure::new(Metric::ElapsedS, Statistic::Mean, mean_s);
    let figures = [Some(mean), sd, Some(rate)].into_iter().flatten();
    figures
        .map(|figure| figure.size(load.size as u64))
        .collect()
}

fn state(plan: &BlastPlan, measurement: &mut Measurement) {
    let facts = [
        (
            "goodput",
            "payload (L7): iterations x size / elapsed, from the first send to the far end's byte that says it has all",
        ),
        ("messages", "each is one call of send(2), also the smallest"),
        (
            "nagle",
            if plan.nagle {
                "on"
            } else {
                "off (TCP_NODELAY)"
            },
        ),
        (
            "variation",
            "mean absolute deviation of the runs, as document 003 has it; SD is the sample standard deviation (n - 1)",
        ),
        ("interval", "Student's t over the runs' goodputs"),
    ];
    measurement
        .facts
        .extend(facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
