//! How the TCP services take connections in: from those who may test, and not without bound.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use std::{io, thread};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

use super::{Shared, set_congestion};
use crate::endpoint::{self, Local};
use netio::stop::STOP_INTERVAL;

/// Connections of a service without a test, beside those that the limit of tests admits.
pub(crate) const WAITING_ROOM: usize = 64;
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

/// Hands over every connection as `take` if its peer may test, else as `refuse`, until the far end stops.
pub(crate) fn accept_all(
    listener: &TcpListener,
    shared: &Shared,
    mut take: impl FnMut(TcpStream, SocketAddr),
    refuse: impl Fn(TcpStream),
) {
    while !shared.stopping() {
        if !await_input(listener) {
            continue;
        }
        match listener.accept() {
            Ok((stream, peer)) if shared.allows(peer.ip()) => take(stream, peer),
            Ok((stream, _)) => refuse(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Waits until there is something to take, or it is time to look whether to end; whether there is.
pub(crate) fn await_input(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(STOP_INTERVAL).unwrap_or(PollTimeout::ZERO);
    // An interrupted wait is a short one.
    matches!(poll(&mut fds, timeout), Ok(1..))
}
