//! How long a run should take.

use std::time::Duration;

use instruments::measure::expected;
use record::plan::Case;

/// Setting up a rig and taking it down.
const RIG_TIME: Duration = Duration::from_millis(500);

/// About how long a run of `case` takes, where that can be said: instruments without a stated time are left out.
pub(crate) fn estimate(case: &Case) -> Duration {
    let groups = case.groups();
    let times = groups.iter().map(|group| {
        let each = group.iter().filter_map(expected);
        each.max().unwrap_or_default()
    });
    times.sum::<Duration>() + RIG_TIME
}
