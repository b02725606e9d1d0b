//! What is said before the test: set-up, null request and activation.

use std::fmt;

use bytes::{Buf, BufMut};

use super::{Malformed, SendingRate, Sizes, Version, check};
use crate::instrument::Direction;

const SETUP: &str = "setup message";
const SETUP_IDENTIFIER: u16 = 0xace1;
const SETUP_LENGTH: usize = 56;
const ACTIVATION: &str = "activation message";
const ACTIVATION_IDENTIFIER: u16 = 0xace2;
const ACTIVATION_LENGTH: usize = 104;
const LEGACY_ACTIVATION_LENGTH: usize = 60;
const NULL_IDENTIFIER: u16 = 0xdead;
const NULL_LENGTH: usize = 48;

const JUMBO: u8 = 0x01;
const TRADITIONAL: u8 = 0x02;
const ROW_IS_START: u8 = 0x01;
const RANDOM_PAYLOAD: u8 = 0x02;
const NO_ROW: u16 = u16::MAX;
/// Authentication's time, digest and key, which are 0 in unauthenticated mode.
const AUTHENTICATION: usize = 4 + 32 + 1 + 1;

/// A setup request, or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// As it came: perhaps one that is not spoken here.
    pub(crate) version: u16,
    /// Which of the client's connections this is, from 0.
    pub(crate) connection: u8,
    /// How many the client opens.
    pub(crate) connections: u8,
    /// What the client's connections have in common; never 0.
    pub(crate) ident: u16,
    /// None in a request.
    pub(crate) answer: Option<SetupAnswer>,
    /// In an answer: the UDP port of the test.
    pub(crate) port: u16,
    /// Which table of sending rates.
    pub(crate) sizes: Sizes,
    /// 0 is unauthenticated.
    pub(crate) authentication: u8,
}

/// What a server says to a setup request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetupAnswer {
    /// Go on with the activation.
    Accepted,
    /// The version is not spoken; the answer holds one that is.
    BadVersion,
    /// The other setting of jumbo sizes is asked for.
    BadJumbo,
    /// Authentication was offered to a server that has no key.
    NoAuthentication,
    /// Authentication is asked for.
    AuthenticationRequired,
    /// Authentication in another mode is asked for.
    AuthenticationMode,
    /// The digest is wrong.
    AuthenticationFailed,
    /// The clocks differ too much for authentication.
    AuthenticationTime,
    /// The server wants to be told the bandwidth needed.
    BandwidthRequired,
    /// No capacity is left for another test.
    CapacityExceeded,
    /// The other setting of traditional sizes is asked for.
    BadTraditional,
    /// The connections' numbers make no sense.
    BadConnections,
    /// The server could not open a socket.
    NoSocket,
    /// A number without a meaning here.
    Unknown(u8),
}

/// An activation request, or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activation {
    /// Where the load goes: up from the client, or down to it.
    pub(crate) direction: Direction,
    /// None in a request.
    pub(crate) answer: Option<ActivationAnswer>,
    /// Asked for, and in an answer what takes effect.
    pub(crate) parameters: TestParameters,
    /// In an answer to an upstream request: the rate to begin with.
    pub(crate) rate: SendingRate,
}

/// What a server says to an activation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationAnswer {
    /// The test runs.
    Accepted,
    /// A parameter is not acceptable.
    BadParameter,
    /// A number without a meaning here.
    Unknown(u8),
}

/// How the test is to be done; numbers as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestParameters {
    /// Delay variation below which the rate rises, in milliseconds.
    pub(crate) low_ms: u16,
    /// Delay variation above which the rate falls, in milliseconds.
    pub(crate) upper_ms: u16,
    /// From one feedback to the next, in milliseconds.
    pub(crate) feedback_ms: u16,
    /// The test's length, in seconds.
    pub(crate) duration_s: u16,
    /// DSCP and ECN of the test's packets.
    pub(crate) dscp_ecn: u8,
    /// The sending rate's row to begin with or to stay at.
    pub(crate) start: StartRow,
    /// Judges one-way delay variation, not that of the round-trip time.
    pub(crate) one_way: bool,
    /// Rows of a fast step.
    pub(crate) high_speed_delta: u8,
    /// Congested feedbacks after which fast steps end.
    pub(crate) slow_threshold: u16,
    /// Sequence errors a feedback above which it is a congested one.
    pub(crate) sequence_errors: u16,
    /// Only loss is a sequence error.
    pub(crate) ignore_reordering: bool,
    /// Random filling is asked for.
    pub(crate) random_payload: bool,
    /// 0 is B, 1 is C.
    pub(crate) algorithm: u8,
    /// Share of congestion marks above which feedback is congested, in 1/255; 0 is off.
    pub(crate) ecn_threshold: u8,
    /// A sub-interval's length, in milliseconds.
    pub(crate) sub_interval_ms: u16,
    /// Sub-intervals at the start in which the rate is left alone.
    pub(crate) suppressed: u16,
}

/// Where a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRow {
    /// At the table's first row.
    Lowest,
    /// At this row.
    At(u16),
    /// At this row, without a search.
    Fixed(u16),
}

impl Setup {
    /// As bytes, without a checksum; only an answer holds a port.
    pub(crate) fn encode(&self) -> [u8; SETUP_LENGTH] {
        let mut bytes = [0; SETUP_LENGTH];
        let mut to = &mut bytes[..];
        to.put_u16(SETUP_IDENTIFIER);
        to.put_u16(self.version);
        to.put_u8(self.connection);
        to.put_u8(self.connections);
        to.put_u16(self.ident);
        to.put_u8(if self.answer.is_some() { 2 } else { 1 });
        to.put_u8(self.answer.map_or(0, SetupAnswer::number));
        to.put_u16(0); // The bandwidth that the client needs: not stated.
        to.put_u16(self.port);
        let jumbo = if self.sizes.jumbo { JUMBO } else { 0 };
        let traditional = if self.sizes.traditional {
            TRADITIONAL
        } else {
            0
        };
        to.put_u8(jumbo | traditional);
        to.put_u8(self.authentication);
        bytes
    }

    /// From a whole datagram.
    ///
    /// # Errors
    /// It is no setup message.
    pub(crate) fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        check(
            datagram,
            SETUP,
            SETUP_LENGTH,
            SETUP_IDENTIFIER,
            SETUP_LENGTH - 2,
        )?;
        let mut from = &datagram[2..];
        let version = from.get_u16();
        let (connection, connections) = (from.get_u8(), from.get_u8());
        let ident = from.get_u16();
        let (request, response) = (from.get_u8(), from.get_u8());
        let answer = match request {
            1 => None,
            2 => Some(SetupAnswer::of(response)),
            came => {
                return Err(Malformed::Field {
                    message: SETUP,
                    field: "cmdRequest",
                    came: came.into(),
                });
            }
        };
        from.advance(2);
        let port = from.get_u16();
        let modifiers = from.get_u8();
        Ok(Self {
            version,
            connection,
            connections,
            ident,
            answer,
            port,
            sizes: Sizes {
                jumbo: modifiers & JUMBO != 0,
                traditional: modifiers & TRADITIONAL != 0,
            },
            authentication: from.get_u8(),
        })
    }
}

/// The null request, which opens a firewall on its way to the client and means nothing else.
pub(crate) fn null_request(version: Version) -> [u8; NULL_LENGTH] {
    let mut bytes = [0; NULL_LENGTH];
    let mut to = &mut bytes[..];
    to.put_u16(NULL_IDENTIFIER);
    to.put_u16(version.number());
    to.put_u8(1);
    bytes
}

impl Activation {
    /// As bytes, without a checksum.
    pub(crate) fn encode(&self, version: Version) -> Vec<u8> {
        let p = &self.parameters;
        let (row, row_is_start) = match p.start {
            StartRow::Lowest => (NO_ROW, 0),
            StartRow::At(row) => (row, ROW_IS_START),
            StartRow::Fixed(row) => (row, 0),
        };
        let mut to = Vec::with_capacity(ACTIVATION_LENGTH);
        to.put_u16(ACTIVATION_IDENTIFIER);
        to.put_u16(version.number());
        to.put_u8(match self.direction {
            Direction::Up => 1,
            Direction::Down => 2,
        });
        to.put_u8(self.answer.map_or(0, ActivationAnswer::number));
        to.put_u16(p.low_ms);
        to.put_u16(p.upper_ms);
        to.put_u16(p.feedback_ms);
        to.put_u16(p.duration_s);
        let legacy = version.is_legacy();
        to.put_u8(if legacy {
            whole_seconds(p.sub_interval_ms)
        } else {
            0
        });
        to.put_u8(p.dscp_ecn);
        to.put_u16(row);
        to.put_u8(p.one_way.into());
        to.put_u8(p.high_speed_delta);
        to.put_u16(p.slow_threshold);
        to.put_u16(p.sequence_errors);
        to.put_u8(p.ignore_reordering.into());
        let random_payload = if p.random_payload { RANDOM_PAYLOAD } else { 0 };
        to.put_u8(row_is_start | random_payload);
        to.put_u8(p.algorithm);
        to.put_u8(if legacy { 0 } else { p.ecn_threshold });
        self.rate.put(&mut to);
        if legacy {
            to.put_bytes(0, LEGACY_ACTIVATION_LENGTH - to.len());
        } else {
            to.put_u16(p.sub_interval_ms);
            to.put_u16(0);
            to.put_u16(p.suppressed);
            to.put_bytes(0, 2 + AUTHENTICATION + 2);
        }
        to
    }

    /// From a whole datagram of a test whose setup was in `version`.
    ///
    /// # Errors
    /// It is no activation of that version.
    pub(crate) fn decode(datagram: &[u8], version: Version) -> Result<Self, Malformed> {
        let legacy = version.is_legacy();
        let length = if legacy {
            LEGACY_ACTIVATION_LENGTH
        } else {
            ACTIVATION_LENGTH
        };
        check(
            datagram,
            ACTIVATION,
            length,
            ACTIVATION_IDENTIFIER,
            length - 2,
        )?;
        let mut from = &datagram[4..];
        let direction = match from.get_u8() {
            1 => Direction::Up,
            2 => Direction::Down,
            came => {
                return Err(Malformed::Field {
                    message: ACTIVATION,
                    field: "cmdRequest",
                    came: came.into(),
                });
            }
        };
        let answer = ActivationAnswer::of(from.get_u8());
        let mut parameters = TestParameters::get(&mut from);
        let rate = SendingRate::get(&mut from);
        if legacy {
            parameters.ecn_threshold = 0;
        } else {
            parameters.sub_interval_ms = from.get_u16();
            from.advance(2);
            parameters.suppressed = from.get_u16();
        }
        Ok(Self {
            direction,
            answer,
            parameters,
            rate,
        })
    }
}

impl TestParameters {
    /// All but what stands behind the sending rate; the sub-interval as versions before 20 state it.
    fn get(from: &mut &[u8]) -> Self {
        let (low_ms, upper_ms) = (from.get_u16(), from.get_u16());
        let (feedback_ms, duration_s) = (from.get_u16(), from.get_u16());
        let (sub_interval_s, dscp_ecn) = (from.get_u8(), from.get_u8());
        let row = from.get_u16();
        let (one_way, high_speed_delta) = (from.get_u8() != 0, from.get_u8());
        let (slow_threshold, sequence_errors) = (from.get_u16(), from.get_u16());
        let (ignore_reordering, modifiers) = (from.get_u8() != 0, from.get_u8());
        Self {
            low_ms,
            upper_ms,
            feedback_ms,
            duration_s,
            dscp_ecn,
            start: match row {
                NO_ROW => StartRow::Lowest,
                row if modifiers & ROW_IS_START != 0 => StartRow::At(row),
                row => StartRow::Fixed(row),
            },
            one_way,
            high_speed_delta,
            slow_threshold,
            sequence_errors,
            ignore_reordering,
            random_payload: modifiers & RANDOM_PAYLOAD != 0,
            algorithm: from.get_u8(),
            ecn_threshold: from.get_u8(),
            sub_interval_ms: u16::from(sub_interval_s).saturating_mul(1000),
            suppressed: 0,
        }
    }
}

/// Versions before 20 count sub-intervals in seconds; less than one is one.
fn whole_seconds(ms: u16) -> u8 {
    u8::try_from(ms.div_ceil(1000)).unwrap_or(u8::MAX)
}

impl SetupAnswer {
    const NUMBERED: [(u8, Self); 13] = [
        (1, Self::Accepted),
        (2, Self::BadVersion),
        (3, Self::BadJumbo),
        (4, Self::NoAuthentication),
        (5, Self::AuthenticationRequired),
        (6, Self::AuthenticationMode),
        (7, Self::AuthenticationFailed),
        (8, Self::AuthenticationTime),
        (9, Self::BandwidthRequired),
        (10, Self::CapacityExceeded),
        (11, Self::BadTraditional),
        (12, Self::BadConnections),
        (13, Self::NoSocket),
    ];

    fn of(number: u8) -> Self {
        let known = Self::NUMBERED.iter().find(|(n, _)| *n == number);
        known.map_or(Self::Unknown(number), |(_, answer)| *answer)
    }

    fn number(self) -> u8 {
        match self {
            Self::Unknown(number) => number,
            known => Self::NUMBERED
                .iter()
                .find_map(|(n, answer)| (*answer == known).then_some(*n))
                .unwrap_or_default(),
        }
    }
}

impl fmt::Display for SetupAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepts",
            Self::BadVersion => "does not speak this protocol version",
            Self::BadJumbo => "wants the other setting of jumbo datagrams",
            Self::NoAuthentication => "has no key to authenticate with",
            Self::AuthenticationRequired => {
                "asks for authentication, which farwire does not speak: it needs a server without a key"
            }
            Self::AuthenticationMode => "asks for another mode of authentication",
            Self::AuthenticationFailed => "could not authenticate the request",
            Self::AuthenticationTime => "finds the request's time too far from its own",
            Self::BandwidthRequired => {
                "wants to be told the bandwidth needed, which farwire does not know beforehand"
            }
            Self::CapacityExceeded => "has no capacity left for another test: try again later",
            Self::BadTraditional => "wants the other setting of traditional (1500 byte) datagrams",
            Self::BadConnections => "finds the connections' numbers wrong",
            Self::NoSocket => "could not open a socket for the test",
            Self::Unknown(number) => {
                return write!(f, "answers with {number}, which has no meaning");
            }
        })
    }
}

impl ActivationAnswer {
    fn of(number: u8) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Accepted),
            2 => Some(Self::BadParameter),
            number => Some(Self::Unknown(number)),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Accepted => 1,
            Self::BadParameter => 2,
            Self::Unknown(number) => number,
        }
    }
}

impl fmt::Display for ActivationAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepts"),
            Self::BadParameter => f.write_str("does not accept the test's parameters"),
            Self::Unknown(number) => write!(f, "answers with {number}, which has no meaning"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Setup {
        Setup {
            version: 20,
            connection: 0,
            connections: 1,
            ident: 77,
            answer: None,
            port: 0,
            sizes: Sizes {
                jumbo: true,
                traditional: false,
            },
            authentication: 0,
        }
    }

    fn activation() -> Activation {
        Activation {
            direction: Direction::Down,
            answer: Some(ActivationAnswer::Accepted),
            parameters: TestParameters {
                low_ms: 30,
                upper_ms: 90,
                feedback_ms: 50,
                duration_s: 10,
                dscp_ecn: 0,
                start: StartRow::At(300),
                one_way: true,
                high_speed_delta: 10,
                slow_threshold: 3,
                sequence_errors: 10,
                ignore_reordering: true,
                random_payload: true,
                algorithm: 1,
                ecn_threshold: 0,
                sub_interval_ms: 1000,
                suppressed: 0,
            },
            rate: SendingRate::default(),
        }
    }

    #[test]
    fn a_setup_survives_the_wire_with_every_answer() {
        for number in 0..=20 {
            let setup = Setup {
                answer: Some(SetupAnswer::of(number)),
                port: 50_000,
                ..request()
            };
            assert_eq!(setup.encode()[9], number);
            assert_eq!(Setup::decode(&setup.encode()), Ok(setup));
        }
        assert_eq!(Setup::decode(&request().encode()), Ok(request()));
    }

    #[test]
    fn an_activation_survives_the_wire_in_both_shapes() {
        for (version, length) in [(Version::NEWEST, 104), (Version::OLDEST, 60)] {
            let bytes = activation().encode(version);
            assert_eq!(bytes.len(), length);
            assert_eq!(Activation::decode(&bytes, version), Ok(activation()));
        }
    }

    #[test]
    fn a_row_is_a_start_or_fixed_or_absent() {
        for start in [StartRow::Lowest, StartRow::At(7), StartRow::Fixed(7)] {
            let mut sent = activation();
            sent.parameters.start = start;
            let came = Activation::decode(&sent.encode(Version::NEWEST), Version::NEWEST).unwrap();
            assert_eq!(came.parameters.start, start);
        }
    }

    #[test]
    fn a_refusal_is_in_words() {
        assert_eq!(
            SetupAnswer::of(10).to_string(),
            "has no capacity left for another test: try again later"
        );
        assert_eq!(
            SetupAnswer::of(99).to_string(),
            "answers with 99, which has no meaning"
        );
    }
}
