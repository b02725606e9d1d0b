//! How a UDP stream comes about: the client greets from a socket of its own, the server answers from one that is
//! connected to it (`iperf_udp_connect`, `iperf_udp_accept` of iperf_udp.c).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{MsgFlags, recv};

use netio::stop::STOP_INTERVAL;
use netio::stop::Stop;

/// Bytes of a greeting and of its answer.
pub(crate) const LENGTH: usize = 4;

/// iperf3 writes them as words of its machine: these are those of a little-endian one.
const GREETING: [u8; LENGTH] = *b"9876";
const ANSWER: [u8; LENGTH] = *b"6789";
/// Up to iperf3 3.11.
const OLD_GREETING: [u8; LENGTH] = 123_456_789u32.to_le_bytes();
const OLD_ANSWER: [u8; LENGTH] = 987_654_321u32.to_le_bytes();

/// After which a greeting without an answer is sent again: it or the answer may be lost.
const AGAIN: Duration = Duration::from_secs(1);
/// After which the server is not there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to `datagram` if it is a greeting, from a machine of either byte order.
pub(crate) fn answer_to(datagram: &[u8]) -> Option<[u8; LENGTH]> {
    let greeting: [u8; LENGTH] = datagram.try_into().ok()?;
    match greeting {
        GREETING => Some(ANSWER),
        OLD_GREETING => Some(OLD_ANSWER),
        _ => match reversed(greeting) {
            GREETING => Some(reversed(ANSWER)),
            OLD_GREETING => Some(reversed(OLD_ANSWER)),
            _ => None,
        },
    }
}

/// Whether `datagram` is the answer to a greeting, from a machine of either byte order.
fn is_answer(datagram: &[u8]) -> bool {
    [ANSWER, OLD_ANSWER]
        .into_iter()
        .any(|answer| datagram == answer || datagram == reversed(answer))
}

fn reversed(mut word: [u8; LENGTH]) -> [u8; LENGTH] {
    word.reverse();
    word
}

/// Greets the server to which `socket` is connected, until it has answered or already sends.
///
/// # Errors
/// Nothing comes back within 10 s, or the server's host says that nobody listens.
pub(crate) fn greet(socket: &UdpSocket, stop: &Stop) -> Result<()> {
    let peer = socket.peer_addr()?;
    socket.set_read_timeout(Some(STOP_INTERVAL))?;
    let began = Instant::now();
    let mut greeted: Option<Instant> = None;
    while began.elapsed() < PATIENCE {
        if let Some(cause) = stop.cause() {
            bail!("{cause}");
        }
        if greeted.is_none_or(|at| at.elapsed() >= AGAIN) {
            let sent = socket.send(&GREETING);
            sent.with_context(|| format!("greeting {peer} over UDP"))?;
            greeted = Some(Instant::now());
        }
        let mut datagram = [0; LENGTH + 1];
        // Only looked at: a server that sends may do so before its answer gets through.
        match socket.peek(&mut datagram) {
            Ok(LENGTH) if is_answer(&datagram[..LENGTH]) => {
                socket.recv(&mut datagram)?;
                return Ok(());
            }
            Ok(length) if length > LENGTH => return Ok(()),
            Ok(_) => drop(socket.recv(&mut datagram)?),
            Err(error) if is_silence(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                bail!("{peer} takes no datagrams: nothing listens there over UDP")
            }
            Err(error) => return Err(error).with_context(|| format!("greeting {peer} over UDP")),
        }
    }
    bail!(
        "{peer} did not answer the greeting over UDP within {} s: is UDP let through?",
        PATIENCE.as_secs()
    )
}

/// Answers the greetings that wait in a socket which has no other reader yet.
pub(crate) fn answer_repeated(socket: &UdpSocket) {
    let mut datagram = [0; LENGTH + 1];
    let flags = MsgFlags::MSG_DONTWAIT;
    while let Ok(length) = recv(socket.as_raw_fd(), &mut datagram, flags) {
        if let Some(answer) = answer_to(&datagram[..length]) {
            // Its loss would be greeted again.
            let _ = socket.send(&answer);
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        (client, server)
    }

    #[test]
    fn every_greeting_of_iperf3_is_answered_in_its_own_way() {
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
    fn a_greeting_that_was_lost_is_sent_again() {
        let (client, server) = pair();
        let answering = thread::spawn(move || {
            let mut datagram = [0; 16];
            server.recv(&mut datagram).unwrap();
            let length = server.recv(&mut datagram).unwrap();
            server
                .send(&answer_to(&datagram[..length]).unwrap())
                .unwrap();
        });
        greet(&client, &Stop::default()).unwrap();
        answering.join().unwrap();
    }

    #[test]
    fn data_before_the_answer_stays_to_be_read() {
        let (client, server) = pair();
        server.send(&[7; 1000]).unwrap();
        greet(&client, &Stop::default()).unwrap();
        assert_eq!(client.recv(&mut [0; 2000]).unwrap(), 1000);
    }

    #[test]
    fn a_host_that_takes_no_datagrams_is_named() {
        let (client, server) = pair();
        let name = server.local_addr().unwrap().to_string();
        drop(server);
        let error = greet(&client, &Stop::default()).unwrap_err().to_string();
        assert!(
            error.contains(&name) && error.contains("nothing listens"),
            "{error}"
        );
    }
}
