//! Whole messages and lines over a TCP connection, and numbered datagrams over a UDP socket: without allocation, and
//! never waiting without end.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, recv, send};
use thiserror::Error;

use super::wire::{LONGEST_LINE, Wait};
use crate::endpoint::wait_for;
use crate::error::Error;
use netio::stop::{STOP_INTERVAL, Stop, StopCause};
use netio::tcp;

/// Between two looks at the clock while spinning: some tens of microseconds.
const SPINS: u32 = 64;
/// A peer that is silent for so long is waited for asleep, so that nobody keeps a core busy with nothing.
const SPIN_AT_MOST: Duration = Duration::from_millis(100);

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct MessageStream {
    stream: TcpStream,
    /// The peer.
    pub(crate) peer: SocketAddr,
    /// How messages are waited for; lines are always waited for asleep.
    pub(crate) wait: Wait,
    /// Signals and the time that the whole may take.
    pub(crate) stop: Stop,
    /// How long the peer may neither send nor take anything.
    pub(crate) silence: Duration,
}

/// Since when nothing has happened, and how many bytes the peer had yet to acknowledge then.
pub(crate) type Quiet = Option<(Instant, u32)>;

/// Why a message did not get through.
#[derive(Debug, Error)]
pub(crate) enum MessageError {
    /// It was to stop here.
    #[error("{0}")]
    Stopped(StopCause),
    /// The peer was silent for too long.
    #[error("it neither sent nor received anything for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The peer closed the connection in order, between two messages.
    #[error("it closed the connection")]
    Closed,
    /// The peer closed the connection in order, so many bytes into a message.
    #[error("it closed the connection after {0} bytes of a message")]
    ClosedWithin(usize),
    /// The line is too long or no text.
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
    /// Takes over a connection: every wait ends after 100 ms to look at `stop`.
    ///
    /// # Errors
    /// The socket refuses its options.
    pub(crate) fn new(stream: TcpStream, stop: Stop, silence: Duration) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        stream.set_write_timeout(Some(STOP_INTERVAL))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            peer,
            wait: Wait::Block,
            stop,
            silence,
        })
    }

    /// The socket, for its options.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether to go on waiting. As long as the peer acknowledges something it is not silent: a message may be long and
    /// its link slow.
    pub(crate) fn check(&self, quiet: &mut Quiet) -> Result<(), MessageError> {
        self.go_on()?;
        let unacknowledged = tcp::unacknowledged(&self.stream).unwrap_or(0);
        let same = quiet.filter(|(_, before)| *before == unacknowledged);
        let (since, _) = *quiet.insert(same.unwrap_or_else(|| (Instant::now(), unacknowledged)));
        self.not_silent_since(since)
    }

    /// Whether nobody asks to stop.
    pub(crate) fn go_on(&self) -> Result<(), MessageError> {
        let cause = self.stop.cause();
        cause.map_or(Ok(()), |cause| Err(MessageError::Stopped(cause)))
    }

    fn not_silent_since(&self, since: Instant) -> Result<(), MessageError> {
        match since.elapsed() < self.silence {
            true => Ok(()),
            false => Err(MessageError::Silent(self.silence)),
        }
    }

    /// Fills `message`, as the stream waits.
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
            self.go_on()?;
        }
    }

    /// One read of at least one byte, 0 at the end of the connection; always asleep.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, MessageError> {
        self.receive_asleep(buffer, MsgFlags::empty())
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
                    self.go_on()?;
                }
                Err(Errno::EAGAIN) => self.check(&mut quiet)?,
                Err(Errno::EINTR) => self.go_on()?,
                Err(error) => return Err(MessageError::Failed(error.into())),
            }
        }
    }

    /// Sends one line.
    pub(crate) fn send_line(&self, line: &str) -> Result<(), MessageError> {
        self.send(format!("{line}\n").as_bytes())
    }

    /// Receives one line, without its end; byte by byte, because what follows it may be a message. The whole of it
    /// must come within the silence that is allowed, once it has begun: what was sent before may still be on its way over a slow link.
    pub(crate) fn receive_line(&self) -> Result<String, MessageError> {
        let mut line = Vec::with_capacity(LONGEST_LINE);
        let mut byte = [0];
        let mut begun = None;
        while line.len() < LONGEST_LINE {
            self.go_on()?;
            begun.map_or(Ok(()), |begun| self.not_silent_since(begun))?;
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
                // Nothing that a terminal would obey gets into a message to the user.
                byte if byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r') => line.push(byte),
                byte => return Err(no_line(&[&line[..], &[byte]].concat())),
            }
        }
        Err(no_line(&line))
    }

    /// Whether the peer has sent something, or closed the connection, that was not received yet.
    pub(crate) fn is_readable(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let peeked = recv(self.stream.as_raw_fd(), &mut [0], flags);
        !matches!(peeked, Err(Errno::EAGAIN | Errno::EINTR))
    }

    fn receive_some(&self, buffer: &mut [u8], asleep: MsgFlags) -> Result<usize, MessageError> {
        if self.wait == Wait::Block {
            return self.receive_asleep(buffer, asleep);
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
                    return self.receive_asleep(buffer, asleep);
                }
            }
        }
    }

    fn receive_asleep(&self, buffer: &mut [u8], flags: MsgFlags) -> Result<usize, MessageError> {
        let fd = self.stream.as_raw_fd();
        let mut quiet = None;
        loop {
            match recv(fd, buffer, flags) {
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN) => self.check(&mut quiet)?,
                Err(Errno::EINTR) => self.go_on()?,
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
    wait: Wait,
    /// When the last one was sent: an answer to it is waited for by spinning for a while.
    sent: Instant,
}

/// What a wait for a datagram brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramWait {
    /// So many bytes.
    Datagram(usize),
    /// A datagram without payload: the peer asks for a look at the connection beside.
    Empty,
    /// Nothing until the deadline, or for about 100 ms.
    Nothing,
}

impl NumberedDatagrams {
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
    ) -> Result<DatagramWait, MessageError> {
        let fd = self.socket.as_raw_fd();
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let spins = self.wait == Wait::Spin && self.sent.elapsed() < SPIN_AT_MOST;
            // The socket's own time-out is one system call less, and too long before a near deadline.
            let near = left.filter(|left| *left < STOP_INTERVAL && !spins);
            if let Some(left) = near {
                // An interrupted sleep is a short one: the clock is looked at again.
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
                // An ICMP error to an earlier datagram: that one is lost, no more.
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
                // The error belongs to an earlier datagram; this one was not sent.
                Err(Errno::EINTR | Errno::ECONNREFUSED) => {}
                Err(error) => return Err(MessageError::Failed(error.into())),
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
