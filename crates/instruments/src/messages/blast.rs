//! `blast`: messages in one direction. The far end discards them and sends one byte at the end, as nettest does
//! ("Experiment on Oct 10").

use crate::error::Result;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::args::{ConnectionArgs, Messages};
use super::client::{MessageTarget, incompressible};
use super::round_trips::{
    GOODPUT_INTERVAL, LONGEST_PAUSE, goodput_interval, hosts_of_a_run, overhead_takes_s,
};
use super::sizes::{MessageLoad, Sweep};
use super::wire::Mode;
use super::{VARIATION, elapsed, elapsed_figures, nagle_in_words};
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, estimated};
use crate::messages::tables;
use crate::messages::wire::DEFAULT_PORT;
use crate::{Session, measured};
use netio::stop::Stop;
use record::Statistic::Mean;
use record::lateness::Traffic;
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::profile::InstrumentProfile;
use record::quantity::counted;
use record::table::Table;
use record::{Direction, Figure, Measurement, Metric, Sample};
use stats::t_interval;

/// Measure the throughput of messages in one direction, as nettest did
///
/// Each message is one send call. The far end discards the messages, and sends one byte at the end.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct BlastArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) connection: ConnectionArgs,
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) messages: Messages,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

impl Instrument for BlastArgs {
    fn profile(&self) -> InstrumentProfile {
        self.connection.profile(&metrics())
    }

    fn metrics(&self) -> Result<MetricTable> {
        let loads = self.messages.loads(Sweep::blast)?;
        let sizes: Vec<u64> = loads.iter().map(|load| load.size as u64).collect();
        Ok(metrics().of_sizes(&sizes))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Tcp(Some(DEFAULT_PORT))]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.connection.set_far_end(far_end);
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let (pace, loads) = (pace?, self.messages.loads(Sweep::blast).ok()?);
        let of_load = |load: &MessageLoad| {
            let bytes = load.count.saturating_mul(load.size as u64);
            let stream_s = pace.stream_s(Direction::Up, bytes);
            // A run also takes the round trips of the connection and of the far end's final byte.
            let asked_s = 2.0 * pace.round_trip_s(0, 0);
            stream_s.max(load.count as f64 * SEND_S) + asked_s
        };
        let runs_s: f64 = loads.iter().map(of_load).sum();
        let hosts_s = overhead_takes_s(LONGEST_PAUSE.as_secs_f64());
        Some(estimated(
            f64::from(self.connection.runs) * runs_s + hosts_s,
        ))
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let far = self.connection.far_end(&self.common).or_bad_input()?;
        Ok(measure(&far, self, session).into())
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        let sizes = self.messages.loads(Sweep::blast).or_bad_input()?;
        Ok(Some(tables::blast_table(measurement, &sizes)))
    }
}

fn metrics() -> MetricTable {
    MetricTable::new([
        MetricRow::mean(Metric::GoodputBitPerS)
            .headline()
            .toward(&[Direction::Up]),
        elapsed(),
    ])
}

/// The approximate duration of a send call in seconds.
const SEND_S: f64 = 0.5e-6;
/// The number of sends between two checks of the stop.
const SENDS: u64 = 64;

/// Measures from the calling thread's network namespace.
pub(crate) fn measure(far: &MessageTarget, plan: &BlastArgs, session: &Session) -> Measurement {
    let began = Instant::now();
    let loads = match plan.messages.loads(Sweep::blast) {
        Ok(loads) => loads,
        Err(error) => return measured::failed(error),
    };
    let runs = plan.connection.runs;
    let mut measurement = with_facts(plan);
    let hosts_s = hosts_of_a_run(&session.stop).ok();
    let outcome = loads.iter().try_for_each(|load| {
        let mut elapsed_s = Vec::new();
        let outcome = (1..=runs).try_for_each(|number| {
            let run_s = run(far, plan, *load, &session.stop, &mut measurement)?.as_secs_f64();
            elapsed_s.push(run_s);
            let at_s = began.elapsed().as_secs_f64();
            let rate = goodput(*load, run_s);
            let MessageLoad { size, count } = *load;
            let elapsed = Sample::new(at_s, Metric::ElapsedS, number.into(), run_s);
            let goodput = Sample::new(at_s, Metric::GoodputBitPerS, number.into(), rate);
            let samples = [elapsed, goodput.toward(Direction::Up)];
            measurement
                .samples
                .extend(samples.map(|sample| sample.size(size as u64)));
            session.live.line(format_args!(
                "{}, run {number} of {runs}: {} in {run_s:.6} s, {:.3} Mbit/s",
                counted(size, "byte"),
                counted(count, "message"),
                rate / 1e6
            ));
            Ok(())
        });
        measurement
            .figures
            .extend(figures(*load, &elapsed_s, hosts_s));
        outcome
    });
    measurement.failure = measured::failure(outcome);
    measurement
}

/// Runs once, and returns the time from the first send to the byte with which the far end confirms that it has
/// everything.
fn run(
    far: &MessageTarget,
    plan: &BlastArgs,
    load: MessageLoad,
    stop: &Stop,
    measurement: &mut Measurement,
) -> Result<Duration> {
    let MessageLoad { size, count } = load;
    let mode = Mode::Blast { size, count };
    let (stream, _) = far.request(mode, plan.connection.nagle, stop, measurement)?;
    let message = incompressible(size);
    let start = Instant::now();
    for number in 1..=count {
        let mut sent = stream.send(&message);
        if number % SENDS == 0 {
            sent = sent.and_then(|()| stream.check_stop());
        }
        sent.map_err(|broken| far.error_at(&load.message(number), broken))?;
    }
    let last = stream.receive(&mut [0]);
    last.map_err(|broken| {
        let doing = format!("the byte after {count} messages of {size} bytes");
        far.error_at(&doing, broken)
    })?;
    Ok(start.elapsed())
}

/// Returns the goodput in payload bits per second.
fn goodput(load: MessageLoad, elapsed_s: f64) -> f64 {
    load.size as f64 * load.count as f64 * 8.0 / elapsed_s
}

fn figures(load: MessageLoad, elapsed_s: &[f64], hosts_s: Option<f64>) -> Vec<Figure> {
    let Some(mean_s) = t_interval::mean(elapsed_s) else {
        return Vec::new();
    };
    let goodputs: Vec<f64> = elapsed_s.iter().map(|&time| goodput(load, time)).collect();
    let goodput = (Metric::GoodputBitPerS, Mean, Some(goodput(load, mean_s)));
    // As in nettest, the goodput is the bytes of one run divided by the mean time of the runs.
    let bytes = load.size as f64 * load.count as f64;
    let interval = goodput_interval(&goodputs, bytes, hosts_s);
    let rate = measured::figures(Some(Direction::Up), [goodput])
        .map(|figure| Figure { interval, ..figure });
    elapsed_figures(elapsed_s)
        .chain(rate)
        .map(|figure| figure.size(load.size as u64))
        .collect()
}

/// Returns an empty measurement with the facts that explain its figures.
fn with_facts(plan: &BlastArgs) -> Measurement {
    Measurement::default()
        .with_fact(
            "goodput",
            "payload (L7): iterations x size / elapsed, from the first send to the far end's byte that confirms all of it",
        )
        .with_fact("messages", "each is one call of send(2), even the smallest")
        .with_fact("nagle", nagle_in_words(plan.connection.nagle))
        .with_fact("variation", VARIATION)
        .with_fact("interval", GOODPUT_INTERVAL)
}
