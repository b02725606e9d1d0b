//! The client of a connection, and whether it is still connected.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Stream;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// The client of the connection by which a request came.
#[derive(Clone, Debug)]
pub(super) struct ClientConnection(Arc<OwnedFd>);

impl ClientConnection {
    /// Whoever is at the other end of this socket.
    pub(super) fn of(socket: impl AsFd) -> io::Result<Self> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        Ok(Self(Arc::new(socket)))
    }

    /// Waits until it has gone, or sends nothing more (EPOLLRDHUP, epoll_ctl(2)). hyper learns of that when it reads, which it does not while
    /// bytes that came after a request wait for its answer's end.
    pub(super) async fn gone(self) {
        if self.closed().await.is_err() {
            // Then hyper alone knows.
            pending().await
        }
    }

    async fn closed(self) -> io::Result<()> {
        // Nothing is read of it, so that it is all the same which kind of stream it is.
        let socket = UnixStream::from_std(Stream::from(self.0.try_clone()?))?;
        while !socket.ready(Interest::READABLE).await?.is_read_closed() {
            // Waits for more than is there now.
            let _ = socket.try_io(Interest::READABLE, || -> io::Result<()> {
                Err(ErrorKind::WouldBlock.into())
            });
        }
        Ok(())
    }
}
