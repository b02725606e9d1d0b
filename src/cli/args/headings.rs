//! Headings under which help screens list options.

/// The heading of the options that every command has.
pub(crate) const GENERAL: &str = "General";
/// The heading of options that write files.
pub(crate) const OUTPUT: &str = "Output";
/// The heading of the live page, the API and the terminal screen.
pub(crate) const LIVE: &str = "Live view and control";
/// The heading of options that concern the emulator's precision and memory.
pub(crate) const EMULATOR: &str = "Emulator";
