//! The samples of instruments that ran simultaneously, as curves over the same seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::analysis::CaseFigures;
use crate::analysis::bound::Bound;
use crate::analysis::intervals::{DIRECTIONS, RateQuantity, RateSeries, ThroughputInterval};
use crate::analysis::throughput;
use conditions::LinkSpec;
use conditions::outline::{OutlinePeriod, OverTime};
use model::Nanos;
use record::bed::Bed;
use record::figure_name::FigureName;
use record::plan::PlannedInstrument;
use record::profile::SampleKind;
use record::quantity::scale_for;
use record::{Direction, Measured, Measurement, Metric, Run, Sample, Statistic};
use stats::deciding::Centre;

/// Greatest number of parts of the time in which losses are counted.
const MOST_PARTS: usize = 40;
/// Least mean number of probes per part, because a share of fewer probes means little.
const PROBES_A_PART: usize = 10;

/// Points of a curve: seconds, and the value in the metric's unit.
pub(super) type CurvePoints = Vec<(f64, f64)>;

/// Fewest points of a curve over time. Two or three show no course.
const FEWEST_POINTS: usize = 4;
/// A goodput this much above the limit of the conditions is marked and explained.
const ABOVE_LIMIT: f64 = 1.05;

/// The quantities of the frames, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrackQuantity {
    Rate(RateQuantity),
    RoundTrip,
    Loss,
    /// The time that packets wait in the emulator's queue.
    Queue,
    /// Packets that the emulated network drops.
    Drops,
    /// The rate that the link's conditions state.
    LinkRate,
    /// The delay that the link's conditions state.
    LinkDelay,
    /// The loss that the link's conditions state.
    LinkLoss,
}

pub(super) const FROM_TOP: [TrackQuantity; 10] = [
    TrackQuantity::Rate(RateQuantity::Goodput),
    TrackQuantity::Rate(RateQuantity::IpCapacity),
    TrackQuantity::Rate(RateQuantity::Sent),
    TrackQuantity::RoundTrip,
    TrackQuantity::Loss,
    TrackQuantity::Queue,
    TrackQuantity::Drops,
    TrackQuantity::LinkRate,
    TrackQuantity::LinkDelay,
    TrackQuantity::LinkLoss,
];

/// All curves of a group of instruments in the runs of a case.
pub(super) struct ObservedGroup {
    pub(super) tracks: Vec<Track>,
    /// The published mean goodput in bit/s.
    pub(super) published: Option<f64>,
    /// The requested rate of the senders in bit/s, if it is the same for all curves.
    pub(super) requested: Option<f64>,
    /// The limit in bit/s that the conditions set to a goodput which exceeds it.
    pub(super) exceeded: Option<f64>,
}

/// One curve.
pub(super) struct Track {
    pub(super) quantity: TrackQuantity,
    /// The instrument; empty for the state of a link.
    pub(super) instrument: String,
    /// The label in the legend, which is the same for all runs.
    pub(super) label: String,
    pub(super) repeat: u32,
    /// Whether the curve is from the first run that is drawn.
    pub(super) is_first: bool,
    /// The direction of the samples.
    pub(super) direction: Option<Direction>,
    /// Whether the values are the sending kernel's smoothed round-trip times.
    pub(super) is_smoothed: bool,
    pub(super) is_thinned: bool,
    pub(super) points: CurvePoints,
}

impl ObservedGroup {
    /// Collects the curves of the instruments in `group` from the first runs, with at most about this many points per
    /// curve.
    pub(super) fn of(
        case: &CaseFigures<'_>,
        group: &[PlannedInstrument],
        most: usize,
        repeats: usize,
    ) -> Self {
        let mut tracks = Vec::new();
        for (at, run) in case.runs.iter().take(repeats).enumerate() {
            let together: Vec<(&PlannedInstrument, &Measured)> = group
                .iter()
                .filter_map(|instrument| Some((instrument, run.measured(&instrument.name)?)))
                .collect();
            let starts = starts(&together);
            let mut of_run: Vec<Track> = Vec::new();
            for ((instrument, measured), start_s) in together.iter().zip(starts) {
                let of_one = tracks_of(instrument, &measured.measurement, most);
                of_run.extend(of_one.into_iter().map(|track| Track {
                    points: shifted(track.points, start_s),
                    ..track
                }));
            }
            // The links of further runs would hide those of the first.
            if let (0, Some(first)) = (at, first_start(&together)) {
                let points = of_run.iter().flat_map(|track| &track.points);
                let end_s = points.map(|point| point.0).fold(0.0, f64::max);
                of_run.extend(link_tracks(case, run, (first, end_s), most));
                of_run.extend(condition_tracks(case, run, (first, end_s), most));
            }
            tracks.extend(of_run.into_iter().map(|track| Track {
                repeat: run.repeat,
                is_first: at == 0,
                ..track
            }));
        }
        // Sent bytes are not compared with bytes that arrived.
        let goodput = TrackQuantity::Rate(RateQuantity::Goodput);
        let arrived = tracks.iter().any(|track| track.quantity == goodput);
        Self {
            published: published(case, group).filter(|_| arrived),
            requested: requested(case, &tracks),
            exceeded: exceeded(case, &tracks),
            tracks,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    pub(super) fn has(&self, quantity: TrackQuantity) -> bool {
        self.of_quantity(quantity).next().is_some()
    }

    pub(super) fn of_quantity(&self, quantity: TrackQuantity) -> impl Iterator<Item = &Track> {
        let tracks = self.tracks.iter();
        tracks.filter(move |track| track.quantity == quantity)
    }

    /// Returns the levels that a frame shows beside its curves: the name of each, and its value in the metric's unit.
    pub(super) fn levels(&self, quantity: TrackQuantity) -> Vec<(&'static str, f64)> {
        let levels = match quantity {
            TrackQuantity::Rate(RateQuantity::Goodput) => vec![
                ("published mean", self.published),
                ("limit of the link", self.exceeded),
            ],
            TrackQuantity::Rate(RateQuantity::Sent) => vec![("requested rate", self.requested)],
            _ => Vec::new(),
        };
        let known = levels
            .into_iter()
            .filter_map(|(name, level)| Some((name, level?)));
        known.collect()
    }

    /// Returns the times of all points.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        let points = self.tracks.iter().flat_map(|track| &track.points);
        points.map(|point| point.0)
    }

    /// Returns the greatest value.
    pub(super) fn top(&self, quantity: TrackQuantity) -> Option<f64> {
        let points = self.of_quantity(quantity).flat_map(|track| &track.points);
        let levels = self.levels(quantity).into_iter().map(|(_, level)| level);
        let values = points.map(|point| point.1).chain(levels);
        self.has(quantity).then(|| values.fold(0.0, f64::max))
    }
}

impl TrackQuantity {
    /// Returns the name on the axis.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Rate(quantity) => quantity.name(),
            Self::RoundTrip => "RTT",
            Self::Loss => "loss",
            Self::Queue => "queue",
            Self::Drops => "drops",
            Self::LinkRate => "link rate",
            Self::LinkDelay => "link delay",
            Self::LinkLoss => "link loss",
        }
    }

    /// Returns the divisor and the unit of the axis for values of which this is the greatest.
    pub(super) fn scale(self, greatest: f64) -> (f64, &'static str) {
        match self {
            Self::Rate(quantity) => scale_for(quantity.metric(), greatest),
            Self::RoundTrip => scale_for(Metric::RttMs, greatest),
            Self::Loss => scale_for(Metric::LostPercent, greatest),
            Self::Queue => (1.0, "ms"),
            Self::Drops => (1.0, "1/s"),
            Self::LinkRate => scale_for(Metric::GoodputBitPerS, greatest),
            Self::LinkDelay => (1.0, "ms"),
            Self::LinkLoss => (1.0, "%"),
        }
    }

    /// Explains the quantity in a sentence.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Rate(quantity) => quantity.metric().meaning(),
            Self::RoundTrip => Metric::RttMs.meaning(),
            Self::Loss => Metric::LostPercent.meaning(),
            Self::Queue => "Time that a packet would wait for the bottleneck of the emulated link.",
            Self::Drops => "Packets that the emulated network dropped each second.",
            Self::LinkRate => {
                "Rate of the emulated link in force, of L2 bytes; 0 while nothing passes."
            }
            Self::LinkDelay => "Propagation delay of the emulated link in force, in one direction.",
            Self::LinkLoss => "Share of packets that the emulated link lost at random.",
        }
    }

    /// Returns whether it describes an emulated link and not what an instrument saw.
    pub(super) fn is_of_link(self) -> bool {
        matches!(self, Self::Queue | Self::Drops) || self.is_condition()
    }

    /// Returns whether it is a condition of an emulated link.
    pub(super) fn is_condition(self) -> bool {
        matches!(self, Self::LinkRate | Self::LinkDelay | Self::LinkLoss)
    }
}

/// Returns the time at which the first instrument started; `None` if the record does not say.
fn first_start(together: &[(&PlannedInstrument, &Measured)]) -> Option<jiff::Timestamp> {
    let all = together.iter();
    all.filter_map(|(_, measured)| measured.started_at.parse().ok())
        .min()
}

/// Returns how many seconds after the first instrument each one started; 0 if the record does not say.
pub(super) fn starts(together: &[(&PlannedInstrument, &Measured)]) -> Vec<f64> {
    let at = |measured: &Measured| measured.started_at.parse::<jiff::Timestamp>().ok();
    let first = first_start(together);
    let after = |(_, measured): &(&PlannedInstrument, &Measured)| match (at(measured), first) {
        (Some(at), Some(first)) => at.duration_since(first).as_secs_f64(),
        _ => 0.0,
    };
    together.iter().map(after).collect()
}

/// Returns the queue and the drops of each direction of each link of a run while a group of instruments ran, which began
/// at `first` and took `end_s` seconds. Directions in which nothing waited or was dropped are left out.
fn link_tracks(
    case: &CaseFigures<'_>,
    run: &Run,
    (first, end_s): (jiff::Timestamp, f64),
    most: usize,
) -> Vec<Track> {
    let mut tracks = Vec::new();
    for link in &run.links {
        let Some(history) = &link.history else {
            continue;
        };
        let Ok(began) = history.started_at.parse::<jiff::Timestamp>() else {
            continue;
        };
        let offset_s = began.duration_since(first).as_secs_f64();
        let times: Vec<f64> = history.at_s.iter().map(|at_s| at_s + offset_s).collect();
        let name = match run.links.len() {
            1 => String::new(),
            _ => format!("{} ", link.name),
        };
        for direction in [Direction::Up, Direction::Down] {
            let own = history.direction(of_link(case, direction));
            let way = direction.name();
            let queue = times.iter().copied().zip(own.queue_ms.iter().copied());
            let queue: CurvePoints = queue.collect();
            let mut found = vec![(TrackQuantity::Queue, format!("{name}queue {way}"), queue)];
            for (cause, counts) in &own.dropped {
                let label = format!("{name}drops {way}, {}", cause.replace('_', " "));
                found.push((TrackQuantity::Drops, label, per_second(&times, counts)));
            }
            for (quantity, label, points) in found {
                let within = points
                    .into_iter()
                    .filter(|(at_s, _)| (0.0..=end_s).contains(at_s));
                let points: CurvePoints = within.collect();
                if points.iter().all(|(_, value)| *value <= 0.0) {
                    continue;
                }
                tracks.push(Track {
                    quantity,
                    instrument: String::new(),
                    label,
                    repeat: run.repeat,
                    is_first: true,
                    direction: Some(direction),
                    is_smoothed: false,
                    is_thinned: points.len() > most,
                    points: envelope(&points, most),
                });
            }
        }
    }
    tracks.retain(|track| track.points.len() >= FEWEST_POINTS);
    tracks
}

/// A function that takes one of the conditions in force from a period.
type InForce = fn(&OutlinePeriod) -> Option<f64>;

/// Returns the rate, the delay and the loss that the conditions of each link of a run stated while a group of instruments
/// ran, which began at `first` and took `end_s` seconds. A condition that did not change then is left out, and so is a rate
/// where there was none for a while.
fn condition_tracks(
    case: &CaseFigures<'_>,
    run: &Run,
    (first, end_s): (jiff::Timestamp, f64),
    most: usize,
) -> Vec<Track> {
    let mut tracks = Vec::new();
    for (number, link) in run.links.iter().enumerate() {
        let began = link.begins_at.as_ref();
        let began = began.and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let (Some(began), Some((name, spec))) = (began, conditions_of(case, number, &link.name))
        else {
            continue;
        };
        if !spec.has_schedule() && !spec.has_own_times() {
            continue;
        }
        let Ok(all) = OverTime::of(spec) else {
            continue;
        };
        let offset_s = began.duration_since(first).as_secs_f64();
        let span = [-offset_s, end_s - offset_s].map(nanos);
        // Each period has two points.
        let outline = all.between(span[0], span[1], most / 2);
        let [up, down] = [Direction::Up, Direction::Down]
            .map(|way| of_link(case, way).choose(&outline.up, &outline.down));
        let values: [(TrackQuantity, &str, InForce); 3] = [
            (TrackQuantity::LinkRate, "rate", |one| {
                one.rate.map(|rate| rate as f64)
            }),
            (TrackQuantity::LinkDelay, "delay", |one| {
                Some(one.delay.0 as f64 / 1e6)
            }),
            (TrackQuantity::LinkLoss, "loss", |one| {
                Some(one.loss * 100.0)
            }),
        ];
        for (quantity, what, value) in values {
            let [up, down] = [up, down].map(|periods| steps(periods, offset_s, value));
            let both = if up == down {
                vec![("", up)]
            } else {
                vec![(" up", up), (" down", down)]
            };
            let drawn = both.into_iter().filter(|(_, points)| {
                let first = points.first().map(|point| point.1);
                points.iter().any(|point| Some(point.1) != first)
            });
            tracks.extend(drawn.map(|(way, points)| Track {
                quantity,
                instrument: String::new(),
                label: format!("{name}{what}{way}"),
                repeat: run.repeat,
                is_first: true,
                direction: None,
                is_smoothed: false,
                is_thinned: false,
                points,
            }));
        }
    }
    tracks
}

/// Returns the conditions of link number `number` of a run, and the beginning of its curves' labels. Of several clients
/// with equal links, the first one has them.
fn conditions_of<'a>(
    case: &CaseFigures<'a>,
    number: usize,
    name: &str,
) -> Option<(String, &'a LinkSpec)> {
    match &case.case.bed {
        Bed::Netns(_) => (number == 0).then(|| (String::new(), &case.case.link)),
        Bed::Chain(chain) => Some((format!("{name} "), chain.links.get(name)?)),
        Bed::External(_) | Bed::Nics(_) => None,
    }
}

/// Returns the corners of a value that changes in steps, in seconds; none if it is absent for a while.
fn steps(
    periods: &[OutlinePeriod],
    offset_s: f64,
    value: fn(&OutlinePeriod) -> Option<f64>,
) -> CurvePoints {
    let corners = periods.iter().map(|one| {
        let [from, until] = [one.from, one.until].map(|at| at.0 as f64 / 1e9 + offset_s);
        let value = value(one)?;
        Some([(from, value), (until, value)])
    });
    let all: Option<Vec<[(f64, f64); 2]>> = corners.collect();
    all.unwrap_or_default().into_iter().flatten().collect()
}

/// Converts seconds to a time of a link; 0 before its start.
fn nanos(seconds: f64) -> Nanos {
    Nanos::from(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

/// Returns the direction of a link of a chain, whose up is from the first node to the last, in which the packets of this
/// direction of a case pass.
fn of_link(case: &CaseFigures<'_>, direction: Direction) -> Direction {
    let is_reversed = match &case.case.bed {
        Bed::Chain(chain) => chain
            .ends(case.case.between.as_ref())
            .is_ok_and(|ends| ends.client > ends.server),
        _ => false,
    };
    match (is_reversed, direction) {
        (true, Direction::Up) => Direction::Down,
        (true, Direction::Down) => Direction::Up,
        (false, direction) => direction,
    }
}

/// Returns the counts of readings as events a second since the reading before.
fn per_second(times: &[f64], counts: &[u64]) -> CurvePoints {
    let spans = times.windows(2).zip(counts.iter().skip(1));
    let rates = spans.filter_map(|(pair, count)| {
        let span_s = pair[1] - pair[0];
        (span_s > 0.0).then(|| (pair[1], *count as f64 / span_s))
    });
    rates.collect()
}

/// Returns the least limit that a goodput of an instrument exceeds.
fn exceeded(case: &CaseFigures<'_>, tracks: &[Track]) -> Option<f64> {
    let goodput = TrackQuantity::Rate(RateQuantity::Goodput);
    let received = tracks.iter().filter(|track| track.quantity == goodput);
    let limits = received.filter_map(|track| {
        let instrument = case.case.instrument(&track.instrument)?;
        let bound = Bound::of(case.case, instrument, track.direction)?;
        let greatest = track.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let is_above = greatest > ABOVE_LIMIT * bound.bit_per_s;
        (is_above && !bound.is_average).then_some(bound.bit_per_s)
    });
    limits.min_by(f64::total_cmp)
}

fn shifted(mut points: CurvePoints, by_s: f64) -> CurvePoints {
    points.iter_mut().for_each(|point| point.0 += by_s);
    points
}

/// Returns all curves of one measurement.
fn tracks_of(instrument: &PlannedInstrument, measurement: &Measurement, most: usize) -> Vec<Track> {
    let track = |quantity, what: Option<&str>, points, is_thinned| Track {
        quantity,
        instrument: instrument.name.clone(),
        label: match what {
            Some(what) => format!("{} {what}", instrument.name),
            None => instrument.name.clone(),
        },
        repeat: 0,
        is_first: false,
        direction: None,
        is_smoothed: false,
        is_thinned,
        points,
    };
    let mut tracks = Vec::new();
    match instrument.profile.samples {
        Some(SampleKind::Intervals) => {
            let ways = DIRECTIONS
                .into_iter()
                .filter_map(|way| Some((way, RateSeries::shown(measurement, way)?)));
            for (way, series) in ways {
                let (found, quantity) = (series.intervals(), series.quantity());
                let points = thinned(found, most);
                let is_thinned = found.len() > most;
                let way_name = way.map_or("", Direction::name);
                let what = match quantity {
                    RateQuantity::Sent => format!("{way_name}, sent"),
                    RateQuantity::Goodput | RateQuantity::IpCapacity => way_name.to_owned(),
                };
                let what = what.trim_start_matches(", ");
                let what = Some(what).filter(|what| !what.is_empty());
                tracks.push(Track {
                    direction: way,
                    ..track(TrackQuantity::Rate(quantity), what, points, is_thinned)
                });
            }
            let smoothed = of_first(measurement, &[Metric::TcpRttMs]);
            if !smoothed.is_empty() {
                let points = envelope(&smoothed, most);
                let is_thinned = smoothed.len() > most;
                let what = Some("TCP's own");
                tracks.push(Track {
                    is_smoothed: true,
                    ..track(TrackQuantity::RoundTrip, what, points, is_thinned)
                });
            }
        }
        Some(SampleKind::Probes) => {
            let metrics = [Metric::NetworkRttMs, Metric::RttMs, Metric::ConnectMs];
            let answered = of_first(measurement, &metrics);
            if !answered.is_empty() {
                let points = envelope(&answered, most);
                tracks.push(track(
                    TrackQuantity::RoundTrip,
                    None,
                    points,
                    answered.len() > most,
                ));
            }
            let lost = of_first(measurement, &[Metric::LostPackets]);
            if !lost.is_empty() {
                tracks.push(track(
                    TrackQuantity::Loss,
                    None,
                    lost_share(&answered, &lost),
                    false,
                ));
            }
        }
        Some(SampleKind::Messages) | None => {}
    }
    tracks.retain(|track| track.points.len() >= FEWEST_POINTS);
    tracks
}

/// Returns the samples of the first of these metrics that has any, without size and of the first stream, in order of
/// time.
pub(super) fn of_first(measurement: &Measurement, metrics: &[Metric]) -> CurvePoints {
    let of = |metric: &Metric| {
        let own = |sample: &&Sample| {
            let one = sample.size.is_none() && sample.stream.is_none_or(|stream| stream == 1);
            sample.metric == *metric && one && sample.value.is_finite()
        };
        let own = measurement.samples.iter().filter(own);
        own.map(|sample| (sample.at_s, sample.value)).collect()
    };
    let mut all = metrics.iter().map(of);
    let mut found: CurvePoints = all
        .find(|found: &CurvePoints| !found.is_empty())
        .unwrap_or_default();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// Thins a curve by keeping the least and the greatest of neighbouring values in their order, so that every peak
/// remains.
fn envelope(values: &[(f64, f64)], most: usize) -> CurvePoints {
    if values.len() <= most {
        return values.to_vec();
    }
    let mut points = Vec::new();
    for group in values.chunks(values.len().div_ceil(most / 2)) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = (group.iter().min_by(by_value), group.iter().max_by(by_value));
        let (Some(least), Some(greatest)) = ends else {
            continue;
        };
        let (first, second) = if least.0 <= greatest.0 {
            (least, greatest)
        } else {
            (greatest, least)
        };
        points.extend([*first, *second]);
    }
    points
}

/// Returns the share of probes that were lost in each part of the time, in percent, at the middle of the part.
fn lost_share(answered: &[(f64, f64)], lost: &[(f64, f64)]) -> CurvePoints {
    let count = answered.len() + lost.len();
    let count = (count / PROBES_A_PART).clamp(1, MOST_PARTS) as f64;
    let times = answered.iter().chain(lost).map(|probe| probe.0);
    let part_s = (times.fold(0.0, f64::max) / count).max(f64::MIN_POSITIVE);
    // Each part has the number of answered and of lost probes.
    let mut parts: BTreeMap<u64, [u32; 2]> = BTreeMap::new();
    for (column, probes) in [answered, lost].into_iter().enumerate() {
        for (at_s, _) in probes {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most MOST_PARTS"
            )]
            let part = (at_s / part_s).clamp(0.0, count - 1.0) as u64;
            parts.entry(part).or_default()[column] += 1;
        }
    }
    let share = |(part, [answered, lost]): (u64, [u32; 2])| {
        let percent = 100.0 * f64::from(lost) / f64::from(answered + lost);
        ((part as f64 + 0.5) * part_s, percent)
    };
    parts.into_iter().map(share).collect()
}

/// Returns the published mean goodput in bit/s.
fn published(case: &CaseFigures<'_>, group: &[PlannedInstrument]) -> Option<f64> {
    let of = |name: &FigureName| {
        group.iter().any(|instrument| {
            instrument.name == name.instrument
                && instrument.profile.samples == Some(SampleKind::Intervals)
        }) && name.size.is_none()
            && (name.metric, name.statistic) == (Metric::GoodputBitPerS, Statistic::Mean)
    };
    let mut published = case.case.published.iter();
    let (_, published) = published.find(|(name, _)| of(name))?;
    published.over(Centre::Mean)
}

/// Returns the requested rate of the senders of these curves in bit/s; `None` if it differs among them.
fn requested(case: &CaseFigures<'_>, tracks: &[Track]) -> Option<f64> {
    let sent = TrackQuantity::Rate(RateQuantity::Sent);
    let mut sent = tracks.iter().filter(|track| track.quantity == sent);
    let of = |track: &Track| throughput::requested(case, &track.instrument, track.direction);
    let first = of(sent.next()?)?;
    let is_one = sent.all(|track| of(track) == Some(first));
    is_one.then_some(first)
}

/// Returns a point at the middle of each interval, thinned by averaging neighbours.
fn thinned(intervals: &[ThroughputInterval], most: usize) -> CurvePoints {
    let together = intervals.len().div_ceil(most).max(1);
    let mut usual_s = None;
    let mut points = Vec::new();
    for group in intervals.chunks(together) {
        let (start_s, end_s) = (group[0].0, group[group.len() - 1].1);
        let length_s = end_s - start_s;
        // A truncated last interval has too few packets for a rate.
        if length_s > *usual_s.get_or_insert(length_s) / 2.0 {
            let bits: f64 = group.iter().map(|(.., bits)| bits).sum();
            points.push((f64::midpoint(start_s, end_s), bits / length_s));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::plan::Published;
    use record::profile::Carrier;
    use record::{Measurement, Sample};

    const MOST_POINTS: usize = 220;

    fn measurement(metric: Metric, count: u64, streams: u32, value: f64) -> Measurement {
        let sample = |index: u64, stream: u32| {
            Sample::new(index as f64 * 0.1, metric, index, value)
                .toward(Direction::Down)
                .stream(stream)
        };
        Measurement {
            samples: (1..=count)
                .flat_map(|index| (1..=streams).map(move |s| sample(index, s)))
                .collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn thinning_keeps_the_rate() {
        for count in [5, 219, 220, 221, 8_570] {
            let bytes = measurement(Metric::ReceivedBytes, count, 1, 1e5);
            let series = RateSeries::shown(&bytes, Some(Direction::Down)).unwrap();
            let curve = thinned(series.intervals(), MOST_POINTS);
            assert!(curve.len() <= MOST_POINTS);
            assert!(
                curve.iter().all(|point| (point.1 - 8e6).abs() < 1.0),
                "{count}"
            );
        }
    }

    #[test]
    fn streams_are_summed_and_rates_are_kept() {
        let bytes = measurement(Metric::ReceivedBytes, 10, 3, 1e5);
        let series = RateSeries::shown(&bytes, Some(Direction::Down)).unwrap();
        let curve = thinned(series.intervals(), 100);
        assert!((curve[4].1 - 24e6).abs() < 1e-3);
        let rates = measurement(Metric::GoodputBitPerS, 10, 1, 5e6);
        let series = RateSeries::shown(&rates, Some(Direction::Down)).unwrap();
        let curve = thinned(series.intervals(), 100);
        assert!((curve[4].1 - 5e6).abs() < 1e-3);
        assert_eq!(RateSeries::shown(&rates, None), None);
    }

    #[test]
    fn a_sent_rate_is_labelled_and_not_compared_with_a_published_goodput() {
        let mut record = crate::analysis::tests::record();
        let case = &mut record.head.plan.cases[0];
        let instrument = &mut case.instruments[0];
        instrument.profile.samples = Some(SampleKind::Intervals);
        instrument.profile.carrier = Some(Carrier::Udp { length: None });
        let of = format!("{}.goodput_bit_per_s.mean", instrument.name);
        let published = Published::Runs(vec![9e6]);
        case.published.insert(of.parse().unwrap(), published);
        let asked = record::Figure::new(Metric::RequestedRateBitPerS, Statistic::Mean, 2e7);
        let found = |way: Direction, metric: Metric| {
            let mut record = record.clone();
            let measurement = &mut record.runs[0].measurements[0].measurement;
            let sample = |index: u64| Sample::new(index as f64, metric, index, 1e5);
            measurement.samples = (1..6).map(|index| sample(index).toward(way)).collect();
            measurement.figures.push(asked.clone().toward(way));
            let analysis = crate::analysis::Analysis::of(&record);
            let case = &analysis.cases[0];
            let group = ObservedGroup::of(case, &case.case.instruments[..1], 100, 1);
            let track = &group.tracks[0];
            let axis = track.quantity.title();
            let level = group.levels(track.quantity).first().copied();
            (track.label.clone(), axis, level)
        };
        // The requested rate is drawn for either sender, but never a published goodput.
        let requested = Some(("requested rate", 20e6));
        assert_eq!(
            found(Direction::Up, Metric::SentBytes),
            ("ping up, sent".to_owned(), "sent rate", requested)
        );
        assert_eq!(
            found(Direction::Down, Metric::SentBytes),
            ("ping down, sent".to_owned(), "sent rate", requested)
        );
        let published = Some(("published mean", 9e6));
        assert_eq!(
            found(Direction::Down, Metric::ReceivedBytes),
            ("ping down".to_owned(), "goodput", published)
        );
    }

    #[test]
    fn an_envelope_keeps_every_peak() {
        let spike = |n: u32| (f64::from(n), if n == 777 { 90.0 } else { 1.0 });
        let values: Vec<(f64, f64)> = (0..10_000).map(spike).collect();
        let points = envelope(&values, MOST_POINTS);
        assert!(points.len() <= MOST_POINTS && points.contains(&(777.0, 90.0)));
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }

    #[test]
    fn losses_are_shares_of_simultaneous_probes() {
        let at = |from: u32, to: u32| (from..to).map(|n| (f64::from(n), 1.0)).collect::<Vec<_>>();
        let shares = lost_share(&at(0, 30), &at(30, 40));
        assert_eq!(shares.len(), 4);
        assert!(shares[..3].iter().all(|(_, share)| *share == 0.0));
        assert!(shares[3].1 > 90.0, "{shares:?}");
        // A single probe does not form a part.
        assert_eq!(lost_share(&at(0, 3), &at(3, 4))[0].1, 25.0);
        assert_eq!(
            lost_share(&at(0, 9_000), &at(9_000, 9_001)).len(),
            MOST_PARTS
        );
    }
}
