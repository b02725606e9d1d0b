//! The messages of the UDP Speed Test Protocol (RFC 9946), as bytes.
//!
//! Everything is big-endian. Protocol version 20 is the RFC's; versions 11 to 19 are what obudpst before release 9
//! speaks: the activation ends earlier and counts sub-intervals in seconds, and the feedback is padded as that
//! program's compiler padded it. Each message is decoded from exactly as many bytes as it has, so that a hostile
//! one costs nothing but its refusal.

mod control;
mod data;

use bytes::{Buf, BufMut};

pub(crate) use control::{
    Activation, ActivationAnswer, Algorithm, Setup, SetupAnswer, Sizes, StartRow, TestParameters,
    Thresholds, null_request,
};
#[cfg(test)]
pub(crate) use data::DelayVariation;
pub(crate) use data::{
    ArrivalCounts, FeedbackMessage, LOAD_HEADER, LoadHeader, NO_DELAY, SubInterval, TestAction,
};

use crate::codec::{Wire, ones_complement_sum, wire_order};

/// Where servers listen: registered with IANA. obudpst before release 9 used 25000.
pub const CONTROL_PORT: u16 = 24601;

/// The longest message other than a load PDU, in bytes.
pub(crate) const LONGEST_MESSAGE: usize = 256;

/// A protocol version that farwire speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u16);

/// A wall-clock time as the protocol carries it: seconds and nanoseconds, 32 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    seconds: u32,
    nanos: u32,
}

wire_order!(Stamp: seconds, nanos);

/// One of the two transmitters of a sending rate: a burst each interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transmitter {
    /// From one burst to the next, in microseconds; 0 sends nothing.
    pub(crate) interval_us: u32,
    /// UDP payload bytes of a burst's datagrams over IPv4.
    pub(crate) payload: u32,
    /// Datagrams in a burst.
    pub(crate) burst: u32,
    /// UDP payload bytes of one more datagram in each burst; 0 is none. The first transmitter has none.
    pub(crate) addon: u32,
}

/// How to send at one rate; a payload with [`RANDOM_SIZE`] set is the largest of random ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendingRate {
    /// The fast one: a burst each 100 us.
    pub(crate) first: Transmitter,
    /// The slow one: a burst each millisecond, for what is left.
    pub(crate) second: Transmitter,
}

/// In a payload: each datagram's size is drawn between the smallest and this one.
pub(crate) const RANDOM_SIZE: u32 = 0x8000_0000;

/// Why bytes are not the message that they should be; each names that message first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// So many bytes came; so many there should be.
    #[error("{0} of {1} bytes instead of {2}")]
    Length(&'static str, usize, usize),
    /// This identifier came; this one it should be.
    #[error("identifier 0x{1:04x} instead of 0x{2:04x} for {0}")]
    Identifier(&'static str, u16, u16),
    /// The field, by its name in the RFC, has a value without a meaning.
    #[error("{0} with {1} {2}")]
    Field(&'static str, &'static str, u8),
    /// A checksum is there and does not fit.
    #[error("{0} with a wrong header checksum")]
    Checksum(&'static str),
}

/// What tells a message from others before its fields are read.
struct Format {
    name: &'static str,
    identifier: u16,
    length: usize,
    checksum_at: usize,
}

impl Format {
    /// Checks length, identifier and, where there is one, the checksum; gives what follows the identifier.
    fn check<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
        if bytes.len() != self.length {
            return Err(Malformed::Length(self.name, bytes.len(), self.length));
        }
        let mut fields = bytes;
        let came = fields.get_u16();
        if came != self.identifier {
            return Err(Malformed::Identifier(self.name, came, self.identifier));
        }
        // Zero says that the UDP checksum is relied upon, as it is here when sending.
        let present = bytes[self.checksum_at..self.checksum_at + 2] != [0, 0];
        if present && ones_complement_sum(bytes) != 0xffff {
            return Err(Malformed::Checksum(self.name));
        }
        Ok(fields)
    }

    /// Refuses a field that holds more than `most`.
    fn at_most(&self, field: &'static str, came: u8, most: u8) -> Result<(), Malformed> {
        if came > most {
            return Err(Malformed::Field(self.name, field, came));
        }
        Ok(())
    }
}

impl Version {
    /// RFC 9946's, and obudpst's from release 9.
    pub(crate) const NEWEST: Self = Self(20);
    /// What obudpst before release 9 speaks.
    pub(crate) const OLDEST: Self = Self(11);

    /// `number`, if farwire speaks it.
    pub(crate) fn spoken(number: u16) -> Option<Self> {
        (Self::OLDEST.0..=Self::NEWEST.0)
            .contains(&number)
            .then_some(Self(number))
    }

    /// As messages carry it.
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    fn is_legacy(self) -> bool {
        self < Self::NEWEST
    }
}

impl Stamp {
    /// Of a time since 1970.
    pub(crate) fn of(nanos: u64) -> Self {
        Self {
            // The protocol's seconds wrap in 2106.
            seconds: u32::try_from(nanos / 1_000_000_000 % (1 << 32)).unwrap_or_default(),
            nanos: u32::try_from(nanos % 1_000_000_000).unwrap_or_default(),
        }
    }

    /// Nanoseconds since 1970.
    pub(crate) fn nanos(self) -> u64 {
        u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanos)
    }

    /// Whether no time was given.
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
    fn a_version_outside_the_spoken_ones_is_none() {
        assert_eq!(Version::spoken(10), None);
        assert_eq!(Version::spoken(21), None);
        assert_eq!(Version::spoken(20), Some(Version::NEWEST));
        assert!(Version::spoken(19).unwrap().is_legacy());
    }

    #[test]
    fn a_wrong_checksum_is_refused_and_a_right_or_absent_one_is_not() {
        let mut bytes = LoadHeader::default().encode().to_vec();
        assert!(LoadHeader::decode(&bytes).is_ok());
        let sum = !ones_complement_sum(&bytes);
        bytes[30..].copy_from_slice(&sum.to_be_bytes());
        assert!(LoadHeader::decode(&bytes).is_ok());
        bytes[30] ^= 1;
        assert_eq!(
            LoadHeader::decode(&bytes),
            Err(Malformed::Checksum("load PDU"))
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
