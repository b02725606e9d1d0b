//! Which kernel a program runs on, proved without telling: two programs on one kernel read one clock.

use std::fs;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The running kernel's boot id, random at every start and the same in all its namespaces; not told to anybody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    boot_id: [u8; 16],
}

impl Kernel {
    /// This machine's; nothing where /proc does not say.
    pub(crate) fn here() -> Option<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let boot_id = u128::from_str_radix(&digits, 16).ok()?;
        Some(Self {
            boot_id: boot_id.to_be_bytes(),
        })
    }

    /// What shows that who asks `challenge` is on this kernel: nobody else gets an answer.
    pub(crate) fn proof(self, challenge: u64) -> u64 {
        self.digest(b"asks", challenge)
    }

    /// What only a program on this kernel can answer to `challenge`.
    pub(crate) fn response(self, challenge: u64) -> u64 {
        self.digest(b"says", challenge)
    }

    /// SipHash-2-4, keyed with the boot id.
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
        let here = Kernel { boot_id: [1; 16] };
        let there = Kernel { boot_id: [2; 16] };
        assert_eq!(here.response(7), here.response(7));
        assert_ne!(here.response(7), there.response(7));
        assert_ne!(here.response(7), here.response(8));
        assert_ne!(here.response(7), here.proof(7));
    }
}
