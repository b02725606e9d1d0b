//! The kind of queue in front of a rate, from probes beside loads, and from loads that arrive late.

use conditions::Direction;
use stats::order_statistics::{quantile, sorted};
use stats::quantile::Quantile;

use crate::delay::half_life;
use crate::estimate::Estimate;
use crate::growth::{CODEL, Growth, Manager};
use crate::index;
use crate::observations::{LoadTraffic, LoadedSession, PathObservations, Probe};

/// The part of a load in which a strong one has filled the queue.
const SETTLED: [f64; 2] = [0.5, 0.95];
/// By how much waits must differ more from one kind of queue than from the other, so that the choice is clear.
const CLEAR: f64 = 2.0;
/// The share of the longest wait by which waits may differ from those in a plain queue, because the load and the rate are not
/// exactly even.
const UNEVEN: f64 = 0.05;
/// A queue that CoDel has shortened stays below this many of its targets beside a gentle load. A plain queue that is full has at
/// least this share of its length beside a strong load.
const SHORTENED: f64 = 3.0;
const FULL: f64 = 0.8;
/// The share of waits that are not longer than the one by which a queue is taken to be short.
const MOST_WAITS: f64 = 0.9;
/// The share of the time for which a load arrived late below which probes did not wait in the queue of that load.
const OWN_QUEUE: f64 = 0.25;
/// The delay in packet times below which probes met no queue.
const NO_QUEUE_PACKETS: f64 = 2.0;
/// The delay that the hosts may add, in milliseconds.
const HOST_MS: f64 = 0.3;
/// The number of halvings that find a time to more digits than are shown.
const HALVINGS: u32 = 40;
/// The time in milliseconds by which a stall of a host may delay the last arrival of a load.
const STALL_MS: f64 = 10.0;
/// The fewest probes beside a load from which a conclusion is drawn.
const FEWEST: usize = 20;

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
        /// The length in milliseconds that a strong load reached; `None` if only its marks are known.
        most_ms: Option<Estimate>,
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
            Self::Fifo { ms, .. } => Some(ms),
            Self::Managed { most_ms: ms } | Self::Unclear { ms } => ms,
            Self::PerFlow | Self::Policed => None,
        }
    }
}

/// The observations that show the kind of queue.
pub(crate) struct Queue<'a> {
    /// The direction.
    pub(crate) way: Direction,
    /// All observations.
    pub(crate) observed: &'a PathObservations,
    /// The rate in bit/s.
    pub(crate) rate: Estimate,
    /// The bytes that pass faster after silence.
    pub(crate) burst_bytes: f64,
}

impl Queue<'_> {
    /// Returns the kind of queue with its evidence.
    pub(crate) fn kind(
        &self,
        strong: &LoadedSession,
        gentle: Option<&LoadedSession>,
    ) -> Option<(QueueKind, String)> {
        if strong.probes.probes.is_empty() {
            return None;
        }
        let packet_ms = f64::from(strong.load.wire_bytes) * 8e3 / self.rate.value;
        let waits = self.waits(strong);
        let level = median(&waits).filter(|_| waits.len() >= FEWEST);
        let unnoticed_ms = NO_QUEUE_PACKETS * packet_ms + HOST_MS;
        let has_queue = |level: &Estimate| {
            let [ordered_ms, _] = self.ordered_ms(packet_ms);
            let jitter_ms = self.scatter().unwrap_or_default() + ordered_ms;
            let [late_ms, _] = strong.load.drain_ms().interval;
            level.value >= (unnoticed_ms + jitter_ms).max(OWN_QUEUE * late_ms)
        };
        if let Some(level) = level.filter(has_queue) {
            return Some(self.waiting(strong, gentle, level, packet_ms));
        }
        let drains = self.drains(strong);
        let waited = waited(&drains, unnoticed_ms + range(&self.idle())?);
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

    /// Returns the bytes in front of the probes in the settled part of a load, if these scatter less than the times that the
    /// probes waited: the queue in front of a rate that varies then has a constant length in bytes.
    ///
    /// The bytes in front of a probe are those that are served while it waits. They arrive later by the delay of the idle
    /// path. The far end of an upload begins to count one delay of the direction down before this end does, so that the bytes
    /// of an upload are those that arrived earlier by that delay.
    pub(crate) fn held_bytes(&self, loaded: &LoadedSession) -> Option<Estimate> {
        let way = one_way(self.observed, self.way);
        let idle = quantile(&self.idle(), 0.5)?;
        let lasts_s = loaded.until_s - loaded.from_s;
        let [from_s, until_s] = SETTLED.map(|share| share * lasts_s);
        let held = |probe: &Probe| {
            let sent_s = probe.at_s - loaded.from_s;
            let delay = probe.delay(way)?;
            if !(from_s..until_s).contains(&sent_s) {
                return None;
            }
            // An answer enters the direction down when the probe has passed the other one.
            let before = match self.way {
                Direction::Up => None,
                Direction::Down => way.and(probe.one_way_ms[index(Direction::Up)]),
            };
            let entered_s = sent_s + before.unwrap_or_default() / 1e3;
            let [first_s, last_s] = [idle, delay.max(idle)].map(|ms| entered_s + ms / 1e3);
            if last_s > loaded.arrivals.lasts_s() {
                return None;
            }
            let bits = loaded.arrivals.mean_between(first_s, last_s) * (last_s - first_s);
            Some((bits / 8.0, delay - idle))
        };
        let (bytes, waits): (Vec<f64>, Vec<f64>) =
            loaded.probes.answered().filter_map(held).unzip();
        let is_known = !loaded.arrivals.is_empty() && bytes.len() >= FEWEST;
        let is_constant = scatter(&bytes)? < scatter(&waits)?;
        median(&bytes).filter(|_| is_known && is_constant)
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
        // Jitter behind the queue makes packets wait for those before them; jitter in front of it does not.
        let Estimate { value, interval } = level.widened(packet_ms / 2.0);
        let [low, high] = interval;
        let [usual_ms, longest_ms] = self.ordered_ms(packet_ms).map(|ms| ms.min(value));
        let ms = Estimate::new(value - usual_ms, [(low - longest_ms).max(0.0), high]);
        let is_least = self.grows(strong, level.value, packet_ms);
        let unclear = QueueKind::Unclear { ms: Some(ms) };
        let compared = gentle.and_then(|gentle| {
            let waits = self.timed_waits(gentle, [0.0, 1.0]);
            let growth = self.growth(gentle, level.value)?;
            let misfit = |manager| growth.misfit(manager, &waits);
            let misfits = (misfit(Manager::Nobody)?, misfit(Manager::Codel)?);
            let (_, all_ms): (Vec<f64>, Vec<f64>) = waits.iter().copied().unzip();
            let ordered = sorted(&all_ms);
            let most_ms = quantile(&ordered, MOST_WAITS)?;
            let longest_ms = quantile(&ordered, 1.0)?.max(0.0);
            (waits.len() >= FEWEST).then_some((gentle, misfits, (most_ms, longest_ms)))
        });
        let Some((gentle, (plain, managed), (most_ms, longest_ms))) = compared else {
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
        let exact = (CLEAR * noise).max(UNEVEN * longest_ms);
        // A plain queue that hardly grows, because the load hardly exceeds the rate, looks like one that CoDel has shortened.
        let (target_ms, _) = CODEL;
        let is_short = most_ms < (SHORTENED * target_ms).min(FULL * level.value);
        let kind = if managed > noise.max(CLEAR * plain) && plain < exact && !is_short {
            QueueKind::Fifo { ms, is_least }
        } else if plain > noise.max(CLEAR * managed) {
            QueueKind::Managed { most_ms: Some(ms) }
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
        let way = one_way(self.observed, self.way);
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
        idle_delays(self.observed, self.way)
    }

    /// Returns how long a probe waits for the jitter of the packets before it, if these follow each other every
    /// `packet_ms` and keep their order, in milliseconds: the expected time, and the longest one.
    ///
    /// It is the median of the largest x - j packet_ms, where x is the random part of the delay of the j-th packet before.
    /// The number of packets that make a probe wait longer has about a Poisson distribution, so that half of the probes
    /// wait longer than the time for which ln 2 of them are expected.
    fn ordered_ms(&self, packet_ms: f64) -> [f64; 2] {
        let session = &self.observed.idle;
        let Some(way) = one_way(self.observed, self.way) else {
            return [0.0; 2];
        };
        if session.reordered[index(way)] {
            return [0.0; 2];
        }
        let timed = |probe: &Probe| Some((probe.at_s, probe.delay(Some(way))?));
        let timed: Vec<(f64, f64)> = session.answered().filter_map(timed).collect();
        let idle = self.idle();
        let (Some(middle), Some(most)) = (quantile(&idle, 0.5), idle.last()) else {
            return [0.0; 2];
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
        // Similar jitter of neighbours makes them wait less.
        match half_life(&timed) {
            Some(_) => [0.0, low],
            None => [low; 2],
        }
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
        let grown = middle(first)
            .zip(middle(second))
            .map(|([_, before], [after, _])| after - before);
        grown.is_some_and(|grown| grown > (0.05 * level_ms).max(2.0 * packet_ms))
    }
}

/// Returns for how many seconds after the end of a load a queue for its flow alone may still hold what is left of it, on a path
/// of this rate in bit/s; 0 if probes waited in the same queue, because the messages that end the load then passed it, too.
///
/// The receiver stops counting 0.2 s after those messages. How much of the rest was dropped is not known.
pub(crate) fn left_behind_s(observed: &PathObservations, loaded: &LoadedSession, rate: f64) -> f64 {
    let rate = Estimate::within(rate.max(1.0), 0.0);
    let queue = Queue {
        way: loaded.direction,
        observed,
        rate,
        burst_bytes: 0.0,
    };
    let late_ms = loaded.load.drain_ms().value;
    let waited_ms = median(&queue.waits(loaded)).map_or(0.0, |wait| wait.value);
    if late_ms < STALL_MS || waited_ms >= OWN_QUEUE * late_ms {
        return 0.0;
    }
    let load = &loaded.load;
    (load.sent * load.sending_s - 8.0 * load.bytes).max(0.0) / rate.value
}

/// Returns the delays on the idle path in ascending order, in milliseconds: in this direction, or else of the round trip.
pub(crate) fn idle_delays(observed: &PathObservations, way: Direction) -> Vec<f64> {
    let way = one_way(observed, way);
    sorted(&observed.idle.delays(way, [0.0, f64::INFINITY]))
}

/// Returns the direction if delays were measured in each direction.
fn one_way(observed: &PathObservations, way: Direction) -> Option<Direction> {
    observed.has_one_way().then_some(way)
}

/// Returns the range of ascending delays without the outermost hundredths.
pub(crate) fn range(ordered: &[f64]) -> Option<f64> {
    Some(quantile(ordered, 0.99)? - quantile(ordered, 0.01)?)
}

/// Returns whether the datagrams of loads that exceeded the rate waited longer than `noise_ms`, from the times for which
/// they arrived after their ends; `None` if these do not show it.
///
/// A queue that is managed for each flow lets packets wait for an interval before it drops one, so that a shorter wait is
/// none of such a queue.
fn waited(drains: &[Estimate], noise_ms: f64) -> Option<bool> {
    let late_ms = noise_ms.max(STALL_MS);
    if drains.iter().any(|one| one.interval[0] > late_ms) {
        return Some(true);
    }
    let (_, interval_s) = CODEL;
    let is_short = |one: &Estimate| one.interval[1].max(noise_ms) < 1e3 * interval_s;
    drains.iter().all(is_short).then_some(false)
}

/// Returns the range of the middle half of values as a share of their median.
fn scatter(values: &[f64]) -> Option<f64> {
    let ordered = sorted(values);
    let of = |share| quantile(&ordered, share);
    let middle = of(0.5).filter(|middle| *middle > 0.0)?;
    Some((of(0.75)? - of(0.25)?) / middle)
}

/// Returns the median with its interval, if the series has enough effective samples for one.
pub(crate) fn median(values: &[f64]) -> Option<Estimate> {
    let found = Quantile::of(values, 0.5)?;
    Some(Estimate::with_known(found.value, found.interval))
}

/// Returns the interval of the median, or the quartiles of a series with too few effective samples. A queue that grows evenly
/// is such a series.
fn middle(values: &[f64]) -> Option<[f64; 2]> {
    let ordered = sorted(values);
    let quartiles = [quantile(&ordered, 0.25)?, quantile(&ordered, 0.75)?];
    let interval = Quantile::of_sorted(values, &ordered, 0.5)?.interval;
    Some(interval.unwrap_or(quartiles))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observations::ProbeSession;
    use crate::over_time::OverTime;

    #[test]
    fn bytes_that_were_served_after_the_end_of_the_counts_are_not_known() {
        let probe = |at_s, up_ms: f64| Probe {
            at_s,
            rtt_ms: Some(up_ms + 10.0),
            one_way_ms: [Some(up_ms), Some(10.0)],
            lost: None,
        };
        let idle = (0..20).map(|at| probe(f64::from(at) / 100.0, 10.0));
        let observed = PathObservations {
            idle: ProbeSession {
                probes: idle.collect(),
                ..ProbeSession::default()
            },
            ..PathObservations::default()
        };
        let traffic = LoadTraffic {
            wire_bytes: 1442,
            sent: 20e6,
            sending_s: 10.0,
            bytes: 10e6,
            seconds: 10.0,
            error: 0.0,
        };
        // 125,000 bytes wait for 100 ms in the first six seconds, and then for 200 ms. The last probes wait for longer than
        // the load lasts.
        let beside = (0..90).map(|at| {
            let waited_ms = match at {
                ..20 => 100.0,
                20..40 => 200.0,
                _ => 3500.0,
            };
            probe(5.0 + f64::from(at) / 20.0, 10.0 + waited_ms)
        });
        let loaded = LoadedSession {
            probes: ProbeSession {
                probes: beside.collect(),
                ..ProbeSession::default()
            },
            arrivals: OverTime {
                every_s: 0.1,
                values: (0..100)
                    .map(|at| if at < 60 { 10e6 } else { 5e6 })
                    .collect(),
            },
            ..LoadedSession::unprobed(Direction::Up, traffic)
        };
        let queue = Queue {
            way: Direction::Up,
            observed: &observed,
            rate: Estimate::within(7.5e6, 0.0),
            burst_bytes: 0.0,
        };
        let held = queue.held_bytes(&loaded).unwrap();
        assert!((held.value - 125e3).abs() < 1e3, "{held:?}");
    }

    #[test]
    fn a_queue_of_its_own_may_hold_what_did_not_arrive_of_a_load() {
        let probes = |wait_ms: f64| {
            let probe = |at: u32| Probe {
                at_s: f64::from(at) / 10.0,
                rtt_ms: Some(20.0 + wait_ms),
                one_way_ms: [Some(10.0 + wait_ms), Some(10.0)],
                lost: None,
            };
            ProbeSession {
                probes: (0..100).map(probe).collect(),
                ..ProbeSession::default()
            }
        };
        let observed = PathObservations {
            idle: probes(0.0),
            ..PathObservations::default()
        };
        let left_s = |wait_ms, seconds| {
            let traffic = LoadTraffic {
                wire_bytes: 1442,
                sent: 20e6,
                sending_s: 10.0,
                bytes: 10e6,
                seconds,
                error: 0.0,
            };
            let loaded = LoadedSession {
                probes: probes(wait_ms),
                ..LoadedSession::unprobed(Direction::Up, traffic)
            };
            left_behind_s(&observed, &loaded, 10e6)
        };
        assert!((left_s(0.5, 10.224) - 12.0).abs() < 1e-9);
        // The probes waited with the load, or nothing waited.
        assert_eq!((left_s(200.0, 10.224), left_s(0.5, 10.0)), (0.0, 0.0));
    }

    #[test]
    fn a_queue_that_stays_short_beside_a_gentle_load_is_not_called_plain() {
        let probes = |from_s: f64, wait_ms: &dyn Fn(f64) -> f64| {
            let probe = |at: u32| {
                let at_s = f64::from(at) / 100.0;
                let up_ms = 180.0 + wait_ms(from_s + at_s);
                Probe {
                    at_s,
                    rtt_ms: Some(up_ms + 10.0),
                    one_way_ms: [Some(up_ms), Some(10.0)],
                    lost: None,
                }
            };
            ProbeSession {
                probes: (0..160).map(probe).collect(),
                ..ProbeSession::default()
            }
        };
        let loaded = |share: f64, wait_ms: &dyn Fn(f64) -> f64| {
            let traffic = LoadTraffic {
                wire_bytes: 1490,
                sent: share * 46e6,
                sending_s: 8.0,
                bytes: 46e6,
                seconds: 8.0,
                error: 0.0,
            };
            LoadedSession {
                probes: probes(4.0, wait_ms),
                from_s: -4.0,
                until_s: 3.6,
                ..LoadedSession::unprobed(Direction::Up, traffic)
            }
        };
        let observed = PathObservations {
            idle: probes(0.0, &|_| 0.0),
            ..PathObservations::default()
        };
        let queue = Queue {
            way: Direction::Up,
            observed: &observed,
            rate: Estimate::within(46e6, 1e6),
            burst_bytes: 0.0,
        };
        let kind = |wait_ms: &dyn Fn(f64) -> f64| {
            let gentle = loaded(1.015, wait_ms);
            let found = queue.kind(&loaded(2.0, &|_| 240.0), Some(&gentle));
            found.unwrap().0.name()
        };
        // CoDel has shortened the queue before the first probe, and lets it grow again for a while.
        let shortened = |at_s: f64| 9.0 + 1.5 * (at_s - 4.0);
        assert_ne!(kind(&shortened), "fifo");
        assert_eq!(kind(&|at_s| 10.0 * at_s), "fifo");
    }

    #[test]
    fn a_series_with_too_few_effective_samples_has_a_median_without_an_interval() {
        let growing: Vec<f64> = (0..200).map(f64::from).collect();
        let found = median(&growing).unwrap();
        assert_eq!((found.value, found.known_interval()), (99.5, None));
        let mut random = fastrand::Rng::with_seed(3);
        let independent: Vec<f64> = (0..200).map(|_| random.f64()).collect();
        assert!(median(&independent).unwrap().known_interval().is_some());
    }

    #[test]
    fn late_loads_waited_and_an_uncertain_end_shows_nothing() {
        let of = |all: &[(f64, f64)]| {
            let drains = all.iter().map(|(ms, error)| Estimate::within(*ms, *error));
            waited(&drains.collect::<Vec<Estimate>>(), 3.0)
        };
        assert_eq!(of(&[(0.5, 1.0), (200.0, 5.0)]), Some(true));
        assert_eq!(of(&[(0.5, 1.0), (2.0, 1.0)]), Some(false));
        // A host may have stalled.
        assert_eq!(of(&[(8.0, 1.0)]), Some(false));
        assert_eq!(of(&[(50.0, 80.0)]), None);
    }
}
