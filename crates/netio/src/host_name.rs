//! The name of a host by its address, as the system's name services know it (getnameinfo(3), nsswitch.conf(5)).

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use nix::sys::socket::{SockaddrLike as _, SockaddrStorage};

/// Greatest length of a name with its final zero byte (`NI_MAXHOST` of glibc; musl's is smaller).
const LONGEST: usize = 1025;
/// Greatest length of a name in the DNS (RFC 1035 section 2.3.4).
const LONGEST_IN_DNS: usize = 253;

/// Returns the name of the host with this address: letters, digits, `-`, `_` and `.`. `None` if there is no name, or one
/// with other characters.
///
/// It may wait for name servers for many seconds. The owner of an address decides about its name in the DNS.
pub fn name_of(address: IpAddr) -> Option<String> {
    let address = SockaddrStorage::from(SocketAddr::new(address.to_canonical(), 0));
    let mut name = [0_u8; LONGEST];
    // SAFETY: both pointers are valid for the lengths that are passed with them, and outlive the call, which writes at
    // most that many bytes. No name of a service is asked for.
    let result = unsafe {
        libc::getnameinfo(
            address.as_ptr(),
            address.len(),
            name.as_mut_ptr().cast(),
            libc::socklen_t::try_from(name.len()).unwrap_or(0),
            ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    let name = CStr::from_bytes_until_nul(&name).ok()?.to_str().ok()?;
    (result == 0 && is_host_name(name)).then(|| name.to_owned())
}

/// Returns whether a text is a name that a host can have. Other names may come from a name server that means harm.
pub fn is_host_name(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=LONGEST_IN_DNS).contains(&text.len()) && text.chars().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_loopback_is_that_of_the_hosts_file() {
        // A host without that line has no name for it.
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let has_name = |line: &str| line.trim_start().starts_with("127.0.0.1");
        if hosts.lines().any(has_name) {
            let name = name_of("127.0.0.1".parse().unwrap()).unwrap();
            assert!(hosts.contains(&name), "{name}");
            assert_eq!(name_of("::ffff:127.0.0.1".parse().unwrap()), Some(name));
        }
    }

    #[test]
    fn a_name_has_no_other_characters_than_host_names_have() {
        assert!(is_host_name("lestrade3.jks.example") && is_host_name("a_b-1"));
        for name in ["", "a b", "a\nb", "a\u{1b}[2J", "ü.example", "=1+1"] {
            assert!(!is_host_name(name), "{name:?}");
        }
        assert!(!is_host_name(&"x".repeat(254)));
    }
}
