//! `pingpong`: a message there and the same message back, again and again (document 003).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use super::client::{Call, FarEnd, incompressible};
use super::sizes::Load;
use super::wire::{Request, Wait};
use super::{floor, udp_pingpong};
use crate::analysis::student;
use crate::instrument::stop::STOP_INTERVAL;
use crate::instrument::{Direction, Figure, Measurement, Metric, Sample, Session, Statistic, Stop};

/// With more messages than this in all, single round-trip times are kept in a histogram only.
const MOST_SAMPLES: u64 = 20_000;
/// Three digits: 0.1 %.
const DIGITS: u8 = 3;
const LONGEST_RTT: Duration = Duration::from_secs(3600);

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

/// The round-trip times of one run.
pub(super) struct Recorder {
    /// In nanoseconds.
    histogram: Histogram<u64>,
    /// When each answer came and its round-trip time, in seconds; empty when there are too many.
    kept: Vec<(f64, f64)>,
    keep: bool,
    began: Instant,
    sum: Duration,
    answered: u64,
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
            let (sum, answered) = (self.recorder.sum, self.recorder.answered);
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
            let answered = self.recorder.answered - answered;
            if answered > 0 {
                let mean = (self.recorder.sum - sum).as_secs_f64() / answered as f64;
                self.mean_rtt_ms.push(mean * 1e3);
            }
            if let Some(counts) = run.datagrams {
                self.datagrams = Some(self.datagrams.unwrap_or_default().and(counts));
            }
            let at_s = self.recorder.began.elapsed().as_secs_f64();
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
        let kept = self.recorder.kept.iter().zip(1..);
        measurement
            .samples
            .extend(kept.map(|((at_s, rtt_s), index)| {
                Sample::new(*at_s, Metric::RttMs, index, rtt_s * 1e3).size(size)
            }));
        measurement
            .samples
            .sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let mut figures = Vec::new();
        if let Some(mean) = student::mean(&self.elapsed_s) {
            figures.push(Figure::new(Metric::ElapsedS, Statistic::Mean, mean));
        }
        if let Some(sd) = student::sample_sd(&self.elapsed_s) {
            figures.push(Figure::new(Metric::ElapsedS, Statistic::Sd, sd));
        }
        figures.extend(self.mean_rtt(plan, stop, measurement));
        figures.extend(self.recorder.figures());
        figures.extend(
            self.datagrams
                .into_iter()
                .flat_map(|counts| counts.figures()),
        );
        measurement
            .figures
            .extend(figures.into_iter().map(|figure| figure.size(size)));
    }

    /// The mean round-trip time. The network's own lies below by what the hosts add, of which twice the loopback's is
    /// the bound: as much again for a far end, or a load, that is not seen here.
    fn mean_rtt(
        &self,
        plan: &PingpongPlan,
        stop: &Stop,
        measurement: &mut Measurement,
    ) -> Option<Figure> {
        let mean = student::mean(&self.mean_rtt_ms)?;
        let figure = Figure::new(Metric::RttMs, Statistic::Mean, mean);
        let Some([low, high]) = student::mean_interval(&self.mean_rtt_ms) else {
            return Some(figure);
        };
        match floor::measure(self.load.size, plan.wait, stop) {
            Ok(floor) => {
                let hosts = 2.0 * floor.as_secs_f64() * 1e3;
                Some(figure.within((low - hosts).max(0.0), high))
            }
            Err(error) => {
                let cause = format!("none: no loopback to estimate the hosts' part on: {error:#}");
                measurement.facts.insert("interval".to_owned(), cause);
                Some(figure)
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

impl Recorder {
    fn new(keep: bool, began: Instant) -> Self {
        let longest = u64::try_from(LONGEST_RTT.as_nanos()).unwrap_or(u64::MAX);
        Self {
            histogram: Histogram::new_with_bounds(1, longest, DIGITS).expect("bounds in order"),
            kept: Vec::new(),
            keep,
            began,
            sum: Duration::ZERO,
            answered: 0,
        }
    }

    /// One message's answer came at `now`.
    pub(super) fn add(&mut self, rtt: Duration, now: Instant) {
        self.sum += rtt;
        self.answered += 1;
        self.histogram
            .saturating_record(u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX));
        if self.keep {
            let at = now - self.began;
            self.kept.push((at.as_secs_f64(), rtt.as_secs_f64()));
        }
    }

    fn figures(&self) -> Vec<Figure> {
        if self.histogram.is_empty() {
            return Vec::new();
        }
        let quantile = |q| self.histogram.value_at_quantile(q);
        [
            (Statistic::Min, self.histogram.min()),
            (Statistic::Median, quantile(0.5)),
            (Statistic::P99, quantile(0.99)),
            (Statistic::Max, self.histogram.max()),
        ]
        .map(|(statistic, nanos)| Figure::new(Metric::RttMs, statistic, nanos as f64 / 1e6))
        .into()
    }
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
         histogram of 0.1 %"
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
            "of the mean: Student's t over the runs; its lower end less twice the mean over loopback, which bounds the hosts' part".to_owned(),
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
