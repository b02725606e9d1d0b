//! The program of a container engine, which may never answer: its daemon may hang, or be on another machine.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::engine_api::PATIENCE;

/// Returns what the engine prints, or the line of its refusal.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<String, String> {
    ask_within(PATIENCE, program, arguments)
}

/// Does what [`ask`] does, and kills the program after `limit`.
fn ask_within(limit: Duration, program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let printed = read_until(Instant::now() + limit, &mut child);
    if !matches!(printed, Ok(Some(_))) {
        // An error means that it has ended meanwhile.
        let _ = child.kill();
    }
    let status = child.wait();
    let failed = |error: io::Error| format!("cannot be asked: {error}");
    let silent = || format!("has not answered within {} s", limit.as_secs_f64());
    let [output, errors] = printed.map_err(failed)?.ok_or_else(silent)?;
    if status.map_err(failed)?.success() {
        return Ok(String::from_utf8_lossy(&output).into_owned());
    }
    let text = String::from_utf8_lossy(&errors);
    // Warnings may come before the error.
    let mut errors = text.lines().filter(|line| line.starts_with("Error"));
    let line = errors.next().or_else(|| text.lines().next());
    Err(line.unwrap_or("refused").to_owned())
}

/// Reads standard output and standard error of `child` until it closes both, which are pipes. Returns `None` if that has
/// not happened by `end`.
///
/// It starts no thread: one that waited for the pipe of a process which survives `child` would keep the privileges that
/// an emulator gives up.
fn read_until(end: Instant, child: &mut Child) -> io::Result<Option<[Vec<u8>; 2]>> {
    let pipes = [
        child.stdout.take().map(OwnedFd::from),
        child.stderr.take().map(OwnedFd::from),
    ];
    let open = pipes.into_iter().enumerate();
    let open = open.filter_map(|(stream, pipe)| Some((stream, File::from(pipe?))));
    let mut open: Vec<(usize, File)> = open.collect();
    let mut texts = [Vec::new(), Vec::new()];
    let mut bytes = [0; 4_096];
    while !open.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let fds = open.iter();
        let fds = fds.map(|(_, pipe)| PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        match poll(&mut fds, left) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().map(|fd| fd.any().unwrap_or(true));
        let ready: Vec<bool> = ready.collect();
        let mut ready = ready.into_iter();
        open.retain_mut(|(stream, pipe)| {
            if ready.next() != Some(true) {
                return true;
            }
            match pipe.read(&mut bytes) {
                Ok(0) => false,
                Ok(count) => {
                    texts[*stream].extend_from_slice(&bytes[..count]);
                    true
                }
                Err(error) => error.kind() == ErrorKind::Interrupted,
            }
        });
    }
    Ok(Some(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_answer_is_killed_after_the_limit() {
        let limit = Duration::from_millis(100);
        let silent = ask_within(limit, "sleep", &["1000"]);
        assert_eq!(silent.unwrap_err(), "has not answered within 0.1 s");
    }

    #[test]
    fn an_answer_and_a_refusal_are_read_whatever_their_length() {
        let ask = |script: &str| ask("sh", &["-c", script]);
        // More than a pipe holds.
        let long = "head -c 200000 /dev/zero";
        let answer = ask(&format!("{long} >&2; {long}; echo web"));
        let answer = answer.unwrap();
        assert!(answer.len() == 200_004 && answer.ends_with("web\n"));
        let refused = ask("echo web; echo 'a warning' >&2; echo 'Error: no storage' >&2; exit 1");
        assert_eq!(refused.unwrap_err(), "Error: no storage");
        assert_eq!(ask("exit 1").unwrap_err(), "refused");
    }
}
