//! The host baselines of a record in words, and whether the machine stayed the same between them.

use record::quantity;
use record::{Baseline, Metric};
use stats::digits;

/// One quantity of a baseline.
struct Measure {
    name: &'static str,
    of: fn(&Baseline) -> Option<f64>,
    /// Formats a value with its unit.
    shown: fn(f64) -> String,
    /// Largest quotient of the greatest and the least value on a machine that did not change; absent for a quantity
    /// that merely scatters.
    alike: Option<f64>,
}

/// Each rate is measured only briefly. On an unchanged machine, the smaller of two rates is at least two thirds of the
/// greater.
const RATES: Option<f64> = Some(1.5);
const ROUND_TRIPS: Option<f64> = Some(2.0);

const MEASURES: [Measure; 5] = [
    Measure {
        name: "TCP",
        of: |baseline| baseline.tcp_bit_per_s,
        shown: |rate| quantity(Metric::GoodputBitPerS, rate),
        alike: RATES,
    },
    Measure {
        name: "UDP",
        of: |baseline| baseline.udp_packets_per_s,
        shown: |packets| format!("{packets:.0} packets/s"),
        alike: RATES,
    },
    Measure {
        name: "round trip",
        of: |baseline| baseline.rtt_floor_ms,
        shown: |rtt| format!("{rtt:.3} ms"),
        alike: ROUND_TRIPS,
    },
    Measure {
        name: "pacing error (99th percentile)",
        of: |baseline| baseline.pacing_error_p99_us,
        shown: |error| format!("{error:.1} us"),
        alike: None,
    },
    Measure {
        name: "wake-up latency",
        of: |baseline| baseline.timer_floor_us,
        shown: |late| format!("{late:.0} us"),
        alike: None,
    },
];

/// Formats the baselines in one line: the first value of each quantity and the relative deviations of later ones. Empty
/// if nothing was measured.
pub(crate) fn in_words(baselines: &[Baseline]) -> String {
    let measured = MEASURES.iter().filter_map(|measure| {
        let mut values = baselines.iter().filter_map(measure.of);
        let first = values.next()?;
        let (name, shown) = (measure.name, (measure.shown)(first));
        Some(format!("{name} {shown}{}", later(first, values)))
    });
    let failures = baselines
        .iter()
        .filter_map(|one| one.failure.as_ref())
        .map(|cause| format!("not everything was measured: {cause}"));
    measured.chain(failures).collect::<Vec<_>>().join(", ")
}

/// Formats the relative deviations of later values, as in " (later -14 %, then +2 %)"; empty if there are none.
fn later(first: f64, values: impl Iterator<Item = f64>) -> String {
    let off: Vec<String> = values
        .map(|value| format!("{} %", digits::signed(100.0 * (value / first - 1.0), 0)))
        .collect();
    if first <= 0.0 || off.is_empty() {
        return String::new();
    }
    format!(" (later {})", off.join(", then "))
}

/// Returns a line for each quantity that changed during the experiment by more than it varies on an unchanged machine.
pub(crate) fn changes(baselines: &[Baseline]) -> Vec<String> {
    let change = |measure: &Measure| {
        let mut all: Vec<(&str, f64)> = baselines
            .iter()
            .filter_map(|one| Some((one.started_at.as_str(), (measure.of)(one)?)))
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (least, most) = (*all.first()?, *all.last()?);
        let [before, after] = if least.0 < most.0 {
            [least, most]
        } else {
            [most, least]
        };
        differ(measure, least.1, most.1).then(|| {
            let [from, to] = moments([before.0, after.0]);
            format!(
                "this machine changed between {from} and {to}: {} from {} to {}",
                measure.name,
                (measure.shown)(before.1),
                (measure.shown)(after.1)
            )
        })
    };
    MEASURES.iter().filter_map(change).collect()
}

/// Returns a line for each quantity in which the machines of two records differ: "TCP without emulation:
/// 9400 Mbit/s in the reference, 5000 Mbit/s in the record".
pub(crate) fn against(reference: &[Baseline], record: &[Baseline]) -> Vec<String> {
    let words = |measure: &Measure| {
        let both = [reference, record].map(|all| range(measure, all));
        let [Some(old), Some(new)] = both else {
            return None;
        };
        // The gap between the two ranges. A machine whose values changed during a record does not count as another
        // machine.
        let [least, most] = [old.1.min(new.1), old.0.max(new.0)];
        let in_words = |(least, most): (f64, f64)| {
            if least < most {
                format!("{} to {}", (measure.shown)(least), (measure.shown)(most))
            } else {
                (measure.shown)(least)
            }
        };
        differ(measure, least, most).then(|| {
            format!(
                "{} without emulation: {} in the reference, {} in the record",
                measure.name,
                in_words(old),
                in_words(new)
            )
        })
    };
    MEASURES.iter().filter_map(words).collect()
}

/// Returns the least and the greatest value.
fn range(measure: &Measure, baselines: &[Baseline]) -> Option<(f64, f64)> {
    let values = || baselines.iter().filter_map(measure.of);
    let least = values().min_by(f64::total_cmp)?;
    Some((least, values().max_by(f64::total_cmp)?))
}

fn differ(measure: &Measure, least: f64, most: f64) -> bool {
    measure.alike.is_some_and(|alike| most > alike * least)
}

/// Formats two times, given in RFC 3339 to the second, with "UTC" if they are in UTC. If both are on the same day, the
/// date is left out: "10:02:00 UTC".
fn moments(both: [&str; 2]) -> [String; 2] {
    let [from, to] = both.map(|at| at.split_once('T').unwrap_or((at, "")));
    let is_one_day = from.0 == to.0;
    [from, to].map(|(date, time)| {
        let offset = if time.ends_with('Z') { " UTC" } else { "" };
        let time = time.trim_end_matches('Z').split('.').next().unwrap_or(time);
        if is_one_day {
            format!("{time}{offset}")
        } else {
            format!("{date} {time}{offset}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(minute: u32, tcp: f64, rtt: f64) -> Baseline {
        Baseline {
            started_at: format!("2026-11-22T10:{minute:02}:00.000Z"),
            tcp_bit_per_s: Some(tcp),
            rtt_floor_ms: Some(rtt),
            ..Baseline::default()
        }
    }

    #[test]
    fn the_first_baseline_is_followed_by_the_deviations_of_later_ones() {
        let first = baseline(2, 9.4e9, 0.05);
        assert_eq!(
            in_words(std::slice::from_ref(&first)),
            "TCP 9400 Mbit/s, round trip 0.050 ms"
        );
        let all = [
            first,
            baseline(9, 8.084e9, 0.055),
            baseline(31, 9.588e9, 0.05),
        ];
        assert_eq!(
            in_words(&all),
            "TCP 9400 Mbit/s (later -14 %, then +2 %), round trip 0.050 ms (later +10 %, then +0 %)"
        );
        assert_eq!(in_words(&[]), "");
    }

    #[test]
    fn a_rate_that_changes_by_more_than_a_third_is_reported_with_times() {
        let alike = [baseline(2, 10e9, 0.05), baseline(31, 6.67e9, 0.1)];
        assert!(changes(&alike).is_empty(), "{:?}", changes(&alike));
        let slower = [
            baseline(2, 10e9, 0.05),
            baseline(9, 9e9, 0.05),
            baseline(31, 6.6e9, 0.05),
        ];
        assert_eq!(
            changes(&slower),
            [
                "this machine changed between 10:02:00 UTC and 10:31:00 UTC: TCP from 10000 Mbit/s to 6600 Mbit/s"
            ]
        );
        let quicker = [baseline(2, 6.6e9, 0.05), baseline(31, 10e9, 0.05)];
        assert!(changes(&quicker)[0].ends_with("from 6600 Mbit/s to 10000 Mbit/s"));
        assert!(changes(&slower[..1]).is_empty());
        let mut later = slower;
        later[2].started_at = "2026-11-23T00:01:59.999Z".to_owned();
        let days = "between 2026-11-22 10:02:00 UTC and 2026-11-23 00:01:59 UTC: TCP from";
        assert!(changes(&later)[0].contains(days), "{:?}", changes(&later));
    }

    #[test]
    fn a_round_trip_that_doubles_is_reported() {
        let change = changes(&[baseline(2, 1e9, 0.05), baseline(31, 1e9, 0.101)]);
        assert_eq!(change.len(), 1);
        assert!(change[0].contains("round trip from 0.050 ms to 0.101 ms"));
    }

    #[test]
    fn records_differ_if_their_baseline_ranges_do_not_overlap() {
        let [old, new] = [[baseline(2, 10e9, 0.05)], [baseline(2, 5e9, 0.05)]];
        assert!(against(&old, &old).is_empty());
        assert!(against(&old, &[]).is_empty());
        assert_eq!(
            against(&old, &new),
            ["TCP without emulation: 10000 Mbit/s in the reference, 5000 Mbit/s in the record"]
        );
        let both = [old, new].concat();
        // One record has 5 and 10 Gbit/s. It differs neither from itself nor from a record with one of these values.
        assert!(against(&both, &both).is_empty());
        assert!(against(&both, &both[..1]).is_empty());
        let slow = [baseline(2, 3e9, 0.05)];
        assert_eq!(
            against(&both, &slow),
            [
                "TCP without emulation: 5000 Mbit/s to 10000 Mbit/s in the reference, 3000 Mbit/s in the record"
            ]
        );
    }
}
