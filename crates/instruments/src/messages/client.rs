//! The client's side of one connection, up to the first message.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use netio::tcp;
use socket2::SockRef;

use super::exchange::{Broken, Channel, Watch};
use super::wire::{Grant, Request};
use crate::endpoint::{self, CONNECT_TIMEOUT, Local};
use netio::stop::Stop;
use record::Measurement;

/// A server that neither sends nor takes anything for so long is gone, unless the user of this module knows better.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// Where the far end is and how to reach it.
#[derive(Clone, Debug)]
pub(crate) struct FarEnd {
    /// The server.
    pub(crate) address: SocketAddr,
    /// The near end, if it matters.
    pub(crate) local: Option<Local>,
    /// The largest segment to announce and to send (TCP_MAXSEG), if not the path's.
    pub(crate) mss: Option<u32>,
    /// How long it may neither send nor take anything before it counts as gone; usually [`SILENCE`].
    pub(crate) silence: Duration,
}

/// A connection whose request was granted.
pub(super) struct Call {
    pub(super) channel: Channel,
    pub(super) grant: Grant,
    /// Payload bytes of a full segment, and the MTU of the path, as the kernel knows them.
    pub(super) segment: Segment,
}

/// What the connection's packets may hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Payload of a full segment of this end's, options deducted.
    pub(super) mss: u32,
    /// Of the path; absent where the kernel does not say.
    pub(super) mtu: Option<u32>,
}

impl FarEnd {
    /// Connects.
    ///
    /// # Errors
    /// No connection within [`CONNECT_TIMEOUT`].
    pub(super) fn connect(&self, stop: &Stop) -> Result<Channel> {
        let socket = endpoint::tcp(self.address, self.local.as_ref())?;
        if let Some(mss) = self.mss {
            socket
                .set_tcp_mss(mss)
                .with_context(|| format!("the kernel refuses an MSS of {mss}"))?;
        }
        let stream = endpoint::connect(socket, self.address, CONNECT_TIMEOUT, stop)?;
        let watch = Watch {
            stop: stop.clone(),
            silence: self.silence,
        };
        Ok(Channel::new(stream, watch)?)
    }

    /// Asks over `channel`, and takes the answer.
    ///
    /// # Errors
    /// The far end refuses, is something else, or falls silent.
    pub(super) fn ask(&self, channel: Channel, request: &Request) -> Result<Call> {
        let answer = channel
            .send_line(&request.to_string())
            .and_then(|()| channel.receive_line())
            .map_err(|broken| self.blame("answering the request", broken))?;
        let grant = Grant::parse(&answer).with_context(|| {
            format!(
                "{}: is `farwire serve` of this version there?",
                self.address
            )
        })?;
        let nagle = match *request {
            Request::Pingpong { nagle, .. }
            | Request::Blast { nagle, .. }
            | Request::Transfer { nagle, .. } => nagle,
        };
        channel.stream().set_nodelay(!nagle)?;
        let segment = Segment {
            mss: SockRef::from(channel.stream()).tcp_mss()?,
            mtu: tcp::path_mtu(channel.stream()).ok(),
        };
        Ok(Call {
            channel,
            grant,
            segment,
        })
    }

    /// The error of a connection that broke while the far end was `doing` something.
    pub(super) fn blame(&self, doing: &str, broken: Broken) -> anyhow::Error {
        match broken {
            Broken::Stopped(cause) => anyhow!("{cause}"),
            broken => anyhow!("{} failed at {doing}: {broken}", self.address),
        }
    }
}

impl Segment {
    /// States it among the facts of `measurement`.
    pub(super) fn state(self, measurement: &mut Measurement) {
        let facts = &mut measurement.facts;
        facts.insert(
            "mss".to_owned(),
            format!("{} bytes of payload in a full segment", self.mss),
        );
        if let Some(mtu) = self.mtu {
            facts.insert("mtu".to_owned(), format!("{mtu} bytes, of the path"));
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
