//! The load PDU: 32 bytes of header, then filling.

use bytes::{Buf, BufMut};

use super::{Action, Malformed, Stamp, check, flag};

const NAME: &str = "load PDU";
const IDENTIFIER: u16 = 0xbeef;

/// Bytes of a load PDU before its filling.
pub(crate) const LOAD_HEADER: usize = 32;

/// What a load PDU tells beside its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadHeader {
    /// Whether the test goes on.
    pub(crate) action: Action,
    /// The sender has had no feedback for a second.
    pub(crate) feedback_stopped: bool,
    /// Counts load PDUs from 1.
    pub(crate) sequence: u32,
    /// UDP payload bytes of this datagram.
    pub(crate) payload: u16,
    /// Feedback messages missed before the last one; 65,535 when they came out of order.
    pub(crate) feedback_missed: u16,
    /// The sending time in the last feedback received; unset before the first.
    pub(crate) feedback_stamp: Stamp,
    /// When this PDU was sent, by the sender's wall clock.
    pub(crate) sent: Stamp,
    /// From receiving that feedback to sending this PDU, in milliseconds.
    pub(crate) response_delay_ms: u16,
}

impl LoadHeader {
    /// As bytes, without a checksum.
    pub(crate) fn encode(&self) -> [u8; LOAD_HEADER] {
        let mut bytes = [0; LOAD_HEADER];
        let mut to = &mut bytes[..];
        to.put_u16(IDENTIFIER);
        to.put_u8(self.action.number());
        to.put_u8(self.feedback_stopped.into());
        to.put_u32(self.sequence);
        to.put_u16(self.payload);
        to.put_u16(self.feedback_missed);
        self.feedback_stamp.put(&mut to);
        self.sent.put(&mut to);
        to.put_u16(self.response_delay_ms);
        bytes
    }

    /// From a datagram; what follows the header is not looked at.
    ///
    /// # Errors
    /// It is no load PDU.
    pub(crate) fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let header = &datagram[..datagram.len().min(LOAD_HEADER)];
        check(header, NAME, LOAD_HEADER, IDENTIFIER, LOAD_HEADER - 2)?;
        let mut from = &header[2..];
        Ok(Self {
            action: Action::of(from.get_u8(), NAME)?,
            feedback_stopped: flag(from.get_u8(), NAME, "rxStopped")?,
            sequence: from.get_u32(),
            payload: from.get_u16(),
            feedback_missed: from.get_u16(),
            feedback_stamp: Stamp::get(&mut from),
            sent: Stamp::get(&mut from),
            response_delay_ms: from.get_u16(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_header_survives_the_wire_with_its_filling() {
        let header = LoadHeader {
            action: Action::Stop,
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
    fn a_cut_load_header_says_what_would_be_right() {
        let error = LoadHeader::decode(&LoadHeader::default().encode()[..31]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "load PDU of 31 bytes, where 32 are right"
        );
    }
}
