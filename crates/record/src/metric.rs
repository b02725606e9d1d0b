//! Metrics, statistics and phases: the vocabulary of samples and figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::hodges_lehmann::Sense;
use strum::{EnumIter, IntoStaticStr};

/// Defines an enum whose variants have the same name in the record, in the CSV and from [`name`](Metric::name). The doc
/// comment of a variant is also its explanation in reports.
macro_rules! words {
    ($(#[$of_all:meta])* $words:ident { $($(#[doc = $meaning:literal])+ $word:ident,)* }) => {
        $(#[$of_all])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, IntoStaticStr,
            EnumIter,
        )]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum $words {
            $($(#[doc = $meaning])+ $word,)*
        }

        impl $words {
            /// Returns the name as in the record and the CSV.
            pub fn name(self) -> &'static str {
                self.into()
            }

            /// Returns the meaning in one sentence, which is the variant's doc comment.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$word => concat!($($meaning),+).trim_ascii(),)*
                }
            }
        }
    };
}

words! {
    /// The phase of an instrument that measures both without and with a simultaneous load.
    Phase {
        /// Before the load started.
        Idle,
        /// While the load ran.
        Loaded,
        /// While a load ran from the far end to this one.
        LoadedDown,
        /// While a load ran from this end to the far one.
        LoadedUp,
        /// While a load ran in both directions.
        LoadedBoth,
    }
}

words! {
    /// The statistic that a figure gives of its metric's values.
    Statistic {
        /// Their sum, or the count of the events that the metric counts.
        Total,
        /// The sum of the values divided by their number; for a rate, the total amount divided by the total time.
        Mean,
        /// The middle value; for an even number of values, the mean of the two middle ones.
        Median,
        /// The least.
        Min,
        /// The greatest.
        Max,
        /// The sample standard deviation, n - 1 in the denominator; of several runs.
        Sd,
        /// The mean distance from their mean; of several runs, the measure of variation in "Experiment on Oct 10".
        MeanDeviation,
        /// The square root of the mean square minus the squared mean, as in ping(8).
        Mdev,
        /// The 10th percentile: 10 of 100 values are at most this.
        P10,
        /// The 90th percentile: 90 of 100 values are at most this.
        P90,
        /// The 95th percentile: 95 of 100 values are at most this.
        P95,
        /// The 99th percentile: 99 of 100 values are at most this.
        P99,
    }
}

words! {
    /// The quantity that a value measures. The name ends in the unit.
    Metric {
        /// Round-trip time of a probe answered in time.
        RttMs,
        /// The part of a probe's round-trip time that lies between the hosts: from kernel to kernel, there and back.
        NetworkRttMs,
        /// The part of the round-trip time that the two hosts added, above their kernels' stamps.
        HostMs,
        /// Time from the sending kernel to the receiving one (RFC 7679); only if the two clocks are related.
        OneWayDelayMs,
        /// One-way delay minus the least of the same direction (RFC 5481, PDV).
        PdvMs,
        /// Absolute difference between the one-way delays of two neighbouring packets (RFC 3393, IPDV).
        IpdvMs,
        /// Time from the first arrival of a train of probes to the arrival of one of its probes; figures are of the
        /// last arrival, in trains that arrived complete.
        InTrainMs,
        /// Difference between the far end's clock and the near one; positive if the far end's clock is ahead.
        ClockOffsetMs,
        /// A probe without an answer in time; the value is 1.
        LostPackets,
        /// Round-trip time of an answer after the time-out; the probe counts as lost too.
        LateRttMs,
        /// Round-trip time of a second answer to one probe.
        DuplicateRttMs,
        /// Packets or probes sent.
        SentPackets,
        /// Packets or answers received in time, without duplicates.
        ReceivedPackets,
        /// Answers that came after the time-out.
        LatePackets,
        /// Copies of a packet received after the first one.
        DuplicatePackets,
        /// Packets that arrived after one that was sent later (RFC 4737).
        ReorderedPackets,
        /// Packets or probes that were sent and did not arrive, in percent of those sent.
        LostPercent,
        /// Payload bytes handed to the sending socket in the interval that ends at the sample's time.
        SentBytes,
        /// Payload bytes received in the interval that ends at the sample's time.
        ReceivedBytes,
        /// Requests answered on one connection.
        Requests,
        /// Duration of the whole exchange.
        ElapsedS,
        /// Time spent within the receiver's reads, waiting included.
        NetworkElapsedS,
        /// Reads of the receiver that returned data.
        Reads,
        /// Bytes that one read returned.
        ReadSizeBytes,
        /// Time spent within one read, waiting included.
        ReadTimeMs,
        /// Time spent within the reads for 2^20 bytes (one MiB).
        TimePerMibMs,
        /// Time from the request to the first byte of the answer.
        FirstByteMs,
        /// Payload that arrived over time (L7), without any header.
        GoodputBitPerS,
        /// The sample standard deviation of a download's goodput over its whole seconds, in percent of their mean.
        GoodputVariationPercent,
        /// Payload over the end of a download, the last three seconds or more, as in wget's progress bar.
        FinalGoodputBitPerS,
        /// The longest time in a download in which no payload arrived, after the first payload.
        LongestStallS,
        /// IP packets over time (L3), their headers included.
        L3RateBitPerS,
        /// Ethernet frames over time (L2), without FCS, as tc counts them.
        L2RateBitPerS,
        /// Rate on the wire (L1): frames with FCS, preamble and gap.
        L1RateBitPerS,
        /// TCP segments that were retransmitted.
        RetransmittedPackets,
        /// TCP segments that were retransmitted, without those that the receiver reported as duplicates (DSACK, RFC 2883). Their
        /// first copy was lost, or the report was.
        NeededRetransmittedPackets,
        /// The sending kernel's smoothed round-trip time of a TCP connection.
        TcpRttMs,
        /// The receiving kernel's smoothed time of a TCP connection from an acknowledgement to the data that answers it.
        TcpReceiverRttMs,
        /// Bytes that a TCP sender's congestion control allows in flight.
        CongestionWindowBytes,
        /// The share of a TCP sender's busy time in which it was limited by the receiver's window.
        ReceiverLimitedPercent,
        /// The share of a TCP sender's busy time in which it was limited by its own send buffer.
        SendBufferLimitedPercent,
        /// CPU time of the sending end in percent of one CPU.
        SenderCpuPercent,
        /// CPU time of the receiving end in percent of one CPU.
        ReceiverCpuPercent,
        /// CPU time of the sending end outside the kernel, in percent of one CPU.
        SenderUserCpuPercent,
        /// CPU time of the receiving end outside the kernel, in percent of one CPU.
        ReceiverUserCpuPercent,
        /// Number of packets by which a reordered one was late (RFC 4737 §4.2.1, reordering extent).
        ReorderingExtentPackets,
        /// Data that arrived on a stream but was not one of its packets.
        GarbagePackets,
        /// Absolute difference between the gap of two neighbouring trains of packets and the ideal gap, at the sender.
        PacingErrorUs,
        /// Trains that left late, in percent of all.
        LateTrainsPercent,
        /// Packets that a sender hands to the kernel in one call.
        TrainPackets,
        /// IP packets received over one sub-interval of a search; the greatest is RFC 9097's maximum IP-layer capacity.
        IpCapacityBitPerS,
        /// Rate at which a search lets its sender send, at L3.
        SendingRateBitPerS,
        /// The row of the table of sending rates that a search chose.
        RateRow,
        /// Packets or trains that this host dropped because its socket was full; the network did not lose them.
        HostDroppedPackets,
        /// Time from the request for a TCP connection until it is established; for `measure connect`, or until it is
        /// refused.
        ConnectMs,
        /// Time from the establishment of a TCP connection until its TLS handshake is done and this end may send data.
        TlsHandshakeMs,
        /// Time from the start of a file's turn to its last byte, connecting included.
        CompletionMs,
        /// Files that were fetched completely.
        Files,
        /// Files per second.
        FilesPerS,
        /// Payload that the sender handed to its socket over time (L7), some of which may not have arrived.
        SentRateBitPerS,
        /// Payload over time (L7) that a sender was asked to send, over all of its streams.
        RequestedRateBitPerS,
        /// End of the interval with the same index, in seconds since 1970 by this host's clock, to 0.24 us.
        EndedS,
        /// Interarrival jitter (RFC 3550 §6.4.1): a smoothed deviation of the packets' spacing, at the receiver, at the
        /// end. One run has no interval, because it is a running average of some 16 packets.
        JitterMs,
        /// Goodput of one of several simultaneous clients; the index of a sample is the client's number.
        ClientGoodputBitPerS,
        /// Equality of the goodputs of several clients (Jain's index): 1 if all are equal, 1/n if one of n clients has
        /// everything.
        FairnessIndex,
        /// Median round-trip time or one-way delay under a load, minus the median on the idle path.
        LatencyIncreaseMs,
        /// Responsiveness under a load (draft-ietf-ippm-responsiveness): round trips per minute.
        ResponsivenessPerMin,
    }
}

/// Endings of metric names and the units that they stand for. The first ending that matches counts.
const UNITS: [(&str, &str); 10] = [
    ("_bit_per_s", "bit/s"),
    ("_byte_per_s", "byte/s"),
    ("_per_s", "1/s"),
    ("_per_min", "1/min"),
    ("_percent", "%"),
    ("_bytes", "bytes"),
    ("_packets", "packets"),
    ("_ms", "ms"),
    ("_us", "us"),
    ("_s", "s"),
];

impl Statistic {
    /// Returns whether it describes the tail of a distribution, for which many samples are needed.
    pub fn is_tail(self) -> bool {
        matches!(self, Self::P90 | Self::P95 | Self::P99)
    }
}

impl Metric {
    /// Returns the unit of its values; empty for a number without a unit.
    pub fn unit(self) -> &'static str {
        self.split().1
    }

    /// Returns its name without the unit, in words: "one way delay", "time per MiB".
    pub fn title(self) -> String {
        self.split().0.replace('_', " ").replace("mib", "MiB")
    }

    /// Returns the limits of its values: 0 to 100 for shares of a whole, 0 to 1 for the fairness index, and 0 to
    /// infinity for the others, except for differences, which have none.
    pub fn limits(self) -> [f64; 2] {
        match self {
            Self::ClockOffsetMs | Self::LatencyIncreaseMs => [f64::NEG_INFINITY, f64::INFINITY],
            Self::LostPercent
            | Self::LateTrainsPercent
            | Self::ReceiverLimitedPercent
            | Self::SendBufferLimitedPercent => [0.0, 100.0],
            Self::FairnessIndex => [0.0, 1.0],
            _ => [0.0, f64::INFINITY],
        }
    }

    /// Returns the kind of quantity, which determines how reports describe its growth.
    pub fn sense(self) -> Sense {
        let name: &str = self.into();
        let varies = matches!(
            self,
            Self::PdvMs
                | Self::IpdvMs
                | Self::JitterMs
                | Self::ClockOffsetMs
                | Self::PacingErrorUs
                | Self::LatencyIncreaseMs
        );
        if ["_per_s", "_per_min"]
            .iter()
            .any(|unit| name.ends_with(unit))
        {
            Sense::Rate
        } else if !varies && ["_s", "_ms", "_us"].iter().any(|unit| name.ends_with(unit)) {
            Sense::Time
        } else {
            Sense::Amount
        }
    }

    fn split(self) -> (&'static str, &'static str) {
        let name = self.name();
        let mut units = UNITS.iter();
        units
            .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
            .unwrap_or((name, ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;
    use strum::IntoEnumIterator as _;

    #[test]
    fn a_metric_has_the_same_name_in_record_and_csv() {
        for metric in Metric::iter() {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
    }

    #[test]
    fn a_meaning_is_a_complete_sentence() {
        let statistics = Statistic::iter().map(Statistic::meaning);
        let all = Metric::iter().map(Metric::meaning).chain(statistics);
        for meaning in all.chain(Direction::iter().map(Direction::meaning)) {
            assert!(meaning.ends_with('.') && meaning.len() > 8, "{meaning}");
            assert!(!meaning.starts_with("Likewise"), "{meaning}");
        }
        assert!(Metric::GoodputBitPerS.meaning().contains("(L7)"));
    }

    #[test]
    fn the_documentation_has_the_meaning_of_every_metric() {
        let documented = include_str!("../../../docs/instruments.md");
        for metric in Metric::iter() {
            let row = format!("| `{}` | {} |", metric.name(), metric.meaning());
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_name_of_a_metric_ends_in_its_unit() {
        assert_eq!(Metric::GoodputBitPerS.unit(), "bit/s");
        assert_eq!(Metric::GoodputBitPerS.title(), "goodput");
        assert_eq!(Metric::LateRttMs.title(), "late rtt");
        assert_eq!(Metric::TimePerMibMs.title(), "time per MiB");
    }
}
