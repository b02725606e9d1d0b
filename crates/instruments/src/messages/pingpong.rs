//! `pingpong`: a message there and the same message back, again and again (document 003).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::client::{Call, FarEnd, incompressible};
use super::recorder::{Recorder, network};
use super::sizes::Load;
use super::wire::{Request, Wait};
use super::{floor, udp_pingpong};
use crate::Session;
use netio::stop::STOP_INTERVAL;
use netio::stop::Stop;
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::t_interval;

/// With more messages than this in all, single round-trip times are kept in a histogram only.
const MOST_SAMPLES: u64 = 20_000;

/// What to exchange, and how.
#[derive(Clone, Debug)]
pub(crate) struct PingpongPlan {
    /// Sizes, each once, and messages of each.
    pub(crate) loads: Vec<Load>,
    /// How often each size is run, on a connection of its own.
    pub(crate) runs: u32,
    /// How both ends wait for a message.
    pub(crate) wait: Wait,
    /// Nagle's algorithm on, at both ends (RFC 896).
    pub(crate) nagle: bool,
    /// Over UDP, with this time-out of a message; else over TCP.
    pub(crate) udp: Option<Duration>,
}

/// How one run went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// From the first message sent to the last answer, or its time-out.
    pub(super) elapsed: Duration,
    /// Of UDP.
    pub(super) datagrams: Option<udp_pingpong::Counts>,
}

/// Measures from the calling thread's namespace.
pub(crate) fn measure(far: &FarEnd, plan: &PingpongPlan, session: &Session) -> Measurement {
    let began = Instant::now();
    let mut measurement = Measurement::default();
    let messages: u64 = plan.loads.iter().map(|load| load.count).sum();
    let keep = messages * u64::from(plan.runs) <= MOST_SAMPLES;
    state(plan, keep, &mut measurement);
    for load in &plan.loads {
        let mut size = OfSize::new(*load, keep, began);
        let outcome = size.measure(far, plan, session, &mut measurement);
        size.finish(plan, &session.stop, &mut measurement);
        if let Err(error) = outcome {
            measurement.failure = Some(format!("{error:#}"));
            break;
        }
    }
    let by_time = |a: &Sample, b: &Sample| a.at_s.total_cmp(&b.at_s);
    measurement.samples.sort_by(by_time);
    measurement
}

/// All runs of one size.
struct OfSize {
    load: Load,
    recorder: Recorder,
    /// Of the runs that were completed.
    elapsed_s: Vec<f64>,
    mean_rtt_ms: Vec<f64>,
    datagrams: Option<udp_pingpong::Counts>,
}

impl OfSize {
    fn new(load: Load, keep: bool, began: Instant) -> Self {
        Self {
            load,
            recorder: Recorder::new(keep, began),
            elapsed_s: Vec::new(),
            mean_rtt_ms: Vec::new(),
            datagrams: None,
        }
    }

    fn measure(
        &mut self,
        far: &FarEnd,
        plan: &PingpongPlan,
        session: &Session,
        measurement: &mut Measurement,
    ) -> Result<()> {
        for number in 1..=plan.runs {
            let (sum_before, before) = self.recorder.sum();
            let run = match plan.udp {
                Some(timeout) => udp_pingpong::run(
                    far,
                    plan,
                    self.load,
                    timeout,
                    &session.stop,
                    &mut self.recorder,
                    measurement,
                ),
                None => run(
                    far,
                    plan,
                    self.load,
                    &session.stop,
                    &mut self.recorder,
                    measurement,
                ),
            }?;
            self.elapsed_s.push(run.elapsed.as_secs_f64());
            let (sum, after) = self.recorder.sum();
            if after > before {
                let mean = (sum - sum_before).as_secs_f64() / (after - before) as f64;
                self.mean_rtt_ms.push(mean * 1e3);
            }
            if let Some(counts) = run.datagrams {
                self.datagrams = Some(self.datagrams.unwrap_or_default().and(counts));
            }
            let at_s = self.recorder.now_s();
            let (number, elapsed_s) = (u64::from(number), run.elapsed.as_secs_f64());
            measurement.samples.push(
                Sample::new(at_s, Metric::ElapsedS, number, elapsed_s).size(self.load.size as u64),
            );
            session.live.line(format_args!(
                "{} bytes, run {number} of {}: {} messages in {elapsed_s:.6} s",
                self.load.size, plan.runs, self.load.count
            ));
        }
        Ok(())
    }

    fn finish(self, plan: &PingpongPlan, stop: &Stop, measurement: &mut Measurement) {
        let size = self.load.size as u64;
        let kept = self.recorder.samples();
        measurement
            .samples
            .extend(kept.map(|sample| sample.size(size)));
        let mut figures = Vec::new();
        if let Some(mean) = t_interval::mean(&self.elapsed_s) {
            figures.push(Figure::new(Metric::ElapsedS, Statistic::Mean, mean));
        }
        if let Some(sd) = t_interval::sample_sd(&self.elapsed_s) {
            figures.push(Figure::new(Metric::ElapsedS, Statistic::Sd, sd));
        }
        let hosts_ms = self.hosts_ms(plan, stop, measurement);
        if let Some(mean) = t_interval::mean(&self.mean_rtt_ms) {
            let mean = Figure::new(Metric::RttMs, Statistic::Mean, mean);
            let interval = t_interval::mean_interval(&self.mean_rtt_ms);
            figures.push(network(mean, interval, hosts_ms));
        }
        figures.extend(self.recorder.figures(hosts_ms));
        figures.extend(
            self.datagrams
                .into_iter()
                .flat_map(|counts| counts.figures()),
        );
        measurement
            .figures
            .extend(figures.into_iter().map(|figure| figure.size(size)));
    }

    /// What the hosts add to a round-trip time at most: twice the loopback's, as much again for a far end, or a load,
    /// that is not seen here.
    fn hosts_ms(
        &self,
        plan: &PingpongPlan,
        stop: &Stop,
        measurement: &mut Measurement,
    ) -> Option<f64> {
        let pause = self.recorder.median();
        match floor::measure(self.load.size, plan.wait, pause, stop) {
            Ok(floor) => Some(2.0 * floor.as_secs_f64() * 1e3),
            Err(error) => {
                let cause = format!("none: no loopback to estimate the hosts' part on: {error:#}");
                measurement.facts.insert("interval".to_owned(), cause);
                None
            }
        }
    }
}

fn run(
    far: &FarEnd,
    plan: &PingpongPlan,
    load: Load,
    stop: &Stop,
    recorder: &mut Recorder,
    measurement: &mut Measurement,
) -> Result<Run> {
    let request = Request::Pingpong {
        size: load.size,
        count: load.count,
        wait: plan.wait,
        nagle: plan.nagle,
        udp: None,
    };
    let Call {
        mut channel,
        grant,
        segment,
    } = far.ask(far.connect(stop)?, &request)?;
    segment.state(measurement);
    state_wait(plan.wait, grant.wait, measurement);
    channel.wait = plan.wait;
    let message = incompressible(load.size);
    let mut answer = vec![0; load.size];
    let start = Instant::now();
    let (mut before, mut looked) = (start, start);
    for number in 1..=load.count {
        let exchanged = channel
            .send(&message)
            .and_then(|()| channel.receive(&mut answer));
        let after = Instant::now();
        exchanged.map_err(|broken| {
            far.blame(
                &format!("message {number} of {} of {} bytes", load.count, load.size),
                broken,
            )
        })?;
        recorder.add(after - before, after);
        before = after;
        if after - looked >= STOP_INTERVAL {
            looked = after;
            channel.go_on().map_err(|broken| far.blame("", broken))?;
        }
    }
    ensure!(
        answer == message,
        "{} sends back other bytes than it got",
        far.address
    );
    Ok(Run {
        elapsed: before - start,
        datagrams: None,
    })
}

fn state(plan: &PingpongPlan, keep: bool, measurement: &mut Measurement) {
    let transport = match plan.udp {
        None => "TCP: from handing the message to the kernel to having read the whole of it back"
            .to_owned(),
        Some(timeout) => format!(
            "UDP: one message at a time; lost without an answer within {} s, and the next one follows; \
             means are of answered messages",
            timeout.as_secs_f64()
        ),
    };
    let kept = if keep {
        "every message's round-trip time is a sample"
    } else {
        "more than 20000 messages: the times of the runs are samples, those of single messages were kept in a \
         histogram of 0.01 %"
    };
    let facts = [
        ("rtt", format!("{transport}; user space, both hosts included")),
        ("samples", kept.to_owned()),
        ("nagle", if plan.nagle { "on, at both ends" } else { "off (TCP_NODELAY), at both ends" }.to_owned()),
        (
            "variation",
            "mean absolute deviation of the runs, as document 003 has it; SD is the sample standard deviation (n - 1)".to_owned(),
        ),
        (
            "interval",
            "of the mean: Student's t over the runs; of the median: order statistics of all messages; their lower ends \
             less twice the mean over loopback, which bounds the hosts' part; of loss: Wilson's".to_owned(),
        ),
    ];
    measurement
        .facts
        .extend(facts.map(|(name, value)| (name.to_owned(), value)));
}

/// States how both ends wait.
pub(super) fn state_wait(asked: Wait, granted: Wait, measurement: &mut Measurement) {
    let far = if asked == granted {
        String::new()
    } else {
        format!("; the far end has no core to spare: {granted}")
    };
    measurement
        .facts
        .insert("wait".to_owned(), format!("{asked}{far}"));
}

/// A figure of messages that went one way.
pub(super) fn one_way(metric: Metric, way: Direction, value: f64) -> Figure {
    Figure::new(metric, Statistic::Total, value).toward(way)
}
