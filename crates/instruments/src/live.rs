//! Progress lines of a running instrument, printed only to a terminal.

use std::fmt::Arguments;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use netio::console;
use record::printable::printable_lines;

/// A printer of lines on standard error, which can be disabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    enabled: bool,
}

impl Live {
    /// Returns a printer that prints nothing.
    pub fn quiet() -> Self {
        Self::default()
    }

    /// Returns a printer that prints if standard error is a terminal.
    pub fn on_terminal() -> Self {
        Self {
            enabled: io::stderr().is_terminal(),
        }
    }

    /// Returns a printer of one line per second for a measurement that began at `start`.
    pub(crate) fn since(self, start: Instant) -> ProgressLine {
        ProgressLine {
            live: self,
            start,
            next: SECOND,
        }
    }

    /// Prints one line.
    pub(crate) fn line(self, text: Arguments<'_>) {
        if self.enabled {
            console::say(&printable_lines(&text.to_string()));
        }
    }
}

/// The least time between two lines about a running measurement.
const SECOND: Duration = Duration::from_secs(1);

/// A printer of one line per second about a running measurement.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    live: Live,
    start: Instant,
    next: Duration,
}

impl ProgressLine {
    /// Prints the time since the start and the result of `text`, if the previous line is at least a second old.
    pub(crate) fn print(&mut self, text: impl FnOnce() -> String) {
        let now = self.start.elapsed();
        if now >= self.next {
            self.next = now + SECOND;
            let line = format_args!("{:.1} s: {}", now.as_secs_f64(), text());
            self.live.line(line);
        }
    }
}
