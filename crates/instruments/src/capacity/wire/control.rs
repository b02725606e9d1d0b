//! The messages before a test. Set-up negotiates the port of the test, and activation its parameters; each has a
//! request and an answer. In addition there is the null request.

use std::fmt;

use bytes::{Buf, BufMut};
use record::Direction;
use serde::{Deserialize, Serialize};

use super::{Format, MalformedMessage, SendingRate, Version};
use crate::codec::{Reserved, Wire, wire_order};

const SETUP: Format = Format {
    name: "setup message",
    identifier: 0xace1,
    length: 56,
    checksum_at: 54,
};
const ACTIVATION: Format = Format {
    name: "activation message",
    identifier: 0xace2,
    length: 104,
    checksum_at: 102,
};
const LEGACY_ACTIVATION: Format = Format {
    length: 60,
    checksum_at: 58,
    ..ACTIVATION
};
const NULL_IDENTIFIER: u16 = 0xdead;
const NULL_LENGTH: usize = 48;
const JUMBO: u8 = 0x01;
const TRADITIONAL: u8 = 0x02;
const ROW_IS_START: u8 = 0x01;
const RANDOM_PAYLOAD: u8 = 0x02;
const NO_ROW: u16 = u16::MAX;

/// A setup request, or the answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The received version, which farwire may not speak.
    pub(crate) version: u16,
    /// The number of this connection of the client, from 0.
    pub(crate) connection: u8,
    /// The number of connections that the client opens.
    pub(crate) connections: u8,
    /// The number that the client's connections have in common, which is never 0.
    pub(crate) ident: u16,
    /// The answer, or `None` in a request.
    pub(crate) answer: Option<SetupAnswer>,
    /// The bandwidth that the client needs, which is not stated.
    pub(crate) bandwidth: Reserved<2>,
    /// The UDP port of the test, in an answer.
    pub(crate) port: u16,
    /// The table of sending rates.
    pub(crate) sizes: Sizes,
    /// The mode of authentication; 0 means none.
    pub(crate) authentication: u8,
}

wire_order!(Setup: version, connection, connections, ident, answer, bandwidth, port, sizes, authentication);

/// A server's answer to a setup request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetupAnswer(u8);

/// The choice among four tables of sending rates. Both ends must use the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Above 1 Gbit/s, datagrams grow to an IP packet of 9,000 bytes.
    pub(crate) jumbo: bool,
    /// Up to 1 Gbit/s, an IP packet has up to 1,500 bytes instead of 1,250.
    pub(crate) traditional: bool,
}

/// An activation request, or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activation {
    /// The direction of the load: up from the client, or down to it.
    pub(crate) direction: Direction,
    /// The answer, or `None` in a request.
    pub(crate) answer: Option<ActivationAnswer>,
    /// The requested parameters, or in an answer those in effect.
    pub(crate) parameters: TestParameters,
    /// The first rate, in an answer to an upstream request.
    pub(crate) rate: SendingRate,
}

/// A server's answer to an activation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActivationAnswer(u8);

/// The parameters of a test, as received. Marks (DSCP, ECN) and suppressed sub-intervals are always 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestParameters {
    /// The thresholds for clean and congested feedback, and the steps of the rate.
    pub(crate) thresholds: Thresholds,
    /// The search algorithm.
    pub(crate) algorithm: Algorithm,
    /// The time between two feedback messages in milliseconds.
    pub(crate) feedback_ms: u16,
    /// The duration of the test in seconds.
    pub(crate) duration_s: u16,
    /// The length of a sub-interval in milliseconds.
    pub(crate) sub_interval_ms: u16,
    /// The row of the sending rate to begin with, or to stay at.
    pub(crate) start: StartRow,
    /// Feedback is judged by the variation of the one-way delay instead of the round-trip time.
    pub(crate) one_way: bool,
    /// Only loss counts as a sequence error.
    pub(crate) ignore_reordering: bool,
    /// The payload is to be random.
    pub(crate) random_payload: bool,
}

/// The search algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Algorithm {
    /// RFC 9097: ten steps per clean feedback until the first congestion, then one
    #[default]
    #[value(name = "B", alias = "b")]
    B,
    /// TR-471 "multiply and retry": doubles the rate on every second clean feedback, and retries after a while
    #[value(name = "C", alias = "c")]
    C,
}

/// The thresholds for clean and congested feedback, and the size of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// The most sequence errors in a feedback that is not congested.
    pub(crate) sequence_errors: u16,
    /// The delay variation in milliseconds below which feedback is clean.
    pub(crate) low_ms: u16,
    /// The delay variation in milliseconds above which feedback is congested.
    pub(crate) upper_ms: u16,
    /// The number of congested feedbacks at which the rate takes the fast step back. Fast steps end with it.
    pub(crate) slow: u16,
    /// The rows of a fast step.
    pub(crate) high_speed_delta: u8,
}

/// The start of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRow {
    /// The first row of the table.
    Lowest,
    /// This row.
    At(u16),
    /// This row, without a search.
    Fixed(u16),
}

impl Setup {
    /// Encodes the message without a checksum. Only an answer contains a port.
    pub(crate) fn encode(&self) -> [u8; SETUP.length] {
        let mut bytes = [0; SETUP.length];
        let mut to = &mut bytes[..];
        to.put_u16(SETUP.identifier);
        self.put(&mut to);
        bytes
    }

    /// Decodes a whole datagram.
    ///
    /// # Errors
    /// Returns an error if it is not a setup message.
    pub(crate) fn decode(datagram: &[u8]) -> Result<Self, MalformedMessage> {
        let mut fields = SETUP.check(datagram)?;
        SETUP.either("cmdRequest", fields[6])?;
        Ok(Self::get(&mut fields))
    }
}

/// Returns the null request, which opens firewalls on its way to the client and has no other meaning.
pub(crate) fn null_request(version: Version) -> [u8; NULL_LENGTH] {
    let mut bytes = [0; NULL_LENGTH];
    let mut to = &mut bytes[..];
    to.put_u16(NULL_IDENTIFIER);
    to.put_u16(version.number());
    to.put_u8(1);
    bytes
}

/// Returns whether a datagram is a null request, of whatever version.
pub(crate) fn is_null_request(datagram: &[u8]) -> bool {
    datagram.starts_with(&NULL_IDENTIFIER.to_be_bytes())
}

impl SetupAnswer {
    /// The client may continue with the activation.
    pub(crate) const ACCEPTED: Self = Self(1);
    /// The server does not speak the version. The answer contains one that it speaks.
    pub(crate) const BAD_VERSION: Self = Self(2);
    /// The server requires the other setting of jumbo sizes.
    pub(crate) const BAD_JUMBO: Self = Self(3);
    /// The client offered authentication, but the server has no key.
    pub(crate) const NO_AUTHENTICATION: Self = Self(4);
    /// The server has no capacity for another test.
    pub(crate) const CAPACITY_EXCEEDED: Self = Self(10);
    /// The server requires the other setting of traditional sizes.
    pub(crate) const BAD_TRADITIONAL: Self = Self(11);
    /// The numbers of the connections are wrong.
    pub(crate) const BAD_CONNECTIONS: Self = Self(12);
    /// The server could not open a socket.
    pub(crate) const NO_SOCKET: Self = Self(13);
}

impl fmt::Display for SetupAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "accepts",
            2 => "does not speak this protocol version",
            3 => "requires the other setting of jumbo datagrams",
            4 => "has no key for authentication",
            5 => {
                "requires authentication, which farwire does not support: use a server without a key"
            }
            6 => "requires another mode of authentication",
            7 => "could not authenticate the request",
            8 => "refuses the request because its time differs too much from the server's",
            9 => "requires the bandwidth in advance, which farwire does not know",
            10 => "has no capacity left for another test: try again later",
            11 => "requires the other setting of traditional (1500 byte) datagrams",
            12 => "refuses the numbers of the connections",
            13 => "could not open a socket for the test",
            number => return write!(f, "answers with {number}, which has no meaning"),
        })
    }
}

/// Two bytes: whether the message is a request or an answer, and the answer.
impl Wire for Option<SetupAnswer> {
    fn put(&self, to: &mut impl BufMut) {
        to.put_u8(if self.is_some() { 2 } else { 1 });
        to.put_u8(self.map_or(0, |answer| answer.0));
    }

    fn get(from: &mut impl Buf) -> Self {
        let (request, answer) = (from.get_u8(), from.get_u8());
        (request == 2).then_some(SetupAnswer(answer))
    }
}

impl Wire for Sizes {
    fn put(&self, to: &mut impl BufMut) {
        to.put_u8((u8::from(self.jumbo) * JUMBO) | (u8::from(self.traditional) * TRADITIONAL));
    }

    fn get(from: &mut impl Buf) -> Self {
        let modifiers = from.get_u8();
        Self {
            jumbo: modifiers & JUMBO != 0,
            traditional: modifiers & TRADITIONAL != 0,
        }
    }
}

impl Activation {
    /// Encodes the message without a checksum.
    pub(crate) fn encode(&self, version: Version) -> Vec<u8> {
        let format = Self::format(version);
        let mut to = Vec::with_capacity(format.length);
        to.put_u16(format.identifier);
        to.put_u16(version.number());
        to.put_u8(match self.direction {
            Direction::Up => 1,
            Direction::Down => 2,
        });
        to.put_u8(self.answer.map_or(0, |answer| answer.0));
        self.parameters.put(&mut to, version);
        self.rate.put(&mut to);
        if !version.is_legacy() {
            to.put_u16(self.parameters.sub_interval_ms);
        }
        to.resize(format.length, 0);
        to
    }

    /// Decodes a whole datagram of a test whose setup was in `version`.
    ///
    /// # Errors
    /// Returns an error if it is not an activation of that version.
    pub(crate) fn decode(datagram: &[u8], version: Version) -> Result<Self, MalformedMessage> {
        let format = Self::format(version);
        let mut from = &format.check(datagram)?[2..];
        let direction = from.get_u8();
        format.either("cmdRequest", direction)?;
        let answer = match from.get_u8() {
            0 => None,
            number => Some(ActivationAnswer(number)),
        };
        let mut parameters = TestParameters::get(&mut from);
        let rate = SendingRate::get(&mut from);
        if !version.is_legacy() {
            parameters.sub_interval_ms = from.get_u16();
        }
        Ok(Self {
            direction: match direction {
                1 => Direction::Up,
                _ => Direction::Down,
            },
            answer,
            parameters,
            rate,
        })
    }

    fn format(version: Version) -> &'static Format {
        if version.is_legacy() {
            &LEGACY_ACTIVATION
        } else {
            &ACTIVATION
        }
    }
}

impl Format {
    /// Returns an error for a field that is neither 1 nor 2.
    fn either(&self, field: &'static str, value: u8) -> Result<(), MalformedMessage> {
        if value == 0 {
            return Err(MalformedMessage::Field(self.name, field, value));
        }
        self.at_most(field, value, 2)
    }
}

impl TestParameters {
    /// Writes the fields before the sending rate.
    fn put(&self, to: &mut Vec<u8>, version: Version) {
        let thresholds = &self.thresholds;
        let (row, row_is_start) = match self.start {
            StartRow::Lowest => (NO_ROW, false),
            StartRow::At(row) => (row, true),
            StartRow::Fixed(row) => (row, false),
        };
        to.put_u16(thresholds.low_ms);
        to.put_u16(thresholds.upper_ms);
        to.put_u16(self.feedback_ms);
        to.put_u16(self.duration_s);
        // Versions before 20 count sub-intervals in seconds, at least one.
        let sub_interval_s = u8::try_from(self.sub_interval_ms.div_ceil(1000)).unwrap_or(u8::MAX);
        to.put_u8(u8::from(version.is_legacy()) * sub_interval_s);
        to.put_u8(0);
        to.put_u16(row);
        to.put_u8(self.one_way.into());
        to.put_u8(thresholds.high_speed_delta);
        to.put_u16(thresholds.slow);
        to.put_u16(thresholds.sequence_errors);
        to.put_u8(self.ignore_reordering.into());
        let random_payload = u8::from(self.random_payload) * RANDOM_PAYLOAD;
        to.put_u8((u8::from(row_is_start) * ROW_IS_START) | random_payload);
        to.put_u8(self.algorithm as u8);
        to.put_u8(0);
    }

    /// Reads the fields before the sending rate, with the sub-interval as versions before 20 state it.
    fn get(from: &mut &[u8]) -> Self {
        let (low_ms, upper_ms) = (from.get_u16(), from.get_u16());
        let (feedback_ms, duration_s) = (from.get_u16(), from.get_u16());
        let sub_interval_s = from.get_u16().to_be_bytes()[0];
        let (row, one_way, high_speed_delta) = (from.get_u16(), bool::get(from), from.get_u8());
        let (slow, sequence_errors) = (from.get_u16(), from.get_u16());
        let (ignore_reordering, modifiers) = (bool::get(from), from.get_u8());
        let algorithm = from.get_u16().to_be_bytes()[0];
        Self {
            thresholds: Thresholds {
                sequence_errors,
                low_ms,
                upper_ms,
                slow,
                high_speed_delta,
            },
            algorithm: match algorithm {
                0 => Algorithm::B,
                _ => Algorithm::C,
            },
            feedback_ms,
            duration_s,
            sub_interval_ms: u16::from(sub_interval_s).saturating_mul(1000),
            start: match row {
                NO_ROW => StartRow::Lowest,
                row if modifiers & ROW_IS_START != 0 => StartRow::At(row),
                row => StartRow::Fixed(row),
            },
            one_way,
            ignore_reordering,
            random_payload: modifiers & RANDOM_PAYLOAD != 0,
        }
    }
}

impl Default for Thresholds {
    /// Returns the thresholds of RFC 9097.
    fn default() -> Self {
        Self {
            sequence_errors: 10,
            low_ms: 30,
            upper_ms: 90,
            slow: 3,
            high_speed_delta: 10,
        }
    }
}

impl ActivationAnswer {
    /// The test runs.
    pub(crate) const ACCEPTED: Self = Self(1);
    /// A parameter is not acceptable.
    pub(crate) const BAD_PARAMETER: Self = Self(2);
}

impl fmt::Display for ActivationAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("accepts"),
            2 => f.write_str("does not accept the test's parameters"),
            number => write!(f, "answers with {number}, which has no meaning"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_round_trips_with_every_answer() {
        let request = Setup {
            version: 20,
            connections: 1,
            ident: 77,
            sizes: Sizes {
                jumbo: true,
                traditional: false,
            },
            ..Setup::default()
        };
        for number in 0..=20 {
            let setup = Setup {
                answer: Some(SetupAnswer(number)),
                port: 50_000,
                ..request
            };
            assert_eq!(setup.encode()[9], number);
            assert_eq!(Setup::decode(&setup.encode()), Ok(setup));
        }
        assert_eq!(Setup::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn a_refusal_has_a_text() {
        assert_eq!(
            SetupAnswer(10).to_string(),
            "has no capacity left for another test: try again later"
        );
        assert_eq!(
            SetupAnswer(99).to_string(),
            "answers with 99, which has no meaning"
        );
    }

    fn activation() -> Activation {
        Activation {
            direction: Direction::Down,
            answer: Some(ActivationAnswer::ACCEPTED),
            parameters: TestParameters {
                thresholds: Thresholds::default(),
                algorithm: Algorithm::C,
                feedback_ms: 50,
                duration_s: 10,
                sub_interval_ms: 1000,
                start: StartRow::At(300),
                one_way: true,
                ignore_reordering: true,
                random_payload: true,
            },
            rate: SendingRate::default(),
        }
    }

    #[test]
    fn an_activation_round_trips_in_both_formats() {
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
            let value = Activation::decode(&sent.encode(Version::NEWEST), Version::NEWEST).unwrap();
            assert_eq!(value.parameters.start, start);
        }
    }
}
