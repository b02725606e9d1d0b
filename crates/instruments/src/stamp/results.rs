//! The results of a session: samples, figures with their intervals, and facts that explain them.

use std::collections::{BTreeMap, HashMap};

use record::metric_table::{MetricRow, MetricTable};
use record::schedule::{Pace, PaceUnit};
use record::{Direction, Figure, Measurement, Metric, Sample, Statistic};
use stats::losses::Losses;
use stats::proportion::percent;
use stats::quantile::Quantile;
use stats::{autocorrelation, order_statistics, t_interval};

use super::delay::{self, ClockOffset, ClockRelation, ProbeDelays};
use super::loss::{self, ProbeLosses};
use super::probe_log::{ProbeAnswer, ProbeLog};
use super::sender::ProbePlan;
use super::trains;
use crate::measured::{self, LOSS_INTERVAL, QUANTILE_INTERVAL, lost_percent, total};

/// The assumed error of a packet's timestamps in each direction, from interrupts and queues of both kernels.
const STAMP_ERROR_MS: f64 = 0.1;
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];
/// The results of one session.
#[derive(Clone, Debug)]
pub(crate) struct ProbeResults {
    /// All packets of the session.
    pub(crate) log: ProbeLog,
    /// The delays of every probe that was answered in time.
    pub(crate) delays: Vec<ProbeDelays>,
    /// The offset of the reflector's clock.
    pub(crate) offset: Option<ClockOffset>,
    /// The lost probes, with the direction of their loss.
    pub(crate) losses: ProbeLosses,
    /// Answers with impossible stamps, because the wall clock of an end was set.
    impossible: u64,
    own_error_ms: Option<f64>,
}

impl ProbeResults {
    /// Computes the results of a log. `own_error_ms` is the error of this machine's clock, if it is synchronised.
    pub(crate) fn new(log: ProbeLog, own_error_ms: Option<f64>) -> Self {
        let (delays, impossible) = delay::delays(&log);
        Self {
            offset: delay::offset(&log, &delays, own_error_ms),
            losses: loss::losses(&log),
            delays,
            impossible,
            log,
            own_error_ms,
        }
    }

    /// Returns the median round trip as a program sees it, in milliseconds. `None` means that no probe was answered.
    pub(crate) fn median_rtt_ms(&self) -> Option<f64> {
        let rtts: Vec<f64> = self.delays.iter().map(|delays| delays.rtt).collect();
        order_statistics::quantile(&order_statistics::sorted(&rtts), 0.5)
    }

    /// Returns the results as a measurement.
    pub(crate) fn measurement(&self, plan: &ProbePlan) -> Measurement {
        let mut measurement = Measurement {
            samples: self.samples(),
            figures: self.figures(),
            facts: self.facts(plan),
            paces: self.pace(plan).into_iter().collect(),
            ..Measurement::default()
        };
        if plan.has_trains() {
            self.add_trains(plan.train_length(), &mut measurement);
        }
        measurement
    }

    /// Compares the time of the last probe with the schedule; with trains, that of the first probe of the last train.
    fn pace(&self, plan: &ProbePlan) -> Option<Pace> {
        let train = plan.train_length();
        let last = self.log.probes.len().checked_sub(1)?;
        let first_of_last = last - last % train;
        let last_s = self.at_s(first_of_last);
        let sent = first_of_last as u64 + 1;
        let interval_s = plan.interval().as_secs_f64() / train as f64;
        Pace::of_interval(PaceUnit::Packets, interval_s, sent, last_s)
    }

    /// Adds the samples and the figures of trains of `length` probes.
    fn add_trains(&self, length: usize, measurement: &mut Measurement) {
        for way in DIRECTIONS {
            let trains = trains::arrivals(&self.log, length, way);
            for train in &trains {
                let samples = train.arrivals.iter().map(|(probe, ms)| {
                    Sample::new(self.at_s(*probe), Metric::InTrainMs, train.number, *ms).toward(way)
                });
                measurement.samples.extend(samples);
            }
            let spreads = trains::spreads(&trains);
            let figures = measured::distribution(Metric::InTrainMs, &spreads, SPREAD);
            let figures = figures.into_iter().map(|figure| figure.toward(way));
            measurement.figures.extend(figures);
        }
        // The sort is stable, so that the samples of probes that were sent at the same time stay in order.
        let samples = &mut measurement.samples;
        samples.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    }

    /// Returns the one-way delay of a probe in milliseconds, if the clocks are related.
    pub(crate) fn one_way(&self, delays: &ProbeDelays, direction: Direction) -> Option<f64> {
        let offset = self
            .offset
            .filter(|o| o.relation != ClockRelation::Unrelated)?;
        let ahead = match direction {
            Direction::Up => offset.ms,
            Direction::Down => -offset.ms,
        };
        Some(delays.raw(direction)? - ahead)
    }

    /// Returns the signed IPDV (RFC 3393) in milliseconds of each probe that was answered together with the one before
    /// it.
    pub(crate) fn ipdv(&self, direction: Direction) -> HashMap<usize, f64> {
        let pairs = self.delays.windows(2).filter_map(|pair| {
            let (former, latter) = (&pair[0], &pair[1]);
            let varied = latter.raw(direction)? - former.raw(direction)?;
            (former.probe + 1 == latter.probe).then_some((latter.probe, varied))
        });
        pairs.collect()
    }

    /// Returns the seconds from the sending of the first probe to that of this one.
    pub(crate) fn at_s(&self, probe: usize) -> f64 {
        let probes = &self.log.probes;
        (probes[probe].sent.0 - probes[0].sent.0) as f64 / 1e9
    }

    fn samples(&self) -> Vec<Sample> {
        let sample = |probe: usize, metric, value, direction| Sample {
            direction,
            ..Sample::new(self.at_s(probe), metric, probe as u64 + 1, value)
        };
        let mut samples = Vec::new();
        for d in &self.delays {
            let one_way = DIRECTIONS.map(|way| {
                let delay = self.one_way(d, way);
                (Metric::OneWayDelayMs, delay, Some(way))
            });
            let round_trips = [
                (Metric::RttMs, Some(d.rtt), None),
                (Metric::NetworkRttMs, d.network, None),
            ];
            let values = round_trips.into_iter().chain(one_way);
            samples.extend(values.filter_map(|(metric, value, direction)| {
                Some(sample(d.probe, metric, value?, direction))
            }));
        }
        let ways = self.losses.ways.iter();
        samples.extend(ways.map(|(probe, way)| sample(*probe, Metric::LostPackets, 1.0, *way)));
        for answer in &self.log.answers {
            let metric = match (answer.duplicate, answer.late) {
                (true, _) => Metric::DuplicateRttMs,
                (false, true) => Metric::LateRttMs,
                (false, false) => continue,
            };
            let rtt = (answer.read.0 - self.log.probes[answer.probe].sent.0) as f64 / 1e6;
            samples.push(sample(answer.probe, metric, rtt, None));
        }
        // The sort is stable, so that the samples of one probe stay together.
        samples.sort_by_key(|sample| sample.index);
        samples
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.counts();
        self.allow_for_full_sockets(&mut figures);
        figures.extend(self.round_trips());
        figures.extend(self.one_way_delays());
        figures.extend(DIRECTIONS.into_iter().flat_map(|way| self.variation(way)));
        figures
    }

    /// Lowers the lower bounds of loss by the drops of both hosts' full sockets, which are part of the measured loss
    /// but not of the network's.
    fn allow_for_full_sockets(&self, figures: &mut [Figure]) {
        let (here, there) = (self.log.overflowed.most, self.far_overflow());
        let sent = self.log.probes.len().max(1) as f64;
        for figure in figures {
            let drops = match figure.direction {
                None => here + there,
                Some(Direction::Up) => there,
                Some(Direction::Down) => here,
            };
            let drops = match figure.metric {
                Metric::LostPercent => 100.0 * drops as f64 / sent,
                Metric::LostPackets => drops as f64,
                _ => continue,
            };
            if drops > 0.0 {
                let [low, high] = figure.interval.unwrap_or([figure.value; 2]);
                figure.interval = Some([(low - drops).max(0.0), high]);
            }
        }
    }

    /// Returns the number of requests of all clients for which the far end's socket may have had no room during the
    /// session.
    fn far_overflow(&self) -> u64 {
        let overflowed = self.log.far_end.overflowed;
        overflowed.map_or(0, |(first, last)| last.saturating_sub(first).into())
    }

    fn counts(&self) -> Vec<Figure> {
        let sent = self.log.probes.len() as u64;
        let (duplicates, others): (Vec<&ProbeAnswer>, Vec<&ProbeAnswer>) =
            self.log.answers.iter().partition(|answer| answer.duplicate);
        let late = others.iter().filter(|answer| answer.late).count() as u64;
        let mut figures = vec![
            total(Metric::SentPackets, sent),
            total(Metric::ReceivedPackets, self.delays.len() as u64),
            total(Metric::LostPackets, self.losses.lost),
        ];
        if sent > 0 {
            let ways = &self.losses.ways;
            let probes = 0..self.log.probes.len();
            figures.push(lost_percent(Losses::in_order(
                probes.map(|probe| ways.contains_key(&probe)),
            )));
        }
        if let Some(split) = self.losses.split {
            for (direction, lost, of) in [
                (Direction::Up, split.lost_up, split.sent),
                (Direction::Down, split.lost_down, split.answers),
            ] {
                let most = lost + split.unresolved;
                let share = |part, whole| percent(part, whole).unwrap_or_default();
                let counts = Losses {
                    of,
                    lost,
                    bursts: self.bursts(direction).min(lost),
                };
                let interval = counts.interval().unwrap_or([0.0, 1.0]);
                let [low, high] = interval.map(|end| 100.0 * end);
                // The result must include the probes after the last answer that arrived.
                let all = of + split.unresolved;
                let percent = Figure::new(Metric::LostPercent, Statistic::Mean, share(lost, of))
                    .within(low.min(share(lost, all)), high.max(share(most, all)));
                let percent = Figure {
                    losses: Some(counts),
                    ..percent
                };
                let count = total(Metric::LostPackets, lost).within(lost as f64, most as f64);
                figures.extend([count, percent].map(|figure| figure.toward(direction)));
            }
        }
        figures.extend([
            total(Metric::LatePackets, late),
            total(Metric::DuplicatePackets, duplicates.len() as u64),
        ]);
        match loss::reordered_by_direction(&self.log) {
            Some((up, down)) => figures.extend([
                total(Metric::ReorderedPackets, up).toward(Direction::Up),
                total(Metric::ReorderedPackets, down).toward(Direction::Down),
            ]),
            None => {
                let order = others.iter().map(|answer| answer.probe as u64);
                figures.push(total(Metric::ReorderedPackets, loss::reordered(order)));
            }
        }
        figures
    }

    /// Returns the number of runs of consecutive probes that were lost in this direction, or may have been.
    fn bursts(&self, direction: Direction) -> u64 {
        let lost = |probe: usize| match self.losses.ways.get(&probe) {
            Some(way) => way.is_none_or(|way| way == direction),
            None => false,
        };
        Losses::in_order((0..self.log.probes.len()).map(lost)).bursts
    }

    fn round_trips(&self) -> Vec<Figure> {
        let of = |pick: fn(&ProbeDelays) -> Option<f64>| -> Vec<f64> {
            self.delays.iter().filter_map(pick).collect()
        };
        let host = of(|d| Some(d.rtt - d.network?));
        let bound = [-2.0 * STAMP_ERROR_MS, 2.0 * STAMP_ERROR_MS];
        // A program's round trip is the sum of the network's part and the hosts' part; this bounds nine in ten of the
        // latter.
        let most = order_statistics::percentile(&order_statistics::sorted(&host), 0.9);
        let hosts = most.map(|host| [bound[0] - host, 0.0]).unwrap_or_default();
        [
            distribution(Metric::RttMs, &of(|d| Some(d.rtt)), hosts),
            distribution(Metric::NetworkRttMs, &of(|d| d.network), bound),
            distribution(Metric::HostMs, &host, [0.0; 2]),
        ]
        .concat()
    }

    fn one_way_delays(&self) -> Vec<Figure> {
        let Some(offset) = self.offset else {
            return Vec::new();
        };
        let mut figures = Vec::new();
        for direction in DIRECTIONS {
            let values: Vec<f64> = self
                .delays
                .iter()
                .filter_map(|d| self.one_way(d, direction))
                .collect();
            let (low, high) = match direction {
                Direction::Up => (offset.ms - offset.high, offset.ms - offset.low),
                Direction::Down => (offset.low - offset.ms, offset.high - offset.ms),
            };
            let bound = [low - STAMP_ERROR_MS, high + STAMP_ERROR_MS];
            let found = distribution(Metric::OneWayDelayMs, &values, bound);
            figures.extend(found.into_iter().map(|figure| figure.toward(direction)));
        }
        if offset.relation != ClockRelation::Same {
            let figure = Figure::new(Metric::ClockOffsetMs, Statistic::Median, offset.ms);
            figures.push(figure.within(offset.low, offset.high));
        }
        figures
    }

    /// Returns PDV and IPDV. Neither needs a relation between the clocks, because their difference cancels out.
    fn variation(&self, direction: Direction) -> Vec<Figure> {
        let raw: Vec<f64> = self
            .delays
            .iter()
            .filter_map(|d| d.raw(direction))
            .collect();
        let least = raw.iter().copied().fold(f64::INFINITY, f64::min);
        let pdv: Vec<f64> = raw.iter().map(|value| value - least).collect();
        let ipdv: Vec<f64> = self.ipdv(direction).into_values().map(f64::abs).collect();
        let mut figures = Vec::new();
        for (metric, values) in [(Metric::PdvMs, pdv), (Metric::IpdvMs, ipdv)] {
            figures.extend(measured::distribution(metric, &values, VARIATION));
        }
        let figures = figures.into_iter();
        figures.map(|figure| figure.toward(direction)).collect()
    }

    /// Returns the facts that define each kind of figure and its interval, and name what is not available.
    fn facts(&self, plan: &ProbePlan) -> BTreeMap<String, String> {
        let train = if plan.has_trains() {
            format!("a train of {}", plan.train)
        } else {
            "one".to_owned()
        };
        let probe = format!(
            "STAMP (RFC 8762), {} payload bytes of UDP, {train} every {:?}; a probe without an answer within {:?} is lost",
            plan.size,
            plan.interval(),
            self.log.timeout()
        );
        let rtt = format!(
            "user space to user space, including both hosts; intervals: {QUANTILE_INTERVAL}; of the mean by batch means"
        );
        let variation = "ipdv: RFC 3393, of neighbouring probes, absolute value; pdv: RFC 5481, delay minus the least delay of the direction";
        let facts = [
            ("far_end", self.far_end()),
            ("loss", self.loss()),
            ("network_rtt", self.network_rtt()),
            ("one_way_delay", self.one_way_delay()),
            ("probe", probe),
            ("rtt", rtt),
            ("variation", variation.to_owned()),
        ];
        let dscp = plan.dscp.map(|code| {
            (
                "dscp",
                format!("{code}: of the probes; the far end sends answers as it is set up"),
            )
        });
        let trains = plan
            .has_trains()
            .then(|| ("train", self.train(plan.train_length())));
        let facts = facts.into_iter().chain(dscp).chain(trains);
        let facts = facts.chain(self.troubles());
        facts.map(|(name, text)| (name.to_owned(), text)).collect()
    }

    /// Explains the arrivals in trains of `length` probes.
    fn train(&self, length: usize) -> String {
        let sent = self.log.probes.len() / length;
        let complete = |way| trains::spreads(&trains::arrivals(&self.log, length, way)).len();
        let far_end = match (self.log.far_end.knows_trains, self.log.answers.is_empty()) {
            (true, _) => {
                "the far end answers a train when its last probe has arrived, and rtt and host include this wait"
            }
            (false, false) => {
                "the far end does not know trains and answers each probe when it arrives, so that the direction down has each train as the direction up has spread it"
            }
            (false, true) => "no answer",
        };
        format!(
            "{length} probes back to back; in_train: the time from the first arrival of a train to each of its arrivals, up at the far end's kernel, down at this one's; figures: of the last arrival, in trains that arrived complete ({} of {sent} up, {} down); {far_end}",
            complete(Direction::Up),
            complete(Direction::Down)
        )
    }

    fn network_rtt(&self) -> String {
        let far_end = &self.log.far_end;
        if self.delays.iter().all(|delays| delays.network.is_none()) {
            return "unknown: kernel time stamps are missing".to_owned();
        }
        let what = match (far_end.is_farwire, far_end.follows_up) {
            (true, true) => {
                "kernel time stamps at all four points, the far end's sending time by Follow-Up Telemetry (RFC 8972)"
            }
            (false, true) => {
                "kernel time stamps here, the far end's own time stamps there, its sending time by Follow-Up Telemetry (RFC 8972)"
            }
            (_, false) => {
                "kernel time stamps here; the far end does not report when answers really left, so their way out of it is included"
            }
        };
        format!(
            "rtt minus host: {what}; interval: {STAMP_ERROR_MS} ms per direction for the time stamps"
        )
    }

    fn one_way_delay(&self) -> String {
        let Some(offset) = self.offset else {
            return "unknown: kernel time stamps are missing".to_owned();
        };
        match offset.relation {
            ClockRelation::Same => format!(
                "both ends read the same clock: the far end proved that it runs on this kernel; interval: {STAMP_ERROR_MS} ms for the time stamps"
            ),
            ClockRelation::Synchronised => {
                let far_error = self.log.far_end.error;
                format!(
                    "both clocks report that they are synchronised: this one to {:.3} ms, the far end's to {:.3} ms; the interval includes both, and {STAMP_ERROR_MS} ms for the time stamps",
                    self.own_error_ms.unwrap_or_default(),
                    far_error.map_or(0.0, |error| error.seconds() * 1e3)
                )
            }
            ClockRelation::Unrelated => format!(
                "variation only: the relation of the two clocks is unknown; the fastest packets allow an offset of {:.3} to {:.3} ms; pdv includes the drift between the clocks",
                offset.low, offset.high
            ),
        }
    }

    fn loss(&self) -> String {
        let by_direction = match self.losses.split {
            Some(split) => format!(
                "by direction from the far end's count, exact up to the last answer, to probe {}; {} later ones are unknown",
                self.log.probes.len() as u64 - split.unresolved,
                split.unresolved
            ),
            None => "not by direction: the far end has no consistent count".to_owned(),
        };
        format!(
            "no answer within {:?}; {by_direction}; interval: {LOSS_INTERVAL}",
            self.log.timeout()
        )
    }

    fn far_end(&self) -> String {
        let far_end = &self.log.far_end;
        let Some(error) = far_end.error else {
            return "no answer".to_owned();
        };
        let not = if far_end.is_farwire { "" } else { "not " };
        let form = if error.ptp { "PTP" } else { "NTP" };
        let ttl = match (far_end.truncated, self.log.answers.last()) {
            (Some(bytes), _) => format!(
                "answers of {bytes} bytes, without the TTL at the end of RFC 5357's 41 bytes (nokia/twampy sends such answers)"
            ),
            (None, answer) => {
                let ttl = answer.map_or(0, |answer| answer.ttl);
                format!("probes arrive there with TTL {ttl}")
            }
        };
        format!("{not}farwire, time stamps in {form} format, {ttl}")
    }

    /// Returns the facts about irregularities, if there are any.
    fn troubles(&self) -> impl Iterator<Item = (&'static str, String)> {
        let counts = [
            (
                "garbage",
                self.log.garbage,
                "packets from the far end answer no probe of this session",
            ),
            (
                "clock_steps",
                self.impossible,
                "answers have impossible time stamps, as if a clock was set: they count for rtt only",
            ),
            (
                "host_overflow",
                self.log.overflowed.most,
                "answers, at most, arrived at a full socket of this host: they count as lost, but the network did not lose them; the interval of the loss covers them",
            ),
            (
                "far_overflow",
                self.far_overflow(),
                "requests of all clients, at most, arrived at a full socket of the far end: they may count as lost, but the network did not lose them; the interval of the loss covers them",
            ),
        ];
        let counts = counts.into_iter().filter(|(_, count, _)| *count > 0);
        let icmp = self.log.unreachable.clone();
        counts
            .map(|(name, count, what)| (name, format!("{count} {what}")))
            .chain(icmp.map(|why| ("icmp", why)))
    }
}

/// The statistics of delays.
const DELAY: &[Statistic] = &[
    Statistic::Min,
    Statistic::Median,
    Statistic::Mean,
    Statistic::P90,
    Statistic::P99,
    Statistic::Max,
];
/// The statistics of delay variation.
const VARIATION: &[Statistic] = &[
    Statistic::Median,
    Statistic::P90,
    Statistic::P99,
    Statistic::Max,
];
/// The statistics of the time from the first arrival of a train to its last one.
const SPREAD: &[Statistic] = &[Statistic::Median, Statistic::P90, Statistic::Max];

/// Returns the metric of probes that leave in trains, in addition to [`metrics`].
pub(crate) fn train_metric() -> MetricRow {
    MetricRow::new(Metric::InTrainMs, SPREAD).toward(&DIRECTIONS)
}

/// Returns the metrics of probes. The far end determines for which of them there are figures.
pub(crate) fn metrics() -> MetricTable {
    use Statistic::Median;
    MetricTable::new([
        MetricRow::new(Metric::NetworkRttMs, DELAY)
            .headlines(&[Median])
            .flent("Ping (ms) UDP"),
        MetricRow::new(Metric::OneWayDelayMs, DELAY)
            .headlines(&[Median])
            .toward(&DIRECTIONS),
        MetricRow::mean(Metric::LostPercent).headline(),
        MetricRow::mean(Metric::LostPercent).toward(&DIRECTIONS),
        MetricRow::total(Metric::LostPackets),
        MetricRow::total(Metric::LostPackets).toward(&DIRECTIONS),
        MetricRow::total(Metric::SentPackets),
        MetricRow::total(Metric::ReceivedPackets),
        MetricRow::total(Metric::LatePackets),
        MetricRow::total(Metric::DuplicatePackets),
        MetricRow::total(Metric::ReorderedPackets),
        MetricRow::total(Metric::ReorderedPackets).toward(&DIRECTIONS),
        MetricRow::new(Metric::RttMs, DELAY),
        MetricRow::new(Metric::HostMs, DELAY),
        MetricRow::new(Metric::PdvMs, VARIATION).toward(&DIRECTIONS),
        MetricRow::new(Metric::IpdvMs, VARIATION).toward(&DIRECTIONS),
        MetricRow::new(Metric::ClockOffsetMs, &[Median]),
    ])
}

/// Returns the figures of `values`, which are in the order of sending. All intervals are widened by `below`, which is
/// negative, and `above`.
fn distribution(metric: Metric, values: &[f64], [below, above]: [f64; 2]) -> Vec<Figure> {
    let widened = |[low, high]: [f64; 2]| [(low + below).max(0.0), high + above];
    let mut figures = measured::distribution(metric, values, DELAY);
    let median = Quantile::of(values, 0.5);
    for figure in &mut figures {
        if figure.statistic == Statistic::Mean {
            // A series with too few effective samples for its median's interval has too few for the mean's.
            let is_enough = median.is_some_and(|median| median.interval.is_some());
            let mean = mean_with_interval(values).filter(|_| is_enough);
            figure.interval = mean.map(|(_, interval)| interval);
            figure.effective_samples = median.map(|median| median.effective_samples);
        }
        figure.interval = figure.interval.map(widened);
    }
    figures
}

/// Returns the mean of `values`, which are in the order of measurement, and its 95 % interval. `None` means that there
/// are fewer than four values, or that their correlation is too long.
fn mean_with_interval(values: &[f64]) -> Option<(f64, [f64; 2])> {
    /// The cost grows with the square of the number of values, and the means of neighbours give the same result.
    const MOST: usize = 10_000;
    let together = values.len().div_ceil(MOST).max(1);
    let means: Vec<f64> = values
        .chunks(together)
        .filter_map(t_interval::mean)
        .collect();
    let (_, low, high) = autocorrelation::mean_with_interval(&means)?;
    let mean = t_interval::mean(values)?;
    Some((mean, [mean.min(low), mean.max(high)]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Nanos;

    use super::*;
    use crate::stamp::probe_log::AnswerTimes;
    use crate::stamp::wire::{ErrorEstimate, ProbeReply, ntp};

    fn of(values: &[f64], statistic: Statistic) -> Figure {
        distribution(Metric::RttMs, values, [0.0; 2])
            .into_iter()
            .find(|f| f.statistic == statistic)
            .unwrap()
    }

    /// Returns the log of a hundred probes at these intervals, none of which was answered.
    fn unanswered(apart: Nanos) -> ProbeLog {
        let mut log = ProbeLog::new(1, 2, Duration::from_secs(1));
        for probe in 0..100 {
            let at = Nanos(1_000_000_000 + probe * apart.0);
            log.send(at, at, ErrorEstimate::from_bits(1));
        }
        log
    }

    #[test]
    fn the_interval_of_loss_allows_for_full_sockets() {
        let low = |here, there: u32| {
            let mut log = unanswered(Nanos::from_millis(1));
            log.overflowed.most = here;
            log.far_end.overflowed = Some((5, 5 + there));
            let figures = ProbeResults::new(log, None).figures();
            let lost = figures
                .into_iter()
                .find(|figure| figure.metric == Metric::LostPercent);
            lost.unwrap().interval.unwrap()[0]
        };
        let without = low(0, 0);
        assert!(without > 95.0, "{without}");
        assert!((low(10, 20) - (without - 30.0)).abs() < 1e-9);
    }

    /// Returns a plan of 100 probes in trains of `train`, one every millisecond.
    fn plan(train: u16) -> ProbePlan {
        ProbePlan {
            size: 112,
            count: 100,
            interval: Nanos::from_millis(1),
            train,
            timeout: Some(Nanos::from_secs(1)),
            dscp: None,
        }
    }

    #[test]
    fn a_sender_that_is_behind_at_the_last_probe_fell_short() {
        let plan = plan(1);
        let shortfall = |apart| {
            let results = ProbeResults::new(unanswered(apart), None);
            results
                .measurement(&plan)
                .shortfall(Duration::from_millis(1))
        };
        assert_eq!(shortfall(Nanos::from_millis(1)), None);
        let cause = shortfall(Nanos::from_micros(1100)).unwrap();
        assert!(
            cause.ends_with("it sent 909 of the requested 1000 packets/s"),
            "{cause}"
        );
    }

    #[test]
    fn a_sender_of_trains_is_judged_by_their_first_probes() {
        let shortfall = |apart: Nanos| {
            let mut log = ProbeLog::new(1, 2, Duration::from_secs(1));
            for probe in 0..100 {
                // The probes of a train are 1 us apart.
                let at = Nanos(1_000_000_000 + probe / 10 * apart.0 + probe % 10 * 1_000);
                log.send(at, at, ErrorEstimate::from_bits(1));
            }
            let measurement = ProbeResults::new(log, None).measurement(&plan(10));
            measurement.shortfall(Duration::from_micros(10))
        };
        assert_eq!(shortfall(Nanos::from_millis(1)), None);
        let cause = shortfall(Nanos::from_micros(1250)).unwrap();
        assert!(
            cause.ends_with("it sent 8000 of the requested 10000 packets/s"),
            "{cause}"
        );
    }

    /// Returns the log of two trains of three probes, 100 ms apart. The arrivals are 2 ms apart up and 5 ms apart down,
    /// and the answer to the fifth probe is missing.
    fn of_trains(knows_trains: bool) -> ProbeLog {
        let error = ErrorEstimate::from_bits(1);
        let wall = Nanos(1_700_000_000_000_000_000);
        let mut log = ProbeLog::new(1, 2, Duration::from_secs(1));
        for probe in 0..6_u64 {
            let sent = Nanos::from_millis(probe / 3 * 100) + Nanos(probe);
            let request = log.send(sent, wall + sent, error);
            let first = probe / 3 * 100 + 20;
            let [up, down] = [2, 5].map(|apart| Nanos::from_millis(first + probe % 3 * apart));
            let answer = ProbeReply {
                sequence: request.sequence,
                sent: ntp(wall + up),
                error,
                ssid: 1,
                received: ntp(wall + up),
                request,
                ttl: 64,
            };
            let arrived = AnswerTimes {
                read: down,
                kernel: Some(wall + down),
            };
            if probe != 4 {
                log.receive(&mut answer.emit(), arrived);
            }
        }
        log.far_end.knows_trains = knows_trains;
        log
    }

    #[test]
    fn a_train_has_samples_by_its_number_and_figures_if_it_arrived_complete() {
        let measurement = ProbeResults::new(of_trains(true), None).measurement(&plan(3));
        let samples = |way: Direction| -> Vec<(u64, f64)> {
            let of_train = measurement.samples.iter().filter(|sample| {
                (sample.metric, sample.direction) == (Metric::InTrainMs, Some(way))
            });
            of_train
                .map(|sample| (sample.index, sample.value))
                .collect()
        };
        let up = [(1, 0.0), (1, 2.0), (1, 4.0), (2, 0.0), (2, 4.0)];
        assert_eq!(samples(Direction::Up), up);
        let down = [(1, 0.0), (1, 5.0), (1, 10.0), (2, 0.0), (2, 10.0)];
        assert_eq!(samples(Direction::Down), down);
        let in_order = |pair: &[Sample]| pair[0].at_s <= pair[1].at_s;
        assert!(measurement.samples.windows(2).all(in_order));
        let figures = measurement.figures.iter();
        let figures: Vec<_> = figures
            .filter(|figure| figure.metric == Metric::InTrainMs)
            .map(|figure| (figure.statistic, figure.direction, figure.value))
            .collect();
        let of = |way, value| {
            SPREAD
                .iter()
                .map(move |statistic| (*statistic, Some(way), value))
        };
        let expected = of(Direction::Up, 4.0).chain(of(Direction::Down, 10.0));
        assert_eq!(figures, expected.collect::<Vec<_>>());
    }

    #[test]
    fn probes_that_leave_alone_have_no_trains() {
        let measurement = ProbeResults::new(of_trains(true), None).measurement(&plan(1));
        let mut samples = measurement.samples.iter();
        assert!(samples.all(|sample| sample.metric != Metric::InTrainMs));
        let mut figures = measurement.figures.iter();
        assert!(figures.all(|figure| figure.metric != Metric::InTrainMs));
        assert!(!measurement.facts.contains_key("train"));
    }

    #[test]
    fn a_far_end_that_does_not_know_trains_is_named() {
        let fact = |knows_trains| {
            let results = ProbeResults::new(of_trains(knows_trains), None);
            results.measurement(&plan(3)).facts["train"].clone()
        };
        for (knows_trains, expected) in [
            (
                true,
                "the far end answers a train when its last probe has arrived",
            ),
            (false, "the far end does not know trains"),
        ] {
            let fact = fact(knows_trains);
            assert!(fact.contains(expected), "{fact}");
            assert!(fact.contains("(1 of 2 up, 1 down)"), "{fact}");
        }
    }

    #[test]
    fn quantiles_are_measured_values() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let value = |statistic| of(&hundred, statistic).value;
        assert_eq!(value(Statistic::Min), 1.0);
        assert_eq!(value(Statistic::P90), 90.0);
        assert_eq!(value(Statistic::Max), 100.0);
        assert!((value(Statistic::Median) - 50.5).abs() < 1e-12);
        assert!(distribution(Metric::RttMs, &[], [0.0; 2]).is_empty());
    }

    #[test]
    fn the_interval_of_a_median_has_the_ranks_of_the_binomial_distribution() {
        // Of 100 values, the ranks are 40 and 61 (Conover, Practical Nonparametric Statistics, section 3.2). The values
        // alternate between below and above the median, so that neighbours are not correlated positively.
        let alternating = (1..=50).flat_map(|low| [low, low + 50]);
        let hundred: Vec<f64> = alternating.map(f64::from).collect();
        let interval = |values: &[f64]| of(values, Statistic::Median).interval;
        assert_eq!(interval(&hundred), Some([40.0, 61.0]));
        assert_eq!(interval(&[7.0]), None);
    }

    #[test]
    fn the_interval_of_a_mean_contains_it_for_many_values() {
        let values: Vec<f64> = (0..50_000u32).map(|i| f64::from(i * 7919 % 1000)).collect();
        let (mean, [low, high]) = mean_with_interval(&values).unwrap();
        assert!((mean - 499.5).abs() < 1e-6 && low < mean && mean < high);
        assert!(mean_with_interval(&values[..3]).is_none());
    }
}
