//! Marks figures that come near to the machine's own limits, which describe the tool or the host and not the link.

use crate::analysis::Analysis;
use record::Baseline;
use record::Record;
use record::plan::{Case, PlannedInstrument};
use record::profile::HostLimit;
use record::quantity;
use record::{Metric, Statistic};

/// Share of the machine's limit, or of the delay, from which on the machine counts as the cause.
const NEAR: f64 = 0.8;

/// A figure's metric, statistic and value.
pub(crate) type MeasuredFigure = (Metric, Statistic, f64);

/// An instrument whose results in a case come near to the machine's limits.
pub(crate) struct NearLimit<'a> {
    /// The case as sentences name it.
    pub(crate) case: String,
    pub(crate) instrument: &'a str,
    /// The limit, and the distance to it.
    words: String,
}

/// Returns a line for every case and instrument whose results come near to the machine's limits.
pub(crate) fn lines(analysis: &Analysis<'_>) -> Vec<String> {
    let line =
        |found: NearLimit<'_>| format!("{}: {}: {}", found.case, found.instrument, found.words);
    near_limits(analysis).into_iter().map(line).collect()
}

/// Returns every case and instrument whose results come near to the machine's limits.
pub(crate) fn near_limits<'a>(analysis: &Analysis<'a>) -> Vec<NearLimit<'a>> {
    let mut found = Vec::new();
    for figures in &analysis.cases {
        for instrument in &figures.case.instruments {
            let own = figures
                .figures
                .iter()
                .filter(|(name, _)| name.instrument == instrument.name);
            let values: Vec<MeasuredFigure> = own
                .map(|(name, across)| (name.metric, name.statistic, across.value()))
                .collect();
            if let Some(words) = near(analysis.record, figures.case, instrument, &values) {
                found.push(NearLimit {
                    case: figures.words().to_owned(),
                    instrument: &instrument.name,
                    words,
                });
            }
        }
    }
    found
}

/// Returns a message if the figures of `instrument` in `case` come near to the machine's limits. Of several baselines,
/// the lowest rate and the greatest delay count, so that the machine's limit is not mistaken for the link's.
pub(crate) fn near(
    record: &Record,
    case: &Case,
    instrument: &PlannedInstrument,
    values: &[MeasuredFigure],
) -> Option<String> {
    // The limits depend on MTU and offloads.
    let bed = (case.bed.mtu(), case.bed.offloads());
    let measured = |value: fn(&Baseline) -> Option<f64>| {
        let all = record.baselines.iter();
        let of_bed = all.filter(move |one| (Some(one.mtu), Some(one.offloads)) == bed);
        of_bed.filter_map(value)
    };
    let ceiling = |value| measured(value).min_by(f64::total_cmp);
    let of = |metric, statistic| {
        let mut found = values.iter().filter(|v| (v.0, v.1) == (metric, statistic));
        found.next().map(|(.., value)| *value)
    };
    match instrument.profile.host_limit {
        HostLimit::RoundTrip => {
            let median = |metric| of(metric, Statistic::Median);
            let rtt = median(Metric::RttMs).or_else(|| median(Metric::ConnectMs));
            let (rtt, floor) = rtt.zip(measured(|one| one.rtt_floor_ms).max_by(f64::total_cmp))?;
            (NEAR * rtt <= floor).then(|| {
                format!(
                    "a round trip of {rtt:.3} ms, while hosts and emulator alone take {floor:.3} ms: it shows them more than the link"
                )
            })
        }
        HostLimit::TcpRate => {
            let rate = of(Metric::GoodputBitPerS, Statistic::Mean)?;
            limited(rate, ceiling(|one| one.tcp_bit_per_s)?, "TCP", |rate| {
                quantity(Metric::GoodputBitPerS, rate)
            })
        }
        HostLimit::UdpPackets => {
            let packets = of(Metric::ReceivedPackets, Statistic::Total)?;
            let seconds = of(Metric::ElapsedS, Statistic::Total)?;
            limited(
                packets / seconds,
                ceiling(|one| one.udp_packets_per_s)?,
                "UDP",
                |rate| format!("{rate:.0} packets/s"),
            )
        }
        HostLimit::UdpRate => {
            let rate = of(Metric::IpCapacityBitPerS, Statistic::Max)?;
            limited(rate, ceiling(|one| one.udp_bit_per_s)?, "UDP", |rate| {
                quantity(Metric::IpCapacityBitPerS, rate)
            })
        }
    }
}

fn limited(rate: f64, ceiling: f64, what: &str, shown: impl Fn(f64) -> String) -> Option<String> {
    (ceiling > 0.0 && rate >= NEAR * ceiling).then(|| {
        format!(
            "{} is {:.0} % of what {what} reaches on this machine without emulation ({}): the machine is the limit, not the link",
            shown(rate),
            100.0 * rate / ceiling,
            shown(ceiling)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::tests::record;

    fn with(baselines: &[Baseline]) -> Vec<String> {
        let mut record = record();
        let of_bed = |one: &Baseline| Baseline {
            mtu: 1500,
            offloads: true,
            ..one.clone()
        };
        record.baselines = baselines.iter().map(of_bed).collect();
        lines(&Analysis::of(&record))
    }

    #[test]
    fn a_rate_above_80_percent_of_the_machine_s_limit_is_marked() {
        let ceiling = |tcp| Baseline {
            tcp_bit_per_s: Some(tcp),
            ..Baseline::default()
        };
        let lines = with(&[ceiling(1e9), ceiling(18e6), ceiling(1e9)]);
        assert!(
            lines[0].starts_with("base: download: 16.00 Mbit/s is 89 % of"),
            "{lines:?}"
        );
        assert!(with(&[ceiling(1e9)]).is_empty());
    }

    #[test]
    fn a_delay_mostly_caused_by_the_hosts_is_marked() {
        let floor = |rtt| Baseline {
            rtt_floor_ms: Some(rtt),
            ..Baseline::default()
        };
        let lines = with(&[floor(0.1), floor(1.0), floor(0.1)]);
        assert!(
            lines[0].starts_with("base: ping: a round trip of"),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 1);
        assert!(with(&[floor(0.1)]).is_empty());
    }

    #[test]
    fn a_bed_with_another_mtu_is_not_compared() {
        let mut record = record();
        record.baselines.push(Baseline {
            mtu: 9000,
            offloads: true,
            tcp_bit_per_s: Some(1.0),
            ..Baseline::default()
        });
        assert!(lines(&Analysis::of(&record)).is_empty());
    }
}
