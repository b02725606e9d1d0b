//! A client's side of one HTTP/1.1 connection (RFC 9112): a request, the answer's head, and its body as it comes.

use std::io::ErrorKind::{ConnectionReset, Interrupted, TimedOut, WouldBlock};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use netio::tcp::TcpInfo;

use super::HttpTarget;
use super::body::{self, Body};
use super::server::CONGESTION_HEADER;
use crate::endpoint::{self, CONNECT_TIMEOUT, Local};
use netio::stop::STOP_INTERVAL;
use netio::stop::Stop;

/// A transfer that brings nothing for so long has died; TCP retries well within it.
const SILENCE: Duration = Duration::from_secs(60);
const RECEIVE_BUFFER: usize = 256 * 1024;
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer's start was received and not yet given out.
    filled: usize,
}

/// What is to become of the connection after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    Close,
    Keep,
}

/// An answer's head.
#[derive(Debug)]
pub(super) struct Head {
    /// What follows.
    pub(super) body: Body,
    /// The sender's congestion control, if it says so.
    pub(super) congestion: Option<String>,
    /// Whether the server takes a further request on this connection.
    pub(super) persistent: bool,
    /// When the answer's first byte was there.
    pub(super) first_byte: Instant,
}

/// How one read ended.
pub(super) enum Read<'a> {
    Bytes(&'a [u8]),
    Closed,
    TimeUp,
}

/// How one wait for bytes ended.
enum Filled {
    Some,
    Closed,
    TimeUp,
}

impl Connection {
    /// Connects to the server that `target` names, from `local` if that is said.
    ///
    /// # Errors
    /// As [`endpoint::connect`].
    pub(super) fn open(target: &HttpTarget, local: Option<&Local>, stop: &Stop) -> Result<Self> {
        let socket = endpoint::tcp(target.address, local)?;
        let stream = endpoint::connect(socket, target.address, CONNECT_TIMEOUT, stop)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        Ok(Self {
            stream,
            buffer: vec![0; RECEIVE_BUFFER],
            filled: 0,
        })
    }

    /// Asks for `target`; the moment before it was sent.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn request(
        &mut self,
        target: &HttpTarget,
        afterwards: Afterwards,
    ) -> Result<Instant> {
        let close = match afterwards {
            Afterwards::Close => "Connection: close\r\n",
            Afterwards::Keep => "",
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: farwire/{}\r\nAccept: */*\r\n{close}\r\n",
            target.path,
            target.authority,
            env!("CARGO_PKG_VERSION")
        );
        let sent = Instant::now();
        self.stream
            .write_all(request.as_bytes())
            .context("sending the request")?;
        Ok(sent)
    }

    /// Payload bytes that arrived until now, at most: what came twice counts twice. Absent where the kernel does not say.
    pub(super) fn arrived(&self) -> Option<u64> {
        let info = TcpInfo::of(&self.stream).ok()?;
        Some(u64::from(info.data_segs_in) * u64::from(info.rcv_mss))
    }

    /// The answer's head; nothing if the server closed the connection before it said a byte.
    ///
    /// # Errors
    /// What comes is not HTTP/1.1, or no success; or the connection breaks within it.
    pub(super) fn head(&mut self, stop: &Stop) -> Result<Option<Head>> {
        let mut first_byte = None;
        loop {
            match self.fill(stop, None) {
                Ok(Filled::Some) => {}
                Ok(Filled::Closed | Filled::TimeUp) if self.filled == 0 => return Ok(None),
                Ok(Filled::Closed | Filled::TimeUp) => bail!(
                    "the server closed the connection within the answer's head, after {} bytes",
                    self.filled
                ),
                // So ends a connection that the server closed while the request was on its way.
                Err(error) if self.filled == 0 && is_reset(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
            let first_byte = *first_byte.get_or_insert_with(Instant::now);
            if let Some((head, length)) = parse(&self.buffer[..self.filled], first_byte)? {
                self.buffer.copy_within(length..self.filled, 0);
                self.filled -= length;
                return Ok(Some(head));
            }
            if self.filled >= LONGEST_HEAD {
                bail!("the answer's head is longer than {LONGEST_HEAD} bytes");
            }
        }
    }

    /// Some more of the body; what comes after `until` is not read.
    ///
    /// # Errors
    /// The connection broke or was silent for a minute, or it is to `stop`.
    pub(super) fn read(&mut self, stop: &Stop, until: Option<Instant>) -> Result<Read<'_>> {
        if self.filled == 0 {
            match self.fill(stop, until)? {
                Filled::Some => {}
                Filled::Closed => return Ok(Read::Closed),
                Filled::TimeUp => return Ok(Read::TimeUp),
            }
        }
        let count = std::mem::take(&mut self.filled);
        Ok(Read::Bytes(&self.buffer[..count]))
    }

    /// Receives behind what is filled.
    fn fill(&mut self, stop: &Stop, until: Option<Instant>) -> Result<Filled> {
        let silent_since = Instant::now();
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Filled::TimeUp);
            }
            if let Some(cause) = stop.cause() {
                bail!("{cause}");
            }
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(Filled::Closed),
                Ok(count) => {
                    self.filled += count;
                    return Ok(Filled::Some);
                }
                Err(error) => match error.kind() {
                    WouldBlock | TimedOut | Interrupted => {}
                    _ => return Err(error).context("the connection broke"),
                },
            }
            if silent_since.elapsed() >= SILENCE {
                bail!("nothing came for {} s", SILENCE.as_secs());
            }
        }
    }
}

fn is_reset(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == ConnectionReset)
}

/// A whole head at the start of `data` and its length.
fn parse(data: &[u8], first_byte: Instant) -> Result<Option<(Head, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response
        .parse(data)
        .context("the server's answer is not HTTP/1.1")?;
    let httparse::Status::Complete(length) = parsed else {
        return Ok(None);
    };
    let code = response.code.unwrap_or(0);
    if code != 200 {
        let reason = response.reason.unwrap_or("");
        match body::header(response.headers, "location")? {
            Some(place) if (300..400).contains(&code) => {
                bail!("HTTP status {code} {reason}: it is at {place}: measure that URL")
            }
            _ => bail!("HTTP status {code} {reason}"),
        }
    }
    let closing = body::header(response.headers, "connection")?;
    let closing = closing.is_some_and(|text| text.to_ascii_lowercase().contains("close"));
    let body = Body::of(response.headers)?;
    let persistent = response.version == Some(1) && !closing && !matches!(body, Body::UntilClose);
    let head = Head {
        body,
        congestion: body::header(response.headers, CONGESTION_HEADER)?,
        persistent,
        first_byte,
    };
    Ok(Some((head, length)))
}
