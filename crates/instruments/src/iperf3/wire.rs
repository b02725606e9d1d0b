//! The bytes of iperf3's control connection: cookie, states, error codes.
//!
//! There is no specification. This follows iperf3 3.12 and later (src/iperf_api.h, src/iperf_api.c of esnet/iperf). A
//! client sends its cookie, then both ends send states of one byte each. After some states, JSON texts follow behind a
//! length of 4 bytes, big-endian.

use std::fmt;

use nix::errno::Errno;
use strum::{FromRepr, IntoStaticStr};

/// The length of a cookie in bytes: 36 characters and a zero.
pub(crate) const COOKIE_LENGTH: usize = 37;
/// The longest parameters in bytes, which is iperf3's limit since 3.18.
pub(crate) const LONGEST_PARAMS: usize = 8 * 1024;
/// The longest results in bytes that are read. 256 streams need less than a quarter of it.
pub(crate) const LONGEST_RESULTS: usize = 256 * 1024;

/// The letters of iperf3's base 32, in which cookies are written.
const COOKIE_LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The identifier of a test's connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cookie([u8; COOKIE_LENGTH]);

/// A step of a test, with its number in messages and its name in iperf3's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[repr(i8)]
pub(crate) enum ControlState {
    /// The test begins, and counting restarts.
    TestStart = 1,
    /// The ends may send.
    TestRunning = 2,
    /// The client ends the test.
    TestEnd = 4,
    /// The client is to send its parameters.
    ParamExchange = 9,
    /// The client is to open its streams.
    CreateStreams = 10,
    /// The server gives up.
    ServerTerminate = 11,
    /// The client gives up.
    ClientTerminate = 12,
    /// The client is to send its results; the server's follow.
    ExchangeResults = 13,
    /// Both ends have the results.
    DisplayResults = 14,
    /// The last message, from the client.
    #[strum(serialize = "IPERF_DONE")]
    Done = 16,
    /// The server runs another test.
    AccessDenied = -1,
    /// The server failed. Its error code and its errno follow, 4 bytes each, big-endian.
    ServerError = -2,
}

/// iperf3's number for the failure of a test (`i_errno`), and the system's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorCode {
    /// The number of iperf3.
    pub(crate) code: i32,
    /// The server's errno, or 0 for none.
    pub(crate) errno: i32,
}

impl Cookie {
    /// Returns a new cookie. It need not be secret.
    pub(crate) fn random() -> Self {
        let mut bytes = [0; COOKIE_LENGTH];
        for byte in &mut bytes[..COOKIE_LENGTH - 1] {
            *byte = COOKIE_LETTERS[fastrand::usize(..COOKIE_LETTERS.len())];
        }
        Self(bytes)
    }

    /// Parses the first bytes of a connection. `None` means that they are not printable text followed by a zero.
    ///
    /// iperf3 compares cookies as C strings, and creates them in base 32; others may use other letters.
    pub(crate) fn parse(bytes: [u8; COOKIE_LENGTH]) -> Option<Self> {
        let (last, text) = bytes.split_last()?;
        let printable = text.iter().all(u8::is_ascii_graphic);
        (*last == 0 && printable).then_some(Self(bytes))
    }

    /// Returns the bytes of the cookie in messages.
    pub(crate) fn as_bytes(&self) -> &[u8; COOKIE_LENGTH] {
        &self.0
    }
}

impl ControlState {
    /// Returns the state of this byte, if there is one.
    pub(crate) fn parse(byte: u8) -> Option<Self> {
        Self::from_repr(byte.cast_signed())
    }

    /// Returns the byte of the state in messages.
    pub(crate) fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }
}

impl ErrorCode {
    /// The client's duration exceeds the server's maximum (`IEMAXSERVERTESTDURATIONEXCEEDED`).
    pub(crate) const TOO_LONG: Self = Self::of(37);
    /// The test needs more memory than the server allows (`IEBUFSIZE`).
    pub(crate) const MEMORY: Self = Self::of(8);
    /// The server does not take tests from this client (`IEAUTHTEST`).
    pub(crate) const NOT_ALLOWED: Self = Self::of(142);
    /// The parameters cannot be read (`IERECVPARAMS`).
    pub(crate) const PARAMS: Self = Self::of(114);
    /// The results cannot be read (`IERECVRESULTS`).
    pub(crate) const RESULTS: Self = Self::of(117);
    /// The client's message is not allowed at this point (`IEMESSAGE`).
    pub(crate) const MESSAGE: Self = Self::of(110);
    /// Nothing arrived for too long (`IENOMSG`).
    pub(crate) const SILENCE: Self = Self::of(144);
    /// The test lasted longer than the server allows (`IESERVERTESTDURATIONEXPIRED`).
    pub(crate) const EXPIRED: Self = Self::of(160);
    /// A stream cannot be opened (`IECREATESTREAM`).
    pub(crate) const STREAM: Self = Self::of(200);

    /// The far end does not have this congestion control (`IESETCONGESTION`).
    pub(crate) const CONGESTION: Self = Self {
        code: 134,
        errno: Errno::ENOENT as i32,
    };
    /// The far end's host has this congestion control but does not allow it (`IESETCONGESTION`).
    pub(crate) const CONGESTION_NOT_ALLOWED: Self = Self {
        code: 134,
        errno: Errno::EPERM as i32,
    };

    const fn of(code: i32) -> Self {
        Self { code, errno: 0 }
    }

    /// Parses the 8 bytes after [`ControlState::ServerError`].
    pub(crate) fn parse([a, b, c, d, e, f, g, h]: [u8; 8]) -> Self {
        Self {
            code: i32::from_be_bytes([a, b, c, d]),
            errno: i32::from_be_bytes([e, f, g, h]),
        }
    }

    /// Returns the 8 bytes in messages.
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let both = [self.code.to_be_bytes(), self.errno.to_be_bytes()];
        both.concat().try_into().expect("twice four bytes")
    }

    /// Returns the meaning of the code, for failures that a client can cause or wait out.
    fn meaning(self) -> Option<&'static str> {
        if self == Self::CONGESTION_NOT_ALLOWED {
            return Some("the server's host has this congestion control, but does not allow it");
        }
        Some(match self.code {
            5 => "the test is too long",
            6 => "too many parallel streams",
            7 => "the block is too long",
            8 => "the window is too large",
            10 => "the MSS is too large",
            12 => "the omitted start is too long",
            27 => "the bit rate is above the server's limit",
            37 => "the test is longer than the server allows",
            110 => "the server did not understand a message",
            114 => "the server could not read the parameters",
            117 => "the server could not read the results",
            118..=120 => "the server was stopped",
            123 => "the server could not set the MSS",
            124 => "the server could not set the window",
            134 => "the server does not have this congestion control",
            142 => "the server refuses tests from this client",
            144 => "the server received nothing for too long",
            160 => "the test took longer than the server allows",
            200..=207 => "the server could not open or keep a stream",
            _ => return None,
        })
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0[..COOKIE_LENGTH - 1]))
    }
}

/// iperf3's name of the state, with its number.
impl fmt::Display for ControlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", <&str>::from(self), *self as i8)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iperf3 error {}", self.code)?;
        if let Some(meaning) = self.meaning() {
            write!(f, ", {meaning}")?;
        }
        if self.errno != 0 {
            let error = std::io::Error::from_raw_os_error(self.errno);
            write!(f, ": {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_36_letters_and_a_zero() {
        let cookie = Cookie::random();
        assert_eq!(Cookie::parse(*cookie.as_bytes()), Some(cookie));
        assert_ne!(Cookie::random(), cookie);
        let mut open = *cookie.as_bytes();
        open[36] = b'a';
        assert_eq!(Cookie::parse(open), None);
        assert_eq!(Cookie::parse([0; COOKIE_LENGTH]), None);
    }

    #[test]
    fn states_are_bytes_and_most_bytes_are_no_state() {
        assert_eq!(ControlState::AccessDenied.byte(), 0xff);
        assert_eq!(ControlState::parse(0xfe), Some(ControlState::ServerError));
        let known = (0..=u8::MAX).filter_map(ControlState::parse);
        assert_eq!(known.count(), 12);
        assert_eq!(ControlState::TestEnd.to_string(), "TEST_END (4)");
    }

    #[test]
    fn an_error_has_a_text() {
        let bytes = [0, 0, 0, 134, 0, 0, 0, 2];
        let error = ErrorCode::parse(bytes);
        assert_eq!(error.to_bytes(), bytes);
        assert_eq!(
            error.to_string(),
            "iperf3 error 134, the server does not have this congestion control: \
             No such file or directory (os error 2)"
        );
    }
}
