//! A client's connection, which publishes its traffic while a test runs on it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use netio::tcp::TcpInfo;
use tokio::net::TcpStream;

use crate::service::{TestTraffic, TrafficPublisher};

/// The place for the publisher of a connection's test, which is empty until the test begins.
pub(super) type BegunTest = Arc<OnceLock<TrafficPublisher>>;

/// A connection with a client.
#[derive(Debug)]
pub(super) struct ClientConnection {
    stream: TokioIo<TcpStream>,
    begun: BegunTest,
    /// The publisher, from the first read or write of the test onwards.
    publisher: Option<TrafficPublisher>,
}

impl ClientConnection {
    /// Wraps a connection whose test publishes its traffic once it has `begun`.
    pub(super) fn new(stream: TcpStream, begun: BegunTest) -> Self {
        Self {
            stream: TokioIo::new(stream),
            begun,
            publisher: None,
        }
    }

    fn publish(&mut self) {
        if self.publisher.is_none() {
            self.publisher = self.begun.get().cloned();
        }
        if let Some(publisher) = &mut self.publisher {
            let stream = self.stream.inner();
            publisher.publish(|| traffic(stream));
        }
    }
}

/// Returns the traffic of a connection as its kernel counts it, with the heads of requests and responses.
fn traffic(stream: &TcpStream) -> TestTraffic {
    let info = TcpInfo::of(stream).unwrap_or_default();
    let sent = info.bytes_sent.saturating_sub(info.bytes_retrans);
    TestTraffic::of_tcp(&[info], [info.bytes_received, sent])
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some(publisher) = self.begun.get() {
            publisher.finish(&traffic(self.stream.inner()));
        }
    }
}

impl Read for ClientConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.publish();
        read
    }
}

impl Write for ClientConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.publish();
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.publish();
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
