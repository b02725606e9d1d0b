//! The version of the running kernel, where behaviour depends on it.

/// A kernel version, as far as behaviour hangs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// The 6 of 6.2.
    pub major: u32,
    /// The 2 of 6.2.
    pub minor: u32,
}

impl KernelVersion {
    /// The oldest kernel supported: the oldest long-term kernel that is still kept up. What is needed beyond
    /// the commonplace came before it: the owner flag of nftables tables in 5.12, pidfd in 5.3.
    pub const OLDEST: Self = Self::new(5, 15);

    /// The first kernel that hands on UDP GSO frames under PACKET_VNET_HDR; older ones drop them
    /// (`virtio_net_hdr_from_skb` in `include/linux/virtio_net.h`).
    pub const UDP_GSO: Self = Self::new(6, 2);

    /// A version.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The version of the running kernel; 0.0 if it states none that can be read.
    pub fn running() -> Self {
        let release = nix::sys::utsname::uname()
            .map(|names| names.release().to_string_lossy().into_owned())
            .unwrap_or_default();
        Self::parse(&release).unwrap_or(Self::new(0, 0))
    }

    fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next()?.parse().ok()?;
        Some(Self { major, minor })
    }
}

impl std::fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_string_gives_its_first_two_numbers() {
        let version = |release| KernelVersion::parse(release);
        assert_eq!(
            version("5.15.0-91-generic"),
            Some(KernelVersion::new(5, 15))
        );
        assert_eq!(version("6.2-rc1"), Some(KernelVersion::new(6, 2)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn a_minor_number_counts_as_a_number() {
        assert!(KernelVersion::new(5, 9) < KernelVersion::new(5, 15));
    }
}
