//! Reads the privileges that threads still have (proc_pid_status(5)).

use std::fs;
use std::io;

use caps::Capability;

use super::{SandboxError, Threads};

/// The sets in which only kept capabilities may remain. The bounding set is not among them: lowering it requires a
/// capability that the caller may not have, and with no_new_privs it has no effect.
const SETS: [&str; 4] = ["CapInh", "CapPrm", "CapEff", "CapAmb"];

/// Checks that no thread of `threads` has a capability other than `kept`, that all have no_new_privs, and, if
/// `filtered`, that all have a filter.
///
/// # Errors
/// A thread that fails the check, with the privilege that it has; or /proc cannot be read.
pub(super) fn check(
    kept: &[Capability],
    filtered: bool,
    threads: Threads,
) -> Result<(), SandboxError> {
    let allowed = kept.iter().fold(0, |bits, c| bits | c.bitmask());
    let read = || -> io::Result<Vec<(String, String)>> {
        if threads == Threads::Calling {
            let status = fs::read_to_string("/proc/thread-self/status")?;
            return Ok(vec![("self".to_owned(), status)]);
        }
        let mut all = Vec::new();
        for task in fs::read_dir("/proc/self/task")? {
            let task = task?;
            let thread = task.file_name().to_string_lossy().into_owned();
            all.push((thread, fs::read_to_string(task.path().join("status"))?));
        }
        Ok(all)
    };
    for (thread, status) in read().map_err(SandboxError::Privileges)? {
        if let Some(left) = left_in(&status, allowed, filtered) {
            return Err(SandboxError::StillThere { thread, left });
        }
    }
    Ok(())
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
}
