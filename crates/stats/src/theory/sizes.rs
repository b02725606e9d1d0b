//! The theoretical maximum for each size of message.

use model::Bytes;
use serde::Serialize;

use super::{Impossible, PathConditions};
use crate::layers::{Counted, Stack};

/// The longest message, in bytes.
pub const LONGEST: u64 = 1_000_000_000_000;

/// Messages of one size, one after another, on a wire that is never idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfSize {
    /// The payload of a message, in bytes.
    pub bytes: u64,
    /// Each message in separate TCP segments, as from a sender without Nagle's algorithm that writes them one by one.
    /// Messages that are joined in a stream reach the ceiling of full segments at any size.
    pub tcp: MessageCost,
    /// Each message in one datagram, fragmented by IP if necessary; absent above the longest datagram.
    pub udp: Option<MessageCost>,
}

/// The cost of messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MessageCost {
    /// The bytes of one message.
    #[serde(flatten)]
    pub counted: Counted,
    /// The time that a message occupies the wire, in seconds.
    pub wire_s: f64,
    /// The payload divided by that time.
    pub goodput_bit_per_s: f64,
    /// Goodput in percent of the line rate.
    pub percent: f64,
}

/// Returns the cost of messages of `size`, at least 1 byte, on the line; a shaper is ignored.
///
/// # Errors
/// Returns an error for a message longer than [`LONGEST`].
pub fn of_size(conditions: &PathConditions, size: Bytes) -> Result<OfSize, Impossible> {
    let Bytes(bytes) = size;
    if bytes > LONGEST {
        return Err(Impossible::Message(bytes));
    }
    let (tcp, udp) = (conditions.stack, conditions.with_udp().stack);
    let datagram = || udp.datagram(bytes, conditions.mtu);
    Ok(OfSize {
        bytes,
        tcp: carried(conditions, segments(tcp, bytes, conditions.mtu)),
        udp: (bytes <= udp.most_datagram()).then(|| carried(conditions, datagram())),
    })
}

/// Returns full segments, and one with the rest.
fn segments(stack: Stack, bytes: u64, mtu: u32) -> Counted {
    let most = stack.most_payload(mtu);
    let full = stack.packet(most).times(bytes / most);
    match bytes % most {
        0 => full,
        rest => full + stack.packet(rest),
    }
}

fn carried(conditions: &PathConditions, counted: Counted) -> MessageCost {
    let rate = conditions.rate.get() as f64;
    MessageCost {
        wire_s: counted.l1 as f64 * 8.0 / rate,
        goodput_bit_per_s: rate * counted.efficiency(),
        percent: 100.0 * counted.efficiency(),
        counted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::tests::gigabit;

    fn of(bytes: u64) -> OfSize {
        of_size(&gigabit(), Bytes(bytes)).unwrap()
    }

    #[test]
    fn small_messages_pay_for_their_headers() {
        let one = of(1);
        // The sum is 1 + 32 + 20 + 18 + 20; UDP is padded to 64.
        assert_eq!(one.tcp.counted.l1, 91);
        assert!((one.tcp.percent - 100.0 / 91.0).abs() < 1e-9);
        assert_eq!(one.udp.unwrap().counted.l1, 84);
        assert!((one.udp.unwrap().wire_s - 672e-9).abs() < 1e-15);
    }

    #[test]
    fn a_message_of_whole_segments_reaches_the_ceiling() {
        let ten = of(14_480);
        assert_eq!(ten.tcp.counted.packets, 10);
        assert!((ten.tcp.percent - 94.148).abs() < 5e-4);
        let more = of(14_481);
        assert_eq!(more.tcp.counted.l1, 10 * 1538 + 91);
        assert!(more.tcp.percent < ten.tcp.percent);
    }

    #[test]
    fn no_datagram_is_longer_than_its_length_field() {
        assert!(of(65_507).udp.is_some());
        assert_eq!(of(65_508).udp, None);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        assert_eq!(of(LONGEST).bytes, LONGEST);
        let error = of_size(&gigabit(), Bytes(LONGEST + 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a message of 1000000000001 bytes is too long: at most 1000000000000 are allowed"
        );
    }
}
