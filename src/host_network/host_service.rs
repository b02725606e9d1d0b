//! A service on the host's loopback, to which connections of the command are relayed: where it listens, which may change at
//! any time.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netio::bed::HOST;
use netio::iface::DefaultRoutes;

use crate::notes::warn;

/// The kernel's tables of the host's TCP sockets. An open table stays that of the host when this process enters namespaces.
#[derive(Debug)]
pub(super) struct SocketTables {
    /// Those of IPv4 and of IPv6. A kernel without IPv6 has only the first one.
    tables: [Option<File>; 2],
}

/// A service on the host's loopback.
#[derive(Debug)]
pub(super) struct HostService {
    port: u16,
    /// The families in which the command reaches the host.
    families: DefaultRoutes,
    tables: Arc<SocketTables>,
    has_warned: AtomicBool,
}

/// The addresses of the loopback at which a service listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listening {
    /// 127.0.0.1.
    v4: bool,
    /// ::1.
    v6: bool,
}

impl SocketTables {
    /// Opens the tables of the network namespace of the calling thread.
    pub(super) fn here() -> Self {
        let open = |name: &str| File::open(format!("/proc/thread-self/net/{name}")).ok();
        Self {
            tables: ["tcp", "tcp6"].map(open),
        }
    }

    /// Returns where a service listens on `port` at present.
    fn listening(&self, port: u16) -> Listening {
        let listeners = self.tables.each_ref().map(|table| {
            let mut file = table.as_ref()?;
            file.rewind().ok()?;
            Some(listeners(BufReader::new(file)))
        });
        Listening::on(port, &listeners.map(Option::unwrap_or_default))
    }
}

impl HostService {
    /// Describes the service on `port`, for a command with these families.
    pub(super) fn new(port: u16, families: DefaultRoutes, tables: Arc<SocketTables>) -> Self {
        Self {
            port,
            families,
            tables,
            has_warned: AtomicBool::new(false),
        }
    }

    /// Returns the port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Looks where the service listens, and returns the address at which the command reaches it. The first time that it
    /// listens only where the command cannot reach it, this prints a warning.
    pub(super) fn locate(&self) -> SocketAddr {
        let listening = self.tables.listening(self.port);
        if let Some(why) = listening.unreachable(self.families)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            let port = self.port;
            warn(format_args!("--host-port {port}: {why}"));
        }
        SocketAddr::new(listening.address(self.families), self.port)
    }
}

impl Listening {
    /// Returns where a service listens on `port`, by the local addresses of all listeners, as the tables of IPv4 and IPv6 have
    /// them.
    fn on(port: u16, [v4, v6]: &[Vec<String>; 2]) -> Self {
        let has = |listeners: &[String], address: &str| {
            let local = format!("{address}:{port:04X}");
            listeners.contains(&local)
        };
        let all_of_both = has(v6, "00000000000000000000000000000000");
        let mapped = has(v6, "0000000000000000FFFF00000100007F");
        Self {
            v4: has(v4, "0100007F") || has(v4, "00000000") || mapped || all_of_both,
            v6: has(v6, "00000000000000000000000001000000") || all_of_both,
        }
    }

    /// Returns the address at which a command with these families reaches the service. If it reaches none, this is the first
    /// one that it has.
    fn address(self, families: DefaultRoutes) -> IpAddr {
        let prefers_v6 = self.v6 && !self.v4 && families.v6;
        if families.v4 && !prefers_v6 {
            HOST.v4.into()
        } else {
            HOST.v6.into()
        }
    }

    /// Returns why a command with these families does not reach the service, although it listens.
    fn unreachable(self, families: DefaultRoutes) -> Option<String> {
        let (own, missing, other) = match self {
            Self {
                v4: true,
                v6: false,
            } if !families.v4 => ("127.0.0.1", "IPv4", "::1"),
            Self {
                v4: false,
                v6: true,
            } if !families.v6 => ("::1", "IPv6", "127.0.0.1"),
            _ => return None,
        };
        Some(format!(
            "the service of this host listens on {own} alone, but the command has no {missing}: let it listen on {other}"
        ))
    }
}

/// Returns the local addresses of the listeners in a table of TCP sockets. They are its first rows (net/ipv4/tcp_ipv4.c,
/// `tcp_get_idx`), and the others may be many.
fn listeners(table: impl BufRead) -> Vec<String> {
    let rows = table.lines().skip(1).map_while(Result::ok);
    rows.map_while(|row| listener(&row).map(str::to_owned))
        .collect()
}

/// Returns the local address in the row of a listener, with its port in hexadecimal. The columns are a number, the local
/// address, the remote address, and the state, which is 0A for a listener (include/net/tcp_states.h).
fn listener(row: &str) -> Option<&str> {
    let mut columns = row.split_whitespace();
    let local = columns.nth(1)?;
    (columns.nth(1)? == "0A").then_some(local)
}

#[cfg(test)]
mod tests {
    use super::super::families::{BOTH, V4, V6};
    use super::*;

    use socket2::{Domain, Socket, Type};

    const NOWHERE: Listening = Listening {
        v4: false,
        v6: false,
    };
    const ON_V4: Listening = Listening {
        v4: true,
        v6: false,
    };
    const ON_V6: Listening = Listening {
        v4: false,
        v6: true,
    };
    const ON_BOTH: Listening = Listening { v4: true, v6: true };

    #[test]
    fn the_listeners_are_the_first_rows_of_a_table() {
        let row = |local: &str, state: &str| format!("   0: {local} 00000000:0000 {state} 00:00\n");
        let table = [
            "  sl  local_address rem_address st\n".to_owned(),
            row("0100007F:1F40", "0A"),
            row("00000000:0016", "0A"),
            row("0100007F:9C40", "01"),
        ];
        let found = listeners(table.concat().as_bytes());
        assert_eq!(found, ["0100007F:1F40", "00000000:0016"]);
        assert!(listeners(&b""[..]).is_empty());
    }

    #[test]
    fn a_service_is_found_at_each_address_of_the_loopback() {
        let on = |v4: &[&str], v6: &[&str]| {
            let listeners = [v4, v6].map(|all| all.iter().map(|at| format!("{at}:1F40")).collect());
            Listening::on(8000, &listeners)
        };
        let v6 = "00000000000000000000000001000000";
        let all = "00000000000000000000000000000000";
        assert_eq!(on(&[], &[]), NOWHERE);
        assert_eq!(on(&["0100007F"], &[]), ON_V4);
        assert_eq!(on(&["00000000"], &[]), ON_V4);
        assert_eq!(on(&["0200000A"], &[]), NOWHERE);
        assert_eq!(on(&[], &["0000000000000000FFFF00000100007F"]), ON_V4);
        assert_eq!(on(&[], &[v6]), ON_V6);
        assert_eq!(on(&["0100007F"], &[v6]), ON_BOTH);
        assert_eq!(on(&[], &[all]), ON_BOTH);
        let other_port = [vec!["0100007F:1F41".to_owned()], Vec::new()];
        assert_eq!(Listening::on(8000, &other_port), NOWHERE);
    }

    #[test]
    fn the_address_is_one_at_which_the_service_listens_and_a_missing_family_is_named() {
        let (v4, v6) = (IpAddr::from(HOST.v4), IpAddr::from(HOST.v6));
        for (listening, families, address, words) in [
            (NOWHERE, BOTH, v4, None),
            (NOWHERE, V6, v6, None),
            (ON_V4, BOTH, v4, None),
            (ON_V6, BOTH, v6, None),
            (ON_BOTH, BOTH, v4, None),
            (ON_BOTH, V4, v4, None),
            (ON_BOTH, V6, v6, None),
            (ON_V6, V4, v4, Some("listens on ::1 alone")),
            (ON_V4, V6, v6, Some("listens on 127.0.0.1 alone")),
        ] {
            let case = format!("{listening:?}, {families:?}");
            assert_eq!(listening.address(families), address, "{case}");
            let why = listening.unreachable(families);
            assert_eq!(why.is_some(), words.is_some(), "{case}");
            let why = why.unwrap_or_default();
            assert!(why.contains(words.unwrap_or_default()), "{case}: {why}");
        }
    }

    #[test]
    fn a_service_that_begins_to_listen_later_is_found() {
        let tables = SocketTables::here();
        let service = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        service.bind(&any.into()).unwrap();
        let at = service.local_addr().unwrap().as_socket().unwrap();
        let _ = tables.listening(at.port());
        service.listen(1).unwrap();
        assert!(tables.listening(at.port()).v4);
    }
}
