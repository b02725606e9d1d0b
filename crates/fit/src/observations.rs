//! The observations of a path: sessions of probes, and loads beside them.

use std::collections::{BTreeMap, BTreeSet};

use conditions::Direction;
use record::{Figure, Measurement, Metric, Phase, Sample, Statistic};
use serde::{Deserialize, Serialize};
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::estimate::Estimate;
use crate::over_time::OverTime;
use crate::trains::TrainSession;
use crate::{DIRECTIONS, index};

/// The headers of Ethernet, IPv4 and UDP in bytes, without FCS.
pub(crate) const UDP_HEADERS: u32 = 14 + 20 + 8;
/// The usual payload of a probe of `farwire measure probe` in bytes, for a measurement that does not state its size.
const PROBE_PAYLOAD: u32 = 104;
/// The time in seconds between two sessions that are joined. It only has to be longer than an interval of probes.
pub(crate) const BETWEEN_SESSIONS_S: f64 = 10.0;
/// The time in seconds between two readings of a load of which there is only one.
const READING_S: f64 = 1.0;

/// The least rate of a strong load, as a multiple of the rate that arrives. A gentle load sends at most 1.3 times the rate.
const STRONG_FROM: f64 = 1.5;
/// The parts into which the time of a direction is divided to see when packets were marked.
const TENTHS: u64 = 10;
/// The fewest marks that show that a queue is managed.
const FEWEST_MARKS: u64 = 5;
/// The fewest tenths that have such marks. A short time with marks may be in two of them.
const FEWEST_TENTHS: usize = 3;

/// All observations of a path.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PathObservations {
    /// Probes on the idle path; without any probe if no far end answers them.
    pub idle: ProbeSession,
    /// Loads that exceed the rate of a direction, and the probes beside them.
    pub loaded: Vec<LoadedSession>,
    /// The load of the search that exceeded the rate of each direction. The path was idle before.
    pub searches: Vec<(Direction, LoadTraffic)>,
    /// The throughput of a direction over time, in bit/s, from a table, or from a capture in which the direction was full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throughput: Vec<(Direction, OverTime)>,
    /// Trains of packets on the idle path.
    #[serde(default, skip_serializing_if = "TrainSession::is_empty")]
    pub trains: TrainSession,
    /// The packets in each direction, up first, that were marked for congestion (ECN) between both ends of a capture.
    #[serde(default, skip_serializing_if = "is_unmarked")]
    pub marked: [Marks; 2],
    /// The MTU of the path up in L3 bytes, as the kernel of this end knows it after all loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The longest packet of a TCP download that arrived, in L3 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_down: Option<u32>,
    /// The day on which they began in UTC, as 2026-11-27, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_on: Option<String>,
    /// The parameters that these observations cannot show, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

/// A session of probes of equal size at a regular interval.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSession {
    /// The L2 bytes of a probe, and of its answer, without FCS.
    pub wire_bytes: u32,
    /// The probes in the order of sending.
    pub probes: Vec<Probe>,
    /// The losses in each direction, up first, if the far end counts. On the idle path they include those of loads far
    /// below the rate, which lose packets by chance only.
    pub losses: [Option<Losses>; 2],
    /// Whether packets arrived out of order in each direction, up first, as far as the far end counts.
    pub reordered: [bool; 2],
    /// The answers that arrived in addition to the first one.
    pub duplicates: u64,
    /// The error of the offset between the clocks of both ends in milliseconds; 0 for one clock.
    pub clock_error_ms: f64,
    /// The packets in each direction, up first, that a capture has at both ends but that cannot be paired.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unclear: [u64; 2],
}

/// A probe and its answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// When it was sent, in seconds since the first probe of its session. In a packet log, each packet is a probe of its
    /// direction.
    pub at_s: f64,
    /// The round trip; `None` if no answer arrived in time.
    pub rtt_ms: Option<f64>,
    /// The delay in each direction, up first, where clocks allow.
    pub one_way_ms: [Option<f64>; 2],
    /// The direction in which it was lost, if it was lost and that is known.
    pub lost: Option<Direction>,
}

/// The degree to which a load exceeds the rate of the path.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Intensity {
    /// Far above the rate: the queue becomes full, whatever manages it.
    Strong,
    /// A few per cent above the rate: active queue management keeps the queue short, and without it the queue grows.
    Gentle,
}

/// A load, and the probes beside it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedSession {
    /// The direction of the load.
    pub direction: Direction,
    /// The degree to which it exceeds the rate.
    pub intensity: Intensity,
    /// The probes; without any probe if no far end answers them.
    pub probes: ProbeSession,
    /// The start of the load, in seconds since the first probe; below 0 if the load began first.
    pub from_s: f64,
    /// The end of the load, in seconds since the first probe.
    pub until_s: f64,
    /// The load.
    pub load: LoadTraffic,
    /// The rate that arrived in each interval since the start of the load, in bit/s; empty if that is not known.
    #[serde(default, skip_serializing_if = "OverTime::is_empty")]
    pub arrivals: OverTime,
}

/// The traffic of a load, at L2 without FCS.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTraffic {
    /// The L2 bytes of a datagram, without FCS.
    pub wire_bytes: u32,
    /// The rate at which it was sent, in bit/s.
    pub sent: f64,
    /// The time of sending in seconds.
    pub sending_s: f64,
    /// The bytes that arrived.
    pub bytes: f64,
    /// The time in which they arrived, in seconds: from the first arrival to the last one, or the time of sending if that
    /// is longer.
    pub seconds: f64,
    /// The error of the rate that arrived, in bit/s.
    pub error: f64,
}

/// The packets of a direction that were marked for congestion (ECN) on the path.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Marks {
    /// Their number.
    pub count: u64,
    /// The number of tenths of the time, from the first arrival in the direction to the last one, in which they arrived.
    pub tenths: usize,
}

fn is_none(counts: &[u64; 2]) -> bool {
    *counts == [0; 2]
}

fn is_unmarked(marks: &[Marks; 2]) -> bool {
    *marks == [Marks::default(); 2]
}

impl Marks {
    /// Counts packets that were marked and arrived at these times, in nanoseconds, of a direction whose first and last
    /// packet arrived at `between_ns`.
    pub(crate) fn at(times_ns: &[u64], between_ns: [u64; 2]) -> Self {
        let [from_ns, until_ns] = between_ns;
        let tenth_ns = until_ns.saturating_sub(from_ns) / TENTHS + 1;
        let tenth = |at_ns: &u64| (*at_ns).min(until_ns).saturating_sub(from_ns) / tenth_ns;
        let tenths: BTreeSet<u64> = times_ns.iter().map(tenth).collect();
        Self {
            count: times_ns.len() as u64,
            tenths: tenths.len(),
        }
    }

    /// Returns whether they show that the queue in front of the rate is managed. A queue that is managed marks packets for as
    /// long as it is full. A handful of marks, or many in a short time, may come from another queue on the path.
    pub(crate) fn show_managed_queue(self) -> bool {
        self.count >= FEWEST_MARKS && self.tenths >= FEWEST_TENTHS
    }
}

impl Intensity {
    /// Returns the intensity of a load.
    fn of(load: &LoadTraffic) -> Self {
        match load.sent > STRONG_FROM * load.received() {
            true => Self::Strong,
            false => Self::Gentle,
        }
    }
}

impl LoadTraffic {
    /// Reads the load in a direction from a measurement of UDP, whose datagrams have `headers` bytes of L2, L3 and L4
    /// without FCS; `None` if nothing arrived.
    pub fn of(
        measurement: &Measurement,
        phase: Option<Phase>,
        way: Direction,
        headers: u32,
    ) -> Option<Self> {
        let find = |metric, statistic| figure(measurement, metric, statistic, way, phase);
        let total = |metric| find(metric, Statistic::Total).map(|figure| figure.value);
        let goodput = find(Metric::GoodputBitPerS, Statistic::Mean)?;
        let sent = find(Metric::SentRateBitPerS, Statistic::Mean)?.value;
        let received = total(Metric::ReceivedBytes)?;
        let sent_bytes = total(Metric::SentBytes)?;
        // Both ends count datagrams of one length.
        let length = sent_bytes / total(Metric::SentPackets)?;
        if !(goodput.value > 0.0 && sent > 0.0 && length >= 1.0) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a datagram has at most 65,507 bytes"
        )]
        let wire_bytes = length.min(65_507.0).round() as u32 + headers;
        let at_l2 = f64::from(wire_bytes) / length;
        let error = goodput.interval.map_or(0.0, |[low, high]| {
            let errors = [goodput.value - low, high - goodput.value];
            errors
                .into_iter()
                .filter(|error| error.is_finite())
                .fold(0.0, f64::max)
        });
        Some(Self {
            wire_bytes,
            sent: sent * at_l2,
            sending_s: 8.0 * sent_bytes / sent,
            bytes: received * at_l2,
            seconds: 8.0 * received / goodput.value,
            error: error * at_l2,
        })
    }

    /// Reads the losses of the datagrams in a direction from a measurement of UDP without phases.
    pub fn losses(measurement: &Measurement, way: Direction) -> Option<Losses> {
        figure(measurement, Metric::LostPercent, Statistic::Mean, way, None)?.losses
    }

    /// Returns the rate that arrived, in bit/s.
    pub fn received(&self) -> f64 {
        8.0 * self.bytes / self.seconds.max(1e-6)
    }

    /// Returns for how many milliseconds datagrams still arrived after the last one was sent, apart from the delay of the
    /// path. Those that waited in a queue arrive late.
    pub(crate) fn drain_ms(&self) -> Estimate {
        let error = self.seconds * self.error / self.received().max(1.0);
        Estimate::within(self.seconds - self.sending_s, error).map(|s| 1e3 * s)
    }
}

impl LoadedSession {
    /// Returns a load without probes.
    pub fn unprobed(direction: Direction, load: LoadTraffic) -> Self {
        Self {
            direction,
            intensity: Intensity::of(&load),
            probes: ProbeSession::default(),
            from_s: 0.0,
            until_s: load.seconds,
            load,
            arrivals: OverTime::default(),
        }
    }

    /// Reads the load of `farwire measure probe --under udp:RATE`, whose datagrams have `headers` bytes without FCS, and
    /// the probes beside it; `None` if it has no load in exactly one direction.
    pub fn of(measurement: &Measurement, headers: u32) -> Option<Self> {
        let phase = Some(Phase::Loaded);
        let load_of = |way| LoadTraffic::of(measurement, phase, way, headers);
        let (direction, load) = match DIRECTIONS.map(load_of) {
            [Some(load), None] => (Direction::Up, load),
            [None, Some(load)] => (Direction::Down, load),
            [Some(_), Some(_)] | [None, None] => return None,
        };
        let metric = match direction {
            Direction::Up => Metric::SentBytes,
            Direction::Down => Metric::ReceivedBytes,
        };
        let readings = readings(measurement, phase, metric, direction);
        let (first_reading, last_reading) = (readings.first()?.0, readings.last()?.0);
        let start_s = probes_of(measurement, phase).values().next()?.at_s;
        Some(Self {
            direction,
            intensity: Intensity::of(&load),
            probes: ProbeSession::of(measurement, phase, headers),
            from_s: first_reading - distance_s(&readings) - start_s,
            until_s: last_reading - start_s,
            arrivals: arrivals(measurement, phase, direction, &load, headers),
            load,
        })
    }
}

impl PathObservations {
    /// Returns whether all probes have delays in each direction.
    pub fn has_one_way(&self) -> bool {
        let loaded = self.loaded.iter().map(|one| &one.probes);
        let probed = loaded.filter(|one| one.answered().next().is_some());
        let mut all = probed.chain([&self.idle]);
        all.all(ProbeSession::has_one_way)
    }
}

impl ProbeSession {
    /// Reads the probes of a phase from a measurement of `farwire measure probe` or `ping`; without a phase, those of a
    /// measurement without phases. A probe has `headers` bytes of L2, L3 and L4 without FCS.
    pub fn of(measurement: &Measurement, phase: Option<Phase>, headers: u32) -> Self {
        let probes = probes_of(measurement, phase);
        let start_s = probes.values().next().map_or(0.0, |first| first.at_s);
        let probes = probes.into_values().map(|probe| Probe {
            at_s: probe.at_s - start_s,
            ..probe
        });
        let probes: Vec<Probe> = probes.collect();
        let knows_losses = |way| {
            let found = figure(
                measurement,
                Metric::LostPercent,
                Statistic::Mean,
                way,
                phase,
            )?;
            // The figure of a load beside the probes has the same name, but counts other packets.
            found
                .losses
                .filter(|losses| losses.of <= probes.len() as u64)
        };
        let overtaken = |way| {
            let metric = Metric::ReorderedPackets;
            let found = figure(measurement, metric, Statistic::Total, way, phase);
            found.is_some_and(|figure| figure.value > 0.0)
        };
        let duplicates = measurement
            .samples
            .iter()
            .filter(|sample| (sample.metric, sample.phase) == (Metric::DuplicateRttMs, phase));
        let mut offsets = measurement.figures.iter();
        let offset = offsets.find(|one| (one.metric, one.phase) == (Metric::ClockOffsetMs, phase));
        let offset = offset.and_then(|offset| offset.interval);
        Self {
            wire_bytes: payload(measurement).saturating_add(headers),
            losses: DIRECTIONS.map(knows_losses),
            reordered: DIRECTIONS.map(overtaken),
            duplicates: duplicates.count() as u64,
            clock_error_ms: offset.map_or(0.0, |[low, high]| (high - low) / 2.0),
            unclear: [0; 2],
            probes,
        }
    }

    /// Adds the probes of a later session, and what is known about them.
    pub fn join(&mut self, later: Self) {
        if self.probes.is_empty() {
            *self = later;
            return;
        }
        let start_s = self.probes.last().map_or(0.0, |last| last.at_s) + BETWEEN_SESSIONS_S;
        self.probes
            .extend(later.probes.into_iter().map(|probe| Probe {
                at_s: start_s + probe.at_s,
                ..probe
            }));
        for (losses, more) in self.losses.iter_mut().zip(later.losses) {
            *losses = losses.zip(more).map(|(one, other)| one.with(other));
        }
        for (reordered, more) in self.reordered.iter_mut().zip(later.reordered) {
            *reordered |= more;
        }
        for (unclear, more) in self.unclear.iter_mut().zip(later.unclear) {
            *unclear += more;
        }
        self.duplicates += later.duplicates;
        self.clock_error_ms = self.clock_error_ms.max(later.clock_error_ms);
    }

    /// Returns whether there are delays of single directions, and no probe has only its round trip.
    fn has_one_way(&self) -> bool {
        let mut one_way = self.probes.iter().flat_map(|probe| probe.one_way_ms);
        let mut answered = self.answered();
        one_way.any(|delay| delay.is_some())
            && answered.all(|probe| probe.one_way_ms.iter().all(Option::is_some))
    }

    /// Returns the probes that were answered.
    pub(crate) fn answered(&self) -> impl Iterator<Item = &Probe> {
        self.probes.iter().filter(|probe| probe.rtt_ms.is_some())
    }

    /// Returns the delays of the answered probes sent from `from_s` until `until_s`: in this direction, or else of the
    /// round trip.
    pub(crate) fn delays(&self, way: Option<Direction>, [from_s, until_s]: [f64; 2]) -> Vec<f64> {
        let probes = self.answered();
        let during = probes.filter(|probe| probe.at_s >= from_s && probe.at_s < until_s);
        during.filter_map(|probe| probe.delay(way)).collect()
    }

    /// Returns the usual time between two probes in seconds: the median, because joined sessions have pauses.
    pub fn interval_s(&self) -> Option<f64> {
        let gaps = self
            .probes
            .windows(2)
            .map(|pair| pair[1].at_s - pair[0].at_s);
        quantile(&sorted(&gaps.collect::<Vec<f64>>()), 0.5).filter(|gap| *gap > 0.0)
    }
}

impl Probe {
    /// Returns the delay in this direction, or else the round trip.
    pub(crate) fn delay(&self, way: Option<Direction>) -> Option<f64> {
        match way {
            Some(way) => self.one_way_ms[index(way)],
            None => self.rtt_ms,
        }
    }

    /// Returns whether it certainly passed this direction.
    pub(crate) fn passed(&self, way: Direction) -> bool {
        match (self.rtt_ms, way, self.lost) {
            (Some(_), _, _) => true,
            (None, Direction::Up, Some(Direction::Down)) => true,
            (None, Direction::Up, Some(Direction::Up) | None) => false,
            (None, Direction::Down, _) => false,
        }
    }

    /// Returns whether it entered this direction.
    pub(crate) fn entered(&self, way: Direction) -> bool {
        match way {
            Direction::Up => true,
            Direction::Down => self.passed(Direction::Up),
        }
    }
}

/// Returns the payload of a probe in bytes, which the facts of `probe` and of `ping` state: `1400 payload bytes`.
fn payload(measurement: &Measurement) -> u32 {
    let facts = ["probe", "rtt"].into_iter();
    let mut stated = facts.filter_map(|name| {
        let (before, _) = measurement.facts.get(name)?.split_once(" payload bytes")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    stated.next().unwrap_or(PROBE_PAYLOAD)
}

/// Returns the probes of a phase by their numbers. Their times are those of the measurement.
fn probes_of(measurement: &Measurement, phase: Option<Phase>) -> BTreeMap<u64, Probe> {
    let samples = || {
        measurement
            .samples
            .iter()
            .filter(|sample| sample.phase == phase)
    };
    // A load beside the probes also has samples of its losses, beside those of the bytes that arrived.
    let readings = samples().filter(|sample| sample.metric == Metric::ReceivedBytes);
    let readings: Vec<(u64, f64)> = readings.map(|sample| (sample.index, sample.at_s)).collect();
    let of_load = |sample: &Sample| {
        sample.metric == Metric::LostPackets && readings.contains(&(sample.index, sample.at_s))
    };
    let mut probes: BTreeMap<u64, Probe> = BTreeMap::new();
    let mut network: BTreeMap<u64, f64> = BTreeMap::new();
    for sample in samples().filter(|sample| !of_load(sample)) {
        if sample.metric == Metric::NetworkRttMs {
            network.insert(sample.index, sample.value);
            continue;
        }
        let mut probe = Probe {
            at_s: sample.at_s,
            ..probes.get(&sample.index).copied().unwrap_or_default()
        };
        match (sample.metric, sample.direction) {
            (Metric::RttMs, _) => probe.rtt_ms = Some(sample.value),
            (Metric::OneWayDelayMs, Some(way)) => probe.one_way_ms[index(way)] = Some(sample.value),
            (Metric::LostPackets, way) => probe.lost = way,
            _ => continue,
        }
        probes.insert(sample.index, probe);
    }
    let answered = probes.values().filter(|probe| probe.rtt_ms.is_some());
    if network.len() == answered.count() {
        for (index, rtt) in network {
            if let Some(probe) = probes.get_mut(&index) {
                probe.rtt_ms = Some(rtt);
            }
        }
    }
    probes
}

/// Returns the times in seconds and the values of the samples over all streams in a direction and a phase.
fn readings(
    measurement: &Measurement,
    phase: Option<Phase>,
    metric: Metric,
    way: Direction,
) -> Vec<(f64, f64)> {
    let wanted = (phase, metric, Some(way), None);
    let samples = measurement
        .samples
        .iter()
        .filter(|one| (one.phase, one.metric, one.direction, one.stream) == wanted);
    samples.map(|one| (one.at_s, one.value)).collect()
}

/// Returns the usual time between two readings in seconds, to a millisecond.
fn distance_s(readings: &[(f64, f64)]) -> f64 {
    let distances = readings.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let usual = quantile(&sorted(&distances.collect::<Vec<f64>>()), 0.5);
    usual.map_or(READING_S, |usual| (1e3 * usual).round() / 1e3)
}

/// Returns the rate of a load that arrived in each interval since its start, from readings of its payload.
fn arrivals(
    measurement: &Measurement,
    phase: Option<Phase>,
    way: Direction,
    load: &LoadTraffic,
    headers: u32,
) -> OverTime {
    let readings = readings(measurement, phase, Metric::ReceivedBytes, way);
    let every_s = distance_s(&readings);
    let (Some((first_s, _)), true) = (readings.first(), every_s > 0.0) else {
        return OverTime::default();
    };
    let payload = load.wire_bytes.saturating_sub(headers).max(1);
    let at_l2 = f64::from(load.wire_bytes) / f64::from(payload);
    let begins = [first_s - every_s].into_iter();
    let begins = begins.chain(readings.iter().map(|(at_s, _)| *at_s));
    let rates = begins.zip(&readings).map(|(began_s, (at_s, bytes))| {
        // A reading that is late by almost an interval is followed by one that covers hardly any time.
        8.0 * bytes * at_l2 / (at_s - began_s).max(every_s / 10.0)
    });
    OverTime {
        every_s,
        values: rates.collect(),
    }
}

/// Returns the figure over all streams in a direction and a phase.
fn figure(
    measurement: &Measurement,
    metric: Metric,
    statistic: Statistic,
    way: Direction,
    phase: Option<Phase>,
) -> Option<&Figure> {
    let wanted = (metric, statistic, Some(way), phase, None);
    let mut figures = measurement.figures.iter();
    figures.find(|one| {
        (
            one.metric,
            one.statistic,
            one.direction,
            one.phase,
            one.stream,
        ) == wanted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what `farwire measure probe --under udp:1mbit,down` reports: two probes on the idle path, then two beside a
    /// load of three seconds.
    fn under_load() -> Measurement {
        let sample = |at_s, metric, index, value, phase| Sample {
            phase: Some(phase),
            ..Sample::new(at_s, metric, index, value)
        };
        let probe = |index: u32, phase| {
            let at_s = if phase == Phase::Idle { 0.0 } else { 7.0 };
            sample(
                at_s + 0.01 * f64::from(index),
                Metric::RttMs,
                index.into(),
                20.0,
                phase,
            )
        };
        let reading = |index: u32| {
            let at_s = 5.0 + f64::from(index);
            let received = sample(
                at_s,
                Metric::ReceivedBytes,
                index.into(),
                1e5,
                Phase::Loaded,
            );
            let lost = sample(at_s, Metric::LostPackets, index.into(), 7.0, Phase::Loaded);
            [received, lost].map(|sample| sample.toward(Direction::Down))
        };
        let figure = |metric, statistic, value| {
            let figure = Figure::new(metric, statistic, value);
            figure.toward(Direction::Down).during(Phase::Loaded)
        };
        let probes = [
            probe(1, Phase::Idle),
            probe(2, Phase::Idle),
            probe(3, Phase::Loaded),
            probe(4, Phase::Loaded),
        ];
        Measurement {
            samples: probes
                .into_iter()
                .chain((1..=3).flat_map(reading))
                .collect(),
            figures: vec![
                figure(Metric::GoodputBitPerS, Statistic::Mean, 8e5).within(7.9e5, 8.1e5),
                figure(Metric::SentRateBitPerS, Statistic::Mean, 1e6),
                figure(Metric::ReceivedBytes, Statistic::Total, 3e5),
                figure(Metric::SentBytes, Statistic::Total, 4e5),
                figure(Metric::SentPackets, Statistic::Total, 400.0),
            ],
            ..Measurement::default()
        }
    }

    #[test]
    fn probes_beside_a_load_have_their_times_in_the_load() {
        let found = LoadedSession::of(&under_load(), UDP_HEADERS).unwrap();
        assert_eq!(
            (found.direction, found.intensity),
            (Direction::Down, Intensity::Gentle)
        );
        assert_eq!(found.probes.probes.len(), 2);
        let times = [found.from_s, found.until_s];
        let expected = [5.0 - 7.03, 8.0 - 7.03];
        let is_near = |(found, expected): (f64, f64)| (found - expected).abs() < 1e-9;
        assert!(times.into_iter().zip(expected).all(is_near), "{times:?}");
        assert_eq!(found.load.wire_bytes, 1042);
        assert!((found.load.seconds - 3.0).abs() < 1e-9, "{:?}", found.load);
        assert!(
            (found.load.sending_s - 3.2).abs() < 1e-9,
            "{:?}",
            found.load
        );
        assert!(
            (found.load.received() - 8e5 * 1.042).abs() < 1.0,
            "{:?}",
            found.load
        );
        assert!(
            (found.load.error - 1e4 * 1.042).abs() < 1.0,
            "{:?}",
            found.load
        );
        let rate = 8e5 * 1.042;
        let is_near = |found: &f64| (found - rate).abs() < 1.0;
        assert_eq!(
            (found.arrivals.every_s, found.arrivals.values.len()),
            (1.0, 3)
        );
        assert!(found.arrivals.values.iter().all(is_near), "{found:?}");
    }

    #[test]
    fn readings_of_a_load_may_be_more_frequent_than_once_in_a_second() {
        let mut measurement = under_load();
        for sample in &mut measurement.samples {
            if sample.at_s >= 5.0 && sample.direction.is_some() {
                sample.at_s = 6.0 + 0.1 * (sample.at_s - 5.0);
            }
        }
        let found = LoadedSession::of(&measurement, UDP_HEADERS).unwrap();
        assert!((found.from_s - (6.0 - 7.03)).abs() < 1e-6, "{found:?}");
        assert_eq!(found.arrivals.every_s, 0.1);
        assert!((found.arrivals.values[2] - 8e6 * 1.042).abs() < 10.0);
    }

    #[test]
    fn a_load_arrives_late_by_its_time_in_a_queue() {
        let load = LoadTraffic {
            wire_bytes: 1000,
            sent: 2e6,
            sending_s: 1.0,
            bytes: 187_500.0,
            seconds: 1.5,
            error: 1e4,
        };
        // The rate that arrived is known to 1 %, and so is the time.
        let late = load.drain_ms();
        assert!((late.value - 500.0).abs() < 1e-6, "{late:?}");
        assert!((late.interval[1] - 515.0).abs() < 1e-6, "{late:?}");
    }

    #[test]
    fn a_measurement_without_a_load_has_no_loaded_session() {
        let measurement = Measurement {
            figures: Vec::new(),
            ..under_load()
        };
        assert_eq!(LoadedSession::of(&measurement, UDP_HEADERS), None);
        let idle = ProbeSession::of(&measurement, Some(Phase::Idle), UDP_HEADERS);
        assert_eq!((idle.probes.len(), idle.wire_bytes), (2, 146));
        assert_eq!(idle.losses, [None; 2]);
    }

    #[test]
    fn probes_have_the_size_that_the_measurement_states() {
        let size = |name: &str, fact: &str| {
            let mut measurement = under_load();
            measurement.facts.insert(name.to_owned(), fact.to_owned());
            let loaded = LoadedSession::of(&measurement, UDP_HEADERS).unwrap();
            let idle = ProbeSession::of(&measurement, Some(Phase::Idle), UDP_HEADERS);
            [idle.wire_bytes, loaded.probes.wire_bytes]
        };
        let probe = "STAMP (RFC 8762), 1400 payload bytes of UDP, one every 10ms; a probe without an answer within 1s is lost";
        assert_eq!(size("probe", probe), [1442; 2]);
        let ping =
            "ICMP echo, 56 payload bytes, 98 bytes at L2 without FCS (one frame if the MTU allows)";
        assert_eq!(size("rtt", ping), [98; 2]);
        assert_eq!(size("rtt", "user space to user space"), [146; 2]);
    }

    #[test]
    fn joined_sessions_keep_their_interval_and_add_their_counts() {
        let losses = Some(Losses::independent(1, 10));
        let session = || ProbeSession {
            probes: (0..10_u32)
                .map(|at| Probe {
                    at_s: 0.01 * f64::from(at),
                    rtt_ms: Some(20.0),
                    ..Probe::default()
                })
                .collect(),
            losses: [losses, None],
            duplicates: 1,
            ..ProbeSession::default()
        };
        let mut joined = ProbeSession::default();
        joined.join(session());
        joined.join(session());
        assert_eq!((joined.probes.len(), joined.duplicates), (20, 2));
        assert_eq!(joined.losses, [Some(Losses::independent(2, 20)), None]);
        assert!((joined.interval_s().unwrap() - 0.01).abs() < 1e-9);
    }
}
