//! The rate of a bottleneck that serves at given times: what it served in a window of time.

use model::{Bottleneck, Nanos, StageSpec, Trace};

use crate::route::PathStages;
use crate::trace::WINDOW;

/// Returns the trace of times that a server follows, if it follows one.
fn trace_of(bottleneck: Bottleneck<'_>) -> Option<&Trace> {
    match bottleneck {
        Bottleneck::Trace(trace) => Some(trace),
        Bottleneck::Rate(_) | Bottleneck::Netem(_) | Bottleneck::Toffee(_) => None,
    }
}

/// Returns whether any stage ever serves at given times.
pub(super) fn is_any_traced(stages: &[StageSpec]) -> bool {
    let effects = stages.iter().flat_map(StageSpec::effects);
    let mut bottlenecks = effects.filter_map(|effect| effect.behaviour().bottleneck);
    bottlenecks.any(|bottleneck| trace_of(bottleneck).is_some())
}

/// Returns the number of windows in a span, at least one, in each of which the rate of such stages is counted.
pub(super) fn windows(span: Nanos) -> u64 {
    (span.0 / WINDOW.0).max(1)
}

/// Returns the rate of the slowest stage that serves at given times, in bit/s of L2 bytes, over a span; for a span without
/// a length, over the window before it, or the first one. `None` without such a stage.
pub(super) fn rate(stages: &PathStages, from: Nanos, until: Nanos) -> Option<u64> {
    let (from, until) = if until > from {
        (from, until)
    } else {
        (from - WINDOW, from - WINDOW + WINDOW)
    };
    let length = u128::from((until - from).0);
    let rates = stages.bottlenecks().filter_map(trace_of).map(|trace| {
        let times = &*trace.opportunities;
        let count = times.count_before(until) - times.count_before(from);
        let bits = u128::from(count) * u128::from(times.bytes().0) * 8;
        u64::try_from(bits * 1_000_000_000 / length).unwrap_or(u64::MAX)
    });
    rates.min()
}
