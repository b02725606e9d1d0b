//! Finds the reason why a cell misses or deviates, from the record of its run.

use super::standing::{CalibrationCell, CellStatus};
use super::truth::{Crossing, Truth};
use crate::analysis::ceiling;
use record::quantity;
use record::quantity::counted;
use record::{Metric, Statistic};
use record::{Record, Run, RunOutcome};

/// Largest miss, as a share of the interval's width, that is attributed to chance. A 95 % interval misses in one run of
/// twenty.
const BY_CHANCE: f64 = 0.25;
/// Share of late packets in percent from which a sender counts as not keeping its rate.
const MOST_LATE_PERCENT: f64 = 10.0;

/// The run of a cell that is examined: the first that missed, or else the first.
pub(super) struct ObservedRun<'a> {
    pub(super) record: &'a Record,
    /// All runs of the cell.
    pub(super) runs: &'a [&'a Run],
    pub(super) crossing: &'a Crossing<'a>,
    pub(super) truth: Truth,
    pub(super) interval: Option<[f64; 2]>,
}

/// Returns the cause in words, or `None` for a trusted cell.
pub(super) fn of(cell: &CalibrationCell, seen: &ObservedRun<'_>) -> Option<String> {
    let cause = match (cell.standing, seen.interval) {
        (CellStatus::Holds, _) if cell.is_trusted() => return spoilt(seen.runs),
        (CellStatus::Holds, _) => seen.host().unwrap_or_else(|| within(cell)),
        (CellStatus::Misses, Some(interval)) => seen.missed(cell.figure.metric, interval),
        _ => seen.unstated(),
    };
    Some(match spoilt(seen.runs) {
        Some(also) => format!("{cause}; {also}"),
        None => cause,
    })
}

impl ObservedRun<'_> {
    /// Returns the influence of the host, if it had one.
    fn host(&self) -> Option<String> {
        let crossing = self.crossing;
        let figures: Vec<_> = crossing
            .measurement
            .figures
            .iter()
            .filter(|figure| figure.stream.is_none())
            .map(|f| (f.metric, f.statistic, f.value))
            .collect();
        if let Some(near) = ceiling::near(self.record, crossing.case, crossing.instrument, &figures)
        {
            return Some(near);
        }
        let value = |metric, statistic| {
            let mut all = figures.iter();
            let found = all.find(|(m, s, _)| (*m, *s) == (metric, statistic));
            found.map_or(0.0, |(.., value)| *value)
        };
        let dropped = value(Metric::HostDroppedPackets, Statistic::Total);
        if dropped > 0.0 {
            return Some(format!(
                "the receiving host dropped {}",
                counted(dropped, "packet")
            ));
        }
        let late = value(Metric::LateTrainsPercent, Statistic::Mean);
        (late > MOST_LATE_PERCENT)
            .then(|| format!("the sending host sent {late:.0} % of its packets late"))
    }

    /// Returns the reason why the interval misses.
    fn missed(&self, metric: Metric, interval: [f64; 2]) -> String {
        let beyond = self.truth.beyond(interval);
        let by = format!("outside by {}", quantity(metric, beyond));
        if let Some(host) = self.host() {
            return format!("{by}: {host}");
        }
        let lateness = self.crossing.link.departure_error.p99_ns as f64 / 1e6;
        if metric.unit() == "ms" && beyond <= lateness {
            return format!(
                "{by}: within the emulator's own departure error, p99 {lateness:.3} ms"
            );
        }
        let link = self.crossing.link;
        // In a download, one direction has only a few requests.
        let packet = 100.0 / link.up.packets.max(link.down.packets).max(1) as f64;
        if metric == Metric::LostPercent && beyond <= packet {
            return format!("{by}: less than one packet");
        }
        let width = interval[1] - interval[0];
        if width.is_finite() && beyond <= BY_CHANCE * width {
            let share = 100.0 * beyond / width;
            return format!(
                "{by}, {share:.0} % of the interval's width: one 95 % interval in twenty misses by chance"
            );
        }
        format!("{by}: the interval is too narrow here, and the record does not show why")
    }

    /// Returns the reason why there is no interval.
    fn unstated(&self) -> String {
        let fact = self.crossing.measurement.facts.get("interval");
        match fact.filter(|fact| fact.starts_with("none")) {
            Some(fact) => format!("no interval: {fact}"),
            None => "no interval: too few values".to_owned(),
        }
    }
}

/// Returns the reason why the value deviates although its interval contains the truth.
fn within(cell: &CalibrationCell) -> String {
    let above = cell.bias.is_some_and(|bias| bias > 0.0);
    match cell.figure.metric.unit() {
        "ms" if above => "the figure includes time that the hosts take; the lower end of the interval allows for that",
        "bit/s" if !above => {
            "packets in flight at the end count for the emulator, not for the receiver; the interval's upper end allows for \
             that"
        }
        _ => "the deviation is within the interval",
    }
    .to_owned()
}

/// Returns the reason why none of the runs counts.
fn spoilt(runs: &[&Run]) -> Option<String> {
    let spoilt: Vec<String> = runs
        .iter()
        .filter_map(|run| match &run.outcome {
            RunOutcome::Ok => None,
            RunOutcome::Failed { cause } => Some(format!("run {} failed: {cause}", run.repeat)),
            RunOutcome::Invalid { cause } => {
                Some(format!("run {} is INVALID: {cause}", run.repeat))
            }
        })
        .collect();
    (!spoilt.is_empty()).then(|| spoilt.join("; "))
}
