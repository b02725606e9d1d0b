//! The ends of a measurement: the address that HOST names, the local address or interface, and sockets between the two.

use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::error::{Context, Error, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};

use crate::failure::check_stop;
use crate::round_trip::FIRST_ANSWER;
use netio::stop::{STOP_INTERVAL, Stop};

/// The time-out for setting up a connection, unless the user sets one.
pub(crate) const CONNECT_TIMEOUT: Duration = FIRST_ANSWER;

/// The IP version to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// The version to which the name resolves first.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// The near end, given by `--bind`: an address of this machine, or an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// This address.
    Address(IpAddr),
    /// This interface only, with its address.
    Interface(String),
}

/// Resolves `host`: a name or an IPv4 or IPv6 address (in brackets or not), optionally with a port behind it. Without
/// one, the result has `port`.
///
/// # Errors
/// Returns an error if the host does not resolve, or has no address of `family`.
pub fn resolve(host: &str, port: u16, family: Family) -> Result<SocketAddr> {
    let (name, port) = split_port(host, port)?;
    let mut addresses = (name, port)
        .to_socket_addrs()
        .with_context(|| format!("{name} does not resolve"))?;
    let fitting = addresses.find(|address| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    });
    let version = if family == Family::V6 { "IPv6" } else { "IPv4" };
    fitting.with_context(|| format!("{name} has no {version} address"))
}

/// Returns a TCP socket that is bound to `local`, if any. It is not yet connected to `target`, so that options can be
/// set.
///
/// # Errors
/// Returns an error if `local` is not of this machine, or not of the target's IP version.
pub(crate) fn tcp(target: SocketAddr, local: Option<&Local>) -> Result<Socket> {
    bound(target, local, Type::STREAM, Protocol::TCP)
}

/// Connects `socket` to `target` within `timeout`, unless `stop` comes first.
///
/// # Errors
/// Returns an error that names the target if it refuses, is unreachable or does not answer in time, or an error for the
/// stop.
pub(crate) fn connect(
    socket: Socket,
    target: SocketAddr,
    timeout: Duration,
    stop: &Stop,
) -> Result<TcpStream> {
    let outcome = attempt(&socket, target, timeout, stop)?;
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::Peer(format!(
            "{target} refuses the connection: no program listens there"
        )),
        io::ErrorKind::TimedOut => {
            let timeout_s = timeout.as_secs_f64();
            Error::Peer(format!("{target} does not answer within {timeout_s} s"))
        }
        _ => Error::from(error).during(format!("no connection to {target}")),
    })?;
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

/// Connects `socket`, which is non-blocking afterwards, to `target`, and returns the outcome: a time-out after
/// `timeout`.
///
/// # Errors
/// Returns an error if the measurement was stopped, or the kernel has no memory.
pub(crate) fn attempt(
    socket: &Socket,
    target: SocketAddr,
    timeout: Duration,
    stop: &Stop,
) -> Result<io::Result<()>> {
    socket.set_nonblocking(true)?;
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {
            connected(socket, timeout, stop)
        }
        known => Ok(known),
    }
}

/// Waits for the outcome of a connection attempt on `socket`.
fn connected(socket: &Socket, timeout: Duration, stop: &Stop) -> Result<io::Result<()>> {
    let begun = Instant::now();
    loop {
        check_stop(stop)?;
        let left = timeout.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(Err(io::ErrorKind::TimedOut.into()));
        }
        let ready = wait_for(socket, PollFlags::POLLOUT, left.min(STOP_INTERVAL));
        if ready.context("waiting for a connection")? {
            return Ok(socket.take_error()?.map_or(Ok(()), Err));
        }
    }
}

/// Waits until `socket` is ready for one of `events`, at most for `most`, and returns whether it is ready. A signal
/// ends the wait early.
///
/// # Errors
/// Returns an error if the kernel has no memory.
pub(crate) fn wait_for(socket: &impl AsFd, events: PollFlags, most: Duration) -> nix::Result<bool> {
    let mut fds = [PollFd::new(socket.as_fd(), events)];
    match ppoll(&mut fds, Some(TimeSpec::from_duration(most)), None) {
        Err(Errno::EINTR) => Ok(false),
        ready => ready.map(|count| count > 0),
    }
}

/// Returns a UDP socket that is bound to `local`, if any, and connected to `target`.
///
/// # Errors
/// Returns the errors of [`tcp`], or an error if there is no route to the target.
pub(crate) fn udp(target: SocketAddr, local: Option<&Local>) -> Result<UdpSocket> {
    let socket = bound(target, local, Type::DGRAM, Protocol::UDP)?;
    socket
        .connect(&target.into())
        .with_context(|| format!("{target} cannot be reached"))?;
    Ok(socket.into())
}

/// Binds `socket` to `local`, if any, before it sends to `target`.
///
/// # Errors
/// Returns an error if `local` is not of this machine, or not of the target's IP version.
pub(crate) fn bind(socket: &Socket, target: SocketAddr, local: Option<&Local>) -> Result<()> {
    match local {
        None => {}
        Some(Local::Interface(name)) => bind_interface(socket, name)?,
        Some(Local::Address(address)) => {
            ensure!(
                Input,
                address.is_ipv4() == target.is_ipv4(),
                "cannot bind to {address}: {} is an address of the other IP version",
                target.ip()
            );
            let bound = socket.bind(&SocketAddr::new(*address, 0).into());
            let wrong = || format!("cannot bind to {address}: not an address of this machine");
            bound.with_context(wrong)?;
        }
    }
    Ok(())
}

/// Returns a TCP socket that listens on `port` of `local`, or of all addresses of both IP versions. Port 0 means any
/// free port.
///
/// # Errors
/// Returns an error that states the cause: the port is taken or not allowed, or `local` is not of this machine.
pub(crate) fn listen_tcp(local: Option<&Local>, port: u16) -> Result<TcpListener> {
    const BACKLOG: i32 = 1024;
    let listen = |socket: &Socket, at: SocketAddr| {
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        socket.listen(BACKLOG)
    };
    Ok(listening(local, port, Type::STREAM, Protocol::TCP, listen)?.into())
}

/// Returns a UDP socket on `port` of `local`, or of all addresses of both IP versions. Port 0 means any free port.
///
/// # Errors
/// Returns the errors of [`listen_tcp`].
pub(crate) fn listen_udp(local: Option<&Local>, port: u16) -> Result<UdpSocket> {
    let bind = |socket: &Socket, at: SocketAddr| socket.bind(&at.into());
    Ok(listening(local, port, Type::DGRAM, Protocol::UDP, bind)?.into())
}

/// Returns a UDP socket bound to `address`, and to the interface if `local` is one.
///
/// # Errors
/// Returns the errors of socket(2), bind(2) and the SO_BINDTODEVICE option.
pub(crate) fn udp_on(address: SocketAddr, local: Option<&Local>) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(Local::Interface(name)) = local {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

impl FromStr for Local {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        ensure!(Input, !text.is_empty(), "an interface name or an address");
        let address = text.parse().map(Self::Address);
        Ok(address.unwrap_or_else(|_| Self::Interface(text.to_owned())))
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Interface(name) => name.fmt(f),
        }
    }
}

fn bind_interface(socket: &Socket, name: &str) -> Result<()> {
    let bound = socket.bind_device(Some(name.as_bytes()));
    bound.with_context(|| format!("cannot bind to interface {name}"))
}

fn split_port(host: &str, default: u16) -> Result<(&str, u16)> {
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let closed = rest.split_once(']');
        let (name, rest) =
            closed.with_context(|| format!("{host}: the closing bracket is missing"))?;
        (name, rest.strip_prefix(':'))
    } else {
        // A text with more than one colon is an IPv6 address without a port.
        let named = host.split_once(':').filter(|(_, text)| !text.contains(':'));
        named.map_or((host, None), |(name, text)| (name, Some(text)))
    };
    let Some(text) = port else {
        return Ok((name, default));
    };
    let port = text.parse();
    Ok((
        name,
        port.with_context(|| format!("{host}: `{text}` is not a port (0 to 65535)"))?,
    ))
}

fn bound(
    target: SocketAddr,
    local: Option<&Local>,
    kind: Type,
    protocol: Protocol,
) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(target), kind, Some(protocol))?;
    bind(&socket, target, local)?;
    Ok(socket)
}

fn listening(
    local: Option<&Local>,
    port: u16,
    kind: Type,
    protocol: Protocol,
    open: impl FnOnce(&Socket, SocketAddr) -> io::Result<()>,
) -> Result<Socket> {
    let (socket, address) = match local {
        Some(Local::Address(address)) => {
            let domain = Domain::for_address((*address, port).into());
            (Socket::new(domain, kind, Some(protocol))?, *address)
        }
        // If the kernel has no IPv6, the socket listens on all addresses of IPv4.
        _ => match Socket::new(Domain::IPV6, kind, Some(protocol)) {
            Ok(socket) => (socket, Ipv6Addr::UNSPECIFIED.into()),
            Err(_) => {
                let socket = Socket::new(Domain::IPV4, kind, Some(protocol))?;
                (socket, Ipv4Addr::UNSPECIFIED.into())
            }
        },
    };
    if address.is_ipv6() {
        // The socket also accepts IPv4, whatever net.ipv6.bindv6only says.
        socket.set_only_v6(false)?;
    }
    if let Some(Local::Interface(name)) = local {
        bind_interface(&socket, name)?;
    }
    let at = SocketAddr::new(address, port);
    open(&socket, at).map_err(|error| cannot_listen(at, error))?;
    Ok(socket)
}

/// Returns the error of a program that cannot listen at `at`, with the way round.
pub fn cannot_listen(at: SocketAddr, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::Input(format!(
            "another program uses {at}: choose another port, or end that program, which `sudo ss -lntup 'sport = :{}'` \
             shows",
            at.port()
        )),
        io::ErrorKind::PermissionDenied => Error::from(error).during(format!(
            "{at}: a port below {} needs CAP_NET_BIND_SERVICE: choose another port",
            first_free_port()
        )),
        _ => Error::from(error).during(format!("cannot listen on {at}")),
    }
}

/// Returns the first port that needs no privilege (ip_unprivileged_port_start in ip(7)).
pub(crate) fn first_free_port() -> u16 {
    const USUAL: u16 = 1024;
    let path = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_cannot_be_used_is_named_with_the_way_round() {
        let said = |kind: io::ErrorKind| {
            let at = SocketAddr::from(([127, 0, 0, 1], 80));
            format!("{:#}", cannot_listen(at, kind.into()))
        };
        let in_use = said(io::ErrorKind::AddrInUse);
        assert!(
            in_use.starts_with("another program uses 127.0.0.1:80: choose another port"),
            "{in_use}"
        );
        assert!(
            in_use.contains("`sudo ss -lntup 'sport = :80'`"),
            "{in_use}"
        );
        let privileged = said(io::ErrorKind::PermissionDenied);
        assert!(privileged.contains("choose another port"), "{privileged}");
        let elsewhere = said(io::ErrorKind::AddrNotAvailable);
        assert!(
            elsewhere.starts_with("cannot listen on 127.0.0.1:80: "),
            "{elsewhere}"
        );
    }

    #[test]
    fn a_host_may_include_a_port() {
        for (host, wanted) in [
            ("127.0.0.1", "127.0.0.1:7"),
            ("127.0.0.1:9", "127.0.0.1:9"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
            ("[::1]:9", "[::1]:9"),
        ] {
            let found = resolve(host, 7, Family::Any).unwrap();
            assert_eq!(found, wanted.parse().unwrap());
        }
    }

    #[test]
    fn an_invalid_host_is_refused_with_its_cause() {
        for (host, family, cause) in [
            ("127.0.0.1:x", Family::Any, "`x` is not a port (0 to 65535)"),
            ("[::1", Family::Any, "the closing bracket is missing"),
            ("127.0.0.1", Family::V6, "no IPv6 address"),
            ("::1", Family::V4, "no IPv4 address"),
            ("no.such.name.invalid", Family::Any, "does not resolve"),
        ] {
            let error = format!("{:#}", resolve(host, 7, family).unwrap_err());
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn connecting_ends_with_the_connection_a_stop_or_the_time_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let attempt = |timeout, stop: &Stop| {
            let socket = tcp(target, None).unwrap();
            connect(socket, target, timeout, stop).map_err(|error| error.to_string())
        };
        let connected = attempt(CONNECT_TIMEOUT, &Stop::default()).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), target);
        let stopped = Stop::default().within(Duration::ZERO);
        let cause = attempt(CONNECT_TIMEOUT, &stopped).unwrap_err();
        assert_eq!(cause, "not done within 0 s");
        let cause = attempt(Duration::ZERO, &Stop::default()).unwrap_err();
        assert_eq!(cause, format!("{target} does not answer within 0 s"));
        drop(listener);
        let cause = attempt(CONNECT_TIMEOUT, &Stop::default()).unwrap_err();
        assert!(cause.contains("refuses the connection"), "{cause}");
    }

    #[test]
    fn an_address_of_another_machine_or_version_cannot_be_bound() {
        let target = "127.0.0.1:9".parse().unwrap();
        for (local, cause) in [
            ("192.0.2.1", "not an address of this machine"),
            ("::1", "other IP version"),
            ("nosuch0", "interface nosuch0"),
        ] {
            let local = local.parse().unwrap();
            let error = format!("{:#}", udp(target, Some(&local)).unwrap_err());
            assert!(error.contains(cause), "{error}");
        }
    }
}
