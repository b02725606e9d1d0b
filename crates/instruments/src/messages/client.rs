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

/// A server that neither sends nor takes anything for so long is gone, unless the user of this module knows better.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// Where the far end is and how to reach it.
#[derive(Clone, Debug)]
pub(crate) struct MessageTarget {
    /// The server.
    pub(crate) address: SocketAddr,
    /// The near end, if it matters.
    pub(crate) local: Option<Local>,
    /// The largest segment to announce and to send (TCP_MAXSEG), if not the path's.
    pub(crate) mss: Option<u32>,
    /// How long it may neither send nor take anything before it counts as gone; usually [`SILENCE`].
    pub(crate) silence: Duration,
}

impl MessageTarget {
    /// Connects, asks for `mode` with Nagle's algorithm on or off, and takes the answer; states what the connection's packets may hold among the facts of
    /// `measurement`.
    ///
    /// # Errors
    /// No connection within [`CONNECT_TIMEOUT`]; or the far end refuses, is something else, or falls silent.
    pub(super) fn ask(
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
        let answer = stream.send_line(&MessageRequest { mode, nagle }.to_string());
        let answer = answer.and_then(|()| stream.receive_line());
        let answer = answer.map_err(|broken| self.blame("answering the request", broken))?;
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
        let facts = facts.map(|(name, fact)| (name.to_owned(), fact));
        measurement.facts.extend(facts);
        if let Ok(mtu) = tcp::path_mtu(socket) {
            let mtu = format!("{mtu} bytes, of the path");
            measurement.facts.insert("mtu".to_owned(), mtu);
        }
        Ok((stream, grant))
    }

    /// The error of a connection that broke while the far end was `doing` something.
    pub(super) fn blame(&self, doing: &str, broken: MessageError) -> Error {
        match broken {
            MessageError::Stopped(cause) => Error::Stopped(cause),
            broken => Error::Peer(format!("{} failed at {doing}: {broken}", self.address)),
        }
    }
}

/// `length` bytes that do not compress, the same every time.
pub(super) fn incompressible(length: usize) -> Vec<u8> {
    const SEED: u64 = 0xfa12_31e5;
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(SEED).fill(&mut bytes);
    bytes
}
