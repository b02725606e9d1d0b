//! Captures at both ends of a link, as pcapng: every packet as it arrived and as it left, with its
//! outcome in a comment.
//!
//! The tap in the packet path copies frames. A separate thread splits them into packets, sorts
//! these by time and writes them. The buffer between the two has a bounded size. If it is full, or
//! if captures have used up their share of the packet path's time, further frames are counted but
//! not kept.

mod comment;
mod tap;
#[cfg(test)]
mod tests;
mod time_share;
mod writer;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use conditions::filter::Filter;
use instruments::output;
use model::{Nanos, Side};
use record::summary::CaptureSummary;

use tap::WaitingBatches;
pub(crate) use tap::{Captures, Tap};
pub(crate) use time_share::TimeShare;

/// The packets that a capture keeps, and its limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaptureSpec {
    /// The end of the link to capture; both ends if `None`.
    pub(crate) side: Option<Side>,
    /// The filter that packets must pass.
    pub(crate) filter: Filter,
    /// The number of bytes kept of each packet; 0 keeps all.
    pub(crate) snaplen: u32,
    /// The size in bytes at which the capture ends.
    pub(crate) most_bytes: Option<u64>,
    /// The time after which the capture ends.
    pub(crate) most_time: Option<Nanos>,
    /// The descriptions of the ends A and B.
    pub(crate) ends: [String; 2],
}

/// A capture that has not started.
pub(crate) struct Capture {
    /// The packets that it keeps, and its limits.
    pub(crate) spec: CaptureSpec,
    /// The destination of the pcapng data.
    pub(crate) sink: Box<dyn Write + Send>,
}

/// A running capture. It ends when this handle is dropped.
#[derive(Debug)]
pub(crate) struct CaptureHandle {
    stopped: Arc<AtomicBool>,
    writer: Option<JoinHandle<CaptureSummary>>,
}

impl Capture {
    /// Creates a capture in `PREFIX.pcapng`, which is overwritten; `-` is standard output.
    ///
    /// # Errors
    /// Fails if the file cannot be written; the error names it.
    pub(crate) fn create(prefix: &Path, spec: CaptureSpec) -> Result<Self> {
        let sink: Box<dyn Write + Send> = if output::is_stdout(prefix) {
            Box::new(io::stdout())
        } else {
            let path = file_of(prefix);
            let file = File::create(&path);
            Box::new(file.with_context(|| format!("{}: cannot write", path.display()))?)
        };
        Ok(Self { spec, sink })
    }

    /// Starts the thread that writes packets that arrive from `start` on. Returns the tap for the
    /// packet path and the handle that ends the capture.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn begin(self, start: Nanos) -> Result<(Tap, CaptureHandle)> {
        let Self { spec, sink } = self;
        let stopped = Arc::new(AtomicBool::new(false));
        let waiting = Arc::new(WaitingBatches::default());
        let (full, to_write) = channel();
        let (give_back, emptied) = channel();
        let tap = Tap::new(
            &spec,
            start,
            Arc::clone(&stopped),
            Arc::clone(&waiting),
            full,
            emptied,
        );
        let writer = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || writer::write(spec, sink, &to_write, &give_back, &waiting))
            .context("cannot start the thread of the capture")?;
        let handle = CaptureHandle {
            stopped,
            writer: Some(writer),
        };
        Ok((tap, handle))
    }
}

/// Appends the extension of a capture to `prefix`, unless it is there already.
fn file_of(prefix: &Path) -> PathBuf {
    if prefix.extension().is_some_and(|ending| ending == "pcapng") {
        return prefix.to_owned();
    }
    let mut name: OsString = prefix.into();
    name.push(".pcapng");
    name.into()
}

impl CaptureHandle {
    /// Ends the capture within 0.2 s, waits until everything is written and returns the summary.
    pub(crate) fn finish(self) -> CaptureSummary {
        self.stopped.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// Waits until the capture has ended by a limit or with the link, and returns the summary.
    pub(crate) fn wait(mut self) -> CaptureSummary {
        let writer = self.writer.take().expect("it is taken once");
        match writer.join() {
            Ok(summary) => summary,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for CaptureHandle {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Capture");
        all.field("spec", &self.spec).finish_non_exhaustive()
    }
}
