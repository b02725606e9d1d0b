//! The results of a TCP test as a measurement.

use std::time::Duration;

use super::super::detail::StreamDetail;
use super::super::messages::{TestResults, direction};
use super::super::plan::{Iperf3Test, Until};
use super::{
    KernelCounts, StreamInterval, StreamTotal, TcpInterval, TcpStreams, block, cwnd_bytes,
};
use crate::measured::{at_layers, mean, rates, total};
use record::{Figure, Measurement, Metric, Sample, Statistic};
use stats::layers::Layers;

/// The data from which a TCP test's report is made.
#[derive(Debug)]
struct TcpReport<'a> {
    plan: &'a Iperf3Test,
    sides: &'a TestResults,
    intervals: &'a [TcpInterval],
    /// The counts of each stream, in the order of opening.
    totals: Vec<StreamTotal>,
    /// Whether this end is the client.
    client: bool,
    /// Whether the streams use IPv6.
    ipv6: bool,
}

/// The counts of all streams of one direction together, or of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct DirectionCounts {
    /// Payload bytes that the sender wrote and the duration in seconds, or `None` if the far end did not report them.
    sent: Option<(u64, f64)>,
    /// Payload bytes that the receiver read and the duration in seconds.
    received: Option<(u64, f64)>,
    /// Retransmitted segments.
    retransmits: Option<u64>,
    /// The counts of this end's kernel.
    carried: KernelCounts,
    /// The part of the receiver's time, in seconds, in which the network may have had nothing to carry. It lasts until
    /// the first byte arrived; if the receiver does not report that time, it also includes the least round-trip time.
    idle: f64,
}

/// The segments that TCP sends before the first acknowledgement (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// The most times that a window can double; a rate that needs more is not one that was measured.
const MOST_DOUBLINGS: f64 = 30.0;
/// The share of a test's time from which on a slow start in it is noted.
const NOTED_SHARE: f64 = 0.05;

/// Returns the measurement of a test over `streams` at this end, with the results of the other end.
pub(crate) fn measurement(
    plan: &Iperf3Test,
    streams: &TcpStreams,
    sides: &TestResults,
    client: bool,
) -> Measurement {
    TcpReport::new(plan, streams, sides, client).measurement()
}

/// Returns the bytes that the far end sent on a stream if it reports `reported` and `received` arrived, or `None` if these contradict
/// each other. iperf3 counts a block of `block` bytes after it was written, and from 3.16 on another thread reports the count meanwhile.
fn sent_by_far_end(reported: u64, received: u64, block: u32) -> Option<u64> {
    let at_most = reported.saturating_add(block.into());
    (received <= at_most).then(|| reported.max(received))
}

impl DirectionCounts {
    /// Returns the receiver's bytes over its time, in bits per second.
    fn goodput(&self) -> Option<f64> {
        let (bytes, seconds) = self.received?;
        (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
    }

    /// Returns the sum with other counts. Bytes are added, the longer time counts, and a sum with an unknown part is
    /// unknown.
    fn with(self, other: Self) -> Self {
        let add = |a: Option<(u64, f64)>, b: Option<(u64, f64)>| {
            let ((a, lasted_a), (b, lasted_b)) = a.zip(b)?;
            Some((a.saturating_add(b), f64::max(lasted_a, lasted_b)))
        };
        let retransmits = self.retransmits.zip(other.retransmits);
        let most = self.carried.most.zip(other.carried.most);
        Self {
            sent: add(self.sent, other.sent),
            received: add(self.received, other.received),
            retransmits: retransmits.map(|(a, b)| a.saturating_add(b)),
            carried: KernelCounts {
                most: most.map(|(a, b)| a.saturating_add(b)),
                before: self.carried.before.saturating_add(other.carried.before),
                waited: self.carried.waited.min(other.carried.waited),
            },
            idle: self.idle.min(other.idle),
        }
    }

    /// Returns the bounds of the network's goodput if segments carry `payload` bytes. The lower bound is everything
    /// that the receiver read, without the part that may have arrived before the counted time, over all of that time.
    /// The upper bound is everything that this end's kernel sent, or that it received and the other end retransmitted,
    /// over the part of the time in which the network had something to carry. `None` means that an end does not report
    /// its part.
    fn bounds(&self, sends: bool, payload: Option<f64>) -> Option<[f64; 2]> {
        let ((written, _), (received, seconds)) = self.sent.zip(self.received)?;
        let again = || match self.retransmits? {
            0 => Some(0.0),
            segments => Some(segments as f64 * payload?),
        };
        let most = match self.carried.most {
            // The kernel's count includes retransmissions.
            Some(sent) if sends => sent as f64,
            Some(arrived) => arrived.min(written) as f64 + again()?,
            None => written as f64 + again()?,
        };
        let least = received.saturating_sub(self.carried.before);
        let busy = seconds - self.idle;
        let most = most.max(received as f64) * 8.0 / busy;
        (busy > 0.0).then(|| [least as f64 * 8.0 / seconds, most])
    }
}

impl<'a> TcpReport<'a> {
    fn new(
        plan: &'a Iperf3Test,
        streams: &'a TcpStreams,
        sides: &'a TestResults,
        client: bool,
    ) -> Self {
        Self {
            plan,
            sides,
            intervals: &streams.intervals,
            totals: streams.totals(),
            client,
            ipv6: streams.ipv6,
        }
    }

    /// Returns the samples, figures and facts.
    fn measurement(&self) -> Measurement {
        let mut counted = self.intervals.iter().filter(|interval| !interval.omitted);
        let mut measurement = Measurement {
            failure: self.disagreement(),
            omitted_s: counted.next().map_or(0.0, |interval| interval.start_s),
            ..Measurement::default()
        };
        for sends in [true, false] {
            if self.of(sends).next().is_some() {
                self.add_samples(sends, &mut measurement.samples);
                self.add_figures(sends, &mut measurement.figures);
            }
        }
        measurement.samples.sort_by_key(|sample| sample.index);
        self.add_facts(&mut measurement);
        measurement
    }

    /// Returns the streams that this end sends, or those that it receives.
    fn of(&self, sends: bool) -> impl Iterator<Item = &StreamTotal> {
        let totals = self.totals.iter();
        totals.filter(move |total| total.spec.sends == sends)
    }

    /// Returns the counts of both ends for one stream.
    fn stream(&self, total: &StreamTotal) -> DirectionCounts {
        let local = Some((total.bytes, total.seconds));
        let remote = self
            .sides
            .remote
            .as_ref()
            .and_then(|results| results.stream(total.spec.id));
        // iperf3 before 3.2 does not report the duration.
        let theirs = remote.map(|r| (r.bytes, r.seconds.unwrap_or(total.seconds)));
        if total.spec.sends {
            let received = match self.plan.until {
                Until::For(_) => theirs,
                // All bytes were acknowledged by then, however long the receiver waits for the message that they are
                // all.
                Until::Bytes(_) => theirs.map(|(bytes, time)| (bytes, time.min(total.seconds))),
            };
            let waited = match remote.and_then(|results| results.detail) {
                Some(StreamDetail::Tcp(detail)) => Duration::from_nanos(detail.waited_ns),
                _ => total.carried.waited + total.info.min_rtt.unwrap_or_default(),
            };
            DirectionCounts {
                idle: waited.as_secs_f64(),
                sent: local,
                received,
                retransmits: Some(total.retransmits.into()),
                carried: total.carried,
            }
        } else {
            let sent = theirs.map(|(bytes, time)| {
                let sent = sent_by_far_end(bytes, total.bytes, block(self.plan));
                (sent.unwrap_or(bytes), time)
            });
            DirectionCounts {
                idle: total.carried.waited.as_secs_f64(),
                sent,
                received: local,
                retransmits: remote.and_then(|results| results.retransmits),
                carried: total.carried,
            }
        }
    }

    /// Returns the counts of both ends for a direction.
    fn sum(&self, sends: bool) -> DirectionCounts {
        let streams = self.of(sends).map(|total| self.stream(total));
        streams.reduce(DirectionCounts::with).unwrap_or_default()
    }

    /// Returns the sizes of a stream's packets at lower layers, or `None` before the first segment.
    fn layers(&self, sends: bool) -> Option<Layers> {
        let totals: Vec<_> = self.of(sends).collect();
        let timestamps = totals.iter().any(|total| total.info.timestamps);
        let segments: Vec<f64> = totals.iter().filter_map(|total| total.segment).collect();
        let mean = segments.iter().sum::<f64>() / segments.len().max(1) as f64;
        (mean > 0.0).then(|| Layers::new(mean, self.ipv6, timestamps))
    }

    /// Returns a text about counts of both ends that contradict each other.
    fn disagreement(&self) -> Option<String> {
        let remote = self.sides.remote.as_ref()?;
        self.totals.iter().find_map(|total| {
            let id = total.spec.id;
            let theirs = remote.stream(id)?.bytes;
            // After an omitted start, the two ends start counting at different moments, one way apart.
            if total.spec.sends && theirs > total.bytes_with_omitted {
                return Some(format!(
                    "the ends disagree: the far end reports {theirs} bytes received on stream {id}, but {} were sent",
                    total.bytes_with_omitted
                ));
            }
            let is_less = sent_by_far_end(theirs, total.bytes, block(self.plan)).is_none();
            (!total.spec.sends && self.plan.omit.is_zero() && is_less).then(|| {
                format!(
                    "the ends disagree: the far end reports {theirs} bytes sent on stream {id}, but {} were received",
                    total.bytes
                )
            })
        })
    }

    fn add_figures(&self, sends: bool, figures: &mut Vec<Figure>) {
        let way = direction(sends, self.client);
        let sum = self.sum(sends);
        let elapsed = sum
            .received
            .or(sum.sent)
            .map(|(_, s)| Figure::new(Metric::ElapsedS, Statistic::Total, s));
        let all = self
            .rates(sends, &sum)
            .into_iter()
            .chain(totals(&sum))
            .chain(elapsed)
            .chain(self.sides.cpu(sends))
            .chain(self.of(sends).flat_map(|total| self.stream_figures(total)));
        figures.extend(all.map(|figure| figure.toward(way)));
    }

    /// Returns the goodput and the rate on each layer as figures.
    fn rates(&self, sends: bool, sum: &DirectionCounts) -> Vec<Figure> {
        let goodput = sum.goodput();
        let layers = self.layers(sends);
        let bounds = sum.bounds(sends, layers.map(|layers| layers.payload));
        let of = |goodput| rates(goodput, bounds, layers);
        goodput.into_iter().flat_map(of).collect()
    }

    /// Returns the figures that exist only for single streams. One of several streams also has the figures of the sum.
    fn stream_figures(&self, total: &StreamTotal) -> Vec<Figure> {
        let mut figures = Vec::new();
        if total.spec.sends {
            figures = sender_figures(total);
        }
        if self.plan.parallel == 1 {
            return figures;
        }
        let stream = self.stream(total);
        let goodput = stream.goodput();
        figures.extend(goodput.map(|rate| mean(Metric::GoodputBitPerS, rate)));
        figures.extend(totals(&stream));
        let figures = figures.into_iter();
        figures.map(|figure| figure.stream(total.spec.id)).collect()
    }

    fn add_samples(&self, sends: bool, samples: &mut Vec<Sample>) {
        let way = direction(sends, self.client);
        let layers = self.layers(sends);
        let counted = self.intervals.iter().filter(|interval| !interval.omitted);
        for (interval, index) in counted.zip(1..) {
            let lasted = interval.end_s - interval.start_s;
            let sample =
                |metric, value| Sample::new(interval.end_s, metric, index, value).toward(way);
            let streams = || {
                let streams = interval.streams.iter();
                streams.filter(|stream| stream.spec.sends == sends)
            };
            let arrived: u64 = streams().map(|stream| stream.arrived).sum();
            let goodput = arrived as f64 * 8.0 / lasted;
            let rates = at_layers(goodput, layers).into_iter();
            samples.extend(rates.map(|(metric, rate)| sample(metric, rate)));
            let cpu = if sends {
                Metric::SenderCpuPercent
            } else {
                Metric::ReceiverCpuPercent
            };
            samples.push(sample(cpu, interval.cpu_percent));
            for stream in streams() {
                let id = Some(stream.spec.id).filter(|_| self.plan.parallel > 1);
                let goodput = stream.arrived as f64 * 8.0 / lasted;
                let own = id.map(|_| (Metric::GoodputBitPerS, goodput));
                let values = stream_values(stream).into_iter().chain(own);
                samples.extend(values.map(|(metric, value)| Sample {
                    stream: id,
                    ..sample(metric, value)
                }));
            }
        }
    }

    fn add_facts(&self, measurement: &mut Measurement) {
        let mut fact = |name: &str, text: &str| {
            measurement.facts.insert(name.to_owned(), text.to_owned());
        };
        let window = match self.plan.until {
            Until::For(_) => "until the client's message that the test is over",
            Until::Bytes(_) => "until the last byte",
        };
        fact(
            "goodput",
            &format!(
                "payload bytes (L7) that the receiver read, over its time {window}; in the intervals of a sender, the \
                 acknowledged bytes"
            ),
        );
        fact(
            "interval",
            "of the network's throughput in this time, without sampling error: at least all that the receiver read, at most all \
             that the kernel of this end sent or received until then, including retransmissions (TCP_INFO), over the time from \
             the first byte on; data in flight at the end of an omitted start may belong to either part",
        );
        if let Some(layers) = self.layers(true).or(self.layers(false)) {
            fact(
                "layers",
                &format!(
                    "computed from goodput with {:.1} bytes of payload per segment (TCP_INFO of this end) and {} bytes of IPv{} \
                     and TCP headers; L2 without FCS, L1 with FCS, preamble and gap; retransmissions and acknowledgements are \
                     not included",
                    layers.payload,
                    layers.headers(),
                    if self.ipv6 { 6 } else { 4 },
                ),
            );
        }
        fact(
            "cpu",
            "percent of one CPU: the data threads of this end; the whole process of an iperf3",
        );
        fact(
            "receiving",
            if self.plan.rx_copy {
                "received data are copied to the memory of the program, at both ends"
            } else {
                "the kernel discards received data of this end without copying them (MSG_TRUNC)"
            },
        );
        fact(
            "rtt",
            "the kernel's smoothed round-trip time (TCP_INFO) at the ends of intervals",
        );
        let remote = self.sides.remote.as_ref();
        let ends = [
            (self.client, Some(&self.sides.local)),
            (!self.client, remote),
        ];
        for (client, results) in ends {
            if let Some(name) = results.and_then(|results| results.congestion_used.as_ref()) {
                let end = if client { "client" } else { "server" };
                fact(&format!("congestion control of the {end}"), name);
            }
        }
        let slow_starts = [true, false].into_iter();
        let slow_starts: Vec<String> = slow_starts
            .filter_map(|sends| self.slow_start(sends))
            .collect();
        if !slow_starts.is_empty() {
            fact("slow start", &slow_starts.join("; "));
        }
    }

    /// Returns how much of the counted time of a direction was slow start, if that is a noticeable part.
    fn slow_start(&self, sends: bool) -> Option<String> {
        let sum = self.sum(sends);
        let (_, seconds) = sum.received?;
        let least = self.of(sends).filter_map(|total| total.info.min_rtt);
        let rtt_s = least.min()?.as_secs_f64();
        let each = sum.goodput()? / self.of(sends).count() as f64;
        let slow_s = slow_start_s(each, rtt_s, self.layers(sends)?.payload);
        let words = slow_start_in_words(slow_s, self.plan.omit, seconds)?;
        Some(format!("{}: {words}", direction(sends, self.client).name()))
    }
}

/// Returns the time in seconds in which the window of a connection doubles with each round trip until it carries this rate of
/// payload in segments of `payload` bytes.
fn slow_start_s(bit_per_s: f64, rtt_s: f64, payload: f64) -> f64 {
    let window = bit_per_s * rtt_s / 8.0;
    let doublings = (window / (INITIAL_WINDOW * payload)).log2();
    rtt_s * doublings.clamp(0.0, MOST_DOUBLINGS)
}

/// Returns a note on a slow start of which more than [`NOTED_SHARE`] of the counted time remain after the omitted start.
fn slow_start_in_words(slow_s: f64, omit: Duration, counted_s: f64) -> Option<String> {
    let counted_slow_s = (slow_s - omit.as_secs_f64()).min(counted_s);
    (counted_slow_s > NOTED_SHARE * counted_s).then(|| {
        format!(
            "about {counted_slow_s:.1} s of the {counted_s:.1} s that the goodput covers; -O {:.0} leaves it out, and a longer test (-t) makes it a \
             smaller part",
            slow_s.ceil()
        )
    })
}

/// Returns the counts of both ends as figures, if they are known.
fn totals(sum: &DirectionCounts) -> Vec<Figure> {
    let counts = [
        (Metric::SentBytes, sum.sent.map(|(bytes, _)| bytes)),
        (Metric::ReceivedBytes, sum.received.map(|(bytes, _)| bytes)),
        (Metric::RetransmittedPackets, sum.retransmits),
    ];
    let counts = counts.into_iter();
    counts
        .filter_map(|(metric, count)| Some(total(metric, count?)))
        .collect()
}

/// Returns the figures that only the kernel of the sender knows.
fn sender_figures(total: &StreamTotal) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |metric, statistic, value| figures.push(Figure::new(metric, statistic, value));
    if let Some(least) = total.info.min_rtt {
        add(Metric::TcpRttMs, Statistic::Min, least.as_secs_f64() * 1e3);
    }
    if let Some([mean, most]) = total.rtt {
        add(Metric::TcpRttMs, Statistic::Mean, mean.as_secs_f64() * 1e3);
        add(Metric::TcpRttMs, Statistic::Max, most.as_secs_f64() * 1e3);
        let most_cwnd = total.most_cwnd as f64;
        add(Metric::CongestionWindowBytes, Statistic::Max, most_cwnd);
    }
    let busy = total.limited.busy.as_secs_f64();
    if busy > 0.0 {
        let share = |part: Duration| 100.0 * part.as_secs_f64() / busy;
        let receiver = share(total.limited.by_receiver);
        let buffer = share(total.limited.by_send_buffer);
        add(Metric::ReceiverLimitedPercent, Statistic::Mean, receiver);
        add(Metric::SendBufferLimitedPercent, Statistic::Mean, buffer);
    }
    figures
}

fn stream_values(stream: &StreamInterval) -> Vec<(Metric, f64)> {
    let bytes = stream.bytes as f64;
    if !stream.spec.sends {
        let rtt = Some(stream.info.rcv_rtt).filter(|rtt| !rtt.is_zero());
        let rtt = rtt.map(|rtt| (Metric::TcpReceiverRttMs, rtt.as_secs_f64() * 1e3));
        return [(Metric::ReceivedBytes, bytes)]
            .into_iter()
            .chain(rtt)
            .collect();
    }
    let cwnd = cwnd_bytes(&stream.info) as f64;
    vec![
        (Metric::SentBytes, bytes),
        (Metric::RetransmittedPackets, stream.retransmits.into()),
        (Metric::TcpRttMs, stream.info.rtt.as_secs_f64() * 1e3),
        (Metric::CongestionWindowBytes, cwnd),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_start_is_noted_if_the_test_is_short_for_the_round_trip() {
        // 1 MB in flight are 69 initial windows of 14,480 bytes.
        let slow_s = slow_start_s(100e6, 0.08, 1448.0);
        assert!((slow_s - 0.08 * 6.11).abs() < 1e-3, "{slow_s}");
        assert_eq!(slow_start_s(10e6, 0.01, 1448.0), 0.0);
        assert_eq!(slow_start_s(0.0, 0.01, 1448.0), 0.0);
        let note =
            |omit_s, counted_s| slow_start_in_words(slow_s, Duration::from_secs(omit_s), counted_s);
        let words = note(0, 3.0).unwrap();
        let start = "about 0.5 s of the 3.0 s that the goodput covers; -O 1 leaves it out";
        assert!(words.starts_with(start), "{words}");
        assert_eq!(note(0, 10.0), None);
        assert_eq!(note(1, 3.0), None);
    }

    #[test]
    fn a_far_end_may_not_have_counted_its_last_block() {
        assert_eq!(
            sent_by_far_end(618_921_984, 618_790_912, 131_072),
            Some(618_921_984)
        );
        assert_eq!(
            sent_by_far_end(618_790_912, 618_921_984, 131_072),
            Some(618_921_984)
        );
        assert_eq!(sent_by_far_end(618_790_912, 618_921_985, 131_072), None);
        assert_eq!(sent_by_far_end(u64::MAX, 1, 131_072), Some(u64::MAX));
    }

    #[test]
    fn sums_of_a_peer_s_counts_saturate() {
        let absurd = DirectionCounts {
            sent: Some((u64::MAX, 1.0)),
            received: Some((u64::MAX, 2.0)),
            retransmits: Some(u64::MAX),
            carried: KernelCounts {
                most: Some(u64::MAX),
                ..KernelCounts::default()
            },
            idle: 0.0,
        };
        let sum = absurd.with(absurd);
        assert_eq!(sum.sent, absurd.sent);
        assert_eq!(sum.received, absurd.received);
        assert_eq!(sum.retransmits, absurd.retransmits);
    }

    /// Returns the counts of a test in which 10 MB were written and 5 MB were read; 4 MB are still in the sender's
    /// socket.
    fn sum(carried: KernelCounts) -> DirectionCounts {
        DirectionCounts {
            sent: Some((10_000_000, 8.0)),
            received: Some((5_000_000, 8.0)),
            retransmits: Some(100),
            carried,
            idle: 0.0,
        }
    }

    #[test]
    fn unsent_data_is_not_in_the_bounds() {
        let sent = sum(KernelCounts {
            most: Some(6_000_000),
            ..KernelCounts::default()
        });
        assert_eq!(sent.bounds(true, Some(1000.0)), Some([5e6, 6e6]));
        // At the receiver, the bound is the received data and the 100 segments that may have arrived twice.
        let arrived = sum(KernelCounts {
            most: Some(5_200_000),
            ..KernelCounts::default()
        });
        assert_eq!(arrived.bounds(false, Some(1000.0)), Some([5e6, 5.3e6]));
        // If the kernel reports nothing, the bound is the written and the retransmitted data.
        let silent = sum(KernelCounts::default());
        assert_eq!(silent.bounds(true, Some(1000.0)), Some([5e6, 10.1e6]));
    }

    #[test]
    fn the_upper_bound_excludes_idle_time() {
        let late = DirectionCounts {
            idle: 4.0,
            ..sum(KernelCounts {
                most: Some(6_000_000),
                ..KernelCounts::default()
            })
        };
        assert_eq!(late.bounds(true, None), Some([5e6, 12e6]));
        let never = DirectionCounts { idle: 8.0, ..late };
        assert_eq!(never.bounds(true, None), None);
    }

    #[test]
    fn data_in_flight_at_the_start_widens_the_bounds() {
        let cut = sum(KernelCounts {
            most: Some(6_000_000),
            before: 300_000,
            ..KernelCounts::default()
        });
        assert_eq!(cut.bounds(true, None), Some([4.7e6, 6e6]));
    }
}
