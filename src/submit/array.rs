//! The number of shards of an experiment, and lists of numbers in Slurm's form.

use std::time::Duration;

use crate::experiment::Plan;
use crate::experiment::sharding::{self, ranges};
use record::ShardBy;

/// The largest number of shards that `--shard` accepts.
const MOST_SHARDS: u32 = 10_000;

/// Returns a number of shards from 1 to `most`, as many as possible while each of them takes at least
/// the time `least`.
pub(super) fn shards(plan: &Plan, by: ShardBy, least: Duration, most: u32) -> u32 {
    let all: Duration = sharding::times(plan, 1, by).into_iter().sum();
    let runs: u32 = plan.cases.iter().map(|case| case.repeats.least).sum();
    let most = most.min(MOST_SHARDS).min(runs).max(1);
    let mut shards = whole(all, least).clamp(1, most);
    // Runs cannot be divided, so the shortest shard may take much less than the average.
    while shards > 1 {
        let times = sharding::times(plan, shards, by);
        let shortest = times.into_iter().min().unwrap_or_default();
        if shortest >= least {
            break;
        }
        shards = (shards - 1)
            .min(shards.midpoint(whole(shortest * shards, least)))
            .max(1);
    }
    shards
}

/// Returns how often `part` fits into `all`.
fn whole(all: Duration, part: Duration) -> u32 {
    let times = all.as_nanos() / part.as_nanos().max(1);
    u32::try_from(times).unwrap_or(u32::MAX)
}

/// Formats ascending numbers as sbatch(1) accepts them: "1-4,7".
pub(super) fn list(numbers: &[u32]) -> String {
    ranges(numbers, "-", ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan_of;

    /// Returns a plan with cases given as numbers of runs and seconds per run.
    fn plan(cases: &[(u32, u32)]) -> Plan {
        let cases = cases.iter().enumerate().map(|(at, (repeats, time))| {
            format!("[[cases]]\nname = 'c{at}'\nrepeats = {repeats}\nparameters.load = {{ time = '{time}s' }}\n")
        });
        let text = format!(
            "name = 'x'\ntitle = 'X'\nbed = {{ kind = 'netns' }}\ntcp = {{ congestion = 'reno' }}\n\
             [[instruments]]\nname = 'load'\nkind = 'tcp'\n{}",
            cases.collect::<String>()
        );
        plan_of(&text)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn every_shard_takes_at_least_the_requested_time() {
        for cases in [
            &[(100, 10)][..],
            &[(1, 600), (30, 7)],
            &[(3, 59)],
            &[(50, 61), (3, 1)],
        ] {
            let plan = plan(cases);
            for by in [ShardBy::Run, ShardBy::Case] {
                let count = shards(&plan, by, MINUTE, 1000);
                let times = sharding::times(&plan, count, by);
                let shortest = times.iter().min().unwrap();
                assert!(count == 1 || *shortest >= MINUTE, "{cases:?}: {times:?}");
            }
        }
    }

    #[test]
    fn there_are_as_many_shards_as_possible() {
        // A run takes ten seconds and the time of the test bed.
        assert_eq!(shards(&plan(&[(60, 10)]), ShardBy::Run, MINUTE, 1000), 10);
        assert_eq!(shards(&plan(&[(60, 10)]), ShardBy::Run, MINUTE, 4), 4);
        assert_eq!(shards(&plan(&[(3, 600)]), ShardBy::Run, MINUTE, 1000), 3);
        assert_eq!(shards(&plan(&[(3, 600)]), ShardBy::Case, MINUTE, 1000), 1);
        assert_eq!(shards(&plan(&[(2, 1)]), ShardBy::Run, MINUTE, 1000), 1);
        assert_eq!(
            shards(&plan(&[(5, 1)]), ShardBy::Run, Duration::ZERO, 1000),
            5
        );
    }
}
