//! The theoretical maximum against the size of a message.

use model::Bytes;
use serde::Serialize;

use super::{Impossible, PathConditions};
use crate::layers::{Counted, Stack};

/// The longest message, in bytes.
pub const LONGEST: u64 = 1_000_000_000_000;

/// Messages of one size, one after another, the wire never idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfSize {
    /// Payload of a message.
    pub bytes: u64,
    /// Each in TCP segments of its own, as a sender without Nagle's algorithm that writes them one by one. Messages that run
    /// together in a stream reach the ceiling of full segments at any size.
    pub tcp: MessageCost,
    /// Each in a datagram of its own, fragmented by IP where it has to be; absent above the longest.
    pub udp: Option<MessageCost>,
}

/// How messages of one size travel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MessageCost {
    /// Of one message.
    #[serde(flatten)]
    pub counted: Counted,
    /// How long a message occupies the wire.
    pub wire_s: f64,
    /// Payload over that time.
    pub goodput_bit_per_s: f64,
    /// Goodput in percent of the line rate.
    pub percent: f64,
}

/// Messages of `size`, 1 byte at least, over the line; a shaper is not looked at.
///
/// # Errors
/// A message above [`LONGEST`].
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

/// Full segments, and one with the rest.
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
        // 1 + 32 + 20 + 18 + 20; UDP is padded to 64.
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
    fn a_message_beyond_all_bounds_is_refused() {
        assert_eq!(of(LONGEST).bytes, LONGEST);
        let error = of_size(&gigabit(), Bytes(LONGEST + 1)).unwrap_err();
        assert!(error.to_string().contains("1000000000000 at most"));
    }
}
