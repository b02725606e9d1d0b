//! The client's side of one HTTP/1.1 connection (RFC 9112): it sends a request and reads the head and body of the
//! response. It knows where the body ends and how many of its bytes are payload.

use std::io::ErrorKind::{ConnectionReset, Interrupted, TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result, bail};
use httparse::Header;

use super::HttpTarget;
use super::server::CONGESTION_HEADER;
use crate::endpoint::{self, CONNECT_TIMEOUT, Local};
use crate::failure::check_stop;
use crate::round_trip;
use netio::stop::{STOP_INTERVAL, Stop};
use netio::tcp::TcpInfo;

/// A transfer without data for this time and some round trips counts as broken; TCP retransmits well within it.
const SILENCE: Duration = Duration::from_secs(60);
/// The size of the receive buffer in bytes.
const RECEIVE_BUFFER: usize = 256 * 1024;
/// The longest line of chunked framing in bytes that is accepted.
const LONGEST_LINE: usize = 4096;
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// An open connection.
#[derive(Debug)]
pub(super) struct HttpConnection {
    /// Host and port of the server, as in the Host header.
    pub(super) authority: String,
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The number of bytes at the start of the buffer that are received and not yet taken.
    filled: usize,
}

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// The body that follows.
    pub(super) body: Body,
    /// The sender's congestion control, if the server states it.
    pub(super) congestion: Option<String>,
    /// Whether the server accepts another request on this connection.
    pub(super) persistent: bool,
    /// The arrival time of the response's first byte.
    pub(super) first_byte: Instant,
}

/// The outcome of a wait for bytes.
pub(super) enum WaitOutcome {
    /// [`HttpConnection::take`] returns the bytes.
    Bytes,
    /// The server closed the connection.
    Closed,
    /// The deadline passed first.
    TimeUp,
}

impl HttpConnection {
    /// Connects to the server of `target`, from `local` if there is one.
    ///
    /// # Errors
    /// Returns the errors of [`endpoint::connect`].
    pub(super) fn open(target: &HttpTarget, local: Option<&Local>, stop: &Stop) -> Result<Self> {
        let socket = endpoint::tcp(target.address, local)?;
        let stream = endpoint::connect(socket, target.address, CONNECT_TIMEOUT, stop)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        Ok(Self {
            authority: target.authority.clone(),
            stream,
            buffer: vec![0; RECEIVE_BUFFER],
            filled: 0,
        })
    }

    /// Sends a request for `target` and returns the time just before sending. Without `keep_alive` it asks the server
    /// to close the connection after the response.
    ///
    /// # Errors
    /// Returns an error if the connection breaks.
    pub(super) fn request(&mut self, target: &HttpTarget, keep_alive: bool) -> Result<Instant> {
        let close = if keep_alive {
            ""
        } else {
            "Connection: close\r\n"
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: farwire/{}\r\nAccept: */*\r\n{close}\r\n",
            target.path,
            target.authority,
            env!("CARGO_PKG_VERSION")
        );
        let sent = Instant::now();
        let sending = self.stream.write_all(request.as_bytes());
        sending.context("sending the request")?;
        Ok(sent)
    }

    /// Returns an upper bound of the payload bytes that arrived, including duplicates. `None` means that the kernel
    /// does not tell.
    pub(super) fn arrived(&self) -> Option<u64> {
        let info = TcpInfo::of(&self.stream).ok()?;
        Some(u64::from(info.data_segs_in) * u64::from(info.rcv_mss))
    }

    /// Returns the least round-trip time that the kernel measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        TcpInfo::of(&self.stream).ok()?.min_rtt
    }

    /// Reads the head of the response. `None` means that the server closed the connection before the first byte.
    ///
    /// # Errors
    /// Returns an error if the response is not HTTP/1.1 or not a success, or if the connection breaks within its head.
    pub(super) fn head(&mut self, stop: &Stop) -> Result<Option<ResponseHead>> {
        let mut first_byte = None;
        loop {
            match self.fill(stop, None) {
                Ok(WaitOutcome::Bytes) => {}
                Ok(WaitOutcome::Closed | WaitOutcome::TimeUp) if self.filled == 0 => {
                    return Ok(None);
                }
                Ok(WaitOutcome::Closed | WaitOutcome::TimeUp) => bail!(
                    Peer,
                    "the server closed the connection within the answer's head, after {} bytes",
                    self.filled
                ),
                // The server closed the connection while the request was on its way.
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
                bail!(
                    Peer,
                    "the answer's head is longer than {LONGEST_HEAD} bytes"
                );
            }
        }
    }

    /// Waits for more of the body. Data that arrives after `until` is not read.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, brings no data for a minute and some round trips, or is stopped.
    pub(super) fn wait(&mut self, stop: &Stop, until: Option<Instant>) -> Result<WaitOutcome> {
        match self.filled {
            0 => self.fill(stop, until),
            _ => Ok(WaitOutcome::Bytes),
        }
    }

    /// Returns the bytes that were received and not yet taken.
    pub(super) fn take(&mut self) -> &[u8] {
        &self.buffer[..std::mem::take(&mut self.filled)]
    }

    /// Receives data behind the filled part of the buffer.
    fn fill(&mut self, stop: &Stop, until: Option<Instant>) -> Result<WaitOutcome> {
        let silent_since = Instant::now();
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(WaitOutcome::TimeUp);
            }
            check_stop(stop)?;
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(WaitOutcome::Closed),
                Ok(count) => {
                    self.filled += count;
                    return Ok(WaitOutcome::Bytes);
                }
                Err(error) => match error.kind() {
                    WouldBlock | TimedOut | Interrupted => {}
                    _ => return Err(error).context("the connection broke"),
                },
            }
            let longest = round_trip::extended(SILENCE, round_trip::of(&self.stream));
            if silent_since.elapsed() >= longest {
                bail!(Peer, "nothing arrived for {} s", longest.as_secs());
            }
        }
    }
}

fn is_reset(error: &Error) -> bool {
    error
        .system()
        .is_some_and(|cause| cause.kind() == ConnectionReset)
}

/// Parses a complete head at the start of `data`, and returns it with its length. `None` means that the head is
/// incomplete.
fn parse(data: &[u8], first_byte: Instant) -> Result<Option<(ResponseHead, usize)>> {
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
        match header(response.headers, "location")? {
            Some(place) if (300..400).contains(&code) => {
                bail!(
                    Peer,
                    "HTTP status {code} {reason}: the file is at {place}: measure that URL"
                )
            }
            _ => bail!(Peer, "HTTP status {code} {reason}"),
        }
    }
    let closing = header(response.headers, "connection")?
        .is_some_and(|text| text.to_ascii_lowercase().contains("close"));
    let body = Body::of(response.headers)?;
    let persistent = response.version == Some(1) && !closing && !matches!(body, Body::UntilClose);
    let head = ResponseHead {
        body,
        congestion: header(response.headers, CONGESTION_HEADER)?,
        persistent,
        first_byte,
    };
    Ok(Some((head, length)))
}

/// A body in the state of being read.
#[derive(Debug)]
pub(super) enum Body {
    /// A body with a Content-Length, and the number of bytes that are still missing.
    Length { announced: u64, missing: u64 },
    /// A sequence of chunks, each with its own length.
    Chunked(Chunks),
    /// A body that ends with the connection.
    UntilClose,
}

/// The framing of a chunked body (RFC 9112 §7.1).
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: ChunkState,
    line: Vec<u8>,
}

#[derive(Debug, Default)]
enum ChunkState {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

impl Body {
    /// Returns the body that these headers announce.
    ///
    /// # Errors
    /// Returns an error if the length is not a number, or there is a transfer coding other than `chunked`.
    fn of(headers: &[Header<'_>]) -> Result<Self> {
        if let Some(coding) = header(headers, "transfer-encoding")? {
            if coding.eq_ignore_ascii_case("chunked") {
                return Ok(Self::Chunked(Chunks::default()));
            }
            bail!(
                Peer,
                "the transfer coding `{coding}` is not supported: only `chunked` is"
            );
        }
        let Some(text) = header(headers, "content-length")? else {
            return Ok(Self::UntilClose);
        };
        let announced = text.parse();
        let announced =
            announced.with_context(|| format!("Content-Length: `{text}` is not a length"))?;
        Ok(Self::Length {
            announced,
            missing: announced,
        })
    }

    /// Takes received bytes and returns how many of them are payload.
    ///
    /// # Errors
    /// Returns an error for bytes beyond the end of the body, and for wrong framing.
    pub(super) fn feed(&mut self, data: &[u8]) -> Result<u64> {
        let count = data.len() as u64;
        match self {
            Self::UntilClose => Ok(count),
            Self::Length { announced, missing } => {
                *missing = missing.checked_sub(count).with_context(|| {
                    format!("the server sent more than the {announced} bytes it announced")
                })?;
                Ok(count)
            }
            Self::Chunked(chunks) => chunks.feed(data),
        }
    }

    /// Returns whether the end of the body has been read.
    pub(super) fn complete(&self) -> bool {
        match self {
            Self::UntilClose => false,
            Self::Length { missing, .. } => *missing == 0,
            Self::Chunked(chunks) => matches!(chunks.state, ChunkState::Done),
        }
    }

    /// Checks that the server may close the connection after `total` payload bytes.
    ///
    /// # Errors
    /// Returns an error if that is too early.
    pub(super) fn closed(&self, total: u64) -> Result<()> {
        match self {
            Self::UntilClose => Ok(()),
            Self::Length { announced, .. } => {
                bail!(
                    Peer,
                    "the connection was closed after {total} of {announced} bytes"
                )
            }
            Self::Chunked(_) => {
                bail!(
                    Peer,
                    "the connection was closed within a chunked body, after {total} bytes"
                )
            }
        }
    }
}

impl Chunks {
    fn feed(&mut self, mut data: &[u8]) -> Result<u64> {
        let mut payload = 0;
        while !data.is_empty() {
            match self.state {
                ChunkState::Data(missing) => {
                    let take = missing.min(data.len() as u64);
                    payload += take;
                    data = &data[usize::try_from(take)?..];
                    self.state = match missing - take {
                        0 => ChunkState::DataEnd,
                        left => ChunkState::Data(left),
                    };
                }
                ChunkState::Done => bail!(Peer, "the server sent data after the last chunk"),
                ChunkState::Size | ChunkState::DataEnd | ChunkState::Trailer => {
                    data = self.take_line(data)?;
                }
            }
        }
        Ok(payload)
    }

    /// Adds to the current line and processes it if it is complete. Returns the bytes behind it.
    fn take_line<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8]> {
        let Some(end) = data.iter().position(|&byte| byte == b'\n') else {
            self.line.extend_from_slice(data);
            if self.line.len() > LONGEST_LINE {
                bail!(
                    Peer,
                    "a line of chunked framing is longer than {LONGEST_LINE} bytes"
                );
            }
            return Ok(&[]);
        };
        self.line.extend_from_slice(&data[..end]);
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        self.state = match self.state {
            ChunkState::Size => match chunk_size(line)? {
                0 => ChunkState::Trailer,
                size => ChunkState::Data(size),
            },
            ChunkState::DataEnd if line.is_empty() => ChunkState::Size,
            ChunkState::DataEnd => bail!(Peer, "a chunk is longer than its announced size"),
            ChunkState::Trailer if line.is_empty() => ChunkState::Done,
            _ => ChunkState::Trailer,
        };
        Ok(&data[end + 1..])
    }
}

/// Returns the value of a header; its name is case-insensitive.
///
/// # Errors
/// Returns an error if the value is not text.
fn header(headers: &[Header<'_>], name: &str) -> Result<Option<String>> {
    let Some(found) = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case(name))
    else {
        return Ok(None);
    };
    let text = std::str::from_utf8(found.value).with_context(|| format!("{name} is not text"))?;
    Ok(Some(text.trim().to_owned()))
}

fn chunk_size(line: &[u8]) -> Result<u64> {
    let digits = line.split(|byte| b"; ".contains(byte)).next();
    let text = String::from_utf8_lossy(digits.unwrap_or_default());
    u64::from_str_radix(&text, 16).with_context(|| format!("`{text}` is not a chunk size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_may_be_split_anywhere() {
        let text = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        for cut in 0..text.len() {
            let mut body = Body::Chunked(Chunks::default());
            let first = body.feed(&text[..cut]).unwrap();
            assert!(!body.complete());
            assert_eq!(first + body.feed(&text[cut..]).unwrap(), 5);
            assert!(body.complete());
        }
    }

    #[test]
    fn wrong_framing_is_refused() {
        for text in [
            &b"\r\n"[..],
            b"-1\r\n",
            b"3\r\nabcd\r\n",
            b"0\r\n\r\nx",
            b"ffffffffffffffffff\r\n",
        ] {
            assert!(Body::Chunked(Chunks::default()).feed(text).is_err());
        }
    }
}
