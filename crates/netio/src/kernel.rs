//! The version of the running kernel, for behaviour that depends on it.

/// Major and minor number of a kernel version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// Major number: 6 in 6.2.
    pub major: u32,
    /// Minor number: 2 in 6.2.
    pub minor: u32,
}

impl KernelVersion {
    /// The oldest supported kernel, which is the oldest long-term kernel that is still maintained. The least common
    /// features that are needed are older: the owner flag of nftables tables (5.12) and pidfd (5.3).
    pub const OLDEST: Self = Self::new(5, 15);

    /// The first kernel that passes UDP GSO frames on under PACKET_VNET_HDR; older ones drop them
    /// (`virtio_net_hdr_from_skb` in `include/linux/virtio_net.h`).
    pub const UDP_GSO: Self = Self::new(6, 2);

    /// Creates a version.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Returns the version of the running kernel; 0.0 if its release cannot be parsed.
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
