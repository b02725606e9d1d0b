//! Numbered datagrams over a connected UDP socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::time::TimeSpec;

use super::exchange::{Broken, SPIN_AT_MOST};
use super::wire::Wait;
use netio::stop::STOP_INTERVAL;

/// One end of a UDP pingpong.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    wait: Wait,
    /// When the last one was sent: an answer to it is waited for by spinning for a while.
    sent: Instant,
}

/// What one wait brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// So many bytes.
    Datagram(usize),
    /// A datagram without payload: the peer asks for a look at the connection beside.
    Empty,
    /// Nothing until the deadline, or for about 100 ms.
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
        Ok(Self {
            socket,
            wait,
            sent: Instant::now(),
        })
    }

    /// Waits for one datagram until `deadline`, if there is one.
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Came, Broken> {
        let fd = self.socket.as_raw_fd();
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let spins = self.wait == Wait::Spin && self.sent.elapsed() < SPIN_AT_MOST;
            // The socket's own time-out is one system call less, and too long before a near deadline.
            let near = left.filter(|left| *left < STOP_INTERVAL && !spins);
            if let Some(left) = near {
                self.await_one(left);
            }
            let flags = if spins || near.is_some() {
                MsgFlags::MSG_DONTWAIT
            } else {
                MsgFlags::empty()
            };
            match recv(fd, buffer, flags) {
                Ok(0) => return Ok(Came::Empty),
                Ok(count) => return Ok(Came::Datagram(count)),
                Err(Errno::EAGAIN) if spins && left != Some(Duration::ZERO) => {}
                Err(Errno::EAGAIN) => return Ok(Came::Nothing),
                // An ICMP error to an earlier datagram: that one is lost, no more.
                Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(Broken::Failed(error.into())),
            }
        }
    }

    /// Sleeps until a datagram is there, for `most` at most.
    fn await_one(&self, most: Duration) {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // An interrupted sleep is a short one: the caller looks at its clock.
        let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(most)), None);
    }

    /// Sends one datagram.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Broken> {
        self.sent = Instant::now();
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
