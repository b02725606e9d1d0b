//! Lines for people on standard error. They neither end nor hold up the program: whoever reads them may have gone away, or may
//! have stopped reading.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The first line waits this long for a reader that has stopped reading. The lines after it do not wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// A pipe that is writable takes this many bytes without waiting (PIPE_BUF of pipe(7)).
const AT_ONCE: usize = 4096;

/// Lines that were left out.
#[derive(Debug)]
struct Missing {
    /// Lines since the last one that was written.
    lines: u64,
    /// Whether only the beginning of the first of them was written.
    is_cut: bool,
}

static MISSING: Mutex<Missing> = Mutex::new(Missing {
    lines: 0,
    is_cut: false,
});

/// Writes `line` to standard error, with the end of a line.
///
/// A line that cannot be written is left out. If nobody reads the pipe or terminal, the line is left out after a second at most,
/// and the next line that is written follows the number of those that were left out.
pub fn say(line: &str) {
    let mut missing = MISSING.lock().unwrap_or_else(PoisonError::into_inner);
    let patience = match missing.lines {
        0 => PATIENCE,
        lines => {
            let cut = if missing.is_cut { "\n" } else { "" };
            let notice =
                format!("{cut}farwire: {lines} lines are missing here, because nobody read them\n");
            if written(&notice, Duration::ZERO) < notice.len() {
                missing.lines += 1;
                return;
            }
            Duration::ZERO
        }
    };
    let line = format!("{line}\n");
    let length = written(&line, patience);
    let is_whole = length == line.len();
    *missing = Missing {
        lines: u64::from(!is_whole),
        is_cut: !is_whole && length > 0,
    };
}

/// Writes `text`, and gives how many bytes of it were written before nobody read for as long as `patience`. A text that nobody
/// can read any more counts as written.
fn written(text: &str, patience: Duration) -> usize {
    let end = Instant::now() + patience;
    let mut length = 0;
    while length < text.len() {
        if !is_writable(end) {
            return length;
        }
        let part = &text.as_bytes()[length..];
        match io::stderr().write(&part[..part.len().min(AT_ONCE)]) {
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

/// Whether standard error takes some bytes, or says why not, by `end`.
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
