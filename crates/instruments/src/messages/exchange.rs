//! Whole messages and lines over one TCP connection, without allocation, and never waiting without end.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use netio::tcp;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

use super::wire::{LONGEST_LINE, Wait};
use netio::stop::Stop;
use netio::stop::{STOP_INTERVAL, StopCause};

/// Between two looks at the clock while spinning: some tens of microseconds.
const SPINS: u32 = 64;
/// A peer that is silent for so long is waited for asleep, so that nobody keeps a core busy with nothing.
pub(crate) const SPIN_AT_MOST: Duration = Duration::from_millis(100);

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: TcpStream,
    /// The peer.
    pub(crate) peer: SocketAddr,
    /// How messages are waited for; lines are always waited for asleep.
    pub(crate) wait: Wait,
    /// When this end stops waiting.
    pub(crate) watch: Watch,
}

/// When to stop waiting.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// Signals and the time that the whole may take.
    pub(crate) stop: Stop,
    /// How long the peer may neither send nor take anything.
    pub(crate) silence: Duration,
}

/// Since when nothing has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    since: Instant,
    unacknowledged: u32,
}

/// Why a message did not get through.
#[derive(Debug)]
pub(crate) enum Broken {
    /// It was to stop here.
    Stopped(StopCause),
    /// The peer was silent for too long.
    Silent(Duration),
    /// The peer closed the connection in order, so many bytes into a message.
    Closed(usize),
    /// The line is too long or no text.
    NoLine(String),
    /// The connection failed.
    Failed(io::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(cause) => cause.fmt(f),
            Self::Silent(time) => write!(
                f,
                "it neither sent nor took anything for {} s",
                time.as_secs_f64()
            ),
            Self::Closed(0) => f.write_str("it closed the connection"),
            Self::Closed(bytes) => {
                write!(
                    f,
                    "it closed the connection after {bytes} bytes of a message"
                )
            }
            Self::NoLine(start) => write!(
                f,
                "came {start:?} where a line of text of at most {LONGEST_LINE} bytes was due"
            ),
            Self::Failed(error) => write!(f, "the connection broke: {error}"),
        }
    }
}

impl std::error::Error for Broken {}

impl Channel {
    /// Takes over a connection: every wait ends after 100 ms to look at `watch`.
    ///
    /// # Errors
    /// The socket refuses its options.
    pub(crate) fn new(stream: TcpStream, watch: Watch) -> io::Result<Self> {
        let peer = stream.peer_addr()?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        stream.set_write_timeout(Some(STOP_INTERVAL))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            peer,
            wait: Wait::Block,
            watch,
        })
    }

    /// The socket, for its options.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether to go on waiting. `quiet` is since when nothing has happened, and how much the peer had yet to
    /// acknowledge: a long message on a slow link is no silence.
    pub(crate) fn check(&self, quiet: &mut Option<Quiet>) -> Result<(), Broken> {
        self.go_on()?;
        let unacknowledged = tcp::unacknowledged(&self.stream).unwrap_or(0);
        match quiet {
            Some(quiet) if quiet.unacknowledged == unacknowledged => {
                if quiet.since.elapsed() >= self.watch.silence {
                    return Err(Broken::Silent(self.watch.silence));
                }
            }
            _ => {
                *quiet = Some(Quiet {
                    since: Instant::now(),
                    unacknowledged,
                });
            }
        }
        Ok(())
    }

    /// Whether nobody asks to stop.
    pub(crate) fn go_on(&self) -> Result<(), Broken> {
        self.watch
            .stop
            .cause()
            .map_or(Ok(()), |cause| Err(Broken::Stopped(cause)))
    }

    /// Fills `message`, as the channel waits.
    pub(crate) fn receive(&self, message: &mut [u8]) -> Result<(), Broken> {
        let mut filled = 0;
        loop {
            let rest = &mut message[filled..];
            match self.receive_some(rest, MsgFlags::MSG_WAITALL)? {
                0 => return Err(Broken::Closed(filled)),
                more => filled += more,
            }
            if filled == message.len() {
                return Ok(());
            }
            self.go_on()?;
        }
    }

    /// One read of at least one byte, 0 at the end of the connection; always asleep.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Broken> {
        self.receive_asleep(buffer, MsgFlags::empty())
    }

    /// Sends all of `message`.
    pub(crate) fn send(&self, message: &[u8]) -> Result<(), Broken> {
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
                Err(error) => return Err(Broken::Failed(error.into())),
            }
        }
    }

    /// Sends one line.
    pub(crate) fn send_line(&self, line: &str) -> Result<(), Broken> {
        self.send(format!("{line}\n").as_bytes())
    }

    /// Receives one line, without its end; byte by byte, because what follows it may be a message. The whole of it
    /// must come within the silence that is allowed.
    pub(crate) fn receive_line(&self) -> Result<String, Broken> {
        let mut line = Vec::with_capacity(LONGEST_LINE);
        let mut byte = [0];
        let start = Instant::now();
        while line.len() < LONGEST_LINE {
            self.go_on()?;
            if start.elapsed() >= self.watch.silence {
                return Err(Broken::Silent(self.watch.silence));
            }
            if self.read(&mut byte)? == 0 {
                return Err(if line.is_empty() {
                    Broken::Closed(0)
                } else {
                    no_line(&line)
                });
            }
            match byte[0] {
                b'\n' => {
                    if line.last() == Some(&b'\r') {
                        line.pop();
                    }
                    return String::from_utf8(line).map_err(|error| no_line(error.as_bytes()));
                }
                // Nothing that a terminal would obey gets into a message to the user.
                byte if byte.is_ascii_graphic() || matches!(byte, b' ' | b'\r') => line.push(byte),
                byte => {
                    line.push(byte);
                    return Err(no_line(&line));
                }
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

    fn receive_some(&self, buffer: &mut [u8], asleep: MsgFlags) -> Result<usize, Broken> {
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
                Err(error) => return Err(Broken::Failed(error.into())),
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

    fn receive_asleep(&self, buffer: &mut [u8], flags: MsgFlags) -> Result<usize, Broken> {
        let fd = self.stream.as_raw_fd();
        let mut quiet = None;
        loop {
            match recv(fd, buffer, flags) {
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN) => self.check(&mut quiet)?,
                Err(Errno::EINTR) => self.go_on()?,
                Err(error) => return Err(Broken::Failed(error.into())),
            }
        }
    }
}

fn no_line(bytes: &[u8]) -> Broken {
    const SHOWN: usize = 40;
    let start = &bytes[..bytes.len().min(SHOWN)];
    Broken::NoLine(String::from_utf8_lossy(start).into_owned())
}
