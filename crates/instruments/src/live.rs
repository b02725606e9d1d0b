//! The line that a running instrument says an interval, to a terminal only.

use std::fmt::Arguments;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use netio::console;
use record::printable::printable_lines;

/// Says lines on standard error, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    enabled: bool,
}

impl Live {
    /// Says nothing.
    pub fn quiet() -> Self {
        Self::default()
    }

    /// Speaks if standard error is a terminal.
    pub fn on_terminal() -> Self {
        Self {
            enabled: io::stderr().is_terminal(),
        }
    }

    /// Says a line a second about what began at `start`.
    pub(crate) fn since(self, start: Instant) -> ProgressLine {
        ProgressLine {
            live: self,
            start,
            next: SECOND,
        }
    }

    /// Says one line.
    pub(crate) fn line(self, text: Arguments<'_>) {
        if self.enabled {
            console::say(&printable_lines(&text.to_string()));
        }
    }
}

/// From one line about a running measurement to the next.
const SECOND: Duration = Duration::from_secs(1);

/// Says a line a second about a running measurement.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    live: Live,
    start: Instant,
    next: Duration,
}

impl ProgressLine {
    /// Says what `text` gives, behind the time since the start, if the line before was said a second ago.
    pub(crate) fn tell(&mut self, text: impl FnOnce() -> String) {
        let now = self.start.elapsed();
        if now >= self.next {
            self.next = now + SECOND;
            let line = format_args!("{:.1} s: {}", now.as_secs_f64(), text());
            self.live.line(line);
        }
    }
}
