//! Converts instants of the packet path's clock to wall-clock time.

use jiff::Timestamp;
use model::Nanos;
use netio::clock;

/// Both clocks, read together when the link started. Later steps of the wall clock are ignored, so
/// that times of one link can be subtracted.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClock {
    mono: Nanos,
    wall: Nanos,
}

impl WallClock {
    /// Reads both clocks.
    pub(super) fn now() -> Self {
        Self {
            wall: clock::wall(),
            mono: clock::now(),
        }
    }

    /// Formats the wall-clock time of an instant: RFC 3339, UTC, with nanoseconds.
    pub(super) fn at(&self, instant: Nanos) -> String {
        let since_1970 = i128::from(self.wall.0) + i128::from(instant.0) - i128::from(self.mono.0);
        let time = Timestamp::from_nanosecond(since_1970).unwrap_or_default();
        format!("{time:.9}")
    }
}

/// Converts a duration to seconds.
pub(super) fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

/// Returns the time from one instant to a later one.
pub(super) fn since(earlier: Nanos, later: Nanos) -> Nanos {
    Nanos(later.0.saturating_sub(earlier.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_formatted_as_wall_clock_time() {
        let wall_clock = WallClock {
            mono: Nanos(5_000_000_000),
            wall: Nanos(1_700_000_000_000_000_000),
        };
        let at = |instant| wall_clock.at(Nanos(instant));
        assert_eq!(at(5_000_000_007), "2023-11-14T22:13:20.000000007Z");
        assert_eq!(at(4_000_000_000), "2023-11-14T22:13:19.000000000Z");
    }
}
