//! `--repeats`: the same number of repeats for every case of a plan.

use anyhow::{Result, ensure};

use crate::experiment::Plan;
use record::plan::Repeats;

/// Gives every case of `plan` this number of repeats, also those whose first runs would decide it.
///
/// # Errors
/// Fails if an expectation or a trend needs more repeats, or if there would be too many runs.
pub(crate) fn repeat_each(plan: &mut Plan, count: u32) -> Result<()> {
    for case in &mut plan.cases {
        case.repeats = Repeats::fixed(count);
    }
    plan.check_runs()?;
    for case in &plan.cases {
        for expectation in &case.expect {
            let place = format!("case `{}`: {}", case.name, expectation.of);
            check(count, expectation.fewest_runs(), &place)?;
        }
    }
    for trend in &plan.trends {
        check(
            count,
            trend.fewest_runs(),
            &format!("trend of {}", trend.of),
        )?;
    }
    Ok(())
}

/// Refuses a number of repeats that is smaller than an expectation needs.
fn check(count: u32, fewest: usize, place: &str) -> Result<()> {
    ensure!(
        count as usize >= fewest,
        "--repeats {count}: {place}: this expectation needs at least {fewest} repeats"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan_of;

    const HEAD: &str = "name = 'x'\ntitle = 'X'\nbed = { kind = 'netns' }\ntcp = { congestion = 'reno' }\n\
                        [[instruments]]\nname = 'ping'\nkind = 'ping'\n";

    #[test]
    fn every_case_has_the_requested_repeats() {
        let cases = "[[cases]]\nname = 'a'\nrepeats = 9\n[[cases]]\nname = 'b'\n\
                     [[cases]]\nname = 'c'\nrepeats = { of = 'ping.rtt_ms.median', within = '5%' }\n";
        let mut plan = plan_of(&format!("{HEAD}{cases}"));
        repeat_each(&mut plan, 3).unwrap();
        let mut cases = plan.cases.iter();
        assert!(cases.all(|case| case.repeats == Repeats::fixed(3)));
        assert_eq!(plan.rounds(), 3);
    }

    #[test]
    fn an_expectation_keeps_the_repeats_that_it_needs() {
        let cases = "[[cases]]\nname = 'a'\nrepeats = 11\n\
                     expect = [{ of = 'ping.rtt_ms.median', least = '1ms', over = 'median', met = 'unless-contradicted' }]\n";
        let mut plan = plan_of(&format!("{HEAD}{cases}"));
        let fewest = plan.cases[0].expect[0].fewest_runs();
        repeat_each(&mut plan, u32::try_from(fewest).unwrap()).unwrap();
        let refused = repeat_each(&mut plan, 2).unwrap_err().to_string();
        let place = "--repeats 2: case `a`: ping.rtt_ms.median: ";
        assert!(refused.starts_with(place), "{refused}");
        let needs = format!("needs at least {fewest} repeats");
        assert!(refused.ends_with(&needs), "{refused}");
    }

    #[test]
    fn too_many_runs_are_refused() {
        let mut plan = plan_of(&format!(
            "{HEAD}[[cases]]\nname = 'a'\n[[cases]]\nname = 'b'\n"
        ));
        let refused = repeat_each(&mut plan, 500_001).unwrap_err().to_string();
        assert!(refused.contains("at most 100000 runs"), "{refused}");
    }
}
