//! The identity of the running kernel, which can be proved without revealing it. Two programs on one kernel read the
//! same clock.

use std::fs;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The boot id of the running kernel. It is random at every start, the same in all namespaces, and never sent to
/// anybody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelIdentity {
    boot_id: [u8; 16],
}

impl KernelIdentity {
    /// Returns the identity of this machine's kernel, or `None` if /proc does not provide it.
    pub(crate) fn current() -> Option<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let boot_id = u128::from_str_radix(&digits, 16).ok()?;
        Some(Self {
            boot_id: boot_id.to_be_bytes(),
        })
    }

    /// Returns the proof that the sender of `challenge` is on this kernel. The reflector answers nobody without it.
    pub(crate) fn proof(self, challenge: u64) -> u64 {
        self.digest(b"asks", challenge)
    }

    /// Returns the response to `challenge` that only a program on this kernel can compute.
    pub(crate) fn response(self, challenge: u64) -> u64 {
        self.digest(b"says", challenge)
    }

    /// Returns the SipHash-2-4 of role and challenge, keyed with the boot id.
    fn digest(self, role: &[u8; 4], challenge: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.boot_id);
        hasher.write(role);
        hasher.write(&challenge.to_be_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kernel_has_another_response() {
        let here = KernelIdentity { boot_id: [1; 16] };
        let there = KernelIdentity { boot_id: [2; 16] };
        assert_eq!(here.response(7), here.response(7));
        assert_ne!(here.response(7), there.response(7));
        assert_ne!(here.response(7), here.response(8));
        assert_ne!(here.response(7), here.proof(7));
    }
}
