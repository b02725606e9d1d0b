//! The rate of a direction, and the queue in front of it.

use conditions::Direction;
use stats::losses;
use stats::order_statistics::{quantile, sorted};
use stats::quantile::Quantile;

use crate::delay::half_life;
use crate::estimate::Estimate;
use crate::growth::{CODEL, Growth, Manager};
use crate::loss::{self, LossFit};
use crate::observations::{Intensity, LoadTraffic, LoadedSession, PathObservations, Probe, index};

/// The least share of a load that does not arrive in the time of sending if the load fills the path.
const LEAST_EXCESS: f64 = 0.01;
/// The error of the rate from clocks and from the variation of delays, as a share.
const RATE_ERROR: f64 = 0.001;
/// The packets at the edges of a time by which the bytes that arrived in it may be off.
const EDGES: f64 = 2.0;
/// The part of a load in which a strong one has filled the queue.
const SETTLED: [f64; 2] = [0.5, 0.95];
/// By how much waits must differ more from one kind of queue than from the other, so that the choice is clear.
const CLEAR: f64 = 2.0;
/// The delay in packet times below which probes met no queue.
const NO_QUEUE_PACKETS: f64 = 2.0;
/// The delay that the hosts may add, in milliseconds.
const HOST_MS: f64 = 0.3;
/// The number of halvings that find a time to more digits than are shown.
const HALVINGS: u32 = 40;
/// The fewest probes beside a load from which a conclusion is drawn.
const FEWEST: usize = 20;

/// The rate of a direction, and what happens to packets that exceed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// The rate in bit/s, in L2 bytes without FCS.
    pub rate: Estimate,
    /// The bytes that pass faster than the rate after silence, if they are more than a few packets.
    pub burst_bytes: Option<Estimate>,
    /// The queue of packets that exceed the rate; `None` if no probes were sent beside a load.
    pub queue: Option<QueueKind>,
    /// The observations behind the rate, in words.
    pub rate_evidence: String,
    /// The observations that led to the kind of queue, in words.
    pub evidence: String,
}

/// The queue of packets that exceed a rate, or their drop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueKind {
    /// They wait in one queue of this length in milliseconds; those that find it full are dropped.
    Fifo {
        /// The length in milliseconds.
        ms: Estimate,
        /// Whether the queue still grew at the end, so that it may be longer.
        is_least: bool,
    },
    /// They wait in a queue that is kept short by dropping or marking, as CoDel does.
    Managed {
        /// The length in milliseconds that a strong load reached.
        most_ms: Estimate,
    },
    /// Each flow has its own queue, so that other flows do not wait.
    PerFlow,
    /// They are dropped immediately.
    Policed,
    /// They wait, and whether the queue is managed cannot be distinguished; or other flows do not wait, and a queue for
    /// each flow cannot be distinguished from a policer.
    Unclear {
        /// The length in milliseconds; `None` if other flows do not wait.
        ms: Option<Estimate>,
    },
}

impl QueueKind {
    /// Returns its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo { .. } => "fifo",
            Self::Managed { .. } => "codel",
            Self::PerFlow => "fq_codel",
            Self::Policed => "policer",
            Self::Unclear { .. } => "cannot be distinguished",
        }
    }

    /// Returns its length in milliseconds, if it has one queue for all flows.
    pub(crate) fn length(self) -> Option<Estimate> {
        match self {
            Self::Fifo { ms, .. } | Self::Managed { most_ms: ms } => Some(ms),
            Self::Unclear { ms } => ms,
            Self::PerFlow | Self::Policed => None,
        }
    }
}

impl Bottleneck {
    /// Fits the bottleneck of a direction; `None` if no load exceeded its rate.
    pub(crate) fn of(
        observed: &PathObservations,
        way: Direction,
        random: Option<&LossFit>,
    ) -> Option<Self> {
        let of_kind = |intensity| {
            let mut loaded = observed.loaded.iter();
            loaded.find(|one| (one.direction, one.intensity) == (way, intensity))
        };
        let Some(strong) = of_kind(Intensity::Strong) else {
            return Self::of_throughput(observed, way);
        };
        let gentle = of_kind(Intensity::Gentle);
        let mut searches = observed.searches.iter();
        let search = searches.find(|(of, _)| *of == way).map(|(_, load)| load);
        let possible = search.and_then(|search| burst(search, strong, random));
        let burst = possible.filter(|possible| is_certain(possible, strong));
        let burst_bytes = burst.map_or(0.0, |burst| burst.value);
        let bytes = possible.map_or(Estimate::within(0.0, 0.0), |possible| {
            Estimate::new(burst_bytes, possible.interval.map(|bytes| bytes.max(0.0)))
        });
        let rate = rate(strong, random, bytes)?;
        let also = gentle.and_then(|gentle| self::rate(gentle, random, bytes));
        let rate = also.map_or(rate, |other| both(rate, other));
        let queue = Queue {
            way,
            one_way: observed.has_one_way(),
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
        let unprobed = || "too few probes were answered beside the load".to_owned();
        Some(Self {
            rate,
            burst_bytes: burst,
            queue: kind,
            rate_evidence: "what arrived of loads above it, in L2 bytes without FCS".to_owned(),
            evidence: evidence.unwrap_or_else(unprobed),
        })
    }

    /// Takes the median throughput as the rate; its interval has nine of ten seconds.
    fn of_throughput(observed: &PathObservations, way: Direction) -> Option<Self> {
        let mut throughput = observed.throughput.iter();
        let (_, rates) = throughput.find(|(of, _)| *of == way)?;
        let ordered = sorted(rates);
        let of = |share| quantile(&ordered, share);
        let rate = Estimate::new(of(0.5)?, [of(0.05)?, of(0.95)?]);
        (rate.value > 0.0).then(|| Self {
            rate,
            burst_bytes: None,
            queue: None,
            rate_evidence: format!(
                "the median throughput of {} seconds, with the range of nine of ten; a transfer that did not fill the path shows less",
                rates.len()
            ),
            evidence: "throughput does not show it".to_owned(),
        })
    }
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
/// With a burst b and a rate R, the search served b + R t1 in its t1 seconds, and the strong load b + R t2.
fn burst(
    search: &LoadTraffic,
    strong: &LoadedSession,
    random: Option<&LossFit>,
) -> Option<Estimate> {
    let passes = loss::passes(random).max(0.01);
    let apart_s = strong.load.seconds - search.seconds;
    if apart_s <= 0.0 {
        return None;
    }
    let difference = search.bytes * strong.load.seconds - arrived_bytes(strong) * search.seconds;
    let value = difference / apart_s / passes;
    let packet = f64::from(search.wire_bytes);
    // Its error is that of both times, that of the packets at the edges, and that of the random losses of the search.
    let lost_packets = random.map_or(0.0, |random| {
        let (share, burst) = (
            random.share().value,
            random.burst.map_or(1.0, |burst| burst.value),
        );
        let sent = search.bytes / packet / passes;
        2.0 * (sent * share * (1.0 - share) * losses::inflation(share, burst)).sqrt()
    });
    let reach = (EDGES + lost_packets) * packet + RATE_ERROR * search.bytes;
    Some(Estimate::within(value, reach))
}

/// Returns whether a burst is certainly more than a few packets.
fn is_certain(burst: &Estimate, strong: &LoadedSession) -> bool {
    burst.interval[0] > 3.0 * f64::from(strong.load.wire_bytes)
}

/// The observations that show the kind of queue.
struct Queue<'a> {
    way: Direction,
    one_way: bool,
    observed: &'a PathObservations,
    /// The rate in bit/s.
    rate: Estimate,
    /// The bytes that pass faster after silence.
    burst_bytes: f64,
}

impl Queue<'_> {
    /// Returns the kind of queue with its evidence.
    fn kind(
        &self,
        strong: &LoadedSession,
        gentle: Option<&LoadedSession>,
    ) -> Option<(QueueKind, String)> {
        let packet_ms = f64::from(strong.load.wire_bytes) * 8e3 / self.rate.value;
        let waits = self.waits(strong);
        let level = median(&waits).filter(|_| waits.len() >= FEWEST);
        let unnoticed_ms = NO_QUEUE_PACKETS * packet_ms + HOST_MS;
        let has_queue = |level: &Estimate| {
            let jitter_ms = self.scatter().unwrap_or_default() + self.ordered_ms(packet_ms);
            level.value >= unnoticed_ms + jitter_ms
        };
        if let Some(level) = level.filter(has_queue) {
            return Some(self.waiting(strong, gentle, level, packet_ms));
        }
        let drains = self.drains(strong);
        let waited = waited(&drains, unnoticed_ms + self.range()?);
        let Some(level) = level else {
            // A full queue can refuse almost all probes. How late the load arrived then shows the length of the queue.
            let drain = strong.load.drain_ms();
            return match waited? {
                true => Some(self.waiting(strong, gentle, drain, packet_ms)),
                false => Some((QueueKind::Policed, "hardly a probe passed".to_owned())),
            };
        };
        let longest_ms = drains.iter().map(|one| one.value).fold(0.0, f64::max);
        let evidence = format!(
            "probes waited {:.1} ms beside a load of {:.1} times the rate, which arrived until {longest_ms:.1} ms after its end",
            level.value.max(0.0),
            strong.load.sent / self.rate.value
        );
        let kind = match waited {
            Some(true) => QueueKind::PerFlow,
            Some(false) => QueueKind::Policed,
            None => QueueKind::Unclear { ms: None },
        };
        Some((kind, evidence))
    }

    /// Returns the kind of a queue in which probes wait.
    fn waiting(
        &self,
        strong: &LoadedSession,
        gentle: Option<&LoadedSession>,
        level: Estimate,
        packet_ms: f64,
    ) -> (QueueKind, String) {
        // A probe needs less room than a datagram of the load, which leaves up to a datagram's room empty.
        let ms = level.widened(packet_ms / 2.0);
        let is_least = self.grows(strong, level.value, packet_ms);
        let unclear = QueueKind::Unclear { ms: Some(ms) };
        let compared = gentle.and_then(|gentle| {
            let waits = self.timed_waits(gentle, [0.0, 1.0]);
            let growth = self.growth(gentle, level.value)?;
            let misfit = |manager| growth.misfit(manager, &waits);
            let misfits = (misfit(Manager::Nobody)?, misfit(Manager::Codel)?);
            (waits.len() >= FEWEST).then_some((gentle, misfits))
        });
        let Some((gentle, (plain, managed))) = compared else {
            let evidence = format!(
                "packets waited {:.1} ms beside the strong load; no gentle load shows whether the queue is managed",
                level.value
            );
            return (unclear, evidence);
        };
        let evidence = format!(
            "beside a load of {:.3} times the rate, the waits of probes over time differ by {plain:.1} ms from those in a plain \
             queue, and by {managed:.1} ms from those in CoDel's",
            gentle.load.sent / self.rate.value
        );
        let noise = packet_ms + HOST_MS + self.scatter().unwrap_or_default();
        // The growth of a plain queue is exact, and that of a managed one only for CoDel, and only until it is short.
        let kind = if managed > noise.max(CLEAR * plain) && plain < CLEAR * noise {
            QueueKind::Fifo { ms, is_least }
        } else if plain > noise.max(CLEAR * managed) {
            QueueKind::Managed { most_ms: ms }
        } else {
            unclear
        };
        (kind, evidence)
    }

    /// Returns what determines the growth of the queue beside a load, if a full queue lasts for `full_ms`.
    fn growth(&self, loaded: &LoadedSession, full_ms: f64) -> Option<Growth> {
        let bits = |bytes: u32| 8.0 * f64::from(bytes);
        let probes = &loaded.probes;
        Some(Growth {
            rates: self.rate.interval,
            sent: loaded.load.sent,
            probes: (
                bits(probes.wire_bytes) / probes.interval_s()?,
                -loaded.from_s,
            ),
            burst_bits: 8.0 * self.burst_bytes,
            full_ms,
            packet_bits: bits(loaded.load.wire_bytes),
        })
    }

    /// Returns by how much the probes in the settled part of a load waited longer than on the idle path, in milliseconds.
    fn waits(&self, loaded: &LoadedSession) -> Vec<f64> {
        let waits = self.timed_waits(loaded, SETTLED);
        waits.into_iter().map(|(_, wait)| wait).collect()
    }

    /// Returns by how much the probes in a part of a load waited longer than on the idle path, in milliseconds, each with
    /// its time in seconds since the start of the load.
    fn timed_waits(&self, loaded: &LoadedSession, part: [f64; 2]) -> Vec<(f64, f64)> {
        let Some(idle) = quantile(&self.idle(), 0.5) else {
            return Vec::new();
        };
        let way = self.one_way.then_some(self.way);
        let lasts_s = loaded.until_s - loaded.from_s;
        let [from_s, until_s] = part.map(|share| share * lasts_s);
        let timed = |probe: &Probe| Some((probe.at_s - loaded.from_s, probe.delay(way)? - idle));
        let probes = loaded.probes.answered().filter_map(timed);
        probes
            .filter(|(at_s, _)| (from_s..until_s).contains(at_s))
            .collect()
    }

    /// Returns the standard error by which jitter may shift a median of twenty probes, in milliseconds.
    fn scatter(&self) -> Option<f64> {
        let idle = self.idle();
        let range = quantile(&idle, 0.75)? - quantile(&idle, 0.25)?;
        Some(range / 4.0)
    }

    /// Returns the delays on the idle path in ascending order, in milliseconds.
    fn idle(&self) -> Vec<f64> {
        let way = self.one_way.then_some(self.way);
        sorted(&self.observed.idle.delays(way, [0.0, f64::INFINITY]))
    }

    /// Returns the range of the delays on the idle path, without the outermost hundredths, in milliseconds.
    fn range(&self) -> Option<f64> {
        let idle = self.idle();
        Some(quantile(&idle, 0.99)? - quantile(&idle, 0.01)?)
    }

    /// Returns how long a probe waits for the jitter of the packets before it, if these follow each other every
    /// `packet_ms` and keep their order, in milliseconds.
    ///
    /// It is the median of the largest x - j packet_ms, where x is the random part of the delay of the j-th packet before.
    /// The number of packets that make a probe wait longer has about a Poisson distribution, so that half of the probes
    /// wait longer than the time for which ln 2 of them are expected.
    fn ordered_ms(&self, packet_ms: f64) -> f64 {
        let session = &self.observed.idle;
        let Some(way) = self.one_way.then_some(self.way) else {
            return 0.0;
        };
        let timed = |probe: &Probe| Some((probe.at_s, probe.delay(Some(way))?));
        let timed: Vec<(f64, f64)> = session.answered().filter_map(timed).collect();
        // The jitter of neighbours that are similar makes them wait less.
        if session.reordered[index(way)] || half_life(&timed).is_some() {
            return 0.0;
        }
        let idle = self.idle();
        let (Some(middle), Some(most)) = (quantile(&idle, 0.5), idle.last()) else {
            return 0.0;
        };
        let longer = |wait_ms: f64| {
            let beyond = idle.iter().map(|delay| delay - middle - wait_ms);
            let packets = beyond
                .filter(|ms| *ms > 0.0)
                .map(|ms| (ms / packet_ms).ceil());
            packets.sum::<f64>() / idle.len() as f64
        };
        let (mut low, mut high) = (0.0, most - middle);
        for _ in 0..HALVINGS {
            let wait_ms = f64::midpoint(low, high);
            match longer(wait_ms) > std::f64::consts::LN_2 {
                true => low = wait_ms,
                false => high = wait_ms,
            }
        }
        low
    }

    /// Returns for how many milliseconds the search and the strong load arrived after their ends.
    fn drains(&self, strong: &LoadedSession) -> Vec<Estimate> {
        let searches = self.observed.searches.iter();
        let search = searches.filter(|(way, _)| *way == self.way);
        let loads = search.map(|(_, load)| load).chain([&strong.load]);
        loads.map(LoadTraffic::drain_ms).collect()
    }

    /// Returns whether the queue still grows at the end of a load.
    fn grows(&self, loaded: &LoadedSession, level_ms: f64, packet_ms: f64) -> bool {
        let waits = self.waits(loaded);
        let (first, second) = waits.split_at(waits.len() / 2);
        let [first, second] = [first, second].map(|half| quantile(&sorted(half), 0.5));
        let grown = first.zip(second).map(|(first, second)| second - first);
        grown.is_some_and(|grown| grown > (0.05 * level_ms).max(2.0 * packet_ms))
    }
}

/// Returns whether the datagrams of loads that exceeded the rate waited longer than `noise_ms`, from the times for which
/// they arrived after their ends; `None` if these do not show it.
///
/// A queue that is managed for each flow lets packets wait for an interval before it drops one, so that a shorter wait is
/// none of such a queue.
fn waited(drains: &[Estimate], noise_ms: f64) -> Option<bool> {
    if drains.iter().any(|one| one.interval[0] > noise_ms) {
        return Some(true);
    }
    let (_, interval_s) = CODEL;
    let is_short = |one: &Estimate| one.interval[1].max(noise_ms) < 1e3 * interval_s;
    drains.iter().all(is_short).then_some(false)
}

/// Returns the median with its interval.
fn median(values: &[f64]) -> Option<Estimate> {
    let found = Quantile::of(values, 0.5)?;
    let ordered = sorted(values);
    // A series with too few effective samples has no interval of ranks; half of its values lie between the quartiles.
    let quartiles = [quantile(&ordered, 0.25)?, quantile(&ordered, 0.75)?];
    Some(Estimate::new(
        found.value,
        found.interval.unwrap_or(quartiles),
    ))
}
