//! TCP congestion control: the far end's, and those that clients may choose.

use std::{fs, io};

use crate::error::{Context, Error, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// The congestion controls that a client may name.
///
/// The kernel loads a module if a privileged program names it (net/ipv4/tcp_cong.c, `tcp_ca_find_autoload`). Therefore
/// the far end passes only names from this list to the kernel.
#[derive(Debug)]
pub(crate) struct CongestionChoices {
    settable: Vec<String>,
    /// The names that the kernel has but reserves for root.
    withheld: Vec<String>,
}

impl CongestionChoices {
    /// Returns the congestion controls that the kernel has now and that the calling thread may set in its network
    /// namespace. `own` is the far end's, which is always among them.
    pub(crate) fn of_caller(own: &str) -> Self {
        let names = names_in("available");
        let settable = |name: &&str| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
            socket.is_ok_and(|socket| socket.set_tcp_congestion(name.as_bytes()).is_ok())
        };
        let others = names.split_whitespace().filter(|name| *name != own);
        let (others, withheld): (Vec<&str>, Vec<&str>) = others.partition(settable);
        Self::new(&[vec![own], others].concat(), &withheld)
    }

    pub(super) fn new(settable: &[&str], withheld: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            settable: owned(settable),
            withheld: owned(withheld),
        }
    }

    /// Returns whether clients may choose `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.settable.iter().any(|choice| choice == name)
    }

    /// Returns whether the kernel has `name` but clients may not choose it.
    pub(crate) fn withholds(&self, name: &str) -> bool {
        self.withheld.iter().any(|withheld| withheld == name)
    }
}

/// Checks that a socket in the calling thread's network namespace may use the congestion control `name`.
///
/// # Errors
/// Returns an error that lists the names that a socket may use.
pub fn check_congestion(name: &str) -> Result<()> {
    effective_congestion(Some(name)).map(drop)
}

/// Returns the congestion control that a new socket has in effect, after setting it to `name` if there is one.
pub(super) fn effective_congestion(name: Option<&str>) -> Result<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(name) = name {
        set_congestion(&socket, name)?;
    }
    // The kernel pads the name with zero bytes.
    let padded = socket
        .tcp_congestion()
        .context("reading TCP_CONGESTION back")?;
    let text = padded.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Sets TCP_CONGESTION.
///
/// # Errors
/// Returns an error that lists the valid names if `name` is not available, or not allowed to this user.
pub(super) fn set_congestion(socket: &Socket, name: &str) -> Result<()> {
    let set = socket.set_tcp_congestion(name.as_bytes());
    set.map_err(|error: io::Error| {
        let (problem, which, remedy) = match error.kind() {
            io::ErrorKind::PermissionDenied => (
                "is available on this host, but not allowed to this user; allowed are",
                "allowed",
                String::new(),
            ),
            _ => (
                "is not available; available are",
                "available",
                format!("; as root, `modprobe tcp_{name}` loads it where the kernel has it"),
            ),
        };
        Error::from(error).during(format!(
            "TCP congestion control `{name}` {problem}: {} (net.ipv4.tcp_{which}_congestion_control){remedy}",
            names_in(which).trim()
        ))
    })
}

/// Returns the kernel's list of `available` or `allowed` congestion controls, which is empty if it cannot be read.
fn names_in(which: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_choose_what_the_far_end_has_or_can_set() {
        let own = effective_congestion(None).unwrap();
        let choices = CongestionChoices::of_caller(&own);
        assert!(choices.has(&own));
        assert!(!choices.has("warp") && !choices.has(""));
        let allowed = names_in("allowed");
        assert!(allowed.split_whitespace().all(|name| choices.has(name)));
        let available = names_in("available");
        let is_known = |name: &str| choices.has(name) != choices.withholds(name);
        assert!(available.split_whitespace().all(is_known));
        assert!(!choices.withholds("warp") && !choices.withholds(&own));
    }
}
