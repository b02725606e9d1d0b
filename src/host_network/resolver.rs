//! The names that the command looks up: a resolv.conf and a hosts file for the command alone.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use netio::bed::HOST;
use netio::iface::DefaultRoutes;
use netio::replaced_files::{ReplaceError, ReplacedFile};

/// The name by which the command reaches the host's loopback.
pub(crate) const HOST_NAME: &str = "host.farwire.internal";

pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// The servers that systemd-resolved itself asks, in the form of a resolv.conf.
const SERVERS_OF_RESOLVED: &str = "/run/systemd/resolve/resolv.conf";

/// The sockets through which the C library would ask a resolver of the host without using the network: those of
/// systemd-resolved and of nscd.
const BYPASSES: [&str; 2] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/nscd/socket",
];

/// The resolver configuration of the command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resolver {
    /// The text of its resolv.conf.
    text: String,
    /// The addresses of the host's resolvers, which the host itself uses.
    servers: Vec<IpAddr>,
}

impl Resolver {
    /// Reads the host's configuration. Returns `None` if the host has none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of_host(families: DefaultRoutes) -> io::Result<Option<Self>> {
        match fs::read_to_string(RESOLV_CONF) {
            // The stub of systemd-resolved answers on the loopback alone, but its servers are known.
            Ok(text) if is_stub(&text) => {
                let servers = fs::read_to_string(SERVERS_OF_RESOLVED).unwrap_or(text);
                Ok(Some(Self::for_command(&servers, families)))
            }
            Ok(text) => Ok(Some(Self::for_command(&text, families))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the configuration for the command: that of the host, except that a resolver on the host's loopback has
    /// another address, and that resolvers of a family that the command does not have are left out.
    fn for_command(host: &str, families: DefaultRoutes) -> Self {
        let mut text = String::new();
        let mut servers = Vec::new();
        let mut is_named = false;
        for line in host.lines() {
            let Some(server) = server_of(line) else {
                text.push_str(line);
                text.push('\n');
                continue;
            };
            is_named = true;
            let Ok(server) = server.parse::<IpAddr>() else {
                // A link-local address with a scope: nobody on the command's network has it.
                continue;
            };
            servers.push(server);
            let server = at_host(server).unwrap_or(server);
            if !server.is_loopback() && has_family(families, server) {
                let _ = writeln!(text, "nameserver {server}");
            }
        }
        if !is_named {
            // The default of the C library (resolv.conf(5)).
            servers.push(Ipv4Addr::LOCALHOST.into());
            if families.v4 {
                let _ = writeln!(text, "nameserver {}", HOST.v4);
            }
        }
        Self { text, servers }
    }

    /// Returns the addresses of the host's resolvers, as the host itself uses them.
    pub(super) fn servers(&self) -> &[IpAddr] {
        &self.servers
    }

    /// Returns true if the command reaches at least one of the resolvers.
    pub(super) fn is_reachable(&self) -> bool {
        self.text.lines().any(|line| server_of(line).is_some())
    }

    /// Returns a warning for a command of these families that reaches none of the resolvers.
    pub(super) fn unreachable(families: DefaultRoutes) -> String {
        let reachable = match families {
            DefaultRoutes { v4: true, v6: true } => "127.0.0.1, ::1 or an address of the network",
            DefaultRoutes { v4: false, .. } => "::1 or an IPv6 address of the network",
            DefaultRoutes { v6: false, .. } => "127.0.0.1 or an IPv4 address of the network",
        };
        format!(
            "the command reaches none of the resolvers in {RESOLV_CONF} of this host, so it cannot look up names: name one \
             there that is at {reachable}, or use addresses"
        )
    }

    /// Returns the resolv.conf that the command sees instead of the host's.
    ///
    /// # Errors
    /// It cannot be replaced.
    pub(super) fn file(&self) -> Result<ReplacedFile, ReplaceError> {
        ReplacedFile::new(Path::new(RESOLV_CONF), self.text.clone())
    }
}

/// Returns the other files that the command sees instead of the host's: one with the name of the host, and nothing in
/// place of the sockets that bypass the network.
///
/// # Errors
/// One of them cannot be replaced.
pub(super) fn other_files(families: DefaultRoutes) -> Result<Vec<ReplacedFile>, ReplaceError> {
    let mut files = Vec::new();
    if let Ok(host) = fs::read_to_string(HOSTS) {
        files.push(ReplacedFile::new(Path::new(HOSTS), hosts(&host, families))?);
    }
    for socket in BYPASSES.map(Path::new) {
        if socket.exists() {
            files.push(ReplacedFile::new(socket, "")?);
        }
    }
    Ok(files)
}

/// Returns true if the host's resolv.conf has a resolver on the loopback.
pub(crate) fn is_on_loopback() -> bool {
    let text = fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let servers = text.lines().filter_map(server_of);
    let mut addresses = servers.filter_map(|server| server.parse::<IpAddr>().ok());
    addresses.any(|server| server.is_loopback())
}

/// Returns the address at which the command asks a resolver of the host's own 127.0.0.1 or ::1.
fn at_host(server: IpAddr) -> Option<IpAddr> {
    match server {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(HOST.v4.into()),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(HOST.v6.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// Returns true if all resolvers are on the loopback, at addresses that the command cannot reach.
fn is_stub(text: &str) -> bool {
    let servers = text.lines().filter_map(server_of);
    let mut servers = servers
        .filter_map(|server| server.parse::<IpAddr>().ok())
        .peekable();
    let is_stub = |server: IpAddr| server.is_loopback() && at_host(server).is_none();
    servers.peek().is_some() && servers.all(is_stub)
}

/// Returns the address in a line `nameserver ADDRESS`.
fn server_of(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    (words.next() == Some("nameserver")).then(|| words.next())?
}

fn has_family(families: DefaultRoutes, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => families.v4,
        IpAddr::V6(_) => families.v6,
    }
}

/// Returns the host's hosts file with the name of the host. Which of its addresses comes first is up to the addresses, not to the
/// order of the lines; see [`HOST`].
fn hosts(host: &str, families: DefaultRoutes) -> String {
    let mut text = host.trim_end().to_owned();
    for address in [IpAddr::from(HOST.v4), HOST.v6.into()] {
        if has_family(families, address) {
            let _ = write!(text, "\n{address} {HOST_NAME}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::families::{BOTH, V4, V6};
    use super::*;

    #[test]
    fn resolvers_of_the_network_stay_and_one_of_the_loopback_gets_another_address() {
        let for_command = |host, families| Resolver::for_command(host, families).text;
        let network = "search a.example\nnameserver 192.0.2.7\n";
        assert_eq!(for_command(network, BOTH), network);
        let own = "# by dnsmasq\nnameserver 127.0.0.1\noptions edns0\n";
        let at_host = "# by dnsmasq\nnameserver 10.77.255.1\noptions edns0\n";
        assert_eq!(for_command(own, BOTH), at_host);
        let v6 = "nameserver fec0:0:0:77::1\n";
        assert_eq!(for_command("nameserver ::1\n", BOTH), v6);
        let two = "nameserver 2001:db8::1\nnameserver 192.0.2.7\nnameserver fe80::1%eth0\n";
        assert_eq!(for_command(two, V4), "nameserver 192.0.2.7\n");
        for families in [BOTH, V4] {
            assert_eq!(for_command("", families), "nameserver 10.77.255.1\n");
        }
    }

    #[test]
    fn a_resolver_that_the_command_does_not_reach_is_left_out() {
        let resolver = Resolver::for_command("nameserver 192.0.2.7\nnameserver ::1\n", V4);
        assert_eq!(resolver.text, "nameserver 192.0.2.7\n");
        assert!(resolver.is_reachable());
        for (alone, families) in [
            ("nameserver 127.0.1.1\n", V4),
            ("nameserver ::1\n", V4),
            ("nameserver fe80::1%eth0\n", V4),
            ("nameserver 127.0.0.1\n", V6),
            ("", V6),
        ] {
            let resolver = Resolver::for_command(alone, families);
            assert!(!resolver.is_reachable(), "{alone}: {resolver:?}");
        }
    }

    #[test]
    fn the_advice_names_only_resolvers_that_the_command_reaches() {
        for (families, words) in [
            (BOTH, "at 127.0.0.1, ::1 or an address of the network,"),
            (V4, "at 127.0.0.1 or an IPv4 address of the network,"),
            (V6, "at ::1 or an IPv6 address of the network,"),
        ] {
            let warning = Resolver::unreachable(families);
            assert!(warning.contains(words), "{warning}");
        }
        for named in ["nameserver 127.0.0.1\n", "nameserver 192.0.2.7\n"] {
            assert!(Resolver::for_command(named, V4).is_reachable(), "{named}");
        }
        for named in ["nameserver ::1\n", "nameserver 2001:db8::1\n"] {
            assert!(Resolver::for_command(named, V6).is_reachable(), "{named}");
        }
    }

    #[test]
    fn the_stub_of_systemd_resolved_is_recognised() {
        assert!(is_stub("nameserver 127.0.0.53\noptions edns0 trust-ad\n"));
        for other in [
            "",
            "nameserver 127.0.0.1\n",
            "nameserver 127.0.0.53\nnameserver 192.0.2.7\n",
        ] {
            assert!(!is_stub(other), "{other}");
        }
    }

    #[test]
    fn the_hosts_file_has_the_name_of_the_host_in_each_family() {
        let both = "127.0.0.1 localhost\n10.77.255.1 host.farwire.internal\n\
                    fec0:0:0:77::1 host.farwire.internal\n";
        assert_eq!(hosts("127.0.0.1 localhost", BOTH), both);
        let v4 = "127.0.0.1 localhost\n10.77.255.1 host.farwire.internal\n";
        assert_eq!(hosts("127.0.0.1 localhost\n\n", V4), v4);
    }
}
