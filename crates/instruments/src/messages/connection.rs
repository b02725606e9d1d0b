//! Complete messages and lines over a TCP connection, and numbered datagrams over a UDP socket. Sending and receiving
//! messages does not allocate, and every wait is bounded.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, recv, send};
use thiserror::Error;

use super::wire::{LONGEST_LINE, WaitMode};
use crate::endpoint::wait_for;
use crate::error::Error;
use crate::round_trip;
use netio::stop::{STOP_INTERVAL, Stop, StopCause};
use netio::tcp;

/// The number of spins between two looks at the clock, which take some tens of microseconds.
const SPINS: u32 = 64;
/// The longest spinning wait. After it, the wait continues in the kernel, so that a silent peer does not keep a core
/// busy.
const SPIN_AT_MOST: Duration = Duration::from_millis(100);

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct MessageStream {
    stream: TcpStream,
    /// The address of the peer.
    pub(crate) peer: SocketAddr,
    /// The way to wait for messages. Lines are always waited for in the kernel.
    pub(crate) wait: WaitMode,
    /// The stop, which includes the time limit of the whole test.
    pub(crate) stop: Stop,
    /// The longest time in which the peer may neither send nor accept data, on a path with a short round trip.
    pub(crate) silence: Duration,
}

/// The start of a silence, and the number of bytes that the peer had not acknowledged then.
pub(crate) type SilenceStart = Option<(Instant, u32)>;

/// The reason why a message did not arrive.
#[derive(Debug, Error)]
pub(crate) enum MessageError {
    /// The test was stopped at this end.
    #[error("{0}")]
    Stopped(StopCause),
    /// The peer was silent for too long.
    #[error("it neither sent nor received anything for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The peer closed the connection properly, between two messages.
    #[error("it closed the connection")]
    Closed,
    /// The peer closed the connection properly, after this number of bytes of a message.
    #[error("it closed the connection after {0} bytes of a message")]
    ClosedWithin(usize),
    /// The line is too long or not text.
    #[error("it sent {0:?} instead of a line of text of at most {LONGEST_LINE} bytes")]
    NoLine(String),
    /// The connection failed.
    #[error("the connection broke: {0}")]
    Failed(io::Error),
}

impl From<MessageError> for Error {
    fn from(broken: MessageError) -> Self {
        match broken {
            MessageError::Stopped(cause) => Self::Stopped(cause),
            broken => Self::Library(broken.into()),
        }
    }
}

impl MessageStream {
    /// Wraps a connection. Every wait checks `stop` at least every 100 ms.
    ///
    /// # Errors
    /// Returns an error if the socket refuses its options.
    pub(crate) fn new(stream: TcpStream, stop: Stop, silence: Duration) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        stream.set_write_timeout(Some(STOP_INTERVAL))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            peer,
            wait: WaitMode::Block,
            stop,
            silence,
        })
    }

    /// Returns the socket, for its options.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Checks whether to wait on. A peer that acknowledges data is not silent, since a message may be long and its link
    /// slow.
    pub(crate) fn check_progress(&self, quiet: &mut SilenceStart) -> Result<(), MessageError> {
        self.check_stop()?;
        let unacknowledged = tcp::unacknowledged(&self.stream).unwrap_or(0);
        let same = quiet.filter(|(_, before)| *before == unacknowledged);
        let (since, _) = *quiet.insert(same.unwrap_or_else(|| (Instant::now(), unacknowledged)));
        self.check_silence_since(since)
    }

    /// Returns an error if there is a cause to stop.
    pub(crate) fn check_stop(&self) -> Result<(), MessageError> {
        let cause = self.stop.cause();
        cause.map_or(Ok(()), |cause| Err(MessageError::Stopped(cause)))
    }

    /// Returns the smoothed round-trip time of the connection.
    pub(crate) fn round_trip(&self) -> Duration {
        round_trip::of(&self.stream)
    }

    fn check_silence_since(&self, since: Instant) -> Result<(), MessageError> {
        let longest = round_trip::extended(self.silence, self.round_trip());
        if since.elapsed() < longest {
            Ok(())
        } else {
            Err(MessageError::Silent(longest))
        }
    }

    /// Fills `message`, waiting as the stream is set to.
    pub(crate) fn receive(&self, message: &mut [u8]) -> Result<(), MessageError> {
        let mut filled = 0;
        loop {
            let rest = &mut message[filled..];
            match self.receive_some(rest, MsgFlags::MSG_WAITALL)? {
                0 if filled == 0 => return Err(MessageError::Closed),
                0 => return Err(MessageError::ClosedWithin(filled)),
                more => filled += more,
            }
            if filled == message.len() {
                return Ok(());
            }
            self.check_stop()?;
        }
    }

    /// Reads at least one byte, waiting in the kernel. Returns 0 at the end of the connection.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, MessageError> {
        self.receive_blocking(buffer, MsgFlags::empty())
    }

    /// Sends all of `message`.
    pub(crate) fn send(&self, message: &[u8]) -> Result<(), MessageError> {
        let fd = self.stream.as_raw_fd();
        let mut sent = 0;
        let mut quiet = None;
        loop {
            match send(fd, &message[sent..], MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => {
                    sent += count;
                    if sent == message.len() {
                        return Ok(());
                    }
                    quiet = None;
                    self.check_stop()?;
                }
                Err(Errno::EAGAIN) => self.check_progress(&mut quiet)?,
                Err(Errno::EINTR) => self.check_stop()?,
                Err(error) => return Err(MessageError::Failed(error.into())),
            }
        }
    }

    /// Sends one line.
    pub(crate) fn send_line(&self, line: &str) -> Result<(), MessageError> {
        self.send(format!("{line}\n").as_bytes())
    }

    /// Receives one line without its line feed. It reads single bytes, because a message may follow. Once a line has
    /// begun, all of it must arrive within the allowed silence. Before that, earlier data may still be on its way over
    /// a slow link.
    pub(crate) fn receive_line(&self) -> Result<String, MessageError> {
        let mut line = Vec::with_capacity(LONGEST_LINE);
        let mut byte = [0];
        let mut begun = None;
        while line.len() < LONGEST_LINE {
            self.check_stop()?;
            begun.map_or(Ok(()), |begun| self.check_silence_since(begun))?;
            if self.read(&mut byte)? == 0 {
                return Err(match line.as_slice() {
                    [] => MessageError::Closed,
                    line => no_line(line),
                });
            }
            begun.get_or_insert_with(Instant::now);
            match byte[0] {
                b'\n' => {
                    line.pop_if(|last| *last == b'\r');
                    return String::from_utf8(line).map_err(|error| no_line(error.as_bytes()));
                }
                // The line may appear in a message to the user, and must therefore not contain characters that control
                // a terminal.
                byte if byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r') => line.push(byte),
                byte => return Err(no_line(&[&line[..], &[byte]].concat())),
            }
        }
        Err(no_line(&line))
    }

    /// Returns whether there is unread data, or the peer closed the connection.
    pub(crate) fn is_readable(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let peeked = recv(self.stream.as_raw_fd(), &mut [0], flags);
        !matches!(peeked, Err(Errno::EAGAIN | Errno::EINTR))
    }

    fn receive_some(&self, buffer: &mut [u8], asleep: MsgFlags) -> Result<usize, MessageError> {
        if self.wait == WaitMode::Block {
            return self.receive_blocking(buffer, asleep);
        }
        let fd = self.stream.as_raw_fd();
        let mut spins = 0;
        let mut quiet_since: Option<Instant> = None;
        loop {
            match recv(fd, buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN) => spins += 1,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(MessageError::Failed(error.into())),
            }
            if spins == SPINS {
                spins = 0;
                let since = *quiet_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= SPIN_AT_MOST {
                    return self.receive_blocking(buffer, asleep);
                }
            }
        }
    }

    fn receive_blocking(&self, buffer: &mut [u8], flags: MsgFlags) -> Result<usize, MessageError> {
        let fd = self.stream.as_raw_fd();
        let mut quiet = None;
        loop {
            match recv(fd, buffer, flags) {
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN) => self.check_progress(&mut quiet)?,
                Err(Errno::EINTR) => self.check_stop()?,
                Err(error) => return Err(MessageError::Failed(error.into())),
            }
        }
    }
}

fn no_line(bytes: &[u8]) -> MessageError {
    const SHOWN: usize = 40;
    let start = &bytes[..bytes.len().min(SHOWN)];
    MessageError::NoLine(String::from_utf8_lossy(start).into_owned())
}

/// One end of a UDP pingpong.
#[derive(Debug)]
pub(crate) struct NumberedDatagrams {
    socket: UdpSocket,
    wait: WaitMode,
    /// Time of the last send. The answer to it is waited for by spinning for some time.
    sent: Instant,
}

/// The result of waiting for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramWait {
    /// A datagram of this number of bytes.
    Datagram(usize),
    /// A datagram without payload, by which the peer asks to look at the TCP connection.
    Empty,
    /// No datagram until the deadline, or for about 100 ms.
    Nothing,
}

impl NumberedDatagrams {
    /// Wraps a connected socket and discards what it received: before it was connected, anyone could send to it.
    ///
    /// # Errors
    /// Returns an error if the socket refuses its options.
    pub(crate) fn new(socket: UdpSocket, wait: WaitMode) -> io::Result<Self> {
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
    ) -> Result<DatagramWait, MessageError> {
        let fd = self.socket.as_raw_fd();
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let spins = self.wait == WaitMode::Spin && self.sent.elapsed() < SPIN_AT_MOST;
            // The socket's own time-out saves a system call, but is too long before a near deadline.
            let near = left.filter(|left| *left < STOP_INTERVAL && !spins);
            if let Some(left) = near {
                // A signal only makes the sleep shorter, since the loop looks at the clock again.
                let _ = wait_for(&self.socket, PollFlags::POLLIN, left);
            }
            let flags = if spins || near.is_some() {
                MsgFlags::MSG_DONTWAIT
            } else {
                MsgFlags::empty()
            };
            match recv(fd, buffer, flags) {
                Ok(0) => return Ok(DatagramWait::Empty),
                Ok(count) => return Ok(DatagramWait::Datagram(count)),
                Err(Errno::EAGAIN) if spins && left != Some(Duration::ZERO) => {}
                Err(Errno::EAGAIN) => return Ok(DatagramWait::Nothing),
                // An ICMP error concerns an earlier datagram, which is lost.
                Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(MessageError::Failed(error.into())),
            }
        }
    }

    /// Sends one datagram.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), MessageError> {
        self.sent = Instant::now();
        loop {
            match send(self.socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => return Ok(()),
                // The error concerns an earlier datagram, and this one was not sent.
                Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(MessageError::Failed(error.into())),
            }
        }
    }
}

/// Writes the low bytes of `number` to the start of `message`: 8 bytes, or as many as fit.
pub(crate) fn put_number(message: &mut [u8], number: u64) {
    let room = message.len().min(8);
    message[..room].copy_from_slice(&number.to_be_bytes()[8 - room..]);
}

/// Returns the number in a message. A message shorter than 8 bytes has only the low bytes of its number.
pub(crate) fn number_of(message: &[u8]) -> u64 {
    let start = message.iter().take(8);
    start.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_the_low_bytes_that_fit_the_message() {
        let mut message = [0xff; 10];
        for (length, kept) in [(1, 0x08), (2, 0x0708), (8, 0x0102_0304_0506_0708)] {
            put_number(&mut message[..length], 0x0102_0304_0506_0708);
            assert_eq!(number_of(&message[..length]), kept, "{length} bytes");
        }
        assert_eq!(message[8..], [0xff; 2]);
    }
}
