//! The results of both ends for a stream, combined, and the figures computed from them.

use crate::iperf3::detail::{ReceiverDetail, SenderDetail};
use crate::iperf3::messages::StreamResults;
use crate::measured::{mean, rates, total};
use record::{Figure, Metric, Statistic};
use stats::layers::Layers;
use stats::losses::Losses;
use stats::proportion;

/// The results of both ends for one stream, without the omitted start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamView {
    /// Payload bytes sent, and the duration in seconds.
    pub(super) sent: Option<(u64, f64)>,
    /// Datagrams sent.
    pub(super) sent_packets: Option<u64>,
    pub(super) pacing: Option<SenderDetail>,
    pub(super) received: Option<ReceiverView>,
}

/// The datagrams of a stream, or of several, without the omitted start.
#[derive(Clone, Copy, Debug, Default)]
struct ExpectedDatagrams {
    /// Datagrams that should have arrived.
    expected: u64,
    /// Of these, the datagrams that did not arrive, whoever dropped them.
    missing: u64,
    /// Datagrams that the receiving end does not know about, because nothing arrived after them.
    unseen: u64,
}

/// The results of the receiving end for a stream, or for several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiverView {
    bytes: u64,
    /// The datagrams, or `None` if the receiving end does not report how many of them are in the omitted start.
    datagrams: Option<ExpectedDatagrams>,
    jitter_ms: f64,
    /// Goodput in bits per second, and its lower and upper bound.
    goodput: f64,
    bounds: [f64; 2],
    /// The details that iperf3 does not report.
    detail: Option<ReceiverDetail>,
}

impl ReceiverView {
    /// Returns the results of a receiving farwire. The sender reports two times in seconds: from its first to its last
    /// departure, and the whole test.
    pub(super) fn from_farwire(
        detail: ReceiverDetail,
        local: &StreamResults,
        [active_s, test_s]: [f64; 2],
    ) -> Self {
        let [omitted_missing, omitted] = local.omitted.unwrap_or_default();
        let [bytes, span_ns] = detail.after_first;
        // A path that fell silent before the sender did carried nothing in the rest of the sender's time.
        let span = (span_ns as f64 / 1e9).max(active_s);
        let goodput = rate(bytes, span);
        // The data of the first arrival, and data that would arrive just after the last one, may each weigh as much
        // again.
        let edges = rate(local.bytes.saturating_sub(bytes).saturating_mul(2), span);
        // The network carried these datagrams, but nobody read them.
        let unread_packets = detail
            .host_dropped
            .saturating_add(detail.unsure)
            .saturating_add(detail.duplicates);
        let unread = rate(bytes, span) * unread_packets as f64 / detail.received.max(1) as f64;
        Self {
            bytes: local.bytes,
            datagrams: Some(ExpectedDatagrams {
                expected: local.packets.saturating_sub(omitted),
                missing: local.errors.unwrap_or(0).saturating_sub(omitted_missing),
                unseen: 0,
            }),
            jitter_ms: local.jitter_s * 1e3,
            goodput,
            bounds: [
                (rate(bytes, span.max(test_s)) - edges).max(0.0),
                goodput + edges + unread,
            ],
            detail: Some(detail),
        }
    }

    /// Returns the results of a receiving iperf3, to which `sent` datagrams were sent within `active_s`. `omits` tells
    /// whether the test omits a start.
    ///
    /// iperf3 3.12 and 3.13 count losses from the very start, and do not report those in the omitted start.
    pub(super) fn from_iperf3(
        remote: &StreamResults,
        sent: u64,
        active_s: f64,
        omits: bool,
    ) -> Option<Self> {
        let errors = remote.errors?;
        let omitted = remote.omitted.or((!omits).then_some([0; 2]));
        let rates = [active_s, remote.seconds.unwrap_or(active_s)].map(|s| rate(remote.bytes, s));
        // The network may have carried everything that iperf3 counts as lost, since iperf3 does not report the drops of
        // its full socket.
        let arrived = remote.packets.saturating_sub(errors);
        let carried = match arrived {
            0 => 1.0,
            arrived => sent.max(remote.packets) as f64 / arrived as f64,
        };
        Some(Self {
            bytes: remote.bytes,
            datagrams: omitted.map(|[omitted_missing, omitted]| ExpectedDatagrams {
                expected: remote.packets.saturating_sub(omitted),
                missing: errors.saturating_sub(omitted_missing),
                unseen: sent.saturating_sub(remote.packets),
            }),
            jitter_ms: remote.jitter_s * 1e3,
            goodput: rates[0],
            bounds: [rates[0].min(rates[1]), rates[0].max(rates[1]) * carried],
            detail: None,
        })
    }

    /// Returns whether the loss is known.
    pub(super) fn knows_loss(&self) -> bool {
        self.datagrams.is_some()
    }

    pub(super) fn with(self, other: Self) -> Self {
        let detail = self.detail.zip(other.detail);
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            datagrams: self.datagrams.zip(other.datagrams).map(|(a, b)| a.with(b)),
            jitter_ms: self.jitter_ms.max(other.jitter_ms),
            goodput: self.goodput + other.goodput,
            bounds: [0, 1].map(|i| self.bounds[i] + other.bounds[i]),
            detail: detail.map(|(a, b)| a.with(&b)),
        }
    }

    /// Returns the number of datagrams that had a wrong checksum or found a full socket, which nothing distinguishes.
    pub(super) fn unsure(&self) -> u64 {
        self.detail.map_or(0, |detail| detail.unsure)
    }

    fn host_dropped(&self) -> u64 {
        self.detail.map_or(0, |detail| detail.host_dropped)
    }

    /// Returns how many of `datagrams` the network lost.
    fn lost(&self, datagrams: ExpectedDatagrams) -> u64 {
        datagrams.missing.saturating_sub(self.host_dropped())
    }

    /// Returns the network's loss in percent with its 95 % interval, or `None` if no datagram should have arrived.
    ///
    /// Each drop of the host was at least one datagram, and the datagrams after the last arrival may have been lost.
    /// iperf3 reports neither its socket's drops nor the number of loss bursts, so that its losses may all be
    /// its host's.
    fn loss(&self, datagrams: ExpectedDatagrams) -> Option<Figure> {
        let ExpectedDatagrams {
            expected,
            missing,
            unseen,
        } = datagrams;
        let (drops, bursts) = match self.detail {
            Some(detail) => (detail.drops, detail.bursts),
            None => (0, missing),
        };
        let lost = self.lost(datagrams);
        let least = match self.detail {
            Some(_) => lost.saturating_sub(self.unsure()),
            None => 0,
        };
        let surely_host = drops.min(self.host_dropped());
        let most = missing.saturating_sub(surely_host).saturating_add(unseen);
        let counts = |lost: u64, of: u64| Losses {
            of,
            lost,
            bursts: bursts.min(lost),
        };
        let [low, _] = counts(least, expected).interval()?;
        let [_, high] = counts(most, expected.saturating_add(unseen)).interval()?;
        let percent = counts(lost, expected).percent()?;
        Some(Figure {
            interval: Some([100.0 * low, 100.0 * high]),
            losses: self.detail.map(|_| counts(lost, expected)),
            ..mean(Metric::LostPercent, percent)
        })
    }
}

impl ExpectedDatagrams {
    fn with(self, other: Self) -> Self {
        Self {
            expected: self.expected.saturating_add(other.expected),
            missing: self.missing.saturating_add(other.missing),
            unseen: self.unseen.saturating_add(other.unseen),
        }
    }
}

impl StreamView {
    pub(super) fn with(self, other: Self) -> Self {
        let sent = self.sent.zip(other.sent);
        let packets = self.sent_packets.zip(other.sent_packets);
        Self {
            sent: sent.map(|((a, a_s), (b, b_s))| (a.saturating_add(b), a_s.max(b_s))),
            sent_packets: packets.map(|(a, b)| a.saturating_add(b)),
            pacing: self.pacing.zip(other.pacing).map(|(a, b)| a.with(&b)),
            received: self.received.zip(other.received).map(|(a, b)| a.with(b)),
        }
    }

    pub(super) fn figures(&self, layers: Option<Layers>) -> Vec<Figure> {
        let received = self.received.iter();
        let mut figures: Vec<_> = received.flat_map(|r| r.figures(layers)).collect();
        if let Some((bytes, seconds)) = self.sent {
            figures.push(mean(Metric::SentRateBitPerS, rate(bytes, seconds)));
            figures.push(total(Metric::SentBytes, bytes));
            figures.push(Figure::new(Metric::ElapsedS, Statistic::Total, seconds));
        }
        let packets = self.sent_packets;
        figures.extend(packets.map(|packets| total(Metric::SentPackets, packets)));
        figures.extend(self.pacing.iter().flat_map(SenderDetail::figures));
        figures
    }
}

impl ReceiverView {
    fn figures(&self, layers: Option<Layers>) -> Vec<Figure> {
        let mut figures: Vec<_> = rates(self.goodput, Some(self.bounds), layers).collect();
        if let Some(datagrams) = self.datagrams {
            figures.extend(self.loss(datagrams));
            figures.push(total(Metric::LostPackets, self.lost(datagrams)));
        }
        figures.push(mean(Metric::JitterMs, self.jitter_ms));
        figures.push(total(Metric::ReceivedBytes, self.bytes));
        let Some(detail) = &self.detail else {
            return figures;
        };
        figures.push(total(Metric::ReceivedPackets, detail.received));
        figures.push(total(Metric::DuplicatePackets, detail.duplicates));
        figures.push(total(Metric::ReorderedPackets, detail.reordered));
        if detail.reordered > 0 {
            let metric = Metric::ReorderingExtentPackets;
            figures.push(most(metric, detail.largest_extent));
        }
        figures.push(total(Metric::HostDroppedPackets, detail.host_dropped));
        if detail.garbage > 0 {
            figures.push(total(Metric::GarbagePackets, detail.garbage));
        }
        figures
    }
}

impl SenderDetail {
    fn figures(&self) -> Vec<Figure> {
        let statistics = [Statistic::Median, Statistic::P99, Statistic::Max];
        let errors = self.gap_error_ns.into_iter().flatten().zip(statistics);
        let error =
            |(ns, statistic)| Figure::new(Metric::PacingErrorUs, statistic, ns as f64 / 1e3);
        let mut figures: Vec<_> = errors.map(error).collect();
        let late = proportion::percent(self.late, self.trains);
        figures.extend(late.map(|late| mean(Metric::LateTrainsPercent, late)));
        figures.push(most(Metric::TrainPackets, self.burst));
        figures
    }
}

fn most(metric: Metric, count: u64) -> Figure {
    Figure::new(metric, Statistic::Max, count as f64)
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::detail::StreamDetail;
    use crate::iperf3::messages::Results;

    const MOST: i64 = i64::MAX;

    /// Returns a stream with the largest numbers that a peer's results may contain, with or without farwire's key.
    fn absurd(farwire: &str) -> StreamResults {
        let text = format!(
            r#"{{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":-1,"streams":
            [{{"id":1,"bytes":{MOST},"retransmits":{MOST},"jitter":0,"errors":{MOST},"packets":{MOST},
            "start_time":0,"end_time":1{farwire}}}]}}"#
        );
        Results::parse(text.as_bytes()).unwrap().streams.remove(0)
    }

    #[test]
    fn the_loss_of_an_old_iperf3_is_unknown_after_an_omitted_start() {
        let remote = StreamResults {
            errors: Some(7),
            packets: 100,
            ..StreamResults::default()
        };
        let counted = |omitted, omits| {
            let remote = StreamResults {
                omitted,
                ..remote.clone()
            };
            let received = ReceiverView::from_iperf3(&remote, 100, 1.0, omits).unwrap();
            received.datagrams.map(|d| (d.expected, d.missing))
        };
        assert_eq!(counted(None, true), None);
        assert_eq!(counted(None, false), Some((100, 7)));
        assert_eq!(counted(Some([5, 40]), true), Some((60, 2)));
    }

    #[test]
    fn the_upper_bound_of_iperf3_s_goodput_is_the_sent_data() {
        // In a second, 1,000 datagrams of 1,250 bytes were sent, and the receiver's iperf3 read 100 of them.
        let remote = StreamResults {
            errors: Some(900),
            packets: 1000,
            bytes: 125_000,
            seconds: Some(1.25),
            ..StreamResults::default()
        };
        let received = ReceiverView::from_iperf3(&remote, 1000, 1.0, false).unwrap();
        assert_eq!(received.goodput, 1e6);
        assert_eq!(received.bounds, [8e5, 1e7]);
    }

    #[test]
    fn the_interval_of_loss_covers_wrong_checksums_and_full_sockets() {
        let loss = |host_dropped, drops, unsure| {
            let local = StreamResults {
                errors: Some(50),
                packets: 1000,
                ..StreamResults::default()
            };
            let detail = ReceiverDetail {
                received: 950,
                host_dropped,
                drops,
                unsure,
                bursts: 50,
                ..ReceiverDetail::default()
            };
            let received = ReceiverView::from_farwire(detail, &local, [1.0; 2]);
            let figure = received.loss(received.datagrams.unwrap()).unwrap();
            (figure.value, figure.interval.unwrap())
        };
        // In the three cases, all 50 had a wrong checksum; all found the socket full; 10 certainly did, and the others
        // are unknown.
        let (lost, [low, high]) = loss(0, 0, 0);
        assert_eq!(lost, 5.0);
        assert!(low > 3.0 && high > 6.0, "{low} to {high}");
        let (lost, [low, high]) = loss(50, 50, 0);
        assert_eq!((lost, low), (0.0, 0.0));
        assert!(high < 1.0, "{high}");
        let (lost, [low, high]) = loss(10, 10, 40);
        assert_eq!((lost, low), (4.0, 0.0));
        assert!(high > 5.0, "{high}");
    }

    #[test]
    fn sums_of_a_peer_s_numbers_saturate() {
        let all = u64::MAX;
        let detail = format!(
            r#","farwire":{{"receiver":{{"received":{all},"duplicates":{all},"reordered":{all},"largest_extent":{all},
            "host_dropped":0,"drops":0,"garbage":{all},"after_first":[0,{all}]}}}}"#
        );
        let ours = absurd(&detail);
        let Some(StreamDetail::Receiver(detail)) = ours.detail else {
            panic!("{ours:?}");
        };
        let here = ReceiverView::from_farwire(detail, &ours, [1.0; 2]);
        let there = ReceiverView::from_iperf3(&absurd(""), all, 1.0, false).unwrap();
        for received in [here, there] {
            let flow = StreamView {
                sent: Some((all, 1.0)),
                sent_packets: Some(all),
                pacing: None,
                received: Some(received),
            };
            let sum = (0..3).map(|_| flow).reduce(StreamView::with).unwrap();
            assert_eq!((sum.sent, sum.sent_packets), (Some((all, 1.0)), Some(all)));
            let figures = sum.figures(None);
            assert!(figures.iter().all(|figure| figure.value.is_finite()));
        }
    }
}
