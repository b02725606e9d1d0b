//! The contents of iperf3's datagrams, and the set-up of its UDP streams (`iperf_udp.c`).
//!
//! A datagram begins with its time of sending and its number, big-endian: seconds (4 bytes) and microseconds (4) of the
//! sender's clock, then the number, from 1, in 4 bytes, or in 8 if both ends agreed on `udp_counters_64bit`.
//!
//! A stream begins with a greeting that the client sends from a new socket. The server answers it from a socket that is
//! connected to the client's (`iperf_udp_connect`, `iperf_udp_accept`).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use crate::error::{Context, Result, bail};
use model::Nanos;
use netio::stop::{STOP_INTERVAL, Stop};
use nix::sys::socket::{MsgFlags, recv};

use crate::failure::check_stop;
use crate::iperf3::control::is_timeout;
use crate::round_trip;

/// The length of a greeting and of its answer in bytes.
pub(crate) const GREETING_LENGTH: usize = 4;

/// The greeting and its answer. iperf3 writes them as words in the byte order of its machine; these are little-endian.
const GREETING: [u8; GREETING_LENGTH] = *b"9876";
const ANSWER: [u8; GREETING_LENGTH] = *b"6789";
/// The greeting and its answer up to iperf3 3.11.
const OLD_GREETING: [u8; GREETING_LENGTH] = 123_456_789u32.to_le_bytes();
const OLD_ANSWER: [u8; GREETING_LENGTH] = 987_654_321u32.to_le_bytes();

/// The time after which a greeting without an answer is repeated, since the greeting or the answer may be lost. Two
/// round trips are added, because an iperf3 server counts a repeated greeting as a datagram of the test.
const GREETING_INTERVAL: Duration = Duration::from_secs(1);
/// The time without an answer after which the server counts as absent. Some round trips are added.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The width of the numbers of a test's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberWidth {
    /// 4 bytes, which wrap after 2^32 datagrams.
    Bits32,
    /// 8 bytes.
    Bits64,
}

/// The start of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    /// The time of sending on the sender's clock, in whole microseconds. The origin of the clock is unknown.
    pub(crate) sent: Nanos,
    /// The number of the datagram in its stream, from 1.
    pub(crate) number: u64,
}

impl NumberWidth {
    /// Returns the length of the shortest datagram in bytes.
    pub(crate) const fn header(self) -> usize {
        match self {
            Self::Bits32 => 12,
            Self::Bits64 => 16,
        }
    }

    /// Writes the start of a datagram, which has at least [`Self::header`] bytes.
    pub(crate) fn write(self, stamped: DatagramHeader, datagram: &mut [u8]) {
        let seconds = stamped.sent.0 / 1_000_000_000;
        let micros = stamped.sent.0 % 1_000_000_000 / 1000;
        datagram[..4].copy_from_slice(&low_half(seconds));
        datagram[4..8].copy_from_slice(&low_half(micros));
        match self {
            Self::Bits32 => datagram[8..12].copy_from_slice(&low_half(stamped.number)),
            Self::Bits64 => datagram[8..16].copy_from_slice(&stamped.number.to_be_bytes()),
        }
    }

    /// Reads the start of a datagram, or returns `None` if the datagram is too short.
    pub(crate) fn read(self, datagram: &[u8]) -> Option<DatagramHeader> {
        let seconds = u64::from(u32::from_be_bytes(*datagram.first_chunk()?));
        let micros = u64::from(u32::from_be_bytes(*datagram.get(4..)?.first_chunk()?));
        let rest = datagram.get(8..)?;
        let number = match self {
            Self::Bits32 => u64::from(u32::from_be_bytes(*rest.first_chunk()?)),
            Self::Bits64 => u64::from_be_bytes(*rest.first_chunk()?),
        };
        let sent = Nanos(seconds * 1_000_000_000 + micros * 1000);
        Some(DatagramHeader { sent, number })
    }
}

/// Returns the lower four bytes, big-endian.
fn low_half(value: u64) -> [u8; 4] {
    let [.., a, b, c, d] = value.to_be_bytes();
    [a, b, c, d]
}

/// Returns the answer to `datagram` if it is a greeting from a machine of either byte order.
pub(crate) fn answer_to(datagram: &[u8]) -> Option<[u8; GREETING_LENGTH]> {
    let greeting: [u8; GREETING_LENGTH] = datagram.try_into().ok()?;
    let pairs = [(GREETING, ANSWER), (OLD_GREETING, OLD_ANSWER)];
    pairs.into_iter().find_map(|(known, answer)| {
        let as_here = (greeting == known).then_some(answer);
        as_here.or_else(|| (greeting == reversed(known)).then(|| reversed(answer)))
    })
}

/// Returns whether `datagram` is the answer to a greeting, from a machine of either byte order.
fn is_answer(datagram: &[u8]) -> bool {
    [ANSWER, OLD_ANSWER]
        .into_iter()
        .any(|answer| datagram == answer || datagram == reversed(answer))
}

fn reversed(mut word: [u8; GREETING_LENGTH]) -> [u8; GREETING_LENGTH] {
    word.reverse();
    word
}

/// Greets the server to which `socket` is connected, until the server answers or already sends data. The path has this
/// `round_trip`.
///
/// # Errors
/// Returns an error if nothing arrives within 10 s and some round trips, or the server's host refuses the datagrams.
pub(crate) fn greet(socket: &UdpSocket, round_trip: Duration, stop: &Stop) -> Result<()> {
    let interval = GREETING_INTERVAL + round_trip::several(2, round_trip);
    let timeout = round_trip::extended(ANSWER_TIMEOUT, round_trip);
    socket.set_read_timeout(Some(STOP_INTERVAL))?;
    let began = Instant::now();
    let mut greeted: Option<Instant> = None;
    while began.elapsed() < timeout {
        check_stop(stop)?;
        if greeted.is_none_or(|at| at.elapsed() >= interval) {
            let sent = socket.send(&GREETING);
            sent.context("cannot greet over UDP")?;
            greeted = Some(Instant::now());
        }
        let mut datagram = [0; GREETING_LENGTH + 1];
        // The datagram is only peeked at, because a server may send data before its answer arrives.
        match socket.peek(&mut datagram) {
            Ok(GREETING_LENGTH) if is_answer(&datagram[..GREETING_LENGTH]) => {
                socket.recv(&mut datagram)?;
                return Ok(());
            }
            Ok(length) if length > GREETING_LENGTH => return Ok(()),
            Ok(_) => drop(socket.recv(&mut datagram)?),
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                bail!(Peer, "datagrams are refused: no program listens over UDP")
            }
            Err(error) => return Err(error).context("cannot greet over UDP"),
        }
    }
    bail!(
        Peer,
        "no answer to the greeting over UDP within {} s: a firewall may block UDP",
        timeout.as_secs()
    )
}

/// Answers the greetings that wait in a socket without another reader.
pub(crate) fn answer_repeated(socket: &UdpSocket) {
    let mut datagram = [0; GREETING_LENGTH + 1];
    let flags = MsgFlags::MSG_DONTWAIT;
    while let Ok(length) = recv(socket.as_raw_fd(), &mut datagram, flags) {
        if let Some(answer) = answer_to(&datagram[..length]) {
            // If this answer is lost, the client greets again.
            let _ = socket.send(&answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    #[test]
    fn the_bytes_are_those_of_iperf3() {
        let stamped = DatagramHeader {
            sent: Nanos(0x0102_0304 * 1_000_000_000 + 5_000),
            number: 7,
        };
        let mut datagram = [0xff; 18];
        NumberWidth::Bits32.write(stamped, &mut datagram);
        assert_eq!(datagram[..13], [1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 7, 0xff]);
        NumberWidth::Bits64.write(stamped, &mut datagram);
        assert_eq!(datagram[8..17], [0, 0, 0, 0, 0, 0, 0, 7, 0xff]);
    }

    proptest! {
        #[test]
        fn datagram_headers_round_trip(seconds in 0..=u32::MAX, micros in 0..1_000_000u64, number: u32, wide: bool) {
            let counter = if wide { NumberWidth::Bits64 } else { NumberWidth::Bits32 };
            let sent = Nanos(u64::from(seconds) * 1_000_000_000 + micros * 1000);
            let stamped = DatagramHeader { sent, number: number.into() };
            let mut datagram = vec![0; counter.header()];
            counter.write(stamped, &mut datagram);
            prop_assert_eq!(counter.read(&datagram), Some(stamped));
        }

        #[test]
        fn no_bytes_are_read_beyond_the_end(bytes: Vec<u8>) {
            for counter in [NumberWidth::Bits32, NumberWidth::Bits64] {
                prop_assert_eq!(counter.read(&bytes).is_some(), bytes.len() >= counter.header());
            }
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        (client, server)
    }

    #[test]
    fn every_greeting_of_iperf3_gets_its_answer() {
        assert_eq!(answer_to(&0x3637_3839u32.to_le_bytes()), Some(*b"6789"));
        let old = 123_456_789u32;
        assert_eq!(
            answer_to(&old.to_le_bytes()),
            Some(987_654_321u32.to_le_bytes())
        );
        assert_eq!(
            answer_to(&old.to_be_bytes()),
            Some(987_654_321u32.to_be_bytes())
        );
        assert_eq!(answer_to(b"hello"), None);
        assert_eq!(answer_to(b"9875"), None);
        assert_eq!(answer_to(b"6789"), Some(*b"9876"));
    }

    #[test]
    fn a_lost_greeting_is_repeated() {
        let (client, server) = pair();
        let answering = thread::spawn(move || {
            let mut datagram = [0; 16];
            server.recv(&mut datagram).unwrap();
            let length = server.recv(&mut datagram).unwrap();
            server
                .send(&answer_to(&datagram[..length]).unwrap())
                .unwrap();
        });
        greet(&client, Duration::ZERO, &Stop::default()).unwrap();
        answering.join().unwrap();
    }

    #[test]
    fn data_before_the_answer_remains_readable() {
        let (client, server) = pair();
        server.send(&[7; 1000]).unwrap();
        greet(&client, Duration::ZERO, &Stop::default()).unwrap();
        assert_eq!(client.recv(&mut [0; 2000]).unwrap(), 1000);
    }

    #[test]
    fn a_host_that_refuses_datagrams_is_an_error() {
        let (client, server) = pair();
        drop(server);
        let error = greet(&client, Duration::ZERO, &Stop::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no program listens"), "{error}");
    }
}
