//! What the network did to one instrument: of what the emulator counted and of the conditions, never of what the instrument
//! says, but for how long it took.

use model::{DropCause, Effect, QueueLimit};

use record::plan::{Case, Instrument};
use record::profile::{Carrier, Profile, SampleKind};
use record::summary::{DirectionSummary, Summary};
use record::way::Way;
use record::{Direction, Figure, Measurement, Metric, Statistic};
use stats::layers::{ETHERNET_HEADER, UDP_HEADER, ip_header};

/// IPv4 and TCP with timestamps.
const TCP_HEADERS: f64 = 20.0 + 32.0;
/// By how much a receiver's time and a sender's differ, in seconds.
const UNTIMED: f64 = 0.001;
/// A line is full when so much of it is used.
const FULL: f64 = 0.95;

/// A true value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Truth {
    /// In the metric's unit.
    pub(super) value: f64,
    /// By how much it may be off: the emulator counts a link, not a flow.
    pub(super) within: f64,
}

/// An instrument that had a link to itself.
pub(super) struct Crossing<'a> {
    pub(super) case: &'a Case,
    pub(super) instrument: &'a Instrument,
    pub(super) link: &'a Summary,
    pub(super) measurement: &'a Measurement,
}

impl Truth {
    fn exact(value: f64) -> Self {
        Self { value, within: 0.0 }
    }

    /// Whether an interval holds it.
    pub(super) fn is_in(&self, [low, high]: [f64; 2]) -> bool {
        low <= self.value + self.within && self.value - self.within <= high
    }

    /// How far it lies outside of an interval; 0 within.
    pub(super) fn beyond(&self, [low, high]: [f64; 2]) -> f64 {
        let below = low - (self.value + self.within);
        let above = self.value - self.within - high;
        below.max(above).max(0.0)
    }
}

impl Crossing<'_> {
    /// The truth of a figure, where there is one.
    pub(super) fn truth(&self, figure: &Figure) -> Option<Truth> {
        if figure.stream.is_some() || figure.phase.is_some() {
            return None;
        }
        let way = figure.direction;
        match (figure.metric, figure.statistic) {
            (Metric::RttMs | Metric::NetworkRttMs, Statistic::Median) => self.round_trip(figure),
            (Metric::OneWayDelayMs, Statistic::Median) => {
                let frame = mean_frame(self.way(way?))?;
                self.one_way_ms(way?, frame).map(Truth::exact)
            }
            (Metric::LostPercent, Statistic::Mean) if self.counts_losses() => {
                self.lost_percent(way)
            }
            (Metric::GoodputBitPerS, Statistic::Mean) => self.goodput(way),
            // Of a search, which fills the line.
            (Metric::L2RateBitPerS, Statistic::Max) => self.line(way?).map(Truth::exact),
            _ => None,
        }
    }

    /// The slowest rate of a direction at L2, if there is any: of the emulator, or of the kernel's token bucket.
    pub(super) fn line(&self, way: Direction) -> Option<f64> {
        let of_link = self.stages(way).and_then(|stages| stages.slowest());
        let of_link = of_link.map(|(rate, _)| rate).into_iter();
        let bucket = self.case.bed.tbf().filter(|_| way == Direction::Up);
        let slowest = of_link.chain(bucket).min()?;
        Some(slowest.get() as f64)
    }

    /// Whether the instrument takes all of a line that it can get: what is paced does so when it was asked for more.
    pub(super) fn fills(&self, way: Direction, rate: f64) -> bool {
        let is_full = self.line(way).is_some_and(|line| rate >= FULL * line);
        !self.profile().is_datagram_stream() || is_full || self.fills_queue(way)
    }

    /// Whether a queue had more than it could take, or than its AQM would.
    fn fills_queue(&self, way: Direction) -> bool {
        let counted = self.way(way);
        counted.queue_full() + counted.dropped_for(DropCause::Aqm) + counted.marked > 0
    }

    /// How long a frame of so many bytes takes from one end to the other; unknown where packets wait for others, or each for
    /// a time of its own.
    fn one_way_ms(&self, way: Direction, frame: f64) -> Option<f64> {
        let stages = self.stages(way)?;
        let varies = stages.delays().any(|delay| delay.jitter.is_some());
        let waits = self.fills_queue(way) || self.case.bed.tbf().is_some();
        let through = |effect: &Effect| match effect {
            Effect::Rate(rate) => rate
                .rate
                .map_or(0.0, |rate| frame * 8e3 / rate.get() as f64),
            // Microseconds are bytes over the factor.
            Effect::Delay(delay) => {
                let by_size = delay.by_size.map_or(0.0, |k| frame / k.get() / 1e3);
                delay.time.0 as f64 / 1e6 + by_size
            }
            _ => 0.0,
        };
        let lateness = self.link.departure_error.p50_ns as f64 / 1e6;
        (!waits && !varies).then(|| stages.effects().map(through).sum::<f64>() + lateness)
    }

    /// Bed and box in one direction; unknown where the two directions share a server, where what serves is not a rate, and
    /// where not all packets meet the same.
    fn stages(&self, way: Direction) -> Option<Way> {
        let route = self.case.path().ok().filter(|route| route.is_steady)?;
        let is_unknown = |effect: &Effect| {
            matches!(
                effect,
                Effect::Toffee(_) | Effect::Trace(_) | Effect::Gate(_)
            )
        };
        let stages = route.way(way);
        (!stages.effects().any(is_unknown)).then(|| stages.clone())
    }

    fn round_trip(&self, figure: &Figure) -> Option<Truth> {
        let ways = [Direction::Up, Direction::Down];
        let frames = match self.profile().samples {
            // The mean of all frames would count handshakes and acknowledgements.
            Some(SampleKind::Messages) => ways.map(|_| self.message_frame(figure.size?)),
            _ => ways.map(|way| mean_frame(self.way(way))),
        };
        let [up, down] = frames;
        let there = self.one_way_ms(Direction::Up, up?)?;
        Some(Truth::exact(
            there + self.one_way_ms(Direction::Down, down?)?,
        ))
    }

    /// A message of so many bytes as a frame, if one holds it.
    fn message_frame(&self, size: u64) -> Option<f64> {
        let headers = match self.profile().carrier {
            Some(Carrier::Udp { .. }) => f64::from(ip_header(false) + UDP_HEADER),
            _ => TCP_HEADERS,
        };
        let packet = size as f64 + headers;
        let mtu = self.case.bed.mtu()?;
        (packet <= f64::from(mtu)).then(|| packet + f64::from(ETHERNET_HEADER))
    }

    /// Whether each of its packets is one of the link's: TCP's, and a search's, are sent again or not counted by direction.
    fn counts_losses(&self) -> bool {
        let profile = self.profile();
        let is_of_packets =
            profile.samples == Some(SampleKind::Probes) || profile.is_datagram_stream();
        is_of_packets && !profile.calibration.sends_again
    }

    /// What the emulated network dropped. What the kernel's token bucket drops is not counted.
    fn lost_percent(&self, way: Option<Direction>) -> Option<Truth> {
        let dropped = |way| self.way(way).dropped_all() as f64;
        let (lost, of) = match way {
            Some(way) => (dropped(way), self.way(way).packets),
            // An exchange is lost if either its request or its answer is.
            None => {
                let lost = dropped(Direction::Up) + dropped(Direction::Down);
                (lost, self.link.up.packets)
            }
        };
        let is_known = of > 0 && self.case.bed.tbf().is_none() && !self.copies_or_edits();
        is_known.then(|| Truth::exact(100.0 * lost / of as f64))
    }

    /// Whether packets came twice, or damaged: what an instrument then sees of them is its kernel's affair.
    fn copies_or_edits(&self) -> bool {
        [&self.link.up, &self.link.down]
            .iter()
            .any(|way| way.copies + way.edited > 0)
    }

    fn goodput(&self, way: Option<Direction>) -> Option<Truth> {
        if self.copies_or_edits() {
            return None;
        }
        let calibration = &self.profile().calibration;
        let elapsed = |statistic| self.elapsed(way, statistic);
        let carrier = self.profile().carrier.as_ref();
        let carrier = carrier.filter(|_| !calibration.omits_start)?;
        if let Carrier::Udp { length } = carrier {
            return self.datagrams((*length)?, way?, elapsed(Statistic::Total)?);
        }
        let seconds = match calibration.runs {
            Some(runs) => f64::from(runs) * elapsed(Statistic::Mean)?,
            None => elapsed(Statistic::Total)?,
        };
        let control = f64::from(calibration.control_bytes);
        let payload = self.tcp_payload(way.or(self.profile().direction)?);
        Some(Truth {
            value: (payload - control) * 8.0 / seconds,
            within: control * 8.0 / seconds,
        })
    }

    /// Of a stream of datagrams: what was delivered, less the little that agrees on the test, of which as much goes the other
    /// way; but no more than the line has room for, whose queue goes on when the sender has ended.
    fn datagrams(&self, length: u32, way: Direction, seconds: f64) -> Option<Truth> {
        let length = f64::from(length);
        let share = length / (length + f64::from(ETHERNET_HEADER + ip_header(false) + UDP_HEADER));
        let control = self.way(opposite(way)).delivered_bytes as f64;
        let delivered = self.way(way).delivered_bytes as f64 - control;
        let rate = delivered * 8.0 / seconds;
        if let Some(line) = self.line(way).filter(|line| rate >= *line) {
            // What waited at the end was served after the sender's time: without it the line may not have been full all along.
            let (burst, waiting) = self.store(way, line);
            let least = (delivered * 8.0 / (seconds + waiting * 8.0 / line)).min(line);
            return Some(Truth {
                value: f64::midpoint(least, line) * share,
                within: (line - least) / 2.0 + burst * 8.0 / seconds,
            });
        }
        Some(Truth {
            value: rate * share,
            within: control * 8.0 / seconds + rate * UNTIMED / seconds,
        })
    }

    /// What the slowest rate of a direction lets through at once, and what may wait before it, in bytes.
    fn store(&self, way: Direction, line: f64) -> (f64, f64) {
        if let Some(bucket) = self.case.bed.token_bucket() {
            return (f64::from(bucket.burst), f64::from(bucket.limit));
        }
        let slowest = self.stages(way).and_then(|stages| stages.slowest());
        let mtu = self.case.bed.mtu().unwrap_or_default();
        let waiting = slowest.map_or(0.0, |(_, queue)| match queue.limit {
            QueueLimit::Packets(count) => f64::from(count) * f64::from(mtu),
            QueueLimit::Bytes(bytes) => bytes.0 as f64,
            QueueLimit::Time(time) => time.0 as f64 / 1e9 * line / 8.0,
        });
        (0.0, waiting)
    }

    /// TCP payload that was delivered, by its packets' lengths.
    fn tcp_payload(&self, way: Direction) -> f64 {
        let headers = f64::from(ETHERNET_HEADER) + TCP_HEADERS;
        let counted = self.way(way);
        counted.delivered_bytes as f64 - headers * counted.delivered as f64
    }

    /// How long the instrument took, or each of its runs on average.
    fn elapsed(&self, way: Option<Direction>, statistic: Statistic) -> Option<f64> {
        let mut figures = self.measurement.figures.iter().filter(|f| {
            (f.metric, f.statistic, f.stream) == (Metric::ElapsedS, statistic, None)
                && (f.direction.is_none() || f.direction == way)
        });
        let seconds = figures.next()?.value;
        (seconds > 0.0).then_some(seconds)
    }

    fn way(&self, way: Direction) -> &DirectionSummary {
        match way {
            Direction::Up => &self.link.up,
            Direction::Down => &self.link.down,
        }
    }

    fn profile(&self) -> &Profile {
        &self.instrument.profile
    }
}

fn opposite(way: Direction) -> Direction {
    match way {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

/// The mean length of the frames that were offered.
fn mean_frame(counted: &DirectionSummary) -> Option<f64> {
    (counted.packets > 0).then(|| counted.bytes as f64 / counted.packets as f64)
}
