//! The results of a UDP test as a measurement.

use super::flow::{ReceiverView, StreamView};
use super::readings::{IntervalDelta, IntervalReading, ReadingKind};
use super::streams::UdpStreams;
use crate::iperf3::detail::{ReceiverDetail, StreamDetail};
use crate::iperf3::messages::{LOSS_UNKNOWN, StreamResults, TestResults, direction};
use crate::iperf3::run::{Streams as _, seconds};
use crate::measured::at_layers;
use record::quantity::counted;
use record::schedule::Pace;
use record::{Direction, Figure, Measurement, Metric, Sample};
use stats::layers::Layers;

/// Returns the measurement of a test over `streams` at this end, with the results of the other end.
pub(crate) fn measurement(streams: &UdpStreams, sides: &TestResults) -> Measurement {
    let report = UdpReport { streams, sides };
    let mut measurement = Measurement {
        failure: report.disagreement(),
        omitted_s: report.omitted_s(),
        ..Measurement::default()
    };
    for sends in [true, false] {
        let flows = report.flows(sends);
        if !flows.is_empty() {
            report.add_samples(sends, &mut measurement.samples);
            report.add_figures(sends, &flows, &mut measurement.figures);
            let way = direction(sends, streams.client).name();
            if let Some(delays) = delays(&flows) {
                measurement = measurement.with_fact(&format!("delays of the sender {way}"), delays);
            }
            let mut received = flows.iter().filter_map(|(_, flow)| flow.received);
            if received.any(|received| !received.knows_loss()) {
                measurement = measurement.with_fact(&format!("loss {way}"), LOSS_UNKNOWN);
            }
            let all = flows.iter().filter_map(|(_, flow)| flow.received);
            let unsure = all.fold(0, |sum: u64, received| {
                sum.saturating_add(received.unsure())
            });
            if unsure > 0 {
                let fact = format!(
                    "{} arrived with a wrong checksum or at a full socket of the receiver, and the kernel does not distinguish \
                     them: the interval of the loss covers both",
                    counted(unsure, "datagram")
                );
                measurement = measurement.with_fact(&format!("checksums {way}"), fact);
            }
            measurement.paces.extend(report.pace(sends, &flows));
        }
    }
    report.add_facts(&mut measurement);
    measurement
}

struct UdpReport<'a> {
    streams: &'a UdpStreams,
    sides: &'a TestResults,
}

impl UdpReport<'_> {
    fn remote(&self, id: u32) -> Option<&StreamResults> {
        self.sides.remote.as_ref()?.stream(id)
    }

    /// Returns the streams that this end sends, or those that it receives, with their numbers.
    fn flows(&self, sends: bool) -> Vec<(u32, StreamView)> {
        let flow = |local: &StreamResults| match local.detail? {
            StreamDetail::Sender(_) if sends => Some((local.id, self.sent_stream(local))),
            StreamDetail::Receiver(detail) if !sends => {
                Some((local.id, self.received_stream(local, detail)))
            }
            _ => None,
        };
        self.streams.results().iter().filter_map(flow).collect()
    }

    /// Returns both ends' results of a stream that this end sent.
    fn sent_stream(&self, local: &StreamResults) -> StreamView {
        let active_s = local.seconds.unwrap_or(0.0);
        let remote = self.remote(local.id);
        let received = remote.and_then(|remote| match remote.detail {
            Some(StreamDetail::Receiver(detail)) => {
                Some(ReceiverView::from_farwire(detail, remote, sending_s(local)))
            }
            _ => ReceiverView::from_iperf3(remote, local.packets, active_s, self.streams.omits()),
        });
        StreamView {
            received,
            ..self.sender_view(local)
        }
    }

    /// Returns both ends' results of a stream that this end received.
    fn received_stream(&self, local: &StreamResults, detail: ReceiverDetail) -> StreamView {
        let sender = self.remote(local.id).map(|remote| self.sender_view(remote));
        let sending_s = self.remote(local.id).map_or([0.0; 2], sending_s);
        let received = ReceiverView::from_farwire(detail, local, sending_s);
        StreamView {
            received: Some(received),
            ..sender.unwrap_or_default()
        }
    }

    /// Returns the sending end's results of a stream.
    fn sender_view(&self, results: &StreamResults) -> StreamView {
        let omitted = results.omitted.map(|[_, omitted]| omitted);
        // iperf3 3.12 and 3.13 do not report how many of their datagrams were omitted.
        let omitted = omitted.or((!self.streams.omits()).then_some(0));
        StreamView {
            sent: results.seconds.map(|seconds| (results.bytes, seconds)),
            sent_packets: omitted.map(|omitted| results.packets.saturating_sub(omitted)),
            pacing: match results.detail {
                Some(StreamDetail::Sender(detail)) => Some(detail),
                _ => None,
            },
            received: None,
        }
    }

    /// Compares what was sent in this direction with the requested rate, if there is one and the sending end reports
    /// its part.
    fn pace(&self, sends: bool, flows: &[(u32, StreamView)]) -> Option<Pace> {
        let rate = self.streams.rate()? as f64 * flows.len() as f64;
        let all = flows.iter().map(|(_, flow)| *flow);
        let whole = all.reduce(StreamView::with)?;
        let (mut bytes, mut seconds) = whole.sent?;
        let length = self.streams.length() as u64;
        // In a test of a number of bytes, the clock continues until this end knows that all have left.
        let ends_by_amount = sends && self.streams.is_limited();
        if let Some(pacing) = whole.pacing.filter(|_| ends_by_amount) {
            seconds = pacing.active_ns as f64 / 1e9;
            bytes = bytes.saturating_sub(pacing.burst * length * flows.len() as u64);
        }
        let way = direction(sends, self.streams.client);
        Pace::of_bits(Some(way), rate, bytes, seconds, length)
    }

    fn layers(&self) -> Layers {
        let (streams, length) = (self.streams, self.streams.length() as u64);
        Layers::of_datagrams(length, streams.ipv6, streams.mtu)
    }

    /// Returns a text about counts of both ends that contradict each other.
    fn disagreement(&self) -> Option<String> {
        let remote = self.sides.remote.as_ref()?;
        self.streams.results().iter().find_map(|local| {
            let id = local.id;
            let theirs = remote.stream(id)?;
            let sent = matches!(local.detail, Some(StreamDetail::Sender(_)));
            let (sent, received) = if sent { (local, theirs) } else { (theirs, local) };
            (received.packets > sent.packets || received.errors.is_some_and(|lost| lost > sent.packets))
                .then(|| {
                    format!(
                        "the ends disagree: of {} datagrams sent on stream {id}, number {} arrived and {} are missing",
                        sent.packets,
                        received.packets,
                        received.errors.unwrap_or(0)
                    )
                })
        })
    }

    fn add_figures(&self, sends: bool, flows: &[(u32, StreamView)], figures: &mut Vec<Figure>) {
        let way = direction(sends, self.streams.client);
        let all = flows.iter().map(|(_, flow)| *flow);
        let Some(whole) = all.reduce(StreamView::with) else {
            return;
        };
        let mut add = |figure: Figure| figures.push(figure.toward(way));
        whole
            .figures(Some(self.layers()))
            .into_iter()
            .for_each(&mut add);
        self.sides.cpu(sends).into_iter().for_each(&mut add);
        if flows.len() > 1 {
            for (id, flow) in flows {
                let figures = flow.figures(None).into_iter();
                figures.map(|figure| figure.stream(*id)).for_each(&mut add);
            }
        }
    }

    /// Returns the start of the first interval that counts, in seconds.
    fn omitted_s(&self) -> f64 {
        let readings = &self.streams.readings;
        let omitted = readings
            .iter()
            .take_while(|r| r.ending != ReadingKind::Counted);
        let began = omitted.last().map(|reading| reading.at);
        began.map_or(0.0, |at| seconds(self.streams.started, at))
    }

    fn add_samples(&self, sends: bool, samples: &mut Vec<Sample>) {
        let way = direction(sends, self.streams.client);
        let mut before: Option<&IntervalReading> = None;
        let mut index = 0;
        let several = self.flows(sends).len() > 1;
        for reading in &self.streams.readings {
            let began = before.map_or(self.streams.started, |before| before.at);
            if reading.ending == ReadingKind::Counted {
                index += 1;
                let at_s = seconds(self.streams.started, reading.at);
                let lasted = seconds(began, reading.at);
                let sample = |(metric, value)| Sample::new(at_s, metric, index, value).toward(way);
                if let Some(all) = IntervalDelta::between(before, reading, sends, |_| true) {
                    let all = values(all, sends, lasted, Some(self.layers()));
                    samples.extend(all.into_iter().map(sample));
                }
                let streams = self.streams.results().into_iter().enumerate();
                for (place, stream) in streams.filter(|_| several) {
                    let delta = IntervalDelta::between(before, reading, sends, |at| at == place);
                    let own = delta.map(|delta| values(delta, sends, lasted, None));
                    samples.extend(
                        own.into_iter()
                            .flatten()
                            .map(|value| sample(value).stream(stream.id)),
                    );
                }
            }
            before = Some(reading);
        }
        if sends {
            samples.extend(self.arrivals(way));
        }
    }

    /// Returns samples of what the other end received in each interval, as it reports.
    fn arrivals(&self, way: Direction) -> Vec<Sample> {
        let streams = self.sides.remote.iter().flat_map(|remote| &remote.streams);
        let each: Vec<&[[u64; 2]]> = streams.map(|one| one.arrivals.as_slice()).collect();
        let mut at_s = self.omitted_s();
        let mut samples = Vec::new();
        for (index, (lasted_s, bytes)) in (1..).zip(together(&each)) {
            at_s += lasted_s;
            let rates = at_layers(bytes * 8.0 / lasted_s, Some(self.layers()));
            let all = rates.into_iter().chain([(Metric::ReceivedBytes, bytes)]);
            let sample = |(metric, value)| Sample::new(at_s, metric, index, value).toward(way);
            samples.extend(all.map(sample));
        }
        samples
    }

    fn add_facts(&self, measurement: &mut Measurement) {
        let mut fact = |name: &str, text: &str| {
            measurement.facts.insert(name.to_owned(), text.to_owned());
        };
        fact(
            "goodput",
            "payload bytes (L7) after the first arrival, over the time to the last one, or over the sending time if that is \
             longer; if iperf3 receives, its bytes over the sending time",
        );
        fact(
            "loss",
            "of the network, without copies and this host's drops; up to the last datagram sent if farwire receives; as iperf3 \
             counts if iperf3 receives: copies hide losses, and datagrams after the end are in neither count",
        );
        fact(
            "interval",
            "95 %. Loss: of the probability that a datagram is lost, from the observed bursts of losses, widened by losses that \
             may belong to the host or to the network; if iperf3 receives, from 0, because iperf3 does not report what its own \
             socket dropped. Goodput: of the network's throughput in this time, without sampling error: twice the first \
             arrival for the edges, the sender's whole time for the least, and datagrams that the host dropped or that arrived \
             twice; if iperf3 receives, between its bytes over its own time and over the sending time",
        );
        fact(
            "jitter",
            "RFC 3550, from the kernel's receive time stamps, one step per received train: datagrams that arrived together \
             share a time stamp; the largest over all streams",
        );
        fact(
            "pacing",
            "at the sender, from one train to the next; late means more than 50 us; the sender makes up for a delay within \
             about 50 ms by gaps that are 2 % to 50 % shorter; it skips what is 100 ms late",
        );
        let packets = match (self.layers().packets(), self.streams.mtu) {
            (2.., Some(mtu)) => format!(
                "{} IP fragments (MTU {mtu}), all of which must arrive",
                self.layers().packets()
            ),
            _ => "one packet".to_owned(),
        };
        fact(
            "layers",
            &format!(
                "computed from goodput with {} bytes of payload per datagram, each in {packets}; L2 without FCS, L1 with FCS, \
                 preamble and gap",
                self.streams.length()
            ),
        );
        fact(
            "cpu",
            "percent of one CPU: the data threads of a farwire; the whole process of an iperf3",
        );
    }
}

/// Returns the length in seconds of each interval, and the payload bytes that arrived in it on all streams, whose intervals
/// are the same.
fn together(streams: &[&[[u64; 2]]]) -> Vec<(f64, f64)> {
    let count = streams.iter().map(|one| one.len()).max().unwrap_or(0);
    let all = (0..count).map(|place| {
        let of_streams = streams.iter().filter_map(|one| one.get(place));
        of_streams.fold((0.0_f64, 0.0), |(lasted_s, bytes), [lasts_us, more]| {
            let lasts_s = *lasts_us as f64 / 1e6;
            (lasted_s.max(lasts_s), bytes + *more as f64)
        })
    });
    all.filter(|(lasted_s, _)| *lasted_s > 0.0).collect()
}

/// Returns a text about the delays of a direction's sender, if that is farwire.
fn delays(flows: &[(u32, StreamView)]) -> Option<String> {
    let mut all = flows.iter().map(|(_, flow)| flow.pacing);
    let first = all.next()??;
    let pacing = all.try_fold(first, |sum, other| Some(sum.with(&other?)))?;
    Some(format!(
        "{:.3} ms of the schedule skipped, over all streams; {} sends repeated because of full buffers",
        pacing.given_up_ns as f64 / 1e6,
        pacing.held_up
    ))
}

/// Returns the values that one interval added, for its samples.
fn values(
    added: IntervalDelta,
    sends: bool,
    lasted: f64,
    layers: Option<Layers>,
) -> Vec<(Metric, f64)> {
    let count = |metric, count: i64| (metric, count as f64);
    let rate = added.bytes as f64 * 8.0 / lasted;
    if sends {
        return vec![
            (Metric::SentRateBitPerS, rate),
            count(Metric::SentBytes, added.bytes),
            count(Metric::SentPackets, added.packets),
        ];
    }
    let mut values = at_layers(rate, layers);
    values.extend([
        count(Metric::ReceivedBytes, added.bytes),
        count(Metric::ReceivedPackets, added.packets),
        count(Metric::LostPackets, added.missing - added.host_dropped),
        count(Metric::HostDroppedPackets, added.host_dropped),
        count(Metric::DuplicatePackets, added.duplicates),
        count(Metric::ReorderedPackets, added.reordered),
        (Metric::JitterMs, added.jitter_ns / 1e6),
    ]);
    values
}

/// Returns the time from a stream's first departure to its last, and the duration of the test, in seconds, as the
/// sender reports them.
fn sending_s(sender: &StreamResults) -> [f64; 2] {
    let active = match sender.detail {
        Some(StreamDetail::Sender(detail)) => detail.active_ns as f64 / 1e9,
        _ => 0.0,
    };
    [active, sender.seconds.unwrap_or(active)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_of_several_streams_add_up() {
        let first = [[100_000, 500], [100_000, 0], [0, 7]];
        let second = [[100_000, 250]];
        let found = together(&[&first, &second, &[]]);
        assert_eq!(found, [(0.1, 750.0), (0.1, 0.0)]);
        assert!(together(&[]).is_empty());
    }
}
