//! Writes lines for people to standard error. They neither end nor delay the program if the reader has gone away or has
//! stopped reading.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Time for which the first line waits for a reader that has stopped reading. The lines after it do not wait.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that a writable pipe takes without blocking (PIPE_BUF of pipe(7)).
const ATOMIC_WRITE: usize = 4096;

/// Counts of lines that were left out.
#[derive(Debug)]
struct Missing {
    /// Number of lines left out since the last one that was written.
    lines: u64,
    /// Whether the first of them was written in part.
    is_cut: bool,
}

static MISSING: Mutex<Missing> = Mutex::new(Missing {
    lines: 0,
    is_cut: false,
});

/// Writes `line` and a line break to standard error.
///
/// A line that cannot be written is left out. If nobody reads the pipe or terminal, that happens after a second at
/// most. The next line that is written is preceded by the number of those that were left out.
pub fn say(line: &str) {
    let mut missing = MISSING.lock().unwrap_or_else(PoisonError::into_inner);
    let timeout = match missing.lines {
        0 => FIRST_LINE_TIMEOUT,
        lines => {
            let cut = if missing.is_cut { "\n" } else { "" };
            let notice =
                format!("{cut}farwire: {lines} lines are missing here, because nobody read them\n");
            if write_within(&notice, Duration::ZERO) < notice.len() {
                missing.lines += 1;
                return;
            }
            Duration::ZERO
        }
    };
    let line = format!("{line}\n");
    let length = write_within(&line, timeout);
    let is_whole = length == line.len();
    *missing = Missing {
        lines: u64::from(!is_whole),
        is_cut: !is_whole && length > 0,
    };
}

/// Writes `text` and returns the number of bytes that were written before the reader paused for `timeout`. If there is
/// no reader any more, the whole text counts as written.
fn write_within(text: &str, timeout: Duration) -> usize {
    let end = Instant::now() + timeout;
    let mut length = 0;
    while length < text.len() {
        if !is_writable(end) {
            return length;
        }
        let part = &text.as_bytes()[length..];
        match io::stderr().write(&part[..part.len().min(ATOMIC_WRITE)]) {
            Ok(count @ 1..) => length += count,
            // Another process has filled the pipe, or the write was interrupted.
            Err(error) if is_temporary(&error) => {}
            Ok(0) | Err(_) => return text.len(),
        }
    }
    length
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}

/// Returns whether standard error accepts some bytes, or has an error to report, by `end`.
fn is_writable(end: Instant) -> bool {
    let stderr = io::stderr();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], left) {
            Err(Errno::EINTR) => {}
            Ok(0) => return false,
            Ok(_) | Err(_) => return true,
        }
    }
}
