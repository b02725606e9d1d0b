//! STAMP's extensions: a type, a length, a value, and flags by which a reflector says what it made of it
//! (RFC 8972 section 4).

use bytes::BufMut;
use strum::FromRepr;

use super::wire::BASE;
use crate::codec::{Wire, wire_order};

/// Flags (1), type (1), length of the value (2).
pub(crate) const HEADER: usize = 4;

/// U: not understood. A sender sets it, a reflector that understands takes it away.
const UNRECOGNISED: u8 = 0x80;
/// M: the length is not what it must be, or more than is left of the packet.
const MALFORMED: u8 = 0x40;
/// I: its integrity could not be verified.
const INTEGRITY: u8 = 0x20;

/// What an extension is; the types of RFC 8972 section 5.1 that farwire acts on, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum TlvKind {
    /// Makes the packet longer.
    ExtraPadding = 1,
    /// DSCP and ECN as they arrived (section 4.4).
    ClassOfService = 4,
    /// The reflector's counters (section 4.5).
    DirectMeasurement = 5,
    /// When the previous answer left (section 4.7).
    FollowUpTelemetry = 7,
    /// Proof that both ends read one clock, and what the reflector's socket lost; of the types for experiments (section 5.1).
    SameClock = 251,
}

/// One extension of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tlv<'a> {
    flags: &'a mut u8,
    /// Its type, known or not.
    pub(crate) number: u8,
    /// Its value, of the length that its type asks for where the type is known.
    pub(crate) value: &'a mut [u8],
}

impl TlvKind {
    /// Bytes of the value; any where there is none.
    pub(crate) fn length(self) -> Option<usize> {
        match self {
            Self::ExtraPadding => None,
            Self::ClassOfService => Some(4),
            Self::DirectMeasurement => Some(12),
            Self::FollowUpTelemetry => Some(16),
            Self::SameClock => Some(20),
        }
    }
}

impl Tlv<'_> {
    /// What it is, if it is known here.
    pub(crate) fn kind(&self) -> Option<TlvKind> {
        TlvKind::from_repr(self.number)
    }

    /// Says that it was understood.
    pub(crate) fn recognise(&mut self) {
        *self.flags &= !UNRECOGNISED;
    }

    /// Whether the far end understood it.
    pub(crate) fn is_answered(&self) -> bool {
        *self.flags & (UNRECOGNISED | MALFORMED | INTEGRITY) == 0
    }
}

/// Adds an extension with a zeroed value of `length` bytes to `packet`, as a sender does, and gives the value.
pub(crate) fn append(packet: &mut Vec<u8>, kind: TlvKind, length: u16) -> &mut [u8] {
    packet.extend([UNRECOGNISED, kind as u8]);
    packet.extend(length.to_be_bytes());
    let start = packet.len();
    packet.resize(start + usize::from(length), 0);
    &mut packet[start..]
}

/// Shows `see` each extension of a request that is to be reflected, with all flags as if it were not understood.
///
/// A malformed one gets its flag; it and what follows are left as they came (RFC 8972 section 4: processing stops and
/// the rest is copied).
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

/// Shows `see` each extension of an answer that the far end understood and that is whole.
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

/// Follow-Up Telemetry: which answer left when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowUp {
    /// The reflector's sequence number of an earlier answer.
    pub(crate) sequence: u32,
    /// When it left, in the form of the reflector's stamps.
    pub(crate) departed: u64,
    /// How that is known: 1 is by hardware, 2 by software, 3 from the control plane (RFC 8972 section 4.3).
    pub(crate) method: u8,
}

wire_order!(FollowUp: sequence, departed, method);

/// A stamp that software took.
pub(crate) const SOFTWARE: u8 = 2;

impl FollowUp {
    /// Out of the extension's value; nothing when it names no answer: method and time are both 0.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let found = (value.len() == 16).then(|| Self::get(&mut &value[..]));
        found.filter(|found| found.departed != 0)
    }

    /// Into the extension's value.
    pub(crate) fn emit(&self, mut value: &mut [u8]) {
        self.put(&mut value);
        value.put_bytes(0, value.len());
    }
}

/// farwire's own extension: a challenge from the sender, to which only a program on the same kernel has the answer. A reflector
/// answers to nobody else, so that no stranger learns which addresses are one machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SameClock {
    /// Of the sender's choice.
    pub(crate) challenge: u64,
    /// The sender's proof that it is on this kernel, then the reflector's: keyed digests of the challenge; the key is the
    /// kernel's boot id. Zero where there is none.
    pub(crate) response: u64,
    /// The reflector's: requests that its socket had no room for since it was opened, of all its senders.
    pub(crate) overflowed: u32,
}

wire_order!(SameClock: challenge, response, overflowed);

impl SameClock {
    /// Out of the extension's value.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        (value.len() == 20).then(|| Self::get(&mut &value[..]))
    }

    /// Into the extension's value.
    pub(crate) fn emit(&self, mut value: &mut [u8]) {
        self.put(&mut value);
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
    fn an_unknown_extension_comes_back_as_it_went_and_flagged() {
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
        // More than is left.
        let (out, _) = reflected(&[0x80, 1, 0xff, 0xff, 9]);
        assert_eq!(out, [0x40, 1, 0xff, 0xff, 9]);
        // Too short for a header: nothing to flag.
        let (out, _) = reflected(&[0x80, 1, 0]);
        assert_eq!(out, [0x80, 1, 0]);
    }

    #[test]
    fn a_sender_reads_what_was_understood_and_nothing_else() {
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
    fn values_survive_the_wire() {
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
    }

    proptest! {
        #[test]
        fn any_extensions_are_walked_to_their_end(tlvs in prop::collection::vec(any::<u8>(), 0..200)) {
            let (out, _) = reflected(&tlvs);
            prop_assert_eq!(out.len(), tlvs.len());
            read(&mut packet(&tlvs), |kind, value| {
                assert!(kind.length().is_none_or(|due| due == value.len()));
            });
        }
    }
}
