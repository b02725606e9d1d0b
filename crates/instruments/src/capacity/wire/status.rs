//! The feedback: what the load's receiver saw in the last trial interval and in the last whole sub-interval.

use bytes::{Buf, BufMut};

use super::{Action, Malformed, SendingRate, Stamp, Version, check, flag};

const NAME: &str = "status feedback";
const IDENTIFIER: u16 = 0xfeed;
const LENGTH: usize = 204;
const CHECKSUM_AT: usize = 202;
const LEGACY_LENGTH: usize = 168;
const LEGACY_CHECKSUM_AT: usize = 146;
/// Padding of the compilers that shaped the versions before 20.
const LEGACY_PADDING: [u8; 4] = [0; 4];
/// Unused in unauthenticated mode: authentication and congestion marks.
const TRAILER: usize = 44;

/// Where a field has no value in milliseconds.
pub(crate) const NO_DELAY: u32 = u32::MAX;

/// What was received in one sub-interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubInterval {
    /// Datagrams received.
    pub(crate) datagrams: u32,
    /// Their UDP payload bytes.
    pub(crate) bytes: u64,
    /// The time in which they came, in microseconds.
    pub(crate) span_us: u32,
    /// Sequence numbers passed over.
    pub(crate) lost: u32,
    /// Datagrams behind a later one.
    pub(crate) reordered: u32,
    /// Datagrams received before.
    pub(crate) duplicated: u32,
    /// One-way delay above its least one so far, in milliseconds; [`NO_DELAY`] without any.
    pub(crate) delay_min_ms: u32,
    /// The greatest of it.
    pub(crate) delay_max_ms: u32,
    /// Their sum.
    pub(crate) delay_sum_ms: u32,
    /// How many the sum is of.
    pub(crate) delay_count: u32,
    /// Round-trip time above its least one so far, in milliseconds; [`NO_DELAY`] without any.
    pub(crate) rtt_min_ms: u32,
    /// The greatest of it.
    pub(crate) rtt_max_ms: u32,
    /// From the start of the first sub-interval to the end of this one, in milliseconds.
    pub(crate) elapsed_ms: u32,
}

/// One feedback message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Whether the test goes on.
    pub(crate) action: Action,
    /// No load has come for a second.
    pub(crate) load_stopped: bool,
    /// Counts feedback messages from 1.
    pub(crate) sequence: u32,
    /// At what rate to send from now on; only a server says so.
    pub(crate) rate: SendingRate,
    /// Counts sub-intervals from 1; 0 before the first is over.
    pub(crate) sub_interval_number: u32,
    /// The last whole sub-interval.
    pub(crate) sub_interval: SubInterval,
    /// Sequence numbers passed over in this trial interval.
    pub(crate) lost: u32,
    /// Datagrams behind a later one.
    pub(crate) reordered: u32,
    /// Datagrams received before.
    pub(crate) duplicated: u32,
    /// The least difference of the clocks so far, receiver less sender, in milliseconds, delay included.
    pub(crate) clock_delta_min_ms: i32,
    /// One-way delay above its least one, in milliseconds; [`NO_DELAY`] without any.
    pub(crate) delay_min_ms: u32,
    /// The greatest of it.
    pub(crate) delay_max_ms: u32,
    /// Their sum.
    pub(crate) delay_sum_ms: u32,
    /// How many the sum is of.
    pub(crate) delay_count: u32,
    /// The least round-trip time so far, in milliseconds; [`NO_DELAY`] without any.
    pub(crate) rtt_min_ms: u32,
    /// The last round-trip time above it; [`NO_DELAY`] without one in this trial interval.
    pub(crate) rtt_variation_ms: u32,
    /// A minimum went down in this trial interval.
    pub(crate) minimum_updated: bool,
    /// The trial interval's length, in microseconds.
    pub(crate) trial_us: u32,
    /// Datagrams received in it.
    pub(crate) trial_datagrams: u32,
    /// Their UDP payload bytes.
    pub(crate) trial_bytes: u32,
    /// When this message was sent, by its sender's wall clock.
    pub(crate) sent: Stamp,
}

impl Status {
    /// As bytes, without a checksum.
    pub(crate) fn encode(&self, version: Version) -> Vec<u8> {
        let mut to = Vec::with_capacity(LENGTH);
        to.put_u16(IDENTIFIER);
        to.put_u8(self.action.number());
        to.put_u8(self.load_stopped.into());
        to.put_u32(self.sequence);
        self.rate.put(&mut to);
        to.put_u32(self.sub_interval_number);
        self.sub_interval.put(&mut to, version);
        for number in [
            self.lost,
            self.reordered,
            self.duplicated,
            self.clock_delta_min_ms.cast_unsigned(),
            self.delay_min_ms,
            self.delay_max_ms,
            self.delay_sum_ms,
            self.delay_count,
            self.rtt_min_ms,
            self.rtt_variation_ms,
        ] {
            to.put_u32(number);
        }
        to.put_u8(self.minimum_updated.into());
        to.put_bytes(0, 3);
        to.put_u32(self.trial_us);
        to.put_u32(self.trial_datagrams);
        to.put_u32(self.trial_bytes);
        self.sent.put(&mut to);
        if !version.is_legacy() {
            to.put_bytes(0, TRAILER);
        }
        to
    }

    /// From a whole datagram.
    ///
    /// # Errors
    /// It is no feedback of this version.
    pub(crate) fn decode(datagram: &[u8], version: Version) -> Result<Self, Malformed> {
        let (length, checksum_at) = if version.is_legacy() {
            (LEGACY_LENGTH, LEGACY_CHECKSUM_AT)
        } else {
            (LENGTH, CHECKSUM_AT)
        };
        check(datagram, NAME, length, IDENTIFIER, checksum_at)?;
        let mut from = &datagram[2..];
        let status = Self {
            action: Action::of(from.get_u8(), NAME)?,
            load_stopped: flag(from.get_u8(), NAME, "rxStopped")?,
            sequence: from.get_u32(),
            rate: SendingRate::get(&mut from),
            sub_interval_number: from.get_u32(),
            sub_interval: SubInterval::get(&mut from, version),
            lost: from.get_u32(),
            reordered: from.get_u32(),
            duplicated: from.get_u32(),
            clock_delta_min_ms: from.get_i32(),
            delay_min_ms: from.get_u32(),
            delay_max_ms: from.get_u32(),
            delay_sum_ms: from.get_u32(),
            delay_count: from.get_u32(),
            rtt_min_ms: from.get_u32(),
            rtt_variation_ms: from.get_u32(),
            minimum_updated: from.get_u8() != 0,
            trial_us: {
                from.advance(3);
                from.get_u32()
            },
            trial_datagrams: from.get_u32(),
            trial_bytes: from.get_u32(),
            sent: Stamp::get(&mut from),
        };
        Ok(status)
    }

    /// The last round-trip time of the trial interval, in milliseconds; nothing without one.
    pub(crate) fn rtt_ms(&self) -> Option<u32> {
        let known = self.rtt_variation_ms != NO_DELAY && self.rtt_min_ms != NO_DELAY;
        known.then(|| self.rtt_min_ms.saturating_add(self.rtt_variation_ms))
    }

    /// The mean one-way delay above its least one, rounded to milliseconds; nothing without any.
    pub(crate) fn delay_mean_ms(&self) -> Option<u32> {
        let (sum, count) = (u64::from(self.delay_sum_ms), u64::from(self.delay_count));
        (count > 0).then(|| u32::try_from((sum * 2 + count) / (count * 2)).unwrap_or(u32::MAX))
    }
}

impl Default for SubInterval {
    fn default() -> Self {
        Self {
            datagrams: 0,
            bytes: 0,
            span_us: 0,
            lost: 0,
            reordered: 0,
            duplicated: 0,
            delay_min_ms: NO_DELAY,
            delay_max_ms: 0,
            delay_sum_ms: 0,
            delay_count: 0,
            rtt_min_ms: NO_DELAY,
            rtt_max_ms: 0,
            elapsed_ms: 0,
        }
    }
}

impl SubInterval {
    fn put(&self, to: &mut Vec<u8>, version: Version) {
        to.put_u32(self.datagrams);
        if version.is_legacy() {
            to.put_slice(&LEGACY_PADDING);
        }
        to.put_u64(self.bytes);
        for number in [
            self.span_us,
            self.lost,
            self.reordered,
            self.duplicated,
            self.delay_min_ms,
            self.delay_max_ms,
            self.delay_sum_ms,
            self.delay_count,
            self.rtt_min_ms,
            self.rtt_max_ms,
            self.elapsed_ms,
        ] {
            to.put_u32(number);
        }
        if version.is_legacy() {
            to.put_slice(&LEGACY_PADDING);
        }
    }

    fn get(from: &mut &[u8], version: Version) -> Self {
        let padding = if version.is_legacy() {
            LEGACY_PADDING.len()
        } else {
            0
        };
        let datagrams = from.get_u32();
        from.advance(padding);
        let sub_interval = Self {
            datagrams,
            bytes: from.get_u64(),
            span_us: from.get_u32(),
            lost: from.get_u32(),
            reordered: from.get_u32(),
            duplicated: from.get_u32(),
            delay_min_ms: from.get_u32(),
            delay_max_ms: from.get_u32(),
            delay_sum_ms: from.get_u32(),
            delay_count: from.get_u32(),
            rtt_min_ms: from.get_u32(),
            rtt_max_ms: from.get_u32(),
            elapsed_ms: from.get_u32(),
        };
        from.advance(padding);
        sub_interval
    }
}

#[cfg(test)]
mod tests {
    use super::super::Transmitter;
    use super::*;

    fn some() -> Status {
        Status {
            action: Action::Stop,
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
            lost: 1,
            clock_delta_min_ms: -3,
            rtt_variation_ms: NO_DELAY,
            minimum_updated: true,
            trial_us: 50_001,
            trial_bytes: 77,
            sent: Stamp::of(8_000_000_009),
            ..Status::default()
        }
    }

    #[test]
    fn feedback_survives_the_wire_in_both_shapes() {
        for (version, length) in [(Version::NEWEST, 204), (Version::OLDEST, 168)] {
            let bytes = some().encode(version);
            assert_eq!(bytes.len(), length);
            assert_eq!(Status::decode(&bytes, version), Ok(some()));
        }
    }

    #[test]
    fn feedback_of_another_version_is_refused_by_its_length() {
        let bytes = some().encode(Version::OLDEST);
        assert_eq!(
            Status::decode(&bytes, Version::NEWEST)
                .unwrap_err()
                .to_string(),
            "status feedback of 168 bytes, where 204 are right"
        );
    }

    #[test]
    fn a_mean_delay_is_rounded_and_absent_without_datagrams() {
        let mean = |sum, count| {
            Status {
                delay_sum_ms: sum,
                delay_count: count,
                ..Status::default()
            }
            .delay_mean_ms()
        };
        assert_eq!(mean(0, 0), None);
        assert_eq!(mean(7, 2), Some(4));
        assert_eq!(mean(u32::MAX, 1), Some(u32::MAX));
    }
}
