//! What stands at the start of iperf3's datagrams: when it was sent, and its number (iperf_udp.c).
//!
//! Big-endian: seconds (4 bytes) and microseconds (4) of the sender's clock, then the number, from 1, in 4 bytes, or in
//! 8 where both ends agreed on `udp_counters_64bit`.

use model::Nanos;

/// How wide the numbers of a test's datagrams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// 4 bytes: they wrap after 2^32 datagrams.
    Bits32,
    /// 8 bytes.
    Bits64,
}

/// The start of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamped {
    /// The sender's clock, whose origin is unknown, at sending; whole microseconds.
    pub(crate) sent: Nanos,
    /// From 1 in each stream.
    pub(crate) number: u64,
}

impl Counter {
    /// Bytes of the shortest datagram.
    pub(crate) const fn header(self) -> usize {
        match self {
            Self::Bits32 => 12,
            Self::Bits64 => 16,
        }
    }

    /// Writes the start of a datagram, which is at least [`Self::header`] long.
    pub(crate) fn write(self, stamped: Stamped, datagram: &mut [u8]) {
        let seconds = stamped.sent.0 / 1_000_000_000;
        let micros = stamped.sent.0 % 1_000_000_000 / 1000;
        datagram[..4].copy_from_slice(&low_half(seconds));
        datagram[4..8].copy_from_slice(&low_half(micros));
        match self {
            Self::Bits32 => datagram[8..12].copy_from_slice(&low_half(stamped.number)),
            Self::Bits64 => datagram[8..16].copy_from_slice(&stamped.number.to_be_bytes()),
        }
    }

    /// Reads the start of a datagram; `None` if that is too short to be one.
    pub(crate) fn read(self, datagram: &[u8]) -> Option<Stamped> {
        let seconds = u64::from(u32::from_be_bytes(*datagram.first_chunk()?));
        let micros = u64::from(u32::from_be_bytes(*datagram.get(4..)?.first_chunk()?));
        let rest = datagram.get(8..)?;
        let number = match self {
            Self::Bits32 => u64::from(u32::from_be_bytes(*rest.first_chunk()?)),
            Self::Bits64 => u64::from_be_bytes(*rest.first_chunk()?),
        };
        let sent = Nanos(seconds * 1_000_000_000 + micros * 1000);
        Some(Stamped { sent, number })
    }
}

/// The lower four bytes, big-endian.
fn low_half(value: u64) -> [u8; 4] {
    let [.., a, b, c, d] = value.to_be_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_iperf3() {
        let stamped = Stamped {
            sent: Nanos(0x0102_0304 * 1_000_000_000 + 5_000),
            number: 7,
        };
        let mut datagram = [0xff; 18];
        Counter::Bits32.write(stamped, &mut datagram);
        assert_eq!(datagram[..13], [1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 7, 0xff]);
        Counter::Bits64.write(stamped, &mut datagram);
        assert_eq!(datagram[8..17], [0, 0, 0, 0, 0, 0, 0, 7, 0xff]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0..=u32::MAX, micros in 0..1_000_000u64, number: u32, wide: bool) {
            let counter = if wide { Counter::Bits64 } else { Counter::Bits32 };
            let sent = Nanos(u64::from(seconds) * 1_000_000_000 + micros * 1000);
            let stamped = Stamped { sent, number: number.into() };
            let mut datagram = vec![0; counter.header()];
            counter.write(stamped, &mut datagram);
            prop_assert_eq!(counter.read(&datagram), Some(stamped));
        }

        #[test]
        fn no_bytes_are_read_beyond_the_end(bytes: Vec<u8>) {
            for counter in [Counter::Bits32, Counter::Bits64] {
                prop_assert_eq!(counter.read(&bytes).is_some(), bytes.len() >= counter.header());
            }
        }
    }
}
