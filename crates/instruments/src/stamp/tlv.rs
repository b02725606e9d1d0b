//! STAMP's extensions: a type, a length, a value, and flags with which a reflector tells how it processed the extension
//! (RFC 8972 section 4).

use bytes::BufMut;
use strum::FromRepr;

use super::wire::BASE;
use crate::codec::{Wire, wire_order};

/// The bytes before a value: flags (1), type (1), length of the value (2).
pub(crate) const HEADER: usize = 4;

/// Flag U: not understood. A sender sets it, and a reflector that understands the extension clears it.
const UNRECOGNISED: u8 = 0x80;
/// Flag M: the length is wrong for the type, or exceeds the packet.
const MALFORMED: u8 = 0x40;
/// Flag I: the integrity could not be verified.
const INTEGRITY: u8 = 0x20;

/// The most probes of a train. A reflector holds no more requests of a session.
pub(crate) const LONGEST_TRAIN: u16 = 64;
/// The bytes of the value of [`TlvKind::Train`].
pub(crate) const TRAIN_LENGTH: u16 = 4;

/// The types of RFC 8972 section 5.1 that farwire processes, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum TlvKind {
    /// Padding, which makes the packet longer.
    ExtraPadding = 1,
    /// DSCP and ECN as they arrived (section 4.4).
    ClassOfService = 4,
    /// The reflector's counters (section 4.5).
    DirectMeasurement = 5,
    /// The departure of the previous answer (section 4.7).
    FollowUpTelemetry = 7,
    /// Proof that both ends read the same clock, and the losses of the reflector's socket. It is one of the types for
    /// experiments (section 5.1).
    SameClock = 251,
    /// The place of a probe in its train. It is one of the types for private use (section 5.1).
    Train = 252,
}

/// One extension of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tlv<'a> {
    flags: &'a mut u8,
    /// The type, known or unknown.
    pub(crate) number: u8,
    /// The value, whose length is correct if the type is known.
    pub(crate) value: &'a mut [u8],
}

impl TlvKind {
    /// Returns the required length of the value in bytes, or `None` if any length is allowed.
    pub(crate) fn length(self) -> Option<usize> {
        match self {
            Self::ExtraPadding => None,
            Self::ClassOfService => Some(4),
            Self::DirectMeasurement => Some(12),
            Self::FollowUpTelemetry => Some(16),
            Self::SameClock => Some(20),
            Self::Train => Some(TRAIN_LENGTH.into()),
        }
    }
}

impl Tlv<'_> {
    /// Returns the type, if it is known.
    pub(crate) fn kind(&self) -> Option<TlvKind> {
        TlvKind::from_repr(self.number)
    }

    /// Marks the extension as understood.
    pub(crate) fn recognise(&mut self) {
        *self.flags &= !UNRECOGNISED;
    }

    /// Returns whether the far end understood the extension.
    pub(crate) fn is_answered(&self) -> bool {
        *self.flags & (UNRECOGNISED | MALFORMED | INTEGRITY) == 0
    }
}

/// Appends an extension with a zeroed value of `length` bytes to a request, and returns the value.
pub(crate) fn append(packet: &mut Vec<u8>, kind: TlvKind, length: u16) -> &mut [u8] {
    packet.extend([UNRECOGNISED, kind as u8]);
    packet.extend(length.to_be_bytes());
    let start = packet.len();
    packet.resize(start + usize::from(length), 0);
    &mut packet[start..]
}

/// Calls `see` with each extension of a request to reflect. All flags are set as if the extension were not understood.
///
/// A malformed extension gets its flag. Its value and everything behind it stay unchanged (RFC 8972 section 4:
/// processing stops and the rest is copied).
pub(crate) fn reflect(packet: &mut [u8], mut see: impl FnMut(&mut Tlv<'_>)) {
    let mut rest = packet.get_mut(BASE..).unwrap_or_default();
    while let Some((header, after)) = rest.split_first_chunk_mut::<HEADER>() {
        let [flags, number, high, low] = header;
        *flags = UNRECOGNISED;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let kind = TlvKind::from_repr(*number);
        let wrong = kind
            .and_then(TlvKind::length)
            .is_some_and(|due| due != length);
        if wrong || length > after.len() {
            *flags = MALFORMED | if kind.is_none() { UNRECOGNISED } else { 0 };
            return;
        }
        let (value, next) = after.split_at_mut(length);
        see(&mut Tlv {
            flags,
            number: *number,
            value,
        });
        rest = next;
    }
}

/// Calls `see` with each complete extension of an answer that the far end understood.
pub(crate) fn read(packet: &mut [u8], mut see: impl FnMut(TlvKind, &[u8])) {
    let mut rest = packet.get_mut(BASE..).unwrap_or_default();
    while let Some((header, after)) = rest.split_first_chunk_mut::<HEADER>() {
        let [flags, number, high, low] = header;
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *flags & MALFORMED != 0 || length > after.len() {
            return;
        }
        let (value, next) = after.split_at_mut(length);
        let tlv = Tlv {
            flags,
            number: *number,
            value,
        };
        if let Some(kind) = tlv.kind()
            && tlv.is_answered()
            && kind.length().is_none_or(|due| due == length)
        {
            see(kind, tlv.value);
        }
        rest = next;
    }
}

/// Returns the value of the first extension of this type in a request. `None` means that there is none, or that an
/// extension before it is malformed.
fn find(request: &[u8], wanted: TlvKind) -> Option<&[u8]> {
    let mut rest = request.get(BASE..)?;
    loop {
        let (header, after) = rest.split_first_chunk::<HEADER>()?;
        let [_, number, high, low] = *header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, next) = after.split_at_checked(length)?;
        let kind = TlvKind::from_repr(number);
        let due = kind.and_then(TlvKind::length);
        if due.is_some_and(|due| due != length) {
            return None;
        }
        if kind == Some(wanted) {
            return Some(value);
        }
        rest = next;
    }
}

/// Follow-Up Telemetry: an answer and the time of its departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowUp {
    /// The reflector's sequence number of an earlier answer.
    pub(crate) sequence: u32,
    /// The time of departure in the format of the reflector's timestamps.
    pub(crate) departed: u64,
    /// The source of the time: 1 is hardware, 2 is software, 3 is the control plane (RFC 8972 section 4.3).
    pub(crate) method: u8,
}

wire_order!(FollowUp: sequence, departed, method);

/// The method of a timestamp that software took.
pub(crate) const SOFTWARE: u8 = 2;

impl FollowUp {
    /// Parses the value of the extension. `None` means that it names no answer, because method and time are both 0.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let found = (value.len() == 16).then(|| Self::get(&mut &value[..]));
        found.filter(|found| found.departed != 0)
    }

    /// Writes the value of the extension.
    pub(crate) fn emit(&self, mut value: &mut [u8]) {
        self.put(&mut value);
        value.put_bytes(0, value.len());
    }
}

/// farwire's own extension: a challenge of the sender, which only a program on the same kernel can answer. A reflector
/// answers nobody else, so that strangers do not learn which addresses belong to one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SameClock {
    /// The sender's challenge.
    pub(crate) challenge: u64,
    /// In a request, the sender's proof that it is on this kernel; in an answer, the reflector's response. Both are
    /// digests of the challenge, keyed with the kernel's boot id. Zero means none.
    pub(crate) response: u64,
    /// In an answer, the number of requests of all senders for which the reflector's socket had no room since it was
    /// opened.
    pub(crate) overflowed: u32,
}

wire_order!(SameClock: challenge, response, overflowed);

impl SameClock {
    /// Parses the value of the extension.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        (value.len() == 20).then(|| Self::get(&mut &value[..]))
    }

    /// Writes the value of the extension.
    pub(crate) fn emit(&self, mut value: &mut [u8]) {
        self.put(&mut value);
    }
}

/// farwire's extension for trains, which are probes that leave back to back: the place of a probe in its train. A
/// reflector that understands it answers the probes of a train together, so that its answers are a train, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrainPlace {
    /// The place of the probe, from 0.
    pub(crate) place: u16,
    /// The number of probes of the train, at most [`LONGEST_TRAIN`].
    pub(crate) length: u16,
}

wire_order!(TrainPlace: place, length);

impl TrainPlace {
    /// Parses the value of the extension. `None` means that there is no such place, or that the train is too long.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let found = (value.len() == usize::from(TRAIN_LENGTH)).then(|| Self::get(&mut &value[..]));
        found.filter(|found| found.place < found.length && found.length <= LONGEST_TRAIN)
    }

    /// Returns the place of a request, if it belongs to a train.
    pub(crate) fn of(request: &[u8]) -> Option<Self> {
        Self::parse(find(request, TlvKind::Train)?)
    }

    /// Writes the value of the extension.
    pub(crate) fn emit(&self, mut value: &mut [u8]) {
        self.put(&mut value);
    }

    /// Returns whether it is the last place of the train.
    pub(crate) fn is_last(self) -> bool {
        self.place + 1 == self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(tlvs: &[u8]) -> Vec<u8> {
        [&[0; BASE][..], tlvs].concat()
    }

    fn reflected(tlvs: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut packet = packet(tlvs);
        let mut seen = Vec::new();
        reflect(&mut packet, |tlv| {
            seen.push(tlv.number);
            if tlv.kind().is_some() {
                tlv.recognise();
            }
        });
        (packet.split_off(BASE), seen)
    }

    #[test]
    fn an_unknown_extension_returns_unchanged_and_flagged() {
        let (out, seen) = reflected(&[0x00, 99, 0, 2, 7, 8, 0x80, 1, 0, 1, 5]);
        assert_eq!(out, [0x80, 99, 0, 2, 7, 8, 0x00, 1, 0, 1, 5]);
        assert_eq!(seen, [99, 1]);
    }

    #[test]
    fn a_malformed_extension_ends_the_processing_and_the_rest_is_copied() {
        // A class of service has 4 bytes.
        let (out, seen) = reflected(&[0x80, 4, 0, 2, 1, 2, 0x80, 1, 0, 0]);
        assert_eq!(out, [0x40, 4, 0, 2, 1, 2, 0x80, 1, 0, 0]);
        assert!(seen.is_empty());
        // The length exceeds the packet.
        let (out, _) = reflected(&[0x80, 1, 0xff, 0xff, 9]);
        assert_eq!(out, [0x40, 1, 0xff, 0xff, 9]);
        // The rest is too short for a header, so that there is nothing to flag.
        let (out, _) = reflected(&[0x80, 1, 0]);
        assert_eq!(out, [0x80, 1, 0]);
    }

    #[test]
    fn a_sender_reads_only_understood_extensions() {
        let read_kinds = |tlvs: &[u8]| {
            let mut kinds = Vec::new();
            read(&mut packet(tlvs), |kind, value| {
                kinds.push((kind, value.len()))
            });
            kinds
        };
        let understood = [0x00, 1, 0, 2, 0, 0];
        assert_eq!(read_kinds(&understood), [(TlvKind::ExtraPadding, 2)]);
        for refused in [
            [0x80, 1, 0, 2, 0, 0],
            [0x20, 1, 0, 2, 0, 0],
            [0x40, 1, 0, 2, 0, 0],
            [0x00, 4, 0, 2, 0, 0],
            [0x00, 1, 0, 3, 0, 0],
        ] {
            assert!(read_kinds(&refused).is_empty(), "{refused:?}");
        }
        let after_unknown = [&[0x80, 99, 0, 0][..], &understood].concat();
        assert_eq!(read_kinds(&after_unknown).len(), 1);
    }

    #[test]
    fn values_round_trip() {
        let follow_up = FollowUp {
            sequence: 7,
            departed: 8,
            method: SOFTWARE,
        };
        let mut value = [0xff; 16];
        follow_up.emit(&mut value);
        assert_eq!(FollowUp::parse(&value), Some(follow_up));
        assert_eq!(FollowUp::parse(&[0; 16]), None);
        let clock = SameClock {
            challenge: 1,
            response: 2,
            overflowed: 3,
        };
        let mut value = [0; 20];
        clock.emit(&mut value);
        assert_eq!(SameClock::parse(&value), Some(clock));
        assert_eq!(SameClock::parse(&value[1..]), None);
        let place = TrainPlace {
            place: 9,
            length: 10,
        };
        let mut value = [0; 4];
        place.emit(&mut value);
        assert_eq!(value, [0, 9, 0, 10]);
        assert_eq!(TrainPlace::parse(&value), Some(place));
        assert!(place.is_last());
        assert_eq!(TrainPlace::parse(&value[1..]), None);
    }

    #[test]
    fn a_train_has_a_possible_place_and_length() {
        for (value, is_possible) in [
            ([0, 0, 0, 1], true),
            ([0, 63, 0, 64], true),
            ([0, 0, 0, 0], false),
            ([0, 10, 0, 10], false),
            ([0, 0, 0, 65], false),
            ([255, 255, 255, 255], false),
        ] {
            let found = TrainPlace::parse(&value);
            assert_eq!(found.is_some(), is_possible, "{value:?}");
        }
    }

    #[test]
    fn a_request_of_a_train_is_found_behind_other_extensions() {
        let train = [0x80, 252, 0, 4, 0, 2, 0, 5];
        let place = Some(TrainPlace {
            place: 2,
            length: 5,
        });
        let of = |before: &[u8]| TrainPlace::of(&packet(&[before, &train].concat()));
        assert_eq!(of(&[]), place);
        assert_eq!(of(&[0x80, 99, 0, 2, 7, 8, 0x80, 1, 0, 1, 5]), place);
        // A class of service has 4 bytes: processing ends there, as it does when the answer is written.
        assert_eq!(of(&[0x80, 4, 0, 2, 1, 2]), None);
        // The length exceeds the packet.
        assert_eq!(of(&[0x80, 99, 0, 200]), None);
        assert_eq!(TrainPlace::of(&packet(&train[..7])), None);
        assert_eq!(TrainPlace::of(&[0; BASE - 1]), None);
    }

    proptest! {
        #[test]
        fn any_extensions_are_parsed_to_their_end(tlvs in prop::collection::vec(any::<u8>(), 0..200)) {
            let (out, _) = reflected(&tlvs);
            prop_assert_eq!(out.len(), tlvs.len());
            TrainPlace::of(&packet(&tlvs));
            read(&mut packet(&tlvs), |kind, value| {
                assert!(kind.length().is_none_or(|due| due == value.len()));
            });
        }
    }
}
