//! The control connection: states and JSON messages, each with a time-out.

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
use crate::round_trip;
use netio::stop::{STOP_INTERVAL, Stop, StopCause};

/// The default time-out for one message of the other end, on a path with a short round trip.
pub(crate) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    stream: TcpStream,
    peer: SocketAddr,
    stop: Stop,
    /// The time-out for one message, without the round trips of the path.
    timeout: Duration,
    /// The deadline of the set-up before the test, if there is one.
    set_up: Option<Instant>,
}

/// The reason why a control connection cannot be used any more.
#[derive(Debug)]
pub(crate) enum ControlError {
    /// The measurement was stopped, by a signal or the end of its time.
    Stopped(StopCause),
    /// The other end refused or gave up, with a message of the protocol.
    PeerGaveUp(ControlState, Option<ErrorCode>),
    /// A connection was closed, broke, or could not be opened.
    Connection(String),
    /// A message did not arrive in time.
    TimedOut(String),
    /// The test lasted too long.
    Overdue(String),
    /// The received bytes are not iperf3's protocol.
    Protocol(String),
}

/// The result of a part of the control session.
pub(crate) type ControlResult<T> = Result<T, ControlError>;

impl ControlChannel {
    /// Wraps a connection that was just established.
    ///
    /// # Errors
    /// Returns an error if the socket refuses its options.
    pub(crate) fn new(stream: TcpStream, stop: Stop) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STOP_INTERVAL))?;
        Ok(Self {
            peer: stream.peer_addr()?,
            stream,
            stop,
            timeout: MESSAGE_TIMEOUT,
            set_up: None,
        })
    }

    /// Sets another time-out for each message, to which the round trips of the path are added.
    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns the smoothed round-trip time of this connection.
    pub(crate) fn round_trip(&self) -> Duration {
        round_trip::of(&self.stream)
    }

    /// Returns the time-out for one message, which follows the round trip.
    pub(crate) fn timeout(&self) -> Duration {
        round_trip::extended(self.timeout, self.round_trip())
    }

    /// Limits the set-up, up to [`set_up`](Self::set_up), to `time` and some round trips from now, however many
    /// messages it takes.
    pub(crate) fn set_up_within(&mut self, time: Duration) {
        self.set_up = Some(Instant::now() + round_trip::extended(time, self.round_trip()));
    }

    /// Extends the set-up by `time`.
    pub(crate) fn extend_set_up(&mut self, time: Duration) {
        self.set_up = self.set_up.map(|by| by + time);
    }

    /// Ends the set-up. From now on only the time-out of each message applies.
    pub(crate) fn set_up(&mut self) {
        self.set_up = None;
    }

    /// Returns the socket, for its options.
    pub(crate) fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.stream)
    }

    /// Returns the address of the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the connection, which turned out to be a stream.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Returns the connection's maximum segment size in bytes, if the kernel reports it.
    pub(crate) fn mss(&self) -> Option<u32> {
        SockRef::from(&self.stream).tcp_mss().ok()
    }

    /// Returns an error if there is a cause to stop the measurement.
    pub(crate) fn check(&self) -> ControlResult<()> {
        self.stop
            .cause()
            .map_or(Ok(()), |cause| Err(ControlError::Stopped(cause)))
    }

    /// Performs [`check`](Self::check), and returns an error unless the other end is still there and silent, as it must
    /// be.
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

    /// Returns the deadline of a message that is awaited from now on.
    pub(crate) fn deadline(&self) -> Instant {
        let late = Instant::now() + self.timeout();
        self.set_up.map_or(late, |by| by.min(late))
    }

    /// Sends the cookie, which is a client's first message.
    pub(crate) fn send_cookie(&mut self, cookie: &Cookie) -> ControlResult<()> {
        self.send(cookie.as_bytes(), "the cookie")
    }

    /// Reads the cookie with which a client begins.
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

    /// Gives up with an error that has a number in iperf3.
    pub(crate) fn send_error(&mut self, error: ErrorCode) -> ControlResult<()> {
        let mut bytes = vec![ControlState::ServerError.byte()];
        bytes.extend(error.to_bytes());
        self.send(&bytes, "an error")
    }

    /// Sends a JSON message, which is a text after its length.
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

    /// Reads the next state, which must be `wanted`.
    pub(crate) fn expect(&mut self, wanted: ControlState, deadline: Instant) -> ControlResult<()> {
        match self.read_state(deadline, &wanted.to_string())? {
            state if state == wanted => Ok(()),
            state => Err(self.unexpected(state, &wanted.to_string())),
        }
    }

    /// Reads the next state before `deadline`. A state with which the other end gives up is an error.
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
                // A server that dies of its error may be unable to send the code.
                let code = self
                    .fill(&mut code, deadline, "an error code")
                    .ok()
                    .map(|()| code);
                Err(ControlError::PeerGaveUp(state, code.map(ErrorCode::parse)))
            }
            state => Ok(state),
        }
    }

    /// Reads the next state, if it arrives before `until`.
    pub(crate) fn poll_state(&mut self, until: Instant) -> ControlResult<Option<ControlState>> {
        match self.read_state(until, "a state") {
            Ok(state) => Ok(Some(state)),
            Err(ControlError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the other end that this one gives up, if that is still possible.
    pub(crate) fn give_up(&mut self, state: ControlState) {
        let _ = self.stream.write_all(&[state.byte()]);
    }

    /// Returns the error for a state that is not allowed at this point.
    pub(crate) fn unexpected(&self, state: ControlState, wanted: &str) -> ControlError {
        ControlError::Protocol(format!("it sent {state} instead of {wanted}"))
    }

    fn send(&mut self, bytes: &[u8], what: &str) -> ControlResult<()> {
        self.check()?;
        self.stream
            .set_write_timeout(Some(self.timeout()))
            .and_then(|()| self.stream.write_all(bytes))
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
            // Data that has already arrived is read even after the deadline.
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = left.clamp(Duration::from_millis(1), STOP_INTERVAL);
            let read = self
                .stream
                .set_read_timeout(Some(wait))
                .and_then(|()| self.stream.read(&mut buffer[filled..]));
            match read {
                Ok(0) => return gone(&"the connection was closed"),
                Ok(count) => filled += count,
                Err(error) if is_timeout(&error) => {
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

/// Returns whether `error` is a socket's time-out or an interruption.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
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
