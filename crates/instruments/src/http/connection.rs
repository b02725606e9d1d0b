//! A client's side of one HTTP/1.1 connection (RFC 9112): a request, the answer's head, and its body as it comes, with
//! where that ends and how many of its bytes are payload.

use std::io::ErrorKind::{ConnectionReset, Interrupted, TimedOut, WouldBlock};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result, bail};
use httparse::Header;

use super::HttpTarget;
use super::server::CONGESTION_HEADER;
use crate::endpoint::{self, CONNECT_TIMEOUT, Local};
use crate::failure::go_on;
use netio::stop::{STOP_INTERVAL, Stop};
use netio::tcp::TcpInfo;

/// A transfer that brings nothing for so long has died; TCP retries well within it.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes that are read at most at once.
const RECEIVE_BUFFER: usize = 256 * 1024;
/// The longest line of chunked framing that is taken.
const LONGEST_LINE: usize = 4096;
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// An open connection.
#[derive(Debug)]
pub(super) struct HttpConnection {
    /// Host and port of the server, as the Host header has them.
    pub(super) authority: String,
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer's start was received and not yet given out.
    filled: usize,
}

/// An answer's head.
#[derive(Debug)]
pub(super) struct ResponseHead {
    /// What follows.
    pub(super) body: Body,
    /// The sender's congestion control, if it says so.
    pub(super) congestion: Option<String>,
    /// Whether the server takes a further request on this connection.
    pub(super) persistent: bool,
    /// When the answer's first byte was there.
    pub(super) first_byte: Instant,
}

/// How a wait for bytes ended.
pub(super) enum Waited {
    /// There are some, to be had by [`HttpConnection::take`].
    Bytes,
    /// The server closed the connection.
    Closed,
    /// The time was up first.
    TimeUp,
}

impl HttpConnection {
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
            authority: target.authority.clone(),
            stream,
            buffer: vec![0; RECEIVE_BUFFER],
            filled: 0,
        })
    }

    /// Asks for `target`; the moment before it was sent. Unless `keep_alive`, the server is to close the connection after
    /// its answer.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn request(&mut self, target: &HttpTarget, keep_alive: bool) -> Result<Instant> {
        let close = match keep_alive {
            false => "Connection: close\r\n",
            true => "",
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

    /// Payload bytes that arrived until now, at most: what came twice counts twice. Absent where the kernel does not say.
    pub(super) fn arrived(&self) -> Option<u64> {
        let info = TcpInfo::of(&self.stream).ok()?;
        Some(u64::from(info.data_segs_in) * u64::from(info.rcv_mss))
    }

    /// The least round trip that the kernel saw.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        TcpInfo::of(&self.stream).ok()?.min_rtt
    }

    /// The answer's head; nothing if the server closed the connection before it said a byte.
    ///
    /// # Errors
    /// What comes is not HTTP/1.1, or no success; or the connection breaks within it.
    pub(super) fn head(&mut self, stop: &Stop) -> Result<Option<ResponseHead>> {
        let mut first_byte = None;
        loop {
            match self.fill(stop, None) {
                Ok(Waited::Bytes) => {}
                Ok(Waited::Closed | Waited::TimeUp) if self.filled == 0 => return Ok(None),
                Ok(Waited::Closed | Waited::TimeUp) => bail!(
                    Peer,
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
                bail!(
                    Peer,
                    "the answer's head is longer than {LONGEST_HEAD} bytes"
                );
            }
        }
    }

    /// Waits for more of the body; what comes after `until` is not read.
    ///
    /// # Errors
    /// The connection broke or was silent for a minute, or it is to `stop`.
    pub(super) fn wait(&mut self, stop: &Stop, until: Option<Instant>) -> Result<Waited> {
        match self.filled {
            0 => self.fill(stop, until),
            _ => Ok(Waited::Bytes),
        }
    }

    /// What was received and not yet taken.
    pub(super) fn take(&mut self) -> &[u8] {
        &self.buffer[..std::mem::take(&mut self.filled)]
    }

    /// Receives behind what is filled.
    fn fill(&mut self, stop: &Stop, until: Option<Instant>) -> Result<Waited> {
        let silent_since = Instant::now();
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Waited::TimeUp);
            }
            go_on(stop)?;
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(Waited::Closed),
                Ok(count) => {
                    self.filled += count;
                    return Ok(Waited::Bytes);
                }
                Err(error) => match error.kind() {
                    WouldBlock | TimedOut | Interrupted => {}
                    _ => return Err(error).context("the connection broke"),
                },
            }
            if silent_since.elapsed() >= SILENCE {
                bail!(Peer, "nothing arrived for {} s", SILENCE.as_secs());
            }
        }
    }
}

fn is_reset(error: &Error) -> bool {
    error
        .system()
        .is_some_and(|cause| cause.kind() == ConnectionReset)
}

/// A whole head at the start of `data` and its length.
fn parse(data: &[u8], first_byte: Instant) -> Result<Option<(ResponseHead, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(data);
    let parsed = parsed.context("the server's answer is not HTTP/1.1")?;
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
    let closing = header(response.headers, "connection")?;
    let closing = closing.is_some_and(|text| text.to_ascii_lowercase().contains("close"));
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

/// A body as it is read.
#[derive(Debug)]
pub(super) enum Body {
    /// So many bytes were announced, so many are missing.
    Length { announced: u64, missing: u64 },
    /// Chunks, each with its own length.
    Chunked(Chunks),
    /// Everything up to the end of the connection.
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
    /// The body that these headers announce.
    ///
    /// # Errors
    /// A length that is no number, or a transfer coding other than `chunked`.
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

    /// Takes what was read; how many of these bytes are payload.
    ///
    /// # Errors
    /// Bytes beyond the end of the body, or framing that is wrong.
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

    /// Whether the body's end is known to have been read.
    pub(super) fn complete(&self) -> bool {
        match self {
            Self::UntilClose => false,
            Self::Length { missing, .. } => *missing == 0,
            Self::Chunked(chunks) => matches!(chunks.state, ChunkState::Done),
        }
    }

    /// The server closed the connection after `total` payload bytes.
    ///
    /// # Errors
    /// That was too early.
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

    /// Adds to the line in hand, and acts on it once it is whole; what is behind it.
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

/// The value of a header, by its name without regard to case.
///
/// # Errors
/// A value that is not text.
fn header(headers: &[Header<'_>], name: &str) -> Result<Option<String>> {
    let mut headers = headers.iter();
    let Some(found) = headers.find(|header| header.name.eq_ignore_ascii_case(name)) else {
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
    fn chunks_may_be_cut_anywhere() {
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
