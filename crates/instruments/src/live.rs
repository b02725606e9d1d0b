//! The line that a running instrument says an interval, to a terminal only.

use std::fmt::Arguments;
use std::io::{self, IsTerminal};

/// Says lines on standard error, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    enabled: bool,
}

impl Live {
    /// Says nothing.
    pub fn quiet() -> Self {
        Self { enabled: false }
    }

    /// Speaks if standard error is a terminal.
    pub fn on_terminal() -> Self {
        Self {
            enabled: io::stderr().is_terminal(),
        }
    }

    /// Says one line.
    pub(crate) fn line(self, text: Arguments<'_>) {
        if self.enabled {
            eprintln!("{text}");
        }
    }
}
