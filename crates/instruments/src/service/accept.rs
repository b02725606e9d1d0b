//! How the TCP services take connections in: from those who may test, and not without bound.

use crate::error::Result;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use std::{io, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, TcpKeepalive};

use super::{AdmissionRefusal, ConnectionPermit, Shared, set_congestion};
use crate::endpoint::{self, Local};
use netio::stop::STOP_INTERVAL;

/// Before accepting again when the process has no file descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A nonblocking listener on `port` of `bind`, whose connections send with the far end's congestion control.
///
/// # Errors
/// It cannot be bound.
pub(crate) fn listen(bind: Option<&Local>, port: u16, shared: &Shared) -> Result<TcpListener> {
    let listener = endpoint::listen_tcp(bind, port)?;
    // Connections inherit it from the socket that accepts them.
    set_congestion(&SockRef::from(&listener), shared.congestion())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Hands over every connection to the service `protocol` as `take` with its place if there is one for it, else as `refuse`, until the far end stops.
pub(crate) fn accept_all(
    listener: &TcpListener,
    (protocol, shared): (&'static str, &Shared),
    mut take: impl FnMut(TcpStream, SocketAddr, ConnectionPermit),
    refuse: impl Fn(TcpStream, AdmissionRefusal),
) {
    while !shared.stopping() {
        if !await_input(listener) {
            continue;
        }
        match listener.accept() {
            Ok((stream, peer)) => match shared.enter(protocol, peer) {
                Ok(place) => take(stream, peer, place),
                Err(refusal) => refuse(stream, refusal),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Makes a connection end whose peer is gone: after half as long again as `idle`, so that a test's own limits come first, without an
/// answer to what was sent (tcp(7), TCP_USER_TIMEOUT), or to a question whether it is there (SO_KEEPALIVE).
///
/// # Errors
/// The socket refuses these options.
pub(crate) fn keep_alive(socket: &SockRef<'_>, idle: Duration) -> io::Result<()> {
    const PROBES: u32 = 3;
    // Whole seconds, at least one.
    let interval = Duration::from_secs((idle / (2 * PROBES)).as_secs().max(1));
    let keepalive = TcpKeepalive::new()
        .with_time(idle.max(interval))
        .with_interval(interval)
        .with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(idle * 3 / 2))
}

/// Waits until there is something to take, or it is time to look whether to end; whether there is.
pub(crate) fn await_input(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(STOP_INTERVAL).unwrap_or(PollTimeout::ZERO);
    // An interrupted wait is a short one.
    matches!(poll(&mut fds, timeout), Ok(1..))
}
