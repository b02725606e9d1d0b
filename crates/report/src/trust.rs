//! The table of trust. Each row states what the interval of a main figure contains, how it is computed, how many
//! samples it needs, and what makes the figure invalid.
//!
//! Reports show the rows of the figures that occur in them, and docs/statistics.md shows all.

use record::profile::{Carrier, InstrumentProfile};
use record::{Metric, Statistic};

/// The causes that make more than one figure invalid, in sentences.
pub(crate) const EVERY_FIGURE: &str = "A packet is late if it left the emulator after its due time by more than the late budget. \
    The shares of late packets in the last column count only the packets that the figure describes, during its measurement. In addition, \
    a paced sender that falls more than 1 % short of its schedule makes every figure of its measurement invalid, and a host that was starved \
    of processor time, or an emulator that itself lost packets, makes every figure of the run invalid.";

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrustRow {
    /// The anchor in docs/statistics.md; in reports, it is preceded by `trust-`.
    pub(crate) anchor: &'static str,
    /// The figures, as records name them.
    pub(crate) figures: &'static str,
    /// The quantity that the 95 % interval contains.
    pub(crate) contains: &'static str,
    /// The method that computes the interval.
    pub(crate) method: &'static str,
    /// The smallest number of samples for which there is an interval.
    pub(crate) least: &'static str,
    /// The causes that make the figure invalid.
    pub(crate) invalid: &'static str,
}

/// A row, and the headings of a report to which it applies.
#[derive(Clone, Debug)]
pub(crate) struct OccurringRow {
    pub(crate) row: &'static TrustRow,
    /// The headings: "rtt median of ping", "loss mean, up of udp and probe".
    pub(crate) headings: Vec<String>,
}

const LATE_BULK: &str = "more than 1 packet in 20 late";
const NONE: &str = "–";

const TIME: TrustRow = TrustRow {
    anchor: "rtt",
    figures: "`rtt_ms`, `network_rtt_ms`, `connect_ms`, `tls_handshake_ms`, `first_byte_ms`, `completion_ms`: median",
    contains: "the median; for `ping` and `probe` that of the network: the lower end allows for the time of the hosts",
    method: "Woodruff's, from blocks of neighbouring samples",
    least: "10 independent samples",
    invalid: LATE_BULK,
};
const TIME_P90: TrustRow = TrustRow {
    anchor: "p90",
    figures: "any time: 90th percentile",
    contains: "the 90th percentile",
    method: "Woodruff's",
    least: "50 independent samples; the percentile is not shown with fewer",
    invalid: LATE_BULK,
};
const TIME_P99: TrustRow = TrustRow {
    anchor: "p99",
    figures: "any time: 99th percentile",
    contains: "the 99th percentile",
    method: "Woodruff's",
    least: "500 independent samples; the percentile is not shown with fewer",
    invalid: "1 packet in 100 late, or more",
};
const DELAY: TrustRow = TrustRow {
    anchor: "delay",
    figures: "`one_way_delay_ms`: median",
    contains: "the median of one direction, with the possible error of clocks and stamps",
    method: "Woodruff's, widened by the error of the clocks",
    least: "10 independent samples",
    invalid: LATE_BULK,
};
const LOSS: TrustRow = TrustRow {
    anchor: "loss",
    figures: "`lost_percent`",
    contains: "the probability with which the network loses a packet; where host and network cannot be distinguished, it covers both",
    method: "Wilson's, for the effective number of independent packets given the observed bursts; runs are pooled",
    least: "1 packet",
    invalid: "1 packet in 200 late, or more, and more than one packet",
};
const GOODPUT_UDP: TrustRow = TrustRow {
    anchor: "goodput-udp",
    figures: "`goodput_bit_per_s` of `udp`",
    contains: "what the network carried in this run",
    method: "counts without sampling error; the uncertain edges at both ends",
    least: "1 datagram after the first",
    invalid: LATE_BULK,
};
const GOODPUT_TCP: TrustRow = TrustRow {
    anchor: "goodput",
    figures: "`goodput_bit_per_s` of `tcp` and `http`",
    contains: "what the network carried in this run; external tools state no interval",
    method: "counts, without the time that the ends add",
    least: "1 interval",
    invalid: LATE_BULK,
};
const RUNS_OF_ONE: TrustRow = TrustRow {
    anchor: "runs",
    figures: "means of `pingpong`, `blast` and `transfer`: `rtt_ms`, `goodput_bit_per_s`, `elapsed_s`, `time_per_mib_ms` and others",
    contains: "the mean over such runs within a measurement; for `rtt_ms`, the lower end allows for the time of the hosts",
    method: "Student's t over the runs of the measurement",
    least: "2 runs of the measurement",
    invalid: LATE_BULK,
};
const CAPACITY: TrustRow = TrustRow {
    anchor: "capacity",
    figures: "`ip_capacity_bit_per_s`",
    contains: "the most that the path carried in one sub-interval; a lower bound if the sender was the limit",
    method: "RFC 9097's maximum over sub-intervals",
    least: "1 sub-interval",
    invalid: LATE_BULK,
};
const JITTER: TrustRow = TrustRow {
    anchor: "jitter",
    figures: "`jitter_ms`",
    contains: "no interval: RFC 3550 defines a running estimate that forgets, not a mean",
    method: NONE,
    least: NONE,
    invalid: LATE_BULK,
};
const COUNT: TrustRow = TrustRow {
    anchor: "counts",
    figures: "`retransmitted_packets`, `needed_retransmitted_packets`, `tcp_rtt_ms` and other readings of the kernel",
    contains: "no interval: it was counted or read in this run",
    method: NONE,
    least: NONE,
    invalid: LATE_BULK,
};
const SENT: TrustRow = TrustRow {
    anchor: "sent",
    figures: "`sent_rate_bit_per_s`, `requested_rate_bit_per_s`, CPU times",
    contains: "no interval: it describes what the sender did, or was requested to do",
    method: NONE,
    least: NONE,
    invalid: LATE_BULK,
};
/// The row of the rate over the steady part of a run.
pub(crate) const STEADY: TrustRow = TrustRow {
    anchor: "steady",
    figures: "steady throughput",
    contains: "the mean that the steady part of the run would have had if it had gone on for long",
    method: "batch means over the autocorrelation time",
    least: "50 intervals with an effective sample size of 20; with fewer, it is marked",
    invalid: LATE_BULK,
};
/// The row of figures over several runs.
const OVER_RUNS: TrustRow = TrustRow {
    anchor: "over-runs",
    figures: "any figure over N runs",
    contains: "the mean over such runs",
    method: "Student's t; Stein's for the figure that decides the number of runs; losses are pooled; limited to possible values",
    least: "2 valid runs",
    invalid: "invalid runs are left out",
};
const OTHER: TrustRow = TrustRow {
    anchor: "other",
    figures: "any other figure",
    contains: "see the facts of the instrument, if one run states an interval",
    method: "see the facts",
    least: "see the facts",
    invalid: LATE_BULK,
};

/// All rows in the order of the documentation.
pub(crate) const ROWS: [TrustRow; 15] = [
    TIME,
    TIME_P90,
    TIME_P99,
    DELAY,
    LOSS,
    GOODPUT_UDP,
    GOODPUT_TCP,
    RUNS_OF_ONE,
    CAPACITY,
    JITTER,
    COUNT,
    SENT,
    STEADY,
    OVER_RUNS,
    OTHER,
];

impl TrustRow {
    /// Returns the row of a figure of an instrument with this profile.
    pub(crate) fn of(
        profile: &InstrumentProfile,
        metric: Metric,
        statistic: Statistic,
    ) -> &'static Self {
        let has_runs = profile.calibration.runs.is_some();
        match (metric, statistic) {
            (Metric::LostPercent, _) => &LOSS,
            (Metric::JitterMs, _) => &JITTER,
            (Metric::IpCapacityBitPerS, _) => &CAPACITY,
            (
                Metric::SentRateBitPerS
                | Metric::RequestedRateBitPerS
                | Metric::SenderCpuPercent
                | Metric::ReceiverCpuPercent,
                _,
            ) => &SENT,
            (
                Metric::RetransmittedPackets
                | Metric::NeededRetransmittedPackets
                | Metric::TcpRttMs,
                _,
            ) => &COUNT,
            (Metric::GoodputBitPerS, _) if !has_runs => match profile.carrier {
                Some(Carrier::Udp { .. }) => &GOODPUT_UDP,
                _ => &GOODPUT_TCP,
            },
            (Metric::OneWayDelayMs, Statistic::Median) => &DELAY,
            (_, Statistic::P90) if is_time(metric) => &TIME_P90,
            (_, Statistic::P99) if is_time(metric) => &TIME_P99,
            (_, Statistic::Median) if is_time(metric) => &TIME,
            (_, Statistic::Mean) if has_runs => &RUNS_OF_ONE,
            _ => &OTHER,
        }
    }

    /// Returns the anchor of the row in a report.
    pub(crate) fn place(&self) -> String {
        format!("trust-{}", self.anchor)
    }
}

fn is_time(metric: Metric) -> bool {
    metric.unit() == "ms"
}

/// Returns the rows for these `headings` of a report, in the order of the documentation. With `is_steady`, the row of
/// the steady part of runs is included; with `has_several`, that of figures over several runs.
pub(crate) fn occurring(
    headings: &[(&'static TrustRow, String)],
    is_steady: bool,
    has_several: bool,
) -> Vec<OccurringRow> {
    let occurs = |row: &&'static TrustRow| match row.anchor {
        "steady" => is_steady,
        "over-runs" => has_several,
        anchor => headings.iter().any(|(of, _)| of.anchor == anchor),
    };
    let rows = ROWS.iter().filter(occurs);
    let found = rows.map(|row| {
        let own = headings.iter().filter(|(of, _)| of.anchor == row.anchor);
        let headings: Vec<String> = own.map(|(_, heading)| heading.clone()).collect();
        OccurringRow { row, headings }
    });
    found.collect()
}

impl OccurringRow {
    /// Returns the figures of this report to which the row applies, or those of the documentation if it has no heading.
    pub(crate) fn title(&self) -> String {
        if self.headings.is_empty() {
            self.row.figures.replace('`', "")
        } else {
            self.headings.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of docs/statistics.md.
    fn documented() -> String {
        let mut text = "| figure | what its 95 % interval contains | method | fewest samples | invalid when |\n|---|---|---|---|---|\n".to_owned();
        for TrustRow {
            anchor,
            figures,
            contains,
            method,
            least,
            invalid,
        } in ROWS
        {
            text += &format!(
                "| <a id=\"{anchor}\"></a>{figures} | {contains} | {method} | {least} | {invalid} |\n"
            );
        }
        text
    }

    #[test]
    fn the_documentation_has_every_row() {
        let text = include_str!("../../../docs/statistics.md");
        let table = documented();
        assert!(
            text.contains(&table),
            "docs/statistics.md must have:\n{table}"
        );
        assert!(
            text.replace('\n', " ").contains(EVERY_FIGURE),
            "{EVERY_FIGURE}"
        );
    }

    #[test]
    fn anchors_are_unique() {
        let mut anchors: Vec<&str> = ROWS.iter().map(|row| row.anchor).collect();
        anchors.sort_unstable();
        anchors.dedup();
        assert_eq!(anchors.len(), ROWS.len());
    }
}
