//! Tells whether this machine may be reachable from the internet, by its public addresses.

use std::net::{IpAddr, Ipv4Addr};

use nix::ifaddrs::getifaddrs;

/// Returns whether `address` is public: not one of this host, a link, a private network (RFC 1918, RFC 4193) or a
/// carrier's network behind NAT (RFC 6598).
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let behind_carrier = first == 100 && second & 0xc0 == 64;
            let not_unicast = v4.is_multicast() || v4 == Ipv4Addr::BROADCAST || first == 0;
            !(v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || behind_carrier
                || not_unicast)
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.is_multicast())
        }
    }
}

/// Returns the public addresses in the network namespace of the calling thread, or of one interface in it; empty if the
/// system does not report them.
pub fn public_addresses(interface: Option<&str>) -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten();
    all.filter(|found| interface.is_none_or(|name| found.interface_name == name))
        .filter_map(|found| {
            let address = found.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .filter(|address| is_public(*address))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_internet_addresses_are_public() {
        for address in [
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "2001:4860::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "192.168.1.1",
            "224.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "fd77::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
