//! Numbered datagrams over a connected UDP socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

use super::exchange::{Broken, SPIN_AT_MOST};
use super::wire::Wait;
use crate::instrument::stop::STOP_INTERVAL;

/// One end of a UDP pingpong.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    wait: Wait,
}

/// What one wait brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// So many bytes.
    Datagram(usize),
    /// A datagram without payload: the peer asks for a look at the connection beside.
    Empty,
    /// Nothing, for 100 ms at most.
    Nothing,
}

impl Datagrams {
    /// Takes over a connected socket and empties it: before it was connected, strangers could reach it.
    ///
    /// # Errors
    /// The socket refuses its options.
    pub(crate) fn new(socket: UdpSocket, wait: Wait) -> io::Result<Self> {
        socket.set_read_timeout(Some(STOP_INTERVAL))?;
        socket.set_nonblocking(true)?;
        let mut nothing = [0; 1];
        while socket.recv(&mut nothing).is_ok() {}
        socket.set_nonblocking(false)?;
        Ok(Self { socket, wait })
    }

    /// Waits for one datagram.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Came, Broken> {
        let fd = self.socket.as_raw_fd();
        let spin_since = (self.wait == Wait::Spin).then(Instant::now);
        loop {
            let spins = spin_since.is_some_and(|since| since.elapsed() < SPIN_AT_MOST);
            let flags = if spins {
                MsgFlags::MSG_DONTWAIT
            } else {
                MsgFlags::empty()
            };
            match recv(fd, buffer, flags) {
                Ok(0) => return Ok(Came::Empty),
                Ok(count) => return Ok(Came::Datagram(count)),
                Err(Errno::EAGAIN) if spins => {}
                Err(Errno::EAGAIN) => return Ok(Came::Nothing),
                // An ICMP error to an earlier datagram: that one is lost, no more.
                Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(Broken::Failed(error.into())),
            }
        }
    }

    /// Sends one datagram.
    pub(crate) fn send(&self, message: &[u8]) -> Result<(), Broken> {
        loop {
            match send(self.socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => return Ok(()),
                // The error belongs to an earlier datagram; this one was not sent.
                Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(Broken::Failed(error.into())),
            }
        }
    }
}

/// Writes `number` over the first bytes of `message`, as many of its low bytes as there is room for.
pub(crate) fn put_number(message: &mut [u8], number: u64) {
    let room = message.len().min(8);
    message[..room].copy_from_slice(&number.to_be_bytes()[8 - room..]);
}

/// The number in a message; of a message shorter than 8 bytes, its low bytes.
pub(crate) fn number_of(message: &[u8]) -> u64 {
    let start = message.iter().take(8);
    start.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_as_many_low_bytes_as_the_message_has() {
        let mut message = [0xff; 10];
        for (length, kept) in [(1, 0x08), (2, 0x0708), (8, 0x0102_0304_0506_0708)] {
            put_number(&mut message[..length], 0x0102_0304_0506_0708);
            assert_eq!(number_of(&message[..length]), kept, "{length} bytes");
        }
        assert_eq!(message[8..], [0xff; 2]);
    }
}
