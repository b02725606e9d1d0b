//! Reads the privileges that threads still have (proc_pid_status(5)).

use std::fs;
use std::io;
use std::path::Path;

use caps::Capability;

use super::{SandboxError, Threads};

/// The sets in which only kept capabilities may remain. The bounding set is not among them: lowering it requires a
/// capability that the caller may not have, and with no_new_privs it has no effect.
const SETS: [&str; 4] = ["CapInh", "CapPrm", "CapEff", "CapAmb"];

/// The bit of a thread that is ending in the flags of /proc/PID/stat (`PF_EXITING` in the kernel's linux/sched.h).
const EXITING: u32 = 0x4;

/// Checks that no thread of `threads` has a capability other than `kept`, that all have no_new_privs, and, if
/// `filtered`, that all have a filter.
///
/// A thread that is ending is not checked. It executes nothing of this program any more, and the kernel leaves it out
/// when it gives all threads a filter. It may stay in /proc for a while after it was joined.
///
/// # Errors
/// A thread that fails the check, with the privilege that it has; or /proc cannot be read.
pub(super) fn check(
    kept: &[Capability],
    filtered: bool,
    threads: Threads,
) -> Result<(), SandboxError> {
    let allowed = kept.iter().fold(0, |bits, c| bits | c.bitmask());
    let found = match threads {
        Threads::Calling => left_in_thread("/proc/thread-self".as_ref(), allowed, filtered)
            .map(|left| left.map(|left| ("self".to_owned(), left))),
        Threads::All => left_in_any_thread(allowed, filtered),
    };
    match found.map_err(SandboxError::Privileges)? {
        Some((thread, left)) => Err(SandboxError::StillThere { thread, left }),
        None => Ok(()),
    }
}

/// Returns the first thread of this process that has more than is allowed, and what it has.
fn left_in_any_thread(allowed: u64, filtered: bool) -> io::Result<Option<(String, String)>> {
    for thread in fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        let left = match left_in_thread(&thread.path(), allowed, filtered) {
            Err(error) if is_gone(&error) => None,
            left => left?,
        };
        if let Some(left) = left {
            return Ok(Some((
                thread.file_name().to_string_lossy().into_owned(),
                left,
            )));
        }
    }
    Ok(None)
}

/// Returns what a thread has beyond what is allowed, or `None` if that is nothing or if the thread is ending.
fn left_in_thread(thread: &Path, allowed: u64, filtered: bool) -> io::Result<Option<String>> {
    let status = fs::read_to_string(thread.join("status"))?;
    let left = left_in(&status, allowed, filtered);
    // A thread that was ending when the filter was installed still is when this is read.
    if left.is_some() && is_ending(&fs::read_to_string(thread.join("stat"))?) {
        return Ok(None);
    }
    Ok(left)
}

/// Returns whether `error` means that the thread of a file in /proc has ended.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns whether the thread of which `stat` is read is ending. The name, in parentheses, may contain spaces and
/// parentheses; the flags are the seventh field after it (proc_pid_stat(5)).
fn is_ending(stat: &str) -> bool {
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest);
    let flags = after_name.and_then(|rest| rest.split_whitespace().nth(6));
    flags.is_some_and(|flags| flags.parse::<u32>().is_ok_and(|bits| bits & EXITING != 0))
}

/// Returns the first line of `status` that has more than is allowed.
fn left_in(status: &str, allowed: u64, filtered: bool) -> Option<String> {
    let is_right = |name: &str, value: &str| match name {
        "NoNewPrivs" => value == "1",
        "Seccomp" => !filtered || value == "2",
        set if SETS.contains(&set) => {
            u64::from_str_radix(value, 16).is_ok_and(|bits| bits & !allowed == 0)
        }
        _ => true,
    };
    let lines = status.lines().filter_map(|line| line.split_once(":\t"));
    let wrong = lines
        .clone()
        .find(|(name, value)| !is_right(name, value.trim()));
    if let Some((name, value)) = wrong {
        return Some(format!("{name} {}", value.trim()));
    }
    let names: Vec<&str> = lines.map(|(name, _)| name).collect();
    let missing = SETS
        .iter()
        .chain(&["NoNewPrivs"])
        .copied()
        .find(|name| !names.contains(name));
    missing.map(|name| format!("no line {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(effective: &str, no_new_privs: u8, seccomp: u8) -> String {
        format!(
            "Name:\tfarwire\nCapInh:\t0000000000000000\nCapPrm:\t{effective}\nCapEff:\t{effective}\nCapBnd:\t000001ffffffffff\n\
             CapAmb:\t0000000000000000\nNoNewPrivs:\t{no_new_privs}\nSeccomp:\t{seccomp}\n"
        )
    }

    #[test]
    fn a_remaining_privilege_is_found() {
        let admin = Capability::CAP_NET_ADMIN.bitmask();
        let (none, one) = ("0000000000000000", "0000000000001000");
        assert_eq!(left_in(&status(none, 1, 2), 0, true), None);
        assert_eq!(left_in(&status(one, 1, 2), admin, true), None);
        let left = |status: &str| left_in(status, 0, true).unwrap();
        assert_eq!(left(&status(one, 1, 2)), "CapPrm 0000000000001000");
        assert_eq!(left(&status(none, 0, 2)), "NoNewPrivs 0");
        assert_eq!(left(&status(none, 1, 0)), "Seccomp 0");
        assert_eq!(left_in(&status(none, 1, 0), 0, false), None);
        assert_eq!(left(""), "no line CapInh");
    }

    #[test]
    fn a_thread_that_is_ending_is_recognized_whatever_its_name_is() {
        let stat = |name: &str, flags: u32| format!("71 ({name}) R 1 71 71 0 -1 {flags} 0 0 0 0");
        for name in ["farwire", "a b", ") R 1 1 1 0 -1 4 (", ""] {
            assert!(is_ending(&stat(name, 0x0040_004c)), "{name}");
            assert!(!is_ending(&stat(name, 0x0040_0048)), "{name}");
        }
        assert!(!is_ending(""));
        assert!(!is_ending("71 (farwire) R 1 71"));
    }
}
