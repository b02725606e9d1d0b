//! What a UDP test found, in the one form of all instruments.

use std::time::Instant;

use super::detail::{Detail, ReceiverDetail, SenderDetail};
use super::streams::{Reading, StreamReading, UdpStreams};
use crate::analysis::proportion;
use crate::instrument::iperf3::layers::Layers;
use crate::instrument::iperf3::plan::Streams as _;
use crate::instrument::iperf3::results::{Sides, StreamResults};
use crate::instrument::{Direction, Figure, Measurement, Metric, Sample, Statistic};

/// What both ends know of one stream, without what is omitted.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Payload bytes sent, and the seconds that it took.
    sent: Option<(u64, f64)>,
    /// Datagrams sent.
    sent_packets: Option<u64>,
    pacing: Option<SenderDetail>,
    received: Option<Received>,
}

/// What the receiving end knows of a stream, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    bytes: u64,
    /// Datagrams that were to come, and that did not, by whomever they were dropped.
    expected: u64,
    missing: u64,
    /// Datagrams of which the receiving end could not know, because nothing was seen after them.
    unseen: u64,
    jitter_ms: f64,
    /// Bits a second, and the least and the most that they may have been, if that is known.
    goodput: f64,
    bounds: Option<[f64; 2]>,
    /// What an iperf3 does not tell.
    detail: Option<ReceiverDetail>,
}

/// What a test over `streams` found at this end, with what the other end said.
pub(crate) fn measurement(streams: &UdpStreams, sides: &Sides) -> Measurement {
    let report = Report { streams, sides };
    let mut measurement = Measurement {
        failure: report.disagreement(),
        ..Measurement::default()
    };
    for sends in [true, false] {
        let flows = report.flows(sends);
        if !flows.is_empty() {
            report.add_samples(sends, &mut measurement.samples);
            report.add_figures(sends, &flows, &mut measurement.figures);
        }
    }
    report.add_facts(&mut measurement);
    measurement
}

struct Report<'a> {
    streams: &'a UdpStreams,
    sides: &'a Sides,
}

impl Received {
    /// Of the account of a farwire, with what its sender says of the time of sending.
    fn here(detail: ReceiverDetail, local: &StreamResults, active_s: f64) -> Self {
        let [omitted_missing, omitted] = local.omitted.unwrap_or_default();
        let [bytes, span_ns] = detail.after_first;
        // A path that fell silent before the sender did carried nothing in the rest of its time.
        let span = (span_ns as f64 / 1e9).max(active_s);
        let goodput = rate(bytes, span);
        // What came with the first arrival and what would have come after the last may weigh as much again.
        let edges = rate(2 * local.bytes.saturating_sub(bytes), span);
        let half = detail.goodput_half_bit_per_s;
        let half = half.map(|half| half as f64 + edges);
        Self {
            bytes: local.bytes,
            expected: local.packets.saturating_sub(omitted),
            missing: local.errors.unwrap_or(0).saturating_sub(omitted_missing),
            unseen: 0,
            jitter_ms: local.jitter_s * 1e3,
            goodput,
            bounds: half.map(|half| [(goodput - half).max(0.0), goodput + half]),
            detail: Some(detail),
        }
    }

    /// Of what an iperf3 says, that was sent `sent` datagrams within `active_s`.
    fn there(remote: &StreamResults, sent: u64, active_s: f64) -> Option<Self> {
        let [omitted_missing, omitted] = remote.omitted.unwrap_or_default();
        let expected = remote.packets.saturating_sub(omitted);
        let rates = [active_s, remote.seconds.unwrap_or(active_s)].map(|s| rate(remote.bytes, s));
        Some(Self {
            bytes: remote.bytes,
            expected,
            missing: remote.errors?.saturating_sub(omitted_missing),
            unseen: sent.saturating_sub(remote.packets),
            jitter_ms: remote.jitter_s * 1e3,
            goodput: rates[0],
            bounds: Some([rates[0].min(rates[1]), rates[0].max(rates[1])]),
            detail: None,
        })
    }

    fn with(self, other: Self) -> Self {
        let detail = self.detail.zip(other.detail);
        let bounds = self.bounds.zip(other.bounds);
        Self {
            bytes: self.bytes + other.bytes,
            expected: self.expected + other.expected,
            missing: self.missing + other.missing,
            unseen: self.unseen + other.unseen,
            jitter_ms: self.jitter_ms.max(other.jitter_ms),
            goodput: self.goodput + other.goodput,
            bounds: bounds.map(|(a, b)| [0, 1].map(|i| a[i] + b[i])),
            detail: detail.map(|(a, b)| a.with(&b)),
        }
    }

    fn host_dropped(&self) -> u64 {
        self.detail.map_or(0, |detail| detail.host_dropped)
    }

    /// Datagrams that the network lost.
    fn lost(&self) -> u64 {
        self.missing.saturating_sub(self.host_dropped())
    }

    /// The network's loss in percent, and its 95 % interval; absent when nothing was to come.
    fn loss(&self) -> Option<(f64, [f64; 2])> {
        let lost = proportion::percent(self.lost(), self.expected)?;
        // Each drop of the host was one datagram at least, and what was unseen may have been lost.
        let drops = self.detail.map_or(0, |detail| detail.drops);
        let surely_host = drops.min(self.host_dropped());
        let most = self.missing.saturating_sub(surely_host) + self.unseen;
        let [low, _] = proportion::wilson(self.lost(), self.expected)?;
        let [_, high] = proportion::wilson(most, self.expected + self.unseen)?;
        Some((lost, [100.0 * low, 100.0 * high]))
    }
}

impl Report<'_> {
    fn remote(&self, id: u32) -> Option<&StreamResults> {
        self.sides.remote.as_ref()?.stream(id)
    }

    /// The streams that this end sends, or receives, with their numbers.
    fn flows(&self, sends: bool) -> Vec<(u32, Flow)> {
        let flow = |local: &StreamResults| match local.detail? {
            Detail::Sender(_) if sends => Some((local.id, self.sent(local))),
            Detail::Receiver(detail) if !sends => Some((local.id, self.came(local, detail))),
            _ => None,
        };
        self.streams.results().iter().filter_map(flow).collect()
    }

    /// Both views of a stream that this end sent.
    fn sent(&self, local: &StreamResults) -> Flow {
        let active_s = local.seconds.unwrap_or(0.0);
        let remote = self.remote(local.id);
        let received = remote.and_then(|remote| match remote.detail {
            Some(Detail::Receiver(detail)) => {
                Some(Received::here(detail, remote, sending_s(local)))
            }
            _ => Received::there(remote, local.packets, active_s),
        });
        Flow {
            received,
            ..self.sender_view(local)
        }
    }

    /// Both views of a stream that this end received.
    fn came(&self, local: &StreamResults, detail: ReceiverDetail) -> Flow {
        let sender = self.remote(local.id).map(|remote| self.sender_view(remote));
        let active_s = self.remote(local.id).map_or(0.0, sending_s);
        let received = Received::here(detail, local, active_s);
        Flow {
            received: Some(received),
            ..sender.unwrap_or_default()
        }
    }

    /// What the sending end says of a stream.
    fn sender_view(&self, results: &StreamResults) -> Flow {
        let omitted = results.omitted.map(|[_, omitted]| omitted);
        // iperf3 up to 3.14 does not tell how many of its datagrams it omitted.
        let omitted = omitted.or((!self.streams.omits()).then_some(0));
        Flow {
            sent: results.seconds.map(|seconds| (results.bytes, seconds)),
            sent_packets: omitted.map(|omitted| results.packets.saturating_sub(omitted)),
            pacing: match results.detail {
                Some(Detail::Sender(detail)) => Some(detail),
                _ => None,
            },
            received: None,
        }
    }

    fn direction(&self, sends: bool) -> Direction {
        if sends == self.streams.is_client() {
            Direction::Up
        } else {
            Direction::Down
        }
    }

    fn layers(&self) -> Layers {
        Layers::of_datagrams(self.streams.length() as f64, self.streams.is_ipv6())
    }

    /// What cannot be if both ends counted right.
    fn disagreement(&self) -> Option<String> {
        let remote = self.sides.remote.as_ref()?;
        self.streams.results().iter().find_map(|local| {
            let id = local.id;
            let theirs = remote.stream(id)?;
            let sent = matches!(local.detail, Some(Detail::Sender(_)));
            let (sent, came) = if sent { (local, theirs) } else { (theirs, local) };
            (came.packets > sent.packets || came.errors.is_some_and(|lost| lost > sent.packets))
                .then(|| {
                    format!(
                        "the ends disagree: of {} datagrams sent on stream {id}, number {} came and {} are missing",
                        sent.packets,
                        came.packets,
                        came.errors.unwrap_or(0)
                    )
                })
        })
    }

    fn add_figures(&self, sends: bool, flows: &[(u32, Flow)], figures: &mut Vec<Figure>) {
        let way = self.direction(sends);
        let all = flows.iter().map(|(_, flow)| *flow);
        let Some(whole) = all.reduce(Flow::with) else {
            return;
        };
        let mut add = |figure: Figure| figures.push(figure.toward(way));
        whole
            .figures(Some(self.layers()))
            .into_iter()
            .for_each(&mut add);
        let ours = Some(self.sides.local.cpu_percent[0]);
        let theirs = self.sides.remote.as_ref().map(|r| r.cpu_percent[0]);
        let (sender, receiver) = if sends {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        for (metric, value) in [
            (Metric::SenderCpuPercent, sender),
            (Metric::ReceiverCpuPercent, receiver),
        ] {
            if let Some(value) = value {
                add(Figure::new(metric, Statistic::Mean, value));
            }
        }
        if flows.len() > 1 {
            for (id, flow) in flows {
                let figures = flow.figures(None).into_iter();
                figures.map(|figure| figure.stream(*id)).for_each(&mut add);
            }
        }
    }

    fn add_samples(&self, sends: bool, samples: &mut Vec<Sample>) {
        let way = self.direction(sends);
        let mut before: Option<&Reading> = None;
        let mut index = 0;
        for reading in self.streams.readings() {
            let began = before.map_or(self.streams.started(), |before| before.at);
            if !reading.omitted {
                index += 1;
                let at_s = seconds(self.streams.started(), reading.at);
                let lasted = seconds(began, reading.at);
                let values = interval(reading, before, sends, lasted, self.layers());
                let new = values
                    .into_iter()
                    .map(|(metric, value)| Sample::new(at_s, metric, index, value).toward(way));
                samples.extend(new);
            }
            before = Some(reading);
        }
    }

    fn add_facts(&self, measurement: &mut Measurement) {
        let mut fact = |name: &str, text: &str| {
            measurement.facts.insert(name.to_owned(), text.to_owned());
        };
        fact(
            "goodput",
            "payload bytes (L7) after the first arrival, over the time to the last one, or over the time of sending if \
             that is longer; where an iperf3 receives, its bytes over the time of sending",
        );
        fact(
            "loss",
            "of the network, copies and this host's drops apart; to the last datagram sent where farwire receives; as \
             iperf3 counts where that receives: copies hide loss, and what came after the end is in neither count",
        );
        fact(
            "interval",
            "95 %. Loss: Wilson's on the datagrams, which takes them for independent, widened by what host and network \
             cannot be told apart. Goodput: batch means over tenths of a second at the receiver, and twice the first arrival for the edges; where an iperf3 \
             receives, between its bytes over its own time and over the time of sending",
        );
        fact(
            "jitter",
            "RFC 3550, from the kernel's receive stamps, one step a received train: datagrams that arrived as one share a \
             stamp; over all streams the largest",
        );
        fact(
            "pacing",
            "at the sender, from one train to the next; late is more than 50 us; what is late is made up for at twice the \
             rate, what is 100 ms late is given up",
        );
        fact(
            "layers",
            &format!(
                "computed from goodput with {} bytes of payload a datagram, each in one packet; L2 includes the FCS, L1 the \
                 preamble and the gap",
                self.streams.length()
            ),
        );
        fact(
            "cpu",
            "percent of one CPU: the data threads of a farwire; the whole process of an iperf3",
        );
    }
}

impl Flow {
    fn with(self, other: Self) -> Self {
        let sent = self.sent.zip(other.sent);
        Self {
            sent: sent.map(|((a, a_s), (b, b_s))| (a + b, a_s.max(b_s))),
            sent_packets: add(self.sent_packets, other.sent_packets),
            pacing: self.pacing.zip(other.pacing).map(|(a, b)| a.with(&b)),
            received: self.received.zip(other.received).map(|(a, b)| a.with(b)),
        }
    }

    fn figures(&self, layers: Option<Layers>) -> Vec<Figure> {
        let mut figures = Vec::new();
        let total = |metric, count: u64| Figure::new(metric, Statistic::Total, count as f64);
        if let Some(received) = &self.received {
            received.figures(layers, &mut figures);
        }
        if let Some((bytes, seconds)) = self.sent {
            let sent = rate(bytes, seconds);
            figures.push(Figure::new(Metric::SentRateBitPerS, Statistic::Mean, sent));
            figures.push(total(Metric::SentBytes, bytes));
            figures.push(Figure::new(Metric::ElapsedS, Statistic::Total, seconds));
        }
        if let Some(packets) = self.sent_packets {
            figures.push(total(Metric::SentPackets, packets));
        }
        if let Some(pacing) = &self.pacing {
            pacing.figures(&mut figures);
        }
        figures
    }
}

impl Received {
    fn figures(&self, layers: Option<Layers>, figures: &mut Vec<Figure>) {
        let total = |metric, count: u64| Figure::new(metric, Statistic::Total, count as f64);
        let mut rate = |metric, of: &dyn Fn(f64) -> f64| {
            let mean = Figure::new(metric, Statistic::Mean, of(self.goodput));
            figures.push(match self.bounds {
                Some([low, high]) => mean.within(of(low), of(high)),
                None => mean,
            });
        };
        rate(Metric::GoodputBitPerS, &|rate| rate);
        if let Some(layers) = layers {
            rate(Metric::L3RateBitPerS, &|rate| layers.l3(rate));
            rate(Metric::L2RateBitPerS, &|rate| layers.l2(rate));
            rate(Metric::L1RateBitPerS, &|rate| layers.l1(rate));
        }
        if let Some((percent, [low, high])) = self.loss() {
            let loss = Figure::new(Metric::LostPercent, Statistic::Mean, percent);
            figures.push(loss.within(low, high));
        }
        figures.push(total(Metric::LostPackets, self.lost()));
        figures.push(Figure::new(
            Metric::JitterMs,
            Statistic::Mean,
            self.jitter_ms,
        ));
        figures.push(total(Metric::ReceivedBytes, self.bytes));
        let Some(detail) = &self.detail else {
            return;
        };
        figures.push(total(Metric::ReceivedPackets, detail.received));
        figures.push(total(Metric::DuplicatePackets, detail.duplicates));
        figures.push(total(Metric::ReorderedPackets, detail.reordered));
        if detail.reordered > 0 {
            let extent = detail.largest_extent as f64;
            figures.push(Figure::new(
                Metric::ReorderingExtentPackets,
                Statistic::Max,
                extent,
            ));
        }
        figures.push(total(Metric::HostDroppedPackets, detail.host_dropped));
        if detail.garbage > 0 {
            figures.push(total(Metric::GarbagePackets, detail.garbage));
        }
    }
}

impl SenderDetail {
    fn figures(&self, figures: &mut Vec<Figure>) {
        if let Some(errors) = self.gap_error_ns {
            let statistics = [Statistic::Median, Statistic::P99, Statistic::Max];
            for (statistic, error) in statistics.into_iter().zip(errors) {
                let micros = error as f64 / 1e3;
                figures.push(Figure::new(Metric::PacingErrorUs, statistic, micros));
            }
        }
        if let Some(late) = proportion::percent(self.late, self.trains) {
            figures.push(Figure::new(
                Metric::LateTrainsPercent,
                Statistic::Mean,
                late,
            ));
        }
        let burst = self.burst as f64;
        figures.push(Figure::new(Metric::TrainPackets, Statistic::Max, burst));
    }
}

/// From the first departure of a stream to its last, as far as the sender says.
fn sending_s(sender: &StreamResults) -> f64 {
    match sender.detail {
        Some(Detail::Sender(detail)) => detail.active_ns as f64 / 1e9,
        _ => 0.0,
    }
}

/// What one interval adds to a direction.
fn interval(
    reading: &Reading,
    before: Option<&Reading>,
    sends: bool,
    lasted: f64,
    layers: Layers,
) -> Vec<(Metric, f64)> {
    let earlier = |index: usize| before.and_then(|before| before.streams.get(index));
    let streams = reading.streams.iter().enumerate();
    if sends {
        let [mut bytes, mut packets] = [0.0; 2];
        for (index, stream) in streams {
            if let StreamReading::Sent(now) = stream {
                let then = match earlier(index) {
                    Some(StreamReading::Sent(then)) => *then,
                    _ => Default::default(),
                };
                bytes += difference(now.bytes, then.bytes);
                packets += difference(now.datagrams, then.datagrams);
            }
        }
        return vec![
            (Metric::SentRateBitPerS, bytes * 8.0 / lasted),
            (Metric::SentBytes, bytes),
            (Metric::SentPackets, packets),
        ];
    }
    let [
        mut bytes,
        mut packets,
        mut lost,
        mut host,
        mut copies,
        mut reordered,
    ] = [0.0; 6];
    let mut jitter_ns = 0.0_f64;
    for (index, stream) in streams {
        if let StreamReading::Came(now) = stream {
            let then = match earlier(index) {
                Some(StreamReading::Came(then)) => *then,
                _ => Default::default(),
            };
            let dropped = difference(now.host_dropped, then.host_dropped);
            bytes += difference(now.bytes, then.bytes);
            packets += difference(now.received, then.received);
            lost += difference(now.missing(), then.missing()) - dropped;
            host += dropped;
            copies += difference(now.duplicates, then.duplicates);
            reordered += difference(now.reordered, then.reordered);
            jitter_ns = jitter_ns.max(now.jitter_ns);
        }
    }
    let goodput = bytes * 8.0 / lasted;
    vec![
        (Metric::GoodputBitPerS, goodput),
        (Metric::L3RateBitPerS, layers.l3(goodput)),
        (Metric::L2RateBitPerS, layers.l2(goodput)),
        (Metric::L1RateBitPerS, layers.l1(goodput)),
        (Metric::ReceivedBytes, bytes),
        (Metric::ReceivedPackets, packets),
        (Metric::LostPackets, lost),
        (Metric::HostDroppedPackets, host),
        (Metric::DuplicatePackets, copies),
        (Metric::ReorderedPackets, reordered),
        (Metric::JitterMs, jitter_ns / 1e6),
    ]
}

/// A count that comes late is taken back in the interval in which it is corrected: then this is below 0.
fn difference(now: u64, before: u64) -> f64 {
    now as f64 - before as f64
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}
