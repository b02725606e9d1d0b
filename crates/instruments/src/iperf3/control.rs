//! The control connection: states and JSON texts, each within a stated time.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::SockRef;

use super::wire::{COOKIE_LENGTH, Cookie, ErrorCode, State};
use netio::stop::{STOP_INTERVAL, Stop, StopCause};

/// How long the other end may take for one message.
pub(crate) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    peer: SocketAddr,
    stop: Stop,
    timeout: Duration,
}

/// Why a control connection is of no more use.
#[derive(Debug)]
pub(crate) enum Broken {
    /// A signal or the end of the time that the whole measurement may take.
    Stopped(StopCause),
    /// The other end refuses or gives up in the protocol's own words.
    Told(State, Option<ErrorCode>),
    /// The other end closed the connection, or it broke; while what was awaited.
    Gone(String),
    /// Nothing came in time.
    Silent(String),
    /// The test lasts too long.
    Overdue(String),
    /// What came is not iperf3's protocol.
    Garbage(String),
}

/// The result of a step.
pub(crate) type Step<T> = Result<T, Broken>;

impl Control {
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
        })
    }

    /// With another time for each message.
    pub(crate) fn patient(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
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
    pub(crate) fn check(&self) -> Step<()> {
        self.stop
            .cause()
            .map_or(Ok(()), |cause| Err(Broken::Stopped(cause)))
    }

    /// When a message that is awaited from now on is late.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    pub(crate) fn send_cookie(&mut self, cookie: &Cookie) -> Step<()> {
        self.send(cookie.as_bytes(), "the cookie")
    }

    /// The first thing that a client sends.
    pub(crate) fn read_cookie(&mut self) -> Step<Cookie> {
        let mut bytes = [0; COOKIE_LENGTH];
        let deadline = self.deadline();
        self.fill(&mut bytes, deadline, "a cookie of 37 bytes")?;
        Cookie::parse(bytes).ok_or_else(|| {
            Broken::Garbage("36 letters and a zero are iperf3's cookie, not what came".to_owned())
        })
    }

    pub(crate) fn send_state(&mut self, state: State) -> Step<()> {
        self.send(&[state.byte()], &state.to_string())
    }

    /// Gives up with the reason that iperf3 has a number for.
    pub(crate) fn send_error(&mut self, error: ErrorCode) -> Step<()> {
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend(error.to_bytes());
        self.send(&bytes, "an error")
    }

    /// A text behind its length.
    pub(crate) fn send_json(&mut self, json: &Value, what: &str) -> Step<()> {
        let text = json.to_string();
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let bytes = [&length.to_be_bytes()[..], text.as_bytes()].concat();
        self.send(&bytes, what)
    }

    /// A text behind its length, `longest` bytes at most.
    pub(crate) fn read_json(&mut self, longest: usize, what: &str) -> Step<Vec<u8>> {
        self.read_json_by(self.deadline(), longest, what)
    }

    /// As [`read_json`](Self::read_json), by `deadline`.
    pub(crate) fn read_json_by(
        &mut self,
        deadline: Instant,
        longest: usize,
        what: &str,
    ) -> Step<Vec<u8>> {
        let mut length = [0; 4];
        self.fill(&mut length, deadline, what)?;
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > longest {
            return Err(Broken::Garbage(format!(
                "{what} of {length} bytes: 1 to {longest} are allowed"
            )));
        }
        let mut text = vec![0; length];
        self.fill(&mut text, deadline, what)?;
        Ok(text)
    }

    /// The state that comes next, which must be `wanted`.
    pub(crate) fn expect(&mut self, wanted: State, deadline: Instant) -> Step<()> {
        match self.read_state(deadline, &wanted.to_string())? {
            state if state == wanted => Ok(()),
            state => Err(self.unexpected(state, &wanted.to_string())),
        }
    }

    /// The next state before `deadline`; the words in which the other end gives up are errors.
    pub(crate) fn read_state(&mut self, deadline: Instant, wanted: &str) -> Step<State> {
        let mut byte = [0];
        self.fill(&mut byte, deadline, wanted)?;
        let state = State::parse(byte[0]).ok_or_else(|| {
            Broken::Garbage(format!(
                "it sent the byte {:#04x} where {wanted} was due: that is not iperf3's protocol",
                byte[0]
            ))
        })?;
        match state {
            State::AccessDenied | State::ServerTerminate | State::ClientTerminate => {
                Err(Broken::Told(state, None))
            }
            State::ServerError => {
                let mut code = [0; 8];
                let deadline = self.deadline();
                // A server that dies of its error may not get to say which.
                let code = self
                    .fill(&mut code, deadline, "an error code")
                    .ok()
                    .map(|()| code);
                Err(Broken::Told(state, code.map(ErrorCode::parse)))
            }
            state => Ok(state),
        }
    }

    /// The next state if it comes before `until`.
    pub(crate) fn poll_state(&mut self, until: Instant) -> Step<Option<State>> {
        match self.read_state(until, "a state") {
            Ok(state) => Ok(Some(state)),
            Err(Broken::Silent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells the other end, if it can still be told, that this one gives up.
    pub(crate) fn farewell(&mut self, state: State) {
        let _ = self.stream.write_all(&[state.byte()]);
    }

    /// A state that does not belong where it came.
    pub(crate) fn unexpected(&self, state: State, wanted: &str) -> Broken {
        Broken::Garbage(format!("it sent {state} where {wanted} was due"))
    }

    fn send(&mut self, bytes: &[u8], what: &str) -> Step<()> {
        self.check()?;
        self.stream
            .write_all(bytes)
            .map_err(|error| Broken::Gone(format!("{error} while sending {what}")))
    }

    fn fill(&mut self, buffer: &mut [u8], deadline: Instant, what: &str) -> Step<()> {
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
                Ok(0) => {
                    return Err(Broken::Gone(format!(
                        "the connection was closed where {what} was due"
                    )));
                }
                Ok(count) => filled += count,
                Err(error) if is_pause(&error) => {
                    if Instant::now() >= deadline {
                        let waited = begun.elapsed().as_secs_f64();
                        return Err(Broken::Silent(format!(
                            "{what} did not come within {waited:.1} s"
                        )));
                    }
                }
                Err(error) => {
                    return Err(Broken::Gone(format!("{error} where {what} was due")));
                }
            }
        }
        Ok(())
    }
}

/// Whether a socket's time-out passed.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(cause) => write!(f, "{cause}"),
            Self::Told(State::AccessDenied, _) => {
                f.write_str("it is busy with another test: try again later (ACCESS_DENIED)")
            }
            Self::Told(State::ServerTerminate, _) => {
                f.write_str("the server was stopped (SERVER_TERMINATE)")
            }
            Self::Told(State::ClientTerminate, _) => {
                f.write_str("the client gave up (CLIENT_TERMINATE)")
            }
            Self::Told(_, Some(error)) => write!(f, "it gave up: {error}"),
            Self::Told(state, None) => write!(f, "it gave up: {state}"),
            Self::Gone(text) | Self::Silent(text) | Self::Overdue(text) | Self::Garbage(text) => {
                f.write_str(text)
            }
        }
    }
}
