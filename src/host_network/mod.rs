//! The host's own network behind a link (`exec --net host`).
//!
//! The far end of the test bed forwards between the link and a tap, and pasta connects the tap with ordinary sockets of the
//! host. pasta needs no privileges. Services on the host's loopback have an address of their own, and TCP ports are
//! relayed where an address would not do.

#[cfg(test)]
mod families;
mod gateway;
mod host_service;
mod probe;
mod relay;
mod resolver;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use model::DropCause;
use netio::bed::{BedConfig, BedError, CLIENT};
use netio::iface::DefaultRoutes;
use netio::netns::NetNs;
use netio::replaced_files::{self, ReplacedFile};
use nix::unistd::geteuid;
use socket2::{Domain, Protocol, Socket, Type};

pub(crate) use self::gateway::run_gateway;
pub(crate) use self::resolver::{HOST_NAME, is_on_loopback};

use self::gateway::{Gateway, Pasta};
use self::host_service::{HostService, SocketTables};
use self::probe::ResolverProbe;
use self::relay::{Relay, Route, Service};
use self::resolver::{RESOLV_CONF, Resolver};
use crate::notes::{note, warn};
use crate::testbed::EmulatedBed;
use instruments::endpoint::cannot_listen;
use instruments::failure::{Blame, Failure};
use instruments::ping;
use record::summary::DirectionSummary;

/// A port of the command that is published on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// The address on the host.
    at: SocketAddr,
    /// The port of the command.
    port: u16,
    /// True if the command listens on its localhost, which connections reach without the link.
    is_on_localhost: bool,
}

/// The longest time that a connection to the command's localhost waits until the command listens. Programs that start a
/// server of this kind, such as the driver of a browser, connect as soon as the port accepts connections.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// The host's side, prepared before this process enters namespaces.
pub(crate) struct HostNetwork {
    pasta: Pasta,
    gateway: Gateway,
    families: DefaultRoutes,
    resolver: Option<Resolver>,
    probe: ResolverProbe,
    host_ports: BTreeSet<u16>,
    socket_tables: SocketTables,
    published: Vec<(TcpListener, Published)>,
    /// The groups whose users may ping from this host, if this process has none of them.
    ping_groups: Option<String>,
    /// True if user 0 of the host runs this process, whatever rights it has.
    is_root: bool,
}

/// A test bed's connection to the host's network. It ends when this is dropped.
pub(crate) struct JoinedHost {
    files: Vec<ReplacedFile>,
    probe: ResolverProbe,
    gateway: Gateway,
    #[expect(dead_code, reason = "dropping them ends the relays")]
    relays: Vec<Relay>,
}

/// Returns a warning if a full queue dropped most packets towards the command. pasta sends a download without congestion
/// control, and sends all that is on its way again when a packet is missing.
pub(crate) fn repeated_downloads(down: &DirectionSummary) -> Option<String> {
    let dropped = *down.dropped.get(DropCause::QueueFull.name())?;
    (dropped > down.delivered).then(|| {
        format!(
            "a full queue dropped {dropped} of {} packets down: if they belong to TCP, pasta sends a download again and \
             again while packets are missing; give the queue room for a whole window, as with --down-queue 4MiB",
            down.packets
        )
    })
}

/// Returns the path and the version of pasta, if it can connect a command to the host's network. Call it before this process
/// enters namespaces.
///
/// # Errors
/// Names what is missing, and the way round.
pub(crate) fn find_pasta() -> Result<String> {
    let pasta = Pasta::find()?;
    Ok(format!("{}: {}", pasta.path.display(), pasta.version))
}

impl HostNetwork {
    /// Checks what the host has, takes its ports, and starts the helper process. Call it before this process enters
    /// namespaces or starts a thread.
    ///
    /// # Errors
    /// Blames the machine if pasta or a default route is missing or a port is in use.
    pub(crate) fn prepare(host_ports: &[u16], published: &[Published]) -> Result<Self, Failure> {
        let pasta = Pasta::find().or_machine()?;
        let families = DefaultRoutes::here().or_machine()?;
        if families == DefaultRoutes::default() {
            return Err(Failure::machine(
                "--net host: this host has no default route, so pasta cannot use its network: connect it to a network, \
                 or run the other side of the test at the far end (--far)",
            ));
        }
        let resolver = Resolver::of_host(families)
            .with_context(|| format!("--net host: {RESOLV_CONF}"))
            .or_machine()?;
        let servers = resolver.as_ref().map_or(&[][..], Resolver::servers);
        let probe = ResolverProbe::start(servers);
        let published = published.iter().map(|published| {
            let listener = TcpListener::bind(published.at)
                .map_err(|error| cannot_listen(published.at, error))
                .context("-p")?;
            anyhow::Ok((listener, *published))
        });
        let published = published.collect::<Result<_>>().or_machine()?;
        // pasta pings with such a socket.
        let can_ping = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4)).is_ok();
        Ok(Self {
            pasta,
            families,
            resolver,
            probe,
            host_ports: host_ports.iter().copied().collect(),
            socket_tables: SocketTables::here(),
            published,
            ping_groups: (!can_ping).then(ping::group_range),
            is_root: geteuid().is_root(),
            gateway: Gateway::prepare()?,
        })
    }

    /// Connects the bed's far end with the host. From the return on the client reaches the host's network.
    ///
    /// # Errors
    /// pasta or a relay fails.
    pub(crate) fn join(self, bed: &EmulatedBed, config: &BedConfig) -> Result<JoinedHost> {
        let Self {
            pasta,
            mut gateway,
            families,
            resolver,
            probe,
            ..
        } = self;
        let families = DefaultRoutes {
            v6: families.v6 && config.has_ipv6(),
            ..families
        };
        let line = pasta.command_line(bed.server(), self.is_root, config.mtu, families);
        gateway.start(&line)?;
        let has_ended = Arc::clone(gateway.has_ended());
        let opened = bed.open_to_host(config, families, &has_ended);
        opened.map_err(|error| match error {
            BedError::NoTap => anyhow::anyhow!("--net host: pasta failed: {}", gateway.said()),
            other => anyhow::Error::from(other).context("--net host"),
        })?;
        let mut relays = Vec::new();
        if !self.host_ports.is_empty() {
            let client = bed.client();
            let tables = Arc::new(self.socket_tables);
            let ports = self.host_ports.into_iter();
            let services = ports.map(|port| HostService::new(port, families, Arc::clone(&tables)));
            let routes = routes_to_host(client, services)?;
            relays.push(Relay::start(client, routes)?);
        }
        let published = self.published.into_iter();
        let (on_localhost, on_address): (Vec<_>, Vec<_>) =
            published.partition(|(_, published)| published.is_on_localhost);
        for (end, published) in [(bed.client(), on_localhost), (bed.server(), on_address)] {
            if !published.is_empty() {
                let routes = published.into_iter().map(to_command);
                let routes = routes.collect::<Result<_>>()?;
                relays.push(Relay::start(end, routes)?);
            }
        }
        note_families(families);
        if let Some(groups) = &self.ping_groups {
            note(format_args!(
                "farwire: the command can ping only the far end, because net.ipv4.ping_group_range ({groups}) of this host has none \
                 of your groups: as root, run `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`"
            ));
        }
        let mut files = resolver::other_files(families)?;
        match resolver {
            Some(resolver) => {
                if !resolver.is_reachable() {
                    warn(Resolver::unreachable(families));
                }
                files.push(resolver.file()?);
            }
            None => warn(format_args!(
                "this host has no {RESOLV_CONF}, so the command cannot look up names"
            )),
        }
        Ok(JoinedHost {
            files,
            probe,
            gateway,
            relays,
        })
    }
}

impl JoinedHost {
    /// Gives `command`, and nobody else, the names of the host's network.
    pub(crate) fn prepare(&self, command: &mut Command) {
        replaced_files::replace_files(command, self.files.clone());
    }

    /// Returns a hint for a command that failed, if no resolver of the host has answered.
    pub(crate) fn silent_resolvers(&self) -> Option<String> {
        let silent = self.probe.silent()?;
        let silent: Vec<String> = silent.iter().map(ToString::to_string).collect();
        Some(format!(
            "no resolver of this host has answered ({}), so the command cannot look up names: correct {RESOLV_CONF}, or use \
             addresses",
            silent.join(", ")
        ))
    }

    /// Checks that pasta is running.
    ///
    /// # Errors
    /// pasta has ended. The error has its last lines.
    pub(crate) fn check(&self) -> Result<()> {
        if self.gateway.has_ended().load(Ordering::Acquire) {
            bail!(
                "pasta has ended, so the command no longer reaches the host's network: {}",
                self.gateway.said()
            );
        }
        Ok(())
    }
}

impl FromStr for Published {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` does not name a port to publish: write HOST_PORT:PORT, HOST_PORT:localhost:PORT or \
                 ADDRESS:HOST_PORT:PORT, such as 8080:80"
            )
        };
        let (at, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let (at, is_on_localhost) = match at.strip_suffix(":localhost") {
            Some(at) => (at, true),
            None => (at, false),
        };
        let at = match at.parse::<u16>() {
            Ok(port) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            Err(_) => at.parse(),
        };
        match (at, port) {
            (Ok(at), Some(port)) => Ok(Self {
                at,
                port,
                is_on_localhost,
            }),
            _ => Err(wrong()),
        }
    }
}

/// Listens on the port of each of `services` on the client's loopback, and relays to the service.
fn routes_to_host(
    client: &NetNs,
    services: impl Iterator<Item = HostService>,
) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for service in services {
        let port = service.port();
        let listen = |address: IpAddr| TcpListener::bind((address, port));
        let v4 = client.run(|| listen(Ipv4Addr::LOCALHOST.into()))?;
        // A kernel without IPv6 has no such address.
        let v6 = client.run(|| listen(Ipv6Addr::LOCALHOST.into()))?.ok();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let v4 = v4
            .map_err(|error| cannot_listen(at, error))
            .with_context(|| format!("--host-port {port}: the command's localhost"))?;
        // The warning about a service that the command cannot reach comes before the command starts, if possible.
        service.locate();
        let to = Service {
            at: Arc::new(move || service.locate()),
            patience: Duration::ZERO,
        };
        let listeners = [Some(v4), v6].into_iter().flatten();
        routes.extend(listeners.map(|from| Route {
            from,
            to: to.clone(),
        }));
    }
    Ok(routes)
}

/// Relays from a port of the host to a port of the command.
fn to_command((listener, published): (TcpListener, Published)) -> Result<Route> {
    let (address, place, patience) = if published.is_on_localhost {
        (
            Ipv4Addr::LOCALHOST,
            "the command's localhost",
            START_PATIENCE,
        )
    } else {
        (CLIENT.v4, "the command", Duration::ZERO)
    };
    note(format_args!(
        "farwire: {} of the host is port {} of {place}",
        listener.local_addr()?,
        published.port
    ));
    let at = SocketAddr::new(address.into(), published.port);
    let to = Service {
        at: Arc::new(move || at),
        patience,
    };
    Ok(Route { from: listener, to })
}

/// Says which family the command does not have.
fn note_families(families: DefaultRoutes) {
    let missing = match families {
        DefaultRoutes { v4: true, v6: true } => return,
        DefaultRoutes { v4: false, .. } => "IPv4",
        DefaultRoutes { v6: false, .. } => "IPv6",
    };
    note(format_args!(
        "farwire: this host has no default route for {missing}, so the command cannot use {missing} beyond the far end"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_port_is_on_the_loopback_unless_an_address_is_given() {
        let published = |text: &str| {
            text.parse::<Published>()
                .map(|p| (p.at.to_string(), p.port, p.is_on_localhost))
        };
        let right = |at: &str, port, is_on_localhost| Ok((at.to_owned(), port, is_on_localhost));
        assert_eq!(published("8080:80"), right("127.0.0.1:8080", 80, false));
        assert_eq!(published("0.0.0.0:1:2"), right("0.0.0.0:1", 2, false));
        assert_eq!(published("[::1]:8080:80"), right("[::1]:8080", 80, false));
        let own = "4444:localhost:5555";
        assert_eq!(published(own), right("127.0.0.1:4444", 5555, true));
        let of_all = "0.0.0.0:4444:localhost:5555";
        assert_eq!(published(of_all), right("0.0.0.0:4444", 5555, true));
        for wrong in [
            "80",
            "",
            ":",
            "8080:0",
            "a:80",
            "1:2:3",
            "8080:70000",
            "localhost:80",
            ":localhost:80",
            "1:localhost",
        ] {
            let error = published(wrong).unwrap_err();
            assert!(error.contains("such as 8080:80"), "{error}");
        }
    }
}
