//! The sentences with which the report of a far end's log opens: how many tests there were, how fast they were, and which
//! clients and hours differ most.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use record::Metric;
use record::printable::printable;
use record::quantity::{counted, quantity};

use super::{ServerReport, Spread, TestGroup};
use crate::field_words::listed;

/// Greatest number of rates that are stated.
const MOST_STATED: usize = 3;

/// The rates of the tests of a group in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupRate<'a> {
    pub(super) group: &'a TestGroup,
    /// The direction: up is what the far end received.
    way: &'static str,
    /// The rates in bits per second.
    pub(super) spread: Spread,
}

impl<'a> GroupRate<'a> {
    /// Returns the rates of a group, one for each direction in which its tests carried payload.
    pub(super) fn of(group: &'a TestGroup) -> impl Iterator<Item = Self> {
        let ways = [("up", group.up_bit_per_s), ("down", group.down_bit_per_s)];
        ways.into_iter().filter_map(move |(way, spread)| {
            let spread = spread?;
            Some(Self { group, way, spread })
        })
    }

    /// Returns the kind of the tests and the direction: "transfer (up)".
    pub(super) fn name(&self) -> String {
        format!("{} ({})", self.group.test, self.way)
    }

    /// Returns the mean and the number of tests: "43.00 Mbit/s in 8 tests".
    pub(super) fn in_words(&self) -> String {
        let rate = quantity(Metric::GoodputBitPerS, self.spread.mean);
        format!("{rate} in {}", counted(self.spread.count, "test"))
    }
}

/// Returns whether both are rates of the same kind of test in the same direction.
pub(super) fn are_alike(one: &GroupRate<'_>, other: &GroupRate<'_>) -> bool {
    (one.group.test.as_str(), one.way) == (other.group.test.as_str(), other.way)
}

/// Returns the rates of all kinds of tests; those of the most tests come first.
pub(super) fn rates(report: &ServerReport) -> Vec<GroupRate<'_>> {
    let mut rates: Vec<GroupRate<'_>> = report.kinds.iter().flat_map(GroupRate::of).collect();
    rates.sort_by_key(|rate| Reverse(rate.spread.count));
    rates
}

/// Returns the sentences: the number of tests, their rates, the clients and the hours that differ most, and what does not
/// follow from that.
pub(super) fn sentences(report: &ServerReport) -> Vec<String> {
    let rates = rates(report);
    let differences = rates.first().and_then(|rate| differences(report, rate));
    let limits = differences.as_ref().map(|_| {
        "Limits: the clients chose when and what they measured, so a difference need not be due to the network.".to_owned()
    });
    let all = [Some(count(report)), means(&rates), differences, limits];
    let known = all.into_iter().flatten();
    known
        .map(|sentence| printable(&sentence).into_owned())
        .collect()
}

/// Says how many tests there were, of whom and when.
fn count(report: &ServerReport) -> String {
    let clients = report.clients.iter().map(|group| &group.of);
    let clients = clients.collect::<BTreeSet<_>>().len();
    let times = report
        .first_ended_at
        .as_ref()
        .zip(report.last_ended_at.as_ref());
    let Some((first, last)) = times else {
        return "The log contains no finished test.".to_owned();
    };
    let failed = match report.failed {
        0 => "none of which failed".to_owned(),
        failed => format!("{failed} of which failed"),
    };
    format!(
        "{} of {}, {failed}; the first ended at {first}, the last at {last}.",
        counted(report.tests, "test"),
        counted(clients, "client")
    )
}

/// States the mean rates; `None` if no test carried payload.
fn means(rates: &[GroupRate<'_>]) -> Option<String> {
    let stated = rates.iter().take(MOST_STATED);
    let stated: Vec<String> = stated
        .map(|rate| format!("{} of {}", rate.in_words(), rate.name()))
        .collect();
    let more = match rates.len() - stated.len() {
        0 => String::new(),
        more => format!("; {} below", counted(more, "more rate")),
    };
    (!stated.is_empty()).then(|| format!("The mean rate was {}{more}.", listed(&stated)))
}

/// States with which clients and in which hours a rate was lowest and highest; `None` if there are no two that differ.
fn differences(report: &ServerReport, rate: &GroupRate<'_>) -> Option<String> {
    let clauses: Vec<String> = [
        extremes("client", "for", &report.clients, rate),
        extremes("hour", "from", &report.hours, rate),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!clauses.is_empty()).then(|| {
        format!(
            "The mean rate of {} differs: {}.",
            rate.name(),
            clauses.join("; ")
        )
    })
}

/// States for which of these groups a rate was lowest and highest.
fn extremes(by: &str, before: &str, groups: &[TestGroup], rate: &GroupRate<'_>) -> Option<String> {
    let own: Vec<GroupRate<'_>> = groups
        .iter()
        .flat_map(GroupRate::of)
        .filter(|one| are_alike(one, rate))
        .collect();
    let by_mean = |a: &&GroupRate<'_>, b: &&GroupRate<'_>| a.spread.mean.total_cmp(&b.spread.mean);
    let (lowest, highest) = (own.iter().min_by(by_mean)?, own.iter().max_by(by_mean)?);
    let [low, high] =
        [lowest, highest].map(|one| format!("{before} {} ({})", one.group.label(), one.in_words()));
    (lowest.spread.mean < highest.spread.mean)
        .then(|| format!("by {by}, it was lowest {low} and highest {high}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the report of a log with a transfer for each of these clients, hours and rates in Mbit/s.
    pub(crate) fn report(transfers: &[(&str, u32, f64)]) -> ServerReport {
        let line = |(client, hour, mbit_per_s): &(&str, u32, f64)| {
            let rate = mbit_per_s * 1e6;
            format!(
                r#"{{"ended_at":"2026-11-26T{hour}:30:00.000Z","test":"transfer","peer":"{client}:9","duration_s":1.0,"figures":[{{"metric":"goodput_bit_per_s","statistic":"mean","value":{rate:?},"direction":"up"}}],"facts":{{}},"failure":null}}"#
            ) + "\n"
        };
        let log: String = transfers.iter().map(line).collect();
        ServerReport::of(log.as_bytes()).unwrap()
    }

    #[test]
    fn the_clients_and_the_hours_with_the_lowest_and_the_highest_rate_are_stated() {
        let found = sentences(&report(&[
            ("192.0.2.1", 10, 40.0),
            ("192.0.2.1", 11, 20.0),
            ("192.0.2.2", 11, 10.0),
        ]));
        assert_eq!(
            found,
            [
                "3 tests of 2 clients, none of which failed; the first ended at 2026-11-26T10:30:00.000Z, the last at \
                 2026-11-26T11:30:00.000Z.",
                "The mean rate was 23.33 Mbit/s in 3 tests of transfer (up).",
                "The mean rate of transfer (up) differs: by client, it was lowest for 192.0.2.2 (10.00 Mbit/s in 1 test) and \
                 highest for 192.0.2.1 (30.00 Mbit/s in 2 tests); by hour, it was lowest from 2026-11-26 11:00 (15.00 Mbit/s \
                 in 2 tests) and highest from 2026-11-26 10:00 (40.00 Mbit/s in 1 test).",
                "Limits: the clients chose when and what they measured, so a difference need not be due to the network.",
            ]
        );
    }

    #[test]
    fn a_single_client_in_a_single_hour_is_compared_with_nothing() {
        let found = sentences(&report(&[("192.0.2.1", 10, 40.0), ("192.0.2.1", 10, 20.0)]));
        assert_eq!(found.len(), 2, "{found:?}");
        let nothing = sentences(&ServerReport::default());
        assert_eq!(nothing, ["The log contains no finished test."]);
    }

    #[test]
    fn the_rates_of_the_most_tests_are_stated_and_the_others_counted() {
        let log = include_str!("../../../../tests/fixtures/serve.jsonl");
        let found = sentences(&ServerReport::of(log.as_bytes()).unwrap());
        assert_eq!(
            found[1],
            "The mean rate was 43.00 Mbit/s in 8 tests of transfer (up), 381.0 Mbit/s in 1 test of http (down) and 941.0 \
             Mbit/s in 1 test of tcp (down); 1 more rate below."
        );
    }
}
