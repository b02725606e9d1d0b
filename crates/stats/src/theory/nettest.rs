//! The table of overheads of "Experiment on Oct 10" (nettest, kernel 2.4.10), as published and with corrected values.

use std::fmt;

use serde::Serialize;

use crate::layers::{GAP, PREAMBLE};

/// A figure of nettest's table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// Its name and unit.
    pub what: &'static str,
    /// The value in the table.
    pub published: TableValue,
    /// The correct value.
    pub correct: TableValue,
    /// The reason for the difference, or that there is none.
    pub why: &'static str,
}

/// A number, or a share of the wire's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TableValue {
    /// A number in the unit that the figure names.
    Number(u64),
    /// A share of `part` among the bytes `of`.
    Share {
        /// The bytes counted.
        part: u64,
        /// The bytes in total.
        of: u64,
    },
}

/// The frames with header and FCS of the largest and of the smallest packet, in bytes.
const LONGEST: u64 = 1518;
const SHORTEST: u64 = 64;
/// The fastest blast on the same page, with messages of 98,304 bytes, in bytes per second.
pub const FASTEST_BLAST: f64 = 11_762_481.72;

/// Returns the table, in its own order: Ethernet at 100 Mb/s, IPv4.
pub fn overheads() -> [Overhead; 6] {
    const GAP_LEFT_OUT: &str = "the gap of 12 bytes between frames is missing";
    let share = |part, of| TableValue::Share { part, of };
    let same = |what, number| Overhead {
        what,
        published: TableValue::Number(number),
        correct: TableValue::Number(number),
        why: "as published",
    };
    [
        same("Fast Ethernet, bytes/s", 12_500_000),
        Overhead {
            what: "Ethernet payload, most",
            published: share(1500, LONGEST + u64::from(PREAMBLE)),
            correct: share(1500, LONGEST + u64::from(PREAMBLE) + u64::from(GAP)),
            why: GAP_LEFT_OUT,
        },
        Overhead {
            what: "Ethernet payload, least",
            published: share(1, SHORTEST + u64::from(PREAMBLE)),
            correct: share(1, SHORTEST + u64::from(PREAMBLE) + u64::from(GAP)),
            why: GAP_LEFT_OUT,
        },
        same("IP header, least", 20),
        Overhead {
            what: "IP payload, most",
            published: TableValue::Number(65_516),
            correct: TableValue::Number(65_515),
            why: "a length of 16 bits ends at 65,535, not at 64 KiB",
        },
        Overhead {
            why: "as published; today's systems add 12 bytes of timestamps",
            ..same("TCP header, least", 20)
        },
    ]
}

impl fmt::Display for TableValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Number(number) => number.fmt(f),
            Self::Share { part, of } => {
                let percent = 100.0 * part as f64 / of as f64;
                write!(f, "{part}/{of} {percent:>6.3} %")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::TransportProtocol;
    use crate::layers::tests::stack;

    #[test]
    fn the_published_error_is_the_gap() {
        let [_, most, least, ..] = overheads();
        let share = |part, of| TableValue::Share { part, of };
        assert_eq!(most.published, share(1500, 1526));
        assert_eq!(most.correct, share(1500, 1538));
        assert_eq!(least.published, share(1, 72));
        assert_eq!(least.correct, share(1, 84));
    }

    #[test]
    fn the_correct_figures_equal_those_of_computed_frames() {
        let full = stack(false, TransportProtocol::Udp).full_packet(1500);
        let [_, most, ..] = overheads();
        let (part, of) = (full.l3, full.l1);
        assert_eq!(most.correct, TableValue::Share { part, of });
    }
}
