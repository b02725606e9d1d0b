//! Why a cell does not hold, or deviates: named from what the record has of its run.

use super::standing::{CalibrationCell, Standing};
use super::truth::{Crossing, Truth};
use crate::analysis::ceiling;
use record::quantity;
use record::quantity::counted;
use record::{Metric, Statistic};
use record::{Record, Run, RunOutcome};

/// A miss by no more than this share of the interval's width is what one 95 % interval in twenty does.
const BY_CHANCE: f64 = 0.25;
/// A sender that is late with more of its packets than this does not keep the rate it was asked for.
const MOST_LATE_PERCENT: f64 = 10.0;

/// One run of a cell: the first that missed, or the first.
pub(super) struct ObservedRun<'a> {
    pub(super) record: &'a Record,
    /// All of the cell's.
    pub(super) runs: &'a [&'a Run],
    pub(super) crossing: &'a Crossing<'a>,
    pub(super) truth: Truth,
    pub(super) interval: Option<[f64; 2]>,
}

/// In words; nothing of a cell that is to be trusted.
pub(super) fn of(cell: &CalibrationCell, seen: &ObservedRun<'_>) -> Option<String> {
    let cause = match (cell.standing, seen.interval) {
        (Standing::Holds, _) if cell.is_trusted() => return spoilt(seen.runs),
        (Standing::Holds, _) => seen.host().unwrap_or_else(|| within(cell)),
        (Standing::Misses, Some(interval)) => seen.missed(cell.figure.metric, interval),
        _ => seen.unstated(),
    };
    Some(match spoilt(seen.runs) {
        Some(also) => format!("{cause}; {also}"),
        None => cause,
    })
}

impl ObservedRun<'_> {
    /// What the host, not the network, had its part in.
    fn host(&self) -> Option<String> {
        let crossing = self.crossing;
        let figures = crossing.measurement.figures.iter();
        let figures = figures.filter(|figure| figure.stream.is_none());
        let figures: Vec<_> = figures.map(|f| (f.metric, f.statistic, f.value)).collect();
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

    /// Why the interval misses.
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
        // Of a download, what goes up is its handful of questions.
        let packet = 100.0 / link.up.packets.max(link.down.packets).max(1) as f64;
        if metric == Metric::LostPercent && beyond <= packet {
            return format!("{by}: less than the share of one packet");
        }
        let width = interval[1] - interval[0];
        if width.is_finite() && beyond <= BY_CHANCE * width {
            let share = 100.0 * beyond / width;
            return format!(
                "{by}, {share:.0} % of the interval's width: one 95 % interval in twenty misses by chance"
            );
        }
        format!("{by}: the interval is too narrow here, for a reason that the record does not show")
    }

    /// Why there is no interval.
    fn unstated(&self) -> String {
        let fact = self.crossing.measurement.facts.get("interval");
        match fact.filter(|fact| fact.starts_with("none")) {
            Some(fact) => format!("no interval: {fact}"),
            None => "no interval: too few values".to_owned(),
        }
    }
}

/// Why a value deviates whose interval holds the truth.
fn within(cell: &CalibrationCell) -> String {
    let above = cell.bias.is_some_and(|bias| bias > 0.0);
    match cell.figure.metric.unit() {
        "ms" if above => "the figure contains the hosts' own time; the interval's lower end allows for that",
        "bit/s" if !above => {
            "packets in flight at the end count for the emulator, not for the receiver; the interval's upper end allows for \
             that"
        }
        _ => "the deviation is within the interval",
    }
    .to_owned()
}

/// Runs that cannot count.
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
