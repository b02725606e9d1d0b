//! Accepting TCP connections: only from clients that may test, and within limits.

use crate::error::Result;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use std::{io, thread};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, TcpKeepalive};

use super::{AdmissionRefusal, ConnectionPermit, Shared, set_congestion};
use crate::endpoint::{self, Local};
use crate::round_trip;

/// The pause before accepting again after the process ran out of file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Returns a non-blocking listener on `port` of `bind`. Its connections send with the far end's congestion control.
///
/// # Errors
/// Returns an error if the listener cannot be bound or the congestion control cannot be set.
pub(crate) fn listen(bind: Option<&Local>, port: u16, shared: &Shared) -> Result<TcpListener> {
    let listener = endpoint::listen_tcp(bind, port)?;
    // An accepted connection inherits the congestion control of its listener.
    set_congestion(&SockRef::from(&listener), shared.congestion())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts connections for the service `protocol` until the far end stops. Passes each one to `take` together with its
/// permit, or to `refuse` if it gets no permit.
pub(crate) fn accept_all(
    listener: &TcpListener,
    (protocol, shared): (&'static str, &Shared),
    mut take: impl FnMut(TcpStream, SocketAddr, ConnectionPermit),
    refuse: impl Fn(TcpStream, AdmissionRefusal),
) {
    while !shared.stopping() {
        if !await_input(listener, shared, None) {
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

/// Makes the kernel end a connection whose peer is gone: when sent data (TCP_USER_TIMEOUT in tcp(7)) or keepalive
/// probes (SO_KEEPALIVE) remain unanswered for 1.5 times `idle`, to which some round trips are added. A test's own
/// limits are shorter and therefore act first.
///
/// # Errors
/// Returns an error if the socket refuses these options.
pub(crate) fn keep_alive(socket: &SockRef<'_>, idle: Duration) -> io::Result<()> {
    const PROBES: u32 = 3;
    let idle = round_trip::extended(idle, round_trip::of(&**socket));
    // The kernel takes whole seconds, at least one.
    let interval = Duration::from_secs((idle / (2 * PROBES)).as_secs().max(1));
    let keepalive = TcpKeepalive::new()
        .with_time(idle.max(interval))
        .with_interval(interval)
        .with_retries(PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(idle * 3 / 2))
}

/// Waits for input on `socket` until the far end stops, and not longer than `longest` if that is given. Returns whether
/// there is input.
pub(crate) fn await_input(socket: impl AsFd, shared: &Shared, longest: Option<Duration>) -> bool {
    let mut fds =
        [socket.as_fd(), shared.stop_alarm()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let timeout = longest.map_or(PollTimeout::NONE, |longest| {
        PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX)
    });
    // A signal only makes the wait shorter.
    poll(&mut fds, timeout).is_ok() && fds[0].any() == Some(true)
}
