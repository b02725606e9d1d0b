//! The rate of a direction, and the queue in front of it.

use conditions::Direction;
use stats::order_statistics::{quantile, sorted};
use stats::quantile::Quantile;

use crate::estimate::Estimate;
use crate::loss::{self, LossFit};
use crate::observations::{Burst, Intensity, LoadedSession, PathObservations};

/// The least share of a strong load that a full path loses.
const LEAST_EXCESS: f64 = 0.05;
/// The error of the rate from the clocks and from the edges of the time, as a share.
const RATE_ERROR: f64 = 0.003;
/// The last part of a strong load, in which the queue is full.
const PLATEAU: [f64; 2] = [0.6, 0.95];
/// The part of a gentle load in which active queue management is in control, and a plain queue has grown.
const CONTROLLED: [f64; 2] = [0.55, 0.9];
/// A wait below this part of the way from CoDel's to a plain queue's is that of a managed queue.
const MANAGED_BELOW: f64 = 0.35;
/// A wait above this part of the way is that of a plain queue.
const PLAIN_FROM: f64 = 0.65;
/// The least difference between a plain queue's wait and CoDel's, as a share of the plain one's, that can be observed.
const LEAST_CONTRAST: f64 = 0.25;
/// CoDel's usual target in milliseconds, and its interval in seconds (RFC 8289, section 4.4).
const CODEL: (f64, f64) = (5.0, 0.1);
/// The delay in packet times below which probes met no queue.
const NO_QUEUE_PACKETS: f64 = 2.0;
/// The delay that the hosts may add, in milliseconds.
const HOST_MS: f64 = 0.3;
/// The fewest probes beside a load from which a conclusion is drawn.
const FEWEST: usize = 20;

/// The rate of a direction, and what happens to packets that exceed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// The rate in bit/s, in L2 bytes without FCS.
    pub rate: Estimate,
    /// The bytes that pass faster than the rate after silence, if they are more than a few packets.
    pub burst_bytes: Option<Estimate>,
    /// What happens to packets that exceed the rate.
    pub queue: QueueKind,
    /// The observations that led to the kind of queue, as a sentence.
    pub evidence: String,
}

/// What happens to packets that exceed a rate.
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
    /// They wait; whether the queue is managed cannot be distinguished.
    Unclear {
        /// The length in milliseconds.
        ms: Estimate,
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
}

impl Bottleneck {
    /// Fits the bottleneck of a direction; `None` if no load exceeded its rate.
    pub(crate) fn of(observed: &PathObservations, way: Direction, random: &LossFit) -> Option<Self> {
        let of_kind = |intensity| {
            let mut loaded = observed.loaded.iter();
            loaded.find(|one| (one.direction, one.intensity) == (way, intensity))
        };
        let strong = of_kind(Intensity::Strong)?;
        let rate = rate(strong, random)?;
        let gentle = of_kind(Intensity::Gentle);
        let also = gentle.and_then(|gentle| self::rate(gentle, random));
        let rate = also.map_or(rate, |other| both(rate, other));
        let mut bursts = observed.bursts.iter().rev();
        let burst = bursts.find(|burst| burst.direction == way);
        let queue = Queue {
            way,
            one_way: observed.has_one_way(),
            observed,
            random,
            rate,
        };
        let (kind, evidence) = queue.kind(strong, gentle)?;
        Some(Self {
            rate,
            burst_bytes: burst.and_then(|burst| burst_bytes(burst, rate, strong, random)),
            queue: kind,
            evidence,
        })
    }
}

/// Returns the rate in bit/s that a load and its probes received; `None` if the load did not fill the path.
///
/// Random losses happen behind the bottleneck, so that it served more than arrived.
fn rate(loaded: &LoadedSession, random: &LossFit) -> Option<Estimate> {
    let share = random.share();
    let passes = 1.0 - share.value;
    let received = loaded.load.received.value;
    if passes <= 0.0 || received > (1.0 - LEAST_EXCESS / 5.0) * passes * loaded.load.sent {
        return None;
    }
    let [from_s, until_s] = counted(loaded);
    let entered = loaded.probes.probes.iter().filter(|probe| {
        probe.at_s >= from_s && probe.at_s < until_s && probe.passed(loaded.direction)
    });
    let probes = entered.count() as f64 * f64::from(loaded.probes.wire_bytes) * 8.0
        / (until_s - from_s).max(1e-3);
    let served = |received: f64, passes: f64| (received + probes) / passes;
    let value = served(received, passes);
    let [low, high] = loaded.load.received.interval;
    let [least_loss, most_loss] = share.interval;
    let interval = [
        served(low, 1.0 - least_loss),
        served(high, (1.0 - most_loss).max(0.01)),
    ];
    Some(Estimate::new(value, interval).widened(RATE_ERROR * value))
}

/// Returns the time in which the received rate of a load counts, in seconds since the first probe.
fn counted(loaded: &LoadedSession) -> [f64; 2] {
    [loaded.from_s + loaded.omitted_s, loaded.until_s]
}

/// Returns the mean of two estimates; their difference is part of its interval.
fn both(one: Estimate, other: Estimate) -> Estimate {
    let ends = [one.interval, other.interval];
    let value = f64::midpoint(one.value, other.value);
    let half = |[low, high]: [f64; 2]| (high - low) / 2.0;
    let reach = half(ends[0]).max(half(ends[1])) / 2.0_f64.sqrt();
    Estimate::new(value, [one.value.min(other.value), one.value.max(other.value)])
        .widened(reach.min(half(ends[0]).min(half(ends[1]))))
}

/// Returns the bytes of a burst that arrived faster than the rate allows, if they are more than a few packets.
fn burst_bytes(
    burst: &Burst,
    rate: Estimate,
    loaded: &LoadedSession,
    random: &LossFit,
) -> Option<Estimate> {
    let passes = 1.0 - random.share().value;
    let beyond = |rate: f64| burst.bytes / passes - rate * burst.seconds / 8.0;
    let packet = f64::from(loaded.load.wire_bytes);
    let [low, high] = rate.interval;
    let found = Estimate::new(beyond(rate.value), [beyond(high), beyond(low)]).widened(2.0 * packet);
    (found.interval[0] > 3.0 * packet).then_some(found)
}

/// The observations that show the kind of queue.
struct Queue<'a> {
    way: Direction,
    one_way: bool,
    observed: &'a PathObservations,
    random: &'a LossFit,
    /// In bit/s.
    rate: Estimate,
}

impl Queue<'_> {
    /// Returns the kind of queue with its evidence.
    fn kind(
        &self,
        strong: &LoadedSession,
        gentle: Option<&LoadedSession>,
    ) -> Option<(QueueKind, String)> {
        let packet_ms = f64::from(strong.load.wire_bytes) * 8e3 / self.rate.value;
        let waits = self.waits(strong, PLATEAU);
        let (lost, entered) = self.lost(strong);
        let is_policed = loss::exceeds(lost, entered, self.random);
        if waits.len() < FEWEST {
            // Almost no probe passed, and those that did cannot show a queue.
            let evidence = format!("{lost} of {entered} probes were lost beside the load");
            return is_policed.then_some((QueueKind::Policed, evidence));
        }
        let level = median(&waits)?;
        if level.value < NO_QUEUE_PACKETS * packet_ms + HOST_MS + self.scatter()? {
            let evidence = format!(
                "probes waited {:.1} ms beside a load of {:.1} times the rate, and {lost} of {entered} were lost",
                level.value.max(0.0),
                strong.load.sent / self.rate.value
            );
            return Some(match is_policed {
                true => (QueueKind::Policed, evidence),
                false => (QueueKind::PerFlow, evidence),
            });
        }
        Some(self.waiting(strong, gentle, level, packet_ms))
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
        let compared = gentle.and_then(|gentle| {
            let found = median(&self.waits(gentle, CONTROLLED))?.value;
            Some((found, Waits::of(gentle, self.rate, level.value)?, gentle))
        });
        let Some((found, expected, gentle)) = compared else {
            let evidence = format!(
                "probes waited {:.1} ms beside the strong load; no gentle load shows whether the queue is managed",
                level.value
            );
            return (QueueKind::Unclear { ms }, evidence);
        };
        let Waits { plain, managed, .. } = expected;
        let evidence = format!(
            "beside a load of {:.3} times the rate, probes waited {found:.1} ms; a plain queue makes them wait {plain:.1} ms, CoDel {managed:.1} ms",
            gentle.load.sent / self.rate.value
        );
        let noise = packet_ms + HOST_MS + self.scatter().unwrap_or_default();
        let unclear = expected.error.max(noise).max(LEAST_CONTRAST * plain);
        let kind = match (found - managed) / (plain - managed).max(1e-9) {
            _ if plain - managed < unclear => QueueKind::Unclear { ms },
            place if place < MANAGED_BELOW => QueueKind::Managed { most_ms: ms },
            place if place > PLAIN_FROM => QueueKind::Fifo { ms, is_least },
            _ => QueueKind::Unclear { ms },
        };
        (kind, evidence)
    }

    /// Returns by how much the probes in this part of a load waited longer than on the idle path, in milliseconds.
    fn waits(&self, loaded: &LoadedSession, part: [f64; 2]) -> Vec<f64> {
        let way = self.one_way.then_some(self.way);
        let idle = self.observed.idle.delays(way, [0.0, f64::INFINITY]);
        let Some(idle) = quantile(&sorted(&idle), 0.5) else {
            return Vec::new();
        };
        let lasts = loaded.until_s - loaded.from_s;
        let during = part.map(|share| loaded.from_s + share * lasts);
        let delays = loaded.probes.delays(way, during);
        delays.into_iter().map(|delay| delay - idle).collect()
    }

    /// Returns the standard error by which jitter may shift a median of twenty probes, in milliseconds.
    fn scatter(&self) -> Option<f64> {
        let way = self.one_way.then_some(self.way);
        let idle = sorted(&self.observed.idle.delays(way, [0.0, f64::INFINITY]));
        let range = quantile(&idle, 0.75)? - quantile(&idle, 0.25)?;
        Some(range / 4.0)
    }

    /// Returns whether the queue still grows at the end of a load.
    fn grows(&self, loaded: &LoadedSession, level_ms: f64, packet_ms: f64) -> bool {
        let of = |part| median(&self.waits(loaded, part)).map(|one| one.value);
        let [first, second] = [of([0.6, 0.75]), of([0.8, 0.95])];
        let grown = first.zip(second).map(|(first, second)| second - first);
        grown.is_some_and(|grown| grown > (0.05 * level_ms).max(2.0 * packet_ms))
    }

    /// Returns how many of the probes that entered this direction beside a load were lost there.
    fn lost(&self, loaded: &LoadedSession) -> (u64, u64) {
        let [from_s, until_s] = counted(loaded);
        let probes = loaded.probes.probes.iter();
        let during = probes.filter(|probe| probe.at_s >= from_s && probe.at_s < until_s);
        let entered = during.filter(|probe| probe.entered(self.way));
        entered.fold((0, 0), |(lost, all), probe| {
            (lost + u64::from(!probe.passed(self.way)), all + 1)
        })
    }
}

/// The waits in the middle of the controlled part of a gentle load, in milliseconds.
struct Waits {
    /// In a plain queue.
    plain: f64,
    /// In a queue that CoDel manages.
    managed: f64,
    /// The error of both from that of the rate.
    error: f64,
}

impl Waits {
    /// Predicts the waits beside a load on a path of this rate, whose full queue lasts for `full_ms`.
    ///
    /// A plain queue grows by what exceeds the rate, until it is full. CoDel drops its n-th packet interval / sqrt(n)
    /// after the one before, so that it has dropped (t / 2 interval)^2 packets after t seconds, until the queue is at
    /// its target.
    fn of(gentle: &LoadedSession, rate: Estimate, full_ms: f64) -> Option<Self> {
        let packet = 8.0 * f64::from(gentle.load.wire_bytes);
        let probes = 8.0 * f64::from(gentle.probes.wire_bytes) / gentle.probes.interval_s()?;
        let offered = gentle.load.sent + probes;
        let lasts_s = gentle.until_s - gentle.from_s;
        let at_s = f64::midpoint(CONTROLLED[0], CONTROLLED[1]) * lasts_s;
        let growth = |rate: f64| 1e3 * (offered / rate - 1.0) * at_s;
        let grown = growth(rate.value);
        if grown <= 0.0 {
            return None;
        }
        let (target_ms, interval_s) = CODEL;
        let above_s = at_s * (1.0 - target_ms / grown).max(0.0) - interval_s;
        let dropped = (above_s.max(0.0) / 2.0 / interval_s).powi(2);
        let shorter = 1e3 * dropped * packet / rate.value;
        let [low, high] = rate.interval;
        Some(Self {
            plain: grown.min(full_ms),
            managed: (grown - shorter).max(target_ms).min(full_ms),
            error: growth(low).min(full_ms) - growth(high).min(full_ms),
        })
    }
}

/// Returns the median with its interval.
fn median(values: &[f64]) -> Option<Estimate> {
    let found = Quantile::of(values, 0.5)?;
    let ordered = sorted(values);
    // A series with too few effective samples has no interval of ranks; half of its values lie between the quartiles.
    let quartiles = [quantile(&ordered, 0.25)?, quantile(&ordered, 0.75)?];
    Some(Estimate::new(found.value, found.interval.unwrap_or(quartiles)))
}
