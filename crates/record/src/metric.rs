//! The words of the form: what a value is, what it says of others, and what it is of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::hodges_lehmann::Sense;
use strum::{EnumIter, IntoStaticStr};

/// An enum whose variants are called alike in the record, in the CSV and by [`name`](Metric::name), and whose
/// documentation is also what reports say of them.
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
            /// As the record and the CSV name it.
            pub fn name(self) -> &'static str {
                self.into()
            }

            /// What it is, in one sentence: its documentation.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$word => concat!($($meaning),+).trim_ascii(),)*
                }
            }
        }
    };
}

words! {
    /// Of an instrument that measures without and with a load beside it, when.
    Phase {
        /// Before the load began.
        Idle,
        /// Under the load.
        Loaded,
    }
}

words! {
    /// What a figure says of its metric's values.
    Statistic {
        /// Their sum, or the count of what the metric counts.
        Total,
        /// Their sum over their number; of a rate, the whole amount over the whole time.
        Mean,
        /// The middle one; of an even number, between the two in the middle.
        Median,
        /// The least.
        Min,
        /// The greatest.
        Max,
        /// The sample standard deviation, n - 1 in the denominator; of several runs.
        Sd,
        /// The mean distance from their mean; of several runs, as "Experiment on Oct 10" has their variation.
        MeanDeviation,
        /// The root of the mean square less the squared mean, as ping(8) has it.
        Mdev,
        /// What one in ten is not above.
        P10,
        /// What nine in ten are not above.
        P90,
        /// What 99 in a hundred are not above.
        P99,
    }
}

words! {
    /// What a value is; the name ends in the unit.
    Metric {
        /// Round-trip time of a probe answered in time.
        RttMs,
        /// The part of a probe's round-trip time that lies between the hosts: from kernel to kernel, there and back.
        NetworkRttMs,
        /// The part of the round-trip time that the two hosts added, above their kernels' stamps.
        HostMs,
        /// How long a packet took from one kernel to the other (RFC 7679); only where the two clocks are related.
        OneWayDelayMs,
        /// One-way delay less the least of the same direction (RFC 5481, PDV).
        PdvMs,
        /// By how much the one-way delays of two neighbouring packets differ, without its sign (RFC 3393, IPDV).
        IpdvMs,
        /// How far the far end's clock is ahead of the near one.
        ClockOffsetMs,
        /// A probe without an answer in time; the value is 1.
        LostPackets,
        /// Round-trip time of an answer after the time-out; the probe counts as lost too.
        LateRttMs,
        /// Round-trip time of a second answer to one probe.
        DuplicateRttMs,
        /// Packets or probes sent.
        SentPackets,
        /// Packets or answers received in time, duplicates left out.
        ReceivedPackets,
        /// Answers that came after the time-out.
        LatePackets,
        /// Second and further copies received.
        DuplicatePackets,
        /// Packets that arrived after one that was sent later (RFC 4737).
        ReorderedPackets,
        /// What was sent and did not arrive, in percent of what was sent.
        LostPercent,
        /// Payload bytes handed to the sending socket in the interval that ends at the sample's time.
        SentBytes,
        /// Payload bytes received in the interval that ends at the sample's time.
        ReceivedBytes,
        /// Requests answered on one connection.
        Requests,
        /// How long the whole exchange took.
        ElapsedS,
        /// Time spent within the receiver's reads, waiting included.
        NetworkElapsedS,
        /// Reads of the receiver that gave something.
        Reads,
        /// Bytes that one read gave.
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
        /// Payload over the end of a download, the last three seconds or more, as wget's progress bar has it.
        FinalGoodputBitPerS,
        /// The longest time of a download, from its first payload on, in which none came.
        LongestStallS,
        /// IP packets over time (L3), their headers included.
        L3RateBitPerS,
        /// Ethernet frames over time (L2), without FCS, as tc counts them.
        L2RateBitPerS,
        /// What the wire carries over time (L1): frames with FCS, preamble and gap.
        L1RateBitPerS,
        /// TCP segments sent again.
        RetransmittedPackets,
        /// The sending kernel's smoothed round-trip time of a TCP connection.
        TcpRttMs,
        /// What a TCP sender may have on its way by its congestion control.
        CongestionWindowBytes,
        /// The share of a TCP sender's busy time in which the receiver's window held it up.
        ReceiverLimitedPercent,
        /// The share of a TCP sender's busy time in which its own send buffer held it up.
        SendBufferLimitedPercent,
        /// CPU time of the sending end in percent of one CPU.
        SenderCpuPercent,
        /// CPU time of the receiving end in percent of one CPU.
        ReceiverCpuPercent,
        /// CPU time of the sending end outside the kernel, in percent of one CPU.
        SenderUserCpuPercent,
        /// CPU time of the receiving end outside the kernel, in percent of one CPU.
        ReceiverUserCpuPercent,
        /// By how many packets a reordered one was late (RFC 4737 §4.2.1, reordering extent).
        ReorderingExtentPackets,
        /// What came on a stream and was none of its packets.
        GarbagePackets,
        /// How far the gap between one train of packets and the next was from the ideal one, at the sender, without its sign.
        PacingErrorUs,
        /// Trains that left late, in percent of all.
        LateTrainsPercent,
        /// Packets that a sender hands to the kernel at once.
        TrainPackets,
        /// IP packets received over one sub-interval of a search; the greatest is RFC 9097's maximum IP-layer capacity.
        IpCapacityBitPerS,
        /// What a search has its sender send, at L3.
        SendingRateBitPerS,
        /// The row of the table of sending rates that a search chose.
        RateRow,
        /// Packets or trains that this host's full socket dropped: not the network's.
        HostDroppedPackets,
        /// Time from asking for a TCP connection until it is there; for `measure connect`, or until it is refused.
        ConnectMs,
        /// Time from a TCP connection until the TLS handshake on it is done and this end may send data.
        TlsHandshakeMs,
        /// Time from a file's turn, connecting included, to its last byte.
        CompletionMs,
        /// Files fetched whole.
        Files,
        /// Files over time.
        FilesPerS,
        /// Payload that the sender handed to its socket over time (L7), of which not all need have arrived.
        SentRateBitPerS,
        /// Payload over time (L7) that a sender was asked to send, over all of its streams.
        RequestedRateBitPerS,
        /// When the interval of the same index ended: seconds since 1970 by this host's clock, to 0.24 us.
        EndedS,
        /// Jitter by RFC 3550 §6.4.1: how far the packets' spacing wavers, smoothed, as the receiver had it at the end. One run states no interval: it is a running average of some 16 packets.
        JitterMs,
        /// Goodput of one client of several that measured at once; of a sample the index is the client's number.
        ClientGoodputBitPerS,
        /// How alike the goodputs of several clients are (Jain's index): 1 where all have the same, 1/n where one of n has all.
        FairnessIndex,
    }
}

/// Endings of metric names and the units that they stand for; of two that fit, the first counts.
const UNITS: [(&str, &str); 9] = [
    ("_bit_per_s", "bit/s"),
    ("_byte_per_s", "byte/s"),
    ("_per_s", "1/s"),
    ("_percent", "%"),
    ("_bytes", "bytes"),
    ("_packets", "packets"),
    ("_ms", "ms"),
    ("_us", "us"),
    ("_s", "s"),
];

impl Metric {
    /// The unit of its values; empty for a bare number.
    pub fn unit(self) -> &'static str {
        self.split().1
    }

    /// Its name without the unit, for people: "one way delay".
    pub fn title(self) -> String {
        self.split().0.replace('_', " ")
    }

    /// Between which values it can lie: shares of a whole between 0 and 100 %, an index of fairness between 0 and 1, and anything
    /// else above 0, except for differences of two clocks.
    pub fn limits(self) -> [f64; 2] {
        match self {
            Self::ClockOffsetMs => [f64::NEG_INFINITY, f64::INFINITY],
            Self::LostPercent
            | Self::LateTrainsPercent
            | Self::ReceiverLimitedPercent
            | Self::SendBufferLimitedPercent => [0.0, 100.0],
            Self::FairnessIndex => [0.0, 1.0],
            _ => [0.0, f64::INFINITY],
        }
    }

    /// In which words it grows.
    pub fn sense(self) -> Sense {
        let name: &str = self.into();
        let varies = matches!(
            self,
            Self::PdvMs | Self::IpdvMs | Self::JitterMs | Self::ClockOffsetMs | Self::PacingErrorUs
        );
        if name.ends_with("_per_s") {
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
    fn a_metric_is_named_alike_in_the_record_and_in_the_csv() {
        for metric in Metric::iter() {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
    }

    #[test]
    fn a_meaning_is_a_sentence_that_stands_alone() {
        let statistics = Statistic::iter().map(Statistic::meaning);
        let all = Metric::iter().map(Metric::meaning).chain(statistics);
        for meaning in all.chain(Direction::iter().map(Direction::meaning)) {
            assert!(meaning.ends_with('.') && meaning.len() > 8, "{meaning}");
            assert!(!meaning.starts_with("Likewise"), "{meaning}");
        }
        assert!(Metric::GoodputBitPerS.meaning().contains("(L7)"));
    }

    #[test]
    fn the_documentation_says_of_every_metric_what_reports_say() {
        let documented = include_str!("../../../docs/instruments.md");
        for metric in Metric::iter() {
            let row = format!("| `{}` | {} |", metric.name(), metric.meaning());
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_metric_s_name_ends_in_its_unit() {
        assert_eq!(Metric::GoodputBitPerS.unit(), "bit/s");
        assert_eq!(Metric::GoodputBitPerS.title(), "goodput");
        assert_eq!(Metric::LateRttMs.title(), "late rtt");
    }
}
