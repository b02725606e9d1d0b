//! Computes the reference values for one instrument from the emulator's packet log and from the conditions, which rely
//! on the emulator's timestamps and counts alone. From the instrument it uses only which figures there are, neither its
//! clock nor its counts.

use model::{Behaviour, DropCause, Holding, LossLaw};

use conditions::route::{FULL_FRAME, Route};
use record::crossing::CrossedFlow;
use record::plan::{Case, PlannedInstrument};
use record::profile::{Carrier, InstrumentProfile, SampleKind};
use record::summary::{DirectionSummary, Summary};
use record::{Direction, Figure, Measurement, Metric, Statistic};
use stats::layers::{ETHERNET_HEADER, UDP_HEADER, ip_header};

/// Bytes of the headers of IPv4 and of TCP with timestamps.
const TCP_HEADERS: u32 = 20 + 32;
/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Share of a line's rate from which the line counts as full.
const FULL: f64 = 0.95;
/// Fewest expected losses for which the share of lost packets is compared with a probability.
const LEAST_LOSSES: f64 = 5.0;
/// Flows with a smaller share of the greatest flow's packets are not part of the measurement.
const LEAST_SHARE: f64 = 0.25;

/// A reference value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Truth {
    /// The value, in the metric's unit.
    pub(super) value: f64,
    /// Uncertainty of the value.
    pub(super) within: f64,
}

/// The traffic of an instrument that had a link to itself.
pub(super) struct Crossing<'a> {
    pub(super) case: &'a Case,
    pub(super) instrument: &'a PlannedInstrument,
    pub(super) link: &'a Summary,
    pub(super) measurement: &'a Measurement,
}

impl Truth {
    fn exact(value: f64) -> Self {
        Self { value, within: 0.0 }
    }

    /// Returns whether an interval contains the truth, given its uncertainty.
    pub(super) fn is_in(&self, [low, high]: [f64; 2]) -> bool {
        low <= self.value + self.within && self.value - self.within <= high
    }

    /// Returns the distance of the truth from an interval, reduced by its uncertainty; 0 if the interval contains it.
    pub(super) fn beyond(&self, [low, high]: [f64; 2]) -> f64 {
        let below = low - (self.value + self.within);
        let above = self.value - self.within - high;
        below.max(above).max(0.0)
    }
}

impl Crossing<'_> {
    /// Returns the truth of a figure, if there is one.
    pub(super) fn truth(&self, figure: &Figure) -> Option<Truth> {
        if figure.stream.is_some() || figure.phase.is_some() {
            return None;
        }
        let way = figure.direction;
        match (figure.metric, figure.statistic) {
            (Metric::RttMs | Metric::NetworkRttMs, Statistic::Median) => self.round_trip(figure),
            (Metric::OneWayDelayMs, Statistic::Median) => self.delay_ms(way?),
            (Metric::LostPackets, Statistic::Total) => self.lost(way?),
            (Metric::ReceivedPackets, Statistic::Total) if way.is_none() => self.answered(),
            (Metric::LostPercent, Statistic::Mean) => self.lost_percent(way),
            (Metric::GoodputBitPerS, Statistic::Mean) => self.goodput(way),
            (Metric::L2RateBitPerS, Statistic::Max) => self.best_second(way?),
            _ => None,
        }
    }

    /// Returns the slowest L2 rate of a direction, if there is any: that of the emulator and its policers, or of the
    /// kernel's token bucket.
    pub(super) fn line(&self, way: Direction) -> Option<f64> {
        let route = self.steady_route().unwrap_or_default();
        let rate = route.stages(way).slowest(FULL_FRAME).map(|(rate, _)| rate);
        let policer = route.stages(way).slowest_policer();
        let bucket = self.case.bed.tbf().filter(|_| way == Direction::Up);
        let slowest = [rate, policer, bucket].into_iter().flatten().min()?;
        Some(slowest.get() as f64)
    }

    /// Returns the emulated path if its conditions are the same for all packets at all times.
    fn steady_route(&self) -> Option<Route> {
        self.case.path().ok().filter(|route| route.is_steady)
    }

    /// Returns whether the instrument uses all of the line that it can get. A paced one does so if it was to send more.
    pub(super) fn fills(&self, way: Direction, rate: f64) -> bool {
        let is_full = self.line(way).is_some_and(|line| rate >= FULL * line);
        !self.profile().is_datagram_stream() || is_full || self.fills_queue(way)
    }

    /// Returns whether a queue overflowed, or its AQM dropped or marked packets.
    fn fills_queue(&self, way: Direction) -> bool {
        let counted = self.way(way);
        counted.queue_full() + counted.dropped_for(DropCause::Aqm) + counted.marked > 0
    }

    /// Returns the median one-way delay of the packets. The log stamps a departure when the send call returns, but the
    /// packet may have reached the receiver at any time during the call, so the uncertainty is half of the call's
    /// median duration. The delay is unknown if packets wait in the kernel's token bucket, which is before the link.
    fn delay_ms(&self, way: Direction) -> Option<Truth> {
        let waits_before = way == Direction::Up && self.case.bed.tbf().is_some();
        let delay = self.main_flow(way)?.data.median_delay_ns?;
        let half_call = self.send_call_ns() as f64 / 2.0;
        (!waits_before).then(|| Truth {
            value: (delay as f64 - half_call) / 1e6,
            within: half_call / 1e6,
        })
    }

    /// Returns the median duration of the calls that send packets, estimated as the median error after them minus that
    /// before them.
    fn send_call_ns(&self) -> u64 {
        let error = &self.link.departure_error;
        error.p50_ns.saturating_sub(error.hand_over.p50_ns)
    }

    /// Returns the sum of both directions. It is unknown if one of them varies from packet to packet, because the
    /// median of sums is not the sum of medians.
    fn round_trip(&self, figure: &Figure) -> Option<Truth> {
        if let Some(size) = figure.size {
            // With several sizes, the log does not show which packets belong to which size, nor which packet ends a
            // message of several.
            let others = self.measurement.figures.iter();
            let is_only = others.filter_map(|f| f.size).all(|other| other == size);
            if !is_only || !self.fits_one_packet(size) {
                return None;
            }
        }
        let mut sum = Truth::exact(0.0);
        for way in [Direction::Up, Direction::Down] {
            if self.varies(way)? {
                return None;
            }
            let delay = self.delay_ms(way)?;
            sum.value += delay.value;
            sum.within += delay.within;
        }
        Some(sum)
    }

    /// Returns whether packets of equal length have different delays; `None` if not all packets meet the same
    /// conditions.
    fn varies(&self, way: Direction) -> Option<bool> {
        let route = self.steady_route()?;
        let has_own_times =
            |stage: Behaviour<'_>| stage.varies || stage.holds == Holding::UntilChanged;
        Some(route.stages(way).behaviours().any(has_own_times) || self.fills_queue(way))
    }

    /// Returns whether a message of this many bytes fits into one packet.
    fn fits_one_packet(&self, size: u64) -> bool {
        let headers = match self.profile().carrier {
            Some(Carrier::Udp { .. }) => ip_header(false) + UDP_HEADER,
            _ => TCP_HEADERS,
        };
        let mtu = self.case.bed.mtu().map(u64::from);
        mtu.is_some_and(|mtu| size + u64::from(headers) <= mtu)
    }

    /// Returns whether the log has every loss that the instrument should count: each of its packets is one packet of
    /// the link, and none was copied or damaged, because the receiving kernel decides what happens to those.
    fn counts_losses(&self) -> bool {
        self.has_packets_of_its_own() && !self.copies_or_edits()
    }

    /// Returns whether each of its packets is one packet of the link. That is not so for TCP, which retransmits, and
    /// for a search, which does not count all packets. Packets that the kernel's token bucket drops are not in the log,
    /// and packets that the link holds to the end are lost only to the instrument.
    fn has_packets_of_its_own(&self) -> bool {
        let profile = self.profile();
        let is_of_packets =
            profile.samples == Some(SampleKind::Probes) || profile.is_datagram_stream();
        let calibration = &profile.calibration;
        let is_whole = !calibration.sends_again && !calibration.omits_start;
        let has_fragments = self.has_fragments();
        let route = self.steady_route().unwrap_or_default();
        let mut stages = route.up.behaviours().chain(route.down.behaviours());
        let holds = stages.any(|stage| stage.holds == Holding::UntilChanged);
        is_of_packets && is_whole && !has_fragments && self.case.bed.tbf().is_none() && !holds
    }

    /// Returns whether its datagrams are longer than the MTU. Each of them is then several packets, of which only the
    /// first has ports.
    fn has_fragments(&self) -> bool {
        match self.profile().carrier {
            Some(Carrier::Udp {
                length: Some(length),
            }) => !self.fits_one_packet(length.into()),
            _ => false,
        }
    }

    /// Returns the number of packets that the emulated network dropped, which is exact.
    fn lost(&self, way: Direction) -> Option<Truth> {
        self.main_flow(way)?;
        let lost: u64 = self.main_flows(way).map(|flow| flow.data.lost).sum();
        self.counts_losses().then(|| Truth::exact(lost as f64))
    }

    /// Returns the number of exchanges in which neither the request nor its answer was dropped.
    fn answered(&self) -> Option<Truth> {
        let up = &self.main_flow(Direction::Up)?.data;
        let lost_down = self
            .main_flow(Direction::Down)
            .map_or(0, |flow| flow.data.lost);
        let answered = up.packets.saturating_sub(up.lost + lost_down);
        self.counts_losses().then(|| Truth::exact(answered as f64))
    }

    /// Returns the share of packets that were dropped, if that depended on the traffic. Otherwise it returns the
    /// configured probability, if enough losses are expected from it.
    ///
    /// A packet that the receiving kernel drops because of its checksum is not lost in the log, so only the probability
    /// accounts for damaged packets.
    fn lost_percent(&self, way: Option<Direction>) -> Option<Truth> {
        let copies = self.link.up.copies + self.link.down.copies;
        if !self.has_packets_of_its_own() || copies > 0 {
            return None;
        }
        let ways = ways_of(way);
        let sent: u64 = self.main_flows(ways[0]).map(|flow| flow.data.packets).sum();
        if ways.iter().any(|way| self.loses_by_traffic(*way)) {
            if self.copies_or_edits() {
                return None;
            }
            let lost = ways.iter().flat_map(|way| self.main_flows(*way));
            let lost: u64 = lost.map(|flow| flow.data.lost).sum();
            return (sent > 0).then(|| Truth::exact(100.0 * lost as f64 / sent as f64));
        }
        let told = self.configured_loss_percent(&ways)?;
        (sent as f64 * told / 100.0 >= LEAST_LOSSES).then(|| Truth::exact(told))
    }

    /// Returns the configured probability, in percent, of losing the packets of a figure; `None` if the loss depends on
    /// anything else.
    pub(super) fn configured_loss(&self, figure: &Figure) -> Option<f64> {
        let is_share = (figure.metric, figure.statistic) == (Metric::LostPercent, Statistic::Mean);
        let ways = ways_of(figure.direction);
        let copies = self.link.up.copies + self.link.down.copies;
        let is_whole = is_share && figure.stream.is_none() && figure.phase.is_none();
        let is_told = self.has_packets_of_its_own()
            && copies == 0
            && !ways.iter().any(|way| self.loses_by_traffic(*way));
        let told = (is_whole && is_told).then(|| self.configured_loss_percent(&ways))?;
        told.filter(|told| *told > 0.0)
    }

    fn configured_loss_percent(&self, ways: &[Direction]) -> Option<f64> {
        let mut passes = 1.0;
        for way in ways {
            passes *= 1.0 - self.probability(*way)?;
        }
        Some(100.0 * (1.0 - passes))
    }

    /// Returns whether packets were dropped or marked because of the traffic: they found no room, exceeded a policer's
    /// rate, or were too long. Bit errors count, too, because they affect longer packets more often.
    fn loses_by_traffic(&self, way: Direction) -> bool {
        let counted = self.way(way);
        let has_bit_errors = |route: Route| {
            let mut stages = route.stages(way).behaviours();
            stages.any(|stage| matches!(stage.loss, LossLaw::BitErrors(_)))
        };
        counted.dropped_all() > counted.lost()
            || counted.marked > 0
            || self.steady_route().is_some_and(has_bit_errors)
    }

    /// Returns the probability that a packet is dropped, alone or in a burst, or damaged so that its receiver drops it.
    /// It is unknown if losses are counted or depend on each other in another way, and if a repaired checksum hides the
    /// damage. No packet may have been dropped because of the traffic.
    fn probability(&self, way: Direction) -> Option<f64> {
        let route = self.steady_route()?;
        let mut passes = 1.0;
        for stage in route.stages(way).behaviours() {
            match stage.damage {
                Some(damage) if damage.repaired || damage.share.is_correlated() => return None,
                Some(damage) => passes *= 1.0 - damage.share.share.fraction(),
                None => {}
            }
            match stage.loss {
                LossLaw::Random(share) if !share.is_correlated() => {
                    passes *= 1.0 - share.share.fraction();
                }
                LossLaw::Bursts(bursts) => passes *= 1.0 - bursts.share,
                LossLaw::Never | LossLaw::LongerThan(_) | LossLaw::FasterThan(_) => {}
                LossLaw::Random(_)
                | LossLaw::EveryNth(_)
                | LossLaw::BitErrors(_)
                | LossLaw::Numbered => return None,
            }
        }
        Some(1.0 - passes)
    }

    /// Returns whether packets were duplicated or damaged. The receiving kernel then decides what the instrument gets
    /// of them.
    fn copies_or_edits(&self) -> bool {
        [&self.link.up, &self.link.down]
            .iter()
            .any(|way| way.copies + way.edited > 0)
    }

    fn goodput(&self, way: Option<Direction>) -> Option<Truth> {
        let profile = self.profile();
        if self.copies_or_edits() || profile.calibration.omits_start {
            return None;
        }
        let way = way.or(profile.direction)?;
        match profile.carrier.as_ref()? {
            Carrier::Udp { .. } if self.has_fragments() => None,
            Carrier::Udp { length } => self.datagrams((*length)?, way),
            // The far end reads its socket until long after the client has stopped to count.
            Carrier::Tcp { .. } if profile.calibration.timed && way == Direction::Down => None,
            Carrier::Tcp { streams, .. } => self.payload(*streams, way),
        }
    }

    /// Returns the rate of the datagrams after the first one, over the time from the first one's departure to the last
    /// one's.
    fn datagrams(&self, length: u32, way: Direction) -> Option<Truth> {
        let (mut left, mut from, mut to) = (0, u64::MAX, 0);
        for flow in self.main_flows(way) {
            left += flow.data.packets.saturating_sub(flow.data.lost + 1);
            from = from.min(flow.data.first_departure_ns?);
            to = to.max(flow.data.last_departure_ns?);
        }
        rate(left as f64 * f64::from(length), to.checked_sub(from)?).map(Truth::exact)
    }

    /// Returns the rate of TCP's payload over the time from the arrival of the first data packet to the departure of
    /// the last one. For an instrument that sends a request first or waits for an answer, the time includes one delay
    /// of the opposite direction. The clock of a client that receives without a request starts with a message that
    /// precedes the data, so its time starts with the first departure. Consecutive connections each have their own
    /// time.
    fn payload(&self, streams: u32, way: Direction) -> Option<Truth> {
        let calibration = &self.profile().calibration;
        let count = calibration.runs.unwrap_or(streams) as usize;
        let mut flows: Vec<&CrossedFlow> = self.of_protocol(TCP, way).collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.delivered_bytes));
        flows.truncate(count);
        let headers = u64::from(ETHERNET_HEADER + TCP_HEADERS);
        let payload = |flow: &&CrossedFlow| {
            flow.delivered_bytes
                .saturating_sub(headers * flow.delivered)
        };
        let bytes: u64 = flows.iter().map(payload).sum();
        let from_departure = way == Direction::Down && !calibration.answers;
        let begun = |flow: &CrossedFlow| {
            if from_departure {
                flow.data.first_departure_ns
            } else {
                Some(flow.data.first_arrival_ns)
            }
        };
        let mut nanos = 0;
        let mut ended = Vec::new();
        for flow in &flows {
            let back = if calibration.answers {
                self.back(flow)?
            } else {
                0
            };
            let end = flow.data.last_departure_ns? + back;
            ended.push(end);
            nanos += end.checked_sub(begun(flow)?)?;
        }
        if calibration.runs.is_none() {
            let first = flows.iter().filter_map(|flow| begun(flow)).min()?;
            nanos = ended.into_iter().max()?.checked_sub(first)?;
        }
        rate(bytes as f64, nanos).map(Truth::exact)
    }

    /// Returns the median delay of a connection's packets in the opposite direction.
    fn back(&self, flow: &CrossedFlow) -> Option<u64> {
        let mut back = self.of_protocol(flow.protocol, opposite(flow.direction));
        back.find(|other| other.ports == flow.ports)?
            .data
            .median_delay_ns
    }

    /// Returns the largest amount that was due within one second, for a search with sub-intervals of that length. Its
    /// uncertainty is one packet at the ends, and the amount that fits into the 99th percentile of the departure error.
    fn best_second(&self, way: Direction) -> Option<Truth> {
        let is_asked = self.profile().calibration.sub_interval_s == Some(1.0);
        let best = self
            .main_flow(way)?
            .best_second_bytes
            .filter(|_| is_asked)?;
        let frame = self.case.bed.mtu()? + ETHERNET_HEADER;
        let late_s = self.link.departure_error.p99_ns as f64 / 1e9;
        Some(Truth {
            value: best as f64 * 8.0,
            within: (f64::from(frame) + best as f64 * late_s) * 8.0,
        })
    }

    /// Returns all flows of a direction, if the log has every packet.
    fn flows(&self, way: Direction) -> impl Iterator<Item = &CrossedFlow> {
        let log = self.link.packet_log.as_ref();
        let whole = log.filter(|log| log.not_kept == 0);
        let flows = whole.into_iter().flat_map(|log| &log.flows);
        flows.filter(move |flow| flow.direction == way)
    }

    fn of_protocol(&self, protocol: u8, way: Direction) -> impl Iterator<Item = &CrossedFlow> {
        self.flows(way)
            .filter(move |flow| flow.protocol == protocol)
    }

    /// Returns the flow with the most packets in a direction, which is the instrument's, because it had the link to
    /// itself. For datagrams, flows over TCP are ignored, because they only control the measurement.
    fn main_flow(&self, way: Direction) -> Option<&CrossedFlow> {
        let is_own = |flow: &&CrossedFlow| match self.profile().carrier {
            Some(Carrier::Udp { .. }) => flow.protocol == UDP,
            _ => true,
        };
        self.flows(way)
            .filter(is_own)
            .max_by_key(|flow| flow.data.packets)
    }

    /// Returns the main flow and other streams of about the same size.
    fn main_flows(&self, way: Direction) -> impl Iterator<Item = &CrossedFlow> {
        let main = self.main_flow(way);
        let least = main.map_or(0.0, |flow| flow.data.packets as f64 * LEAST_SHARE);
        let protocol = main.map(|flow| flow.protocol);
        let is_main = move |flow: &&CrossedFlow| {
            Some(flow.protocol) == protocol && flow.data.packets as f64 >= least
        };
        self.flows(way).filter(is_main)
    }

    fn way(&self, way: Direction) -> &DirectionSummary {
        match way {
            Direction::Up => &self.link.up,
            Direction::Down => &self.link.down,
        }
    }

    fn profile(&self) -> &InstrumentProfile {
        &self.instrument.profile
    }
}

/// Returns the directions whose losses a figure counts. An exchange is lost if either its request or its answer is.
fn ways_of(direction: Option<Direction>) -> Vec<Direction> {
    match direction {
        Some(way) => vec![way],
        None => vec![Direction::Up, Direction::Down],
    }
}

fn opposite(way: Direction) -> Direction {
    match way {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

/// Returns a rate in bit/s.
fn rate(bytes: f64, nanos: u64) -> Option<f64> {
    (nanos > 0).then(|| bytes * 8e9 / nanos as f64)
}
