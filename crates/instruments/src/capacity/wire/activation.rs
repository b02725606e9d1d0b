//! The activation: how the test is to be done, and the answer that says what takes effect.

use std::fmt;

use bytes::{Buf, BufMut};

use super::{Malformed, SendingRate, Version, check};
use record::Direction;

const NAME: &str = "activation message";
const IDENTIFIER: u16 = 0xace2;
const LENGTH: usize = 104;
const LEGACY_LENGTH: usize = 60;
const ROW_IS_START: u8 = 0x01;
const RANDOM_PAYLOAD: u8 = 0x02;
const NO_ROW: u16 = u16::MAX;
/// Authentication's time, digest and key, which are 0 in unauthenticated mode.
const AUTHENTICATION: usize = 4 + 32 + 1 + 1;

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

impl Activation {
    /// As bytes, without a checksum.
    pub(crate) fn encode(&self, version: Version) -> Vec<u8> {
        let p = &self.parameters;
        let (row, row_is_start) = match p.start {
            StartRow::Lowest => (NO_ROW, 0),
            StartRow::At(row) => (row, ROW_IS_START),
            StartRow::Fixed(row) => (row, 0),
        };
        let mut to = Vec::with_capacity(LENGTH);
        to.put_u16(IDENTIFIER);
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
            to.put_bytes(0, LEGACY_LENGTH - to.len());
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
        let length = if legacy { LEGACY_LENGTH } else { LENGTH };
        check(datagram, NAME, length, IDENTIFIER, length - 2)?;
        let mut from = &datagram[4..];
        let direction = match from.get_u8() {
            1 => Direction::Up,
            2 => Direction::Down,
            came => {
                return Err(Malformed::Field {
                    message: NAME,
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
}
