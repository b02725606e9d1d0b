//! The signals that end farwire.

use std::ffi::c_int;
use std::fs;

use signal_hook::consts::{SIGHUP, SIGTERM};

/// Returns SIGTERM, and SIGHUP unless it was ignored when farwire was started, as by nohup(1).
pub fn terminating() -> Vec<c_int> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGTERM, SIGHUP];
    signals.retain(|signal| !is_ignored(&status, *signal));
    signals
}

/// Returns whether `status`, in the format of proc(5), lists the signal as ignored. Bit n - 1 is that of signal n.
fn is_ignored(status: &str, signal: c_int) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_recognised_by_its_bit() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP));
    }
}
