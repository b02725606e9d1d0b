//! The messages of the UDP Speed Test Protocol (RFC 9946) as bytes.
//!
//! Everything is big-endian. Protocol version 20 is the RFC's. obudpst before release 9 speaks versions 11 to 19: their
//! activation ends earlier and counts sub-intervals in seconds, and their feedback has the padding of that program's
//! compiler. Each message is decoded only if it has exactly its length, so that a hostile message costs no more than
//! its rejection.

mod control;
mod data;

use bytes::{Buf, BufMut};

pub(crate) use control::{
    Activation, ActivationAnswer, Algorithm, Setup, SetupAnswer, Sizes, StartRow, TestParameters,
    Thresholds, is_null_request, null_request,
};
#[cfg(test)]
pub(crate) use data::DelayVariation;
pub(crate) use data::{
    ArrivalCounts, FeedbackMessage, LOAD_HEADER, LoadHeader, NO_DELAY, SubInterval, TestAction,
};

use crate::codec::{Wire, ones_complement_sum, wire_order};

/// The port where servers listen, registered with IANA. obudpst before release 9 used 25000.
pub const CONTROL_PORT: u16 = 24601;

/// The longest message except a load PDU, in bytes.
pub(crate) const LONGEST_MESSAGE: usize = 256;

/// A protocol version that farwire speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u16);

/// A wall-clock time in the protocol's form: seconds and nanoseconds, 32 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    seconds: u32,
    nanos: u32,
}

wire_order!(Stamp: seconds, nanos);

/// One of the two transmitters of a sending rate, which sends a burst per interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transmitter {
    /// The time between two bursts in microseconds; 0 means that it sends nothing.
    pub(crate) interval_us: u32,
    /// The UDP payload over IPv4 of the datagrams in a burst, in bytes.
    pub(crate) payload: u32,
    /// The number of datagrams in a burst.
    pub(crate) burst: u32,
    /// The UDP payload of one more datagram in each burst, in bytes; 0 means none. The first transmitter has none.
    pub(crate) addon: u32,
}

/// A sending rate. A payload with [`RANDOM_SIZE`] is the upper limit of random sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendingRate {
    /// The fast transmitter, with a burst every 100 us.
    pub(crate) first: Transmitter,
    /// The slow transmitter, with a burst every millisecond, for the remainder.
    pub(crate) second: Transmitter,
}

/// A flag in a payload: the size of each datagram is drawn between the smallest size and this one.
pub(crate) const RANDOM_SIZE: u32 = 0x8000_0000;

/// The reason why bytes are not the expected message, whose name is the first field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedMessage {
    /// The number of bytes, and the correct number.
    #[error("{0} of {1} bytes instead of {2}")]
    Length(&'static str, usize, usize),
    /// The identifier, and the correct one.
    #[error("identifier 0x{1:04x} instead of 0x{2:04x} for {0}")]
    Identifier(&'static str, u16, u16),
    /// A field, by its name in the RFC, and its invalid value.
    #[error("{0} with {1} {2}")]
    Field(&'static str, &'static str, u8),
    /// The message has a checksum, which is wrong.
    #[error("{0} with a wrong header checksum")]
    Checksum(&'static str),
}

/// The properties that identify a message before its fields are read.
struct Format {
    name: &'static str,
    identifier: u16,
    length: usize,
    checksum_at: usize,
}

impl Format {
    /// Checks the length, the identifier and the checksum, if there is one. Returns the bytes after the identifier.
    fn check<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], MalformedMessage> {
        if bytes.len() != self.length {
            return Err(MalformedMessage::Length(
                self.name,
                bytes.len(),
                self.length,
            ));
        }
        let mut fields = bytes;
        let identifier = fields.get_u16();
        if identifier != self.identifier {
            return Err(MalformedMessage::Identifier(
                self.name,
                identifier,
                self.identifier,
            ));
        }
        // Zero means that the sender relies on the UDP checksum, as this end does.
        let present = bytes[self.checksum_at..self.checksum_at + 2] != [0, 0];
        if present && ones_complement_sum(bytes) != 0xffff {
            return Err(MalformedMessage::Checksum(self.name));
        }
        Ok(fields)
    }

    /// Returns an error for a field that exceeds `most`.
    fn at_most(&self, field: &'static str, value: u8, most: u8) -> Result<(), MalformedMessage> {
        if value > most {
            return Err(MalformedMessage::Field(self.name, field, value));
        }
        Ok(())
    }
}

impl Version {
    /// The version of RFC 9946, and of obudpst from release 9.
    pub(crate) const NEWEST: Self = Self(20);
    /// The oldest version of obudpst before release 9 that farwire speaks.
    pub(crate) const OLDEST: Self = Self(11);

    /// Returns the version `number`, if farwire speaks it.
    pub(crate) fn spoken(number: u16) -> Option<Self> {
        (Self::OLDEST.0..=Self::NEWEST.0)
            .contains(&number)
            .then_some(Self(number))
    }

    /// Returns the number in messages.
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    fn is_legacy(self) -> bool {
        self < Self::NEWEST
    }
}

impl Stamp {
    /// Returns the stamp of a time in nanoseconds since 1970.
    pub(crate) fn of(nanos: u64) -> Self {
        Self {
            // The protocol's seconds wrap in 2106.
            seconds: u32::try_from(nanos / 1_000_000_000 % (1 << 32)).unwrap_or_default(),
            nanos: u32::try_from(nanos % 1_000_000_000).unwrap_or_default(),
        }
    }

    /// Returns the time in nanoseconds since 1970.
    pub(crate) fn nanos(self) -> u64 {
        u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanos)
    }

    /// Returns whether no time was given.
    pub(crate) fn is_unset(self) -> bool {
        self == Self::default()
    }
}

impl Wire for SendingRate {
    fn put(&self, to: &mut impl BufMut) {
        for transmitter in [self.first, self.second] {
            to.put_u32(transmitter.interval_us);
            to.put_u32(transmitter.payload);
            to.put_u32(transmitter.burst);
        }
        to.put_u32(self.second.addon);
    }

    fn get(from: &mut impl Buf) -> Self {
        let mut transmitter = || Transmitter {
            interval_us: from.get_u32(),
            payload: from.get_u32(),
            burst: from.get_u32(),
            addon: 0,
        };
        let (first, mut second) = (transmitter(), transmitter());
        second.addon = from.get_u32();
        Self { first, second }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stamp_carries_nanoseconds() {
        let stamp = Stamp::of(1_700_000_000_123_456_789);
        assert_eq!(stamp.nanos(), 1_700_000_000_123_456_789);
        assert!(!stamp.is_unset());
    }

    #[test]
    fn an_unsupported_version_is_none() {
        assert_eq!(Version::spoken(10), None);
        assert_eq!(Version::spoken(21), None);
        assert_eq!(Version::spoken(20), Some(Version::NEWEST));
        assert!(Version::spoken(19).unwrap().is_legacy());
    }

    #[test]
    fn a_wrong_checksum_is_refused_and_a_correct_or_absent_one_is_accepted() {
        let mut bytes = LoadHeader::default().encode().to_vec();
        assert!(LoadHeader::decode(&bytes).is_ok());
        let sum = !ones_complement_sum(&bytes);
        bytes[30..].copy_from_slice(&sum.to_be_bytes());
        assert!(LoadHeader::decode(&bytes).is_ok());
        bytes[30] ^= 1;
        assert_eq!(
            LoadHeader::decode(&bytes),
            Err(MalformedMessage::Checksum("load PDU"))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Setup::decode(&bytes);
            let _ = LoadHeader::decode(&bytes);
            for version in [Version::OLDEST, Version::NEWEST] {
                let _ = Activation::decode(&bytes, version);
                let _ = FeedbackMessage::decode(&bytes, version);
            }
        }
    }
}
