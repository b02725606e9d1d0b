//! The rate of a bottleneck that serves at given times: what it served in a window of time.

use model::{Effect, Nanos, Opportunities, StageSpec, Trace};

use crate::route::PathStages;
use crate::trace::WINDOW;

/// Returns the trace of times that an effect follows, if it follows one.
fn trace_of(effect: &Effect) -> Option<&Trace> {
    match effect {
        Effect::Trace(trace) => Some(trace),
        Effect::CellReplay(loads) => Some(&loads.full),
        _ => None,
    }
}

/// Returns whether any stage ever serves at given times.
pub(super) fn is_any_traced(stages: &[StageSpec]) -> bool {
    let mut effects = stages.iter().flat_map(StageSpec::effects);
    effects.any(|effect| trace_of(effect).is_some())
}

/// Returns the number of windows in a span, at least one, by which the rate of such stages is told.
pub(super) fn windows(span: Nanos) -> u64 {
    (span.0 / WINDOW.0).max(1)
}

/// Returns the rate of the slowest stage that serves at given times, in bit/s of L2 bytes, over a span; for a span without
/// a length, over the window before it. `None` without such a stage, and before the first window of one.
pub(super) fn rate(stages: &PathStages, from: Nanos, until: Nanos) -> Option<u64> {
    let from = if until > from { from } else { from - WINDOW };
    let length = u128::from((until - from).0);
    if length == 0 {
        return None;
    }
    let effects = stages.0.iter().map(|stage| &stage.effect);
    let rates = effects.filter_map(trace_of).map(|trace| {
        let times = &*trace.opportunities;
        let count = count_before(times, until) - count_before(times, from);
        let bits = u128::from(count) * u128::from(times.bytes().0) * 8;
        u64::try_from(bits * 1_000_000_000 / length).unwrap_or(u64::MAX)
    });
    rates.min()
}

/// Returns the number of opportunities before a time.
fn count_before(times: &dyn Opportunities, time: Nanos) -> u64 {
    let mut above = 1_u64;
    while times.at(above - 1) < time && above < u64::MAX / 2 {
        above *= 2;
    }
    let (mut low, mut high) = (above / 2, above);
    while low < high {
        let middle = low + (high - low) / 2;
        if times.at(middle) < time {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
