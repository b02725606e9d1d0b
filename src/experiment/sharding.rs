//! Assigns the runs of a plan to shards. The result depends only on the plan, so every host
//! computes the same one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run_times::estimate;
use crate::experiment::{Case, Plan};
use record::{Shard, ShardBy, ShardNumber};

/// Runs that stay together in one shard, and their expected total time.
struct Unit<'a> {
    case: &'a str,
    repeats: Vec<u32>,
    /// The number of these runs that take place regardless of how much the first ones scatter.
    certain: usize,
    time: Duration,
}

/// The size of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardSize {
    /// The number of runs that certainly take place.
    pub(crate) runs: usize,
    /// The expected time of these runs in seconds.
    pub(crate) time_s: f64,
}

/// Returns the runs of shard `number` of `plan`.
pub(crate) fn of(plan: &Plan, number: ShardNumber, by: ShardBy) -> Shard {
    let mut all = all(plan, number.of, by);
    all.swap_remove(number.index as usize - 1)
}

/// Divides `plan` into `count` shards.
pub(crate) fn all(plan: &Plan, count: u32, by: ShardBy) -> Vec<Shard> {
    let shard = |(index, units): (u32, Vec<Unit<'_>>)| {
        let mut runs: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for unit in units {
            let repeats = runs.entry(unit.case.to_owned()).or_default();
            repeats.extend(unit.repeats);
        }
        runs.values_mut()
            .for_each(|repeats| repeats.sort_unstable());
        let number = ShardNumber { index, of: count };
        Shard { number, by, runs }
    };
    (1..).zip(parts(plan, count, by)).map(shard).collect()
}

/// Returns the expected time of each of `count` shards of `plan`.
pub(crate) fn times(plan: &Plan, count: u32, by: ShardBy) -> Vec<Duration> {
    let parts = parts(plan, count, by).into_iter();
    let time = |part: Vec<Unit<'_>>| part.iter().map(|unit| unit.time).sum();
    parts.map(time).collect()
}

/// Returns the size of each of `count` shards of `plan`.
pub(crate) fn sizes(plan: &Plan, count: u32, by: ShardBy) -> Vec<ShardSize> {
    let parts = parts(plan, count, by);
    let size = |part: &Vec<Unit<'_>>| ShardSize {
        runs: part.iter().map(|unit| unit.certain).sum(),
        time_s: part.iter().map(|unit| unit.time.as_secs_f64()).sum(),
    };
    parts.iter().map(size).collect()
}

/// Formats ascending numbers with consecutive ones as ranges, such as "1-4,7" or "1 to 4, 7".
pub(crate) fn ranges(numbers: &[u32], to: &str, between: &str) -> String {
    let rows = numbers.chunk_by(|a, b| a + 1 == *b);
    let words = rows.map(|row| match row {
        [first, .., last] => format!("{first}{to}{last}"),
        _ => row.iter().map(u32::to_string).collect(),
    });
    words.collect::<Vec<_>>().join(between)
}

/// Divides the plan's runs into `count` parts. Units are assigned in order of decreasing time, and
/// by case and repeat if times are equal; each goes to the part with the least total time. No two
/// parts therefore differ by more than the longest unit.
fn parts(plan: &Plan, count: u32, by: ShardBy) -> Vec<Vec<Unit<'_>>> {
    let mut units: Vec<Unit<'_>> = plan.cases.iter().flat_map(|case| units(case, by)).collect();
    units.sort_by(|a, b| {
        let key = |unit: &Unit<'_>| Reverse(unit.time);
        let of_equal = || (a.case, &a.repeats).cmp(&(b.case, &b.repeats));
        key(a).cmp(&key(b)).then_with(of_equal)
    });
    let mut parts: Vec<Vec<Unit<'_>>> = Vec::new();
    parts.resize_with(count as usize, Vec::new);
    // The top of the heap is the first of the parts with the least total time.
    let mut times: BinaryHeap<_> = (0..parts.len())
        .map(|at| Reverse((Duration::ZERO, at)))
        .collect();
    for unit in units {
        if let Some(mut top) = times.peek_mut() {
            let Reverse((time, at)) = &mut *top;
            *time += unit.time;
            parts[*at].push(unit);
        }
    }
    parts
}

/// Returns the smallest units into which the runs of `case` can be divided. If the scatter of the
/// first runs decides the number of runs, all of them stay on one host, and the unit's time covers
/// only the runs that certainly take place.
fn units(case: &Case, by: ShardBy) -> Vec<Unit<'_>> {
    let time = estimate(case);
    let unit = |repeats: Vec<u32>, time| Unit {
        case: &case.name,
        certain: repeats.len().min(case.repeats.least as usize),
        repeats,
        time,
    };
    if by == ShardBy::Case || case.repeats.until.is_some() {
        let all = (1..=case.repeats.most).collect();
        return vec![unit(all, time * case.repeats.least)];
    }
    let runs = 1..=case.repeats.least;
    runs.map(|repeat| unit(vec![repeat], time)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan_of;

    fn plan(cases: &str) -> Plan {
        let text = format!(
            "name = 'x'\ntitle = 'X'\nbed = {{ kind = 'netns' }}\ntcp = {{ congestion = 'reno' }}\n\
             [[instruments]]\nname = 'load'\nkind = 'tcp'\n{cases}"
        );
        plan_of(&text)
    }

    /// Draws a scenario of 100 to 1,000 runs.
    fn random_plan(seed: u64) -> Plan {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut cases, mut left) = (String::new(), random.u32(100..=1000));
        while left > 0 {
            let repeats = random.u32(1..=30).min(left);
            left -= repeats;
            let time = random.u32(1..=600);
            cases += &format!(
                "[[cases]]\nname = 'case-{left}'\nrepeats = {repeats}\nparameters.load = {{ time = '{time}s' }}\n"
            );
        }
        plan(&cases)
    }

    /// Returns the expected time of each part and the time of the longest unit.
    fn times_and_longest(plan: &Plan, count: u32, by: ShardBy) -> (Vec<Duration>, Duration) {
        let parts = parts(plan, count, by);
        let units = parts.iter().flatten().map(|unit| unit.time);
        let longest = units.max().unwrap_or_default();
        (times(plan, count, by), longest)
    }

    #[test]
    fn eight_parts_differ_by_a_tenth_or_by_the_longest_run_at_most() {
        for seed in 0..100 {
            let plan = random_plan(seed);
            for by in [ShardBy::Run, ShardBy::Case] {
                let (times, longest) = times_and_longest(&plan, 8, by);
                let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
                let allowed = (*most / 10).max(longest);
                assert!(
                    *most - *least <= allowed,
                    "seed {seed}: {least:?} to {most:?}"
                );
            }
        }
    }

    #[test]
    fn every_run_is_in_one_part() {
        for seed in 0..20 {
            let plan = random_plan(seed);
            for by in [ShardBy::Run, ShardBy::Case] {
                let shards = all(&plan, 8, by);
                for case in &plan.cases {
                    for repeat in 1..=case.repeats.most {
                        let have = shards.iter().filter(|shard| shard.has(&case.name, repeat));
                        assert_eq!(have.count(), 1, "seed {seed}: {} {repeat}", case.name);
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_of_the_cases_in_the_file_does_not_matter() {
        let plan = random_plan(1);
        let mut reversed = plan.clone();
        reversed.cases.reverse();
        let both = [&plan, &reversed].map(|plan| all(plan, 7, ShardBy::Run));
        assert_eq!(both[0], both[1]);
    }

    #[test]
    fn a_case_stays_whole_by_case_or_if_its_scatter_decides() {
        let cases = "[[cases]]\nname = 'a'\nrepeats = 4\n\
                     [[cases]]\nname = 'b'\nrepeats = { of = 'load.goodput_bit_per_s.mean', within = '5%' }\n";
        let plan = plan(cases);
        let owners = |case: &str, by| {
            let shards = all(&plan, 3, by);
            shards.iter().filter(|s| s.runs.contains_key(case)).count()
        };
        assert_eq!(owners("a", ShardBy::Case), 1);
        assert_eq!(owners("b", ShardBy::Case), 1);
        assert_eq!(owners("a", ShardBy::Run), 2);
        assert_eq!(owners("b", ShardBy::Run), 1);
        let whole = |shard: &&Shard| shard.runs.get("b").is_some_and(|b| b.len() == 30);
        assert_eq!(all(&plan, 3, ShardBy::Run).iter().filter(whole).count(), 1);
        // Four runs of case `a`, and the five certain runs of case `b`.
        let sizes = sizes(&plan, 3, ShardBy::Run);
        assert_eq!(sizes.iter().map(|size| size.runs).sum::<usize>(), 9);
    }

    #[test]
    fn consecutive_numbers_are_a_range() {
        assert_eq!(
            ranges(&[1, 2, 3, 4, 7, 9, 10], " to ", ", "),
            "1 to 4, 7, 9 to 10"
        );
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10], "-", ","), "1-3,7,9-10");
        assert_eq!(ranges(&[5], "-", ","), "5");
    }

    #[test]
    fn more_parts_than_runs_leave_some_without_any() {
        let plan = plan("[[cases]]\nname = 'a'\nrepeats = 2\n");
        let shards = all(&plan, 4, ShardBy::Run);
        let empty = shards.iter().filter(|shard| shard.runs.is_empty());
        assert_eq!(empty.count(), 2);
    }
}
