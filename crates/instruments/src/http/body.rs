//! Where an HTTP/1.1 body ends (RFC 9112 §6), and how many of its bytes are payload.

use anyhow::{Context, Result, bail};
use httparse::Header;

/// The longest line of chunked framing that is taken.
const LONGEST_LINE: usize = 4096;

/// A body as it is read.
#[derive(Debug)]
pub(crate) enum Body {
    /// So many bytes were announced, so many are missing.
    Length { announced: u64, missing: u64 },
    /// Chunks, each with its own length.
    Chunked(Chunks),
    /// Everything up to the end of the connection.
    UntilClose,
}

/// The framing of a chunked body (RFC 9112 §7.1).
#[derive(Debug, Default)]
pub(crate) struct Chunks {
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
    pub(crate) fn of(headers: &[Header<'_>]) -> Result<Self> {
        if let Some(coding) = header(headers, "transfer-encoding")? {
            if coding.eq_ignore_ascii_case("chunked") {
                return Ok(Self::Chunked(Chunks::default()));
            }
            bail!("the transfer coding `{coding}` is not supported: only `chunked` is");
        }
        let Some(text) = header(headers, "content-length")? else {
            return Ok(Self::UntilClose);
        };
        let announced = text
            .parse()
            .with_context(|| format!("Content-Length: `{text}` is no length"))?;
        Ok(Self::Length {
            announced,
            missing: announced,
        })
    }

    /// Takes what was read; how many of these bytes are payload.
    ///
    /// # Errors
    /// Bytes beyond the end of the body, or framing that is wrong.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Result<u64> {
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
    pub(crate) fn complete(&self) -> bool {
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
    pub(crate) fn closed(&self, total: u64) -> Result<()> {
        match self {
            Self::UntilClose => Ok(()),
            Self::Length { announced, .. } => {
                bail!("the connection was closed after {total} of {announced} bytes")
            }
            Self::Chunked(_) => {
                bail!("the connection was closed within a chunked body, after {total} bytes")
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
                ChunkState::Done => bail!("the server sent more than the last chunk"),
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
                bail!("a line of chunked framing is longer than {LONGEST_LINE} bytes");
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
            ChunkState::DataEnd => bail!("a chunk is longer than its announced size"),
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
pub(crate) fn header(headers: &[Header<'_>], name: &str) -> Result<Option<String>> {
    let found = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case(name));
    let Some(found) = found else { return Ok(None) };
    let text = std::str::from_utf8(found.value).with_context(|| format!("{name} is not text"))?;
    Ok(Some(text.trim().to_owned()))
}

fn chunk_size(line: &[u8]) -> Result<u64> {
    let digits = line
        .split(|byte| matches!(byte, b';' | b' '))
        .next()
        .unwrap_or_default();
    let text = String::from_utf8_lossy(digits);
    u64::from_str_radix(&text, 16).with_context(|| format!("`{text}` is no chunk size"))
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
