//! The names that the command looks up: a resolv.conf and a hosts file for the command alone.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use netio::bed::{HOST, HOST_RESOLVER};
use netio::iface::DefaultRoutes;
use netio::replaced_files::{ReplaceError, ReplacedFile};

/// The name by which the command reaches the host's loopback.
pub(crate) const HOST_NAME: &str = "host.farwire.internal";

pub(crate) const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

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
    /// The resolver on the host's loopback that answers at [`HOST_RESOLVER`], if the host uses one.
    pub(super) on_loopback: Option<IpAddr>,
}

impl Resolver {
    /// Reads the host's configuration. Returns `None` if the host has none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of_host(families: DefaultRoutes) -> io::Result<Option<Self>> {
        match fs::read_to_string(RESOLV_CONF) {
            Ok(text) => Ok(Some(Self::for_command(&text, families))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the configuration for the command: that of the host, except that a resolver on the host's loopback has
    /// another address, and that resolvers of a family that the command does not have are left out.
    fn for_command(host: &str, families: DefaultRoutes) -> Self {
        let (mut text, mut on_loopback) = (String::new(), None);
        let mut servers = 0;
        for line in host.lines() {
            let Some(server) = server_of(line) else {
                text.push_str(line);
                text.push('\n');
                continue;
            };
            servers += 1;
            let Ok(server) = server.parse::<IpAddr>() else {
                // A link-local address with a scope: nobody on the command's network has it.
                continue;
            };
            if server.is_loopback() {
                on_loopback = on_loopback.or(Some(server));
            } else if has_family(families, server) {
                let _ = writeln!(text, "nameserver {server}");
            }
        }
        if servers == 0 {
            // The default of the C library (resolv.conf(5)).
            on_loopback = Some(IpAddr::from([127, 0, 0, 1]));
        }
        if let Some(server) = on_loopback {
            let _ = writeln!(text, "nameserver {}", forwarded(server));
        }
        Self { text, on_loopback }
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

/// Returns the address at which the command asks the resolver `server` of the host's loopback.
pub(super) fn forwarded(server: IpAddr) -> IpAddr {
    match server {
        IpAddr::V4(_) => HOST_RESOLVER.0.into(),
        IpAddr::V6(_) => HOST_RESOLVER.1.into(),
    }
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

/// Returns the host's hosts file with the name of the host.
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
    use super::*;

    const BOTH: DefaultRoutes = DefaultRoutes { v4: true, v6: true };
    const V4: DefaultRoutes = DefaultRoutes {
        v4: true,
        v6: false,
    };

    #[test]
    fn resolvers_of_the_network_stay_and_one_of_the_loopback_gets_another_address() {
        let for_command = |host, families| {
            let resolver = Resolver::for_command(host, families);
            (resolver.text, resolver.on_loopback)
        };
        let (text, on_loopback) = for_command("search a.example\nnameserver 192.0.2.7\n", BOTH);
        assert_eq!(text, "search a.example\nnameserver 192.0.2.7\n");
        assert_eq!(on_loopback, None);

        let resolved = "# by resolved\nnameserver 127.0.0.53\noptions edns0 trust-ad\n";
        let (text, on_loopback) = for_command(resolved, BOTH);
        assert_eq!(
            text,
            "# by resolved\noptions edns0 trust-ad\nnameserver 10.77.255.53\n"
        );
        assert_eq!(on_loopback, Some(IpAddr::from([127, 0, 0, 53])));

        let (text, on_loopback) = for_command("nameserver ::1\n", BOTH);
        assert_eq!(text, "nameserver fd77:0:0:ff::53\n");
        assert!(on_loopback.is_some_and(|server| server.is_ipv6()));

        let two = "nameserver 2001:db8::1\nnameserver 192.0.2.7\nnameserver fe80::1%eth0\n";
        assert_eq!(for_command(two, V4).0, "nameserver 192.0.2.7\n");
        assert_eq!(for_command("", V4).0, "nameserver 10.77.255.53\n");
    }

    #[test]
    fn the_hosts_file_has_the_name_of_the_host_in_each_family() {
        let both = "127.0.0.1 localhost\n10.77.255.1 host.farwire.internal\n\
                    fd77:0:0:ff::1 host.farwire.internal\n";
        assert_eq!(hosts("127.0.0.1 localhost", BOTH), both);
        let v4 = "127.0.0.1 localhost\n10.77.255.1 host.farwire.internal\n";
        assert_eq!(hosts("127.0.0.1 localhost\n\n", V4), v4);
    }
}
