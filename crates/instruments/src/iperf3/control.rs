//! The control connection: states and JSON messages, each within a stated time.

use crate::error::Result;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use serde_json::Value;
use socket2::SockRef;

use super::wire::{COOKIE_LENGTH, ControlState, Cookie, ErrorCode};
use netio::stop::{STOP_INTERVAL, Stop, StopCause};

/// How long the other end may take for one message.
pub(crate) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    stream: TcpStream,
    peer: SocketAddr,
    stop: Stop,
    timeout: Duration,
    /// When all that precedes the test must have come.
    set_up: Option<Instant>,
}

/// Why a control connection is of no more use.
#[derive(Debug)]
pub(crate) enum ControlError {
    /// A signal or the end of the time that the whole measurement may take.
    Stopped(StopCause),
    /// The other end refuses or gives up in the protocol's own words.
    PeerGaveUp(ControlState, Option<ErrorCode>),
    /// A connection was closed or broke, or could not be opened.
    Connection(String),
    /// Nothing came in time.
    TimedOut(String),
    /// The test lasts too long.
    Overdue(String),
    /// What came is not iperf3's protocol.
    Protocol(String),
}

/// The result of a part of the control session.
pub(crate) type ControlResult<T> = Result<T, ControlError>;

impl ControlChannel {
    /// Over a connection that just came about.
    ///
    /// # Errors
    /// Its socket takes no options.
    pub(crate) fn new(stream: TcpStream, stop: Stop) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        Ok(Self {
            peer: stream.peer_addr()?,
            stream,
            stop,
            timeout: MESSAGE_TIMEOUT,
            set_up: None,
        })
    }

    /// With another time for each message.
    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bounds all that is awaited until [`set_up`](Self::set_up), from now on, however many messages that is.
    pub(crate) fn set_up_within(&mut self, time: Duration) {
        self.set_up = Some(Instant::now() + time);
    }

    /// Gives what precedes the test so much more time.
    pub(crate) fn extend_set_up(&mut self, time: Duration) {
        self.set_up = self.set_up.map(|by| by + time);
    }

    /// The test begins: each message has its own time from now on.
    pub(crate) fn set_up(&mut self) {
        self.set_up = None;
    }

    /// The socket, for its options.
    pub(crate) fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.stream)
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection itself, which turned out to be a stream.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// The connection's maximum segment size in bytes, if the kernel tells it.
    pub(crate) fn mss(&self) -> Option<u32> {
        SockRef::from(&self.stream).tcp_mss().ok()
    }

    /// Whether the whole measurement has to end.
    pub(crate) fn check(&self) -> ControlResult<()> {
        self.stop
            .cause()
            .map_or(Ok(()), |cause| Err(ControlError::Stopped(cause)))
    }

    /// As [`check`](Self::check), and whether the other end is still there and waits, as it has to.
    pub(crate) fn check_peer(&self) -> ControlResult<()> {
        self.check()?;
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let gone = |why: &dyn fmt::Display| {
            let text = format!("{why} before the test began");
            Err(ControlError::Connection(text))
        };
        match recv(self.stream.as_raw_fd(), &mut [0], flags) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Ok(0) => gone(&"the connection was closed"),
            Ok(_) => gone(&"it gave up"),
            Err(error) => gone(&error),
        }
    }

    /// When a message that is awaited from now on is late.
    pub(crate) fn deadline(&self) -> Instant {
        let late = Instant::now() + self.timeout;
        self.set_up.map_or(late, |by| by.min(late))
    }

    /// The first thing that a client sends.
    pub(crate) fn send_cookie(&mut self, cookie: &Cookie) -> ControlResult<()> {
        self.send(cookie.as_bytes(), "the cookie")
    }

    /// Reads the cookie that a client begins with.
    pub(crate) fn read_cookie(&mut self) -> ControlResult<Cookie> {
        let mut bytes = [0; COOKIE_LENGTH];
        let deadline = self.deadline();
        self.fill(&mut bytes, deadline, "a cookie of 37 bytes")?;
        Cookie::parse(bytes).ok_or_else(|| {
            ControlError::Protocol(
                "iperf3's cookie is 36 letters and a zero byte, and this is different".to_owned(),
            )
        })
    }

    /// Sends a state.
    pub(crate) fn send_state(&mut self, state: ControlState) -> ControlResult<()> {
        self.send(&[state.byte()], &state.to_string())
    }

    /// Gives up with the reason that iperf3 has a number for.
    pub(crate) fn send_error(&mut self, error: ErrorCode) -> ControlResult<()> {
        let mut bytes = vec![ControlState::ServerError.byte()];
        bytes.extend(error.to_bytes());
        self.send(&bytes, "an error")
    }

    /// Sends a JSON message: a text behind its length.
    pub(crate) fn send_json(&mut self, json: &Value, what: &str) -> ControlResult<()> {
        let text = json.to_string();
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let bytes = [&length.to_be_bytes()[..], text.as_bytes()].concat();
        self.send(&bytes, what)
    }

    /// Reads a JSON message of at most `longest` bytes with `parse`.
    pub(crate) fn read_json<T>(
        &mut self,
        deadline: Instant,
        longest: usize,
        what: &str,
        parse: impl FnOnce(&[u8]) -> Result<T>,
    ) -> ControlResult<T> {
        let mut length = [0; 4];
        self.fill(&mut length, deadline, what)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > longest {
            return Err(ControlError::Protocol(format!(
                "{what} of {length} bytes: 1 to {longest} are allowed"
            )));
        }
        let mut text = vec![0; length];
        self.fill(&mut text, deadline, what)?;
        parse(&text)
            .map_err(|error| ControlError::Protocol(format!("{what} cannot be read: {error:#}")))
    }

    /// The state that comes next, which must be `wanted`.
    pub(crate) fn expect(&mut self, wanted: ControlState, deadline: Instant) -> ControlResult<()> {
        match self.read_state(deadline, &wanted.to_string())? {
            state if state == wanted => Ok(()),
            state => Err(self.unexpected(state, &wanted.to_string())),
        }
    }

    /// The next state before `deadline`; the words in which the other end gives up are errors.
    pub(crate) fn read_state(
        &mut self,
        deadline: Instant,
        wanted: &str,
    ) -> ControlResult<ControlState> {
        let mut byte = [0];
        self.fill(&mut byte, deadline, wanted)?;
        let state = ControlState::parse(byte[0]).ok_or_else(|| {
            ControlError::Protocol(format!(
                "it sent the byte {:#04x} instead of {wanted}: that is not iperf3's protocol",
                byte[0]
            ))
        })?;
        match state {
            ControlState::AccessDenied
            | ControlState::ServerTerminate
            | ControlState::ClientTerminate => Err(ControlError::PeerGaveUp(state, None)),
            ControlState::ServerError => {
                let mut code = [0; 8];
                let deadline = self.deadline();
                // A server that dies of its error may not get to say which.
                let code = self
                    .fill(&mut code, deadline, "an error code")
                    .ok()
                    .map(|()| code);
                Err(ControlError::PeerGaveUp(state, code.map(ErrorCode::parse)))
            }
            state => Ok(state),
        }
    }

    /// The next state if it comes before `until`.
    pub(crate) fn poll_state(&mut self, until: Instant) -> ControlResult<Option<ControlState>> {
        match self.read_state(until, "a state") {
            Ok(state) => Ok(Some(state)),
            Err(ControlError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the other end, if it can still be told, that this one gives up.
    pub(crate) fn give_up(&mut self, state: ControlState) {
        let _ = self.stream.write_all(&[state.byte()]);
    }

    /// A state that does not belong where it came.
    pub(crate) fn unexpected(&self, state: ControlState, wanted: &str) -> ControlError {
        ControlError::Protocol(format!("it sent {state} instead of {wanted}"))
    }

    fn send(&mut self, bytes: &[u8], what: &str) -> ControlResult<()> {
        self.check()?;
        self.stream
            .write_all(bytes)
            .map_err(|error| ControlError::Connection(format!("{error} while sending {what}")))
    }

    fn fill(&mut self, buffer: &mut [u8], deadline: Instant, what: &str) -> ControlResult<()> {
        let gone = |why: &dyn fmt::Display| {
            Err(ControlError::Connection(format!(
                "{why} instead of sending {what}"
            )))
        };
        let begun = Instant::now();
        let mut filled = 0;
        while filled < buffer.len() {
            self.check()?;
            // What is there already is read even when it is late to ask for it.
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = left.clamp(Duration::from_millis(1), STOP_INTERVAL);
            let read = self
                .stream
                .set_read_timeout(Some(wait))
                .and_then(|()| self.stream.read(&mut buffer[filled..]));
            match read {
                Ok(0) => return gone(&"the connection was closed"),
                Ok(count) => filled += count,
                Err(error) if is_pause(&error) => {
                    if Instant::now() >= deadline {
                        let waited = begun.elapsed().as_secs_f64();
                        return Err(ControlError::TimedOut(format!(
                            "{what} did not arrive within {waited:.1} s"
                        )));
                    }
                }
                Err(error) => return gone(&error),
            }
        }
        Ok(())
    }
}

/// Whether a socket's time-out passed.
pub(crate) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(cause) => write!(f, "{cause}"),
            Self::PeerGaveUp(ControlState::AccessDenied, _) => {
                f.write_str("it is busy with another test: try again later (ACCESS_DENIED)")
            }
            Self::PeerGaveUp(ControlState::ServerTerminate, _) => {
                f.write_str("the server was stopped (SERVER_TERMINATE)")
            }
            Self::PeerGaveUp(ControlState::ClientTerminate, _) => {
                f.write_str("the client gave up (CLIENT_TERMINATE)")
            }
            Self::PeerGaveUp(_, Some(error)) => write!(f, "it gave up: {error}"),
            Self::PeerGaveUp(state, None) => write!(f, "it gave up: {state}"),
            Self::Connection(text)
            | Self::TimedOut(text)
            | Self::Overdue(text)
            | Self::Protocol(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_set_up_has_one_deadline_however_many_messages_it_takes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut control = ControlChannel::new(stream, Stop::default()).unwrap();
        let (second, before) = (Duration::from_secs(1), Instant::now());
        control.set_up_within(second);
        let deadline = control.deadline();
        assert!(deadline < before + MESSAGE_TIMEOUT);
        assert_eq!(control.deadline(), deadline);
        control.extend_set_up(second);
        assert_eq!(control.deadline(), deadline + second);
        control.set_up();
        assert!(control.deadline() >= before + MESSAGE_TIMEOUT);
    }
}
