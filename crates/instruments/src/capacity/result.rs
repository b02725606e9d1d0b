//! What a test found, as samples, figures and facts.

use std::net::SocketAddr;

use super::exchange::{End, Outcome};
use super::wire::{Sizes, SubInterval, TestParameters, Version};
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::layers::{ETHERNET_HEADER, UDP_HEADER, WIRE, ip_header};

/// By how much a sub-interval's ends may be off: kernel stamps here, the far end's wake-ups there.
const EDGES_HERE_S: f64 = 0.000_2;
const EDGES_THERE_S: f64 = 0.001;
/// The protocol's times are whole milliseconds: a round trip is the difference of two.
const ROUNDING_MS: f64 = 1.0;

/// What a test was.
pub(crate) struct Context {
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// Which way the load went.
    pub(crate) direction: Direction,
    /// As agreed upon.
    pub(crate) version: Version,
    /// As agreed upon.
    pub(crate) sizes: Sizes,
    /// As agreed upon.
    pub(crate) parameters: TestParameters,
    /// Whether this is the server's end.
    pub(crate) server: bool,
}

/// Samples, figures and facts of a test.
pub(crate) fn measurement(outcome: &Outcome, context: &Context) -> Measurement {
    let mut measurement = Measurement {
        samples: samples(outcome, context),
        ..Measurement::default()
    };
    let best = outcome.sub_intervals.iter().map(|whole| &whole.counted);
    let rate = |s: &&SubInterval| context.l3_bit_per_s(s);
    let best = best.max_by(|a, b| rate(a).total_cmp(&rate(b)));
    if let Some(best) = best.filter(|best| best.datagrams > 0) {
        measurement.figures.extend(capacity(best, context));
    }
    measurement.figures.extend(packets(outcome, context));
    measurement.figures.extend(delays(outcome, context));
    measurement.facts = facts(outcome, context);
    measurement.failure = match &outcome.end {
        End::Complete if best.is_none() => Some(format!(
            "{}: no whole sub-interval of load was fed back",
            context.peer
        )),
        End::Complete => None,
        End::Stopped(cause) => Some(cause.clone()),
        end => Some(format!("{} {end}", context.peer)),
    };
    measurement
}

impl Context {
    /// The L3 rate of a sub-interval, in bit/s.
    pub(crate) fn l3_bit_per_s(&self, sub_interval: &SubInterval) -> f64 {
        self.rate(sub_interval, self.l3_header())
    }

    fn rate(&self, sub_interval: &SubInterval, header: u32) -> f64 {
        let bytes =
            sub_interval.bytes as f64 + f64::from(sub_interval.datagrams) * f64::from(header);
        per_second(bytes, sub_interval.span_us)
    }

    fn l3_header(&self) -> u32 {
        UDP_HEADER + ip_header(self.peer.ip().to_canonical().is_ipv6())
    }

    fn receives_here(&self) -> bool {
        (self.direction == Direction::Down) != self.server
    }
}

fn per_second(bytes: f64, span_us: u32) -> f64 {
    if span_us == 0 {
        return 0.0;
    }
    bytes * 8e6 / f64::from(span_us)
}

/// The capacity, and the same second's rate at the other layers.
fn capacity(best: &SubInterval, context: &Context) -> Vec<Figure> {
    let edges = if context.receives_here() {
        EDGES_HERE_S
    } else {
        EDGES_THERE_S
    };
    let off = 1.0 / f64::from(best.datagrams) + edges * 1e6 / f64::from(best.span_us.max(1));
    let l3 = context.l3_header();
    // No load PDU is so short that Ethernet pads it.
    [
        (Metric::IpCapacityBitPerS, l3),
        (Metric::L2RateBitPerS, l3 + ETHERNET_HEADER),
        (Metric::L1RateBitPerS, l3 + ETHERNET_HEADER + WIRE),
        (Metric::GoodputBitPerS, 0),
    ]
    .map(|(metric, header)| {
        let value = context.rate(best, header);
        Figure::new(metric, Statistic::Max, value)
            .toward(context.direction)
            .within(value * (1.0 - off), value * (1.0 + off))
    })
    .to_vec()
}

/// Load that came, and what became of the rest.
fn packets(outcome: &Outcome, context: &Context) -> Vec<Figure> {
    let sum = |of: fn(&SubInterval) -> u32| {
        let numbers = outcome.sub_intervals.iter().map(|whole| of(&whole.counted));
        numbers.map(f64::from).sum::<f64>()
    };
    let (sent, received, reordered, duplicated) = match outcome.totals {
        Some(totals) => (
            f64::from(totals.highest),
            totals.distinct as f64,
            totals.reordered as f64,
            totals.duplicated as f64,
        ),
        // Each is in twenty feedback messages, where a trial interval is in one, which may be lost.
        None => {
            let duplicated = sum(|s| s.duplicated);
            let received = sum(|s| s.datagrams) - duplicated;
            (
                received + sum(|s| s.lost),
                received,
                sum(|s| s.reordered),
                duplicated,
            )
        }
    };
    if sent == 0.0 {
        return Vec::new();
    }
    let total =
        |metric, value| Figure::new(metric, Statistic::Total, value).toward(context.direction);
    let mut figures = vec![
        total(Metric::ReceivedPackets, received),
        total(Metric::ReorderedPackets, reordered),
        total(Metric::DuplicatePackets, duplicated),
    ];
    if outcome.host_drops == 0 {
        let lost = (sent - received).max(0.0);
        figures.push(total(Metric::LostPackets, lost));
        figures.push(
            Figure::new(Metric::LostPercent, Statistic::Mean, lost / sent * 100.0)
                .toward(context.direction),
        );
    } else {
        figures.push(total(Metric::HostDroppedPackets, outcome.host_drops.into()));
    }
    figures
}

fn delays(outcome: &Outcome, context: &Context) -> Vec<Figure> {
    let mut figures = Vec::new();
    let delays = &outcome.delays;
    let rtts = [
        (Statistic::Min, delays.rtt_min),
        (Statistic::Max, delays.rtt_max),
    ];
    for (statistic, value) in rtts {
        figures.extend(value.map(f64::from).map(|ms| {
            Figure::new(Metric::RttMs, statistic, ms)
                .within((ms - ROUNDING_MS).max(0.0), ms + ROUNDING_MS)
        }));
    }
    let variation = delays.variation.into_iter().flatten();
    for (statistic, ms) in [Statistic::Min, Statistic::Max].into_iter().zip(variation) {
        let ms = f64::from(ms);
        figures.push(
            Figure::new(Metric::PdvMs, statistic, ms)
                .toward(context.direction)
                .within((ms - ROUNDING_MS).max(0.0), ms + ROUNDING_MS),
        );
    }
    figures
}

/// The trace: each trial interval, and each sub-interval.
fn samples(outcome: &Outcome, context: &Context) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (trial, index) in outcome.trials.iter().zip(1..) {
        let status = &trial.status;
        let l3 = f64::from(status.trial_bytes)
            + f64::from(status.trial_datagrams) * f64::from(context.l3_header());
        let rate = (status.trial_us > 0).then(|| per_second(l3, status.trial_us));
        let delay = status.delay_mean_ms().map(f64::from);
        let values = [
            (Metric::L3RateBitPerS, rate),
            (Metric::LostPackets, Some(f64::from(status.lost))),
            (Metric::PdvMs, delay),
            (Metric::RttMs, status.rtt_ms().map(f64::from)),
            (Metric::RateRow, trial.row.map(|row| row as f64)),
            (Metric::SendingRateBitPerS, Some(trial.l3_bit_per_s)),
        ];
        let at_s = trial.at.as_secs_f64();
        samples.extend(values.into_iter().filter_map(|(metric, value)| {
            let sample = Sample::new(at_s, metric, index, value?);
            Some(if metric == Metric::RttMs {
                sample
            } else {
                sample.toward(context.direction)
            })
        }));
    }
    for (whole, index) in outcome.sub_intervals.iter().zip(1..) {
        let l3 = context.l3_bit_per_s(&whole.counted);
        let values = [
            (Metric::IpCapacityBitPerS, Some(l3)),
            (
                Metric::ElapsedS,
                Some(f64::from(whole.counted.span_us) / 1e6),
            ),
            (Metric::EndedS, whole.ended.map(|ended| ended as f64 / 1e9)),
        ];
        let of = |metric, value| Sample::new(whole.at.as_secs_f64(), metric, index, value);
        samples.extend(
            values
                .into_iter()
                .filter_map(|(metric, value)| Some(of(metric, value?).toward(context.direction))),
        );
    }
    samples.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    samples
}

fn facts(outcome: &Outcome, context: &Context) -> std::collections::BTreeMap<String, String> {
    let p = &context.parameters;
    let mut facts: Vec<(&str, String)> = vec![
        (
            "protocol",
            format!(
                "UDP Speed Test Protocol (RFC 9946) version {}, unauthenticated, with {}",
                context.version.number(),
                context.peer
            ),
        ),
        (
            "capacity",
            format!(
                "maximum IP-layer capacity (RFC 9097): L3 bits received in the best of {} sub-intervals of {} ms in {} s",
                outcome.sub_intervals.len(),
                p.sub_interval_ms,
                p.duration_s
            ),
        ),
        (
            "search",
            format!(
                "algorithm {}, sequence errors above {} a feedback or a round trip more than {} ms above its least are congestion, below {} ms is clean, a feedback each {} ms, fast step {} rows, slow after {} congested",
                if p.algorithm == 1 { "C" } else { "B" },
                p.sequence_errors,
                p.upper_ms,
                p.low_ms,
                p.feedback_ms,
                p.high_speed_delta,
                p.slow_threshold
            ),
        ),
        (
            "packets",
            format!(
                "IP packets of up to {} bytes{}",
                if context.sizes.traditional { 1500 } else { 1250 },
                if context.sizes.jumbo { ", above 1 Gbit/s up to 9000" } else { "" }
            ),
        ),
        ("layers", "L2 without FCS, L1 with FCS, preamble and gap; goodput is UDP payload; all of the same sub-interval".to_owned()),
        ("timestamps", timestamps(outcome, context)),
        ("intervals", "capacity: one datagram, and how late its ends may be taken (0.2 ms with stamps here, 1 ms at the far end); delays: the protocol's rounding to 1 ms".to_owned()),
    ];
    if context.receives_here() && !context.server {
        facts.push(("trace", "rows and sending rates are the server's decisions, retraced from the feedback sent to it".to_owned()));
    }
    if !context.receives_here() {
        let counted = "of the whole sub-intervals, as the far end counted them";
        facts.push(("received_and_lost", counted.to_owned()));
    }
    facts.extend(troubles(outcome));
    facts
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text))
        .collect()
}

fn timestamps(outcome: &Outcome, context: &Context) -> String {
    let arrival = match (context.receives_here(), outcome.kernel_stamps) {
        (true, true) => "kernel at receipt",
        (true, false) => "user space at receipt",
        (false, _) => "the far end's",
    };
    format!("{arrival}, user space at sending")
}

/// What makes the figures something other than the network's.
fn troubles(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let totals = outcome.totals.unwrap_or_default();
    let mut troubles = Vec::new();
    if outcome.host_drops > 0 {
        troubles.push((
            "loss",
            format!(
                "not stated: this host's full socket dropped {} datagrams or trains of them, so the capacity found is this host's",
                outcome.host_drops
            ),
        ));
    }
    if outcome.unsent > 0 || !outcome.skipped.is_zero() {
        troubles.push((
            "sender",
            format!(
                "this host did not send {} datagrams for want of room, and was too late for {:.3} s of the schedule",
                outcome.unsent,
                outcome.skipped.as_secs_f64()
            ),
        ));
    }
    if outcome.feedback_missed > 0 {
        let text = format!(
            "{} messages did not reach the load's sender: the trace may differ from what it did",
            outcome.feedback_missed
        );
        troubles.push(("feedback", text));
    }
    if outcome.unreadable + totals.implausible > 0 {
        let text = format!(
            "{} datagrams were no message of the test, {} had numbers that cannot be: not counted",
            outcome.unreadable, totals.implausible
        );
        troubles.push(("ignored", text));
    }
    troubles
}
