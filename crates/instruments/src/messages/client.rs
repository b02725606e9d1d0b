//! The client's side of one connection, up to the first message.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use netio::tcp;
use socket2::SockRef;

use super::connection::{MessageError, MessageStream};
use super::wire::{MessageGrant, MessageRequest, Mode};
use crate::endpoint::{self, CONNECT_TIMEOUT, Local};
use netio::stop::Stop;
use record::Measurement;

/// The default time after which a server that neither sends nor accepts data counts as gone. Some round trips are
/// added.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// The address of the far end and the settings to reach it.
#[derive(Clone, Debug)]
pub(crate) struct MessageTarget {
    /// Address of the server.
    pub(crate) address: SocketAddr,
    /// The local address or interface, if it matters.
    pub(crate) local: Option<Local>,
    /// The largest segment to announce and to send (TCP_MAXSEG). `None` means the path's.
    pub(crate) mss: Option<u32>,
    /// The time after which a server that neither sends nor accepts data counts as gone, usually [`SILENCE`].
    pub(crate) silence: Duration,
}

impl MessageTarget {
    /// Connects, requests `mode` with Nagle's algorithm on or off, and reads the answer. Adds the connection's segment
    /// and buffer sizes and the path's MTU to the facts of `measurement`.
    ///
    /// # Errors
    /// Returns an error if there is no connection within [`CONNECT_TIMEOUT`], or if the far end refuses, is another
    /// program, or falls silent.
    pub(super) fn request(
        &self,
        mode: Mode,
        nagle: bool,
        stop: &Stop,
        measurement: &mut Measurement,
    ) -> Result<(MessageStream, MessageGrant)> {
        let socket = endpoint::tcp(self.address, self.local.as_ref())?;
        if let Some(mss) = self.mss {
            let set = socket.set_tcp_mss(mss);
            set.with_context(|| format!("the kernel refuses an MSS of {mss}"))?;
        }
        let stream = endpoint::connect(socket, self.address, CONNECT_TIMEOUT, stop)?;
        let stream = MessageStream::new(stream, stop.clone(), self.silence)?;
        let answer = stream
            .send_line(&MessageRequest { mode, nagle }.to_string())
            .and_then(|()| stream.receive_line())
            .map_err(|broken| self.error_at("answering the request", broken))?;
        let wrong = || {
            format!(
                "{}: no `farwire serve` of this version answers",
                self.address
            )
        };
        let grant = MessageGrant::parse(&answer).with_context(wrong)?;
        let socket = stream.socket();
        socket.set_nodelay(!nagle)?;
        let mss = SockRef::from(socket).tcp_mss()?;
        let mss = format!("{mss} bytes of payload in a full segment");
        let sndbuf = SockRef::from(socket).send_buffer_size()?;
        let buffers = format!(
            "{sndbuf} bytes to send (SO_SNDBUF), {} bytes to receive at the far end (SO_RCVBUF), at the start of a connection",
            grant.rcvbuf
        );
        let facts = [("mss", mss), ("socket_buffers", buffers)];
        measurement
            .facts
            .extend(facts.map(|(name, fact)| (name.to_owned(), fact)));
        if let Ok(mtu) = tcp::path_mtu(socket) {
            let mtu = format!("{mtu} bytes, of the path");
            measurement.facts.insert("mtu".to_owned(), mtu);
        }
        Ok((stream, grant))
    }

    /// Returns the error for a connection that broke while the far end was `doing` something.
    pub(super) fn error_at(&self, doing: &str, broken: MessageError) -> Error {
        match broken {
            MessageError::Stopped(cause) => Error::Stopped(cause),
            broken => Error::Peer(format!("{} failed at {doing}: {broken}", self.address)),
        }
    }
}

/// Returns `length` incompressible bytes, which are the same in every run.
pub(super) fn incompressible(length: usize) -> Vec<u8> {
    const SEED: u64 = 0xfa12_31e5;
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(SEED).fill(&mut bytes);
    bytes
}
