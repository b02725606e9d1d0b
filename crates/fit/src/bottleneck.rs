//! The rate of a direction, and the queue in front of it.

use conditions::Direction;

use crate::delay::Served;
use crate::estimate::Estimate;
use crate::index;
use crate::loss::{self, LossFit};
use crate::observations::{Intensity, LoadTraffic, LoadedSession, PathObservations};
use crate::over_time::OverTime;
use crate::queue::{Queue, QueueKind, idle_delays, median, range};
use crate::varying_rate::{VARIES, VaryingRate};

/// The least share of a load that does not arrive in the time of sending if the load fills the path.
const LEAST_EXCESS: f64 = 0.01;
/// The error of the rate from clocks and from the variation of delays, as a share.
const RATE_ERROR: f64 = 0.001;
/// The packets at the edges of a time by which the bytes that arrived in it may be off.
const EDGES: f64 = 2.0;

/// The rate of a direction, and what happens to packets that exceed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// The rate in bit/s, in L2 bytes without FCS. Of a rate that varies it is the median, and its interval has nine of ten
    /// values.
    pub rate: Estimate,
    /// The rate over time in bit/s, if it varies so much that one rate does not describe it.
    pub over_time: Option<OverTime>,
    /// The bytes that pass faster than the rate after silence, if they are more than a few packets.
    pub burst_bytes: Option<Estimate>,
    /// The queue of packets that exceed the rate; `None` if no probes were sent beside a load.
    pub queue: Option<QueueKind>,
    /// The bytes that the queue in front of a rate that varies can hold, if these are more constant than its length in time.
    pub queue_bytes: Option<Estimate>,
    /// The observations behind the rate, in words.
    pub rate_evidence: String,
    /// The observations that led to the kind of queue, in words.
    pub evidence: String,
}

impl Bottleneck {
    /// Fits the bottleneck of a direction; `None` if no load exceeded its rate.
    pub(crate) fn of(
        observed: &PathObservations,
        way: Direction,
        random: Option<&LossFit>,
    ) -> Option<Self> {
        if let Some(varying) = Self::of_varying(observed, way, random) {
            return Some(varying);
        }
        let loads = observed.loaded.iter().filter(|one| one.direction == way);
        let loads: Vec<&LoadedSession> = loads.collect();
        let is_strong = |one: &&LoadedSession| one.intensity == Intensity::Strong;
        let Some(last) = loads.iter().rposition(is_strong) else {
            return Self::of_throughput(observed, way);
        };
        let (before, after) = loads.split_at(last + 1);
        let strong = loads[last];
        // The path may have carried loads before the last strong one, which then are no gentle ones.
        let exceeds = |one: &&&LoadedSession| {
            let nothing = Estimate::within(0.0, 0.0);
            one.intensity == Intensity::Gentle && rate(one, random, nothing).is_some()
        };
        let gentle = after.last().or_else(|| before.iter().rev().find(exceeds));
        let gentle = gentle.copied();
        let mut searches = observed.searches.iter();
        let search = searches.find(|(of, _)| *of == way).map(|(_, load)| load);
        let range_ms = range(&idle_delays(observed, way)).unwrap_or_default();
        let possible = search.and_then(|search| burst(search, strong, random, range_ms));
        let burst = possible.filter(|possible| is_certain(possible, strong));
        let burst_bytes = burst.map_or(0.0, |burst| burst.value);
        let bytes = possible.map_or(Estimate::within(0.0, 0.0), |possible| {
            Estimate::new(burst_bytes, possible.interval.map(|bytes| bytes.max(0.0)))
        });
        let rate = rate(strong, random, bytes)?;
        let also = gentle.and_then(|gentle| self::rate(gentle, random, bytes));
        let varies = also.is_some_and(|other| {
            let [one, other] = [rate.interval, other.interval];
            one[1] < other[0] || other[1] < one[0]
        });
        let rate = also.map_or(rate, |other| both(rate, other));
        let queue = Queue {
            way,
            observed,
            rate,
            burst_bytes,
        };
        // A load exceeds the rate by the same share if the random losses occur before the bottleneck. The path then served
        // the bytes that arrived, and the interval of the rate contains both cases.
        let [low, high] = rate.interval;
        let rate = Estimate::new(
            rate.value,
            [low.min(rate.value * loss::passes(random)), high],
        );
        let found = queue.kind(strong, gentle);
        let (kind, evidence) = found.unzip();
        // A policer always has a burst, even if it is not certain that it is more than a few packets.
        let burst = match kind {
            Some(QueueKind::Policed) => burst.or_else(|| {
                let packet = f64::from(strong.load.wire_bytes);
                let likely = possible.filter(|possible| possible.value > packet)?;
                Some(likely.map(|bytes| bytes.max(0.0)))
            }),
            _ => burst,
        };
        Some(Self {
            rate,
            over_time: None,
            burst_bytes: burst,
            queue: kind,
            queue_bytes: None,
            rate_evidence: match varies {
                true => {
                    "what arrived of loads above it, in L2 bytes without FCS; the loads differ, so that it is not constant"
                }
                false => "what arrived of loads above it, in L2 bytes without FCS",
            }
            .to_owned(),
            evidence: evidence.unwrap_or_else(unprobed),
        })
    }

    /// Fits a rate that varies, from what arrived of the fastest load in each window of its time; `None` if it is constant,
    /// or if it is that of a policer.
    fn of_varying(
        observed: &PathObservations,
        way: Direction,
        random: Option<&LossFit>,
    ) -> Option<Self> {
        let loads = observed.loaded.iter().filter(|one| one.direction == way);
        let fastest = loads.max_by(|one, other| one.load.sent.total_cmp(&other.load.sent))?;
        let range_ms = range(&idle_delays(observed, way)).unwrap_or_default();
        let mut searches = observed.searches.iter();
        let search = searches.find(|(of, _)| *of == way).map(|(_, load)| load);
        let burst = search.and_then(|search| burst(search, fastest, random, range_ms));
        let burst_bits = burst.map_or(0.0, |burst| 8.0 * burst.interval[1].max(0.0));
        let varying = VaryingRate::of(fastest, random, range_ms, burst_bits)?;
        let passes = loss::passes(random).max(0.01);
        let over_time = varying.arrived.map(|rate| rate / passes);
        let rate = over_time.spread().filter(|rate| rate.value > 0.0)?;
        let queue = Queue {
            way,
            observed,
            rate,
            burst_bytes: 0.0,
        };
        let (kind, evidence) = queue.kind(fastest, None).unzip();
        if kind == Some(QueueKind::Policed) {
            return None;
        }
        let windows = over_time.values.len();
        let unfilled = match varying.is_filled() {
            true => String::new(),
            false => format!(
                "; in {} of them the path carried all of the load and may have been faster",
                varying.unfilled
            ),
        };
        Some(Self {
            rate,
            burst_bytes: None,
            queue: kind,
            queue_bytes: kind.and_then(|_| queue.held_bytes(fastest)),
            rate_evidence: format!(
                "the median of {windows} windows of {:.0} ms of a load above it, in L2 bytes without FCS, with the range of nine of \
                 ten; they differ by more than chance explains{unfilled}",
                1e3 * over_time.every_s
            ),
            evidence: evidence.unwrap_or_else(unprobed),
            over_time: Some(over_time),
        })
    }

    /// Returns whether it is a policer whose burst is not visible, although every policer has one.
    pub(crate) fn has_assumed_burst(&self) -> bool {
        self.queue == Some(QueueKind::Policed) && self.burst_bytes.is_none()
    }

    /// Returns the time that the bottleneck needs for a probe of this number of L2 bytes.
    pub(crate) fn served(&self, wire_bytes: u32) -> Served {
        // A policer passes a probe immediately.
        if self.queue == Some(QueueKind::Policed) {
            return Served::default();
        }
        let ms = |rate: f64| f64::from(wire_bytes) * 8e3 / rate;
        let [low, high] = self.rate.interval;
        // A path that stops for a while delays probes by more than their own time.
        let varies = self.over_time.is_some() && low > 0.0;
        Served {
            ms: ms(self.rate.value),
            range_ms: if varies { ms(low) - ms(high) } else { 0.0 },
        }
    }

    /// Takes the median throughput as the rate; if it varies, its interval has nine of ten rows.
    fn of_throughput(observed: &PathObservations, way: Direction) -> Option<Self> {
        let mut throughput = observed.throughput.iter();
        let (_, rates) = throughput.find(|(of, _)| *of == way)?;
        let spread = rates.spread()?;
        let [low, high] = spread.interval;
        let varies = high - low > VARIES * spread.value;
        let (rate, range) = match varies {
            true => (spread, ", with the range of nine of ten"),
            false => (median(&rates.values)?, ""),
        };
        let marks = observed.marked[index(way)];
        let count = marks.count;
        let (queue, evidence) = if marks.show_managed_queue() {
            (
                Some(QueueKind::Managed { most_ms: None }),
                format!("{count} packets were marked (ECN) on the path"),
            )
        } else if count > 0 {
            let few = format!(
                "{count} packets were marked (ECN) on the path, too few or in too short a time to show it"
            );
            (None, few)
        } else {
            (None, "throughput does not show it".to_owned())
        };
        (rate.value > 0.0).then(|| Self {
            rate,
            over_time: varies.then(|| rates.clone()),
            burst_bytes: None,
            queue,
            queue_bytes: None,
            rate_evidence: format!(
                "the median throughput of {} times {} s{range}; a transfer that did not fill the path shows less",
                rates.values.len(),
                rates.every_s
            ),
            evidence,
        })
    }
}

fn unprobed() -> String {
    "too few probes were answered beside the load".to_owned()
}

/// Returns the rate in bit/s at which a path served a load and the probes beside it, after `burst` bytes that passed faster;
/// `None` if the load did not fill the path.
///
/// Random losses behind the bottleneck let less arrive than it served.
fn rate(loaded: &LoadedSession, random: Option<&LossFit>, burst: Estimate) -> Option<Estimate> {
    let load = &loaded.load;
    let passes = loss::passes(random);
    if passes <= 0.0 || load.received() > (1.0 - LEAST_EXCESS) * passes * load.sent {
        return None;
    }
    let per_second = |bytes: f64| 8.0 * bytes / load.seconds.max(1e-3);
    let arrived = per_second(arrived_bytes(loaded));
    let served =
        |arrived: f64, passes: f64, burst: f64| arrived / passes.max(0.01) - per_second(burst);
    let packets = load.sent * load.sending_s / 8.0 / f64::from(load.wire_bytes);
    let [least_loss, most_loss] = random.map_or([0.0; 2], |random| random.expected(packets));
    let [least_burst, most_burst] = burst.interval;
    let value = served(arrived, passes, burst.value);
    let interval = [
        served(arrived - load.error, 1.0 - least_loss, most_burst),
        served(arrived + load.error, 1.0 - most_loss, least_burst),
    ];
    let edges = per_second(EDGES * f64::from(load.wire_bytes));
    Some(Estimate::new(value, interval).widened(RATE_ERROR * value + edges))
}

/// Returns the bytes of a load and of the probes beside it that passed the direction of the load.
fn arrived_bytes(loaded: &LoadedSession) -> f64 {
    let probes = loaded.probes.probes.iter();
    let passed = probes
        .filter(|probe| probe.passed(loaded.direction))
        .count();
    loaded.load.bytes + passed as f64 * f64::from(loaded.probes.wire_bytes)
}

/// Returns the mean of two estimates. Its interval contains both of theirs, because a rate that differs between two loads
/// is no constant.
fn both(one: Estimate, other: Estimate) -> Estimate {
    let value = f64::midpoint(one.value, other.value);
    let ([one_low, one_high], [other_low, other_high]) = (one.interval, other.interval);
    Estimate::new(value, [one_low.min(other_low), one_high.max(other_high)])
}

/// Returns the bytes that pass faster than the rate after silence.
///
/// With a burst b and a rate R, the search served b + R t1 in its t1 seconds, and the strong load b + R t2. Jitter moves the
/// first and the last arrival by up to `range_ms`.
fn burst(
    search: &LoadTraffic,
    strong: &LoadedSession,
    random: Option<&LossFit>,
    range_ms: f64,
) -> Option<Estimate> {
    let passes = loss::passes(random).max(0.01);
    let apart_s = strong.load.seconds - search.seconds;
    if apart_s <= 0.0 {
        return None;
    }
    let difference = search.bytes * strong.load.seconds - arrived_bytes(strong) * search.seconds;
    let value = difference / apart_s / passes;
    let packet = f64::from(search.wire_bytes);
    // Its error is that of both times, that of the packets at the edges, and that of the random losses of the search. Without
    // a known loss there is none: it would have had to spare the search as well as the idle path.
    let lost_share = random
        .filter(|random| random.counts.lost > 0)
        .map_or(0.0, |random| {
            let value = random.share().value;
            let [low, high] = random.expected(search.bytes / packet / passes);
            (value - low).max(high - value)
        });
    let while_late = range_ms / 8e3 * search.received();
    let reach = EDGES * packet + while_late + (RATE_ERROR + lost_share / passes) * search.bytes;
    Some(Estimate::within(value, reach))
}

/// Returns whether a burst is certainly more than a few packets.
fn is_certain(burst: &Estimate, strong: &LoadedSession) -> bool {
    burst.interval[0] > 3.0 * f64::from(strong.load.wire_bytes)
}
