//! The messages of a running test: the load, and the feedback on it.

use bytes::{Buf, BufMut};

use super::{Format, MalformedMessage, SendingRate, Stamp, Version};
use crate::codec::{Reserved, Wire, wire_order};

const LOAD: Format = Format {
    name: "load PDU",
    identifier: 0xbeef,
    length: LOAD_HEADER,
    checksum_at: LOAD_HEADER - 2,
};
const STATUS: Format = Format {
    name: "status feedback",
    identifier: 0xfeed,
    length: 204,
    checksum_at: 202,
};
const LEGACY_STATUS: Format = Format {
    length: 168,
    checksum_at: 146,
    ..STATUS
};
/// The places where versions before 20 have four bytes of padding that newer versions do not have.
const LEGACY_PADDING_AT: [usize; 2] = [44, 100];

/// The bytes of a load PDU before its filling.
pub(crate) const LOAD_HEADER: usize = 32;
/// The value of a delay in milliseconds that was not measured.
pub(crate) const NO_DELAY: u32 = u32::MAX;

/// The state of the test in each load and feedback message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TestAction {
    /// The test continues.
    #[default]
    Testing,
    /// The test is over. The server announces it, and the client confirms it.
    Stop,
}

/// The header of a load PDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadHeader {
    /// Whether the test continues.
    pub(crate) action: TestAction,
    /// The sender has received no feedback for a second.
    pub(crate) feedback_stopped: bool,
    /// The number of the load PDU, from 1.
    pub(crate) sequence: u32,
    /// The UDP payload of this datagram in bytes.
    pub(crate) payload: u16,
    /// The number of feedback messages missed before the last one, or 65,535 if they arrived out of order.
    pub(crate) feedback_missed: u16,
    /// The sending time in the last feedback received, which is unset before the first.
    pub(crate) feedback_stamp: Stamp,
    /// The time when this PDU was sent, by the sender's wall clock.
    pub(crate) sent: Stamp,
    /// The time from receiving that feedback to sending this PDU, in milliseconds.
    pub(crate) response_delay_ms: u16,
}

wire_order!(LoadHeader: action, feedback_stopped, sequence, payload, feedback_missed, feedback_stamp, sent,
    response_delay_ms);

/// Counts by the order of arrival, of a trial interval or of a sub-interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrivalCounts {
    /// Sequence numbers that were skipped.
    pub(crate) lost: u32,
    /// Datagrams that arrived after a later one.
    pub(crate) reordered: u32,
    /// Datagrams that arrived before.
    pub(crate) duplicated: u32,
}

wire_order!(ArrivalCounts: lost, reordered, duplicated);

/// One-way delays above the least one so far, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelayVariation {
    /// The least delay, or [`NO_DELAY`] if there is none.
    pub(crate) min_ms: u32,
    /// The greatest delay.
    pub(crate) max_ms: u32,
    /// The sum of the delays.
    pub(crate) sum_ms: u32,
    /// The number of delays in the sum.
    pub(crate) count: u32,
}

wire_order!(DelayVariation: min_ms, max_ms, sum_ms, count);

/// The counts of one sub-interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubInterval {
    /// Datagrams received.
    pub(crate) datagrams: u32,
    /// Their UDP payload in bytes.
    pub(crate) bytes: u64,
    /// The time in which they arrived, in microseconds.
    pub(crate) span_us: u32,
    /// The loss, reordering and duplication.
    pub(crate) counts: ArrivalCounts,
    /// The one-way delays.
    pub(crate) delays: DelayVariation,
    /// The least round-trip time above the least one so far, in milliseconds, or [`NO_DELAY`] if there is none.
    pub(crate) rtt_min_ms: u32,
    /// The greatest round-trip time above the least one so far, in milliseconds.
    pub(crate) rtt_max_ms: u32,
    /// The time from the start of the first sub-interval to the end of this one, in milliseconds.
    pub(crate) elapsed_ms: u32,
}

wire_order!(SubInterval: datagrams, bytes, span_us, counts, delays, rtt_min_ms, rtt_max_ms, elapsed_ms);

/// A feedback message of the load's receiver on the last trial interval and the last complete sub-interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedbackMessage {
    /// Whether the test continues.
    pub(crate) action: TestAction,
    /// No load has arrived for a second.
    pub(crate) load_stopped: bool,
    /// The number of the feedback message, from 1.
    pub(crate) sequence: u32,
    /// The rate to send at from now on, which only a server states.
    pub(crate) rate: SendingRate,
    /// The number of the sub-interval, from 1; 0 before the first is complete.
    pub(crate) sub_interval_number: u32,
    /// The last complete sub-interval.
    pub(crate) sub_interval: SubInterval,
    /// The loss, reordering and duplication in this trial interval.
    pub(crate) counts: ArrivalCounts,
    /// The least clock difference so far, receiver minus sender, in milliseconds, including the delay.
    pub(crate) clock_delta_min_ms: i32,
    /// The one-way delays in this trial interval.
    pub(crate) delays: DelayVariation,
    /// The least round-trip time so far in milliseconds, or [`NO_DELAY`] if there is none.
    pub(crate) rtt_min_ms: u32,
    /// The last round-trip time above the least one in milliseconds, or [`NO_DELAY`] if this trial interval has none.
    pub(crate) rtt_variation_ms: u32,
    /// A minimum decreased in this trial interval.
    pub(crate) minimum_updated: bool,
    /// Reserved bytes.
    pub(crate) reserved: Reserved<3>,
    /// The length of the trial interval in microseconds.
    pub(crate) trial_us: u32,
    /// Datagrams received in it.
    pub(crate) trial_datagrams: u32,
    /// Their UDP payload in bytes.
    pub(crate) trial_bytes: u32,
    /// The time when this message was sent, by its sender's wall clock.
    pub(crate) sent: Stamp,
}

wire_order!(FeedbackMessage: action, load_stopped, sequence, rate, sub_interval_number, sub_interval, counts,
    clock_delta_min_ms, delays, rtt_min_ms, rtt_variation_ms, minimum_updated, reserved, trial_us,
    trial_datagrams, trial_bytes, sent);

impl LoadHeader {
    /// Encodes the header without a checksum.
    pub(crate) fn encode(&self) -> [u8; LOAD_HEADER] {
        let mut bytes = [0; LOAD_HEADER];
        let mut to = &mut bytes[..];
        to.put_u16(LOAD.identifier);
        self.put(&mut to);
        bytes
    }

    /// Decodes the header of a datagram and ignores the filling.
    ///
    /// # Errors
    /// Returns an error if it is not a load PDU.
    pub(crate) fn decode(datagram: &[u8]) -> Result<Self, MalformedMessage> {
        LOAD.decode(&datagram[..datagram.len().min(LOAD_HEADER)])
    }
}

impl FeedbackMessage {
    /// Returns the length of the message in this version, in bytes.
    pub(crate) fn length(version: Version) -> usize {
        if version.is_legacy() {
            LEGACY_STATUS.length
        } else {
            STATUS.length
        }
    }

    /// Encodes the message without a checksum.
    pub(crate) fn encode(&self, version: Version) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATUS.length);
        bytes.put_u16(STATUS.identifier);
        self.put(&mut bytes);
        if version.is_legacy() {
            for at in LEGACY_PADDING_AT {
                bytes.splice(at..at, [0; 4]);
            }
        } else {
            // The rest is for congestion marks and authentication, which are not used.
            bytes.resize(STATUS.length, 0);
        }
        bytes
    }

    /// Decodes a whole datagram.
    ///
    /// # Errors
    /// Returns an error if it is not feedback of this version.
    pub(crate) fn decode(datagram: &[u8], version: Version) -> Result<Self, MalformedMessage> {
        if !version.is_legacy() {
            return STATUS.decode(datagram);
        }
        LEGACY_STATUS.check(datagram)?;
        let [first, second] = LEGACY_PADDING_AT;
        let parts = [
            &datagram[..first],
            &datagram[first + 4..second],
            &datagram[second + 4..],
        ];
        STATUS.fields(&parts.concat()[2..])
    }

    /// Returns the last round-trip time of the trial interval in milliseconds, or `None` if there is none.
    pub(crate) fn rtt_ms(&self) -> Option<u32> {
        let known = self.rtt_variation_ms != NO_DELAY && self.rtt_min_ms != NO_DELAY;
        known.then(|| self.rtt_min_ms.saturating_add(self.rtt_variation_ms))
    }
}

impl Format {
    fn decode<T: Wire>(&self, message: &[u8]) -> Result<T, MalformedMessage> {
        self.fields(self.check(message)?)
    }

    /// Reads the fields after the identifier. Load and feedback begin with the same two.
    fn fields<T: Wire>(&self, mut fields: &[u8]) -> Result<T, MalformedMessage> {
        self.at_most("testAction", fields[0], 2)?;
        self.at_most("rxStopped", fields[1], 1)?;
        Ok(T::get(&mut fields))
    }
}

impl Wire for TestAction {
    fn put(&self, to: &mut impl BufMut) {
        to.put_u8(match self {
            Self::Testing => 0,
            // A server uses 1 internally; messages contain 2.
            Self::Stop => 2,
        });
    }

    fn get(from: &mut impl Buf) -> Self {
        match from.get_u8() {
            0 => Self::Testing,
            _ => Self::Stop,
        }
    }
}

impl DelayVariation {
    /// Counts one more delay.
    pub(crate) fn add(&mut self, ms: u32) {
        self.min_ms = self.min_ms.min(ms);
        self.max_ms = self.max_ms.max(ms);
        self.sum_ms = self.sum_ms.saturating_add(ms);
        self.count = self.count.saturating_add(1);
    }

    /// Returns the mean delay rounded to milliseconds, or `None` without a delay.
    pub(crate) fn mean_ms(&self) -> Option<u32> {
        let (sum, count) = (u64::from(self.sum_ms), u64::from(self.count));
        (count > 0).then(|| u32::try_from((sum * 2 + count) / (count * 2)).unwrap_or(u32::MAX))
    }
}

impl Default for DelayVariation {
    fn default() -> Self {
        Self {
            min_ms: NO_DELAY,
            max_ms: 0,
            sum_ms: 0,
            count: 0,
        }
    }
}

impl Default for SubInterval {
    fn default() -> Self {
        Self {
            datagrams: 0,
            bytes: 0,
            span_us: 0,
            counts: ArrivalCounts::default(),
            delays: DelayVariation::default(),
            rtt_min_ms: NO_DELAY,
            rtt_max_ms: 0,
            elapsed_ms: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Transmitter;
    use super::*;

    fn some() -> FeedbackMessage {
        FeedbackMessage {
            action: TestAction::Stop,
            load_stopped: true,
            sequence: 9,
            rate: SendingRate {
                first: Transmitter {
                    interval_us: 100,
                    payload: 1222,
                    burst: 2,
                    addon: 0,
                },
                second: Transmitter {
                    interval_us: 1000,
                    payload: 1222,
                    burst: 3,
                    addon: 97,
                },
            },
            sub_interval_number: 4,
            sub_interval: SubInterval {
                datagrams: 5,
                bytes: 1 << 40,
                elapsed_ms: 6,
                ..SubInterval::default()
            },
            counts: ArrivalCounts {
                lost: 1,
                ..ArrivalCounts::default()
            },
            clock_delta_min_ms: -3,
            rtt_variation_ms: NO_DELAY,
            minimum_updated: true,
            trial_us: 50_001,
            trial_bytes: 77,
            sent: Stamp::of(8_000_000_009),
            ..FeedbackMessage::default()
        }
    }

    #[test]
    fn feedback_round_trips_in_both_formats() {
        for (version, length) in [(Version::NEWEST, 204), (Version::OLDEST, 168)] {
            let bytes = some().encode(version);
            assert_eq!(bytes.len(), length);
            assert_eq!(FeedbackMessage::decode(&bytes, version), Ok(some()));
        }
    }

    #[test]
    fn feedback_of_another_version_is_refused_by_its_length() {
        let bytes = some().encode(Version::OLDEST);
        assert_eq!(
            FeedbackMessage::decode(&bytes, Version::NEWEST)
                .unwrap_err()
                .to_string(),
            "status feedback of 168 bytes instead of 204"
        );
    }

    #[test]
    fn a_mean_delay_is_rounded_and_absent_without_datagrams() {
        let mean = |sum, count| {
            DelayVariation {
                sum_ms: sum,
                count,
                ..DelayVariation::default()
            }
            .mean_ms()
        };
        assert_eq!(mean(0, 0), None);
        assert_eq!(mean(7, 2), Some(4));
        assert_eq!(mean(u32::MAX, 1), Some(u32::MAX));
    }

    #[test]
    fn a_load_header_round_trips_with_filling() {
        let header = LoadHeader {
            action: TestAction::Stop,
            feedback_stopped: true,
            sequence: 0xdead_beef,
            payload: 1222,
            feedback_missed: u16::MAX,
            feedback_stamp: Stamp::of(5_000_000_001),
            sent: Stamp::of(6_000_000_002),
            response_delay_ms: 7,
        };
        let mut datagram = header.encode().to_vec();
        assert_eq!(datagram[..4], [0xbe, 0xef, 2, 1]);
        datagram.resize(1222, 0xa5);
        assert_eq!(LoadHeader::decode(&datagram), Ok(header));
    }

    #[test]
    fn a_truncated_load_header_states_the_right_length() {
        let error = LoadHeader::decode(&LoadHeader::default().encode()[..31]).unwrap_err();
        assert_eq!(error.to_string(), "load PDU of 31 bytes instead of 32");
    }
}
