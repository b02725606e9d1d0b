//! The protocol of `pingpong`, `blast` and `transfer`: one line requests a run, one line answers, then the messages
//! follow.
//!
//! A line is ASCII of at most 256 bytes including its line feed. A connection carries one run of one size:
//!
//! ```text
//! client  farwire-messages/1 pingpong size=64 count=1000 wait=block nagle=no [udp=PORT]
//!         farwire-messages/1 blast    size=64 count=1000 nagle=no
//!         farwire-messages/1 transfer block=8192 bytes=10485760 nagle=no latency_us=5000
//! server  ok wait=block mss=1448 rcvbuf=131072 [udp=PORT]
//!         error WHAT IS WRONG, and the server closes
//! ```
//!
//! pingpong: the server sends every complete message back; over UDP the client ends with the line `done`, and the
//! server answers `result received=N duplicates=N`. blast: the server discards size x count bytes and sends one byte.
//! transfer: the server reads `bytes` bytes, at most `block` at a time, and answers
//! `result reads=N bytes=N total_ns=N network_ns=N`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Context, Error, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::Display;

/// The default TCP port, which is also the UDP port of pingpong over UDP.
pub const DEFAULT_PORT: u16 = 5203;
/// The most bytes of a line, including its line feed.
pub(crate) const LONGEST_LINE: usize = 256;
/// The allowed message sizes of pingpong and blast in bytes, as in nettest ("Experiment on Oct 10").
pub(crate) const SIZES: RangeInclusive<u64> = 1..=1_000_000;
/// The allowed numbers of messages in one run.
pub(crate) const COUNTS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The allowed block sizes of a transfer in bytes.
pub(crate) const BLOCKS: RangeInclusive<u64> = 1..=8 * 1024 * 1024;
/// The payload of the largest UDP datagram over IPv4 (RFC 768, RFC 791): 65,535 minus 20 minus 8 bytes.
pub(crate) const LARGEST_DATAGRAM: u16 = 65_507;

const GREETING: &str = "farwire-messages/1";
const WAITS: [(&str, WaitMode); 2] = [("block", WaitMode::Block), ("spin", WaitMode::Spin)];

/// The way in which both ends wait for a message.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WaitMode {
    /// Sleep in the kernel until the message arrives
    #[default]
    Block,
    /// Busy-wait: uses a core at each end, but adds no wake-up latency
    Spin,
}

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageRequest {
    /// The mode of the test.
    pub(crate) mode: Mode,
    /// Whether the server leaves Nagle's algorithm on (RFC 896).
    pub(crate) nagle: bool,
}

/// The task of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The server sends every message back.
    Pingpong {
        size: usize,
        count: u64,
        wait: WaitMode,
        /// The client's UDP port, if the messages are datagrams.
        udp: Option<u16>,
    },
    /// The server discards every message.
    Blast { size: usize, count: u64 },
    /// The server discards the data and records every read.
    Transfer {
        block: usize,
        bytes: u64,
        /// The client's pause after each block.
        latency: Duration,
    },
}

/// The server's answer to a request that it grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageGrant {
    /// The way in which the server waits. It does not spin if it has no core to spare.
    pub(crate) wait: WaitMode,
    /// The largest TCP segment that the server sends on this connection (TCP_MAXSEG), in bytes of payload and options.
    pub(crate) mss: u32,
    /// The server's receive buffer (SO_RCVBUF) in bytes.
    pub(crate) rcvbuf: u64,
    /// The server's UDP port, if the messages are datagrams.
    pub(crate) udp: Option<u16>,
}

/// The counts of the server of a UDP pingpong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EchoResult {
    /// Messages that arrived, each counted once.
    pub(crate) received: u64,
    /// Repeated arrivals of the latest message, and datagrams after the last message.
    pub(crate) duplicates: u64,
}

/// The results of the server of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransferResult {
    /// Reads that returned data, which "Perl TCP Transfer Test" calls packets.
    pub(crate) reads: u64,
    /// Payload bytes read.
    pub(crate) bytes: u64,
    /// Time from the answer to the request to the last byte.
    pub(crate) total: Duration,
    /// Time within the reads, which includes waiting for data.
    pub(crate) network: Duration,
}

/// The line with which the client ends a UDP pingpong.
pub(crate) const DONE: &str = "done";

impl Mode {
    /// Returns the name of the mode.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Pingpong { .. } => "pingpong",
            Self::Blast { .. } => "blast",
            Self::Transfer { .. } => "transfer",
        }
    }
}

impl fmt::Display for MessageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nagle = if self.nagle { "yes" } else { "no" };
        write!(f, "{GREETING} {} ", self.mode.name())?;
        match &self.mode {
            Mode::Pingpong {
                size,
                count,
                wait,
                udp,
            } => {
                write!(f, "size={size} count={count} wait={wait} nagle={nagle}")?;
                udp.map_or(Ok(()), |port| write!(f, " udp={port}"))
            }
            Mode::Blast { size, count } => write!(f, "size={size} count={count} nagle={nagle}"),
            Mode::Transfer {
                block,
                bytes,
                latency,
            } => {
                let latency_us = latency.as_micros();
                write!(
                    f,
                    "block={block} bytes={bytes} nagle={nagle} latency_us={latency_us}"
                )
            }
        }
    }
}

impl FromStr for MessageRequest {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        ensure!(
            Peer,
            words.next() == Some(GREETING),
            "a request must start with `{GREETING} `; this is farwire's far end of pingpong, blast and transfer"
        );
        let mode = words.next().unwrap_or_default();
        let mut fields = LineFields::parse(words)?;
        let mode = match mode {
            "pingpong" => {
                let udp: Option<u16> = fields.optional("udp")?;
                let largest = udp.map_or(*SIZES.end(), |_| LARGEST_DATAGRAM.into());
                Mode::Pingpong {
                    size: fields.size("size", *SIZES.start()..=largest)?,
                    count: fields.within("count", COUNTS)?,
                    wait: fields.choice("wait", WAITS)?,
                    udp,
                }
            }
            "blast" => Mode::Blast {
                size: fields.size("size", SIZES)?,
                count: fields.within("count", COUNTS)?,
            },
            "transfer" => Mode::Transfer {
                block: fields.size("block", BLOCKS)?,
                bytes: fields.within("bytes", 1..=i64::MAX.unsigned_abs())?,
                latency: Duration::from_micros(fields.required("latency_us")?),
            },
            _ => bail!(Peer, "the mode is pingpong, blast or transfer"),
        };
        let nagle = fields.choice("nagle", [("yes", true), ("no", false)])?;
        fields.end(Self { mode, nagle })
    }
}

impl fmt::Display for MessageGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wait, mss, rcvbuf, ..
        } = self;
        write!(f, "ok wait={wait} mss={mss} rcvbuf={rcvbuf}")?;
        self.udp.map_or(Ok(()), |port| write!(f, " udp={port}"))
    }
}

impl MessageGrant {
    /// Parses the answer to a request. If the server refuses, the error states the server's reason.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        if let Some(cause) = line.strip_prefix("error ") {
            bail!(Peer, "refused: {cause}");
        }
        let mut fields = LineFields::after("ok", line)?;
        let read = Self {
            wait: fields.choice("wait", WAITS)?,
            mss: fields.required("mss")?,
            rcvbuf: fields.required("rcvbuf")?,
            udp: fields.optional("udp")?,
        };
        fields.end(read)
    }
}

impl fmt::Display for EchoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (received, duplicates) = (self.received, self.duplicates);
        write!(f, "result received={received} duplicates={duplicates}")
    }
}

impl FromStr for EchoResult {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut fields = LineFields::after("result", line)?;
        let read = Self {
            received: fields.required("received")?,
            duplicates: fields.required("duplicates")?,
        };
        fields.end(read)
    }
}

impl fmt::Display for TransferResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, network) = (self.total.as_nanos(), self.network.as_nanos());
        write!(f, "result reads={} bytes={} ", self.reads, self.bytes)?;
        write!(f, "total_ns={total} network_ns={network}")
    }
}

impl FromStr for TransferResult {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut fields = LineFields::after("result", line)?;
        let read = Self {
            reads: fields.required("reads")?,
            bytes: fields.required("bytes")?,
            total: Duration::from_nanos(fields.required("total_ns")?),
            network: Duration::from_nanos(fields.required("network_ns")?),
        };
        fields.end(read)
    }
}

/// Returns the line with which the server refuses a request.
pub(crate) fn refusal(cause: &Error) -> String {
    let text =
        format!("error {cause:#}").replace(|c: char| !c.is_ascii() || c.is_ascii_control(), "?");
    text.chars().take(LONGEST_LINE - 1).collect()
}

/// The `key=value` words of a line, with unique keys.
struct LineFields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> LineFields<'a> {
    /// Parses words and skips empty ones.
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut fields = BTreeMap::new();
        for word in words.filter(|word| !word.is_empty()) {
            let (key, value) = word
                .split_once('=')
                .with_context(|| format!("{word:?} is not key=value"))?;
            ensure!(
                Peer,
                fields.insert(key, value).is_none(),
                "{key:?} comes twice"
            );
        }
        Ok(Self(fields))
    }

    /// Parses the words after the word `first` of a line.
    fn after(first: &str, line: &'a str) -> Result<Self> {
        let mut words = line.split(' ');
        ensure!(
            Peer,
            words.next() == Some(first),
            "it sent {line:?} instead of a line that starts with `{first} `"
        );
        Self::parse(words)
    }

    /// Removes a number, if there is one.
    fn optional<T: FromStr>(&mut self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.0.remove(key) else {
            return Ok(None);
        };
        let number = value.parse().ok();
        let number =
            number.with_context(|| format!("{key}={value:?} is not a number that fits"))?;
        Ok(Some(number))
    }

    /// Removes a required number.
    fn required<T: FromStr>(&mut self, key: &str) -> Result<T> {
        let value = self.optional(key)?;
        value.with_context(|| format!("{key} is missing"))
    }

    /// Removes a required number within a range.
    fn within(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let value = self.required(key)?;
        ensure!(
            Peer,
            range.contains(&value),
            "{key}={value} is not within {} to {}",
            range.start(),
            range.end()
        );
        Ok(value)
    }

    /// Removes a required number of bytes within a range, as a size in memory.
    fn size(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<usize> {
        Ok(usize::try_from(self.within(key, range)?)?)
    }

    /// Removes a required word, and returns the value of the choice that it names.
    fn choice<T>(&mut self, key: &str, choices: [(&str, T); 2]) -> Result<T> {
        let value = self.0.remove(key).unwrap_or_default();
        let [(first, _), (second, _)] = choices;
        let mut choices = choices.into_iter();
        let chosen = choices.find(|(word, _)| *word == value);
        let (_, chosen) =
            chosen.with_context(|| format!("{key} is {first} or {second}, not {value:?}"))?;
        Ok(chosen)
    }

    /// Returns `read` if no words are left.
    fn end<T>(self, read: T) -> Result<T> {
        match self.0.first_key_value() {
            Some((key, _)) => bail!(Peer, "there is no {key:?} here"),
            None => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> Vec<MessageRequest> {
        let modes = [
            Mode::Pingpong {
                size: 1,
                count: 1_000_000_000,
                wait: WaitMode::Spin,
                udp: Some(40_000),
            },
            Mode::Pingpong {
                size: 1_000_000,
                count: 1,
                wait: WaitMode::Block,
                udp: None,
            },
            Mode::Blast {
                size: 131_072,
                count: 100_000,
            },
            Mode::Transfer {
                block: 8192,
                bytes: 10_485_760,
                latency: Duration::from_millis(5),
            },
        ];
        let nagle = [true, false, true, false];
        let requests = modes.into_iter().zip(nagle);
        requests
            .map(|(mode, nagle)| MessageRequest { mode, nagle })
            .collect()
    }

    #[test]
    fn a_request_round_trips_and_fits_a_line() {
        for request in requests() {
            let line = request.to_string();
            assert!(line.len() < LONGEST_LINE, "{line}");
            assert_eq!(line.parse::<MessageRequest>().unwrap(), request, "{line}");
        }
    }

    #[test]
    fn results_and_grants_round_trip() {
        let grant = MessageGrant {
            wait: WaitMode::Block,
            mss: 1448,
            rcvbuf: 131_072,
            udp: Some(5203),
        };
        assert_eq!(MessageGrant::parse(&grant.to_string()).unwrap(), grant);
        let result = TransferResult {
            reads: 1751,
            bytes: 7_140_343,
            total: Duration::from_nanos(12_083_674_000),
            network: Duration::from_nanos(12_051_402_000),
        };
        assert_eq!(
            result.to_string().parse::<TransferResult>().unwrap(),
            result
        );
        let echo = EchoResult {
            received: 99,
            duplicates: 1,
        };
        assert_eq!(echo.to_string().parse::<EchoResult>().unwrap(), echo);
    }

    #[test]
    fn an_error_in_a_request_is_named() {
        let start = "farwire-messages/1 ";
        for case in [
            "dance size=1 => the mode is pingpong, blast or transfer",
            "blast size=1 count=1 => nagle is yes or no",
            "blast size=0 count=1 nagle=no => size=0 is not within 1 to 1000000",
            "blast size=1000001 count=1 nagle=no => not within",
            "blast size=-1 count=1 nagle=no => size=\"-1\" is not a number",
            "blast size=1 size=2 count=1 nagle=no => \"size\" comes twice",
            "blast size=1 count=1 nagle=no x=1 => there is no \"x\" here",
            "blast size => \"size\" is not key=value",
            "pingpong size=1 count=0 wait=block nagle=no => count=0 is not within",
            "pingpong size=1 count=1 wait=nap nagle=no => wait is block or spin",
            "pingpong size=65508 count=1 wait=block nagle=no udp=1 => 1 to 65507",
            "transfer block=8388609 bytes=1 nagle=no latency_us=0 => not within",
        ] {
            let (rest, cause) = case.split_once(" => ").unwrap();
            let error = format!("{start}{rest}")
                .parse::<MessageRequest>()
                .unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(cause), "{rest}: {text}");
        }
        let error = "GET / HTTP/1.1"
            .parse::<MessageRequest>()
            .unwrap_err()
            .to_string();
        assert!(error.contains("far end of pingpong"), "{error}");
    }

    #[test]
    fn a_refusal_has_the_server_s_text() {
        let error = MessageGrant::parse("error busy: 64 tests run").unwrap_err();
        assert_eq!(error.to_string(), "refused: busy: 64 tests run");
        let error = MessageGrant::parse("220 smtp.example ESMTP")
            .unwrap_err()
            .to_string();
        assert!(error.contains("220 smtp.example"), "{error}");
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parsers_panic(line in "(farwire-messages/1 (pingpong|blast|transfer) )?[ -~]{0,200}") {
            let _ = line.parse::<MessageRequest>();
            let _ = MessageGrant::parse(&line);
            let _ = line.parse::<TransferResult>();
            let _ = line.parse::<EchoResult>();
        }
    }
}
