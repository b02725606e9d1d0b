//! The client of a connection, and whether it is still connected.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Stream;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// The client of the connection on which a request arrived.
#[derive(Clone, Debug)]
pub(super) struct ClientConnection(Arc<OwnedFd>);

impl ClientConnection {
    /// Returns the client at the other end of `socket`.
    pub(super) fn of(socket: impl AsFd) -> io::Result<Self> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        Ok(Self(Arc::new(socket)))
    }

    /// Waits until the client has disconnected or closed its sending side (EPOLLRDHUP,
    /// epoll_ctl(2)). hyper notices that only when it reads, and it does not read while further
    /// bytes wait for the end of a response.
    pub(super) async fn disconnected(self) {
        if self.closed().await.is_err() {
            // Only hyper can notice the end in this case.
            pending().await
        }
    }

    async fn closed(self) -> io::Result<()> {
        // Nothing is read from the socket, so its kind does not matter.
        let socket = UnixStream::from_std(Stream::from(self.0.try_clone()?))?;
        while !socket.ready(Interest::READABLE).await?.is_read_closed() {
            // This clears the readiness, so that the loop waits for new data.
            let _ = socket.try_io(Interest::READABLE, || -> io::Result<()> {
                Err(ErrorKind::WouldBlock.into())
            });
        }
        Ok(())
    }
}
